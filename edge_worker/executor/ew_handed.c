// Rows that come from other workers (RECV): finding what they are for, and keeping those that come
// before the slice that takes them in, and gradients likewise.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "edge_worker/executor/ew_executor_parts.h"

static int compare_keys(const void *left, const void *right)
{
    const ew_handed *a = left, *b = right;
    return (a->key > b->key) - (a->key < b->key);
}

rt_status ew_handed_prepare(ew_slice_state *slice)
{
    const dp_slice_view *view = &slice->view;
    slice->handed_count = 0;
    if (!view->pull_peers)
        return RT_OK;
    if (rt_grow(&slice->handed, &slice->handed_capacity, view->counts.pull_count,
                sizeof *slice->handed))
        return RT_NO_MEMORY;
    for (uint32_t i = 0; i < slice->node_count; i++) {
        const ew_node *n = &slice->nodes[i];
        if (n->kind == NODE_PULL && ew_is_handed(view->pull_peers, n->index))
            slice->handed[slice->handed_count++] = (ew_handed){n->key, i};
    }
    qsort(slice->handed, slice->handed_count, sizeof *slice->handed, compare_keys);
    return RT_OK;
}

// The node of a RECV; NULL: the slice has none of this key.
static ew_node *find_node(const ew_slice_state *slice, uint64_t key)
{
    const ew_handed wanted = {key, 0};
    if (slice->handed_count == 0)
        return NULL; // and maybe no array
    const ew_handed *found =
        bsearch(&wanted, slice->handed, slice->handed_count, sizeof wanted, compare_keys);
    if (!found)
        return NULL;
    return &slice->nodes[found->node];
}

rt_status ew_handed_find(const ew_executor *e, const ew_slice_state *slice, const rt_wire_row *row,
                         uint32_t partner, ew_node **node_p, rt_error *error)
{
    char name[32];
    ew_node *n = find_node(slice, row->key);
    ew_partner_name(e, partner, name);
    if (!n || n->arrived || ew_partner_of_pull(e, n) != partner)
        return rt_fail(error, RT_WIRE,
                       "%s handed over key %" PRIx64 ", which slice %" PRIu64
                       " does not take from it",
                       name, row->key, slice->sequence);
    if (row->version != n->version || row->tag)
        return rt_fail(error, RT_WIRE,
                       "%s handed over key %" PRIx64 " at version %" PRIu32 " (tag %" PRIx32
                       "), expected exactly %" PRIu32,
                       name, row->key, row->version, row->tag, n->version);
    *node_p = n;
    return RT_OK;
}

// Rows and gradients that a worker has waiting here for one slice. What it hands over takes a slot
// here: that of a row, or of the row that is summed.
static uint64_t rows_parked(const ew_executor *e, uint32_t worker, uint64_t sequence)
{
    uint64_t rows = 0;
    for (uint32_t i = 0; i < e->parked_count; i++) {
        const rt_wire_header *header = rt_message_header(&e->parked[i].message);
        if (e->parked[i].worker == worker && header->iteration == sequence)
            rows += header->count;
    }
    return rows;
}

// Slices are handed out to all at once, and no more than slice_count_max of them are out. A worker
// without any may have been left out for as long as it was: only those that wait here say which
// are.
static bool may_be_out(const ew_executor *e, uint64_t sequence)
{
    const uint64_t most = e->config.slice_count_max;
    if (e->trained < e->received)
        return sequence <= e->received + most;
    for (uint32_t i = 0; i < e->parked_count; i++) {
        const uint64_t other = rt_message_header(&e->parked[i].message)->iteration;
        if (sequence >= other + most || other >= sequence + most)
            return false;
    }
    return true;
}

rt_status ew_handed_park(ew_executor *e, uint32_t worker, rt_message *message, rt_error *error)
{
    const rt_wire_header *header = rt_message_header(message);
    const uint64_t sequence = header->iteration;
    const char *what = header->type == RT_MESSAGE_GRADS ? "gradients" : "rows";
    if (!may_be_out(e, sequence))
        return rt_fail(error, RT_WIRE,
                       "worker %" PRIu32 " hands %s over for slice %" PRIu64
                       ", the last one here is %" PRIu64 " and %" PRIu32 " may be outstanding",
                       worker, what, sequence, e->received, e->config.slice_count_max);
    if (header->count == 0 ||
        rows_parked(e, worker, sequence) + header->count > e->config.limits.slot_count)
        return rt_fail(error, RT_WIRE,
                       "worker %" PRIu32 " hands over %" PRIu32 " %s for slice %" PRIu64
                       ", with those before none or more than the %" PRIu32 " slots",
                       worker, header->count, what, sequence, e->config.limits.slot_count);
    if (rt_grow(&e->parked, &e->parked_capacity, (uint64_t)e->parked_count + 1, sizeof *e->parked))
        return rt_fail(error, RT_NO_MEMORY, "out of memory for %s of worker %" PRIu32, what,
                       worker);
    e->parked[e->parked_count++] = (ew_parked){*message, worker};
    *message = (rt_message){0};
    return RT_OK;
}

rt_status ew_handed_unpark(ew_executor *e, uint64_t sequence, uint32_t *worker_p,
                           rt_message *message)
{
    for (uint32_t i = 0; i < e->parked_count; i++) {
        const ew_parked found = e->parked[i];
        if (rt_message_header(&found.message)->iteration != sequence)
            continue;
        memmove(&e->parked[i], &e->parked[i + 1], (--e->parked_count - i) * sizeof *e->parked);
        *worker_p = found.worker;
        *message = found.message;
        return RT_OK;
    }
    return RT_AGAIN;
}
