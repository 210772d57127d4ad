// Rows that every worker keeps: plans against the independent checker, and after each of them who
// has which row, from batches alone. The file that names the rows.
#include "runtime/config/rt_policies.h"
#include "tests/support/crossed.h"
#include "tests/support/test.h"

#include <inttypes.h>
#include <string.h>

#include "dispatch/planner/dp_setup.h"
#include "tests/support/config_case.h"
#include "tests/support/planner_case.h"

static uint64_t participants(const planner_case *pc)
{
    return pc->plan->participants;
}

// What rests for an iteration is with all who take part; what was trained is with nobody, and a cold
// row is never with anybody.
static void check_holders(const planner_case *pc)
{
    const uint32_t count = plan_checker_key_count(pc->checker);
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t key = plan_checker_key_at(pc->checker, i);
        const plan_checker_key known = plan_checker_find(pc->checker, key);
        const uint64_t id = key & ((UINT64_C(1) << 56) - 1);
        const bool rests = known.version + 1 < pc->iteration;
        assert_true(known.version > 0 && known.version == known.version_ps);
        if (id >= pc->shape.hot_ids || known.version == pc->iteration)
            assert_true(known.holders == 0);
        else if (rests)
            assert_true((participants(pc) & ~known.holders) == 0);
    }
}

static void disturb(planner_case *pc)
{
    if (rt_random_below(&pc->random, 9) == 0)
        planner_case_flush(pc);
    if (!pc->shape.participants_min || rt_random_below(&pc->random, 4))
        return;
    dp_input input = {.kind = DP_INPUT_PARTICIPATES,
                      .worker = rt_random_below(&pc->random, pc->shape.worker_count),
                      .value = rt_random_below(&pc->random, 2)};
    assert_int_equal(dp_planner_apply(pc->planner, &input, NULL), RT_OK);
}

static void every_plan_keeps_them(void **state)
{
    uint64_t brought = 0;
    (void)state;
    for (uint32_t i = 0; i < 48; i++) {
        planner_case pc;
        const uint32_t workers = (uint32_t[]){1, 2, 3, 8}[i % 4];
        planner_shape shape = {
            .seed = 400 + i,
            .worker_count = workers,
            .sample_count_max = 4 * workers + i % 3,
            .field_count = 3,
            .ids_per_field = 8 + 20 * crossed(i, 1, 3),
            .bag_max = 1 + crossed(i, 2, 2) * 2,
            .zipf = crossed(i, 3, 2) ? 1.3 : 0.5,
            .participants_min = crossed(i, 4, 2) ? 1 : 0,
            .eviction = RT_EVICT_LRU,
            .hot_ids = (uint32_t[]){1, 5, 8}[crossed(i, 5, 3)],
            .lookahead = crossed(i, 6, 2),
            .dispatch = {.policy = RT_POLICY_FAE, .first_touch = (rt_first_touch)crossed(i, 7, 2)}};
        planner_case_init(&pc, &shape);
        for (uint32_t t = 1; t <= 60; t++) {
            uint64_t rows = 0;
            planner_case_look_up(&pc, t % 7 == 3 ? 1 : shape.sample_count_max);
            planner_case_commit(&pc);
            check_holders(&pc);
            for (uint32_t j = 0; j < workers; j++)
                rows += pc.plan->slices[j].row_count;
            brought += pc.fills - (rows - pc.plan->hits.keys_hit);
            if (t % 8 == 0)
                planner_case_compare(&pc);
            disturb(&pc);
        }
        planner_case_compare(&pc);
        planner_case_fini(&pc);
    }
    assert_true(brought > 1000);
}

static void a_cache_has_room_for_all_of_them(void **state)
{
    planner_case pc;
    dp_planner *planner;
    rt_error error = {0};
    const planner_shape shape = {.seed = 3,
                                 .worker_count = 2,
                                 .sample_count_max = 8,
                                 .field_count = 3,
                                 .ids_per_field = 90,
                                 .bag_max = 1,
                                 .eviction = RT_EVICT_LRU,
                                 .hot_ids = 7,
                                 .dispatch = {.policy = RT_POLICY_FAE}};
    (void)state;
    planner_case_init(&pc, &shape);
    assert_int_equal(pc.config.slot_count[1], 4 * 3 + 7 * 3);
    pc.config.slot_count[1]--;
    assert_int_equal(dp_planner_create(&pc.config, &planner, &error), RT_CONFIG);
    assert_string_equal(
        error.text, "cache.rows: the cache of worker 1 has 32 rows, expected at least 33: 21 hot "
                    "rows (dispatch.profile), and 12 that one micro-batch may need beside them");
    planner_case_fini(&pc);
}

static void a_row_is_hot_once(void **state)
{
    const uint64_t keys[] = {5, 9, 1, 9};
    dp_hot *hot, *other;
    (void)state;
    assert_int_equal(dp_hot_create(keys, 4, &hot), RT_DATA);
    assert_int_equal(dp_hot_create(keys, 3, &hot), RT_OK);
    assert_int_equal(dp_hot_create(keys + 1, 3 - 1, &other), RT_OK);
    assert_true(hot->sum != other->sum && hot->count == 3 && other->count == 2);
    dp_hot_destroy(hot);
    dp_hot_destroy(other);
    assert_int_equal(dp_hot_create(keys, 0, &hot), RT_OK);
    dp_hot_destroy(hot);
}

// Other policies read no file, though one is named.
static void a_file_that_is_not_there(void **state)
{
    rt_config config = config_fresh();
    rt_error error = {0};
    dp_planner_config planner = {0};
    rt_schema schema;
    (void)state;
    config_must_set(&config, "stream.format=synthetic");
    config_must_set(&config, "dispatch.profile=/nowhere/hot");
    assert_int_equal(rt_stream_read_schema(&config.stream, config.seed, &schema, NULL), RT_OK);
    assert_int_equal(dp_setup_hot(&config, &schema, &planner, &error), RT_OK);
    assert_null(planner.hot);
    config_must_set(&config, "dispatch.policy=fae");
    assert_int_equal(dp_setup_hot(&config, &schema, &planner, &error), RT_DATA);
    assert_string_equal(error.text, "dispatch.profile, a file of `lanyard profile`: cannot open "
                                    "/nowhere/hot: No such file or directory");
    dp_setup_fini(&planner);
    rt_config_fini(&config);
}

TEST_MAIN(TEST(every_plan_keeps_them), TEST(a_cache_has_room_for_all_of_them),
          TEST(a_row_is_hot_once), TEST(a_file_that_is_not_there))
