// What decisions see with dispatch.view "snapshot", against a model that is told nothing but
// batches and placements: every worker that trained a row in its last iteration holds it, in a
// cache of the same size and eviction.
#include "tests/support/test.h"

#include <string.h>

#include "dispatch/cost/dp_ticks.h"
#include "dispatch/plan/dp_plan.h"
#include "dispatch/policies/dp_policy.h"
#include "runtime/config/rt_policies.h"
#include "tests/support/eviction_model.h"
#include "tests/support/planner_case.h"

#define WORKERS_MAX 8u

typedef struct {
    const planner_case *pc;
    eviction_model caches[WORKERS_MAX];
    uint32_t *free_slots[WORKERS_MAX]; // the one given up last is on top, at first slot 0
    uint32_t free_count[WORKERS_MAX];
    uint32_t evictions;
} model;

static void model_init(model *m, const planner_case *pc)
{
    *m = (model){.pc = pc};
    for (uint32_t j = 0; j < pc->shape.worker_count; j++) {
        uint32_t slots = pc->config.slot_count[j];
        eviction_model_init(&m->caches[j], pc->shape.eviction, slots);
        m->caches[j].by_bytes = true; // the rows of planner_case differ in size
        m->free_slots[j] = rt_alloc(slots, sizeof(uint32_t));
        assert_non_null(m->free_slots[j]);
        for (uint32_t slot = slots; slot-- > 0;)
            m->free_slots[j][m->free_count[j]++] = slot;
    }
}

static void model_fini(model *m)
{
    for (uint32_t j = 0; j < m->pc->shape.worker_count; j++) {
        eviction_model_fini(&m->caches[j]);
        rt_free(m->free_slots[j]);
    }
}

static uint32_t find(const model *m, uint32_t worker, uint64_t key)
{
    const eviction_model *cache = &m->caches[worker];
    for (uint32_t slot = 0; slot < cache->slot_count; slot++) {
        if (cache->slots[slot].occupied && cache->slots[slot].key == key)
            return slot;
    }
    return DP_NO_SLOT;
}

static uint64_t holders_of(const model *m, uint64_t key)
{
    uint64_t holders = 0;
    for (uint32_t j = 0; j < m->pc->shape.worker_count; j++) {
        uint32_t slot = find(m, j, key);
        holders |= slot == DP_NO_SLOT || m->caches[j].slots[slot].outdated ? 0 : rt_bit(j);
    }
    return holders;
}

static void give_up(model *m, uint32_t worker, uint32_t slot)
{
    eviction_model_free(&m->caches[worker], slot);
    m->free_slots[worker][m->free_count[worker]++] = slot;
}

static void outdate(model *m, uint32_t worker, uint32_t slot)
{
    if (m->caches[worker].slots[slot].outdated)
        return;
    eviction_model_outdate(&m->caches[worker], slot);
    if (!m->caches[worker].slots[slot].occupied)
        m->free_slots[worker][m->free_count[worker]++] = slot;
}

static bool has_key(const rt_batch *batch, uint32_t sample, uint64_t key)
{
    for (uint32_t k = batch->key_offsets[sample]; k < batch->key_offsets[sample + 1]; k++) {
        if (batch->keys[k] == key)
            return true;
    }
    return false;
}

static bool trains(const model *m, const uint32_t *placement, uint32_t worker, uint64_t key)
{
    const rt_batch *batch = &m->pc->batch;
    for (uint32_t i = 0; i < batch->sample_count; i++) {
        if (placement[i] == worker && has_key(batch, i, key))
            return true;
    }
    return false;
}

// Distinct keys of a worker's samples (RT_WORKERS_MAX: of the batch) in order of appearance.
static uint32_t keys_of(const model *m, const uint32_t *placement, uint32_t worker, uint64_t *keys)
{
    const rt_batch *batch = &m->pc->batch;
    uint32_t count = 0;
    for (uint32_t i = 0; i < batch->sample_count; i++) {
        if (worker != RT_WORKERS_MAX && placement[i] != worker)
            continue;
        for (uint32_t k = batch->key_offsets[i]; k < batch->key_offsets[i + 1]; k++) {
            uint32_t at = 0;
            while (at < count && keys[at] != batch->keys[k])
                at++;
            if (at == count)
                keys[count++] = batch->keys[k];
        }
    }
    return count;
}

static void use(model *m, uint32_t worker, uint32_t slot, uint64_t key)
{
    eviction_model_use(&m->caches[worker], slot, m->pc->iteration);
    m->caches[worker].slots[slot].key = key;
    m->caches[worker].slots[slot].bytes =
        dp_row_bytes(&m->pc->config.layout, rt_key_field(key), true);
}

static void train_rows(model *m, const uint32_t *placement, uint32_t worker, uint64_t *keys)
{
    eviction_model *cache = &m->caches[worker];
    uint32_t count = keys_of(m, placement, worker, keys);
    for (uint32_t slot = 0; slot < cache->slot_count; slot++)
        cache->slots[slot].next =
            cache->slots[slot].occupied ? planner_case_next_use(m->pc, cache->slots[slot].key) : 0;
    for (uint32_t r = 0; r < count; r++) {
        uint32_t slot = find(m, worker, keys[r]);
        if (slot != DP_NO_SLOT)
            use(m, worker, slot, keys[r]);
    }
    for (uint32_t r = 0; r < count; r++) {
        if (find(m, worker, keys[r]) != DP_NO_SLOT)
            continue;
        if (m->free_count[worker] == 0) {
            give_up(m, worker, eviction_model_victim(cache, m->pc->iteration));
            m->evictions++;
        }
        use(m, worker, m->free_slots[worker][--m->free_count[worker]], keys[r]);
    }
}

