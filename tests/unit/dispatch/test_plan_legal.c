// Plans of random runs, carried out by an independent checker (tests/support/plan_checker.h).
#include "runtime/config/rt_policies.h"
#include "tests/support/crossed.h"
#include "tests/support/test.h"

#include <inttypes.h>
#include <string.h>

#include "dispatch/cost/dp_ticks.h"
#include "tests/support/eviction_model.h"
#include "tests/support/planner_case.h"

// ---- random runs --------------------------------------------------------------------------------

static void check_hits(const planner_case *pc)
{
    dp_hits hits = pc->plan->hits;
    uint64_t lookups = 0, rows = 0;
    for (uint32_t j = 0; j < pc->plan->worker_count; j++) {
        lookups += pc->plan->slices[j].lookup_count;
        rows += pc->plan->slices[j].row_count;
    }
    assert_int_equal(hits.lookups, pc->batch.key_count);
    assert_int_equal(hits.lookups, lookups);
    assert_int_equal(hits.keys, rows);
    assert_int_equal(hits.keys_hit, rows - pc->fills);
    assert_true(hits.lookups_hit <= hits.lookups && hits.lookups_hit >= hits.keys_hit);
}

// Somebody comes or goes; where too few would be left, all train.
static void change_participants(planner_case *pc)
{
    dp_input input = {.kind = DP_INPUT_PARTICIPATES,
                      .worker = rt_random_below(&pc->random, pc->shape.worker_count),
                      .value = rt_random_below(&pc->random, 3) == 0};
    assert_int_equal(dp_planner_apply(pc->planner, &input, NULL), RT_OK);
}

// Input records and flushes at random.
static void disturb(planner_case *pc)
{
    if (rt_random_below(&pc->random, 9) == 0)
        planner_case_flush(pc);
    if (rt_random_below(&pc->random, 7) == 0)
        dp_planner_set_alpha(pc->planner, rt_random_below(&pc->random, 5) / 4.0);
    if (rt_random_below(&pc->random, 7) == 0) {
        double rate = 1e7 * (1 + rt_random_below(&pc->random, 100));
        dp_planner_set_link(pc->planner, rt_random_below(&pc->random, pc->shape.worker_count),
                            (dp_link){rate, 2 * rate});
    }
    if (pc->shape.participants_min && rt_random_below(&pc->random, 3) == 0)
        change_participants(pc);
}

static void run(const planner_shape *shape, uint32_t iterations)
{
    planner_case pc;
    planner_case_init(&pc, shape);
    for (uint32_t t = 1; t <= iterations; t++) {
        uint32_t samples = shape->sample_count_max;
        if (t == iterations || rt_random_below(&pc.random, 6) == 0)
            samples = 1 + rt_random_below(&pc.random, samples);
        planner_case_look_up(&pc, samples);
        planner_case_commit(&pc);
        check_hits(&pc);
        if (t % 8 == 0)
            planner_case_compare(&pc);
        disturb(&pc);
    }
    planner_case_compare(&pc);
    planner_case_flush(&pc);
    planner_case_compare(&pc);
    planner_case_fini(&pc);
}

typedef struct {
    uint32_t worker_count, sample_count_max, field_count;
    rt_view_kind view;
    bool full_sync, unequal;
    uint32_t participants_min; // 0: all, always
} family;

