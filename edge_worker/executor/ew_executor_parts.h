// ew_executor_parts - what the files of the executor share: nodes, slices, slots.
//
// Every operation of a slice, and every row that it trains, is a node in the chain of its slot.
// The first node of a chain is ready; when it completes, the next one is. A node completes
//   PUSH_ROW, PUSH_DELTA, PUSH_GRAD  when its bytes are captured in a message,
//   PULL        when its row is ready and its data has arrived, then it lands,
//   INIT, DROP  at once,
//   SUM         when the gradients of all trainers are in, and the row is stepped,
//   TRAIN       when the training thread is done with the slice.
//
// A SEND is a PUSH_ROW to another worker, a REDUCE a PUSH_GRAD to one, and a RECV a PULL that
// nobody asks for. What is kept by partner counts the shards first, then, with dispatch.hand_over
// or dispatch.reduce, the workers.
#ifndef EW_EXECUTOR_PARTS_H
#define EW_EXECUTOR_PARTS_H

#include "edge_worker/executor/ew_executor.h"
#include "edge_worker/executor/ew_outlet.h"

#define EW_BATCH_MAX 4096u  // rows of one call to ew_rows
#define EW_BATCH_CODED 512u // of one where rows travel rounded

typedef enum {
    NODE_PUSH_ROW,
    NODE_PUSH_DELTA,
    NODE_DROP,
    NODE_PULL,
    NODE_INIT,
    NODE_TRAIN,
    NODE_PUSH_GRAD,
    NODE_SUM // one for all SUMs of its row
} ew_node_kind;

typedef struct ew_node ew_node;
struct ew_node {
    ew_node *next;       // on the same slot
    ew_node *next_ready; // in a work list
    uint64_t key;        // PULL, INIT
    uint32_t slot;
    uint32_t version; // PUSH_ROW, PULL: of the row; TRAIN: before training; PUSH_DELTA:
                      // that the slot has; SUM: that it makes
    uint32_t index;   // in its array of the slice; PULL: place in the staging buffer, too; SUM:
                      // place among the slice's sums
    uint32_t slice;   // index into ew_executor.slices
    uint8_t kind;
    uint8_t flags; // PULL: DP_OP_STATE, DP_OP_WHOLE
    bool ready;
    bool arrived;
};

typedef struct {
    uint64_t key;
    uint32_t node; // its index
} ew_handed;

// A row that is stepped here with the gradients of all its trainers.
typedef struct {
    uint64_t key;
    uint64_t mask;    // its trainers
    uint64_t waits;   // of them, those whose gradients are not in; this worker is one of them
    uint64_t no_step; // of the others, those who say that the iteration does not count
    size_t first;     // place in the slice's gradients, which stand in the order of workers
    uint32_t node;    // its index
    uint32_t row;     // of the slice
} ew_sum;

typedef struct {
    rt_message message;
    dp_slice_view view;
    uint64_t sequence; // 0: free
    uint32_t index;    // in ew_executor.slices
    ew_node *nodes;
    uint32_t node_count, node_capacity;
    uint32_t nodes_left; // not complete
    uint32_t train_left; // rows that are not in place
    uint32_t pulls_left; // rows that have not landed, those too that the slice does not train
    ew_handed *handed;   // its RECVs, by key
    uint32_t handed_count, handed_capacity;
    uint32_t handed_done; // of them, those that have landed
    ew_sum *sums;         // by key
    uint32_t sum_capacity;
    float *gradients; // of all sums
    uint32_t gradient_capacity;
    rt_counts done; // executed so far
    float *staging; // rows that arrived before their slot was free
    uint32_t staging_capacity;
} ew_slice_state;

typedef struct {
    ew_node *first, *last;
} ew_node_list;

typedef struct {
    uint64_t key;
    uint32_t version;
    bool full;     // key and version count
    ew_node *tail; // last node of the chain
} ew_slot_state;

// Rows or gradients that came before the slice that takes them in.
typedef struct {
    rt_message message;
    uint32_t worker;
} ew_parked;

