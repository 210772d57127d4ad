// Training with any plan gives the model that a plain loop gives.
//
// The reference is a dictionary of rows, one model and an optimizer: no planner, no executor, no
// PS. One worker with any cache does the same arithmetic in the same order, so it gives the same
// bits. Several workers add the same gradients in another order; so do different plans. Different
// schedules of one plan do not: sums are in worker order, so they give the same bits.
#include "runtime/config/rt_models.h"
#include "runtime/config/rt_optimizers.h"
#include "runtime/config/rt_policies.h"
#include "tests/support/crossed.h"
#include "tests/support/test.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/rt_hash.h"
#include "tests/support/reference.h"

// ---- comparison ------------------------------------------------------------------------------

// A weight moves by sums of S = N gradients (of a row: at most as many), each made in two orders
// that differ by (S - 1) u of the magnitudes added, u = 2^-24 (Higham, Accuracy and Stability,
// section 4.2). To first order the errors of all iterations add up to that share of the path the
// weight has gone. PATH bounds that path (and how gradients change with weights): steps of at most
// the learning rate 0.05 in 50 iterations, in changing directions.
#define UNIT 0x1p-24
#define PATH 1
#define BOUND_MAX 1e-4

static double error_bound(const fabric_shape *shape)
{
    double summands = shape->worker_count * shape->samples_per_worker;
    return fmin(summands * UNIT * PATH, BOUND_MAX);
}

// Largest difference relative to max(|want|, floor).
static double difference(const float *got, const float *want, size_t count, double floor)
{
    double worst = 0;
    for (size_t i = 0; i < count; i++) {
        double error = fabs((double)got[i] - want[i]) / fmax(fabs((double)want[i]), floor);
        worst = error > worst || isnan(error) ? error : worst;
        if (isnan(error))
            return INFINITY;
    }
    return worst;
}

static double worst_seen;

static void compare(const reference *r, const fabric_result *result, const char *what)
{
    uint32_t dense_count;
    const float *dense = ew_model_dense(r->model, EW_VALUES, &dense_count);
    size_t row_count = (size_t)r->plan->key_count * r->row_floats;
    assert_int_equal(result->row_floats, r->row_floats);
    assert_int_equal(result->dense_count, dense_count);
    if (r->plan->shape.worker_count == 1) {
        assert_memory_equal(result->rows, r->rows, row_count * sizeof(float));
        assert_memory_equal(result->dense, dense, dense_count * sizeof(float));
        return;
    }
    double bound = error_bound(&r->plan->shape);
    double of_rows = difference(result->rows, r->rows, row_count, 1);
    double of_dense = difference(result->dense, dense, dense_count, 1);
    worst_seen = fmax(worst_seen, fmax(of_rows, of_dense) / bound);
    if (of_rows > bound || of_dense > bound)
        fail_msg("%s: rows differ by %.3g, dense weights by %.3g, allowed is %.3g", what, of_rows,
                 of_dense, bound);
}

static void assert_same(const fabric_result *a, const fabric_result *b)
{
    assert_memory_equal(a->rows, b->rows, (size_t)a->key_count * a->row_floats * sizeof(float));
    assert_memory_equal(a->dense, b->dense, a->dense_count * sizeof(float));
    assert_true(a->loss_sum == b->loss_sum);
}

// ---- runs ------------------------------------------------------------------------------------

static fabric_schedule random_schedule(rt_random *random)
{
    static const uint32_t message_bytes[] = {1, 200, 1000, 1 << 18}, queues[] = {0, 0, 1, 3};
    return (fabric_schedule){.seed = rt_random_u64(random),
                             .run_ahead = rt_random_below(random, 5),
                             .push_credits = 1 + rt_random_below(random, 4),
                             .message_bytes = message_bytes[rt_random_below(random, 4)],
                             .queue_max = queues[rt_random_below(random, 4)]};
}

