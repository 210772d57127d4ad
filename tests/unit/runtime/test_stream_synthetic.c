// rt_synthetic: the same everywhere, and as skewed, tied together, drifting and learnable as it
// says.
#include "runtime/config/rt_formats.h"
#include "tests/unit/runtime/test_stream_support.h"

#include <inttypes.h>
#include <math.h>

#include "runtime/stream/rt_synthetic.h"

static rt_stream_config shape_config(rt_synthetic_shape shape, uint64_t samples)
{
    rt_stream_config config = {.format = RT_FORMAT_SYNTHETIC,
                               .samples_max = samples,
                               .synthetic_shape = shape,
                               .synthetic_scale = 1,
                               .synthetic_zipf = 1.1};
    return config;
}

static void generate(const rt_stream_config *config, uint64_t seed, rt_batch *all)
{
    rt_error error = {0};
    rt_stream_stats stats;
    if (read_all(config, seed, 4096, all, &stats, &error) != RT_END)
        fail_msg("%s", error.text);
    assert_int_equal(stats.samples, config->samples_max);
    assert_int_equal(all->sample_count, config->samples_max);
}

static uint32_t fields_of(const rt_batch *batch)
{
    return batch->key_count / batch->sample_count;
}

static void samples_are_well_formed(void **state)
{
    (void)state;
    static const uint32_t fields[] = {26, 22, 17}, dense[] = {13, 0, 3};
    static const double clicks[] = {0.256, 0.170, 0.108};
    for (int shape = 0; shape < 3; shape++) {
        rt_stream_config config = shape_config((rt_synthetic_shape)shape, 50000);
        config.synthetic_clusters = shape == 1 ? 0 : 32;
        rt_batch all;
        generate(&config, 1, &all);
        assert_int_equal(all.dense_count, dense[shape]);
        double labels = 0;
        for (uint32_t i = 0; i < all.sample_count; i++) {
            assert_int_equal(all.key_offsets[i], i * fields[shape]);
            for (uint32_t f = 0; f < fields[shape]; f++)
                assert_int_equal(rt_key_field(all.keys[i * fields[shape] + f]), f);
            for (uint32_t d = 0; d < dense[shape]; d++)
                assert_true(all.dense[i * dense[shape] + d] >= 0 &&
                            all.dense[i * dense[shape] + d] < 20);
            assert_true(all.labels[i] == 0 || all.labels[i] == 1);
            labels += all.labels[i];
        }
        // Calibrated on 16,384 samples: a deviation of sqrt(p q / 16384), four of them.
        double bound = 4 * sqrt(clicks[shape] * (1 - clicks[shape]) / 16384);
        test_close(labels / all.sample_count, clicks[shape], bound, 1, "click rate");
        rt_batch_fini(&all);
    }
}

// The first label and all else stay as they are; each of the others comes half as often as the one
// before, and is one of its own, more often together with the first than it would be by chance.
static void further_labels_come_beside_the_first(void **state)
{
    (void)state;
    enum { SAMPLES = 20000, LABELS = 3 };
    rt_stream_config config = shape_config(RT_SYNTHETIC_CRITEO, SAMPLES);
    rt_batch alone, all;
    rt_stream *stream;
    rt_error error = {0};
    double sums[LABELS] = {0}, both = 0;
    generate(&config, 1, &alone);
    config.synthetic_labels = LABELS;
    assert_int_equal(rt_stream_open(&config, 1, &stream, &error), RT_OK);
    rt_batch_init(&all, alone.dense_count);
    assert_int_equal(rt_stream_read(stream, &all, SAMPLES, &error), RT_OK);
    assert_int_equal(all.sample_count, SAMPLES);
    assert_memory_equal(all.keys, alone.keys, all.key_count * sizeof *all.keys);
    for (uint32_t i = 0; i < SAMPLES; i++) {
        assert_true(all.labels[i * LABELS] == alone.labels[i]);
        for (uint32_t l = 0; l < LABELS; l++) {
            sums[l] += all.labels[i * LABELS + l];
            assert_true(all.weights[i * LABELS + l] == 1);
        }
        both += all.labels[i * LABELS] * all.labels[i * LABELS + 1];
    }
    for (uint32_t l = 1; l < LABELS; l++)
        test_close(sums[l] / sums[l - 1], 0.5, 0.08, 1, "share of a further label");
    assert_true(both < 0.9 * sums[1] && both * SAMPLES > 1.2 * sums[0] * sums[1]);
    rt_batch_fini(&alone);
    rt_batch_fini(&all);
    rt_stream_close(stream);
}

