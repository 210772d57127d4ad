#include "edge_worker/executor/ew_executor_parts.h"

#include <inttypes.h>
#include <stdio.h>

rt_status ew_message_for(const ew_executor *e, rt_message_type type, uint64_t iteration,
                         uint32_t count, size_t record_bytes, rt_message *message)
{
    rt_status status = rt_message_create(message, type, rt_peer(RT_ROLE_WORKER, e->config.rank),
                                         iteration, count, count * record_bytes);
    if (!status)
        rt_message_header(message)->epoch = e->config.epoch;
    return status;
}

uint32_t ew_records_per_message(const ew_executor *e, size_t record_bytes)
{
    uint64_t fit = e->config.message_bytes / record_bytes;
    return (uint32_t)rt_max_u64(1, rt_min_u64(fit, EW_BATCH_MAX));
}

const char *ew_partner_name(const ew_executor *e, uint32_t partner, char text[32])
{
    const uint32_t shards = e->config.shard_count;
    if (partner >= shards)
        return rt_peer_name(rt_peer(RT_ROLE_WORKER, partner - shards), text);
    snprintf(text, 32, "PS shard %" PRIu32, partner);
    return text;
}

void ew_node_complete(ew_executor *e, ew_slice_state *slice, ew_node *n)
{
    ew_slot_state *slot = &e->slots[n->slot];
    rt_assert(slice->sequence > 0 && slice->nodes_left > 0);
    rt_assert(slot->tail == n || n->next);
    slice->nodes_left--;
    if (slot->tail == n)
        slot->tail = NULL;
    else
        ew_node_list_add(&e->ready, n->next);
}
