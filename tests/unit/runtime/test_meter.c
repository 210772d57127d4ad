// The quality of predictions against brute force over all pairs and long double sums.
#define _GNU_SOURCE // memmem
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/rt_hash.h"
#include "runtime/metrics/rt_meter.h"
#include "tests/support/test.h"

typedef struct {
    uint32_t count;
    float *predictions, *labels;
} samples;

static samples make_samples(uint32_t count)
{
    samples one = {count, calloc(count, sizeof(float)), calloc(count, sizeof(float))};
    assert_true(one.predictions && one.labels);
    return one;
}

static void free_samples(samples *one)
{
    free(one->predictions);
    free(one->labels);
}

// Logits about normal, labels drawn from the predictions; `levels` different predictions or, with
// 0, as many as there are floats.
static samples random_samples(uint64_t seed, uint32_t count, uint32_t levels, double scale)
{
    samples one = make_samples(count);
    rt_random random = {seed};
    for (uint32_t i = 0; i < count; i++) {
        double logit = -1;
        for (int k = 0; k < 12; k++)
            logit += scale * (rt_random_unit(&random) - 0.5);
        if (levels)
            logit = floor(logit * levels) / levels;
        one.predictions[i] = (float)(1 / (1 + exp(-logit)));
        one.labels[i] = rt_random_unit(&random) < (double)one.predictions[i];
    }
    return one;
}

typedef struct {
    double auc;
    double close_share; // of pairs nearer than a bin and not equal
} pairs;

static double logit_of(float prediction)
{
    double p = fmin(fmax((double)prediction, RT_METER_CLIP), 1 - RT_METER_CLIP);
    return log(p / (1 - p));
}

static pairs count_pairs(const samples *all, uint32_t first)
{
    double ordered = 0, near = 0, count = 0;
    for (uint32_t i = first; i < all->count; i++) {
        for (uint32_t k = first; all->labels[i] > 0 && k < all->count; k++) {
            if (all->labels[k] > 0)
                continue;
            float positive = all->predictions[i], negative = all->predictions[k];
            ordered += positive > negative ? 1 : positive == negative ? 0.5 : 0;
            count++;
            near += positive != negative &&
                    fabs(logit_of(positive) - logit_of(negative)) <= 1.0 / 512 + 1e-9;
        }
    }
    return (pairs){ordered / count, near / count};
}

static rt_meter *make_meter(void)
{
    rt_meter *meter;
    assert_int_equal(rt_meter_create(&meter), RT_OK);
    return meter;
}

static void test_auc_of_distinct_levels_is_exact(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 5; seed++) {
        samples all = random_samples(seed, 3000, 10, 1.5); // levels 1/10 apart: 51 bins
        rt_meter *meter = make_meter();
        rt_meter_add(meter, all.predictions, all.labels, all.count);
        test_close(rt_meter_total(meter).auc, count_pairs(&all, 0).auc, 1e-12, 0, "auc");
        rt_meter_destroy(meter);
        free_samples(&all);
    }
}

// Half credit for pairs within a bin: the error is at most half their share (rt_meter.h).
static void test_auc_of_any_predictions(void **state)
{
    (void)state;
    static const double scales[] = {0.01, 0.1, 1, 3};
    for (uint32_t i = 0; i < RT_COUNT_OF(scales); i++) {
        samples all = random_samples(i + 1, 3000, 0, scales[i]);
        rt_meter *meter = make_meter();
        rt_meter_add(meter, all.predictions, all.labels, all.count);
        pairs brute = count_pairs(&all, 0);
        test_close(rt_meter_total(meter).auc, brute.auc, brute.close_share / 2 + 1e-12, 1, "auc");
        rt_meter_destroy(meter);
        free_samples(&all);
    }
}

static void test_auc_by_hand(void **state)
{
    (void)state;
    static const float predictions[] = {0.1f, 0.4f, 0.35f, 0.8f};
    static const float labels[] = {0, 0, 1, 1};
    rt_meter *meter = make_meter();
    rt_meter_add(meter, predictions, labels, 4);
    assert_true(rt_meter_total(meter).auc == 0.75);
    rt_meter_destroy(meter);
    static const float equal[] = {0.3f, 0.3f, 0.3f};
    meter = make_meter();
    rt_meter_add(meter, equal, labels + 1, 3);
    assert_true(rt_meter_total(meter).auc == 0.5);
    rt_meter_destroy(meter);
    static const float ends[] = {0, 1, 0, 1}; // beyond the histogram: into its outer bins
    meter = make_meter();
    rt_meter_add(meter, ends, (const float[]){0, 1, 0, 1}, 4);
    assert_true(rt_meter_total(meter).auc == 1);
    rt_meter_add(meter, ends, (const float[]){1, 0, 1, 0}, 4);
    assert_true(rt_meter_total(meter).auc == 0.5);
    rt_meter_destroy(meter);
}

