// Gradients of rows that this worker sums (SUM): finding what they are for, keeping them until all
// are in, and the step.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "edge_worker/executor/ew_executor_parts.h"

static int compare_keys(const void *left, const void *right)
{
    const ew_sum *a = left, *b = right;
    return (a->key > b->key) - (a->key < b->key);
}

rt_status ew_sums_prepare(const ew_executor *e, ew_slice_state *slice)
{
    const dp_slice_view *view = &slice->view;
    const uint32_t count = view->counts.sum_count;
    const uint32_t first = ew_first_sum_node(&view->counts);
    uint64_t floats = 0;
    if (rt_grow(&slice->sums, &slice->sum_capacity, count, sizeof *slice->sums))
        return RT_NO_MEMORY;
    for (uint32_t i = 0; i < count; i++) {
        slice->sums[i] = (ew_sum){.key = view->sum_keys[i],
                                  .mask = view->sum_masks[i],
                                  .waits = view->sum_masks[i],
                                  .first = floats,
                                  .node = first + i,
                                  .row = view->sum_rows[i]};
        floats += (uint64_t)rt_bit_count(view->sum_masks[i]) * e->config.values;
    }
    if (rt_grow(&slice->gradients, &slice->gradient_capacity, floats, sizeof *slice->gradients))
        return RT_NO_MEMORY;
    if (count)
        qsort(slice->sums, count, sizeof *slice->sums, compare_keys);
    for (uint32_t i = 0; i < count; i++)
        slice->nodes[slice->sums[i].node].index = i;
    return RT_OK;
}

// ---- the step --------------------------------------------------------------------------------

static void add_gradient(const ew_executor *e, ew_slice_state *slice, ew_sum *sum, uint32_t worker,
                         const void *gradient)
{
    const size_t values = e->config.values;
    const size_t place = rt_bits_under(sum->mask, worker);
    memcpy(slice->gradients + sum->first + place * values, gradient, values * sizeof(float));
    sum->waits &= ~rt_bit(worker);
}

// One step with the sum in the order of workers, as the PS would make it.
static void step_row(ew_executor *e, const ew_slice_state *slice, const ew_sum *sum,
                     const ew_node *n)
{
    const uint32_t values = e->config.values, count = rt_bit_count(sum->mask);
    float *restrict into = slice->gradients + sum->first;
    for (uint32_t k = 1; k < count; k++) {
        const float *restrict one = into + (size_t)k * values;
        for (uint32_t i = 0; i < values; i++)
            into[i] += one[i];
    }
    const float *const gradient = into;
    e->config.rows->step(e->config.rows_context, &n->slot, &gradient, 1,
                         dp_slice_place(&slice->view.counts));
}

// All are in, this worker's own among them. The row is this worker's now: the PS has it as it was.
static rt_status end_sum(ew_executor *e, ew_slice_state *slice, const ew_sum *sum, rt_error *error)
{
    ew_node *n = &slice->nodes[sum->node];
    if (sum->no_step && sum->no_step != sum->mask)
        return rt_fail(error, RT_WIRE,
                       "slice %" PRIu64 ": the workers that train key %" PRIx64
                       " do not agree whether the iteration counts",
                       slice->sequence, sum->key);
    if (!sum->no_step)
        step_row(e, slice, sum, n);
    e->slots[n->slot].version = n->version;
    ew_node_complete(e, slice, n);
    return RT_OK;
}

rt_status ew_sum_begin(ew_executor *e, ew_slice_state *slice, ew_node *n, rt_error *error)
{
    ew_sum *sum = &slice->sums[n->index];
    const uint32_t own = e->config.rank;
    if (!e->slots[n->slot].full || e->slots[n->slot].key != sum->key)
        return rt_fail(error, RT_WIRE,
                       "slice %" PRIu64 " sums key %" PRIx64 " in slot %" PRIu32
                       ", which does not have it",
                       slice->sequence, sum->key, n->slot);
    add_gradient(e, slice, sum, own, e->gradients + (size_t)sum->row * e->config.values);
    if (!e->apply)
        sum->no_step |= rt_bit(own);
    if (sum->waits)
        return RT_OK;
    return end_sum(e, slice, sum, error);
}