// Everything that can be combined, with small batches.
static void run_family_with(family f, bool hand_over, bool reduce)
{
    planner_shape shape = {.worker_count = f.worker_count,
                           .sample_count_max = f.sample_count_max,
                           .field_count = f.field_count,
                           .participants_min = f.participants_min,
                           .dispatch = {.view = f.view,
                                        .hand_over = hand_over,
                                        .reduce = reduce,
                                        .full_sync = f.full_sync,
                                        .search_evaluations = 300}};
    if (f.unequal) {
        shape.dispatch.micro_batch_min = 1;
        shape.dispatch.micro_batch_max = 2 * f.sample_count_max / f.worker_count;
    }
    for (uint32_t i = 0; i < 144; i++) {
        shape.seed = f.worker_count * 1000 + i;
        shape.dispatch.policy = (rt_policy_kind)(i % RT_POLICY_COUNT);
        shape.eviction = (rt_eviction_kind)(i / RT_POLICY_COUNT % RT_EVICT_COUNT);
        shape.dispatch.tables = crossed(i, 1, 3);
        shape.lookahead = crossed(i, 3, 2) ? crossed(i, 4, 3) + 1 : 0;
        shape.dispatch.window = crossed(i, 5, 3) ? shape.lookahead + 1 : shape.lookahead / 2 + 1;
        shape.cache = (cache_size)crossed(i, 6, 3);
        shape.dispatch.first_touch = (rt_first_touch)crossed(i, 7, 2);
        shape.bag_max = crossed(i, 8, 2) ? 3 : 1;
        shape.dispatch.alpha = crossed(i, 9, 5) / 4.0;
        shape.ids_per_field = 4 + f.sample_count_max * crossed(i, 11, 4);
        shape.zipf = (double[]){0, 0.6, 1, 1.4}[crossed(i, 12, 4)];
        run(&shape, 40);
    }
}

static void run_family(family f)
{
    run_family_with(f, false, false);
}

static void one_worker(void **state)
{
    (void)state;
    run_family((family){1, 5, 3, RT_VIEW_AUTO, false, false, 0});
}

static void two_workers(void **state)
{
    (void)state;
    run_family((family){2, 8, 4, RT_VIEW_AUTO, false, false, 0});
}

static void three_workers(void **state)
{
    (void)state;
    run_family((family){3, 10, 4, RT_VIEW_AUTO, false, false, 0}); // shares of 4, 3 and 3
}

static void four_workers(void **state)
{
    (void)state;
    run_family((family){4, 12, 5, RT_VIEW_AUTO, false, false, 0});
}

static void seven_workers(void **state)
{
    (void)state;
    run_family((family){7, 20, 3, RT_VIEW_AUTO, false, false, 0});
}

static void eight_workers(void **state)
{
    (void)state;
    run_family((family){8, 32, 4, RT_VIEW_AUTO, false, false, 0});
}

static void sixty_four_workers(void **state)
{
    (void)state;
    run_family((family){64, 130, 2, RT_VIEW_AUTO, false, false, 0});
}

// What decisions see changes placements, never what a plan owes them.
static void views(void **state)
{
    (void)state;
    for (uint32_t view = RT_VIEW_SNAPSHOT; view < RT_VIEW_COUNT; view++) {
        run_family((family){2, 6, 3, (rt_view_kind)view, false, false, 0});
        run_family((family){5, 20, 3, (rt_view_kind)view, false, true, 0});
        run_family((family){7, 20, 3, (rt_view_kind)view, true, false, 0});
    }
}

static void full_synchronisation(void **state)
{
    (void)state;
    run_family((family){1, 4, 3, RT_VIEW_AUTO, true, false, 0});
    run_family((family){3, 8, 4, RT_VIEW_AUTO, true, false, 0});
    run_family((family){8, 32, 4, RT_VIEW_AUTO, true, false, 0});
    run_family((family){4, 16, 4, RT_VIEW_AUTO, true, false, 0});
}

static void unequal_micro_batches(void **state)
{
    (void)state;
    run_family((family){2, 9, 3, RT_VIEW_AUTO, false, true, 0});
    run_family((family){5, 20, 3, RT_VIEW_AUTO, false, true, 0});
    run_family((family){8, 32, 4, RT_VIEW_AUTO, true, true, 0});
}

// Workers that sit out and come back, with everything else.
static void participants_change(void **state)
{
    (void)state;
    run_family((family){3, 9, 3, RT_VIEW_AUTO, false, false, 1});
    run_family((family){8, 32, 4, RT_VIEW_AUTO, false, false, 2});
    run_family((family){5, 20, 3, RT_VIEW_SNAPSHOT, true, true, 1});
    run_family((family){64, 130, 2, RT_VIEW_STRICT, false, false, 9});
}