static void check_sums(const rt_quality *got, const samples *all, uint32_t first, uint32_t end)
{
    long double loss = 0, predicted = 0, clicked = 0, count = end - first;
    for (uint32_t i = first; i < end; i++) {
        long double p = all->predictions[i];
        predicted += p;
        clicked += all->labels[i];
        p = p < RT_METER_CLIP ? RT_METER_CLIP : p > 1 - RT_METER_CLIP ? 1 - RT_METER_CLIP : p;
        loss -= all->labels[i] > 0 ? logl(p) : log1pl(-p);
    }
    long double mean = clicked / count;
    long double entropy = -mean * logl(mean) - (1 - mean) * log1pl(-mean);
    assert_int_equal(got->sample_count, end - first);
    // Sums of up to 1e6 doubles of one sign: at most 1e6 roundings of 1.1e-16.
    test_close(got->log_loss, (double)(loss / count), 1e-10, 0, "log loss");
    test_close(got->mean_label, (double)mean, 1e-10, 0, "mean label");
    test_close(got->calibration, (double)(predicted / clicked), 1e-10, 0, "calibration");
    test_close(got->normalised_entropy, (double)(loss / count / entropy), 1e-10, 0, "entropy");
}

static void test_sums_against_long_double(void **state)
{
    (void)state;
    samples all = random_samples(3, 1000000, 0, 2);
    for (uint32_t i = 0; i < all.count; i += 1000) // certain and wrong as well
        all.predictions[i] = i % 2000 ? 1 : 0;
    rt_meter *meter = make_meter();
    for (uint32_t i = 0; i < all.count; i += 1000)
        rt_meter_add(meter, all.predictions + i, all.labels + i, 1000);
    rt_quality total = rt_meter_total(meter);
    check_sums(&total, &all, 0, all.count);
    rt_meter_destroy(meter);
    free_samples(&all);
}

static void test_window_is_what_came_since(void **state)
{
    (void)state;
    samples all = random_samples(5, 5000, 10, 1.5);
    rt_meter *meter = make_meter();
    rt_meter_add(meter, all.predictions, all.labels, 3000);
    rt_meter_begin_window(meter);
    rt_meter_add(meter, all.predictions + 3000, all.labels + 3000, 1200);
    rt_meter_add(meter, all.predictions + 4200, all.labels + 4200, 800);
    rt_quality window = rt_meter_window(meter);
    assert_int_equal(window.first_sample, 3000);
    check_sums(&window, &all, 3000, 5000);
    test_close(window.auc, count_pairs(&all, 3000).auc, 1e-12, 0, "auc");
    rt_quality total = rt_meter_total(meter);
    check_sums(&total, &all, 0, 5000);
    rt_meter_destroy(meter);
    free_samples(&all);
}

static void test_undefined_is_nan(void **state)
{
    (void)state;
    rt_meter *meter = make_meter();
    rt_quality nothing = rt_meter_total(meter), tail = rt_meter_last_fifth(meter);
    assert_true(isnan(nothing.log_loss) && isnan(nothing.auc) && isnan(nothing.calibration));
    assert_true(isnan(tail.log_loss) && isnan(tail.mean_label) && tail.sample_count == 0);
    rt_meter_add(meter, (const float[]){0.5f}, (const float[]){0}, 1);
    rt_quality one = rt_meter_total(meter);
    assert_true(isnan(one.auc) && isnan(one.normalised_entropy) && isnan(one.calibration));
    test_close(one.log_loss, log(2), 1e-15, 0, "log loss");
    rt_meter_destroy(meter);
}

static void test_what_is_no_probability_is_counted(void **state)
{
    (void)state;
    static const float predictions[] = {0.25f, NAN, -0.001f, 1.001f, INFINITY, 0.75f};
    static const float labels[] = {0, 1, 1, 0, 1, 1};
    rt_meter *meter = make_meter();
    rt_meter_add(meter, predictions, labels, 6);
    rt_quality total = rt_meter_total(meter);
    assert_int_equal(total.sample_count, 2);
    assert_int_equal(total.invalid_count, 4);
    assert_true(total.auc == 1 && total.mean_label == 0.5);
    test_close(total.log_loss, -log(0.75), 1e-7, 0, "log loss"); // floats
    rt_meter_destroy(meter);
}

