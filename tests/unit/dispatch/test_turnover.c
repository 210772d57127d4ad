// The expected push of a fill (dp_turnover.h) from plans alone, and what it makes of the costs.
#include "tests/support/test.h"

#include "dispatch/solvers/dp_solver.h"
#include "tests/support/planner_case.h"

// What the plans so far say of one worker.
typedef struct {
    uint64_t occupied, fills, evictions;
} moves;

static bool is_used(const planner_case *pc, uint64_t key)
{
    for (uint32_t k = 0; k < pc->batch.key_count; k++) {
        if (pc->batch.keys[k] == key)
            return true;
    }
    return false;
}

static void count_moves(const planner_case *pc, uint32_t worker, moves *m)
{
    const dp_slice *slice = &pc->plan->slices[worker];
    m->fills = m->evictions = 0;
    for (uint32_t k = 0; k < slice->release.count; k++) {
        const dp_op *op = &slice->release.items[k];
        bool evicted = op->kind == DP_OP_PUSH_ROW ? op->reason == DP_REASON_EVICT
                                                  : !is_used(pc, op->key); // or outdated
        m->evictions += evicted;
        m->occupied -= op->kind == DP_OP_DROP || evicted;
    }
    for (uint32_t k = 0; k < slice->fill.count; k++)
        m->fills += slice->fill.items[k].kind != DP_OP_PULL_SUM;
    m->occupied += m->fills;
    m->occupied -= slice->after.count; // PUSH_GRAD
}

// The push of all rows that only this worker has in their latest version.
static uint64_t owned_push(const planner_case *pc, uint32_t worker)
{
    const dp_directory *directory = dp_planner_directory(pc->planner);
    const dp_ticks *ticks = dp_planner_ticks(pc->planner);
    uint64_t push = 0;
    for (uint64_t i = 0; i <= directory->mask; i++) {
        if (!directory->entries[i].record)
            continue;
        const dp_record *record = &directory->records[directory->entries[i].record - 1];
        if (record->copies.holders == rt_bit(worker) && record->version_ps != record->version)
            push += (uint64_t)ticks->push[rt_key_field(record->key)][worker];
    }
    return push;
}

static void check_costs(const planner_case *pc)
{
    const dp_view *view = dp_planner_view(pc->planner);
    uint32_t n = view->worker_count;
    int32_t *cost = rt_alloc((size_t)view->sample_count * n, sizeof *cost);
    assert_non_null(cost);
    dp_cost_matrix(view, cost, n);
    for (uint32_t k = 0; k < view->sample_count * n; k++)
        assert_true(cost[k] >= 0 && cost[k] <= DP_COST_MAX);
    rt_free(cost);
}

static uint32_t run(const planner_shape *shape)
{
    moves m[RT_WORKERS_MAX] = {0};
    uint32_t shares = 0;
    planner_case pc;
    planner_case_init(&pc, shape);
    for (uint32_t t = 0; t < 100; t++) {
        planner_case_look_up(&pc, t % 6 ? shape->sample_count_max : 3);
        const dp_view *view = dp_planner_view(pc.planner);
        assert_non_null(view->evict);
        for (uint32_t j = 0; j < shape->worker_count; j++) {
            uint64_t want = 0;
            if (m[j].fills && m[j].occupied)
                want = owned_push(&pc, j) * m[j].evictions / (m[j].occupied * m[j].fills);
            assert_int_equal(view->evict[j], want);
            shares += want > 0 && m[j].evictions < m[j].fills;
        }
        check_costs(&pc);
        planner_case_commit(&pc);
        for (uint32_t j = 0; j < shape->worker_count; j++)
            count_moves(&pc, j, &m[j]);
        if (t % 30 == 29) { // everything is clean now
            planner_case_flush(&pc);
            assert_int_equal(owned_push(&pc, 0), 0);
        }
    }
    planner_case_fini(&pc);
    return shares;
}

static void expected_push(void **state)
{
    (void)state;
    uint32_t shares = 0;
    for (uint32_t i = 0; i < 24; i++) {
        planner_shape shape = {.seed = i,
                               .worker_count = 1 + i % 5,
                               .sample_count_max = 20,
                               .field_count = 4,
                               .ids_per_field = 80,
                               .bag_max = 1 + i % 2,
                               .zipf = 0.9,
                               .cache = (cache_size)(i % 3),
                               .eviction = (rt_eviction_kind)(i / 2 % 3),
                               .lookahead = i % 4 == 3 ? 2 : 0,
                               .dispatch = {.policy = RT_POLICY_ESD,
                                            .alpha = 0.5,
                                            .evict_cost = true,
                                            .full_sync = i % 6 == 5}};
        shares += run(&shape);
    }
    assert_true(shares > 300);
}

static void not_counted_unless_asked(void **state)
{
    (void)state;
    planner_shape shape = {.worker_count = 2,
                           .sample_count_max = 8,
                           .field_count = 2,
                           .ids_per_field = 20,
                           .bag_max = 1};
    planner_case pc;
    planner_case_init(&pc, &shape);
    planner_case_look_up(&pc, 8);
    assert_null(dp_planner_view(pc.planner)->evict);
    planner_case_commit(&pc);
    planner_case_fini(&pc);
}

// A sample whose keys all cost a pull, a push and an eviction stays in the solvers' range.
static void costs_stay_in_range(void **state)
{
    (void)state;
    for (uint32_t keys = 1; keys <= 5001; keys += 1000) {
        dp_planner_config config = {.worker_count = 1,
                                    .sample_count_max = 1,
                                    .keys_per_sample_max = keys,
                                    .slot_count = {keys},
                                    .layout = {1, {16}, {0}, RT_CODING_FP32},
                                    .rates.links = {{1e6, 1e6}},
                                    .dispatch.evict_cost = true};
        dp_planner *planner;
        assert_int_equal(dp_planner_create(&config, &planner, NULL), RT_OK);
        const dp_ticks *ticks = dp_planner_ticks(planner);
        int64_t most = ticks->pull[0][0] + 2 * (int64_t)ticks->push[0][0];
        assert_true(most * keys <= DP_COST_MAX);
        assert_true(keys < 1000 || most * keys > DP_COST_MAX / 2); // nor is it much finer
        dp_planner_destroy(planner);
    }
}

TEST_MAIN(TEST(costs_stay_in_range), TEST(expected_push), TEST(not_counted_unless_asked))
