// Ranges of labels and features against what a batch was made of.
#include "dispatch/coordinator/dp_columns.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/test.h"

static void add(rt_batch *batch, float label, float a, float b)
{
    const float dense[2] = {a, b};
    const uint64_t key = 1;
    assert_int_equal(rt_batch_append(batch, label, dense, &key, 1), RT_OK);
}

static void test_ranges_of_batches(void **context)
{
    (void)context;
    rt_batch batch;
    dp_ranges one, all;
    rt_batch_init(&batch, 2);
    assert_int_equal(dp_ranges_init(&one, 2, false), RT_OK);
    assert_int_equal(dp_ranges_init(&all, 2, false), RT_OK);
    add(&batch, 1, 3, -2);
    add(&batch, 0, NAN, 7);
    add(&batch, 1, -1, -INFINITY);
    dp_ranges_add(&one, &batch);
    assert_true(one.sample_count == 3 && one.not_finite == 2 && one.label_sum == 2);
    assert_true(one.label_min == 0 && one.label_max == 1);
    assert_true(one.dense_min[0] == -1 && one.dense_max[0] == 3);
    assert_true(one.dense_min[1] == -2 && one.dense_max[1] == 7);
    dp_ranges_merge(&all, &one);
    dp_ranges_clear(&one);
    rt_batch_clear(&batch);
    add(&batch, 1, 9, 0);
    dp_ranges_add(&one, &batch);
    assert_true(one.label_min == 1 && one.dense_min[0] == 9 && one.not_finite == 0);
    dp_ranges_merge(&all, &one);
    assert_true(all.sample_count == 4 && all.not_finite == 2 && all.label_sum == 3);
    assert_true(all.dense_min[0] == -1 && all.dense_max[0] == 9 && all.dense_max[1] == 7);
    dp_ranges_fini(&one);
    dp_ranges_fini(&all);
    rt_batch_fini(&batch);
}

// Of classes the lowest and the highest; a mean of their numbers says nothing.
static void test_ranges_of_classes(void **context)
{
    (void)context;
    rt_batch batch;
    dp_ranges one, all;
    rt_json json;
    rt_batch_init(&batch, 2);
    assert_int_equal(dp_ranges_init(&one, 2, true), RT_OK);
    assert_int_equal(dp_ranges_init(&all, 2, true), RT_OK);
    add(&batch, 2, 0, 0);
    add(&batch, 5, 0, 0);
    add(&batch, 4, 0, 0);
    dp_ranges_add(&one, &batch);
    dp_ranges_merge(&all, &one);
    rt_json_init(&json, 0);
    rt_json_begin_object(&json, NULL);
    dp_ranges_write(&all, &json, "ranges");
    rt_json_end_object(&json);
    assert_non_null(
        strstr(rt_json_text(&json, NULL), "\"label_min\":2,\"label_max\":5,\"label_mean\":null,"));
    rt_json_fini(&json);
    dp_ranges_fini(&one);
    dp_ranges_fini(&all);
    rt_batch_fini(&batch);
}

static void test_ranges_as_json(void **context)
{
    (void)context;
    dp_ranges none;
    rt_json json;
    assert_int_equal(dp_ranges_init(&none, 1, false), RT_OK);
    rt_json_init(&json, 0);
    rt_json_begin_object(&json, NULL);
    dp_ranges_write(&none, &json, "ranges");
    rt_json_end_object(&json);
    assert_string_equal(rt_json_text(&json, NULL),
                        "{\"ranges\":{\"label_min\":null,\"label_max\":null,\"label_mean\":null,"
                        "\"dense_min\":[null],\"dense_max\":[null],\"dense_not_finite\":0}}");
    rt_json_fini(&json);
    dp_ranges_fini(&none);
}

static void put(const dp_ranges *ranges, char *text, size_t size)
{
    rt_json json;
    rt_json_init(&json, 0);
    rt_json_begin_object(&json, NULL);
    dp_ranges_write(ranges, &json, "ranges");
    rt_json_end_object(&json);
    snprintf(text, size, "%s %llu", rt_json_text(&json, NULL),
             (unsigned long long)ranges->sample_count);
    rt_json_fini(&json);
}

// What is saved comes back; a part of it, or what was of other features, leaves nothing.
static void test_ranges_that_are_saved(void **context)
{
    (void)context;
    rt_batch batch;
    rt_bytes saved = {0};
    dp_ranges from, to[3]; // by features less one
    char empty[3][512], told[512], expected[512];
    rt_batch_init(&batch, 2);
    assert_int_equal(dp_ranges_init(&from, 2, false), RT_OK);
    for (uint32_t d = 0; d < 3; d++) {
        assert_int_equal(dp_ranges_init(&to[d], d + 1, false), RT_OK);
        put(&to[d], empty[d], sizeof empty[d]);
    }
    add(&batch, 1, 3, -2);
    add(&batch, 0, NAN, 7);
    dp_ranges_add(&from, &batch);
    dp_ranges_save(&from, &saved);
    const size_t size = saved.size;
    assert_non_null(memset(rt_bytes_extend(&saved, 64), 0, 64)); // what comes behind
    put(&from, expected, sizeof expected);
    for (size_t left = 0; left <= saved.size; left++) {
        for (uint32_t d = 0; d < 3; d++) {
            rt_reader reader = {saved.data, left, false};
            assert_int_equal(dp_ranges_load(&to[d], &reader), d == 1 && left >= size);
            put(&to[d], told, sizeof told);
            assert_string_equal(told, d == 1 && left >= size ? expected : empty[d]);
        }
    }
    for (uint32_t d = 0; d < 3; d++)
        dp_ranges_fini(&to[d]);
    dp_ranges_fini(&from);
    rt_bytes_fini(&saved);
    rt_batch_fini(&batch);
}

TEST_MAIN(TEST(test_ranges_of_batches), TEST(test_ranges_of_classes), TEST(test_ranges_as_json),
          TEST(test_ranges_that_are_saved))