static void describe(const fabric_shape *s, char text[300])
{
    snprintf(text, 300,
             "seed %" PRIu64 ", %u workers, %u shards, policy %d alpha %g, cache %d, eviction %d, "
             "lookahead %u, first touch %d, full sync %d, hand over %d, reduce %d, "
             "no re-use %d, bags %u, row optimizer %d",
             s->seed, s->worker_count, s->shard_count, s->dispatch.policy, s->dispatch.alpha,
             s->cache, s->eviction, s->lookahead, s->dispatch.first_touch, s->dispatch.full_sync,
             s->dispatch.hand_over, s->dispatch.reduce, s->consistency.bounded, s->bag_max,
             s->rows.kind);
}

static void check_shape(const fabric_shape *shape, uint32_t schedules)
{
    fabric_plan plan;
    reference r;
    fabric_result first = {0};
    rt_random random = {rt_mix(shape->seed)};
    char what[300];
    describe(shape, what);
    printf("%s\n", what); // shown when the case fails
    fabric_plan_init(&plan, shape);
    reference_create(&r, &plan);
    for (uint32_t t = 1; t <= shape->iterations; t++) {
        const rt_batch *batch = &plan.batches[t - 1];
        if (plan.offered && !shape->shares)
            reference_admit(&r, &plan.offered[t - 1], batch);
        reference_step(&r, batch, shape->shares ? &plan.offered[t - 1] : batch, t);
        reference_sweep(&r, plan.swept[t - 1]);
    }
    for (uint32_t i = 0; i < schedules; i++) {
        fabric_result result;
        fabric_schedule schedule = random_schedule(&random);
        fabric_run(&plan, &schedule, &result);
        if (i == 0) {
            compare(&r, &result, what);
            first = result;
        } else {
            assert_same(&first, &result);
            fabric_result_fini(&result);
        }
    }
    fabric_result_fini(&first);
    reference_destroy(&r);
    fabric_plan_fini(&plan);
}

// Every policy; a new one is a line here.
static const struct {
    rt_policy_kind policy;
    double alpha;
    bool full_sync, hand_over, reduce;
    bool no_reuse;                             // consistency.staleness 0
    uint32_t micro_batch_min, micro_batch_max; // of 8
    uint32_t tables;
    uint32_t hot_ids;
} policies[] = {
    {.policy = RT_POLICY_RANDOM},
    {.policy = RT_POLICY_LAIA},
    {.policy = RT_POLICY_LAIA, .full_sync = true},
    {.policy = RT_POLICY_LAIA, .tables = 5},
    {.policy = RT_POLICY_ESD, .alpha = 0},
    {.policy = RT_POLICY_ESD, .alpha = 0.5},
    {.policy = RT_POLICY_ESD, .alpha = 1},
    {.policy = RT_POLICY_MAKESPAN},
    {.policy = RT_POLICY_MAKESPAN, .micro_batch_min = 1, .micro_batch_max = 20},
    {.policy = RT_POLICY_MAKESPAN, .micro_batch_min = 2, .micro_batch_max = 12},
    {.policy = RT_POLICY_RANDOM, .hand_over = true},
    {.policy = RT_POLICY_LAIA, .hand_over = true},
    {.policy = RT_POLICY_MAKESPAN, .hand_over = true, .micro_batch_min = 1, .micro_batch_max = 20},
    {.policy = RT_POLICY_RANDOM, .no_reuse = true},
    {.policy = RT_POLICY_ESD, .alpha = 1, .no_reuse = true},
    {.policy = RT_POLICY_MAKESPAN, .no_reuse = true, .micro_batch_min = 2, .micro_batch_max = 12},
    {.policy = RT_POLICY_RANDOM, .reduce = true},
    {.policy = RT_POLICY_ESD, .alpha = 1, .hand_over = true, .reduce = true},
    {.policy = RT_POLICY_MAKESPAN,
     .hand_over = true,
     .reduce = true,
     .micro_batch_min = 1,
     .micro_batch_max = 20},
    {.policy = RT_POLICY_FAE, .hot_ids = 4},
    {.policy = RT_POLICY_FAE, .hot_ids = 60},
};

