// Ranges of labels and features against what a batch was made of.
#include "dispatch/coordinator/dp_ranges.h"

#include <math.h>
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

TEST_MAIN(TEST(test_ranges_of_batches), TEST(test_ranges_of_classes), TEST(test_ranges_as_json))
