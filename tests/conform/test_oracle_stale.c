// Training with bounded staleness gives the model that HET gives: a plain loop over copies of rows
// with clocks, one model, and the placements of the plan; no planner, no executor, no PS. It adds
// the same floats in the same order, so it gives the same bits, under every order of events.
#include "tests/support/test.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/config/rt_optimizers.h"
#include "runtime/config/rt_policies.h"
#include "tests/support/fabric_case.h"

typedef struct {
    bool there, valid;
    uint32_t start, current; // clocks
    uint64_t used;           // number of the last use
    float *row, *base;       // as it is, as it came
} copy;

typedef struct {
    const fabric_plan *plan;
    ew_model **models; // of each worker
    uint32_t n, dim, floats, iteration;
    uint64_t uses;
    float *rows;      // of the server: key_count x floats
    uint32_t *clocks; // key_count
    bool *pushed;     // key_count: others than the initial row
    copy *copies;     // n x key_count
    uint32_t *held;   // by worker: copies there
    // of one worker's micro-batch
    uint32_t *keys, *numbers, *lookups, *bags, row_count, sample_count;
    float *slab, *labels, *dense;
    float *gradients; // of rows, by worker
    float *sum;       // of dense gradients
    uint32_t *all_keys, *all_counts;
    double loss_sum;
} het;

static uint32_t find_key(const fabric_plan *plan, uint64_t key)
{
    uint32_t at = 0;
    while (plan->keys[at] != key)
        at++;
    return at;
}

static copy *copy_at(const het *h, uint32_t worker, uint32_t key)
{
    return &h->copies[(size_t)worker * h->plan->key_count + key];
}

static void create(het *h, const fabric_plan *plan)
{
    const fabric_shape *shape = &plan->shape;
    ew_model_config model = fabric_model(plan, false);
    rt_error error = {0};
    const uint32_t keys = plan->key_count;
    *h = (het){.plan = plan, .n = shape->worker_count, .dim = shape->model.embedding_dim};
    h->floats = h->dim + rt_optimizer_state_floats(&shape->rows, h->dim);
    h->rows = calloc((size_t)keys * h->floats, sizeof(float));
    h->clocks = calloc(keys, sizeof *h->clocks);
    h->pushed = calloc(keys, sizeof *h->pushed);
    h->copies = calloc((size_t)keys * h->n, sizeof *h->copies);
    h->held = calloc(h->n, sizeof *h->held);
    h->keys = calloc(model.row_count_max, sizeof *h->keys);
    h->numbers = calloc(keys, sizeof *h->numbers);
    h->lookups = calloc(model.lookup_count_max, sizeof *h->lookups);
    h->bags = calloc((size_t)model.sample_count_max * shape->field_count + 1, sizeof *h->bags);
    h->slab = calloc((size_t)model.row_count_max * h->floats, sizeof(float));
    h->labels = calloc(model.sample_count_max, sizeof(float));
    h->dense = calloc((size_t)model.sample_count_max * shape->dense_count, sizeof(float));
    h->gradients = calloc((size_t)h->n * model.row_count_max * h->dim, sizeof(float));
    h->all_keys = calloc((size_t)h->n * model.row_count_max, sizeof(uint32_t));
    h->all_counts = calloc(h->n, sizeof(uint32_t));
    for (uint32_t k = 0; k < keys; k++) {
        rt_row_init(plan->keys[k], shape->seed, (float)shape->model.init_scale, h->dim,
                    h->rows + (size_t)k * h->floats);
        rt_optimizer_init_state(&shape->rows, h->dim, h->rows + (size_t)k * h->floats + h->dim);
    }
    for (size_t i = 0; i < (size_t)keys * h->n; i++) {
        h->copies[i].row = calloc(h->floats, sizeof(float));
        h->copies[i].base = calloc(h->floats, sizeof(float));
    }
    h->models = calloc(h->n, sizeof *h->models);
    for (uint32_t w = 0; w < h->n; w++) {
        if (ew_model_create(&model, fabric_device(), &h->models[w], &error))
            fail_msg("%s", error.text);
    }
    uint32_t count;
    ew_model_dense(h->models[0], EW_GRADIENTS, &count);
    h->sum = calloc(count, sizeof(float));
}