// The checker knows which rows have to go from worker to worker, and which must not.
static void rows_are_handed_over(void **state)
{
    (void)state;
    run_family_with((family){2, 8, 4, RT_VIEW_AUTO, false, false, 0}, true, false);
    run_family_with((family){3, 9, 3, RT_VIEW_AUTO, false, false, 1}, true, false);
    run_family_with((family){8, 32, 4, RT_VIEW_AUTO, true, true, 0}, true, false);
    run_family_with((family){8, 32, 4, RT_VIEW_AUTO, false, true, 0}, true, false);
}

// One of the trainers of a row sums, alone and where rows are handed over, too.
static void trainers_sum(void **state)
{
    (void)state;
    run_family_with((family){2, 8, 4, RT_VIEW_AUTO, false, false, 0}, false, true);
    run_family_with((family){3, 9, 3, RT_VIEW_AUTO, false, false, 1}, true, true);
    run_family_with((family){8, 32, 4, RT_VIEW_AUTO, false, true, 0}, true, true);
    run_family_with((family){64, 130, 2, RT_VIEW_AUTO, false, false, 9}, false, true);
}

static uint64_t count_after(const dp_plan *plan, dp_op_kind kind)
{
    uint64_t count = 0;
    for (uint32_t j = 0; j < plan->worker_count; j++) {
        const dp_ops *ops = &plan->slices[j].after;
        for (uint32_t i = 0; i < ops->count; i++)
            count += ops->items[i].kind == kind;
    }
    return count;
}

// Behind a narrow link of the PS most gradients go to trainers, some to the PS, whose link would be
// idle; behind a wide one nearly all go there.
static void links_say_who_sums(void **state)
{
    (void)state;
    uint64_t sums[2] = {0}, gradients[2] = {0};
    for (uint32_t wide = 0; wide < 2; wide++) {
        const planner_shape shape = {
            .seed = 3,
            .worker_count = 8,
            .sample_count_max = 64,
            .field_count = 6,
            .ids_per_field = 60,
            .bag_max = 1,
            .zipf = 1,
            .cache = CACHE_EVERYTHING,
            .dispatch = {.policy = RT_POLICY_RANDOM, .hand_over = true, .reduce = true}};
        planner_case pc;
        uint64_t sent = 0;
        planner_case_init(&pc, &shape);
        dp_planner_destroy(pc.planner);
        for (uint32_t j = 0; j < shape.worker_count; j++)
            pc.config.rates.links[j] = (dp_link){1e8, 1e8};
        pc.config.rates.ps_bytes_per_s = wide ? 1e10 : 2e8;
        assert_int_equal(dp_planner_create(&pc.config, &pc.planner, NULL), RT_OK);
        for (uint32_t t = 0; t < 20; t++) {
            planner_case_look_up(&pc, 64);
            planner_case_commit(&pc);
            sums[wide] += count_after(pc.plan, DP_OP_SUM);
            sent += count_after(pc.plan, DP_OP_REDUCE);
            gradients[wide] += count_after(pc.plan, DP_OP_PUSH_GRAD);
        }
        assert_int_equal(sums[wide], sent);
        planner_case_fini(&pc);
    }
    if (sums[0] < 10 * sums[1] || gradients[0] == 0 || gradients[0] >= gradients[1])
        fail_msg("narrow: %" PRIu64 " to trainers, %" PRIu64 " to the PS; wide: %" PRIu64
                 ", %" PRIu64,
                 sums[0], gradients[0], sums[1], gradients[1]);
}

// Batches of one sample, and more workers than samples.
static void fewer_samples_than_workers(void **state)
{
    (void)state;
    run_family((family){1, 1, 2, RT_VIEW_AUTO, false, false, 0});
    run_family((family){8, 1, 3, RT_VIEW_AUTO, false, false, 0});
    run_family((family){8, 5, 3, RT_VIEW_AUTO, false, false, 0});
}

