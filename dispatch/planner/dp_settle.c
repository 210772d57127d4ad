// The second stage of a commit: the plan before becomes final. See dp_planner_parts.h.
#include "dispatch/planner/dp_homes.h"
#include "dispatch/planner/dp_planner_parts.h"
#include "dispatch/planner/dp_reduce.h"

// A key that workers a, b and c trained in iteration t. Who trains it in t + 1?
//
//     a alone        a: KEEP           b, c: PUSH_GRAD, mask {b, c}, keeper a
//                    t + 1: a pulls the sum of the others (PULL_SUM) and steps its row itself
//     anybody else,  a, b, c: PUSH_GRAD, mask {a, b, c}
//     or nobody      the PS makes the row of version t; t + 1: whoever needs it pulls it
//
// Keeping saves a gradient on its way up; the sum on its way down is no larger than the row. The
// answer is in the placement of t + 1, so with dispatch.keeper plan t is held back until then.

// KEEP: the only worker that trains the key in the next iteration was among its trainers.
static uint8_t find_keeper(const dp_planner *planner, const dp_work *work, const dp_work *next,
                           uint32_t d)
{
    const dp_record *record = &planner->directory.records[work->distinct[d].record];
    if (!next || record->seen != next->plan.iteration)
        return DP_NO_KEEPER;
    uint64_t users = next->trainers[record->distinct];
    if (!rt_bits_one(users) || !(users & work->trainers[d]))
        return DP_NO_KEEPER;
    return (uint8_t)rt_lowest_bit(users);
}

static uint64_t keeper_mask(uint8_t keeper)
{
    return keeper == DP_NO_KEEPER ? 0 : rt_bit(keeper);
}

// Until here a key that several workers trained has copies, but no holder. Now the trainers' copies
// are given up (each knew only its own gradient), except the keeper's.
static void settle_key(dp_planner *planner, dp_work *work, const dp_work *next, uint32_t d)
{
    uint32_t index = work->distinct[d].record;
    dp_record *record = &planner->directory.records[index];
    if (work->summers[d] != DP_NO_KEEPER) { // its copy has all gradients
        dp_cache_outdate_all(planner->caches, work->trainers[d] & ~rt_bit(work->summers[d]),
                             &record->copies);
        return;
    }
    uint8_t keeper = find_keeper(planner, work, next, d);
    work->keepers[d] = keeper;
    const uint64_t kept = keeper_mask(keeper);
    dp_cache_outdate_all(planner->caches, work->trainers[d] & ~kept, &record->copies);
    if (keeper != DP_NO_KEEPER) {
        record->copies.holders = kept;
        record->keeper = keeper;
        record->version_ps = work->distinct[d].version;
    } else if (!next || record->seen != next->plan.iteration) {
        dp_planner_release(planner, index);
    }
}

static rt_status add_gradient(const dp_planner *planner, dp_work *work, uint32_t worker,
                              uint32_t row)
{
    dp_slice *slice = &work->plan.slices[worker];
    uint32_t d = work->row_keys[worker][row];
    if (work->summers[d] != DP_NO_KEEPER)
        return dp_reduce_add(work, worker, row);
    uint8_t keeper = work->keepers[d];
    bool keeps = keeper == worker;
    dp_op *op = dp_ops_add(&slice->after, keeps ? DP_OP_KEEP : DP_OP_PUSH_GRAD);
    if (!op)
        return RT_NO_MEMORY;
    op->key = work->distinct[d].key;
    op->mask = work->trainers[d] & ~keeper_mask(keeper);
    op->slot = slice->rows[row].slot;
    op->version = work->plan.iteration;
    op->base = work->distinct[d].version;
    op->keeper = keeper;
    dp_homes_name(planner, work->homes[d], op);
    slice->rows[row].mode = keeps ? DP_MODE_KEEP : DP_MODE_GRAD;
    if (keeps && work->row_fills[worker][row] != DP_NO_FILL) // it will step the row itself
        slice->fill.items[work->row_fills[worker][row]].flags |= DP_OP_STATE;
    return RT_OK;
}

// Records and copies are far apart in memory: both are fetched some keys before their use.
static void prefetch_copies(const dp_planner *planner, const dp_work *work, uint32_t d,
                            uint32_t count)
{
    if (d + 2 * DP_AHEAD < count && dp_planner_is_summed(planner, work->trainers[d + 2 * DP_AHEAD]))
        dp_directory_prefetch(&planner->directory, work->distinct[d + 2 * DP_AHEAD].record);
    if (d + DP_AHEAD < count && dp_planner_is_summed(planner, work->trainers[d + DP_AHEAD])) {
        uint32_t record = work->distinct[d + DP_AHEAD].record;
        dp_cache_prefetch(planner->caches, planner->directory.records[record].copies.first);
    }
}

static rt_status add_gradients(dp_planner *planner, dp_work *work, uint32_t worker)
{
    for (uint32_t r = 0; r < work->plan.slices[worker].row_count; r++) {
        if (dp_planner_is_summed(planner, work->trainers[work->row_keys[worker][r]]) &&
            add_gradient(planner, work, worker, r))
            return RT_NO_MEMORY;
    }
    return RT_OK;
}

// settle_key for the copies of one worker, where no gradient is kept and a copy that is given up
// stays as an outdated one: its slot is in the plan, and the record needs no change.
static rt_status settle_worker(dp_planner *planner, dp_work *work, uint32_t worker)
{
    const dp_slice *slice = &work->plan.slices[worker];
    for (uint32_t r = 0; r < slice->row_count; r++) {
        const uint32_t d = work->row_keys[worker][r];
        if (r + DP_AHEAD < slice->row_count)
            dp_eviction_prefetch(planner->caches[worker].eviction, slice->rows[r + DP_AHEAD].slot);
        if (dp_planner_is_summed(planner, work->trainers[d]) && work->summers[d] != worker)
            dp_cache_keep_outdated(&planner->caches[worker], slice->rows[r].slot);
    }
    return add_gradients(planner, work, worker);
}

rt_status dp_planner_settle(dp_planner *planner, dp_work *work, const dp_work *next)
{
    if (!work->open)
        return RT_OK;
    work->open = false;
    if (!planner->config.dispatch.keeper && dp_eviction_keeps(planner->caches[0].eviction))
        return dp_planner_each_worker(planner, dp_planner_pool(planner), work, settle_worker);
    uint32_t count = (uint32_t)work->plan.hits.distinct;
    for (uint32_t d = 0; d < count; d++) {
        prefetch_copies(planner, work, d, count);
        if (dp_planner_is_summed(planner, work->trainers[d]))
            settle_key(planner, work, next, d);
    }
    return dp_planner_each_worker(planner, NULL, work, add_gradients);
}
