#include "dispatch/planner/dp_expire.h"

void dp_expire_note(dp_planner *planner)
{
    const dp_work *work = &planner->work;
    if (!dp_expire_is_on(planner))
        return;
    planner->expired.iteration = planner->iteration;
    for (uint32_t d = 0; d < planner->view.distinct_count; d++) {
        const dp_record *record = &planner->directory.records[work->distinct[d].record];
        if (planner->preview.next_use[d] == 0 &&
            (record->copies.holders || record->viewed.first != DP_NO_COPY))
            planner->expired.records[planner->expired.count++] = work->distinct[d].record;
    }
}

// Decisions do not see it any longer either.
static void hide(dp_planner *planner, dp_record *record)
{
    while (record->viewed.first != DP_NO_COPY)
        dp_cache_drop(planner->viewed.caches, dp_copy_worker(record->viewed.first),
                      &record->viewed);
}

static rt_status expire_row(dp_planner *planner, dp_plan *plan, uint32_t index, dp_reason reason)
{
    dp_record *record = &planner->directory.records[index];
    if (record->seen > planner->expired.iteration) // a batch that was not shown has it after all
        return RT_OK;
    hide(planner, record);
    if (record->copies.holders) {
        const uint32_t worker = rt_lowest_bit(record->copies.holders);
        const uint32_t slot = dp_cache_slot(planner->own.caches, worker, &record->copies);
        if (dp_planner_give_up(planner, plan, worker, slot, record, reason))
            return RT_NO_MEMORY;
        dp_cache_drop(planner->own.caches, worker, &record->copies);
    }
    dp_planner_release(planner, index);
    return RT_OK;
}

rt_status dp_expire(dp_planner *planner, dp_plan *plan, dp_reason reason)
{
    for (uint32_t i = 0; i < planner->expired.count; i++) {
        if (expire_row(planner, plan, planner->expired.records[i], reason))
            return RT_NO_MEMORY;
    }
    planner->expired.count = 0;
    return RT_OK;
}
