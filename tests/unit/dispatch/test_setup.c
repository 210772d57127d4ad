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

TEST_MAIN(TEST(caches))