#define XX(kind, name, traits, help) RT_OPTIMIZER_##kind,
static const rt_optimizer_kind row_optimizers[] = {RT_OPTIMIZER_MAP(XX, RT_CHOICE_NONE)};
#undef XX

// Gradients are Lipschitz in the weights only while divisors stay away from 0: hence the epsilon
// and the initial accumulators.
static rt_optimizer_config optimizer(rt_optimizer_kind kind)
{
    return (rt_optimizer_config){.kind = kind,
                                 .learning_rate = 0.05f,
                                 .epsilon = 1e-2f,
                                 .initial_accumulator = 0.1f,
                                 .momentum = 0.9f,
                                 .beta1 = 0.9f,
                                 .beta2 = 0.99f,
                                 .l1 = 0,
                                 .l2 = 0.01f,
                                 .beta = 1};
}

static fabric_shape small_shape(uint64_t seed)
{
    return (fabric_shape){.seed = seed,
                          .worker_count = 4,
                          .shard_count = 2,
                          .samples_per_worker = 8,
                          .iterations = 50,
                          .short_every = 5,
                          .last_samples = 5,
                          .field_count = 4,
                          .ids_per_field = 60,
                          .bag_max = 1,
                          .dense_count = 3,
                          .zipf = 1.0,
                          .model = {.kind = RT_MODEL_WDL,
                                    .embedding_dim = 8,
                                    .deep_input = RT_DEEP_ALL,
                                    .mlp_layer_count = 2,
                                    .mlp = {12, 6},
                                    .init_scale = 0.1,
                                    .base_rate_auto = true},
                          .rows = optimizer(RT_OPTIMIZER_ADAGRAD),
                          .dense = optimizer(RT_OPTIMIZER_ADAGRAD)};
}

static void set_policy(fabric_shape *shape, size_t index)
{
    uint32_t m = shape->samples_per_worker, n = shape->worker_count;
    shape->dispatch.policy = policies[index].policy;
    shape->dispatch.alpha = policies[index].alpha;
    shape->dispatch.full_sync = policies[index].full_sync;
    shape->dispatch.hand_over = policies[index].hand_over;
    shape->dispatch.reduce = policies[index].reduce;
    shape->consistency = (rt_consistency_config){.bounded = policies[index].no_reuse};
    shape->dispatch.micro_batch_min = policies[index].micro_batch_min * m / 8;
    shape->dispatch.micro_batch_max =
        (uint32_t)rt_min_u64(policies[index].micro_batch_max * m / 8, (uint64_t)m * n);
    shape->dispatch.search_evaluations = 500;
    shape->dispatch.tables = policies[index].tables;
    shape->hot_ids = policies[index].hot_ids;
}

// All that is not one of a case's loops, at random.
static void draw_rest(fabric_shape *shape, rt_random *random)
{
    shape->shard_count = 1u << rt_random_below(random, 3);
    shape->bag_max = rt_random_below(random, 3) ? 1 : 3;
    shape->model.pooling = rt_random_below(random, 2) ? RT_POOL_MEAN : RT_POOL_SUM;
    shape->dispatch.first_touch = (rt_first_touch)rt_random_below(random, 2);
    shape->rows.kind = row_optimizers[rt_random_below(random, RT_COUNT_OF(row_optimizers))];
    shape->last_samples =
        rt_random_below(random, 2)
            ? 1 + rt_random_below(random, shape->worker_count * shape->samples_per_worker)
            : 0;
    shape->zipf = rt_random_below(random, 3) * 0.6;
    shape->lookahead = rt_random_below(random, 2) ? rt_random_below(random, 6) : 0;
    shape->dispatch.window = shape->lookahead + 1;
    shape->lone_batches = rt_random_below(random, 3);
}