struct ew_executor {
    ew_executor_config config;
    uint32_t partner_count;
    ew_slice_state *slices; // slice_count, by sequence
    uint32_t slice_count;   // slice_count_max; twice as many where sums may outlive their training
    uint64_t received;      // sequence of the last slice
    uint64_t trained;       // sequence of the last slice that is trained or needs none, or that
                            // was left out behind it
    uint32_t iteration;     // that is trained then, here or elsewhere
    bool job_out;
    ew_slot_state *slots;
    ew_node_list ready;       // to be looked at
    ew_node_list *push_rows;  // by partner: ready to be captured, PUSH_DELTA too
    ew_node_list *push_whole; // likewise, where rows travel rounded: those that do not
    ew_node_list *push_grads;
    ew_outlet *pulls, *pushes; // by partner
    ew_parked *parked;         // parked_count, in the order in which they came
    uint32_t parked_count, parked_capacity;
    const float *gradients; // of the slice that was just trained
    bool apply;             // likewise
    uint32_t *batch_slots;  // scratch of one call to ew_rows
    uint64_t *batch_keys;
    float **batch_rows;
    float *batch_values; // rows travel rounded: EW_BATCH_CODED x (values + state); or NULL
    ew_executor_statistics statistics;
};

static inline ew_slice_state *ew_slice_at(const ew_executor *e, uint64_t sequence)
{
    return &e->slices[sequence % e->slice_count];
}

// The first slice here behind this one: those between were left out, or have not come. NULL: none.
static inline ew_slice_state *ew_slice_behind(const ew_executor *e, uint64_t sequence)
{
    ew_slice_state *next = NULL;
    for (uint32_t i = 0; i < e->slice_count; i++) {
        ew_slice_state *s = &e->slices[i];
        if (s->sequence > sequence && (!next || s->sequence < next->sequence))
            next = s;
    }
    return next;
}

static inline ew_slice_state *ew_slice_of(const ew_executor *e, const ew_node *n)
{
    return &e->slices[n->slice];
}

static inline void ew_node_list_add(ew_node_list *list, ew_node *n)
{
    n->next_ready = NULL;
    if (list->last)
        list->last->next_ready = n;
    else
        list->first = n;
    list->last = n;
}

static inline ew_node *ew_node_list_take(ew_node_list *list)
{
    ew_node *n = list->first;
    if (n) {
        list->first = n->next_ready;
        if (!list->first)
            list->last = NULL;
    }
    return n;
}

// The shard that a key's operation is about: by hash, or as the slice says.
static inline uint32_t ew_shard_of(const ew_executor *e, uint64_t key, const uint8_t *homes,
                                   uint32_t index)
{
    if (homes)
        return homes[index];
    return rt_key_shard(key, e->config.shard_count);
}

// Whether an operation is one with another worker. peers: of the pushes, pulls or gradients of its
// slice.
static inline bool ew_is_handed(const uint8_t *peers, uint32_t index)
{
    return peers && peers[index] != DP_NO_WORKER;
}

// Who sends the row of a PULL.
static inline uint32_t ew_partner_of_pull(const ew_executor *e, const ew_node *n)
{
    const dp_slice_view *view = &ew_slice_of(e, n)->view;
    if (ew_is_handed(view->pull_peers, n->index))
        return e->config.shard_count + view->pull_peers[n->index];
    return ew_shard_of(e, n->key, view->pull_homes, n->index);
}

// Who gets the row of a PUSH_ROW or PUSH_DELTA, which is in its slot.
static inline uint32_t ew_partner_of_push(const ew_executor *e, const ew_node *n)
{
    const dp_slice_view *view = &ew_slice_of(e, n)->view;
    const uint64_t key = e->slots[n->slot].key;
    if (n->kind == NODE_PUSH_DELTA)
        return ew_shard_of(e, key, NULL, n->index);
    if (ew_is_handed(view->push_peers, n->index))
        return e->config.shard_count + view->push_peers[n->index];
    return ew_shard_of(e, key, view->push_homes, n->index);
}

// Who gets the gradient of a row, which is in its slot.
static inline uint32_t ew_partner_of_gradient(const ew_executor *e, const ew_node *n)
{
    const dp_slice_view *view = &ew_slice_of(e, n)->view;
    if (ew_is_handed(view->grad_peers, n->index))
        return e->config.shard_count + view->grad_peers[n->index];
    return ew_shard_of(e, e->slots[n->slot].key, view->grad_homes, n->index);
}

// "PS shard 1", "worker 2"; text holds at least 32 bytes. Returns text.
const char *ew_partner_name(const ew_executor *e, uint32_t partner, char text[32]);