static void a_seed_gives_the_same_samples(void **state)
{
    (void)state;
    rt_stream_config config = shape_config(RT_SYNTHETIC_CRITEO, 10000);
    config.synthetic_clusters = 16;
    config.synthetic_drift = 0.5;
    rt_batch first, other;
    rt_error error = {0};
    generate(&config, 7, &first);
    assert_int_equal(read_all(&config, 7, 333, &other, NULL, &error), RT_END);
    assert_same(&other, &first);
    rt_batch_fini(&other);
    generate(&config, 8, &other);
    uint32_t equal = 0;
    for (uint32_t i = 0; i < first.sample_count; i++)
        equal += memcmp(first.keys + i * 26, other.keys + i * 26, 26 * sizeof(uint64_t)) == 0;
    assert_int_equal(equal, 0);
    rt_batch_fini(&other);
    rt_synthetic *synthetic;
    assert_int_equal(rt_synthetic_create(&config, 7, &synthetic, &error), RT_OK);
    rt_synthetic_seek(synthetic, 9000);
    rt_batch_init(&other, 13);
    assert_int_equal(rt_batch_reserve(&other, 1000, 26000), RT_OK);
    rt_synthetic_fill(synthetic, &other, 1000);
    assert_int_equal(rt_synthetic_position(synthetic), 10000);
    assert_memory_equal(other.keys, first.keys + 9000 * 26, 26000 * sizeof(uint64_t));
    assert_memory_equal(other.labels, first.labels + 9000, 1000 * sizeof(float));
    assert_memory_equal(other.dense, first.dense + 9000 * 13, 13000 * sizeof(float));
    rt_synthetic_destroy(synthetic);
    rt_batch_fini(&other);
    config.synthetic_first = 9000;
    config.samples_max = 1000;
    generate(&config, 7, &other);
    assert_int_equal(other.sample_count, 1000);
    assert_memory_equal(other.keys, first.keys + 9000 * 26, 26000 * sizeof(uint64_t));
    assert_memory_equal(other.labels, first.labels + 9000, 1000 * sizeof(float));
    rt_batch_fini(&other);
    rt_batch_fini(&first);
}

// Recorded once. Another value on another machine or compiler means that plans differ too.
static void the_same_on_every_machine(void **state)
{
    (void)state;
    static const uint64_t want[3][3] = {
        {0xa545cc09ee493772, 0x078ce795bc30537d, 0x34d809a071b5c87b},
        {0x926cb5e7199ef06f, 0x708d2acee9132df0, 0x2d06800538d394c2},
        {0x7df3d66474b2cc64, 0x1f193e30b429d794, 0x0b6fecd3f0763f64}};
    for (int shape = 0; shape < 3; shape++) {
        rt_stream_config config = shape_config((rt_synthetic_shape)shape, 50000);
        config.synthetic_clusters = 20;
        config.synthetic_drift = 0.3;
        config.synthetic_zipf = 1.05 + 0.1 * shape;
        rt_batch all;
        generate(&config, 42, &all);
        uint64_t got[3] = {
            rt_hash_bytes(all.keys, all.key_count * sizeof(uint64_t)),
            rt_hash_bytes(all.labels, all.sample_count * sizeof(float)),
            rt_hash_bytes(all.dense, (size_t)all.sample_count * all.dense_count * sizeof(float))};
        for (int i = 0; i < 3; i++) {
            if (got[i] != want[shape][i])
                fail_msg("shape %d: 0x%016" PRIx64 ", 0x%016" PRIx64 ", 0x%016" PRIx64, shape,
                         got[0], got[1], got[2]);
        }
        rt_batch_fini(&all);
    }
}

