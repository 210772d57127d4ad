// Negatives that are left out, the prediction that knows of it, and metrics by weight: against
// counting with every sample as often as it weighs.
#include "tests/support/test.h"

#include <math.h>
#include <stdio.h>

#include "runtime/metrics/rt_meter.h"
#include "runtime/numbers/rt_negatives.h"
#include "runtime/rt_hash.h"
#include "tests/support/config_case.h"
#include "tests/unit/runtime/test_stream_support.h"

static void near(double got, double wanted, double tolerance, const char *what)
{
    if (!(fabs(got - wanted) <= tolerance))
        fail_msg("%s: %.12g, expected %.12g within %g", what, got, wanted, tolerance);
}

static void test_the_share_that_is_kept(void **state)
{
    (void)state;
    static const double shares[] = {0.01, 0.1, 0.5, 0.9};
    for (size_t i = 0; i < RT_COUNT_OF(shares); i++) {
        uint32_t kept = 0, same = 0;
        for (uint64_t n = 0; n < 100000; n++) {
            const bool keeps = rt_negatives_keeps(1, n, shares[i]);
            kept += keeps;
            same += keeps == rt_negatives_keeps(2, n, shares[i]);
            assert_true(!keeps || rt_negatives_keeps(1, n, 1)); // of 1 all are
        }
        // Five deviations of a binomial count.
        near(kept, 1e5 * shares[i], 5 * sqrt(1e5 * shares[i] * (1 - shares[i])), "kept");
        assert_true(same < 99999); // another seed keeps others
    }
}

static void test_the_correction_of_a_prediction(void **state)
{
    (void)state;
    static const float predictions[] = {0, 1e-6f, 0.25f, 0.5f, 0.999f, 1};
    float corrected[6];
    rt_negatives_correct(predictions, 6, 1, corrected);
    assert_memory_equal(predictions, corrected, sizeof predictions);
    rt_negatives_correct(predictions, 6, 0.1, corrected);
    for (uint32_t i = 0; i < 6; i++) {
        const long double p = predictions[i], odds = p / (1 - p) * 0.1L;
        near(corrected[i], i == 5 ? 1 : (double)(odds / (1 + odds)), 1e-7, "corrected");
    }
}

// ---- metrics -----------------------------------------------------------------------------------

#define COUNT 4000u

typedef struct {
    float predictions[COUNT], labels[COUNT], weights[COUNT];
} samples;

static void fill(samples *all, uint64_t seed)
{
    rt_random random = {seed};
    for (uint32_t i = 0; i < COUNT; i++) {
        all->weights[i] = (float)rt_random_below(&random, 4);
        all->labels[i] = rt_random_below(&random, 3) == 0 ? all->weights[i] : 0;
        all->predictions[i] = 0.05f + 0.09f * (float)rt_random_below(&random, 10);
    }
}

static rt_meter *make(void)
{
    rt_meter *meter;
    assert_int_equal(rt_meter_create(&meter), RT_OK);
    return meter;
}

static void compare(rt_quality got, rt_quality wanted)
{
    near(got.log_loss, wanted.log_loss, 1e-9, "log loss");
    near(got.auc, wanted.auc, 1e-9, "AUC");
    near(got.calibration, wanted.calibration, 1e-9, "calibration");
    near(got.mean_label, wanted.mean_label, 1e-9, "mean label");
    near(got.normalised_entropy, wanted.normalised_entropy, 1e-9, "normalised entropy");
}

// A weight of 3 is three samples; a negative that counts 2.5 times is 5 of 2.
static void test_weights_are_so_many_samples(void **state)
{
    (void)state;
    static samples all;
    rt_meter *weighted = make(), *counted = make();
    fill(&all, 5);
    rt_meter_weigh(weighted);
    rt_meter_add_weighted(weighted, all.predictions, all.labels, all.weights, 2.5, COUNT);
    for (uint32_t i = 0; i < COUNT; i++) {
        const float label = all.labels[i] > 0;
        const uint32_t times = (uint32_t)all.weights[i] * (label > 0 ? 2 : 5);
        for (uint32_t k = 0; k < times; k++)
            rt_meter_add(counted, &all.predictions[i], &label, 1);
    }
    compare(rt_meter_total(weighted), rt_meter_total(counted));
    assert_int_equal(rt_meter_total(weighted).sample_count, COUNT);
    rt_meter_destroy(weighted);
    rt_meter_destroy(counted);
}