// Rows of one call to ew_rows, and room for one of them as floats, where they travel rounded.
static inline uint32_t ew_batch_max(const ew_executor *e)
{
    return e->config.codes ? EW_BATCH_CODED : EW_BATCH_MAX;
}

static inline float *ew_batch_row(const ew_executor *e, uint32_t i)
{
    return e->batch_values + (size_t)i * (e->config.values + e->config.state);
}

// An empty message to a shard. RT_NO_MEMORY.
rt_status ew_message_for(const ew_executor *e, rt_message_type type, uint64_t iteration,
                         uint32_t count, size_t record_bytes, rt_message *message);

// Records that one message to a shard has room for, at least 1 and at most EW_BATCH_MAX.
uint32_t ew_records_per_message(const ew_executor *e, size_t record_bytes);

// ew_nodes.c: what a slice consists of, in the order of the protocol: pushes and drops, then fills,
// pushes of rows that are taken in, training, gradients, sums, late changes. There is room for all.
uint64_t ew_nodes_of(const rt_wire_slice *counts);
void ew_nodes_add(ew_slice_state *slice);
uint32_t ew_first_pull_node(const rt_wire_slice *counts);
uint32_t ew_first_train_node(const rt_wire_slice *counts);
uint32_t ew_first_sum_node(const rt_wire_slice *counts);

// The node is done: the next one in the chain of its slot is ready.
void ew_node_complete(ew_executor *e, ew_slice_state *slice, ew_node *n);

// ew_landing.c: what comes into the slab. Rows of a partner: each lands, or is staged until its
// slot is free. RT_WIRE: nobody asked for one of them.
rt_status ew_landing_receive(ew_executor *e, uint32_t partner, const rt_message *message,
                             rt_error *error);

// The slot of a staged row is free.
void ew_landing_unstage(ew_executor *e, ew_slice_state *slice, ew_node *n);

// Floats that a staged row takes.
uint32_t ew_landing_stride(const ew_executor *e);

// ew_capture.c: what leaves the slab. Copies every ready PUSH_ROW, PUSH_DELTA and PUSH_GRAD to a
// partner into messages, and completes their nodes. RT_NO_MEMORY.
rt_status ew_capture_rows(ew_executor *e, uint32_t partner);
rt_status ew_capture_gradients(ew_executor *e, uint32_t partner);

// All of the slice is carried out: what it trained, everybody has pulled (docs/PROTOCOL.md), so
// shards that lost rows may forget them. RT_NO_MEMORY.
rt_status ew_capture_forgets(ew_executor *e, const ew_slice_state *slice);

// ew_handed.c: rows from other workers. Sorts the slice's RECVs; RT_NO_MEMORY.
rt_status ew_handed_prepare(ew_slice_state *slice);

// The node that a row of another worker is for, which has not come yet. RT_WIRE: there is none.
rt_status ew_handed_find(const ew_executor *e, const ew_slice_state *slice, const rt_wire_row *row,
                         uint32_t partner, ew_node **node_p, rt_error *error);

// Keeps a message whose slice has not come; it is empty afterwards. RT_WIRE: no slice that could
// come takes so much. RT_NO_MEMORY.
rt_status ew_handed_park(ew_executor *e, uint32_t worker, rt_message *message, rt_error *error);

// Takes out the first parked message of a slice, and who sent it. RT_AGAIN: there is none.
rt_status ew_handed_unpark(ew_executor *e, uint64_t sequence, uint32_t *worker_p,
                           rt_message *message);

// ew_sums.c: gradients of a row that this worker sums. Room for those of the slice; RT_NO_MEMORY.
rt_status ew_sums_prepare(const ew_executor *e, ew_slice_state *slice);

// GRADS of a worker, of a slice that has come. RT_WIRE: no sum waits for one of them.
rt_status ew_sums_receive(ew_executor *e, uint32_t worker, const rt_message *message,
                          rt_error *error);

// The row of a SUM node is trained: its own gradient is in. RT_WIRE: its slot has another key, or
// the trainers do not agree.
rt_status ew_sum_begin(ew_executor *e, ew_slice_state *slice, ew_node *n, rt_error *error);

// Whether a training whose rows are in place has to wait. Gradients of the iteration before may
// come late, and with them the pushes of this slice, which are part of its report; and a slice's
// place is free only once its sums are done.
bool ew_sums_hold_up(const ew_executor *e, const ew_slice_state *slice);

#endif