static void destroy(het *h)
{
    for (size_t i = 0; i < (size_t)h->plan->key_count * h->n; i++) {
        free(h->copies[i].row);
        free(h->copies[i].base);
    }
    for (uint32_t w = 0; w < h->n; w++)
        ew_model_destroy(h->models[w]);
    void *const all[] = {h->models, h->rows,    h->clocks,   h->copies,     h->held,    h->keys,
                         h->slab,   h->labels,  h->dense,    h->gradients,  h->numbers, h->bags,
                         h->sum,    h->lookups, h->all_keys, h->all_counts, h->pushed};
    for (size_t i = 0; i < RT_COUNT_OF(all); i++)
        free(all[i]);
}

static void push(het *h, uint32_t worker, uint32_t key)
{
    const copy *c = copy_at(h, worker, key);
    float *row = h->rows + (size_t)key * h->floats, change[64];
    for (uint32_t i = 0; i < h->floats; i++)
        change[i] = c->row[i] - c->base[i];
    fabric_case_round(h->plan->shape.row_wire, change, h->dim);
    for (uint32_t i = 0; i < h->floats; i++)
        row[i] += change[i];
    h->pushed[key] = true;
    if (c->current > h->clocks[key])
        h->clocks[key] = c->current;
}

static void fetch(het *h, uint32_t worker, uint32_t key)
{
    copy *c = copy_at(h, worker, key);
    h->held[worker] += !c->there;
    c->there = c->valid = true;
    c->start = c->current = h->clocks[key];
    memcpy(c->row, h->rows + (size_t)key * h->floats, h->floats * sizeof(float));
    if (h->pushed[key]) // an initial row travels whole
        fabric_case_round(h->plan->shape.row_wire, c->row, h->dim);
    memcpy(c->base, c->row, h->floats * sizeof(float));
}

static void check_valid(het *h, uint32_t worker, uint32_t key)
{
    copy *c = copy_at(h, worker, key);
    const uint64_t s = h->plan->shape.consistency.staleness;
    if (!c->there)
        return;
    c->used = ++h->uses;
    c->valid = c->current <= c->start + s && h->clocks[key] <= c->current + s;
    if (!c->valid)
        push(h, worker, key);
}

// Samples, look-ups and keys of a worker, as the model wants them.
static void collect(het *h, uint32_t worker)
{
    const fabric_shape *shape = &h->plan->shape;
    const rt_batch *batch = &h->plan->batches[h->iteration - 1];
    const uint32_t *placement =
        h->plan->placements + (size_t)(h->iteration - 1) * h->n * shape->samples_per_worker;
    uint32_t lookups = 0, fields = shape->field_count;
    h->row_count = h->sample_count = 0;
    memset(h->numbers, 0, h->plan->key_count * sizeof *h->numbers);
    h->bags[0] = 0;
    for (uint32_t i = 0; i < batch->sample_count; i++) {
        if (placement[i] != worker)
            continue;
        const uint32_t at = h->sample_count++;
        h->labels[at] = batch->labels[i];
        memcpy(h->dense + (size_t)at * shape->dense_count,
               batch->dense + (size_t)i * shape->dense_count, shape->dense_count * sizeof(float));
        uint32_t *bags = h->bags + (size_t)at * fields + 1;
        memset(bags, 0, fields * sizeof *bags);
        for (uint32_t k = batch->key_offsets[i]; k < batch->key_offsets[i + 1]; k++) {
            const uint32_t key = find_key(h->plan, batch->keys[k]);
            if (!h->numbers[key]) {
                h->keys[h->row_count] = key;
                h->numbers[key] = ++h->row_count;
            }
            h->lookups[lookups++] = h->numbers[key] - 1;
            bags[rt_key_field(batch->keys[k])]++;
        }
        for (uint32_t f = 0; f < fields; f++)
            bags[f] += bags[(int32_t)f - 1];
    }
}