static void follow(model *m, const uint32_t *placement)
{
    uint64_t *keys = rt_alloc(m->pc->batch.key_count, sizeof *keys);
    uint32_t n = m->pc->shape.worker_count;
    assert_non_null(keys);
    uint32_t count = keys_of(m, placement, RT_WORKERS_MAX, keys);
    for (uint32_t d = 0; d < count; d++) {
        for (uint32_t j = 0; j < n; j++) {
            uint32_t slot = find(m, j, keys[d]);
            if (slot != DP_NO_SLOT && !trains(m, placement, j, keys[d]))
                outdate(m, j, slot);
        }
    }
    for (uint32_t j = 0; j < n; j++)
        train_rows(m, placement, j, keys);
    rt_free(keys);
}

// The view shows the model's holders; a row is dirty if the PS lacks it, or if several trained it.
// Returns how many rows several workers hold.
static uint32_t check(const model *m)
{
    const dp_view *view = dp_planner_view(m->pc->planner);
    const rt_dispatch_config *dispatch = &m->pc->shape.dispatch;
    uint32_t many = 0;
    for (uint32_t d = 0; d < view->distinct_count; d++) {
        const dp_distinct *key = &view->distinct[d];
        plan_checker_key known = plan_checker_find(m->pc->checker, key->key);
        uint64_t holders = holders_of(m, key->key);
        bool several = rt_bit_count(holders) > 1;
        assert_int_equal(key->holders, holders);
        if (!dispatch->full_sync) { // whose pushes come with the next plan
            assert_int_equal(key->dirty, several || known.version != known.version_ps);
            assert_int_equal(key->version, known.version);
        }
        assert_int_equal(view->held[d], key->held);
        if (several)
            assert_int_equal(key->held, DP_HELD_BY_MANY);
        else if (holders == 0)
            assert_int_equal(key->held, DP_HELD_BY_NONE);
        else
            assert_int_equal(key->held & DP_HELD_WORKER, rt_lowest_bit(holders));
        many += several;
    }
    return many;
}

static uint32_t run(const planner_shape *shape, uint32_t iterations, uint32_t *evictions)
{
    static model m; // some KB
    planner_case pc;
    uint32_t many = 0;
    rt_error error = {0};
    planner_case_init(&pc, shape);
    model_init(&m, &pc);
    for (uint32_t t = 0; t < iterations; t++) {
        planner_case_look_up(&pc, t % 5 ? shape->sample_count_max : 1 + t % 30);
        many += check(&m);
        planner_case_commit(&pc);
        follow(&m, dp_planner_placement(pc.planner));
        if (t % 9 == 8)
            planner_case_flush(&pc); // nothing that decisions see
        if (!dp_planner_legal(pc.planner, &error))
            fail_msg("%s", error.text);
    }
    *evictions += m.evictions;
    model_fini(&m);
    planner_case_fini(&pc);
    return many;
}

static planner_shape shape_of(uint32_t i, rt_policy_kind policy)
{
    return (planner_shape){
        .seed = 100 + i,
        .worker_count = (uint32_t[]){1, 2, 3, 8}[i % 4],
        .sample_count_max = 30,
        .field_count = 4,
        .ids_per_field = 70,
        .bag_max = 1 + i % 2,
        .zipf = 0.9,
        .cache = i % 3 ? CACHE_MIDDLE : CACHE_SMALLEST,
        .eviction = (rt_eviction_kind)(i / 2 % 3),
        .dispatch = {
            .policy = policy, .alpha = 0.5, .view = RT_VIEW_SNAPSHOT, .search_evaluations = 100}};
}

static void every_policy_and_eviction(void **state)
{
    (void)state;
    uint32_t many = 0, evictions = 0;
    for (uint32_t i = 0; i < 12; i++) {
        for (uint32_t policy = 0; policy < RT_POLICY_COUNT; policy++) {
            planner_shape shape = shape_of(i, (rt_policy_kind)policy);
            many += run(&shape, 40, &evictions);
        }
    }
    assert_true(many > 1000 && evictions > 1000);
}

static void look_ahead_and_full_sync(void **state)
{
    (void)state;
    uint32_t evictions = 0;
    for (uint32_t i = 0; i < 24; i++) {
        planner_shape shape = shape_of(i, RT_POLICY_ESD);
        shape.lookahead = i / 2 % 3;
        shape.dispatch.full_sync = i % 5 == 4;
        run(&shape, 40, &evictions);
    }
    assert_true(evictions > 1000);
}

// "auto": what the papers of a policy say.
static void who_sees_what(void **state)
{
    (void)state;
    for (uint32_t policy = 0; policy < RT_POLICY_COUNT; policy++) {
        const bool snapshots = policy == RT_POLICY_LAIA || policy == RT_POLICY_ESD;
        planner_shape shape = shape_of(3, (rt_policy_kind)policy); // 8 workers
        uint32_t many = 0;
        planner_case pc;
        shape.dispatch.view = RT_VIEW_AUTO;
        assert_int_equal(dp_policy_can(shape.dispatch.policy, DP_POLICY_SNAPSHOTS), snapshots);
        planner_case_init(&pc, &shape);
        for (uint32_t t = 0; t < 20; t++) {
            planner_case_look_up(&pc, 30);
            const dp_view *view = dp_planner_view(pc.planner);
            for (uint32_t d = 0; d < view->distinct_count; d++)
                many += rt_bit_count(view->distinct[d].holders) > 1;
            planner_case_commit(&pc);
        }
        assert_int_equal(many > 0, snapshots);
        planner_case_fini(&pc);
    }
}

TEST_MAIN(TEST(every_policy_and_eviction), TEST(look_ahead_and_full_sync), TEST(who_sees_what))