// How often every id of a field comes, most frequent first; the missing id not among them.
static uint32_t count_ids(const rt_batch *all, uint32_t field, uint32_t *counts, uint32_t room,
                          uint32_t *missing_p)
{
    uint32_t fields = fields_of(all), distinct = 0, n = all->sample_count;
    uint64_t *sorted = malloc(n * sizeof *sorted);
    assert_non_null(sorted);
    for (uint32_t i = 0; i < n; i++)
        sorted[i] = all->keys[i * fields + field];
    qsort(sorted, n, sizeof *sorted, compare_keys);
    *missing_p = 0;
    for (uint32_t i = 0, j; i < n; i = j) {
        for (j = i; j < n && sorted[j] == sorted[i]; j++)
            ;
        if (sorted[i] == rt_key(field, RT_ID_MISSING)) {
            *missing_p = j - i;
            continue;
        }
        assert_true(distinct < room);
        uint32_t at = distinct++;
        for (; at > 0 && counts[at - 1] < j - i; at--)
            counts[at] = counts[at - 1];
        counts[at] = j - i;
    }
    free(sorted);
    return distinct;
}

static void expect_share(uint32_t count, uint32_t total, double want, const char *what)
{
    double bound = 5 * sqrt(want * (1 - want) / total) + 2.0 / 65536; // shares have 16 bits
    test_close((double)count / total, want, bound, 1, what);
}

// Ranks by a power law, against its integral: P(r) = (r^-s' - (r+1)^-s') / (1 - (n+1)^-s'),
// s' = s - 1.
static void popularity_is_a_power_law(void **state)
{
    (void)state;
    static const double exponents[] = {0, 0.8, 1, 1.1, 1.5, 2.5};
    static uint32_t counts[200000];
    for (uint32_t n = 0; n < RT_COUNT_OF(exponents); n++) {
        rt_stream_config config = shape_config(RT_SYNTHETIC_CRITEO, 200000);
        config.synthetic_scale = 0.1;
        config.synthetic_zipf = exponents[n];
        rt_batch all;
        generate(&config, 3, &all);
        uint32_t missing, ranks = 1251; // C7: a tenth of 12,517 ids, never missing
        uint32_t distinct = count_ids(&all, 6, counts, RT_COUNT_OF(counts), &missing);
        assert_int_equal(missing, 0);
        assert_true(distinct <= ranks && (exponents[n] > 1.2 || distinct == ranks));
        double s = exponents[n] == 1 ? 1e-9 : exponents[n] - 1;
        uint32_t head = 0;
        for (uint32_t r = 1, upto = 1; r <= 1000; r++) {
            head += r <= distinct ? counts[r - 1] : 0;
            if (r != upto || exponents[n] == 0)
                continue;
            upto *= 10;
            double want = (1 - pow(r + 1, -s)) / (1 - pow(ranks + 1, -s));
            double bound = 5 * sqrt(want * (1 - want) / all.sample_count) + 0.002;
            test_close((double)head / all.sample_count, want, bound, 1, "share of the head");
        }
        if (exponents[n] == 0) // uniform: 160 each, sorted; five deviations
            assert_true(counts[0] < 160 + 5 * 13 && counts[distinct - 1] > 160 - 5 * 13);
        rt_batch_fini(&all);
    }
}

