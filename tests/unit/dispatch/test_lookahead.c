// Known uses against an array of all of them; what is not known, or not asked for, changes nothing.
#include "tests/support/test.h"

#include <inttypes.h>

#include "runtime/config/rt_policies.h"
#include "tests/support/planner_case.h"

// ---- dp_lookahead -------------------------------------------------------------------------------

#define KEYS_MAX 64u
#define ITERATIONS 400u
#define AHEAD_MAX (DP_LOOKAHEAD_MAX + 2)

static uint32_t next_naively(bool uses[ITERATIONS + AHEAD_MAX][KEYS_MAX], uint32_t key,
                             uint32_t after, uint32_t last)
{
    for (uint32_t t = after + 1; t <= last; t++) {
        if (uses[t][key])
            return t;
    }
    return 0;
}

// Keys near each other and far apart: chains of the table run into one another and around its end.
static uint64_t key_of(uint32_t key)
{
    return rt_key(key % 3, key / 3 * UINT64_C(0x1000100010001));
}

static void run_window(uint32_t window, uint32_t keys, uint64_t seed)
{
    static bool uses[ITERATIONS + AHEAD_MAX][KEYS_MAX];
    rt_random random = {seed};
    uint32_t last = 0;
    dp_lookahead lookahead;
    for (uint32_t t = 0; t < ITERATIONS + AHEAD_MAX; t++) {
        for (uint32_t k = 0; k < KEYS_MAX; k++)
            uses[t][k] = false;
    }
    assert_int_equal(dp_lookahead_init(&lookahead), RT_OK);
    for (uint32_t t = 1; t <= ITERATIONS; t++) {
        for (; last < t + window - 1; last++) {
            assert_int_equal(dp_lookahead_reserve(&lookahead, keys), RT_OK);
            for (uint32_t n = 0; n < keys; n++) {
                uint32_t k = rt_random_below(&random, KEYS_MAX);
                bool is_new = next_naively(uses, k, t - 1, last + 1) == 0;
                uses[last + 1][k] = true;
                assert_int_equal(dp_lookahead_add(&lookahead, key_of(k), last + 1), is_new);
            }
        }
        for (uint32_t k = 0; k < KEYS_MAX; k++) {
            if (uses[t][k] || rt_random_below(&random, 4) == 0)
                assert_int_equal(dp_lookahead_pass(&lookahead, key_of(k), t),
                                 next_naively(uses, k, t, last));
        }
        uint32_t known = 0;
        for (uint32_t k = 0; k < KEYS_MAX; k++)
            known += next_naively(uses, k, t, last) != 0;
        assert_int_equal(lookahead.key_count, known);
    }
    dp_lookahead_fini(&lookahead);
}

static void uses_are_known(void **state)
{
    (void)state;
    static const uint32_t windows[] = {1, 2, 3, 9, 63, 64, DP_LOOKAHEAD_MAX + 1};
    for (uint32_t w = 0; w < RT_COUNT_OF(windows); w++) {
        for (uint32_t keys = 1; keys <= 24; keys += 7)
            run_window(windows[w], keys, w * 100 + keys);
    }
}

// ---- planner ------------------------------------------------------------------------------------

static planner_shape small_caches(uint32_t i)
{
    return (planner_shape){.seed = i,
                           .worker_count = 1 + i % 4,
                           .sample_count_max = 12,
                           .field_count = 4,
                           .ids_per_field = 50,
                           .bag_max = 1,
                           .zipf = 0.8,
                           .cache = CACHE_MIDDLE,
                           .eviction = (rt_eviction_kind)(i % 3),
                           .dispatch = {.policy = RT_POLICY_ESD, .alpha = 1}};
}

static uint64_t pulls_of(const dp_plan *plan)
{
    uint64_t pulls = 0;
    for (uint32_t j = 0; j < plan->worker_count; j++)
        pulls += plan->slices[j].fill.count;
    return pulls;
}

// A planner that may look ahead and is shown nothing plans like one that may not.
static void nothing_shown_nothing_changed(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 6; i++) {
        planner_shape shape = small_caches(i);
        planner_case plain;
        dp_planner *ahead;
        const dp_plan *plan;
        planner_case_init(&plain, &shape);
        dp_planner_config config = plain.config;
        config.lookahead = 4;
        assert_int_equal(dp_planner_create(&config, &ahead, NULL), RT_OK);
        for (uint32_t t = 0; t < 80; t++) {
            planner_case_look_up(&plain, 12);
            planner_case_commit(&plain);
            assert_int_equal(dp_planner_look_up(ahead, &plain.batch), RT_OK);
            dp_planner_place(ahead);
            assert_int_equal(dp_planner_commit(ahead, &plan), RT_OK);
            assert_true(dp_plan_fingerprint(plan) == dp_plan_fingerprint(plain.plan));
        }
        dp_planner_destroy(ahead);
        planner_case_fini(&plain);
    }
}

// The same batches with longer and longer windows: fewer rows come twice.
static void longer_windows_pull_less(void **state)
{
    (void)state;
    uint64_t pulls[3] = {0};
    for (uint32_t i = 0; i < 12; i++) {
        static const uint32_t windows[] = {0, 2, 12};
        for (uint32_t w = 0; w < 3; w++) {
            planner_shape shape = small_caches(i);
            shape.lookahead = windows[w];
            planner_case pc;
            planner_case_init(&pc, &shape);
            for (uint32_t t = 0; t < 150; t++) {
                planner_case_look_up(&pc, 12);
                planner_case_commit(&pc);
                pulls[w] += pulls_of(pc.plan);
            }
            planner_case_fini(&pc);
        }
    }
    assert_true(pulls[0] > pulls[1] && pulls[1] > pulls[2]);
}