// Every policy with every number of workers, cache and eviction; the rest at random. With `pairs` 3
// each policy meets every cache and every eviction once, and three policies all pairs of them: with
// many workers a case takes long, and what a cache does with an eviction fewer workers have shown.
static void every_policy(uint32_t workers, uint32_t pairs)
{
    rt_random random = {workers};
    uint64_t seed = workers * 1000;
    for (size_t p = 0; p < RT_COUNT_OF(policies); p++) {
        for (uint32_t i = 0; i < pairs; i++) {
            fabric_shape shape = small_shape(++seed);
            shape.worker_count = workers;
            shape.cache = (cache_size)(i % 3);
            shape.eviction = (rt_eviction_kind)(pairs == 3 ? (i + p) % 3 : i / 3);
            set_policy(&shape, p);
            draw_rest(&shape, &random);
            check_shape(&shape, 2);
        }
    }
    printf("largest error is %.3g of what is allowed\n", worst_seen);
}

static void one_worker_gives_the_same_bits(void **state)
{
    (void)state;
    every_policy(1, 9);
}

static void two_workers(void **state)
{
    (void)state;
    every_policy(2, 9);
}

static void four_workers(void **state)
{
    (void)state;
    every_policy(4, 9);
}

static void seven_workers(void **state)
{
    (void)state;
    every_policy(7, 3);
}

// Every row optimizer with every shard count, first touch and kind of bag.
static void every_optimizer(void **state)
{
    (void)state;
    rt_random random = {5};
    for (uint32_t i = 0; i < RT_COUNT_OF(row_optimizers) * 3 * 2 * 2; i++) {
        fabric_shape shape = small_shape(50000 + i);
        shape.worker_count = 3;
        shape.cache = (cache_size)rt_random_below(&random, 3);
        shape.eviction = (rt_eviction_kind)rt_random_below(&random, 3);
        set_policy(&shape, rt_random_below(&random, RT_COUNT_OF(policies)));
        shape.rows = optimizer(row_optimizers[i % 5]);
        shape.shard_count = 1u << i / 5 % 3;
        shape.dispatch.first_touch = (rt_first_touch)(i / 15 % 2);
        shape.bag_max = i / 30 ? 3 : 1;
        check_shape(&shape, 2);
    }
}

// One plan, many orders of events: the same bits.
static void schedules_do_not_matter(void **state)
{
    (void)state;
    for (size_t p = 0; p < RT_COUNT_OF(policies); p++) {
        fabric_shape shape = small_shape(60000 + p);
        shape.iterations = 20;
        shape.cache = p % 2 ? CACHE_MIDDLE : CACHE_SMALLEST;
        shape.dispatch.first_touch = (rt_first_touch)(p % 2);
        set_policy(&shape, p);
        check_shape(&shape, 24);
    }
}

static void run_once(const fabric_shape *shape, const fabric_schedule *schedule,
                     fabric_result *result)
{
    fabric_plan plan;
    fabric_plan_init(&plan, shape);
    fabric_run(&plan, schedule, result);
    fabric_plan_fini(&plan);
}

// A seed stands for a whole run: samples, plan, schedule, result.
static void a_seed_repeats_a_run(void **state)
{
    (void)state;
    for (size_t p = 0; p < RT_COUNT_OF(policies); p++) {
        fabric_result results[2];
        fabric_shape shape = small_shape(70000 + p);
        shape.cache = CACHE_MIDDLE;
        set_policy(&shape, p);
        for (uint32_t i = 0; i < 2; i++) {
            fabric_schedule schedule = {
                .seed = 3, .run_ahead = 2, .push_credits = 2, .message_bytes = 500};
            run_once(&shape, &schedule, &results[i]);
        }
        assert_same(&results[0], &results[1]);
        assert_int_equal(results[0].turns, results[1].turns);
        fabric_result_fini(&results[0]);
        fabric_result_fini(&results[1]);
    }
}

