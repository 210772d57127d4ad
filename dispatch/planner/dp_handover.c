#include "dispatch/planner/dp_handover.h"

#include "dispatch/planner/dp_homes.h"

// Ticks of the way by the PS: a push, and a pull of what was pushed.
static int64_t by_server(const dp_planner *planner, const dp_record *record, uint32_t from,
                         uint32_t to)
{
    const dp_ticks *ticks = &planner->ticks;
    const uint32_t field = rt_key_field(record->key);
    if (!ticks->box_count)
        return (int64_t)ticks->push[field][from] + ticks->pull[field][to];
    const uint32_t box = dp_homes_box(planner, record, true);
    return (int64_t)dp_box_push(ticks, field, box, from) + dp_box_pull(ticks, field, box, to);
}

// Of the one transfer: the slower of the two links sets its pace.
static int64_t directly(const dp_planner *planner, const dp_record *record, uint32_t from,
                        uint32_t to)
{
    const dp_ticks *ticks = &planner->ticks;
    const uint32_t field = rt_key_field(record->key);
    if (ticks->box_count && ticks->box_of[from] == ticks->box_of[to])
        return 0;
    return dp_box_slower(ticks->push[field][from], ticks->pull[field][to]);
}

bool dp_handover_is_better(const dp_planner *planner, const dp_record *record, uint64_t trainers)
{
    const uint64_t holders = record->copies.holders;
    if (!planner->config.dispatch.hand_over || record->version_ps == record->version ||
        !rt_bits_one(trainers) || trainers == holders || dp_planner_sums_all(planner))
        return false;
    const uint32_t from = rt_lowest_bit(holders), to = rt_lowest_bit(trainers);
    return directly(planner, record, from, to) < by_server(planner, record, from, to);
}

rt_status dp_handover_send(dp_planner *planner, uint32_t d, const dp_record *record)
{
    dp_work *work = &planner->work;
    const uint32_t from = rt_lowest_bit(record->copies.holders);
    dp_op *op = dp_ops_add(&work->plan.slices[from].release, DP_OP_SEND);
    if (!op)
        return RT_NO_MEMORY;
    op->key = record->key;
    op->slot = dp_cache_slot(planner->own.caches, from, &record->copies);
    op->version = record->version;
    op->peer = (uint8_t)rt_lowest_bit(work->trainers[d]);
    op->flags = DP_OP_STATE;
    work->senders[d] = (uint8_t)from;
    return RT_OK;
}

void dp_handover_receive(const dp_planner *planner, uint32_t d, dp_op *op)
{
    op->kind = DP_OP_RECV;
    op->peer = planner->work.senders[d];
}