// A 0 that a correction takes back is as if the sample had had label 1 from the start.
static void test_a_correction_takes_back_a_zero(void **state)
{
    (void)state;
    static samples all;
    rt_meter *corrected = make(), *right = make();
    fill(&all, 6);
    rt_meter_weigh(corrected);
    for (uint32_t i = 0; i < COUNT; i++) {
        const float one = 1, zero = 0, label = all.labels[i] > 0;
        rt_meter_add(right, &all.predictions[i], &label, 1);
        rt_meter_add_weighted(corrected, &all.predictions[i], i % 2 ? &zero : &label, &one, 1, 1);
        if (i % 2 && label > 0)
            rt_meter_add_weighted(corrected, &all.predictions[i], &one, &zero, 1, 1);
    }
    compare(rt_meter_total(corrected), rt_meter_total(right));
    rt_meter_destroy(corrected);
    rt_meter_destroy(right);
}

static void test_a_meter_that_begins_to_weigh(void **state)
{
    (void)state;
    static samples all;
    rt_meter *later = make(), *always = make();
    rt_bytes bytes = {0};
    fill(&all, 7);
    for (uint32_t i = 0; i < COUNT; i++)
        all.labels[i] = all.labels[i] > 0;
    rt_meter_weigh(always);
    for (uint32_t i = 0; i < 100; i++) {
        const float one = 1;
        rt_meter_add(later, &all.predictions[i], &all.labels[i], 1);
        rt_meter_add_weighted(always, &all.predictions[i], &all.labels[i], &one, 1, 1);
    }
    rt_meter_save(later, &bytes); // of a run without weights, into one that has some
    rt_meter_destroy(later);
    later = make();
    rt_meter_weigh(later);
    rt_reader reader = rt_bytes_reader(&bytes);
    assert_int_equal(rt_meter_load(later, &reader), RT_OK);
    rt_meter_add_weighted(later, all.predictions, all.labels, all.weights, 1, COUNT);
    rt_meter_add_weighted(always, all.predictions, all.labels, all.weights, 1, COUNT);
    compare(rt_meter_total(later), rt_meter_total(always));
    compare(rt_meter_last_fifth(later), rt_meter_last_fifth(always));
    rt_bytes_fini(&bytes);
    rt_meter_destroy(later);
    rt_meter_destroy(always);
}

// ---- in a stream -------------------------------------------------------------------------------

// Every positive and the same negatives, whatever the size of batches, and also gone on from.
static void test_a_stream_leaves_out_the_same(void **state)
{
    (void)state;
    enum { LINES = 2000 };
    rt_config config = config_fresh();
    char *path = path_of("n.csv"), set[512];
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (uint32_t i = 0; i < LINES; i++)
        fprintf(file, i % 100 == 57 ? "broken\n" : "%d,%u\n", i % 3 == 0, i);
    fclose(file);
    snprintf(set, sizeof set, "stream.files=%s", path);
    config_must_set(&config, set);
    config_must_set(&config, "stream.format=table");
    config_must_set(&config, "stream.malformed_share_max=0.1");
    config_must_set(&config, "stream.negatives_keep=0.25");
    config_must_set(&config, "stream.table.columns=[{\"name\":\"y\",\"kind\":\"label\"},{\"name\":"
                             "\"u\",\"kind\":\"categorical\",\"id\":\"number\"}]");
    rt_stream *stream;
    rt_batch batch;
    rt_bytes position = {0};
    rt_error error = {0};
    uint32_t number = 0, good = 0, given = 0;
    rt_batch_init(&batch, 0);
    assert_int_equal(rt_stream_open(&config.stream, 9, &stream, &error), RT_OK);
    for (uint32_t size = 1; !rt_stream_read(stream, &batch, size, &error); size = size % 13 + 1) {
        for (uint32_t i = 0; i < batch.sample_count; i++, given++) {
            for (;; number++) { // the lines before it are broken, or negatives that are left out
                const bool is_good = number % 100 != 57;
                if (is_good && (number % 3 == 0 || rt_negatives_keeps(9, good, 0.25)))
                    break;
                good += is_good;
            }
            assert_int_equal(batch.keys[i], rt_key(0, number));
            assert_true(batch.labels[i] == (number % 3 == 0));
            number++;
            good++;
        }
        rt_stream_tell(stream, &position);
        rt_stream_close(stream);
        assert_int_equal(rt_stream_open(&config.stream, 9, &stream, &error), RT_OK);
        if (rt_stream_seek(stream, &position, &error))
            fail_msg("%s", error.text);
    }
    const rt_stream_stats stats = rt_stream_statistics(stream);
    assert_int_equal(stats.samples, given);
    assert_int_equal(stats.left_out + stats.samples, LINES - LINES / 100);
    assert_true(stats.left_out > 900 && stats.left_out < 1080);
    rt_stream_close(stream);
    rt_batch_fini(&batch);
    rt_bytes_fini(&position);
    rt_config_fini(&config);
    free(path);
}

TEST_MAIN(TEST(test_the_share_that_is_kept), TEST(test_the_correction_of_a_prediction),
          TEST(test_weights_are_so_many_samples), TEST(test_a_correction_takes_back_a_zero),
          TEST(test_a_meter_that_begins_to_weigh), TEST(test_a_stream_leaves_out_the_same))
