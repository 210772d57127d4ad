#include "dispatch/planner/dp_stale.h"

#include "dispatch/cost/dp_ticks.h"
#include "dispatch/planner/dp_planner_parts.h"

rt_status dp_stale_create(uint32_t staleness, uint32_t worker_count, const uint32_t *slot_count,
                          uint64_t lookup_count_max, dp_stale **stale_p)
{
    dp_stale *stale = rt_alloc(1, sizeof *stale);
    if (!stale)
        return RT_NO_MEMORY;
    stale->staleness = staleness;
    stale->owed = rt_alloc(lookup_count_max, sizeof *stale->owed);
    stale->lowest = rt_alloc(lookup_count_max, sizeof *stale->lowest);
    stale->highest = rt_alloc(lookup_count_max, sizeof *stale->highest);
    bool complete = stale->owed && stale->lowest && stale->highest;
    for (uint32_t w = 0; w < worker_count && complete; w++) {
        stale->copies[w] = rt_alloc(slot_count[w], sizeof *stale->copies[w]);
        complete = stale->copies[w] != NULL;
    }
    if (!complete) {
        dp_stale_destroy(stale);
        return RT_NO_MEMORY;
    }
    *stale_p = stale;
    return RT_OK;
}

void dp_stale_destroy(dp_stale *stale)
{
    if (!stale)
        return;
    for (uint32_t w = 0; w < RT_WORKERS_MAX; w++)
        rt_free(stale->copies[w]);
    rt_free(stale->owed);
    rt_free(stale->lowest);
    rt_free(stale->highest);
    rt_free(stale);
}

void dp_stale_spend(dp_stale *stale, uint32_t worker, uint32_t slot_count)
{
    for (uint32_t slot = 0; slot < slot_count; slot++)
        stale->copies[worker][slot] = (dp_stale_copy){.spent = true};
}

// ---- clocks ----------------------------------------------------------------------------------

// Condition (1) of CheckValid, for which no server is asked.
static bool is_young(const dp_stale *stale, const dp_stale_copy *copy)
{
    return !copy->spent && copy->current <= (uint64_t)copy->start + stale->staleness;
}

static bool is_valid(const dp_stale *stale, const dp_stale_copy *copy, uint32_t clock)
{
    return is_young(stale, copy) && clock <= (uint64_t)copy->current + stale->staleness;
}

uint64_t dp_stale_holders(const dp_planner *planner, uint32_t record, uint64_t *owed_p)
{
    const dp_stale *stale = planner->stale;
    const dp_copies *copies = &planner->directory.records[record].copies;
    uint64_t holders = 0, owed = 0;
    for (uint32_t at = copies->first; at != DP_NO_COPY;) {
        const uint32_t worker = dp_copy_worker(at), slot = dp_copy_slot(at);
        const dp_stale_copy *copy = &stale->copies[worker][slot];
        if (is_valid(stale, copy, copies->clock))
            holders |= rt_bit(worker);
        else if (!copy->spent)
            owed |= rt_bit(worker);
        at = planner->own.caches[worker].slots[slot].next_copy;
    }
    *owed_p = owed;
    return holders;
}

// ---- operations ------------------------------------------------------------------------------

// A flush does not make a row younger: what it pushes was trained after the flush before, so files
// of changes have it by the iteration of that training, too.
static rt_status push_delta(dp_planner *planner, dp_ops *ops, uint32_t worker, uint32_t slot,
                            dp_record *record, dp_reason reason)
{
    const dp_stale_copy *copy = &planner->stale->copies[worker][slot];
    const uint32_t least = reason == DP_REASON_FLUSH ? copy->version : planner->iteration;
    dp_op *op = dp_ops_add(ops, DP_OP_PUSH_DELTA);
    if (!op)
        return RT_NO_MEMORY;
    rt_assert(!copy->spent && copy->current > copy->start && record->version < UINT32_MAX);
    op->key = record->key;
    op->slot = slot;
    op->mask = copy->version;
    op->base = record->version;
    op->version = (uint32_t)rt_max_u64((uint64_t)record->version + 1, least);
    op->pulls = record->pulls;
    op->reason = (uint8_t)reason;
    op->flags = DP_OP_STATE;
    record->version = record->version_ps = op->version;
    record->pulls = 0;
    record->copies.clock = (uint32_t)rt_max_u64(record->copies.clock, copy->current);
    return RT_OK;
}