// ---- windows ------------------------------------------------------------------------------------

// Of a row that comes in no other batch of the window nothing is expected; of others at most a
// worker that takes part.
static void check_next(const planner_case *pc, uint32_t window)
{
    const dp_view *view = dp_planner_view(pc->planner);
    assert_non_null(view->next);
    for (uint32_t d = 0; d < view->distinct_count; d++) {
        const uint32_t next = planner_case_next_use(pc, view->distinct[d].key);
        const bool is_known = next && next < pc->iteration + window;
        assert_true(view->next[d] == DP_NO_NEXT ||
                    (is_known && view->next[d] < view->worker_count));
    }
}

static uint64_t moves_of(const dp_plan *plan)
{
    rt_counts counts = {0};
    for (uint32_t j = 0; j < plan->worker_count; j++)
        dp_counts_add_slice(&counts, &plan->slices[j]);
    return counts.update_push + counts.miss_pull + counts.grad_push;
}

// Rows of pairs that come again within a few batches: with longer windows fewer of them move.
static void windows_move_less(void **state)
{
    (void)state;
    uint64_t moves[3] = {0};
    for (uint32_t i = 0; i < 8; i++) {
        static const uint32_t windows[] = {1, 2, 4};
        for (uint32_t w = 0; w < 3; w++) {
            planner_shape shape = small_caches(i);
            shape.worker_count = 4;
            shape.sample_count_max = 32;
            shape.ids_per_field = 200;
            shape.cache = CACHE_EVERYTHING;
            shape.dispatch.policy = i % 2 ? RT_POLICY_ESD : RT_POLICY_MAKESPAN;
            shape.dispatch.search_evaluations = 1000;
            shape.dispatch.window = windows[w];
            shape.lookahead = windows[w] - 1;
            planner_case pc;
            planner_case_init(&pc, &shape);
            for (uint32_t t = 0; t < 80; t++) {
                planner_case_look_up(&pc, 32);
                planner_case_commit(&pc);
                moves[w] += moves_of(pc.plan);
                if (windows[w] > 1)
                    check_next(&pc, windows[w]);
            }
            planner_case_fini(&pc);
        }
    }
    if (moves[1] >= moves[0] || moves[2] >= moves[1])
        fail_msg("%" PRIu64 " moves, %" PRIu64 " with windows of 2, %" PRIu64 " of 4", moves[0],
                 moves[1], moves[2]);
}

// A sum over all plans of 40 batches with one to three keys in a field. full: it is said that no
// sample lacks a key in any field, as is so; not saying so must not change what a window expects.
static uint64_t bags_with_a_window(uint64_t seed, bool full)
{
    const planner_shape shape = {.seed = seed,
                                 .worker_count = 3,
                                 .sample_count_max = 12,
                                 .field_count = 4,
                                 .ids_per_field = 40,
                                 .bag_max = 3,
                                 .zipf = 0.8,
                                 .cache = CACHE_MIDDLE,
                                 .lookahead = 2,
                                 .dispatch = {.policy = RT_POLICY_ESD, .alpha = 1, .window = 3}};
    planner_case pc;
    rt_batch batches[40];
    uint64_t sum = 0;
    planner_case_init(&pc, &shape);
    for (uint32_t t = 0; t < RT_COUNT_OF(batches); t++) {
        rt_batch_init(&batches[t], 0);
        random_batches_fill(&pc.batches, &batches[t], 12);
        batches[t].has_gaps = !full;
        assert_int_equal(dp_planner_preview(pc.planner, &batches[t]), RT_OK);
        if (t < shape.lookahead)
            continue;
        const dp_plan *plan;
        assert_int_equal(dp_planner_look_up(pc.planner, &batches[t - shape.lookahead]), RT_OK);
        dp_planner_place(pc.planner);
        assert_int_equal(dp_planner_commit(pc.planner, &plan), RT_OK);
        sum = dp_fingerprint_add(sum, dp_plan_fingerprint(plan));
    }
    for (uint32_t t = 0; t < RT_COUNT_OF(batches); t++)
        rt_batch_fini(&batches[t]);
    planner_case_fini(&pc);
    return sum;
}

// Several keys in a field: every one of them costs what it costs in a window, too.
static void windows_see_every_key(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 8; seed++)
        assert_true(bags_with_a_window(seed, true) == bags_with_a_window(seed, false));
}

// More keys than a window has room for: those that left it are forgotten in time.
static void windows_forget(void **state)
{
    (void)state;
    const planner_shape shape = {.seed = 5,
                                 .worker_count = 3,
                                 .sample_count_max = 12,
                                 .field_count = 3,
                                 .ids_per_field = 1u << 20,
                                 .bag_max = 1,
                                 .cache = CACHE_MIDDLE,
                                 .lookahead = 2,
                                 .dispatch = {.policy = RT_POLICY_ESD, .alpha = 1, .window = 3}};
    planner_case pc;
    planner_case_init(&pc, &shape);
    for (uint32_t t = 0; t < 100; t++) { // 3600 keys, in room for some hundred
        planner_case_look_up(&pc, 12);
        planner_case_commit(&pc);
        check_next(&pc, 3);
    }
    planner_case_fini(&pc);
}

TEST_MAIN(TEST(windows_forget), TEST(uses_are_known), TEST(nothing_shown_nothing_changed),
          TEST(longer_windows_pull_less), TEST(windows_move_less), TEST(windows_see_every_key))
