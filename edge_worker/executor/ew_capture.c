#include <string.h>

#include "edge_worker/executor/ew_executor_parts.h"

#define MESSAGES_MAX 256u // whose rows are read in one go

// Rows of the batch [first, first + count), which go into one message.
typedef struct {
    rt_message message;
    ew_slice_state *slice;
    uint32_t first, count;
    bool whole; // rows travel rounded: these do not
} row_group;

static size_t header_bytes(const ew_executor *e)
{
    return e->config.bases ? sizeof(rt_wire_delta) : sizeof(rt_wire_row);
}

static bool is_change(const ew_executor *e, const row_group *group)
{
    return e->config.codes && !group->whole;
}

static uint32_t record_words(const ew_executor *e, const row_group *group)
{
    return (is_change(e, group) ? e->config.codes->words : e->config.values) + e->config.state;
}

static void write_header(const ew_executor *e, const ew_node *n, uint8_t *record)
{
    const dp_slice_view *view = &ew_slice_of(e, n)->view;
    const uint64_t key = e->slots[n->slot].key;
    const rt_wire_row row = {key, n->version,
                             view->push_reasons[n->index] & ~(uint32_t)DP_PUSH_WHOLE};
    memcpy(record, &row, sizeof row);
}

static void write_change_header(const ew_executor *e, const ew_node *n, uint8_t *record)
{
    const rt_wire_change change = {e->slots[n->slot].key, n->version,
                                   e->config.codes->versions[n->slot]};
    memcpy(record, &change, sizeof change);
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

// Rows are read into their place in the message, or, to be rounded, beside it.
static void capture_row_headers(ew_executor *e, const row_group *group, ew_node *const *nodes)
{
    const size_t record_bytes = header_bytes(e) + record_words(e, group) * sizeof(float);
    const bool change = is_change(e, group);
    for (uint32_t i = 0; i < group->count; i++) {
        const uint32_t at = group->first + i;
        uint8_t *record = rt_message_payload(&group->message) + i * record_bytes;
        if (e->config.bases)
            write_delta_header(e, nodes[at], record);
        else
            (change ? write_change_header : write_header)(e, nodes[at], record);
        e->batch_slots[at] = nodes[at]->slot;
        e->batch_rows[at] =
            change ? ew_batch_row(e, at) : (float *)(void *)(record + header_bytes(e));
    }
}

// What has changed of the rows that were read goes into the message; their state as it is.
static void encode_changes(ew_executor *e, const row_group *group)
{
    const uint32_t words = record_words(e, group), state = e->config.state;
    const size_t record_bytes = header_bytes(e) + words * sizeof(float);
    for (uint32_t i = 0; i < group->count; i++) {
        const uint32_t slot = e->batch_slots[group->first + i];
        float *row = ew_batch_row(e, group->first + i);
        uint8_t *out = rt_message_payload(&group->message) + i * record_bytes + header_bytes(e);
        if (e->config.bases) // it is the change already
            rt_coding_pack(e->config.codes->coding, row, e->config.values, out);
        else
            ew_codes_change(e->config.codes, slot, e->slots[slot].key, row, out);
        memcpy(out + (words - state) * sizeof(float), row + e->config.values,
               state * sizeof(float));
    }
}

// The copies of rows that went whole become what others get of them.
static void round_copies(ew_executor *e, const row_group *group, ew_node *const *nodes)
{
    const float *rows[EW_BATCH_CODED];
    for (uint32_t i = 0; i < group->count; i++) {
        const uint32_t at = group->first + i, slot = e->batch_slots[at];
        float *row = ew_batch_row(e, at);
        memcpy(row, e->batch_rows[at], e->config.values * sizeof *row);
        ew_codes_round(e->config.codes, slot, nodes[at]->version, row);
        rows[i] = row;
    }
    e->config.rows->write(e->config.rows_context, e->batch_slots + group->first, group->count,
                          e->config.values, rows);
}

static uint8_t reason_of(const dp_slice_view *view, const ew_node *n)
{
    return n->kind == NODE_PUSH_DELTA ? view->delta_reasons[n->index]
                                      : view->push_reasons[n->index] & (uint8_t)~DP_PUSH_WHOLE;
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

// The next message of a list, but for its rows; nodes: room in the batch's.
static rt_status begin_group(ew_executor *e, uint32_t partner, ew_node_list *list, ew_node **nodes,
                             uint32_t room, row_group *group)
{
    const size_t record_bytes = header_bytes(e) + record_words(e, group) * sizeof(float);
    const bool coded = is_change(e, group);
    const rt_message_type whole = e->config.bases ? RT_MESSAGE_PUSH_DELTA : RT_MESSAGE_PUSH_ROW;
    const rt_message_type change =
        e->config.bases ? RT_MESSAGE_PUSH_DELTA_CODED : RT_MESSAGE_PUSH_CHANGE;
    const rt_message_type type = partner >= e->config.shard_count ? RT_MESSAGE_HANDED
                                 : coded                          ? change
                                                                  : whole;
    uint32_t most = ew_records_per_message(e, record_bytes);
    group->count = take_group(e, list, most < room ? most : room, nodes + group->first);
    group->slice = ew_slice_of(e, nodes[group->first]);
    rt_status status = ew_message_for(e, type, group->slice->sequence, group->count, record_bytes,
                                      &group->message);
    if (!status)
        capture_row_headers(e, group, nodes);
    return status;
}

// A copy whose change is pushed is of no use any more: it lacks the others'. One that is handed over
// is given up.
static rt_status end_group(ew_executor *e, uint32_t partner, ew_node **nodes, row_group *group)
{
    const bool is_handed = partner >= e->config.shard_count;
    rt_status status = ew_outlet_put(&e->pushes[partner], &group->message);
    for (uint32_t i = group->first; i < group->first + group->count && !status; i++) {
        uint8_t reason = reason_of(&group->slice->view, nodes[i]);
        if (!is_handed)
            count_push(&group->slice->done, reason);
        if (reason == DP_REASON_EVICT || nodes[i]->kind == NODE_PUSH_DELTA || is_handed)
            e->slots[nodes[i]->slot].full = false;
        ew_node_complete(e, group->slice, nodes[i]);
    }
    return status;
}

// Rows of many messages are read together: where slices alternate messages are small, and every
// read costs a device a launch and a wait.
static rt_status capture_batch(ew_executor *e, uint32_t partner, ew_node_list *list)
{
    ew_node *nodes[EW_BATCH_MAX];
    row_group groups[MESSAGES_MAX];
    uint32_t group_count = 0, count = 0;
    rt_status status = RT_OK;
    while (!status && list->first && group_count < MESSAGES_MAX &&
           count < ew_batch_max(e)) {
        row_group *group = &groups[group_count++];
        *group = (row_group){.first = count, .whole = list == &e->push_whole[partner]};
        status = begin_group(e, partner, list, nodes, ew_batch_max(e) - count, group);
        count += group->count;
    }
    if (!status)
        e->config.rows->read(e->config.rows_context, e->batch_slots, count,
                             e->config.values + e->config.state, e->batch_rows);
    for (uint32_t i = 0; i < count && !status && e->config.bases; i++)
        ew_bases_subtract(e->config.bases, e->batch_slots[i], e->batch_rows[i]);
    for (uint32_t g = 0; g < group_count && !status && e->config.codes; g++) {
        if (groups[g].whole)
            round_copies(e, &groups[g], nodes);
        else
            encode_changes(e, &groups[g]);
    }
    for (uint32_t g = 0; g < group_count; g++) {
        if (!status)
            status = end_group(e, partner, nodes, &groups[g]);
        rt_message_release(&groups[g].message); // empty where it went
    }
    return status;
}

rt_status ew_capture_rows(ew_executor *e, uint32_t partner)
{
    rt_status status = RT_OK;
    while (!status && e->push_rows[partner].first)
        status = capture_batch(e, partner, &e->push_rows[partner]);
    while (!status && e->push_whole[partner].first)
        status = capture_batch(e, partner, &e->push_whole[partner]);
    return status;
}

rt_status ew_capture_gradients(ew_executor *e, uint32_t partner)
{
    ew_node *group[EW_BATCH_MAX];
    uint32_t values = e->config.values;
    const ew_codes *codes = e->config.codes;
    const bool is_handed = partner >= e->config.shard_count; // to the worker that sums
    size_t record_bytes = sizeof(rt_wire_grad) + (codes ? codes->words : values) * sizeof(float);
    while (e->push_grads[partner].first) {
        rt_message message;
        uint32_t count =
            take_group(e, &e->push_grads[partner], ew_records_per_message(e, record_bytes), group);
        ew_slice_state *slice = ew_slice_of(e, group[0]);
        const dp_slice_view *view = &slice->view;
        const rt_message_type type = is_handed ? RT_MESSAGE_GRADS
                                     : codes   ? RT_MESSAGE_PUSH_GRAD_CODED
                                               : RT_MESSAGE_PUSH_GRAD;
        rt_status status =
            ew_message_for(e, type, is_handed ? slice->sequence : view->counts.iteration, count,
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
            rt_coding_pack(codes ? codes->coding : RT_CODING_FP32,
                           e->gradients + (size_t)row * values, values, record + sizeof header);
        }
        status = ew_outlet_put(&e->pushes[partner], &message);
        if (status)
            return status;
        for (uint32_t i = 0; i < count; i++) {
            e->slots[group[i]->slot].full = false; // outdated by the others' gradients
            ew_node_complete(e, slice, group[i]);
        }
        if (is_handed)
            e->statistics.gradients += count;
        else
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