bool ew_sums_hold_up(const ew_executor *e, const ew_slice_state *slice)
{
    const rt_wire_slice *c = &slice->view.counts;
    const uint64_t last = slice->sequence, far = e->config.slice_count_max;
    if (!e->config.limits.sums)
        return false;
    return slice->nodes_left > c->row_count + c->grad_count + c->sum_count ||
           (last > far && ew_slice_at(e, last - far)->sequence == last - far);
}

// ---- gradients in ----------------------------------------------------------------------------

static rt_status find_sum(const ew_slice_state *slice, const rt_wire_grad *grad, uint32_t worker,
                          ew_sum **sum_p, rt_error *error)
{
    const ew_sum wanted = {.key = grad->key};
    const uint32_t count = slice->view.counts.sum_count;
    ew_sum *sum = count ? bsearch(&wanted, slice->sums, count, sizeof wanted, compare_keys) : NULL;
    if (!sum || !(sum->waits >> worker & 1))
        return rt_fail(error, RT_WIRE,
                       "worker %" PRIu32 " sent a gradient of key %" PRIx64 ", which slice %" PRIu64
                       " does not sum from it",
                       worker, grad->key, slice->sequence);
    const uint32_t base = slice->view.row_versions[sum->row];
    if (grad->mask != sum->mask || grad->base != base || grad->step > RT_WIRE_NO_STEP)
        return rt_fail(error, RT_WIRE,
                       "worker %" PRIu32 " sent a gradient of key %" PRIx64 " for workers %" PRIx64
                       " at version %" PRIu32 " (step %" PRIu32 "), expected %" PRIx64
                       " at %" PRIu32 " (0 or 1)",
                       worker, grad->key, grad->mask, grad->base, grad->step, sum->mask, base);
    *sum_p = sum;
    return RT_OK;
}

// The record that comes next.
static rt_status take_gradient(ew_executor *e, ew_slice_state *slice, uint32_t worker,
                               rt_reader *reader, rt_error *error)
{
    rt_wire_grad grad;
    ew_sum *sum = NULL;
    const void *head = rt_reader_take(reader, 1, sizeof grad);
    const void *data = head ? rt_reader_take(reader, e->config.values, sizeof(float)) : NULL;
    if (!data)
        return rt_fail(error, RT_WIRE, "worker %" PRIu32 ": gradients are cut short", worker);
    memcpy(&grad, head, sizeof grad);
    rt_status status = find_sum(slice, &grad, worker, &sum, error);
    if (status)
        return status;
    add_gradient(e, slice, sum, worker, data);
    if (grad.step == RT_WIRE_NO_STEP)
        sum->no_step |= rt_bit(worker);
    if (sum->waits)
        return RT_OK;
    return end_sum(e, slice, sum, error);
}

rt_status ew_sums_receive(ew_executor *e, uint32_t worker, const rt_message *message,
                          rt_error *error)
{
    const rt_wire_header *header = rt_message_header(message);
    rt_reader reader = rt_message_reader(message);
    ew_slice_state *slice = ew_slice_at(e, header->iteration);
    if (slice->sequence != header->iteration || header->iteration == 0)
        return rt_fail(error, RT_WIRE,
                       "worker %" PRIu32 " sent gradients for slice %" PRIu64 ", which is not open",
                       worker, header->iteration);
    for (uint32_t i = 0; i < header->count; i++) {
        const rt_status status = take_gradient(e, slice, worker, &reader, error);
        if (status)
            return status;
    }
    if (reader.left)
        return rt_fail(error, RT_WIRE, "worker %" PRIu32 ": bytes after the last gradient", worker);
    return RT_OK;
}
