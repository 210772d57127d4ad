// Rows that come: what they are for, their place until their slot is free, and the words that they
// travel in made into floats.
#include <inttypes.h>
#include <string.h>

#include "edge_worker/executor/ew_executor_parts.h"
#include "runtime/wire/rt_traffic.h"

static uint32_t row_floats(const ew_executor *e, const ew_node *n)
{
    if (n->flags & DP_OP_STATE)
        return e->config.values + e->config.state;
    return e->config.values;
}

// In which it comes, of 4 bytes; at most so many as floats, and one.
static uint32_t row_words(const ew_executor *e, const ew_node *n)
{
    const uint32_t floats = row_floats(e, n);
    if (!e->config.codes || n->version == 0 || n->flags & DP_OP_WHOLE)
        return floats;
    return floats - e->config.values + e->config.codes->words;
}

// A row that came in words, as floats; the slot is its own from now on.
static void decode_row(ew_executor *e, const ew_node *n, const float *words, float *row)
{
    ew_codes *codes = e->config.codes;
    const uint32_t values = e->config.values, state = row_floats(e, n) - values;
    if (n->flags & DP_OP_WHOLE) // its push, which comes next, says what others get of it
        memcpy(row, words, values * sizeof *row);
    else if (!e->config.bases)
        ew_codes_take(codes, n->slot, n->key, n->version, words, row);
    else if (n->version == 0) // as it begins: it came whole
        rt_coding_unpack(RT_CODING_FP32, words, values, row);
    else
        rt_coding_unpack(codes->coding, words, values, row);
    memcpy(row + values, words + row_words(e, n) - state, state * sizeof *row);
}

// A row that came, as floats: in those that it came in, or decoded into room for it.
static const float *receive_row(ew_executor *e, const ew_node *n, const float *words, float *room)
{
    const float *row = words;
    if (e->config.codes) {
        decode_row(e, n, words, room);
        row = room;
    }
    if (e->config.bases)
        ew_bases_keep(e->config.bases, n->slot, row);
    return row;
}

// The words of a row that travels rounded may be one more than its floats.
uint32_t ew_landing_stride(const ew_executor *e)
{
    return e->config.values + e->config.state + (e->config.codes != NULL);
}

static void landed(ew_executor *e, const ew_node *n)
{
    ew_slot_state *slot = &e->slots[n->slot];
    ew_slice_state *slice = ew_slice_of(e, n);
    slice->pulls_left--;
    slot->version = n->version;
    slot->key = n->key;
    slot->full = true;
    if (ew_is_handed(slice->view.pull_peers, n->index)) {
        slice->handed_done++;
        return;
    }
    slice->done.miss_pull++;
    slice->done.first_touch += n->version == 0;
}

void ew_landing_unstage(ew_executor *e, ew_slice_state *slice, ew_node *n)
{
    const float *row = slice->staging + (size_t)n->index * ew_landing_stride(e);
    const float *in = receive_row(e, n, row, e->batch_values);
    e->config.rows->write(e->config.rows_context, &n->slot, 1, row_floats(e, n), &in);
    landed(e, n);
    ew_node_complete(e, slice, n);
}

// ---- rows in ---------------------------------------------------------------------------------

static rt_status find_pull(ew_executor *e, const ew_slice_state *s, const rt_wire_row *row,
                           uint32_t partner, ew_node **node_p, rt_error *error)
{
    char name[32];
    uint32_t at = row->tag & ~RT_WIRE_TAG_FLAGS;
    ew_node *n = at < s->node_count ? &s->nodes[at] : NULL;
    if (partner >= e->config.shard_count)
        return ew_handed_find(e, s, row, partner, node_p, error);
    if (!n || n->kind != NODE_PULL || n->arrived || n->key != row->key ||
        ew_partner_of_pull(e, n) != partner)
        return rt_fail(error, RT_WIRE, "%s sent key %" PRIx64 ", which nobody asked for",
                       ew_partner_name(e, partner, name), row->key);
    if (row->version != n->version)
        return rt_fail(error, RT_WIRE,
                       "%s sent key %" PRIx64 " at version %" PRIu32 ", expected exactly %" PRIu32,
                       ew_partner_name(e, partner, name), row->key, row->version, n->version);
    *node_p = n;
    return RT_OK;
}

