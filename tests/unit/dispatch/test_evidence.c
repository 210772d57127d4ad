// Labelled samples that are kept to judge by: which, for how long, and how two models do on them.
#include "tests/support/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "dispatch/coordinator/dp_evidence.h"
#include "runtime/rt_hash.h"

static rt_config config_of(const char *const *sets, size_t count)
{
    rt_config config;
    rt_error error = {0};
    assert_int_equal(rt_config_init(&config), RT_OK);
    for (size_t i = 0; i < count; i++)
        if (rt_config_set(&config, sets[i], &error))
            fail_msg("%s", error.text);
    return config;
}

static void every_nth_is_kept(void **state)
{
    (void)state;
    dp_heard heard;
    uint64_t passed = 0;
    uint32_t kept = 0;
    dp_heard_init(&heard, 1);
    for (uint32_t t = 0; t < 10; t++) {
        rt_batch batch;
        rt_batch_init(&batch, 1);
        rt_batch_begin(&batch, 2, true);
        for (uint32_t i = 0; i < 7; i++) {
            const uint64_t keys[] = {rt_key(0, t), rt_key(1, i)};
            const double read = 1.7e9 + t * 7 + i; // a time: 32 bits do not hold it
            const float labels[] = {(float)(i % 2), NAN};
            assert_int_equal(rt_batch_append_read(&batch, 0, &read, keys, 2), RT_OK);
            rt_batch_set_labels(&batch, i, labels, 2);
        }
        assert_int_equal(dp_heard_take(&heard, &batch, 5, &passed), RT_OK);
        for (uint32_t k = 0; k < heard.batch.sample_count; k++, kept++) {
            const uint32_t i = heard.from[k];
            assert_int_equal((t * 7 + i) % 5, 0);
            assert_true(heard.batch.read[k] == 1.7e9 + t * 7 + i);
            assert_int_equal(heard.batch.keys[2 * k + 1], rt_key(1, i));
            assert_true(heard.batch.labels[k] == (float)(i % 2) && heard.batch.weights[k] == 2);
        }
        rt_batch_fini(&batch);
    }
    assert_int_equal(kept, 14);
    assert_int_equal(passed, 70);
    dp_heard_fini(&heard);
}

// A label that is absent, and the correction of one that was trained before, say nothing.
static void samples_without_a_label_are_not(void **state)
{
    (void)state;
    dp_heard heard;
    uint64_t passed = 0;
    rt_batch batch;
    const uint64_t key = 1;
    static const float labels[] = {1, 0, 1, 0}, weights[] = {1, 1, 0, 0};
    rt_batch_init(&batch, 0);
    rt_batch_begin(&batch, 1, true);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(rt_batch_append(&batch, 0, NULL, &key, 1), RT_OK);
        batch.labels[i] = labels[i];
        batch.weights[i] = weights[i];
    }
    dp_heard_init(&heard, 0);
    assert_int_equal(dp_heard_take(&heard, &batch, 1, &passed), RT_OK);
    assert_int_equal(heard.batch.sample_count, 2);
    dp_heard_fini(&heard);
    rt_batch_fini(&batch);
}

// One batch of so many samples, of these labels and predictions in turn.
static void add(dp_evidence *evidence, uint32_t iteration, uint32_t count, const float *labels,
                const float *predictions, uint32_t turns, uint32_t outputs)
{
    dp_heard heard;
    rt_batch batch;
    uint64_t passed = 0;
    const uint64_t key = iteration;
    float *said = calloc((size_t)count * outputs, sizeof *said);
    rt_batch_init(&batch, 0);
    dp_heard_init(&heard, 0);
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(rt_batch_append(&batch, labels[i % turns], NULL, &key, 1), RT_OK);
        memcpy(said + (size_t)i * outputs, predictions + (i % turns) * outputs,
               outputs * sizeof *said);
    }
    assert_int_equal(dp_heard_take(&heard, &batch, 1, &passed), RT_OK);
    for (uint32_t i = 0; i < count; i++)
        heard.at[i] = i;
    dp_evidence_add(evidence, &heard, said, outputs, iteration);
    dp_heard_fini(&heard);
    rt_batch_fini(&batch);
    free(said);
}

// At most twice DP_EVIDENCE_MAX are there, of which the newest DP_EVIDENCE_MAX count.
static void old_ones_go(void **state)
{
    (void)state;
    const rt_config config = config_of(NULL, 0);
    static const float labels[] = {0, 1}, said[] = {0.25f, 0.75f};
    dp_evidence evidence;
    dp_evidence_init(&evidence, &config, 0);
    for (uint32_t t = 1; t <= 100; t++) {
        add(&evidence, t, 500, labels, said, 2, 1);
        assert_true(evidence.batch.sample_count <= 2 * DP_EVIDENCE_MAX + 500);
        const uint32_t first = dp_evidence_first(&evidence, 0);
        assert_true(evidence.batch.sample_count - first <= DP_EVIDENCE_MAX);
        assert_int_equal(evidence.iterations[evidence.batch.sample_count - 1], t);
        const uint32_t last = dp_evidence_first(&evidence, t - 1);
        assert_int_equal(evidence.batch.sample_count - last, 500);
        assert_int_equal(evidence.batch.keys[last], t);
        assert_int_equal(dp_evidence_first(&evidence, t), evidence.batch.sample_count);
    }
    dp_evidence_fini(&evidence);
    rt_config_fini((rt_config *)(uintptr_t)&config);
}