static void a_long_run(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        planner_shape shape = {.seed = i,
                               .worker_count = 8,
                               .sample_count_max = 128,
                               .field_count = 10,
                               .ids_per_field = 3000,
                               .bag_max = 1 + i % 2,
                               .zipf = 1.05,
                               .cache = CACHE_MIDDLE,
                               .eviction = (rt_eviction_kind)i,
                               .dispatch = {.policy = RT_POLICY_ESD, .alpha = 0.5}};
        run(&shape, 250);
    }
}

// 256 fields and the missing value.
static void keys_at_the_edges(void **state)
{
    (void)state;
    rt_batch batch;
    rt_error error = {0};
    dp_planner_config config = {.worker_count = 2,
                                .sample_count_max = 4,
                                .keys_per_sample_max = RT_FIELDS_MAX,
                                .slot_count = {2 * RT_FIELDS_MAX, 2 * RT_FIELDS_MAX},
                                .layout.field_count = RT_FIELDS_MAX,
                                .rates.links = {{1e6, 1e6}, {1e5, 1e5}},
                                .dispatch.policy = RT_POLICY_LAIA};
    plan_checker_config model = {.worker_count = 2,
                                 .slot_count = {2 * RT_FIELDS_MAX, 2 * RT_FIELDS_MAX}};
    plan_checker *checker = plan_checker_create(&model);
    dp_planner *planner;
    const dp_plan *plan;
    uint64_t keys[RT_FIELDS_MAX];
    assert_int_equal(dp_planner_create(&config, &planner, &error), RT_OK);
    rt_batch_init(&batch, 0);
    for (uint32_t t = 0; t < 6; t++) {
        rt_batch_clear(&batch);
        for (uint32_t i = 0; i < 4; i++) {
            for (uint32_t f = 0; f < RT_FIELDS_MAX; f++)
                keys[f] = rt_key(f, (i + f + t) % 3 ? RT_ID_MISSING - i % 2 : t);
            assert_int_equal(rt_batch_append(&batch, 1, NULL, keys, RT_FIELDS_MAX), RT_OK);
        }
        assert_int_equal(dp_planner_look_up(planner, &batch), RT_OK);
        dp_planner_place(planner);
        assert_int_equal(dp_planner_commit(planner, &plan), RT_OK);
        if (!plan_checker_step(checker, &batch, plan, &error))
            fail_msg("%s", error.text);
    }
    dp_planner_destroy(planner);
    plan_checker_destroy(checker);
    rt_batch_fini(&batch);
}

// ---- who pushes, what goes -------------------------------------------------------------------

static bool is_in_batch(const planner_case *pc, uint64_t key)
{
    uint32_t k = 0;
    while (k < pc->batch.key_count && pc->batch.keys[k] != key)
        k++;
    return k < pc->batch.key_count;
}

static bool is_filled(const dp_slice *slice, uint32_t slot)
{
    uint32_t k = 0;
    while (k < slice->fill.count && slice->fill.items[k].slot != slot)
        k++;
    return k < slice->fill.count;
}

// What the planner may know of the rows in a cache before it makes room.
static void tell_next_uses(const planner_case *pc, eviction_model *m)
{
    for (uint32_t slot = 0; slot < m->slot_count; slot++) {
        if (m->slots[slot].occupied)
            m->slots[slot].next = planner_case_next_use(pc, m->slots[slot].key);
    }
}

static uint32_t outdated_slot(const eviction_model *m, uint64_t key)
{
    for (uint32_t slot = 0; slot < m->slot_count; slot++) {
        if (m->slots[slot].outdated && m->slots[slot].key == key)
            return slot;
    }
    return DP_NO_SLOT;
}

