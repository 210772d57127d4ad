// Another policy while a planner plans: every plan is legal, and a policy that is set decides from
// then on as it does elsewhere.
#include "runtime/config/rt_policies.h"
#include "tests/support/crossed.h"
#include "tests/support/test.h"

#include <string.h>

#include "dispatch/planner/dp_planner_parts.h"
#include "tests/support/planner_case.h"

static const planner_shape base = {.worker_count = 4,
                                   .sample_count_max = 32,
                                   .field_count = 4,
                                   .ids_per_field = 60,
                                   .bag_max = 2,
                                   .zipf = 0.8,
                                   .cache = CACHE_MIDDLE,
                                   .dispatch = {.policy = RT_POLICY_ESD, .alpha = 0.5}};

static rt_status set_policy(planner_case *pc, uint32_t policy, rt_error *error)
{
    dp_input input = {.kind = DP_INPUT_POLICY, .value = rt_policy_number((rt_policy_kind)policy)};
    return dp_planner_apply(pc->planner, &input, error);
}

static void step(planner_case *pc)
{
    rt_error error = {0};
    planner_case_look_up(pc, 32);
    planner_case_commit(pc);
    if (!dp_planner_legal(pc->planner, &error))
        fail_msg("iteration %u: %s", pc->iteration, error.text);
}

// From every policy to every other, again and again.
static void every_plan_is_legal(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 24; i++) {
        planner_shape shape = base;
        planner_case pc;
        uint32_t seen = 0;
        shape.seed = 700 + i;
        shape.dispatch.policy = (rt_policy_kind)(i % RT_POLICY_COUNT);
        shape.dispatch.view = crossed(i, 1, 4) == 3 ? RT_VIEW_SNAPSHOT : RT_VIEW_AUTO;
        shape.eviction = (rt_eviction_kind)(i / RT_POLICY_COUNT % RT_EVICT_COUNT);
        shape.lookahead = crossed(i, 2, 3);
        shape.cache = (cache_size)crossed(i, 3, 3);
        planner_case_init(&pc, &shape);
        for (uint32_t t = 0; t < 60; t++) {
            if (t % 3 == 2) {
                const uint32_t policy = rt_random_below(&pc.random, RT_POLICY_FAE);
                assert_int_equal(set_policy(&pc, policy, NULL), RT_OK);
                seen |= 1u << policy;
                step(&pc);
                assert_int_equal(dp_planner_value(pc.planner, DP_INPUT_POLICY, 0),
                                 rt_policy_number((rt_policy_kind)policy));
                assert_ptr_equal(pc.planner->policy, dp_policy_find((rt_policy_kind)policy));
                continue;
            }
            step(&pc);
        }
        assert_true(rt_bit_count(seen) > 2);
        planner_case_flush(&pc);
        planner_case_compare(&pc);
        planner_case_fini(&pc);
    }
}

// What laia sees after a switch are the workers' caches: it places as a count of latest rows says.
static void a_new_snapshot_is_what_workers_hold(void **state)
{
    (void)state;
    planner_shape shape = base;
    planner_case pc;
    shape.seed = 9;
    shape.dispatch.policy = RT_POLICY_MAKESPAN;
    planner_case_init(&pc, &shape);
    for (uint32_t t = 0; t < 20; t++)
        step(&pc);
    assert_null(pc.planner->viewed.caches);
    assert_int_equal(set_policy(&pc, RT_POLICY_LAIA, NULL), RT_OK);
    planner_case_look_up(&pc, 32);
    assert_non_null(pc.planner->viewed.caches);
    const dp_view *view = dp_planner_view(pc.planner);
    uint32_t held = 0;
    for (uint32_t d = 0; d < view->distinct_count; d++) {
        assert_true(view->distinct[d].holders == pc.planner->latest[d]);
        held += view->distinct[d].holders != 0;
    }
    assert_true(held > 0);
    planner_case_commit(&pc);
    assert_int_equal(set_policy(&pc, RT_POLICY_MAKESPAN, NULL), RT_OK);
    step(&pc);
    assert_null(pc.planner->viewed.caches);
    planner_case_fini(&pc);
}

static void what_cannot_change_is_refused(void **state)
{
    (void)state;
    planner_shape shape = base;
    planner_case pc;
    rt_error error = {0};
    shape.dispatch.view = RT_VIEW_STRICT;
    planner_case_init(&pc, &shape);
    assert_int_equal(set_policy(&pc, RT_POLICY_LAIA, NULL), RT_OK);
    assert_int_equal(set_policy(&pc, RT_POLICY_COUNT, NULL), RT_CONFIG);
    assert_int_equal(set_policy(&pc, RT_POLICY_FAE, &error), RT_CONFIG);
    assert_non_null(strstr(error.text, "a run must begin with it"));
    planner_case_fini(&pc);
    shape.dispatch.tables = 3;
    planner_case_init(&pc, &shape);
    assert_int_equal(set_policy(&pc, RT_POLICY_LAIA, &error), RT_CONFIG);
    assert_non_null(strstr(error.text, "must begin with it"));
    assert_int_equal(set_policy(&pc, RT_POLICY_RANDOM, NULL), RT_OK);
    planner_case_fini(&pc);
    shape = base;
    shape.hot_ids = 2; // workers keep hot rows, and no other policy says which
    shape.eviction = RT_EVICT_LRU;
    shape.dispatch.policy = RT_POLICY_FAE;
    planner_case_init(&pc, &shape);
    assert_int_equal(set_policy(&pc, RT_POLICY_RANDOM, NULL), RT_CONFIG);
    assert_int_equal(set_policy(&pc, RT_POLICY_FAE, NULL), RT_OK);
    planner_case_fini(&pc);
}

TEST_MAIN(TEST(every_plan_is_legal), TEST(a_new_snapshot_is_what_workers_hold),
          TEST(what_cannot_change_is_refused))
