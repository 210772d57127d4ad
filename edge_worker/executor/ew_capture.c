// What leaves the slab: rows, their changes and gradients, copied into messages. A row may be
// trained on, or its slot taken, as soon as it is in one.
#include <string.h>

#include "edge_worker/executor/ew_executor_parts.h"
#include "runtime/wire/rt_traffic.h"

#define MESSAGES_MAX 256u // whose rows are read in one go

// Rows of the batch [first, first + count), which go into one message.
typedef struct {
    rt_message message;
    ew_slice_state *slice;
    uint32_t first, count;
    bool whole; // rows travel rounded: these do not
} row_group;

// Rows on their way out, which are read together. The memory of nodes and groups is not cleared.
typedef struct {
    uint32_t partner;
    uint32_t count; // of nodes
    uint32_t group_count;
    ew_node *nodes[EW_BATCH_MAX];
    row_group groups[MESSAGES_MAX];
} outgoing;

static bool is_worker(const ew_executor *e, uint32_t partner)
{
    return partner >= e->config.shard_count;
}

// ---- rows: a message -------------------------------------------------------------------------

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
    if (is_change(e, group))
        return e->config.codes->words + e->config.state;
    return e->config.values + e->config.state;
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
        else if (change)
            write_change_header(e, nodes[at], record);
        else
            write_header(e, nodes[at], record);
        e->batch_slots[at] = nodes[at]->slot;
        e->batch_rows[at] = (float *)(void *)(record + header_bytes(e));
        if (change)
            e->batch_rows[at] = ew_batch_row(e, at);
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
    if (n->kind == NODE_PUSH_DELTA)
        return view->delta_reasons[n->index];
    return view->push_reasons[n->index] & (uint8_t)~DP_PUSH_WHOLE;
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

static rt_message_type row_message_type(const ew_executor *e, uint32_t partner, bool changes)
{
    static const rt_message_type to_shard[2][2] = {
        {RT_MESSAGE_PUSH_ROW, RT_MESSAGE_PUSH_CHANGE},
        {RT_MESSAGE_PUSH_DELTA, RT_MESSAGE_PUSH_DELTA_CODED}, // copies may be stale
    };
    if (is_worker(e, partner))
        return RT_MESSAGE_HANDED;
    return to_shard[e->config.bases != NULL][changes];
}

// The next message of a list, but for its rows.
static rt_status begin_group(ew_executor *e, outgoing *out, ew_node_list *list)
{
    row_group *group = &out->groups[out->group_count++];
    ew_node **nodes = out->nodes + out->count;
    *group = (row_group){.first = out->count, .whole = list == &e->push_whole[out->partner]};
    const size_t record_bytes = header_bytes(e) + record_words(e, group) * sizeof(float);
    const rt_message_type type = row_message_type(e, out->partner, is_change(e, group));
    const uint32_t room = ew_batch_max(e) - out->count;
    const uint32_t most = (uint32_t)rt_min_u64(ew_records_per_message(e, record_bytes), room);
    group->count = take_group(e, list, most, nodes);
    group->slice = ew_slice_of(e, nodes[0]);
    out->count += group->count;
    const rt_status status = ew_message_for(e, type, group->slice->sequence, group->count,
                                            record_bytes, &group->message);
    if (status)
        return status;
    capture_row_headers(e, group, out->nodes);
    return RT_OK;
}

// A copy whose change is pushed is of no use any more: it lacks the others'. One that is handed
// over is given up.
static rt_status end_group(ew_executor *e, const outgoing *out, row_group *group)
{
    const bool is_handed = is_worker(e, out->partner);
    const rt_status status = ew_outlet_put(&e->pushes[out->partner], &group->message);
    if (status)
        return status;
    rt_traffic_split(RT_CAUSE_row_state, (uint64_t)group->count * e->config.state * sizeof(float));
    for (uint32_t i = group->first; i < group->first + group->count; i++) {
        ew_node *n = out->nodes[i];
        const uint8_t reason = reason_of(&group->slice->view, n);
        if (!is_handed)
            count_push(&group->slice->done, reason);
        if (reason == DP_REASON_EVICT || n->kind == NODE_PUSH_DELTA || is_handed)
            e->slots[n->slot].full = false;
        ew_node_complete(e, group->slice, n);
    }
    return RT_OK;
}

// ---- rows: a batch of messages ---------------------------------------------------------------

static rt_status begin_groups(ew_executor *e, outgoing *out, ew_node_list *list)
{
    while (list->first && out->group_count < MESSAGES_MAX && out->count < ew_batch_max(e)) {
        const rt_status status = begin_group(e, out, list);
        if (status)
            return status;
    }
    return RT_OK;
}