static void compute(het *h, uint32_t worker, float *gradients)
{
    const rt_batch *batch = &h->plan->batches[h->iteration - 1];
    ew_step_result step;
    rt_error error = {0};
    uint32_t count, row_slots[4096];
    for (uint32_t r = 0; r < h->row_count; r++) {
        row_slots[r] = r;
        memcpy(h->slab + (size_t)r * h->floats, copy_at(h, worker, h->keys[r])->row,
               h->floats * sizeof(float));
    }
    ew_micro_batch own = {
        .sample_count = h->sample_count,
        .lookup_count = h->row_count ? h->bags[h->sample_count * h->plan->shape.field_count] : 0,
        .row_count = h->row_count,
        .labels = h->labels,
        .dense = h->dense,
        .lookup_rows = h->lookups,
        .bag_offsets = h->bags,
        .row_slots = row_slots,
        .slab = h->slab,
        .row_stride = h->floats,
        .scale = 1.0f / (float)h->plan->planner.sample_count_max,
        .log_odds = batch->learning.log_odds[0]};
    if (ew_model_step(h->models[worker], &own, NULL, NULL, &step, &error))
        fail_msg("%s", error.text);
    memcpy(gradients, step.row_gradients, (size_t)h->row_count * h->dim * sizeof(float));
    const float *dense = ew_model_dense(h->models[worker], EW_GRADIENTS, &count);
    for (uint32_t i = 0; i < count; i++)
        h->sum[i] = worker ? h->sum[i] + dense[i] : dense[i];
}

static bool is_untrained(const het *h)
{
    return h->plan->batches[h->iteration - 1].learning.is_untrained;
}

static void write(het *h, uint32_t worker, const uint32_t *keys, uint32_t count,
                  const float *gradients)
{
    for (uint32_t r = 0; r < count; r++) {
        copy *c = copy_at(h, worker, keys[r]);
        if (!is_untrained(h))
            rt_optimizer_step(&h->plan->shape.rows, h->dim, fabric_place(h->plan, h->iteration),
                              c->row, c->row + h->dim, gradients + (size_t)r * h->dim);
        c->current++;
    }
}

// Least recently used.
static void trim(het *h, uint32_t worker)
{
    while (h->held[worker] > fabric_slots(h->plan, worker)) {
        uint32_t victim = UINT32_MAX;
        for (uint32_t k = 0; k < h->plan->key_count; k++) {
            const copy *c = copy_at(h, worker, k);
            if (c->there && (victim == UINT32_MAX || c->used < copy_at(h, worker, victim)->used))
                victim = k;
        }
        push(h, worker, victim);
        copy_at(h, worker, victim)->there = false;
        h->held[worker]--;
    }
}

static void step(het *h)
{
    const size_t most = fabric_model(h->plan, false).row_count_max;
    uint32_t count;
    h->iteration++;
    for (uint32_t w = 0; w < h->n; w++) {
        collect(h, w);
        memcpy(h->all_keys + w * most, h->keys, h->row_count * sizeof *h->keys);
        h->all_counts[w] = h->row_count;
        for (uint32_t r = 0; r < h->row_count; r++)
            check_valid(h, w, h->keys[r]);
    }
    for (uint32_t w = 0; w < h->n; w++) {
        for (uint32_t r = 0; r < h->all_counts[w]; r++) {
            copy *c = copy_at(h, w, h->all_keys[w * most + r]);
            if (c->there && c->valid)
                continue;
            if (!c->there)
                c->used = ++h->uses;
            fetch(h, w, h->all_keys[w * most + r]);
        }
    }
    for (uint32_t w = 0; w < h->n; w++) {
        collect(h, w);
        compute(h, w, h->gradients + w * most * h->dim);
    }
    for (uint32_t w = 0; w < h->n; w++)
        write(h, w, h->all_keys + w * most, h->all_counts[w], h->gradients + w * most * h->dim);
    for (uint32_t w = 0; w < h->n; w++) {
        float *dense = ew_model_dense(h->models[w], EW_GRADIENTS, &count);
        memcpy(dense, h->sum, count * sizeof *dense);
        if (!is_untrained(h))
            ew_model_dense_step(h->models[w], fabric_place(h->plan, h->iteration));
    }
    for (uint32_t w = 0; w < h->n; w++)
        trim(h, w);
}

// The end of a run pushes all. In the order of slots, which are the planner's: a key that several
// have gets its changes in the order of workers either way.
static void flush(het *h)
{
    for (uint32_t w = 0; w < h->n; w++) {
        for (uint32_t k = 0; k < h->plan->key_count; k++) {
            if (copy_at(h, w, k)->there)
                push(h, w, k);
        }
    }
}

