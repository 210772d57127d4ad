// Rows that travel in 16 and in 8 bits give the model that the rule in docs/PROTOCOL.md gives: the
// slices of the plan carried out one after the other on arrays, by loops; no executor, no PS, no
// messages. It rounds and adds the same floats in the same order, so it gives the same bits, under
// every order of events. And that model is close to the one of rows in 32 bits, by a stated bound.
#include "tests/support/test.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/config/rt_optimizers.h"
#include "runtime/config/rt_policies.h"
#include "tests/support/fabric_case.h"

typedef struct {
    float *row, *base; // as it is, as it came
    uint32_t key;      // number of it
    uint32_t version;  // that it came in
} copy;

typedef struct {
    const fabric_plan *plan;
    ew_model *model;
    rt_coding coding;
    uint32_t n, dim, floats;
    float *rows;        // of the server: key_count x floats
    uint32_t *versions; // of these
    copy *copies[RT_WORKERS_MAX];
    float *slabs[RT_WORKERS_MAX]; // of the copies' rows
    float *gradients;             // n x row_count_max x dim
    float *dense, *sums;          // sum of dense gradients; key_count x dim
    float *first;                 // likewise: what the first of several trainers reads
    uint64_t *summed;             // by key: workers of which sums has the gradients
    uint32_t row_count_max;
    uint64_t wholes, changes, replicas, ended, taken_in;
} rule;

static void rounded(const rule *r, float *values)
{
    fabric_case_round(r->coding, values, r->dim);
}

// ---- the rule --------------------------------------------------------------------------------

static uint32_t find_key(const fabric_plan *plan, uint64_t key)
{
    uint32_t at = 0;
    while (plan->keys[at] != key)
        at++;
    return at;
}

static float *row_of(const rule *r, uint32_t key)
{
    return r->rows + (size_t)key * r->floats;
}

static void start_row(const rule *r, uint32_t key, float *row)
{
    const fabric_shape *shape = &r->plan->shape;
    rt_row_init(r->plan->keys[key], shape->seed, (float)shape->model.init_scale, r->dim, row);
    rt_optimizer_init_state(&shape->rows, r->dim, row + r->dim);
}

static bool is_given_up(const dp_slice_view *v, uint32_t slot)
{
    for (uint32_t i = 0; i < v->counts.drop_count; i++)
        if (v->drop_slots[i] == slot)
            return true;
    return false;
}

// In 32 bits every copy goes whole. Where rows are rounded, a copy that stays goes whole and becomes
// what others get of it; so does one whose row has ended at the PS meanwhile, and one that goes to a
// shard on the worker's own box. Any other sends its change. (A row plus its change is not always the
// new row: the last bits of the change are lost where the new value is small.)
static void push(rule *r, uint32_t worker, const dp_slice_view *v, uint32_t i)
{
    copy *c = &r->copies[worker][v->push_slots[i]];
    float *row = row_of(r, c->key), change[64];
    const uint8_t reason = v->push_reasons[i] & 0x7f;
    const bool stays = reason != DP_REASON_EVICT &&
                       (r->plan->shape.dispatch.full_sync || !is_given_up(v, v->push_slots[i]));
    const bool has_ended = r->versions[c->key] != c->version;
    const bool at_hand = v->push_homes && v->push_homes[i] == worker;
    assert_int_equal(v->push_reasons[i] >> 7, r->coding && (stays || has_ended || at_hand));
    r->ended += has_ended;
    if (!r->coding || stays || has_ended || at_hand) {
        memcpy(row, c->row, r->floats * sizeof *row);
        rounded(r, c->row);
        memcpy(c->base, c->row, r->dim * sizeof *row);
        r->wholes++;
    } else {
        for (uint32_t k = 0; k < r->dim; k++)
            change[k] = c->row[k] - c->base[k];
        rounded(r, change);
        for (uint32_t k = 0; k < r->dim; k++)
            row[k] += change[k];
        memcpy(row + r->dim, c->row + r->dim, (r->floats - r->dim) * sizeof *row);
        r->changes++;
    }
    r->versions[c->key] = c->version = v->push_versions[i];
}