// The published figures: Criteo's hottest 0.1% of the ids take about 90% of the look-ups, 16,384
// samples have about 65,000 distinct ids; one device takes 82.5% of Avazu.
static void figures_of_the_data_sets(void **state)
{
    (void)state;
    static uint32_t counts[400000];
    rt_stream_config config = shape_config(RT_SYNTHETIC_CRITEO, 400000);
    rt_batch all;
    uint32_t missing, distinct;
    generate(&config, 5, &all);
    rt_batch first = all;
    first.key_count = all.key_offsets[16384];
    test_close((double)distinct_of(&first), 65000, 0.1, 1, "distinct ids of 16,384 samples");
    uint64_t hottest = 0;
    uint32_t hot_count = 0, *every = malloc(all.key_count * sizeof *every);
    uint64_t *sorted = malloc(all.key_count * sizeof *sorted);
    assert_true(every && sorted);
    memcpy(sorted, all.keys, all.key_count * sizeof *sorted);
    qsort(sorted, all.key_count, sizeof *sorted, compare_keys);
    memset(counts, 0, sizeof counts); // counts[c]: ids that come c times
    for (uint32_t i = 0, j; i < all.key_count; i = j) {
        for (j = i; j < all.key_count && sorted[j] == sorted[i]; j++)
            ;
        counts[j - i < 400000 ? j - i : 399999]++;
        hottest += j - i == 400000; // none
    }
    for (uint32_t c = 399999; c > 0 && hot_count < 33762; c--) {
        uint32_t take = counts[c] < 33762 - hot_count ? counts[c] : 33762 - hot_count;
        hottest += (uint64_t)take * c;
        hot_count += take;
    }
    test_close((double)hottest / all.key_count, 0.9, 0.03, 1, "share of the hottest 0.1%");
    free(every);
    free(sorted);
    distinct = count_ids(&all, 8, counts, 400000, &missing); // C9: 3 ids, one with 89.9%
    assert_int_equal(distinct, 3);
    expect_share(counts[0], all.sample_count, 0.899, "C9's first id");
    count_ids(&all, 21, counts, 400000, &missing); // C22: missing in 76.3%
    expect_share(missing, all.sample_count, 0.763, "C22 missing");
    expect_share(counts[0], all.sample_count, 0.134, "C22's first id");
    rt_batch_fini(&all);
    config = shape_config(RT_SYNTHETIC_AVAZU, 100000);
    generate(&config, 5, &all);
    count_ids(&all, 9, counts, 400000, &missing);
    expect_share(counts[0], all.sample_count, 0.825, "device_id's first id");
    rt_batch_fini(&all);
}

// No field has more ids than the scaled shape, small ones have all of them, none fewer than two.
static void cardinalities_are_scaled(void **state)
{
    (void)state;
    static const uint32_t cardinalities[] = {
        1460,  583,  10131227, 2202608, 305, 24,     12517,   633,   3,
        93145, 5683, 8351593,  3194,    27,  14992,  5461306, 10,    5652,
        2173,  4,    7046547,  18,      15,  286181, 105,     142572};
    static const double scales[] = {1, 0.01, 0.0001};
    static uint32_t counts[300000];
    for (uint32_t n = 0; n < 3; n++) {
        rt_stream_config config = shape_config(RT_SYNTHETIC_CRITEO, 300000);
        config.synthetic_scale = scales[n];
        config.synthetic_zipf = 0.5;
        config.synthetic_clusters = n == 1 ? 10 : 0;
        rt_batch all;
        generate(&config, 9, &all);
        for (uint32_t f = 0; f < 26; f++) {
            uint32_t missing, ids = (uint32_t)(cardinalities[f] * scales[n]);
            ids = ids < 2 ? 2 : ids;
            if (ids > 30000)
                continue; // 300,000 samples do not meet them all
            uint32_t distinct = count_ids(&all, f, counts, 300000, &missing);
            if (distinct > ids || (ids < 600 && distinct < ids))
                fail_msg("C%u at scale %g: %u ids, expected %u", f + 1, scales[n], distinct, ids);
        }
        rt_batch_fini(&all);
    }
}

#define ANY UINT32_MAX

// Of the pairs of samples that share the id of one field (ANY: of all pairs), the share that also
// shares another's.
static double tied(const rt_batch *all, uint32_t field, uint32_t other)
{
    uint32_t fields = fields_of(all), same = 0, both = 0;
    rt_random random = {13};
    for (uint32_t n = 0; n < 4000000; n++) {
        const uint64_t *a =
            all->keys + (size_t)rt_random_below(&random, all->sample_count) * fields;
        const uint64_t *b =
            all->keys + (size_t)rt_random_below(&random, all->sample_count) * fields;
        if (a == b)
            continue;
        if (field != ANY && (a[field] != b[field] || a[field] == rt_key(field, RT_ID_MISSING)))
            continue;
        same++;
        both += a[other] == b[other];
    }
    assert_true(same > 1000);
    return (double)both / same;
}