// A row that goes straight from one worker to another is the row that it would be by way of the PS:
// placements are the same, and so is every bit.
static void rows_that_are_handed_over(void **state)
{
    (void)state;
    rt_random random = {9};
    uint64_t handed = 0;
    for (size_t p = 0; p < RT_COUNT_OF(policies); p++) {
        fabric_shape shape = small_shape(85000 + p);
        fabric_result results[2];
        shape.worker_count = 2 + p % 4;
        set_policy(&shape, p);
        if (shape.consistency.bounded || shape.dispatch.reduce || shape.hot_ids)
            continue;
        draw_rest(&shape, &random);
        shape.cache = (cache_size)(p % 3);
        shape.change_every = p % 2 ? 0 : 3;
        shape.bad_every = p % 3 ? 0 : 5;
        for (uint32_t i = 0; i < 2; i++) {
            const fabric_schedule schedule = random_schedule(&random);
            shape.dispatch.hand_over = i;
            run_once(&shape, &schedule, &results[i]);
        }
        assert_same(&results[0], &results[1]);
        assert_int_equal(results[0].handed, 0);
        handed += results[1].handed;
        fabric_result_fini(&results[0]);
        fabric_result_fini(&results[1]);
    }
    assert_true(handed > 1000);
}

// Of one plan of everything but who sums: a trainer's sum is that of the PS, and so is its step, in
// batches that count and in those that do not. Every bit is the same.
static void sums_by_trainers(void **state)
{
    (void)state;
    rt_random random = {19};
    uint64_t gradients = 0, handed = 0;
    for (uint32_t i = 0; i < 20; i++) {
        fabric_shape shape = small_shape(86000 + i);
        fabric_result results[4];
        shape.worker_count = 2 + i % 4;
        set_policy(&shape, 0); // no other places samples alike whatever the caches have
        draw_rest(&shape, &random);
        shape.rows = optimizer(shape.rows.kind);
        shape.cache = (cache_size)(i % 3);
        shape.change_every = i % 2 ? 0 : 3;
        shape.bad_every = i % 3 ? 0 : 5;
        for (uint32_t k = 0; k < 4; k++) {
            const fabric_schedule schedule = random_schedule(&random);
            shape.dispatch.reduce = k & 1;
            shape.dispatch.hand_over = k >> 1;
            run_once(&shape, &schedule, &results[k]);
            assert_same(&results[0], &results[k]);
            assert_true(results[k].gradients == 0 || k & 1);
            gradients += results[k].gradients;
            handed += k == 3 ? results[k].handed : 0;
        }
        for (uint32_t k = 0; k < 4; k++)
            fabric_result_fini(&results[k]);
    }
    printf("%" PRIu64 " gradients, %" PRIu64 " rows beside them\n", gradients, handed);
    assert_true(gradients > 10000 && handed > 1000);
}

// The schedules reach what they are for: rows that come early, parked pulls, full queues.
static void schedules_reach_the_corners(void **state)
{
    (void)state;
    fabric_plan plan;
    uint64_t early = 0, parked = 0, again = 0;
    rt_random random = {8};
    fabric_shape shape = small_shape(80000);
    set_policy(&shape, 0);
    fabric_plan_init(&plan, &shape);
    assert_true(plan.planned.evict_push && plan.planned.update_push && plan.planned.grad_push &&
                plan.planned.flush_push && plan.planned.first_touch);
    for (uint32_t i = 0; i < 8; i++) {
        fabric_result result;
        fabric_schedule schedule = random_schedule(&random);
        schedule.run_ahead = i % 5;
        schedule.queue_max = i % 3;
        fabric_run(&plan, &schedule, &result);
        early += result.early;
        parked += result.parked;
        again += result.again;
        fabric_result_fini(&result);
    }
    assert_true(early > 0 && parked > 0 && again > 0);
    fabric_plan_fini(&plan);
}

// Batches that need more chunks of dense gradients than one.
static void large_dense_part(void **state)
{
    (void)state;
    fabric_shape shape = small_shape(90000);
    shape.iterations = 4;
    shape.worker_count = 3;
    shape.model.mlp[0] = 300;
    shape.model.mlp[1] = 240;
    set_policy(&shape, 0);
    check_shape(&shape, 3);
}