// It was pulled whole, and goes as it came to the shard on the worker's own box.
static void take_in(rule *r, uint32_t worker, const dp_slice_view *v, uint32_t i)
{
    copy *c = &r->copies[worker][v->push_slots[i]];
    assert_int_equal(v->push_homes[i], worker);
    assert_int_equal(v->push_reasons[i] >> 7, r->coding != RT_CODING_FP32);
    assert_int_equal(v->push_versions[i], r->versions[c->key]);
    assert_memory_equal(c->row, row_of(r, c->key), r->floats * sizeof *c->row);
    rounded(r, c->row);
    memcpy(c->base, c->row, r->dim * sizeof *c->row);
    r->taken_in++;
}

static void pull(rule *r, uint32_t worker, const dp_slice_view *v, uint32_t i)
{
    copy *c = &r->copies[worker][v->pull_slots[i]];
    c->key = find_key(r->plan, v->pull_keys[i]);
    assert_int_equal(r->versions[c->key], v->pull_versions[i]);
    c->version = v->pull_versions[i];
    memcpy(c->row, row_of(r, c->key),
           (v->pull_flags[i] & DP_OP_STATE ? r->floats : r->dim) * sizeof(float));
    if (v->pull_versions[i] && !(v->pull_flags[i] & DP_OP_WHOLE))
        rounded(r, c->row);
    memcpy(c->base, c->row, r->dim * sizeof(float));
}

static void init(rule *r, uint32_t worker, const dp_slice_view *v, uint32_t i)
{
    copy *c = &r->copies[worker][v->init_slots[i]];
    c->key = find_key(r->plan, v->init_keys[i]);
    start_row(r, c->key, c->row);
    c->version = 0;
    memcpy(c->base, c->row, r->dim * sizeof(float));
}

// False: the loss is not finite.
static bool compute(rule *r, uint32_t worker, const dp_slice_view *v, bool is_first)
{
    const rt_wire_slice *c = &v->counts;
    ew_step_result step;
    rt_error error = {0};
    uint32_t count;
    ew_micro_batch own = {.sample_count = c->sample_count,
                          .lookup_count = c->lookup_count,
                          .row_count = c->row_count,
                          .labels = v->labels,
                          .dense = v->dense,
                          .lookup_rows = v->lookup_rows,
                          .bag_offsets = v->bag_offsets,
                          .row_slots = v->row_slots,
                          .slab = r->slabs[worker],
                          .row_stride = r->floats,
                          .scale = 1.0f / (float)c->batch_samples,
                          .log_odds = is_first ? c->log_odds : 0}; // one model for all
    if (ew_model_step(r->model, &own, NULL, NULL, &step, &error))
        fail_msg("%s", error.text);
    memcpy(r->gradients + (size_t)worker * r->row_count_max * r->dim, step.row_gradients,
           (size_t)c->row_count * r->dim * sizeof(float));
    const float *dense = ew_model_dense(r->model, EW_GRADIENTS, &count);
    for (uint32_t i = 0; i < count; i++)
        r->dense[i] = is_first ? dense[i] : r->dense[i] + dense[i];
    return isfinite(step.loss_sum) && !(c->flags & DP_SLICE_UNTRAINED);
}

// Rows of one trainer are stepped where they are; gradients of several are rounded, then added.
static void learn(rule *r, uint32_t worker, const dp_slice_view *v, bool applies)
{
    const rt_optimizer_config *optimizer = &r->plan->shape.rows;
    for (uint32_t i = 0; i < v->counts.row_count; i++) {
        copy *c = &r->copies[worker][v->row_slots[i]];
        float *g = r->gradients + ((size_t)worker * r->row_count_max + i) * r->dim;
        float *sum = r->sums + (size_t)c->key * r->dim;
        if (v->row_modes[i] == DP_MODE_OWN) {
            if (applies)
                rt_optimizer_step(optimizer, r->dim, dp_slice_place(&v->counts), c->row,
                                  c->row + r->dim, g);
            continue;
        }
        // Of one version all hold the same bits.
        float *first = r->first + (size_t)c->key * r->dim;
        if (!r->summed[c->key])
            memcpy(first, c->row, r->dim * sizeof *g);
        assert_memory_equal(first, c->row, r->dim * sizeof *g);
        r->replicas += r->summed[c->key] != 0;
        rounded(r, g);
        for (uint32_t k = 0; k < r->dim; k++)
            sum[k] = r->summed[c->key] ? sum[k] + g[k] : g[k];
        r->summed[c->key] |= rt_bit(worker);
    }
}

