#include <string.h>

#include "edge_worker/executor/ew_executor_parts.h"

static void capture_row_headers(ew_executor *e, ew_node *const *nodes, uint32_t count,
                                size_t record_bytes, uint8_t *payload)
{
    for (uint32_t i = 0; i < count; i++) {
        uint8_t *record = payload + i * record_bytes;
        const dp_slice_view *view = &ew_slice_of(e, nodes[i])->view;
        rt_wire_row header = {e->slots[nodes[i]->slot].key, nodes[i]->version,
                              view->push_reasons[nodes[i]->index]};
        memcpy(record, &header, sizeof header);
        e->batch_slots[i] = nodes[i]->slot;
        e->batch_rows[i] = (float *)(void *)(record + sizeof header);
    }
}

static void count_push(rt_counts *done, uint8_t reason)
{
    done->update_push += reason == DP_REASON_UPDATE;
    done->evict_push += reason == DP_REASON_EVICT;
    done->flush_push += reason == DP_REASON_FLUSH;
}

// Up to one message of rows of one slice. The nodes stay in the list of the slice.
static uint32_t take_group(ew_executor *e, ew_node_list *list, uint32_t most, ew_node **group)
{
    uint32_t count = 0;
    const ew_slice_state *slice = ew_slice_of(e, list->first);
    while (list->first && count < most && ew_slice_of(e, list->first) == slice)
        group[count++] = ew_node_list_take(list);
    return count;
}

rt_status ew_capture_rows(ew_executor *e, uint32_t shard)
{
    ew_node *group[EW_BATCH_MAX];
    uint32_t floats = e->config.values + e->config.state;
    size_t record_bytes = sizeof(rt_wire_row) + floats * sizeof(float);
    while (e->push_rows[shard].first) {
        rt_message message;
        uint32_t count =
            take_group(e, &e->push_rows[shard], ew_records_per_message(e, record_bytes), group);
        ew_slice_state *slice = ew_slice_of(e, group[0]);
        rt_status status =
            ew_message_for(e, RT_MESSAGE_PUSH_ROW, slice->sequence, count, record_bytes, &message);
        if (status)
            return status;
        capture_row_headers(e, group, count, record_bytes, rt_message_payload(&message));
        e->config.rows->read(e->config.rows_context, e->batch_slots, count, floats, e->batch_rows);
        status = ew_outlet_put(&e->pushes[shard], &message);
        if (status)
            return status;
        for (uint32_t i = 0; i < count; i++) {
            uint8_t reason = slice->view.push_reasons[group[i]->index];
            count_push(&slice->done, reason);
            if (reason == DP_REASON_EVICT)
                e->slots[group[i]->slot].full = false;
            ew_node_complete(e, slice, group[i]);
        }
    }
    return RT_OK;
}

rt_status ew_capture_gradients(ew_executor *e, uint32_t shard)
{
    ew_node *group[EW_BATCH_MAX];
    uint32_t values = e->config.values;
    size_t record_bytes = sizeof(rt_wire_grad) + values * sizeof(float);
    while (e->push_grads[shard].first) {
        rt_message message;
        uint32_t count =
            take_group(e, &e->push_grads[shard], ew_records_per_message(e, record_bytes), group);
        ew_slice_state *slice = ew_slice_of(e, group[0]);
        const dp_slice_view *view = &slice->view;
        rt_status status = ew_message_for(e, RT_MESSAGE_PUSH_GRAD, view->counts.iteration, count,
                                          record_bytes, &message);
        if (status)
            return status;
        for (uint32_t i = 0; i < count; i++) {
            uint8_t *record = rt_message_payload(&message) + i * record_bytes;
            uint32_t at = group[i]->index, row = view->grad_rows[at];
            uint32_t keeper = view->grad_keepers[at];
            if (keeper == DP_NO_KEEPER)
                keeper = e->apply ? RT_WIRE_NO_KEEPER : RT_WIRE_NO_STEP;
            rt_wire_grad header = {e->slots[group[i]->slot].key, view->grad_masks[at],
                                   view->grad_bases[at], keeper};
            memcpy(record, &header, sizeof header);
            memcpy(record + sizeof header, e->gradients + (size_t)row * values,
                   values * sizeof(float));
        }
        status = ew_outlet_put(&e->pushes[shard], &message);
        if (status)
            return status;
        for (uint32_t i = 0; i < count; i++) {
            e->slots[group[i]->slot].full = false; // outdated by the others' gradients
            ew_node_complete(e, slice, group[i]);
        }
        slice->done.grad_push += count;
    }
    return RT_OK;
}

rt_status ew_keep_gradient(ew_executor *e, const ew_slice_state *slice, const ew_node *n)
{
    rt_status status =
        rt_grow(&e->kept, &e->kept_capacity, (uint64_t)e->kept_count + 1, sizeof *e->kept);
    if (status)
        return status;
    ew_kept *own = &e->kept[e->kept_count];
    if (!own->gradient)
        own->gradient = rt_alloc(e->config.values, sizeof(float));
    if (!own->gradient)
        return RT_NO_MEMORY;
    own->slot = n->slot;
    own->apply = e->apply;
    e->slots[n->slot].kept = e->kept_count;
    e->slots[n->slot].keeps = true;
    memcpy(own->gradient, e->gradients + (size_t)slice->view.keep_rows[n->index] * e->config.values,
           e->config.values * sizeof(float));
    e->kept_count++;
    return RT_OK;
}
