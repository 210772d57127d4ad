// A planner with several threads: the same plans, whatever it plans and however many they are.
#include "tests/support/test.h"

#include <stdio.h>

#include "dispatch/cache/dp_slot_changes.h"
#include "runtime/config/rt_policies.h"
#include "tests/support/planner_case.h"

#define ITERATIONS 24u

// ---- the same plans --------------------------------------------------------------------------

typedef struct {
    uint64_t plans;                   // fingerprint
    uint64_t evicted, summed, handed; // operations, so that a case is known to have them
} outcome;

static void note(const planner_case *pc, outcome *o)
{
    o->plans = dp_fingerprint_add(o->plans, dp_plan_fingerprint(pc->plan));
    for (uint32_t w = 0; w < pc->plan->worker_count; w++) {
        const dp_slice *slice = &pc->plan->slices[w];
        for (uint32_t i = 0; i < slice->release.count; i++) {
            o->evicted += slice->release.items[i].kind == DP_OP_PUSH_ROW &&
                          slice->release.items[i].reason == DP_REASON_EVICT;
            o->handed += slice->release.items[i].kind == DP_OP_SEND;
        }
        for (uint32_t i = 0; i < slice->after.count; i++)
            o->summed += slice->after.items[i].kind == DP_OP_PUSH_GRAD;
    }
}

// Links change, workers come and go, rows are flushed, batches are incomplete.
static void disturb(planner_case *pc, uint32_t t, outcome *o)
{
    const uint32_t worker = rt_random_below(&pc->random, pc->shape.worker_count);
    if (t % 7 == 0) {
        planner_case_compare(pc);
        planner_case_flush(pc);
        note(pc, o);
    }
    if (t % 5 == 0)
        dp_planner_set_link(pc->planner, worker, (dp_link){1e7 * t, 3e7 * t});
    if (pc->shape.participants_min && t % 3 == 0) {
        dp_input input = {.kind = DP_INPUT_PARTICIPATES, .worker = worker, .value = t % 2 ? 1 : 0};
        assert_int_equal(dp_planner_apply(pc->planner, &input, NULL), RT_OK);
    }
}

static outcome plan_with(const planner_shape *shape, uint32_t threads)
{
    planner_case pc;
    rt_pool *pool;
    outcome o = {0};
    planner_case_init(&pc, shape);
    assert_int_equal(rt_pool_create(threads, &pool, NULL), RT_OK);
    assert_int_equal(dp_planner_set_pool(pc.planner, pool), RT_OK);
    for (uint32_t t = 1; t <= ITERATIONS; t++) {
        planner_case_look_up(&pc, t % 6 ? shape->sample_count_max : 1 + t);
        planner_case_commit(&pc);
        note(&pc, &o);
        disturb(&pc, t, &o);
    }
    planner_case_compare(&pc);
    assert_int_equal(dp_planner_set_pool(pc.planner, NULL), RT_OK);
    rt_pool_destroy(pool);
    planner_case_fini(&pc);
    return o;
}

static outcome must_not_depend(planner_shape shape)
{
    shape.sample_count_max = shape.sample_count_max ? shape.sample_count_max : 64;
    shape.worker_count = shape.worker_count ? shape.worker_count : 5;
    shape.field_count = 6;
    shape.ids_per_field = 150;
    shape.bag_max = shape.bag_max ? shape.bag_max : 1;
    shape.zipf = 1.0;
    shape.dispatch.search_evaluations = 200;
    const outcome one = plan_with(&shape, 1);
    for (uint32_t threads = 2; threads <= 4; threads++)
        assert_int_equal(plan_with(&shape, threads).plans, one.plans);
    return one;
}

static planner_shape shape_of(rt_policy_kind policy, cache_size cache)
{
    planner_shape shape = {.seed = 7, .cache = cache, .dispatch = {.policy = policy, .alpha = 1}};
    return shape;
}

static void every_policy(void **state)
{
    (void)state;
    for (uint32_t policy = 0; policy < RT_POLICY_COUNT; policy++) {
        const outcome o = must_not_depend(shape_of((rt_policy_kind)policy, CACHE_MIDDLE));
        assert_true(o.evicted > 0 && o.summed > 0);
    }
}

