// dp_setup: how many rows a cache has.
#include "tests/support/test.h"

#include "dispatch/planner/dp_setup.h"
#include "tests/support/config_case.h"

// Of the caches of two workers with 256 samples of 26 keys each.
static uint32_t slots(const char *assignment, uint64_t distinct_keys)
{
    const rt_schema schema = {.field_count = 26, .keys_per_sample_max = 26};
    rt_config config = config_fresh();
    dp_planner_config planner;
    rt_error error = {0};
    config_must_set(&config, "workers=2");
    config_must_set(&config, "batch.samples_per_worker=256");
    if (assignment)
        config_must_set(&config, assignment);
    assert_int_equal(dp_setup(&config, &schema, distinct_keys, &planner, &error), RT_OK);
    assert_int_equal(planner.slot_count[0], planner.slot_count[1]);
    rt_config_fini(&config);
    return planner.slot_count[0];
}

static void caches(void **state)
{
    (void)state;
    assert_int_equal(slots(NULL, 1000000), 80000); // cache.ratio 0.08
    assert_int_equal(slots(NULL, 1000003), 80001);
    assert_int_equal(slots("cache.ratio=0.5", 100000), 50000);
    assert_int_equal(slots(NULL, 5000), 256 * 26); // not 400: no batch would fit
    assert_int_equal(slots("cache.distinct_keys=5000", 0), 256 * 26);
    assert_int_equal(slots("cache.rows=300", 5000), 300); // as it is said; dp_planner_check refuses
    assert_in_range(slots(NULL, 0), 2 * 256 * 26, UINT32_MAX); // of keys that nobody can count
}

#define BOX(name, rest) "{\"name\":\"" name "\"" rest "}"

// Links of boxes in bytes per second, and who is where.
static void boxes(void **state)
{
    (void)state;
    static const uint8_t of_worker[] = {0, 2, 2}, of_shard[] = {0, 1, 1};
    const rt_schema schema = {.field_count = 2, .keys_per_sample_max = 2};
    rt_config config = config_fresh();
    dp_planner_config planner;
    rt_error error = {0};
    config_must_set(&config, "boxes=[" BOX("a", ",\"gbps\":0.5,\"workers\":1,\"shards\":1") ","
                                 BOX("b", ",\"gbps_up\":2,\"gbps_down\":4,\"workers\":0,\"shards\":2") ","
                                 BOX("c", ",\"gbps_up\":1,\"gbps_down\":8,\"workers\":2") "]");
    assert_int_equal(dp_setup(&config, &schema, 1000, &planner, &error), RT_OK);
    assert_int_equal(planner.boxes.count, 3);
    assert_int_equal(planner.boxes.worker_count, 3);
    assert_memory_equal(planner.boxes.of_worker, of_worker, sizeof of_worker);
    assert_memory_equal(planner.boxes.of_shard, of_shard, sizeof of_shard);
    const double up[] = {62.5e6, 250e6, 125e6}, down[] = {62.5e6, 500e6, 1e9};
    for (uint32_t b = 0; b < 3; b++) {
        assert_true(planner.boxes.given[b].up_bytes_per_s == up[b]);
        assert_true(planner.boxes.given[b].down_bytes_per_s == down[b]);
    }
    assert_int_equal(planner.shard_rows_max, dp_setup_rows_that_fit(&config) / 3);
    rt_config_fini(&config);
    config = config_fresh();
    assert_int_equal(dp_setup(&config, &schema, 1000, &planner, &error), RT_OK);
    assert_int_equal(planner.boxes.count, 0);
    rt_config_fini(&config);
}

TEST_MAIN(TEST(caches), TEST(boxes))