// One worker's part of a plan, replayed: copies are outdated, hits count, rows come anew in their
// slots, then every fill that finds no room takes the slot that the rule names. Returns the number
// of evictions.
static uint32_t replay_evictions(const planner_case *pc, const dp_slice *slice, eviction_model *m)
{
    uint32_t evictions = 0, replayed = 0;
    for (uint32_t k = 0; k < slice->release.count; k++) {
        const dp_op *op = &slice->release.items[k];
        bool outdated = op->kind == DP_OP_DROP && is_in_batch(pc, op->key);
        bool evicted = op->kind == DP_OP_DROP || op->reason == DP_REASON_EVICT;
        if (outdated)
            eviction_model_outdate(m, op->slot);
        else
            evictions += evicted;
    }
    tell_next_uses(pc, m);
    for (uint32_t r = 0; r < slice->row_count; r++) {
        if (!is_filled(slice, slice->rows[r].slot))
            eviction_model_use(m, slice->rows[r].slot, pc->iteration);
    }
    for (uint32_t k = 0; k < slice->fill.count; k++) { // rows that come anew
        uint32_t slot = outdated_slot(m, slice->fill.items[k].key);
        if (slot != DP_NO_SLOT) {
            assert_int_equal(slice->fill.items[k].slot, slot);
            eviction_model_use(m, slot, pc->iteration);
        }
    }
    for (uint32_t k = 0; k < slice->fill.count; k++) {
        uint32_t slot = slice->fill.items[k].slot;
        if (m->slots[slot].occupied && m->slots[slot].used == pc->iteration)
            continue;
        if (m->occupied == m->slot_count) {
            assert_int_equal(slot, eviction_model_victim(m, pc->iteration));
            replayed += !m->slots[slot].outdated;
            eviction_model_free(m, slot);
        }
        assert_false(m->slots[slot].occupied);
        eviction_model_use(m, slot, pc->iteration);
        m->slots[slot].key = slice->fill.items[k].key;
        m->slots[slot].bytes =
            dp_row_bytes(&pc->config.layout, rt_key_field(m->slots[slot].key), true);
    }
    for (uint32_t k = 0; k < slice->after.count; k++)
        eviction_model_outdate(m, slice->after.items[k].slot);
    assert_int_equal(evictions, replayed);
    return evictions;
}

static void evictions_follow_the_rule(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 24; i++) {
        planner_shape shape = {.seed = i,
                               .worker_count = 1 + i % 4,
                               .lookahead = i < 12 ? 0 : 1 + i % 3 * 2,
                               .sample_count_max = 12,
                               .field_count = 4,
                               .ids_per_field = 60,
                               .bag_max = 1 + i % 2,
                               .zipf = 0.8,
                               .cache = i % 5 ? CACHE_MIDDLE : CACHE_SMALLEST,
                               .eviction = (rt_eviction_kind)(i / 4 % 3)};
        eviction_model models[4];
        uint32_t evictions = 0;
        planner_case pc;
        planner_case_init(&pc, &shape);
        for (uint32_t j = 0; j < shape.worker_count; j++)
            eviction_model_init(&models[j], shape.eviction, pc.config.slot_count[j]);
        for (uint32_t j = 0; j < shape.worker_count; j++)
            models[j].by_bytes = true; // the rows of planner_case differ in size
        for (uint32_t t = 0; t < 150; t++) {
            planner_case_look_up(&pc, t % 4 ? 12 : 1 + rt_random_below(&pc.random, 12));
            planner_case_commit(&pc);
            for (uint32_t j = 0; j < shape.worker_count; j++)
                evictions += replay_evictions(&pc, &pc.plan->slices[j], &models[j]);
        }
        assert_true(evictions > 300);
        for (uint32_t j = 0; j < shape.worker_count; j++)
            eviction_model_fini(&models[j]);
        planner_case_fini(&pc);
    }
}

// ---- set-up -------------------------------------------------------------------------------------