static void views(void **state)
{
    (void)state;
    planner_shape shape = shape_of(RT_POLICY_ESD, CACHE_SMALLEST);
    shape.dispatch.alpha = 0.25;
    shape.dispatch.view = RT_VIEW_STRICT;
    assert_true(must_not_depend(shape).evicted > 0);
    shape.dispatch.view = RT_VIEW_SNAPSHOT;
    assert_true(must_not_depend(shape).evicted > 0);
    shape.cache = CACHE_EVERYTHING;
    assert_int_equal(must_not_depend(shape).evicted, 0);
    shape.dispatch.window = 3;
    shape.lookahead = 2;
    assert_true(must_not_depend(shape).summed > 0);
}

static void evictions(void **state)
{
    (void)state;
    for (uint32_t kind = 0; kind < RT_EVICT_COUNT; kind++) {
        planner_shape shape = shape_of(RT_POLICY_LAIA, CACHE_MIDDLE);
        shape.eviction = (rt_eviction_kind)kind;
        assert_true(must_not_depend(shape).evicted > 0);
        shape.lookahead = 2;
        assert_true(must_not_depend(shape).evicted > 0);
    }
}

static void protocols(void **state)
{
    (void)state;
    planner_shape shape = shape_of(RT_POLICY_MAKESPAN, CACHE_MIDDLE);
    shape.dispatch.hand_over = true;
    assert_true(must_not_depend(shape).handed > 0);
    shape.dispatch.reduce = true;
    assert_true(must_not_depend(shape).handed > 0);
    shape.dispatch.reduce = shape.dispatch.hand_over = false;
    shape.dispatch.full_sync = true;
    assert_true(must_not_depend(shape).summed > 0);
    shape.dispatch.full_sync = false;
    shape.consistency.bounded = true; // staleness 0
    assert_true(must_not_depend(shape).summed > 0);
    shape.consistency.bounded = false;
    shape.row_wire = RT_CODING_BF16;
    assert_true(must_not_depend(shape).summed > 0);
}

static void batches_and_workers(void **state)
{
    (void)state;
    planner_shape shape = shape_of(RT_POLICY_ESD, CACHE_MIDDLE);
    shape.bag_max = 3;
    assert_true(must_not_depend(shape).summed > 0);
    shape.bag_max = 1;
    shape.worker_count = 1;
    must_not_depend(shape);
    shape.worker_count = 17;
    shape.sample_count_max = 200;
    assert_true(must_not_depend(shape).summed > 0);
    shape.worker_count = 4;
    shape.sample_count_max = 64;
    shape.participants_min = 1;
    must_not_depend(shape);
    shape.dispatch.policy = RT_POLICY_MAKESPAN;
    shape.dispatch.micro_batch_min = 1;
    shape.dispatch.micro_batch_max = 32;
    must_not_depend(shape);
}

// ---- chains ----------------------------------------------------------------------------------

#define SLOTS 64u
#define KEYS 200u

typedef struct {
    dp_directory directory;
    dp_cache caches[3];
    dp_slot_changes *seats;
} chains;

static void chains_init(chains *c)
{
    const dp_eviction_config eviction = {.kind = RT_EVICT_EMARK, .slot_count = SLOTS};
    assert_int_equal(dp_directory_init(&c->directory, KEYS), RT_OK);
    assert_int_equal(dp_directory_reserve(&c->directory, KEYS), RT_OK);
    for (uint32_t w = 0; w < 3; w++)
        assert_int_equal(dp_cache_init(&c->caches[w], w, &eviction), RT_OK);
    assert_int_equal(dp_slot_changes_create(3, SLOTS, &c->seats), RT_OK);
}

static void chains_fini(chains *c)
{
    for (uint32_t w = 0; w < 3; w++)
        dp_cache_fini(&c->caches[w]);
    dp_slot_changes_destroy(c->seats, 3);
    dp_directory_fini(&c->directory);
}

// In every iteration all slots get other rows: those of before leave their chains, though their
// slots have new owners already.
static void turn_over(chains *c, uint32_t iteration, uint32_t part_count)
{
    const dp_slot_change_set seating = {c->seats, c->caches, 3, false};
    for (uint32_t w = 0; w < 3; w++) {
        dp_cache *cache = &c->caches[w];
        c->seats[w].left_count = c->seats[w].taken_count = 0;
        for (uint32_t i = 0; i < SLOTS; i++) {
            const uint32_t record =
                dp_directory_find(&c->directory, 1 + (iteration * 37 + i * (w + 1)) % KEYS);
            if (dp_cache_slot(c->caches, w, &c->directory.records[record].copies) != DP_NO_SLOT)
                continue;
            if (cache->free_count == 0) {
                const uint32_t slot = dp_eviction_victim(cache->eviction, iteration);
                if (slot == DP_NO_SLOT)
                    continue;
                dp_slot_changes_leave(&c->seats[w], cache->slots[slot].record, slot);
                dp_cache_vacate(cache, slot);
            }
            bool comes = true; // a key may be there twice: i x (w + 1) wraps around
            for (uint32_t k = 0; k < c->seats[w].taken_count; k++)
                comes &= c->seats[w].taken[k].record != record;
            for (uint32_t k = 0; k < c->seats[w].left_count; k++)
                comes &= c->seats[w].left[k].record != record;
            if (comes)
                dp_slot_changes_take(&c->seats[w], record, dp_cache_take(cache, record, iteration));
        }
    }
    for (uint32_t part = 0; part < part_count; part++)
        dp_slot_changes_unlink(&seating, &c->directory, part, part_count);
    for (uint32_t part = 0; part < part_count; part++)
        dp_slot_changes_link(&seating, &c->directory, part, part_count);
}

