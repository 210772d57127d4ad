// The last stage of a commit: gradients. See dp_planner_parts.h.
#include "dispatch/planner/dp_homes.h"
#include "dispatch/planner/dp_planner_parts.h"
#include "dispatch/planner/dp_reduce.h"

// The trainers' copies of a key that several trained are given up, because each knew only its own
// gradient; the copy of the one that summed has all.
static void settle_key(dp_planner *planner, uint32_t d)
{
    const dp_work *work = &planner->work;
    const uint32_t index = work->distinct[d].record;
    const uint64_t kept = work->summers[d] == DP_NO_WORKER ? 0 : rt_bit(work->summers[d]);
    dp_cache_outdate_all(planner->own.caches, work->trainers[d] & ~kept,
                         &planner->directory.records[index].copies);
    dp_planner_release(planner, index);
}

static rt_status add_gradient(dp_planner *planner, uint32_t worker, uint32_t row)
{
    dp_work *work = &planner->work;
    dp_slice *slice = &work->plan.slices[worker];
    uint32_t d = work->row_keys[worker][row];
    if (work->summers[d] != DP_NO_WORKER)
        return dp_reduce_add(planner, worker, row);
    dp_op *op = dp_ops_add(&slice->after, DP_OP_PUSH_GRAD);
    if (!op)
        return RT_NO_MEMORY;
    op->key = work->distinct[d].key;
    op->mask = work->trainers[d];
    op->slot = slice->rows[row].slot;
    op->version = work->plan.iteration;
    op->base = work->distinct[d].version;
    dp_homes_name(planner, work->homes[d], op);
    slice->rows[row].mode = DP_MODE_GRAD;
    return RT_OK;
}

// Records and copies are far apart in memory: both are fetched some keys before their use.
static void prefetch_copies(const dp_planner *planner, uint32_t d, uint32_t count)
{
    const dp_work *work = &planner->work;
    if (d + 2 * DP_AHEAD < count && dp_planner_is_summed(planner, work->trainers[d + 2 * DP_AHEAD]))
        dp_directory_prefetch(&planner->directory, work->distinct[d + 2 * DP_AHEAD].record);
    if (d + DP_AHEAD < count && dp_planner_is_summed(planner, work->trainers[d + DP_AHEAD])) {
        uint32_t record = work->distinct[d + DP_AHEAD].record;
        dp_cache_prefetch(planner->own.caches, planner->directory.records[record].copies.first);
    }
}

static rt_status add_gradients(dp_planner *planner, uint32_t worker)
{
    dp_work *work = &planner->work;
    for (uint32_t r = 0; r < work->plan.slices[worker].row_count; r++) {
        if (dp_planner_is_summed(planner, work->trainers[work->row_keys[worker][r]]) &&
            add_gradient(planner, worker, r))
            return RT_NO_MEMORY;
    }
    return RT_OK;
}

// settle_key for the copies of one worker, where a copy that is given up stays as an outdated
// one: its slot is in the plan, and the record needs no change.
static rt_status settle_worker(dp_planner *planner, uint32_t worker)
{
    dp_work *work = &planner->work;
    const dp_slice *slice = &work->plan.slices[worker];
    for (uint32_t r = 0; r < slice->row_count; r++) {
        const uint32_t d = work->row_keys[worker][r];
        if (r + DP_AHEAD < slice->row_count)
            dp_eviction_prefetch(planner->own.caches[worker].eviction,
                                 slice->rows[r + DP_AHEAD].slot);
        if (dp_planner_is_summed(planner, work->trainers[d]) && work->summers[d] != worker)
            dp_cache_keep_outdated(&planner->own.caches[worker], slice->rows[r].slot);
    }
    return add_gradients(planner, worker);
}

rt_status dp_planner_settle(dp_planner *planner)
{
    dp_work *work = &planner->work;
    if (dp_eviction_keeps(planner->own.caches[0].eviction))
        return dp_planner_each_worker(planner, dp_planner_pool(planner), settle_worker);
    const uint32_t count = planner->view.distinct_count;
    for (uint32_t d = 0; d < count; d++) {
        prefetch_copies(planner, d, count);
        if (dp_planner_is_summed(planner, work->trainers[d]))
            settle_key(planner, d);
    }
    return dp_planner_each_worker(planner, NULL, add_gradients);
}