static void check(const fabric_shape *shape, uint32_t schedules)
{
    fabric_plan plan;
    het h;
    rt_random random = {rt_mix(shape->seed)};
    printf("seed %" PRIu64 ": s %" PRIu32
           ", %u workers, %u shards, policy %d, cache %d, optimizer %d\n",
           shape->seed, shape->consistency.staleness, shape->worker_count, shape->shard_count,
           shape->dispatch.policy, shape->cache, shape->rows.kind);
    fabric_plan_init(&plan, shape);
    create(&h, &plan);
    for (uint32_t t = 0; t < shape->iterations; t++)
        step(&h);
    flush(&h);
    fabric_case_must_give(&plan, schedules, &random, h.rows, h.floats, h.models[0]);
    destroy(&h);
    fabric_plan_fini(&plan);
}

static fabric_shape shape_of(uint64_t seed, uint32_t staleness)
{
    fabric_shape shape = fabric_case_shape(seed);
    shape.consistency = (rt_consistency_config){true, staleness};
    return shape;
}

static const uint32_t bounds[] = {1, 3, 10, 100, RT_STALENESS_INF};
static const rt_optimizer_kind optimizers[] = {RT_OPTIMIZER_SGD, RT_OPTIMIZER_ADAGRAD,
                                               RT_OPTIMIZER_ROWWISE_ADAGRAD};

static void every_policy_gives_hets_bits(void **state)
{
    (void)state;
    rt_random random = {3};
    for (uint32_t i = 0; i < RT_POLICY_COUNT * RT_COUNT_OF(bounds); i++) {
        fabric_shape shape = shape_of(i + 1, bounds[i % RT_COUNT_OF(bounds)]);
        shape.dispatch.policy = (rt_policy_kind)(i / RT_COUNT_OF(bounds));
        shape.worker_count = 1 + rt_random_below(&random, 6);
        shape.shard_count = 1 + rt_random_below(&random, 3);
        shape.cache = (cache_size)rt_random_below(&random, 3);
        shape.rows.kind = optimizers[rt_random_below(&random, 3)];
        shape.bag_max = rt_random_below(&random, 2) ? 1 : 2;
        shape.dispatch.first_touch = (rt_first_touch)rt_random_below(&random, 2);
        shape.last_samples = rt_random_below(&random, 2) * 3;
        check(&shape, 3);
    }
}

// Rows, changes and gradients in 16 and in 8 bits, state in 32.
static void rounded_changes_are_added_likewise(void **state)
{
    (void)state;
    rt_random random = {7};
    for (uint32_t i = 0; i < 4 * RT_COUNT_OF(bounds); i++) {
        fabric_shape shape = shape_of(900 + i, bounds[i % RT_COUNT_OF(bounds)]);
        shape.row_wire = i % 2 ? RT_CODING_INT8 : RT_CODING_BF16;
        shape.dispatch.policy = (rt_policy_kind)((i + i / RT_COUNT_OF(bounds)) % RT_POLICY_COUNT);
        shape.worker_count = 2 + rt_random_below(&random, 5);
        shape.cache = (cache_size)rt_random_below(&random, 3);
        shape.rows.kind = optimizers[rt_random_below(&random, 3)];
        shape.model.embedding_dim = 1 + rt_random_below(&random, 16);
        shape.dispatch.first_touch = (rt_first_touch)rt_random_below(&random, 2);
        check(&shape, 4);
    }
}

// One plan, many orders of events: the same bits.
static void schedules_do_not_matter(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < RT_COUNT_OF(bounds); i++) {
        fabric_shape shape = shape_of(500 + i, bounds[i]);
        shape.dispatch.first_touch = (rt_first_touch)(i % 2);
        shape.cache = i % 2 ? CACHE_SMALLEST : CACHE_MIDDLE;
        shape.iterations = 20;
        check(&shape, 40);
    }
}

TEST_MAIN(TEST_SLOW(every_policy_gives_hets_bits, 180), TEST_SLOW(schedules_do_not_matter, 180),
          TEST_SLOW(rounded_changes_are_added_likewise, 180))