static void two_models_on_the_same_samples(void **state)
{
    (void)state;
    rt_config config = config_of(NULL, 0);
    static const float labels[] = {0, 0, 0, 1}, said[] = {0.2f, 0.2f, 0.4f, 0.5f};
    float theirs[400];
    dp_evidence evidence;
    dp_comparison c;
    dp_evidence_init(&evidence, &config, 0);
    add(&evidence, 5, 400, labels, said, 4, 1);
    for (uint32_t i = 0; i < RT_COUNT_OF(theirs); i++)
        theirs[i] = 0.25f;
    dp_evidence_compare(&evidence, 0, theirs, 1, &c);
    assert_int_equal(c.count, 400);
    assert_true(c.ones == 100);
    const double ours = -(2 * log(0.8) + log(0.6) + log(0.5)) / 4;
    const double others = -(3 * log(0.75) + log(0.25)) / 4;
    test_close(c.log_loss[DP_OURS], ours, 1e-6, 1, "log loss");
    test_close(c.log_loss[DP_THEIRS], others, 1e-6, 1, "log loss in force");
    test_close(c.calibration[DP_OURS], 1.3, 1e-6, 1, "calibration");
    test_close(c.calibration[DP_THEIRS], 1, 1e-6, 1, "calibration in force");
    double squares = 0;
    const double differences[] = {-log(0.8) + log(0.75), -log(0.8) + log(0.75),
                                  -log(0.6) + log(0.75), -log(0.5) + log(0.25)};
    for (uint32_t i = 0; i < 4; i++)
        squares += pow(differences[i] - (ours - others), 2);
    test_close(c.difference_deviation, sqrt(squares / 4 / 400), 1e-6, 1, "deviation");
    theirs[0] = NAN; // a model that says nothing has a large loss, not none
    dp_evidence_compare(&evidence, 0, theirs, 1, &c);
    assert_true(c.log_loss[DP_THEIRS] > others + 0.03 && isfinite(c.log_loss[DP_THEIRS]));
    dp_evidence_fini(&evidence);
    rt_config_fini(&config);
}

// Of classes the probability of the one that it was; negatives that were left out count for more.
static void classes_and_negatives(void **state)
{
    (void)state;
    static const float labels[] = {2, 0}, said[] = {0.1f, 0.2f, 0.7f, 0.5f, 0.25f, 0.25f};
    static const char *const three[] = {
        "stream.format=table", "stream.table.columns=[{\"name\":\"y\",\"kind\":\"label\","
                               "\"classes\":3},{\"name\":\"a\",\"kind\":\"categorical\"}]"};
    static const char *const fewer[] = {"stream.negatives_keep=0.25"};
    rt_config config = config_of(three, 2);
    dp_evidence evidence;
    dp_comparison c;
    dp_evidence_init(&evidence, &config, 0);
    add(&evidence, 1, 2, labels, said, 2, 3);
    dp_evidence_compare(&evidence, 0, said, 3, &c);
    test_close(c.log_loss[DP_OURS], -(log(0.7) + log(0.5)) / 2, 1e-6, 1, "log loss");
    test_close(c.log_loss[DP_THEIRS], c.log_loss[DP_OURS], 1e-6, 1, "log loss");
    assert_true(isnan(c.calibration[DP_OURS]));
    dp_evidence_fini(&evidence);
    rt_config_fini(&config);
    config = config_of(fewer, 1);
    static const float both[] = {1, 0}, half[] = {0.5f, 0.1f};
    dp_evidence_init(&evidence, &config, 0);
    add(&evidence, 1, 2, both, half, 2, 1);
    dp_evidence_compare(&evidence, 0, half, 1, &c);
    test_close(c.log_loss[DP_OURS], -(log(0.5) + 4 * log(0.9)) / 5, 1e-6, 1, "log loss");
    test_close(c.calibration[DP_OURS], 0.5 + 4 * 0.1, 1e-6, 1, "calibration");
    dp_evidence_fini(&evidence);
    rt_config_fini(&config);
}

TEST_MAIN(TEST(every_nth_is_kept), TEST(samples_without_a_label_are_not), TEST(old_ones_go),
          TEST(two_models_on_the_same_samples), TEST(classes_and_negatives))