// L2, clipping, warm-up and decay, by PS and workers alike: one worker gives the same bits.
static void shaped_steps(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < RT_COUNT_OF(policies) + 2; i++) {
        fabric_shape shape = small_shape(97000 + i);
        rt_optimizer_config *both[] = {&shape.rows, &shape.dense};
        shape.rows = optimizer(row_optimizers[i % RT_COUNT_OF(row_optimizers)]);
        shape.worker_count = i / RT_COUNT_OF(row_optimizers) % 2 ? 1 : 3;
        shape.cache = i % 2 ? CACHE_MIDDLE : CACHE_SMALLEST;
        set_policy(&shape, i % RT_COUNT_OF(policies));
        for (uint32_t k = 0; k < 2; k++) {
            both[k]->l2 = 0.05f;
            both[k]->clip_norm = k ? 0.2f : 0.01f;
            if (both[k]->kind == RT_OPTIMIZER_FTRL)
                continue;
            both[k]->warmup_iterations = 9;
            both[k]->decay = (rt_decay_kind)crossed(i, 1, RT_DECAY_COUNT);
            both[k]->decay_iterations = 20;
            both[k]->decay_floor = 0.1f;
        }
        check_shape(&shape, 2);
    }
}

// Who takes part changes every few iterations: who sits out has no samples, and comes back with the
// weights of the others. The model is that of synchronous training over the same batches; with bad
// batches, steps by every optimizer, clipped, and any number of shards.
static void participants_change(void **state)
{
    (void)state;
    static const rt_optimizer_kind dense[] = {
        RT_OPTIMIZER_ADAGRAD,         RT_OPTIMIZER_ADAM,     RT_OPTIMIZER_SGD, RT_OPTIMIZER_FTRL,
        RT_OPTIMIZER_ROWWISE_ADAGRAD, RT_OPTIMIZER_MOMENTUM,
    };
    _Static_assert(RT_COUNT_OF(dense) == RT_OPTIMIZER_COUNT, "one of each");
    rt_random random = {11};
    for (size_t p = 0; p < RT_COUNT_OF(policies); p++) {
        for (uint32_t i = 0; i < 6; i++) {
            fabric_shape shape = small_shape(99000 + 10 * p + i);
            shape.worker_count = 2 + i % 4;
            shape.change_every = 1 + (i + (uint32_t)p) % 4;
            shape.cache = (cache_size)(i % 3);
            shape.bad_every = i == 4 ? 3 : 0;
            set_policy(&shape, p);
            draw_rest(&shape, &random);
            shape.dense = optimizer(dense[(i + p) % RT_COUNT_OF(dense)]);
            shape.dense.clip_norm = i % 2 ? 0.2f : 0;
            check_shape(&shape, 3);
        }
    }
}

// In 16 bits and in 8, too, whatever arrives when; residuals wait with the worker that sits out.
static void participants_change_with_short_wires(void **state)
{
    (void)state;
    uint64_t alone = 0, left_out = 0;
    for (uint32_t i = 0; i < 12; i++) {
        fabric_plan plan;
        fabric_result results[2];
        rt_random random = {i + 12};
        fabric_shape shape = small_shape(99500 + i);
        shape.change_every = 1 + i % 3;
        shape.shard_count = 1 + i % 3;
        shape.dense_wire = i < 6 ? RT_CODING_BF16 : RT_CODING_INT8;
        set_policy(&shape, 9);
        fabric_plan_init(&plan, &shape);
        for (uint32_t k = 0; k < 2; k++) {
            fabric_schedule schedule = random_schedule(&random);
            fabric_run(&plan, &schedule, &results[k]);
            assert_true(results[k].fetched > 0);
        }
        assert_same(&results[0], &results[1]);
        alone += results[0].alone;
        left_out += plan.left_out;
        fabric_plan_fini(&plan);
        fabric_result_fini(&results[0]);
        fabric_result_fini(&results[1]);
    }
    assert_true(alone > 0);    // who trains alone exchanges nothing, and rounds nothing
    assert_true(left_out > 0); // who has nothing to do gets no slice
}

