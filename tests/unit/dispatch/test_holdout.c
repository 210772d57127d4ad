// Judgements of epochs by held-out samples: which is the best, what a manifest keeps, log loss.
#include "dispatch/coordinator/dp_holdout.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/config_case.h"
#include "tests/support/test.h"

static void add(dp_holdout *h, uint32_t iteration, double loss)
{
    dp_holdout_add(h, &(dp_judgement){iteration, iteration / 10, loss});
}

// The first of equals is the best: an epoch has to be better to count.
static void epochs_in_a_row_are_counted(void **state)
{
    (void)state;
    static const struct {
        double loss;
        uint32_t best, since;
    } steps[] = {{0.5, 10, 0}, {0.5, 10, 1},  {0.4, 30, 0},
                 {0.6, 30, 1}, {0.41, 30, 2}, {0.39, 60, 0}};
    dp_holdout h = {.count = 0};
    assert_null(dp_holdout_best(&h));
    assert_int_equal(dp_holdout_since_best(&h), 0);
    for (uint32_t i = 0; i < RT_COUNT_OF(steps); i++) {
        add(&h, 10 * (i + 1), steps[i].loss);
        assert_int_equal(dp_holdout_best(&h)->iteration, steps[i].best);
        assert_int_equal(dp_holdout_since_best(&h), steps[i].since);
    }
}

// A run that goes on from a checkpoint judges it anew.
static void the_same_checkpoint_counts_once(void **state)
{
    (void)state;
    dp_holdout h = {.count = 0};
    add(&h, 10, 0.5);
    add(&h, 20, 0.6);
    add(&h, 20, 0.6);
    assert_int_equal(h.count, 2);
    assert_int_equal(dp_holdout_since_best(&h), 1);
    add(&h, 10, 0.7);
    assert_int_equal(h.count, 1);
    for (uint32_t i = 0; i < 2 * DP_HOLDOUT_MAX; i++)
        add(&h, 20 + i, 0.5);
    assert_int_equal(h.count, DP_HOLDOUT_MAX);
}

static cJSON *manifest_of(const dp_holdout *h)
{
    rt_json json;
    rt_json_init(&json, 2);
    rt_json_begin_object(&json, NULL);
    dp_holdout_put(h, &json);
    rt_json_end_object(&json);
    cJSON *root = cJSON_Parse(rt_json_text(&json, NULL));
    assert_non_null(root);
    rt_json_fini(&json);
    return root;
}

static void a_manifest_keeps_them(void **state)
{
    (void)state;
    static const char *const damaged[] = {"{\"judged\":[1,2]}", "{\"judged\":[1,2,\"3\"]}",
                                          "{\"judged\":[-1,2,0.5]}", "{\"judged\":[1,2,0.5,7]}"};
    dp_holdout h = {.count = 0}, got;
    cJSON *root = manifest_of(&h);
    assert_int_equal(dp_holdout_take(&got, root), RT_OK);
    assert_int_equal(got.count, 0);
    cJSON_Delete(root);
    add(&h, 10, 1.0 / 3);
    add(&h, 4000000000u, 0.1 + 0.2);
    root = manifest_of(&h);
    assert_int_equal(dp_holdout_take(&got, root), RT_OK);
    assert_int_equal(got.count, 2);
    assert_memory_equal(got.list, h.list, 2 * sizeof *h.list);
    cJSON_Delete(root);
    for (size_t i = 0; i < RT_COUNT_OF(damaged); i++) {
        root = cJSON_Parse(damaged[i]);
        assert_int_equal(dp_holdout_take(&got, root), RT_DATA);
        cJSON_Delete(root);
    }
}

// ---- judging ---------------------------------------------------------------------------------

#define ROWS 4000

static uint32_t asked, ones;

// 0.3 and 0.2 of all samples, whatever they are.
static rt_status recall(const char *folder, const rt_batch *batch, uint32_t first,
                        uint32_t output_count, float *predictions, rt_error *error)
{
    if (strcmp(folder, "broken") == 0)
        return rt_fail(error, RT_DATA, "it is broken");
    assert_int_equal(first, 0);
    for (uint32_t i = 0; i < batch->sample_count; i++) {
        asked++;
        ones += batch->labels[(size_t)i * output_count] > 0;
        for (uint32_t o = 0; o < output_count; o++)
            predictions[(size_t)i * output_count + o] = o ? 0.2f : 0.3f;
    }
    return RT_OK;
}

static rt_config config_of(const char *columns, const char *holdout)
{
    rt_config config = config_fresh();
    char set[600];
    FILE *file = fopen(test_path("rows"), "w");
    assert_non_null(file);
    for (int i = 0; i < ROWS; i++) // no two lines alike
        fprintf(file, "%d,%d,u%d\n", i % 4 == 0, i % 3 == 0, i);
    assert_int_equal(fclose(file), 0);
    snprintf(set, sizeof set, "stream.files=%s", test_path("rows"));
    config_must_set(&config, "stream.format=table");
    config_must_set(&config, columns);
    config_must_set(&config, set);
    config_must_set(&config, holdout);
    config_must_set(&config, "stream.epochs=3");
    return config;
}

static void all_held_out_samples_are_judged_once(void **state)
{
    (void)state;
    static const struct {
        const char *columns;
        uint32_t labels;
    } cases[] = {{"stream.table.columns=[{\"name\":\"y\",\"kind\":\"label\"},{\"name\":\"z\","
                  "\"kind\":\"ignore\"},{\"name\":\"u\",\"kind\":\"categorical\"}]",
                  1},
                 {"stream.table.columns=[{\"name\":\"y\",\"kind\":\"label\"},{\"name\":\"z\","
                  "\"kind\":\"label\"},{\"name\":\"u\",\"kind\":\"categorical\"}]",
                  2}};
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
        double loss;
        rt_error error = {0};
        rt_config config = config_of(cases[i].columns, "stream.holdout=0.25");
        asked = ones = 0;
        if (dp_holdout_judge(&config, recall, "model", &loss, &error))
            fail_msg("%s", error.text);
        assert_true(asked > ROWS / 5 && asked < ROWS * 3 / 10);
        const double share = (double)ones / asked;
        const double first = -share * log(0.3) - (1 - share) * log(0.7);
        if (cases[i].labels == 1)
            assert_true(fabs(loss - first) < 1e-6);
        else // the mean with that of the second, a third of whose labels are 1
            assert_true(fabs(loss - (first - log(0.2) / 3 - log(0.8) * 2 / 3) / 2) < 0.03);
        assert_int_equal(dp_holdout_judge(&config, recall, "broken", &loss, &error), RT_DATA);
        rt_config_fini(&config);
    }
}

static void nothing_is_held_out(void **state)
{
    (void)state;
    double loss;
    rt_error error = {0};
    rt_config config = config_of("stream.table.columns=[{\"name\":\"y\",\"kind\":\"label\"},{"
                                 "\"name\":\"z\",\"kind\":\"ignore\"},{\"name\":\"u\",\"kind\":"
                                 "\"categorical\"}]",
                                 "stream.holdout=0.0000001");
    assert_int_equal(dp_holdout_judge(&config, recall, "model", &loss, &error), RT_NOT_FOUND);
    rt_config_fini(&config);
}

TEST_MAIN(TEST(epochs_in_a_row_are_counted), TEST(the_same_checkpoint_counts_once),
          TEST(a_manifest_keeps_them), TEST(all_held_out_samples_are_judged_once),
          TEST(nothing_is_held_out))