typedef struct {
    uint32_t count, floats;
    ew_node *nodes[EW_BATCH_MAX];
} landing;

static void land_batch(ew_executor *e, ew_slice_state *s, landing *batch)
{
    if (batch->count)
        e->config.rows->write(e->config.rows_context, e->batch_slots, batch->count, batch->floats,
                              (const float *const *)e->batch_rows);
    for (uint32_t i = 0; i < batch->count; i++) {
        landed(e, batch->nodes[i]);
        ew_node_complete(e, s, batch->nodes[i]);
    }
    batch->count = 0;
}

// A row whose slot is free lands with its neighbours in the message; any other is staged.
static void take_row(ew_executor *e, ew_slice_state *s, ew_node *n, const float *data,
                     landing *batch)
{
    uint32_t floats = row_floats(e, n);
    n->arrived = true;
    if (n->ready) {
        if (batch->count == ew_batch_max(e) || batch->floats != floats)
            land_batch(e, s, batch);
        batch->floats = floats;
        float *room = e->config.codes ? ew_batch_row(e, batch->count) : NULL;
        data = receive_row(e, n, data, room);
        batch->nodes[batch->count] = n;
        e->batch_slots[batch->count] = n->slot;
        e->batch_rows[batch->count++] = (float *)(uintptr_t)data;
        return;
    }
    memcpy(s->staging + (size_t)n->index * ew_landing_stride(e), data,
           row_words(e, n) * sizeof(float));
    e->statistics.rows_early++;
}

static rt_status fail_short(const ew_executor *e, uint32_t partner, rt_error *error)
{
    char name[32];
    return rt_fail(error, RT_WIRE, "%s: rows are cut short", ew_partner_name(e, partner, name));
}

// The next row of a message.
static rt_status receive_row_of(ew_executor *e, ew_slice_state *s, uint32_t partner,
                                rt_reader *reader, landing *batch, rt_error *error)
{
    ew_node *n = NULL;
    rt_wire_row row; // a copy: rows of odd size leave the next one at any multiple of 4
    const void *head = rt_reader_take(reader, 1, sizeof row);
    if (!head)
        return fail_short(e, partner, error);
    memcpy(&row, head, sizeof row);
    const rt_status status = find_pull(e, s, &row, partner, &n, error);
    if (status)
        return status;
    const uint32_t words = row_words(e, n), state = row_floats(e, n) - e->config.values;
    const float *data = rt_reader_take(reader, words, sizeof(float));
    if (!data)
        return fail_short(e, partner, error);
    if (partner < e->config.shard_count) { // what workers hand over, they have counted
        rt_traffic_split(RT_CAUSE_row_state, state * sizeof(float));
        if (n->version == 0)
            rt_traffic_split(RT_CAUSE_first_rows, (words - state) * sizeof(float));
    }
    take_row(e, s, n, data, batch);
    return RT_OK;
}

rt_status ew_landing_receive(ew_executor *e, uint32_t partner, const rt_message *message,
                             rt_error *error)
{
    const rt_wire_header *header = rt_message_header(message);
    rt_reader reader = rt_message_reader(message);
    ew_slice_state *s = ew_slice_at(e, header->iteration);
    char name[32];
    landing batch;
    batch.count = 0;
    batch.floats = 0;
    if (s->sequence != header->iteration || header->iteration == 0)
        return rt_fail(error, RT_WIRE, "%s answers slice %" PRIu64 ", which is not open",
                       ew_partner_name(e, partner, name), header->iteration);
    for (uint32_t i = 0; i < header->count; i++) {
        const rt_status status = receive_row_of(e, s, partner, &reader, &batch, error);
        if (status)
            return status;
    }
    land_batch(e, s, &batch);
    if (reader.left)
        return rt_fail(error, RT_WIRE, "%s: bytes after the last row",
                       ew_partner_name(e, partner, name));
    return RT_OK;
}