rt_status dp_stale_flush(dp_planner *planner, dp_plan *plan, uint32_t worker, uint32_t slot)
{
    dp_record *record = &planner->directory.records[planner->own.caches[worker].slots[slot].record];
    rt_status status =
        push_delta(planner, &plan->slices[worker].release, worker, slot, record, DP_REASON_FLUSH);
    planner->stale->copies[worker][slot].spent = true;
    return status;
}

// ---- read ------------------------------------------------------------------------------------

// Clocks of two reads of a row in one iteration.
static void note_read(dp_planner *planner, uint32_t d, uint32_t clock)
{
    dp_work *work = &planner->work;
    dp_stale *stale = planner->stale;
    if (stale->highest[d] < stale->lowest[d]) // the first
        stale->lowest[d] = stale->highest[d] = clock;
    stale->lowest[d] = (uint32_t)rt_min_u64(stale->lowest[d], clock);
    stale->highest[d] = (uint32_t)rt_max_u64(stale->highest[d], clock);
    const uint32_t spread = stale->highest[d] - stale->lowest[d];
    rt_assert(spread <= 2 * (uint64_t)stale->staleness + 1);
    work->plan.clocks.clock_spread = rt_max_u64(work->plan.clocks.clock_spread, spread);
}

// A copy that is there: read as it is, or pushed, to be pulled again.
static rt_status check_row(dp_planner *planner, uint32_t worker, uint32_t row, uint32_t slot)
{
    dp_work *work = &planner->work;
    const dp_stale *stale = planner->stale;
    const uint32_t d = work->row_keys[worker][row];
    dp_slice *slice = &work->plan.slices[worker];
    dp_record *record = &planner->directory.records[work->distinct[d].record];
    const dp_stale_copy *copy = &stale->copies[worker][slot];
    const uint32_t clock = record->copies.clock;
    slice->rows[row].slot = slot;
    dp_eviction_use(planner->own.caches[worker].eviction, slot, planner->iteration);
    work->plan.clocks.clock_messages += is_young(stale, copy);
    if (is_valid(stale, copy, clock)) {
        // Lemma 1: of two that are read at this clock, each is within s of it.
        rt_assert(copy->current <= (uint64_t)clock + stale->staleness);
        slice->rows[row].version = copy->version;
        work->fills[worker][row] = false;
        work->plan.hits.keys_hit++;
        note_read(planner, d, copy->current);
        return RT_OK;
    }
    work->plan.clocks.stale_keys++;
    if (copy->spent)
        return RT_OK;
    return push_delta(planner, &slice->release, worker, slot, record, DP_REASON_UPDATE);
}

static rt_status check_rows(dp_planner *planner, uint32_t worker)
{
    dp_work *work = &planner->work;
    dp_slice *slice = &work->plan.slices[worker];
    for (uint32_t r = 0; r < slice->row_count; r++) {
        const uint32_t d = work->row_keys[worker][r];
        const dp_record *record = &planner->directory.records[work->distinct[d].record];
        slice->rows[r] = (dp_row){DP_NO_SLOT, 0, DP_MODE_OWN};
        work->fills[worker][r] = true;
        if (!(record->copies.holders >> worker & 1))
            continue;
        const uint32_t slot = dp_cache_slot(planner->own.caches, worker, &record->copies);
        if (check_row(planner, worker, r, slot))
            return RT_NO_MEMORY;
    }
    return RT_OK;
}

static uint32_t take_slot(dp_planner *planner, uint32_t worker, dp_record *record, uint32_t index)
{
    dp_cache *cache = &planner->own.caches[worker];
    const uint32_t slot = dp_cache_fill(cache, &record->copies, index, planner->iteration);
    if (planner->by_bytes)
        dp_eviction_weigh(cache->eviction, slot,
                          dp_row_bytes(&planner->config.layout, rt_key_field(record->key), true));
    return slot;
}

