#include "dispatch/planner/dp_sweep.h"

#include "dispatch/planner/dp_planner_parts.h"

#define STEPS 8u // of rows.expire_iterations, from one sweep to the next

// ---- the floor -------------------------------------------------------------------------------

typedef struct {
    uint32_t floor;
    bool found;
} older;

static void find_older(void *context, uint32_t age)
{
    older *o = context;
    o->found |= age < o->floor;
}

// By age: of the configuration, or of a record for the next look-up.
static uint32_t floor_by_age(const dp_planner *planner)
{
    const uint32_t limit = planner->config.rows.expire_iterations;
    const uint32_t every = (uint32_t)rt_max_u64(limit / STEPS, 1);
    uint32_t floor = 0;
    if (limit && planner->iteration > limit && planner->iteration % every == 0)
        floor = planner->iteration - limit + 1;
    for (uint32_t i = 0; i < planner->inputs.waiting_count; i++) {
        const dp_input *input = &planner->inputs.waiting[i];
        if (input->kind == DP_INPUT_ROWS_FLOOR && input->iteration <= planner->iteration + 1)
            floor = (uint32_t)rt_max_u64(floor, (uint64_t)input->value);
    }
    return floor;
}

// Keys that records of the next look-up name and that are there. keys may be NULL.
static uint32_t list_forgotten(const dp_planner *planner, uint64_t *keys)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < planner->inputs.waiting_count; i++) {
        const dp_input *input = &planner->inputs.waiting[i];
        if (input->kind != DP_INPUT_FORGET || input->iteration > planner->iteration + 1 ||
            !dp_directory_knows(&planner->directory, dp_input_key(input)))
            continue;
        bool is_new = true;
        for (uint32_t k = 0; keys && k < count; k++)
            is_new &= keys[k] != dp_input_key(input);
        if (keys && is_new)
            keys[count] = dp_input_key(input);
        count += is_new;
    }
    return count;
}

bool dp_sweep_due(const dp_planner *planner, uint32_t *floor_p)
{
    const dp_rows *rows = &planner->config.rows;
    const uint64_t keys = planner->directory.key_count;
    uint64_t floor = floor_by_age(planner);
    if (rows->max && keys > rows->max)
        floor = rt_max_u64(floor, dp_directory_newest(&planner->directory, rows->max / 8 * 7 + 1) +
                                      UINT64_C(1));
    older o = {.floor = (uint32_t)rt_min_u64(floor, planner->iteration)};
    if (o.floor)
        dp_directory_walk(&planner->directory, find_older, &o);
    *floor_p = o.found ? o.floor : 0;
    return o.found || list_forgotten(planner, NULL) > 0;
}

const uint64_t *dp_sweep_forgotten(const dp_planner *planner, uint32_t *count_p)
{
    *count_p = planner->swept.forgotten_count;
    return planner->swept.forgotten;
}

// ---- the sweep -------------------------------------------------------------------------------

static rt_status drop_copy(dp_planner *planner, dp_plan *plan, uint32_t worker, uint32_t slot,
                           dp_record *record)
{
    dp_op *op = dp_ops_add(&plan->slices[worker].release, DP_OP_DROP);
    if (!op)
        return RT_NO_MEMORY;
    op->key = record->key;
    op->slot = slot;
    op->version = record->version;
    // what only this copy had ends with it, also of a stale one that was never pushed
    record->version = record->version_ps = dp_directory_age(&planner->directory, record);
    return RT_OK;
}

static bool ends(const dp_planner *planner, const dp_record *record, uint32_t floor)
{
    bool is_forgotten = false;
    for (uint32_t i = 0; i < planner->swept.forgotten_count && !is_forgotten; i++)
        is_forgotten = planner->swept.forgotten[i] == record->key;
    return is_forgotten || dp_directory_age(&planner->directory, record) < floor;
}

// Copies in one of the two sets of caches; only those of the workers are in the plan. A free slot
// still names its last record, which then has no copy in it.
static rt_status drop_below(dp_planner *planner, const dp_cache_set *set, uint32_t worker,
                            uint32_t floor, dp_plan *plan)
{
    const dp_cache *cache = &set->caches[worker];
    for (uint32_t slot = 0; slot < cache->slot_count; slot++) {
        const uint32_t index = cache->slots[slot].record;
        if (index >= planner->directory.record_top)
            continue;
        dp_record *record = &planner->directory.records[index];
        dp_copies *copies = dp_planner_copies(planner, set, index);
        if (!ends(planner, record, floor) || dp_cache_slot(set->caches, worker, copies) != slot)
            continue;
        if (set == &planner->own && copies->holders >> worker & 1 &&
            drop_copy(planner, plan, worker, slot, record))
            return RT_NO_MEMORY;
        dp_cache_drop(set->caches, worker, copies);
        dp_planner_release(planner, index);
    }
    return RT_OK;
}

// Bounded staleness: the shards know the versions of pushes, not of trainings since. Pushed, a row
// that stays has the version of its last; one that ends has an older one, and what its copies have
// ends with it.
static rt_status flush_stale(dp_planner *planner, uint32_t floor, dp_plan *plan)
{
    for (uint32_t w = 0; w < planner->config.worker_count; w++) {
        for (uint32_t slot = 0; slot < planner->own.caches[w].slot_count; slot++) {
            const dp_record *record = dp_planner_dirty_in(planner, w, slot);
            if (record && !ends(planner, record, floor) && dp_stale_flush(planner, plan, w, slot))
                return RT_NO_MEMORY;
        }
    }
    return RT_OK;
}

rt_status dp_sweep(dp_planner *planner, uint32_t floor, const dp_plan **plan_p, uint64_t *ended_p)
{
    dp_plan *plan = &planner->work.plan;
    rt_assert(floor <= planner->iteration);
    dp_plan_clear(plan);
    plan->participants = planner->participants;
    planner->swept.forgotten_count = list_forgotten(planner, planner->swept.forgotten);
    if (dp_planner_catch_up(planner, plan, DP_REASON_EVICT) ||
        (planner->stale && flush_stale(planner, floor, plan)))
        return RT_NO_MEMORY;
    for (uint32_t w = 0; w < planner->config.worker_count; w++) {
        if (drop_below(planner, &planner->own, w, floor, plan) ||
            (planner->viewed.caches && drop_below(planner, &planner->viewed, w, floor, plan)))
            return RT_NO_MEMORY;
    }
    planner->swept.floor = (uint32_t)rt_max_u64(planner->swept.floor, floor);
    for (uint32_t i = 0; i < planner->swept.forgotten_count; i++)
        dp_directory_erase(&planner->directory, planner->swept.forgotten[i]);
    *ended_p =
        planner->swept.forgotten_count + dp_directory_erase_below(&planner->directory, floor);
    *plan_p = plan;
    return RT_OK;
}