// Every slot that is taken is in the chain of its record, once.
static void check_chains(const chains *c)
{
    uint32_t in_chains = 0, in_caches = 0;
    for (uint32_t w = 0; w < 3; w++)
        in_caches += c->caches[w].occupied;
    for (uint64_t key = 1; key <= KEYS; key++) {
        const uint32_t record = dp_directory_peek(&c->directory, key);
        if (record == DP_NO_RECORD)
            continue;
        uint32_t at = c->directory.records[record].copies.first;
        for (; at != DP_NO_COPY; in_chains++) {
            const dp_slot *slot = &c->caches[dp_copy_worker(at)].slots[dp_copy_slot(at)];
            assert_int_equal(slot->record, record);
            at = slot->next_copy;
        }
    }
    assert_int_equal(in_chains, in_caches);
}

static void chains_follow(void **state)
{
    (void)state;
    for (uint32_t part_count = 1; part_count <= 5; part_count++) {
        chains c;
        chains_init(&c);
        for (uint32_t t = 1; t <= 20; t++) {
            turn_over(&c, t, part_count);
            check_chains(&c);
        }
        chains_fini(&c);
    }
}

// ----------------------------------------------------------------------------------------------

static void lend_and_take_back(void **state)
{
    (void)state;
    planner_shape shape = shape_of(RT_POLICY_ESD, CACHE_MIDDLE);
    shape.sample_count_max = 32;
    shape.worker_count = 4;
    shape.field_count = 5;
    shape.ids_per_field = 60;
    shape.bag_max = 1;
    uint64_t plans[2] = {0};
    for (uint32_t lent = 0; lent < 2; lent++) {
        planner_case pc;
        rt_pool *pool;
        planner_case_init(&pc, &shape);
        assert_int_equal(rt_pool_create(3, &pool, NULL), RT_OK);
        for (uint32_t t = 1; t <= ITERATIONS; t++) {
            const bool has = lent && t % 3 == 0;
            assert_int_equal(dp_planner_set_pool(pc.planner, has ? pool : NULL), RT_OK);
            planner_case_look_up(&pc, 32);
            planner_case_commit(&pc);
            plans[lent] = dp_fingerprint_add(plans[lent], dp_plan_fingerprint(pc.plan));
        }
        planner_case_fini(&pc);
        rt_pool_destroy(pool);
    }
    assert_int_equal(plans[0], plans[1]);
}

// Threads may still be at work for a look-up that nobody commits.
static void looked_up_in_vain(void **state)
{
    (void)state;
    for (uint32_t end = 0; end < 3; end++) {
        planner_shape shape = shape_of(RT_POLICY_LAIA, CACHE_MIDDLE);
        shape.sample_count_max = 600;
        shape.worker_count = 4;
        shape.field_count = 6;
        shape.ids_per_field = 900;
        shape.bag_max = 1;
        planner_case pc;
        rt_pool *pool;
        planner_case_init(&pc, &shape);
        assert_int_equal(rt_pool_create(3, &pool, NULL), RT_OK);
        assert_int_equal(dp_planner_set_pool(pc.planner, pool), RT_OK);
        planner_case_look_up(&pc, 600);
        if (end == 1)
            assert_int_equal(dp_planner_set_pool(pc.planner, NULL), RT_OK);
        if (end == 2)
            planner_case_look_up(&pc, 600);
        planner_case_fini(&pc);
        rt_pool_destroy(pool);
    }
}

TEST_MAIN(TEST(every_policy), TEST(views), TEST(evictions), TEST(protocols),
          TEST(batches_and_workers), TEST(chains_follow), TEST(lend_and_take_back),
          TEST(looked_up_in_vain))