// The rows themselves, into the messages.
static void read_rows(ew_executor *e, outgoing *out)
{
    e->config.rows->read(e->config.rows_context, e->batch_slots, out->count,
                         e->config.values + e->config.state, e->batch_rows);
    if (e->config.bases)
        for (uint32_t i = 0; i < out->count; i++)
            ew_bases_subtract(e->config.bases, e->batch_slots[i], e->batch_rows[i]);
    if (!e->config.codes)
        return;
    for (uint32_t g = 0; g < out->group_count; g++) {
        if (out->groups[g].whole)
            round_copies(e, &out->groups[g], out->nodes);
        else
            encode_changes(e, &out->groups[g]);
    }
}

static rt_status end_groups(ew_executor *e, outgoing *out)
{
    for (uint32_t g = 0; g < out->group_count; g++) {
        const rt_status status = end_group(e, out, &out->groups[g]);
        if (status)
            return status;
    }
    return RT_OK;
}

// Rows of many messages are read together: where slices alternate messages are small, and every
// read costs a device a launch and a wait.
static rt_status capture_batch(ew_executor *e, uint32_t partner, ew_node_list *list)
{
    outgoing out;
    out.partner = partner;
    out.count = out.group_count = 0;
    rt_status status = begin_groups(e, &out, list);
    if (!status) {
        read_rows(e, &out);
        status = end_groups(e, &out);
    }
    for (uint32_t g = 0; g < out.group_count; g++)
        rt_message_release(&out.groups[g].message); // empty where it went
    return status;
}

static rt_status capture_list(ew_executor *e, uint32_t partner, ew_node_list *list)
{
    while (list->first) {
        const rt_status status = capture_batch(e, partner, list);
        if (status)
            return status;
    }
    return RT_OK;
}

rt_status ew_capture_rows(ew_executor *e, uint32_t partner)
{
    const rt_status status = capture_list(e, partner, &e->push_rows[partner]);
    if (status)
        return status;
    return capture_list(e, partner, &e->push_whole[partner]);
}

// ---- gradients -------------------------------------------------------------------------------

static rt_message_type gradient_message_type(const ew_executor *e, uint32_t partner)
{
    if (is_worker(e, partner)) // which sums
        return RT_MESSAGE_GRADS;
    return e->config.codes ? RT_MESSAGE_PUSH_GRAD_CODED : RT_MESSAGE_PUSH_GRAD;
}

static void write_gradient(const ew_executor *e, const dp_slice_view *view, const ew_node *n,
                           uint8_t *record)
{
    const uint32_t at = n->index, values = e->config.values;
    const float *gradient = e->gradients + (size_t)view->grad_rows[at] * values;
    const rt_wire_grad header = {e->slots[n->slot].key, view->grad_masks[at], view->grad_bases[at],
                                 e->apply ? RT_WIRE_STEP : RT_WIRE_NO_STEP};
    memcpy(record, &header, sizeof header);
    if (e->config.codes)
        rt_coding_pack(e->config.codes->coding, gradient, values, record + sizeof header);
    else
        memcpy(record + sizeof header, gradient, values * sizeof *gradient);
}

// Where the step with the sum stands (rt_wire_grad).
static void put_place(const rt_wire_slice *c, rt_wire_header *header)
{
    header->stamp = c->iteration - c->step;
    if (c->trained < c->batch_samples)
        header->iteration |= (uint64_t)c->trained << RT_WIRE_SHORT_BIT;
}

static size_t gradient_bytes(const ew_executor *e)
{
    uint32_t words = e->config.values;
    if (e->config.codes)
        words = e->config.codes->words;
    return sizeof(rt_wire_grad) + words * sizeof(float);
}

// The next message of them.
static rt_status capture_gradient_group(ew_executor *e, uint32_t partner)
{
    ew_node *group[EW_BATCH_MAX];
    rt_message message;
    const bool is_handed = is_worker(e, partner);
    const size_t record_bytes = gradient_bytes(e);
    const uint32_t most = ew_records_per_message(e, record_bytes);
    const uint32_t count = take_group(e, &e->push_grads[partner], most, group);
    ew_slice_state *slice = ew_slice_of(e, group[0]);
    uint64_t iteration = slice->view.counts.iteration;
    if (is_handed)
        iteration = slice->sequence;
    rt_status status = ew_message_for(e, gradient_message_type(e, partner), iteration, count,
                                      record_bytes, &message);
    if (status)
        return status;
    if (!is_handed)
        put_place(&slice->view.counts, rt_message_header(&message));
    for (uint32_t i = 0; i < count; i++)
        write_gradient(e, &slice->view, group[i], rt_message_payload(&message) + i * record_bytes);
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
    return RT_OK;
}

rt_status ew_capture_gradients(ew_executor *e, uint32_t partner)
{
    while (e->push_grads[partner].first) {
        const rt_status status = capture_gradient_group(e, partner);
        if (status)
            return status;
    }
    return RT_OK;
}

// ---- what else leaves ------------------------------------------------------------------------

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
    if (slice->view.counts.forget_count == 0)
        return RT_OK;
    for (uint32_t s = 0; s < e->config.shard_count; s++) {
        const rt_status status = put_forgets(e, slice, s);
        if (status)
            return status;
    }
    return RT_OK;
}