// After every piece: the tail starts near four fifths, and holds exactly the samples from there.
static void check_tail(uint32_t count, uint32_t piece_max, double bound)
{
    samples all = random_samples(count, count, 10, 1.5);
    rt_meter *meter = make_meter();
    rt_random random = {count};
    for (uint32_t done = 0; done < count;) {
        uint32_t piece = 1 + rt_random_below(&random, piece_max);
        piece = (uint32_t)rt_min_u64(piece, count - done);
        rt_meter_add(meter, all.predictions + done, all.labels + done, piece);
        done += piece;
        rt_quality tail = rt_meter_last_fifth(meter);
        double error = fabs((double)tail.first_sample - 0.8 * done) / done;
        if (error > bound + 1.0 / done) // rounding of four fifths to a sample
            fail_msg("%u samples: the tail starts at %lu, %.4f of the run away", done,
                     (unsigned long)tail.first_sample, error);
        assert_int_equal(tail.first_sample + tail.sample_count, done);
        if (done == count) {
            uint32_t first = (uint32_t)tail.first_sample;
            check_sums(&tail, &all, first, count);
            if (count - first < 4000)
                test_close(tail.auc, count_pairs(&all, first).auc, 1e-12, 0, "auc");
        }
    }
    rt_meter_destroy(meter);
    free_samples(&all);
}

static void test_last_fifth(void **state)
{
    (void)state;
    check_tail(150, 1, 0); // exact
    check_tail(1000, 1, 0.0065);
    check_tail(1777, 7, 0.0065);
    check_tail(20000, 300, 0.0065);
    check_tail(400000, 5000, 0.0065);
}

// The last samples, in pieces of any size: sums as of those alone, from a start that is near
// enough.
static void check_rolled(uint32_t window, uint32_t piece_max)
{
    enum { COUNT = 30000 };
    samples all = random_samples(window, COUNT, 10, 1.5);
    rt_meter *meter = make_meter();
    rt_random random = {window};
    for (uint32_t done = 0; done < COUNT;) {
        const uint32_t piece =
            (uint32_t)rt_min_u64(1 + rt_random_below(&random, piece_max), COUNT - done);
        rt_meter_begin_window(meter);
        rt_meter_add(meter, all.predictions + done, all.labels + done, piece);
        rt_meter_roll(meter, window);
        done += piece;
        const rt_quality rolled = rt_meter_rolled(meter);
        assert_int_equal(rolled.first_sample + rolled.sample_count, done);
        assert_true(rolled.sample_count >= rt_min_u64(window, done));
        // a segment has a twentieth and what its last piece brings more
        assert_true(rolled.sample_count < window + window / 20 + 1 + piece_max);
        if (done == COUNT || done % 7 == 0)
            check_sums(&rolled, &all, (uint32_t)rolled.first_sample, done);
        if (done == COUNT)
            test_close(rolled.auc, count_pairs(&all, (uint32_t)rolled.first_sample).auc, 1e-3, 0,
                       "auc");
    }
    rt_meter_destroy(meter);
    free_samples(&all);
}

static void test_rolled(void **state)
{
    (void)state;
    check_rolled(1000, 1);
    check_rolled(3000, 40);
    check_rolled(2000, 700);
    check_rolled(100, 3000);
}

// Against all pairs of a probability of the class that it was and one of another.
static void test_classes_against_brute_force(void **state)
{
    (void)state;
    enum { COUNT = 400, CLASSES = 3 };
    static float predictions[COUNT * CLASSES], labels[COUNT];
    rt_random random = {7};
    rt_meter *meter, *again;
    double loss = 0, right = 0, largest = 0, ordered = 0, pair_count = 0;
    for (uint32_t i = 0; i < COUNT; i++) {
        const uint32_t a = rt_random_below(&random, 8), b = rt_random_below(&random, 8);
        float *own = predictions + i * CLASSES; // levels that lie far apart
        own[0] = (float)(1 + a) / 19, own[1] = (float)(1 + b) / 19, own[2] = 1 - own[0] - own[1];
        labels[i] = (float)rt_random_below(&random, CLASSES);
        uint32_t best = own[1] > own[0] ? 1 : 0;
        best = own[2] > own[best] ? 2 : best;
        loss -= log((double)own[(uint32_t)labels[i]]);
        right += best == (uint32_t)labels[i];
        largest += (double)own[best];
    }
    for (uint32_t i = 0; i < COUNT * CLASSES; i++)
        for (uint32_t k = 0; k < COUNT * CLASSES; k++) {
            if (i % CLASSES != (uint32_t)labels[i / CLASSES] ||
                k % CLASSES == (uint32_t)labels[k / CLASSES])
                continue;
            const double distance = (double)predictions[i] - (double)predictions[k];
            ordered += fabs(distance) < 1e-6 ? 0.5 : distance > 0;
            pair_count++;
        }
    assert_int_equal(rt_meter_create(&meter), RT_OK);
    rt_meter_classify(meter, CLASSES);
    rt_meter_add_classes(meter, predictions, labels, COUNT);
    const rt_quality quality = rt_meter_total(meter);
    assert_int_equal(quality.sample_count, COUNT);
    assert_int_equal(quality.class_count, CLASSES);
    test_close(quality.log_loss, loss / COUNT, 1e-12, 0, "log loss");
    test_close(quality.normalised_entropy, loss / COUNT / log(CLASSES), 1e-12, 0, "entropy");
    test_close(quality.mean_label, right / COUNT, 1e-12, 0, "accuracy");
    test_close(quality.calibration, largest / right, 1e-12, 0, "calibration");
    test_close(quality.auc, ordered / pair_count, 1e-3, 0, "AUC"); // ties of sums that were rounded
    assert_int_equal(rt_meter_last_fifth(meter).sample_count, COUNT / 5);
    rt_bytes bytes = {0};
    rt_meter_save(meter, &bytes);
    assert_int_equal(rt_meter_create(&again), RT_OK);
    rt_meter_classify(again, CLASSES);
    rt_reader reader = rt_bytes_reader(&bytes);
    assert_int_equal(rt_meter_load(again, &reader), RT_OK);
    predictions[1] = NAN; // no probability: the sample is left out
    rt_meter_add_classes(meter, predictions, labels, 2);
    rt_meter_add_classes(again, predictions, labels, 2);
    const rt_quality one = rt_meter_total(meter), other = rt_meter_total(again);
    assert_int_equal(one.invalid_count, 1);
    assert_int_equal(one.sample_count, COUNT + 1);
    assert_true(one.log_loss == other.log_loss && one.mean_label == other.mean_label);
    rt_bytes_fini(&bytes);
    rt_meter_destroy(meter);
    rt_meter_destroy(again);
}