static void entities_tie_fields_together(void **state)
{
    (void)state;
    rt_stream_config config = shape_config(RT_SYNTHETIC_CRITEO, 50000);
    rt_batch all;
    generate(&config, 1, &all);
    double same = tied(&all, 2, 3), other = tied(&all, 2, 6); // C3 and C4 are one thing, C7 is not
    if (same < 0.8 || other > 0.03)
        fail_msg("pairs that share C3: %.3f share C4, %.3f share C7", same, other);
    rt_batch_fini(&all);
}

static void clusters_tie_fields_together(void **state)
{
    (void)state;
    rt_stream_config config = shape_config(RT_SYNTHETIC_CRITEO, 50000);
    rt_batch all;
    double any[2], big[2], small[2]; // C7 has room for 50 clusters, C5 with its 305 ids has none
    for (uint32_t i = 0; i < 2; i++) {
        config.synthetic_clusters = i * 50;
        generate(&config, 1, &all);
        any[i] = tied(&all, ANY, 6);
        big[i] = tied(&all, 2, 6);
        small[i] = tied(&all, 2, 4);
        rt_batch_fini(&all);
    }
    if (big[1] < 2.5 * big[0])
        fail_msg("pairs that share C3 and C7: %.4f with clusters, %.4f without", big[1], big[0]);
    if (any[1] > any[0]) // clusters have ids of their own, so fewer pairs share one by chance
        fail_msg("pairs that share C7: %.4f with clusters, %.4f without", any[1], any[0]);
    test_close(small[1], small[0], 0.1, 0, "a field without clusters");
}

// With P(r) known to be flat, replaced ranks show as new ids: a share of drift per million.
static void drift_replaces_ranks(void **state)
{
    (void)state;
    static uint32_t counts[4000];
    rt_stream_config config = shape_config(RT_SYNTHETIC_CRITEO, 500000);
    config.synthetic_zipf = 0;
    config.synthetic_scale = 0.1;
    rt_batch all;
    uint32_t missing;
    generate(&config, 1, &all);
    assert_int_equal(count_ids(&all, 6, counts, 4000, &missing), 1251);
    rt_batch_fini(&all);
    config.synthetic_drift = 0.4;
    generate(&config, 1, &all);
    uint32_t ids = count_ids(&all, 6, counts, 4000, &missing);
    test_close(ids, 1251 * 1.2, 0.01, 1, "ids after half a million samples"); // 0.4 x 0.5
    // What the last samples use is as many ids as before, a fifth of them new.
    rt_batch late = all;
    late.sample_count = 100000;
    late.keys = all.keys + (size_t)400000 * 26;
    late.key_count = 100000 * 26;
    assert_true(count_ids(&late, 6, counts, 4000, &missing) <= 1251 * 1.06);
    rt_batch_fini(&all);
}

typedef struct {
    double score;
    float label;
} scored;

static int compare_scores(const void *a, const void *b)
{
    const double x = ((const scored *)a)->score, y = ((const scored *)b)->score;
    return (x > y) - (x < y);
}

static double auc(scored *samples, uint32_t count)
{
    double clicks = 0, ranks = 0;
    qsort(samples, count, sizeof *samples, compare_scores);
    for (uint32_t i = 0; i < count; i++) {
        clicks += samples[i].label;
        ranks += samples[i].label > 0 ? i + 1 : 0;
    }
    return (ranks - clicks * (clicks + 1) / 2) / (clicks * (count - clicks));
}

#define WEIGHT_BITS 22