static void step_sums(rule *r, uint32_t iteration, bool applies)
{
    for (uint32_t k = 0; k < r->plan->key_count; k++) {
        if (!r->summed[k])
            continue;
        if (applies)
            rt_optimizer_step(&r->plan->shape.rows, r->dim, fabric_place(r->plan, iteration),
                              row_of(r, k), row_of(r, k) + r->dim, r->sums + (size_t)k * r->dim);
        r->versions[k] = iteration;
        r->summed[k] = 0;
    }
}

static void carry_out(rule *r, uint32_t slice)
{
    dp_slice_view views[RT_WORKERS_MAX];
    rt_error error = {0};
    bool applies = true, is_first = true;
    uint32_t iteration = 0;
    for (uint32_t w = 0; w < r->n; w++) {
        const dp_slice_limits limits = fabric_limits(r->plan, w);
        const rt_message *message = &r->plan->slices[slice * r->n + w];
        views[w] = (dp_slice_view){0};
        if (message->data && dp_slice_decode(message, &limits, &views[w], &error))
            fail_msg("%s", error.text);
        for (uint32_t i = 0; i + views[w].counts.push_late < views[w].counts.push_count; i++)
            push(r, w, &views[w], i);
        iteration = message->data ? views[w].counts.iteration : iteration;
    }
    for (uint32_t w = 0; w < r->n; w++) {
        for (uint32_t i = 0; i < views[w].counts.pull_count; i++)
            pull(r, w, &views[w], i);
        for (uint32_t i = 0; i < views[w].counts.init_count; i++)
            init(r, w, &views[w], i);
        const rt_wire_slice *c = &views[w].counts;
        for (uint32_t i = c->push_count - c->push_late; i < c->push_count; i++)
            take_in(r, w, &views[w], i);
    }
    for (uint32_t w = 0; w < r->n && iteration; w++) {
        if (!(views[w].counts.workers >> w & 1))
            continue;
        applies = compute(r, w, &views[w], is_first) && applies;
        is_first = false;
    }
    for (uint32_t w = 0; w < r->n && iteration; w++)
        learn(r, w, &views[w], applies);
    for (uint32_t k = 0; k < r->plan->key_count; k++) {
        if (r->versions[k] >= r->plan->floors[slice])
            continue;
        start_row(r, k, row_of(r, k));
        r->versions[k] = 0;
    }
    if (!iteration)
        return;
    step_sums(r, iteration, applies);
    uint32_t count;
    float *dense = ew_model_dense(r->model, EW_GRADIENTS, &count);
    memcpy(dense, r->dense, count * sizeof *dense);
    if (applies)
        ew_model_dense_step(r->model, fabric_place(r->plan, iteration));
}

// ---- runs ------------------------------------------------------------------------------------

static void create(rule *r, const fabric_plan *plan)
{
    const fabric_shape *shape = &plan->shape;
    const ew_model_config model = fabric_model(plan, false);
    rt_error error = {0};
    uint32_t count;
    *r = (rule){.plan = plan,
                .coding = shape->row_wire,
                .n = shape->worker_count,
                .dim = shape->model.embedding_dim,
                .row_count_max = model.row_count_max};
    r->floats = r->dim + rt_optimizer_state_floats(&shape->rows, r->dim);
    r->rows = calloc((size_t)plan->key_count * r->floats, sizeof(float));
    r->versions = calloc(plan->key_count, sizeof *r->versions);
    r->gradients = calloc((size_t)r->n * r->row_count_max * r->dim, sizeof(float));
    r->sums = calloc((size_t)plan->key_count * r->dim, sizeof(float));
    r->first = calloc((size_t)plan->key_count * r->dim, sizeof(float));
    r->summed = calloc(plan->key_count, sizeof *r->summed);
    for (uint32_t k = 0; k < plan->key_count; k++)
        start_row(r, k, row_of(r, k));
    for (uint32_t w = 0; w < r->n; w++) {
        const uint32_t slots = plan->planner.slot_count[w];
        r->copies[w] = calloc(slots, sizeof *r->copies[w]);
        r->slabs[w] = calloc((size_t)slots * (r->floats + r->dim), sizeof(float));
        for (uint32_t s = 0; s < slots; s++) {
            r->copies[w][s].row = r->slabs[w] + (size_t)s * r->floats;
            r->copies[w][s].base = r->slabs[w] + (size_t)slots * r->floats + (size_t)s * r->dim;
        }
    }
    if (ew_model_create(&model, fabric_device(), &r->model, &error))
        fail_msg("%s", error.text);
    ew_model_dense(r->model, EW_GRADIENTS, &count);
    r->dense = calloc(count, sizeof(float));
}