// Every other, or every third, batch has a loss that is not finite: nothing of it is applied, not
// even what workers with a finite loss made of their samples. Versions go on as planned.
static void bad_batches(void **state)
{
    (void)state;
    for (size_t p = 0; p < RT_COUNT_OF(policies); p++) {
        for (uint32_t i = 0; i < 6; i++) {
            fabric_shape shape = small_shape(98000 + 10 * p + i);
            shape.worker_count = i == 0 ? 1 : 4;
            shape.bad_every = 2 + i % 2;
            shape.cache = (cache_size)(i / 2);
            shape.bag_max = i % 3 ? 1 : 3;
            shape.rows = optimizer(row_optimizers[(p + i) % RT_COUNT_OF(row_optimizers)]);
            shape.rows.l2 = 0.05f; // a step with a gradient of 0 would show
            shape.dispatch.first_touch = (rt_first_touch)(i % 2);
            set_policy(&shape, p);
            check_shape(&shape, 3);
        }
    }
}

// Case i of those in which rows begin or end: workers, caches, eviction, optimizer, look-ahead.
static fabric_shape varied_shape(uint64_t seed, uint32_t i)
{
    fabric_shape shape = small_shape(seed + i);
    shape.worker_count = i % 4 ? 4 : 1;
    shape.cache = (cache_size)(i % 3);
    shape.eviction = (rt_eviction_kind)(i / 3 % RT_EVICT_COUNT);
    shape.rows.kind = row_optimizers[i % RT_COUNT_OF(row_optimizers)];
    shape.lookahead = i % 5;
    return shape;
}

// Rows end by age, by number, or by both, and start anew when their keys come back.
static void rows_end(void **state)
{
    (void)state;
    uint32_t sweeps = 0;
    for (uint32_t i = 0; i < RT_COUNT_OF(policies) * 3; i++) {
        fabric_shape shape = varied_shape(99000, i);
        fabric_plan plan;
        shape.zipf = 0.3;
        shape.ids_per_field = 200;
        shape.shard_count = 1 + i % 3;
        shape.dispatch.first_touch = (rt_first_touch)(i % 2);
        shape.ends = (dp_rows){.expire_iterations = i % 3 == 0 ? 0 : 2 + i % 9,
                               .max = i % 3 == 1 ? 0 : 150 + 10 * (i % 7)};
        set_policy(&shape, i % RT_COUNT_OF(policies));
        check_shape(&shape, 3);
        fabric_plan_init(&plan, &shape);
        for (uint32_t t = 0; t < shape.iterations; t++)
            sweeps += plan.swept[t] > 0;
        fabric_plan_fini(&plan);
    }
    assert_true(sweeps > 100);
}

// Rows begin when their keys were seen often enough: until then fields are empty, in samples, in
// micro-batches, and at first in whole batches. Some rows end, too.
static void rows_begin(void **state)
{
    (void)state;
    uint64_t offered = 0, planned = 0;
    for (uint32_t i = 0; i < RT_COUNT_OF(policies) * 2; i++) {
        fabric_shape shape = varied_shape(87000, i);
        fabric_plan plan;
        shape.zipf = 0.6;
        shape.ids_per_field = 150;
        shape.bag_max = 1 + i % 3;
        shape.model.pooling = (rt_pooling)(i % 2);
        shape.change_every = i % 7 == 3 ? 5 : 0;
        shape.ends = (dp_rows){.admit = 2 + i * i % 11,
                               .admit_bytes = 1 << 20,
                               .expire_iterations = i % 3 == 0 ? 6 : 0};
        set_policy(&shape, i % RT_COUNT_OF(policies));
        check_shape(&shape, 2);
        fabric_plan_init(&plan, &shape);
        for (uint32_t t = 0; t < shape.iterations; t++) {
            offered += plan.offered[t].key_count;
            planned += plan.batches[t].key_count;
        }
        fabric_plan_fini(&plan);
    }
    assert_true(planned > offered / 5 && planned < offered / 5 * 4);
}