static void a_small_cache_is_refused(void **state)
{
    (void)state;
    dp_planner_config config = {.worker_count = 3,
                                .sample_count_max = 10, // 4, 3 and 3
                                .keys_per_sample_max = 5,
                                .slot_count = {20, 20, 20},
                                .layout.field_count = 5,
                                .rates.links = {{1e6, 1e6}, {1e6, 1e6}, {1e6, 1e6}}};
    rt_error error = {0};
    dp_planner *planner = NULL;
    assert_int_equal(dp_planner_create(&config, &planner, &error), RT_OK);
    dp_planner_destroy(planner);
    planner = NULL;
    config.slot_count[2] = 19;
    assert_int_equal(dp_planner_create(&config, &planner, &error), RT_CONFIG);
    assert_null(planner);
    assert_non_null(strstr(error.text, "worker 2"));
    assert_non_null(strstr(error.text, "20"));
    config.slot_count[2] = DP_SLOTS_MAX;
    assert_int_equal(dp_planner_create(&config, &planner, &error), RT_CONFIG);
    assert_non_null(strstr(error.text, "at most"));
}

// ---- input records ------------------------------------------------------------------------------

// "In force from the next look-up on": a record between look-up and commit changes nothing.
static void records_wait_for_the_next_look_up(void **state)
{
    (void)state;
    planner_shape shape = {.seed = 3,
                           .worker_count = 4,
                           .sample_count_max = 40,
                           .field_count = 3,
                           .ids_per_field = 50,
                           .bag_max = 1,
                           .zipf = 0.8,
                           .dispatch = {.policy = RT_POLICY_ESD, .alpha = 0}};
    planner_case early, late;
    planner_case_init(&early, &shape);
    planner_case_init(&late, &shape);
    uint32_t told = 0;
    for (uint32_t t = 0; t < 30; t++) {
        bool record = t % 3 == 0;
        dp_link link = {1e7 * (t + 1), 3e7 * (t + 1)};
        planner_case_look_up(&early, 40);
        if (record) {
            dp_planner_set_alpha(early.planner, t % 2 ? 1 : 0);
            dp_planner_set_link(early.planner, t % 4, link);
        }
        planner_case_commit(&early);
        planner_case_look_up(&late, 40);
        planner_case_commit(&late);
        if (record) {
            dp_planner_set_alpha(late.planner, t % 2 ? 1 : 0);
            dp_planner_set_link(late.planner, t % 4, link);
            told++;
        }
        assert_int_equal(dp_plan_fingerprint(early.plan), dp_plan_fingerprint(late.plan));
    }
    assert_int_equal(told, 10);
    planner_case_fini(&early);
    planner_case_fini(&late);
}

// Steps are full batches that the samples make, rounded up: the first sample belongs to the first,
// however large they are.
static void a_sample_of_a_huge_batch_is_in_a_step(void **state)
{
    (void)state;
    const planner_shape shape = {.seed = 1,
                                 .worker_count = 1,
                                 .sample_count_max = 1u << 21,
                                 .field_count = 1,
                                 .ids_per_field = 100,
                                 .bag_max = 1,
                                 .cache = CACHE_SMALLEST,
                                 .dispatch = {.policy = RT_POLICY_RANDOM}};
    planner_case pc;
    planner_case_init(&pc, &shape);
    for (uint32_t t = 0; t < 2; t++) {
        planner_case_look_up(&pc, 1);
        planner_case_commit(&pc);
        assert_int_equal(pc.plan->step, 1);
    }
    planner_case_fini(&pc);
}

TEST_MAIN(TEST(one_worker), TEST(two_workers), TEST(three_workers), TEST(four_workers),
          TEST(seven_workers), TEST(eight_workers), TEST(sixty_four_workers), TEST(views),
          TEST(full_synchronisation), TEST(unequal_micro_batches), TEST(participants_change),
          TEST(fewer_samples_than_workers), TEST(a_long_run), TEST(rows_are_handed_over),
          TEST(trainers_sum), TEST(links_say_who_sums), TEST(keys_at_the_edges),
          TEST(evictions_follow_the_rule), TEST(a_small_cache_is_refused),
          TEST(records_wait_for_the_next_look_up), TEST(a_sample_of_a_huge_batch_is_in_a_step))