static rt_status pull_row(dp_planner *planner, uint32_t worker, uint32_t row)
{
    dp_work *work = &planner->work;
    dp_slice *slice = &work->plan.slices[worker];
    const uint32_t d = work->row_keys[worker][row], index = work->distinct[d].record;
    dp_record *record = &planner->directory.records[index];
    const bool local =
        record->version == 0 && planner->config.dispatch.first_touch == RT_FIRST_TOUCH_LOCAL;
    dp_op *op = dp_ops_add(&slice->fill, local ? DP_OP_INIT : DP_OP_PULL);
    if (!op)
        return RT_NO_MEMORY;
    if (slice->rows[row].slot == DP_NO_SLOT)
        slice->rows[row].slot = take_slot(planner, worker, record, index);
    slice->rows[row].version = record->version;
    op->key = record->key;
    op->slot = slice->rows[row].slot;
    op->version = record->version;
    op->flags = DP_OP_STATE;
    record->pulls = (uint8_t)(record->pulls + !local);
    planner->stale->copies[worker][op->slot] =
        (dp_stale_copy){record->copies.clock, record->copies.clock, record->version, false};
    note_read(planner, d, record->copies.clock);
    return RT_OK;
}

static rt_status pull_rows(dp_planner *planner, uint32_t worker)
{
    dp_work *work = &planner->work;
    for (uint32_t r = 0; r < work->plan.slices[worker].row_count; r++) {
        if (work->fills[worker][r] && pull_row(planner, worker, r))
            return RT_NO_MEMORY;
    }
    return RT_OK;
}

static rt_status read_rows(dp_planner *planner)
{
    dp_work *work = &planner->work;
    dp_stale *stale = planner->stale;
    for (uint32_t d = 0; d < planner->view.distinct_count; d++) {
        stale->lowest[d] = 1; // above highest: not read yet
        stale->highest[d] = 0;
    }
    for (uint32_t w = 0; w < work->plan.worker_count; w++) {
        if (check_rows(planner, w))
            return RT_NO_MEMORY;
    }
    for (uint32_t w = 0; w < work->plan.worker_count; w++) {
        if (pull_rows(planner, w))
            return RT_NO_MEMORY;
    }
    return RT_OK;
}

// ---- train, trim -----------------------------------------------------------------------------

static void train_rows(dp_planner *planner, uint32_t worker)
{
    dp_work *work = &planner->work;
    const dp_slice *slice = &work->plan.slices[worker];
    for (uint32_t r = 0; r < slice->row_count; r++) {
        dp_stale_copy *copy = &planner->stale->copies[worker][slice->rows[r].slot];
        copy->current++;
        copy->version = planner->iteration;
    }
    for (uint32_t at = 0; at < slice->lookup_count; at++)
        work->plan.hits.lookups_hit += !work->fills[worker][slice->lookup_rows[at]];
}

static rt_status evict(dp_planner *planner, dp_plan *plan, uint32_t worker)
{
    dp_cache *cache = &planner->own.caches[worker];
    // The rows of this iteration may go too: it is over.
    const uint32_t slot = dp_eviction_victim(cache->eviction, planner->iteration + 1);
    rt_assert(slot != DP_NO_SLOT);
    const uint32_t index = cache->slots[slot].record;
    dp_record *record = &planner->directory.records[index];
    if (!planner->stale->copies[worker][slot].spent &&
        push_delta(planner, &plan->slices[worker].after, worker, slot, record, DP_REASON_EVICT))
        return RT_NO_MEMORY;
    dp_cache_drop(planner->own.caches, worker, &record->copies);
    if (record->copies.first == DP_NO_COPY)
        record->copies.clock = 0;
    dp_planner_release(planner, index);
    return RT_OK;
}

rt_status dp_stale_plan(dp_planner *planner)
{
    dp_work *work = &planner->work;
    if (read_rows(planner))
        return RT_NO_MEMORY;
    for (uint32_t w = 0; w < work->plan.worker_count; w++)
        train_rows(planner, w);
    for (uint32_t w = 0; w < work->plan.worker_count; w++) {
        const uint32_t limit = planner->config.slot_count[w] - planner->config.overshoot;
        while (planner->own.caches[w].occupied > limit) {
            if (evict(planner, &work->plan, w))
                return RT_NO_MEMORY;
        }
    }
    return RT_OK;
}