static void destroy(rule *r)
{
    for (uint32_t w = 0; w < r->n; w++) {
        free(r->copies[w]);
        free(r->slabs[w]);
    }
    ew_model_destroy(r->model);
    void *const all[] = {r->rows,   r->versions, r->gradients, r->sums,
                         r->summed, r->dense,    r->first};
    for (size_t i = 0; i < RT_COUNT_OF(all); i++)
        free(all[i]);
}

static uint64_t wholes, changes, replicas, ended, taken_in; // of all cases: none is left out

static void check(const fabric_shape *shape, uint32_t schedules)
{
    fabric_plan plan;
    rule r;
    rt_random random = {rt_mix(shape->seed)};
    printf("seed %" PRIu64
           ": coding %d, %u workers, %u shards, policy %d, cache %d, optimizer %d\n",
           shape->seed, shape->row_wire, shape->worker_count, shape->shard_count,
           shape->dispatch.policy, shape->cache, shape->rows.kind);
    fabric_plan_init(&plan, shape);
    create(&r, &plan);
    for (uint32_t s = 0; s < plan.slice_count; s++)
        carry_out(&r, s);
    fabric_case_must_give(&plan, schedules, &random, r.rows, r.floats, r.model);
    wholes += r.wholes;
    changes += r.changes;
    replicas += r.replicas;
    ended += r.ended;
    taken_in += r.taken_in;
    destroy(&r);
    fabric_plan_fini(&plan);
}

static fabric_shape shape_of(uint64_t seed, rt_coding coding)
{
    fabric_shape shape = fabric_case_shape(seed);
    shape.row_wire = coding;
    return shape;
}

static void every_policy_gives_the_rules_bits(void **state)
{
#define XX(kind, name, traits, help) RT_OPTIMIZER_##kind,
    static const rt_optimizer_kind optimizers[] = { RT_OPTIMIZER_MAP(XX, RT_CHOICE_NONE) };
#undef XX
    rt_random random = {3};
    (void)state;
    wholes = changes = replicas = ended = 0;
    for (uint32_t i = 0; i < RT_POLICY_COUNT * 8; i++) {
        fabric_shape shape = shape_of(i + 1, i % 2 ? RT_CODING_INT8 : RT_CODING_BF16);
        shape.dispatch.policy = (rt_policy_kind)(i / 8);
        shape.worker_count = 1 + rt_random_below(&random, 6);
        shape.shard_count = 1 + rt_random_below(&random, 3);
        shape.cache = (cache_size)rt_random_below(&random, 3);
        shape.eviction = rt_random_below(&random, 2) ? RT_EVICT_LRU : RT_EVICT_EMARK;
        shape.rows.kind = optimizers[rt_random_below(&random, RT_COUNT_OF(optimizers))];
        shape.bag_max = rt_random_below(&random, 2) ? 1 : 2;
        shape.model.embedding_dim = 1 + rt_random_below(&random, 16);
        shape.dispatch.first_touch = (rt_first_touch)rt_random_below(&random, 2);
        shape.dispatch.full_sync = i % 8 == 7;
        shape.last_samples = rt_random_below(&random, 2) * 3;
        shape.bad_every = i % 8 == 5 ? 3 : 0;
        shape.change_every = i % 8 == 6 ? 3 : 0;
        shape.ends = (dp_rows){.expire_iterations = i % 8 == 4 ? 2 + i % 5 : 0};
        check(&shape, 3);
    }
    assert_true(wholes > 100 && changes > 100 && replicas > 100 && ended > 10);
}