// Of a build whose tallies had half as many bins, and no count of invalid ones: what is there is
// taken, all else is 0.
static void test_saved_by_another_build(void **state)
{
    (void)state;
    enum { COUNT = 3000 };
    static float predictions[COUNT], labels[COUNT];
    rt_random random = {8};
    rt_meter *meter, *again;
    rt_bytes bytes = {0}, other = {0};
    for (uint32_t i = 0; i < COUNT; i++) {
        predictions[i] = (float)(1 + rt_random_below(&random, 98)) / 100;
        labels[i] = (float)rt_random_below(&random, 2);
    }
    predictions[7] = NAN;
    assert_int_equal(rt_meter_create(&meter), RT_OK);
    rt_meter_add(meter, predictions, labels, COUNT);
    rt_meter_save(meter, &bytes);
    uint32_t sizes[2], halved = 0; // of a description's text and of one struct
    for (size_t at = 0; at < bytes.size; at += 16 + sizes[0] + sizes[1]) {
        memcpy(sizes, bytes.data + at + sizeof(uint64_t), sizeof sizes);
        char *text = (char *)bytes.data + at + 16;
        char *bins = memmem(text, sizes[0], "bins:262144", 11);
        char *invalid = memmem(text, sizes[0], "invalid", 7);
        const uint32_t size = bins ? sizes[1] - 131072 : sizes[1];
        if (bins)
            memcpy(bins, "bins:131072", 11);
        if (invalid)
            memcpy(invalid, "of_them", 7);
        memcpy(bytes.data + at + 12, &size, sizeof size);
        rt_bytes_put(&other, bytes.data + at, 16 + sizes[0] + size);
        halved += bins != NULL;
    }
    assert_true(halved > 2);
    assert_int_equal(rt_meter_create(&again), RT_OK);
    rt_reader reader = rt_bytes_reader(&other);
    assert_int_equal(rt_meter_load(again, &reader), RT_OK);
    assert_int_equal(reader.left, 0);
    assert_int_equal(rt_meter_total(meter).invalid_count, 1);
    assert_int_equal(rt_meter_total(again).invalid_count, 0);
    rt_bytes_fini(&bytes);
    rt_bytes_fini(&other);
    rt_meter_destroy(meter);
    rt_meter_destroy(again);
}

// What people read is no NAN.
static void numbers_that_are_not_defined(void **state)
{
    (void)state;
    char text[RT_QUALITY_TEXT];
    assert_string_equal(rt_quality_show(0.12345, 4, text), "0.1235");
    assert_string_equal(rt_quality_show(1, 3, text), "1.000");
    assert_string_equal(rt_quality_show(NAN, 4, text), "undefined");
    assert_string_equal(rt_quality_show(INFINITY, 4, text), "undefined");
}

TEST_MAIN(TEST(numbers_that_are_not_defined), TEST(test_rolled),
          TEST(test_classes_against_brute_force), TEST(test_auc_of_distinct_levels_is_exact),
          TEST(test_auc_of_any_predictions), TEST(test_auc_by_hand),
          TEST(test_sums_against_long_double), TEST(test_window_is_what_came_since),
          TEST(test_undefined_is_nan), TEST(test_what_is_no_probability_is_counted),
          TEST(test_last_fifth), TEST(test_saved_by_another_build))
