#include "dispatch/plan/dp_plan.h"

#include <string.h>

#include "runtime/rt_hash.h"

rt_status dp_plan_init(dp_plan *plan, uint32_t worker_count)
{
    memset(plan, 0, sizeof *plan);
    plan->slices = rt_alloc(worker_count, sizeof *plan->slices);
    if (!plan->slices)
        return RT_NO_MEMORY;
    plan->worker_count = worker_count;
    return RT_OK;
}

static void slice_fini(dp_slice *slice)
{
    rt_free(slice->samples);
    rt_free(slice->lookup_rows);
    rt_free(slice->rows);
    rt_free(slice->release.items);
    rt_free(slice->fill.items);
    rt_free(slice->after.items);
}

void dp_plan_fini(dp_plan *plan)
{
    for (uint32_t w = 0; w < plan->worker_count; w++)
        slice_fini(&plan->slices[w]);
    rt_free(plan->slices);
    memset(plan, 0, sizeof *plan);
}

void dp_plan_clear(dp_plan *plan)
{
    plan->iteration = plan->step = 0;
    plan->sample_count = 0;
    plan->returning = plan->sharing = 0;
    plan->dense_chunk_floats = 0;
    plan->moves = 0;
    plan->hits = (dp_hits){0};
    plan->clocks = (dp_clocks){0};
    for (uint32_t w = 0; w < plan->worker_count; w++) {
        dp_slice *slice = &plan->slices[w];
        slice->sample_count = 0;
        slice->lookup_count = 0;
        slice->row_count = 0;
        slice->release.count = 0;
        slice->fill.count = 0;
        slice->after.count = 0;
    }
}

rt_status dp_slice_reserve(dp_slice *slice, uint32_t sample_count, uint32_t lookup_count)
{
    if (rt_grow_unset(&slice->samples, &slice->sample_capacity, sample_count, sizeof(uint32_t)) ||
        rt_grow_unset(&slice->lookup_rows, &slice->lookup_capacity, lookup_count,
                      sizeof(uint32_t)) ||
        rt_grow_unset(&slice->rows, &slice->row_capacity, lookup_count, sizeof(dp_row)))
        return RT_NO_MEMORY;
    return RT_OK;
}

rt_status dp_ops_reserve(dp_ops *ops, uint32_t count)
{
    return rt_grow_unset(&ops->items, &ops->capacity, (uint64_t)ops->count + count, sizeof(dp_op));
}

void dp_counts_add_op(rt_counts *counts, const dp_op *op)
{
    switch ((dp_op_kind)op->kind) {
    case DP_OP_PUSH_ROW:
    case DP_OP_PUSH_DELTA:
        counts->update_push += op->reason == DP_REASON_UPDATE;
        counts->evict_push += op->reason == DP_REASON_EVICT;
        counts->flush_push += op->reason == DP_REASON_FLUSH;
        break;
    case DP_OP_PULL:
        counts->miss_pull++;
        counts->first_touch += op->version == 0;
        break;
    case DP_OP_INIT:
        counts->first_touch++;
        break;
    case DP_OP_PUSH_GRAD:
        counts->grad_push++;
        break;
    case DP_OP_DROP:
    case DP_OP_SEND:
    case DP_OP_RECV:
    case DP_OP_REDUCE:
    case DP_OP_SUM:
    case DP_OP_MARK:
    case DP_OP_FORGET:
    case DP_OP_KINDS:
        break;
    }
}

void dp_clocks_add(dp_clocks *sum, const dp_clocks *one)
{
    sum->stale_keys += one->stale_keys;
    sum->clock_messages += one->clock_messages;
    sum->clock_spread = rt_max_u64(sum->clock_spread, one->clock_spread);
}

static void add_ops(rt_counts *counts, const dp_ops *ops)
{
    for (uint32_t i = 0; i < ops->count; i++)
        dp_counts_add_op(counts, &ops->items[i]);
}

void dp_counts_add_slice(rt_counts *counts, const dp_slice *slice)
{
    add_ops(counts, &slice->release);
    add_ops(counts, &slice->fill);
    add_ops(counts, &slice->after);
}

uint64_t dp_plan_fingerprint(const dp_plan *plan)
{
    uint64_t sum = rt_mix(plan->iteration + 1) + plan->dense_chunk_floats;
    if (plan->participants != rt_bits_below(plan->worker_count))
        sum = rt_mix(sum ^ plan->participants);
    for (uint32_t w = 0; w < plan->worker_count; w++) {
        const dp_slice *slice = &plan->slices[w];
        const struct {
            const void *bytes;
            size_t size;
        } parts[] = {
            {slice->samples, slice->sample_count * sizeof *slice->samples},
            {slice->lookup_rows, slice->lookup_count * sizeof *slice->lookup_rows},
            {slice->rows, slice->row_count * sizeof *slice->rows},
            {slice->release.items, slice->release.count * sizeof(dp_op)},
            {slice->fill.items, slice->fill.count * sizeof(dp_op)},
            {slice->after.items, slice->after.count * sizeof(dp_op)},
        };
        for (size_t i = 0; i < RT_COUNT_OF(parts); i++)
            sum = rt_mix(sum ^ rt_hash_bytes(parts[i].bytes, parts[i].size)) + parts[i].size;
    }
    return sum;
}

uint64_t dp_fingerprint_add(uint64_t run, uint64_t plan)
{
    return rt_mix(run + 1) ^ rt_mix(rt_mix(run + 1) + plan);
}