// Rows that move from box to box, rounded or not. Some boxes have no shard, some no worker.
static void homes_that_move(void **state)
{
    static const rt_policy_kind policies[] = {RT_POLICY_RANDOM, RT_POLICY_LAIA, RT_POLICY_ESD,
                                              RT_POLICY_MAKESPAN};
    rt_random random = {5};
    (void)state;
    wholes = changes = replicas = ended = taken_in = 0;
    for (uint32_t i = 0; i < 24; i++) {
        fabric_shape shape = shape_of(900 + i, (rt_coding)(i % 3));
        shape.homes = RT_HOMES_PLANNED;
        shape.dispatch.policy = policies[i % RT_COUNT_OF(policies)];
        shape.worker_count = 2 + rt_random_below(&random, 4);
        shape.shard_count = 1 + rt_random_below(&random, 5);
        shape.cache = (cache_size)rt_random_below(&random, 3);
        shape.dispatch.full_sync = i % 8 == 7;
        shape.bad_every = i % 8 == 5 ? 3 : 0;
        shape.change_every = i % 4 == 2 ? 3 : 0;
        shape.ends = (dp_rows){.expire_iterations = i % 6 == 4 ? 2 + i % 5 : 0};
        check(&shape, 4);
    }
    printf("%" PRIu64 " whole, %" PRIu64 " changes, %" PRIu64 " replicas, %" PRIu64
           " ended, %" PRIu64 " taken in\n",
           wholes, changes, replicas, ended, taken_in);
    assert_true(wholes > 100 && changes > 100 && replicas > 100 && ended > 0 && taken_in > 100);
}

// One plan, many orders of events: the same bits.
static void schedules_do_not_matter(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        fabric_shape shape = shape_of(500 + i, i % 2 ? RT_CODING_INT8 : RT_CODING_BF16);
        shape.dispatch.first_touch = (rt_first_touch)(i / 2);
        shape.cache = i % 2 ? CACHE_SMALLEST : CACHE_MIDDLE;
        shape.iterations = 20;
        check(&shape, 40);
    }
}

// Of every step of a row, at a worker or at the PS, of every
// change of a stale copy, rounding loses at most EPSILON of its largest
// component: 2^-9 in 16 bits, 1/254 in 8; and rows are read with as much of their own lost, which
// changes gradients by about that share. PATH, how far a weight goes in all, is bounded by what 40
// steps of at most the learning rate 0.05 come to in changing directions: 1.
static void close_to_32_bits(void **state)
{
    static const double epsilon[] = {0, 0x1p-9, 1.0 / 254};
    (void)state;
    for (uint32_t i = 0; i < 12; i++) {
        fabric_result results[3];
        for (rt_coding coding = 0; coding < RT_CODING_COUNT; coding++) {
            fabric_plan plan;
            rt_random random = {i + 1};
            fabric_shape shape = shape_of(700 + i, coding);
            shape.dispatch.policy = i % 2 ? RT_POLICY_LAIA : RT_POLICY_ESD;
            shape.rows.kind = i % 3 ? RT_OPTIMIZER_ADAGRAD : RT_OPTIMIZER_SGD;
            if (i % 4 == 3)
                shape.consistency = (rt_consistency_config){true, 3};
            fabric_plan_init(&plan, &shape);
            const fabric_schedule schedule = fabric_case_schedule(&random, i);
            fabric_run(&plan, &schedule, &results[coding]);
            fabric_plan_fini(&plan);
            const fabric_result *a = &results[0], *b = &results[coding];
            double worst = 0, dense = 0;
            for (size_t k = 0; k < (size_t)a->key_count * a->row_floats; k++)
                worst = fmax(worst, fabs((double)a->rows[k] - b->rows[k]));
            for (size_t k = 0; k < a->dense_count; k++)
                dense = fmax(dense, fabs((double)a->dense[k] - b->dense[k]));
            printf("coding %d: rows %.2g, dense %.2g of %.2g\n", coding, worst, dense,
                   2 * epsilon[coding]);
            assert_true(worst <= 2 * epsilon[coding] && dense <= 2 * epsilon[coding]);
            assert_true(coding == RT_CODING_FP32 || worst > 0);
        }
        for (uint32_t k = 0; k < 3; k++)
            fabric_result_fini(&results[k]);
    }
}

TEST_MAIN(TEST_SLOW(every_policy_gives_the_rules_bits, 180), TEST_SLOW(homes_that_move, 180),
          TEST_SLOW(schedules_do_not_matter, 180), TEST(close_to_32_bits))