static void draw_graph(fabric_shape *shape, uint32_t class_count)
{
    shape->field_count = 5;
    shape->dense_count = 0;
    shape->class_count = class_count; // as many as labels have values
    shape->model.fan_out = 2;
    shape->model.pooling = RT_POOL_MEAN;
    shape->model.mlp_layer_count = 2;
    shape->model.mlp[0] = 6;
    shape->model.mlp[1] = 5;
}

static void every_model_with(uint32_t more_labels)
{
    for (rt_model_kind kind = 0; kind < RT_MODEL_COUNT; kind++) {
        fabric_shape shape = small_shape(95000 + (uint64_t)kind);
        shape.iterations = 20;
        shape.model.kind = kind;
        shape.model.mlp_bottom_layer_count = 1;
        shape.model.mlp_bottom[0] = 7;
        shape.model.cross_layer_count = 2;
        shape.cache = CACHE_MIDDLE;
        shape.is_graph = kind == RT_MODEL_GRAPHSAGE;
        shape.shares = kind == RT_MODEL_DIN || shape.is_graph;
        shape.bag_max = shape.shares ? 3 : 1;
        shape.model.attention_layer_count = 1;
        shape.model.attention[0] = 5;
        if (kind == RT_MODEL_NCF) {
            shape.field_count = 2;
            shape.dense_count = 0;
        }
        if (shape.is_graph)
            draw_graph(&shape, more_labels == 0 ? 2 : 0);
        shape.more_labels = more_labels;
        shape.change_every = more_labels ? 3 : 0; // the shards have the dense weights
        set_policy(&shape, 9);
        check_shape(&shape, 2);
        shape.worker_count = 1; // the same bits
        if (more_labels)
            check_shape(&shape, 1);
    }
}

// A row that two fields of a batch look up, often in one sample: every policy, every model.
static void shared_rows(void **state)
{
    (void)state;
    rt_random random = {17};
    for (size_t i = 0; i < 2 * RT_COUNT_OF(policies); i++) {
        fabric_shape shape = small_shape(97000 + i);
        shape.shares = true;
        shape.iterations = 20;
        shape.ids_per_field = 24;
        shape.cache = (cache_size)(i % 3);
        shape.model.kind = i % 4 == 3 ? RT_MODEL_DFM : RT_MODEL_WDL;
        set_policy(&shape, i % RT_COUNT_OF(policies));
        draw_rest(&shape, &random);
        check_shape(&shape, 2);
        shape.worker_count = 1; // the same bits
        shape.last_samples %= shape.samples_per_worker;
        set_policy(&shape, i % RT_COUNT_OF(policies));
        check_shape(&shape, 1);
    }
}

static void every_model(void **state)
{
    (void)state;
    every_model_with(0);
}

static void every_model_with_several_labels(void **state)
{
    (void)state;
    every_model_with(2);
}

TEST_MAIN(TEST_SLOW(one_worker_gives_the_same_bits, 300), TEST_SLOW(two_workers, 300),
          TEST_SLOW(four_workers, 600), TEST_SLOW(seven_workers, 600),
          TEST_SLOW(every_optimizer, 300), TEST_SLOW(schedules_do_not_matter, 300),
          TEST(a_seed_repeats_a_run), TEST(rows_that_are_handed_over), TEST(sums_by_trainers),
          TEST(schedules_reach_the_corners), TEST(large_dense_part), TEST(shaped_steps),
          TEST_SLOW(bad_batches, 300), TEST_SLOW(rows_end, 300), TEST_SLOW(rows_begin, 300),
          TEST_SLOW(participants_change, 300), TEST(participants_change_with_short_wires),
          TEST(shared_rows), TEST(every_model), TEST(every_model_with_several_labels))