// Logistic regression over keys and dense features, one pass; scores before learning.
static void train(const rt_batch *all, float *weights, float *sums, float *dense_weights,
                  scored *out)
{
    uint32_t fields = fields_of(all);
    for (uint32_t i = 0; i < all->sample_count; i++) {
        const uint64_t *keys = all->keys + i * fields;
        const float *dense = all->dense + i * all->dense_count;
        double logit = 0;
        for (uint32_t f = 0; f < fields; f++)
            logit += weights[rt_mix(keys[f]) >> (64 - WEIGHT_BITS)];
        for (uint32_t d = 0; d < all->dense_count; d++)
            logit += dense_weights[d] * dense[d];
        float gradient = (float)(1 / (1 + exp(-logit))) - all->labels[i];
        out[i] = (scored){logit, all->labels[i]};
        for (uint32_t f = 0; f < fields; f++) {
            uint64_t slot = rt_mix(keys[f]) >> (64 - WEIGHT_BITS);
            sums[slot] += gradient * gradient;
            weights[slot] -= 0.1f * gradient / sqrtf(sums[slot] + 0.1f);
        }
        for (uint32_t d = 0; d < all->dense_count; d++)
            dense_weights[d] -= 0.002f * gradient * dense[d];
    }
}

// What one stream taught serves another of a different seed; labels at random teach nothing.
static void there_is_something_to_learn(void **state)
{
    (void)state;
    static const double least[] = {0.77, 0.70, 0.70};
    for (int shape = 0; shape < 3; shape++) {
        rt_stream_config config = shape_config((rt_synthetic_shape)shape, 150000);
        config.synthetic_clusters = 32;
        float *weights = calloc(1 << WEIGHT_BITS, sizeof *weights);
        float *sums = calloc(1 << WEIGHT_BITS, sizeof *sums), dense_weights[16] = {0};
        scored *out = calloc(150000, sizeof *out);
        assert_true(weights && sums && out);
        rt_batch all;
        generate(&config, 1, &all);
        train(&all, weights, sums, dense_weights, out);
        rt_batch_fini(&all);
        config.samples_max = 50000;
        generate(&config, 2, &all);
        train(&all, weights, sums, dense_weights, out);
        rt_batch_fini(&all);
        double area = auc(out, 50000);
        if (!(area > least[shape] && area < 0.9))
            fail_msg("shape %d: AUC %.4f, expected %.2f to 0.9", shape, area, least[shape]);
        free(weights);
        free(sums);
        free(out);
    }
}

static void values_out_of_range(void **state)
{
    (void)state;
    static const struct {
        double scale, zipf, drift;
        const char *words;
    } cases[] = {{0, 1, 0, "scale"},    {1.5, 1, 0, "scale"}, {NAN, 1, 0, "scale"},
                 {1, -1, 0, "zipf"},    {1, 5, 0, "zipf"},    {1, NAN, 0, "zipf"},
                 {1, 1, -0.1, "drift"}, {1, 1, 2e3, "drift"}};
    for (uint32_t i = 0; i < RT_COUNT_OF(cases); i++) {
        rt_stream_config config = shape_config(RT_SYNTHETIC_CRITEO, 1);
        config.synthetic_scale = cases[i].scale;
        config.synthetic_zipf = cases[i].zipf;
        config.synthetic_drift = cases[i].drift;
        rt_stream *stream = NULL;
        rt_error error = {0};
        assert_int_equal(rt_stream_open(&config, 1, &stream, &error), RT_CONFIG);
        assert_non_null(strstr(error.text, "stream.synthetic."));
        assert_non_null(strstr(error.text, cases[i].words));
        assert_null(stream);
    }
}

static void keys_of_a_bounded_stream_are_counted(void **state)
{
    (void)state;
    rt_stream_config config = shape_config(RT_SYNTHETIC_SEARCH, 60000);
    rt_batch all;
    rt_error error = {0};
    uint64_t distinct = 0;
    generate(&config, 4, &all);
    assert_int_equal(rt_stream_count_keys(&config, 4, &distinct, &error), RT_OK);
    assert_int_equal(distinct, distinct_of(&all));
    rt_batch_fini(&all);
}

TEST_MAIN(TEST(further_labels_come_beside_the_first), TEST(samples_are_well_formed),
          TEST(a_seed_gives_the_same_samples), TEST(the_same_on_every_machine),
          TEST(popularity_is_a_power_law), TEST(figures_of_the_data_sets),
          TEST(cardinalities_are_scaled), TEST(entities_tie_fields_together),
          TEST(clusters_tie_fields_together), TEST(drift_replaces_ranks),
          TEST(there_is_something_to_learn), TEST(values_out_of_range),
          TEST(keys_of_a_bounded_stream_are_counted))
