#include <string.h>

#include "edge_worker/executor/ew_executor_parts.h"

#define MESSAGES_MAX 256u // whose rows are read in one go

// Rows of the batch [first, first + count), which go into one message.
typedef struct {
    rt_message message;
    ew_slice_state *slice;
    uint32_t first, count;
} row_group;

static size_t header_bytes(const ew_executor *e)
{
    return e->config.bases ? sizeof(rt_wire_delta) : sizeof(rt_wire_row);
}

static void write_header(const ew_executor *e, const ew_node *n, uint8_t *record)
{
    const dp_slice_view *view = &ew_slice_of(e, n)->view;
    const uint64_t key = e->slots[n->slot].key;
    const rt_wire_row row = {key, n->version, view->push_reasons[n->index]};
    memcpy(record, &row, sizeof row);
}

static void write_delta_header(const ew_executor *e, const ew_node *n, uint8_t *record)
{
    const dp_slice_view *view = &ew_slice_of(e, n)->view;
    const rt_wire_delta delta = {.key = e->slots[n->slot].key,
                                 .version = view->delta_versions[n->index],
                                 .base = view->delta_bases[n->index],
                                 .pulls = view->delta_pulls[n->index]};
    memcpy(record, &delta, sizeof delta);
}

// first: of the nodes' rows in the batch.
static void capture_row_headers(ew_executor *e, ew_node *const *nodes, uint32_t count,
                                size_t record_bytes, uint8_t *payload, uint32_t first)
{
    for (uint32_t i = 0; i < count; i++) {
        uint8_t *record = payload + i * record_bytes;
        (e->config.bases ? write_delta_header : write_header)(e, nodes[i], record);
        e->batch_slots[first + i] = nodes[i]->slot;
        e->batch_rows[first + i] = (float *)(void *)(record + header_bytes(e));
    }
}

static uint8_t reason_of(const dp_slice_view *view, const ew_node *n)
{
    return n->kind == NODE_PUSH_DELTA ? view->delta_reasons[n->index]
                                      : view->push_reasons[n->index];
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

// The next message of the shard, but for its rows; nodes: room in the batch's.
static rt_status begin_group(ew_executor *e, uint32_t shard, ew_node **nodes, uint32_t room,
                             row_group *group)
{
    size_t record_bytes = header_bytes(e) + (e->config.values + e->config.state) * sizeof(float);
    uint32_t most = ew_records_per_message(e, record_bytes);
    group->count =
        take_group(e, &e->push_rows[shard], most < room ? most : room, nodes + group->first);
    group->slice = ew_slice_of(e, nodes[group->first]);
    rt_status status =
        ew_message_for(e, e->config.bases ? RT_MESSAGE_PUSH_DELTA : RT_MESSAGE_PUSH_ROW,
                       group->slice->sequence, group->count, record_bytes, &group->message);
    if (!status)
        capture_row_headers(e, nodes + group->first, group->count, record_bytes,
                            rt_message_payload(&group->message), group->first);
    return status;
}

// A copy whose change is pushed is of no use any more: it lacks the others'.
static rt_status end_group(ew_executor *e, uint32_t shard, ew_node **nodes, row_group *group)
{
    rt_status status = ew_outlet_put(&e->pushes[shard], &group->message);
    for (uint32_t i = group->first; i < group->first + group->count && !status; i++) {
        uint8_t reason = reason_of(&group->slice->view, nodes[i]);
        count_push(&group->slice->done, reason);
        if (reason == DP_REASON_EVICT || nodes[i]->kind == NODE_PUSH_DELTA)
            e->slots[nodes[i]->slot].full = false;
        ew_node_complete(e, group->slice, nodes[i]);
    }
    return status;
}

// Rows of many messages are read together: where slices alternate messages are small, and every
// read costs a device a launch and a wait.
static rt_status capture_batch(ew_executor *e, uint32_t shard)
{
    ew_node *nodes[EW_BATCH_MAX];
    row_group groups[MESSAGES_MAX];
    uint32_t group_count = 0, count = 0;
    rt_status status = RT_OK;
    while (!status && e->push_rows[shard].first && group_count < MESSAGES_MAX &&
           count < EW_BATCH_MAX) {
        row_group *group = &groups[group_count++];
        *group = (row_group){.first = count};
        status = begin_group(e, shard, nodes, EW_BATCH_MAX - count, group);
        count += group->count;
    }
    if (!status)
        e->config.rows->read(e->config.rows_context, e->batch_slots, count,
                             e->config.values + e->config.state, e->batch_rows);
    for (uint32_t i = 0; i < count && !status && e->config.bases; i++)
        ew_bases_subtract(e->config.bases, e->batch_slots[i], e->batch_rows[i]);
    for (uint32_t g = 0; g < group_count; g++) {
        if (!status)
            status = end_group(e, shard, nodes, &groups[g]);
        rt_message_release(&groups[g].message); // empty where it went
    }
    return status;
}

rt_status ew_capture_rows(ew_executor *e, uint32_t shard)
{
    rt_status status = RT_OK;
    while (!status && e->push_rows[shard].first)
        status = capture_batch(e, shard);
    return status;
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

static rt_status put_forgets(ew_executor *e, const ew_slice_state *slice, uint32_t shard)
{
    const dp_slice_view *view = &slice->view;
    const uint32_t most = ew_records_per_message(e, sizeof(rt_wire_pull));
    rt_message message = {0};
    uint32_t count = 0;
    for (uint32_t i = 0; i < view->counts.forget_count; i++) {
        if (view->forget_homes[i] != shard)
            continue;
        if (count == 0 && ew_message_for(e, RT_MESSAGE_FORGET, slice->sequence, most,
                                         sizeof(rt_wire_pull), &message))
            return RT_NO_MEMORY;
        const rt_wire_pull one = {view->forget_keys[i], view->forget_versions[i], 0};
        memcpy(rt_message_payload(&message) + count++ * sizeof one, &one, sizeof one);
        if (count < most)
            continue;
        if (ew_outlet_put(&e->pushes[shard], &message))
            return RT_NO_MEMORY;
        count = 0;
    }
    if (count == 0)
        return RT_OK;
    rt_message_finish(&message, count, count * sizeof(rt_wire_pull));
    return ew_outlet_put(&e->pushes[shard], &message);
}

rt_status ew_capture_forgets(ew_executor *e, const ew_slice_state *slice)
{
    rt_status status = RT_OK;
    if (slice->view.counts.forget_count == 0)
        return RT_OK;
    for (uint32_t s = 0; s < e->config.shard_count && !status; s++)
        status = put_forgets(e, slice, s);
    return status;
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
