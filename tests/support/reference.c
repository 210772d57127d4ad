#include "tests/support/reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/rt_hash.h"
#include "tests/support/test.h"

static uint32_t find_key(const fabric_plan *plan, uint64_t key)
{
    uint32_t low = 0, high = plan->key_count;
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        *(plan->keys[middle] <= key ? &low : &high) = middle;
    }
    assert_true(plan->keys[low] == key);
    return low;
}

static void start_row(reference *r, uint32_t key)
{
    const fabric_shape *shape = &r->plan->shape;
    float *row = r->rows + (size_t)key * r->row_floats;
    rt_row_init(r->plan->keys[key], shape->seed, (float)shape->model.init_scale, r->dim, row);
    rt_optimizer_init_state(&shape->rows, r->dim, row + r->dim);
}

void reference_create(reference *r, const fabric_plan *plan)
{
    const fabric_shape *shape = &plan->shape;
    ew_model_config model = fabric_model(plan, true);
    rt_error error = {0};
    uint32_t dim = shape->model.embedding_dim;
    *r = (reference){.plan = plan, .dim = dim};
    r->row_floats = dim + rt_optimizer_state_floats(&shape->rows, dim);
    r->rows = calloc((size_t)plan->key_count * r->row_floats, sizeof *r->rows);
    r->numbers = calloc(plan->key_count, sizeof *r->numbers);
    r->row_keys = calloc(model.row_count_max, sizeof *r->row_keys);
    r->lookups = calloc(model.lookup_count_max, sizeof *r->lookups);
    r->bags = calloc((size_t)model.sample_count_max * shape->field_count + 1, sizeof *r->bags);
    r->last = calloc(plan->key_count, sizeof *r->last);
    r->seen = calloc(plan->key_count, sizeof *r->seen);
    for (uint32_t k = 0; k < plan->key_count; k++)
        start_row(r, k);
    if (ew_model_create(&model, fabric_device(), &r->model, &error))
        fail_msg("%s", error.text);
}

void reference_destroy(reference *r)
{
    ew_model_destroy(r->model);
    free(r->rows);
    free(r->numbers);
    free(r->last);
    free(r->seen);
    free(r->row_keys);
    free(r->lookups);
    free(r->bags);
}

// With shares the last field has the rows of the first, of a graph every one.
static uint64_t row_key(const fabric_plan *plan, uint64_t key)
{
    const bool is_last = rt_key_field(key) + 1 == plan->shape.field_count;
    return plan->shape.shares && (is_last || plan->shape.is_graph) ? rt_key(0, key & RT_ID_MASK)
                                                                   : key;
}

// Rows by first appearance, bags by counting. Returns the number of rows.
static uint32_t index_batch(reference *r, const rt_batch *batch)
{
    uint32_t row_count = 0, fields = r->plan->shape.field_count;
    memset(r->numbers, 0, r->plan->key_count * sizeof *r->numbers);
    memset(r->bags, 0, ((size_t)batch->sample_count * fields + 1) * sizeof *r->bags);
    for (uint32_t i = 0; i < batch->sample_count; i++) {
        for (uint32_t at = batch->key_offsets[i]; at < batch->key_offsets[i + 1]; at++) {
            uint32_t key = find_key(r->plan, row_key(r->plan, batch->keys[at]));
            if (!r->numbers[key]) {
                r->row_keys[row_count] = key;
                r->numbers[key] = ++row_count;
            }
            r->lookups[at] = r->numbers[key] - 1;
            r->bags[i * fields + rt_key_field(batch->keys[at]) + 1]++;
        }
    }
    for (uint32_t b = 0; b < batch->sample_count * fields; b++)
        r->bags[b + 1] += r->bags[b];
    return row_count;
}

void reference_admit(reference *r, const rt_batch *offered, const rt_batch *planned)
{
    uint32_t kept = 0;
    for (uint32_t at = 0; at < offered->key_count; at++) {
        const uint32_t key = find_key(r->plan, offered->keys[at]);
        r->seen[key] += r->last[key] == 0;
    }
    assert_int_equal(offered->sample_count, planned->sample_count);
    for (uint32_t i = 0; i < offered->sample_count; i++) {
        for (uint32_t at = offered->key_offsets[i]; at < offered->key_offsets[i + 1]; at++) {
            const uint32_t key = find_key(r->plan, offered->keys[at]);
            if (r->last[key] == 0 && r->seen[key] < r->plan->shape.ends.admit)
                continue;
            assert_true(kept < planned->key_count);
            assert_true(planned->keys[kept++] == offered->keys[at]);
        }
        assert_int_equal(planned->key_offsets[i + 1], kept);
    }
    assert_int_equal(planned->key_count, kept);
}

typedef struct {
    float *labels, *weights;
} learnt;

// Labels that train nothing have neither value nor weight.
static learnt leave_out(const rt_batch *batch, ew_micro_batch *all)
{
    const size_t count = (size_t)batch->sample_count * batch->label_count;
    learnt own = {0};
    if (!batch->is_weighted || !batch->learning.unknown)
        return own;
    own = (learnt){calloc(count, sizeof(float)), calloc(count, sizeof(float))};
    for (size_t i = 0; i < count; i++) {
        const bool is_out = batch->learning.unknown >> (i % batch->label_count) & 1;
        own.labels[i] = is_out ? 0 : batch->labels[i];
        own.weights[i] = is_out ? 0 : batch->weights[i];
    }
    all->labels = own.labels;
    all->weights = own.weights;
    return own;
}

void reference_step(reference *r, const rt_batch *batch, const rt_batch *came, uint32_t t)
{
    const fabric_shape *shape = &r->plan->shape;
    ew_step_result step;
    rt_error error = {0};
    uint32_t row_count = index_batch(r, came);
    const uint64_t place = fabric_place(r->plan, t);
    for (uint32_t i = 0; i < row_count; i++)
        r->last[r->row_keys[i]] = t;
    ew_micro_batch all = {.sample_count = batch->sample_count,
                          .lookup_count = came->key_count,
                          .row_count = row_count,
                          .labels = batch->labels,
                          .weights = batch->is_weighted ? batch->weights : NULL,
                          .dense = batch->dense,
                          .lookup_rows = r->lookups,
                          .bag_offsets = r->bags,
                          .row_slots = r->row_keys,
                          .slab = r->rows,
                          .row_stride = r->row_floats,
                          .scale = 1.0f / (float)r->plan->planner.sample_count_max,
                          .log_odds = batch->learning.log_odds[0],
                          .more_odds = batch->learning.log_odds + 1};
    learnt own = leave_out(batch, &all);
    if (ew_model_step(r->model, &all, NULL, NULL, &step, &error))
        fail_msg("%s", error.text);
    free(own.labels);
    free(own.weights);
    if (!isfinite(step.loss_sum) || batch->learning.is_untrained)
        return; // applied nowhere
    for (uint32_t i = 0; i < row_count; i++) {
        float *row = r->rows + (size_t)r->row_keys[i] * r->row_floats;
        rt_optimizer_step(&shape->rows, r->dim, place, row, row + r->dim,
                          step.row_gradients + (size_t)i * r->dim);
    }
    ew_model_dense_step(r->model, place);
}

void reference_sweep(reference *r, uint32_t floor)
{
    for (uint32_t k = 0; k < r->plan->key_count; k++) {
        if (r->last[k] >= floor)
            continue;
        start_row(r, k);
        r->last[k] = 0;
    }
}
