// fabric_parts - what a fabric is joined by, and what it asks of dense weights.
#ifndef FABRIC_PARTS_H
#define FABRIC_PARTS_H

#include "edge_worker/ew_weights.h"
#include "edge_worker/model/ew_model.h"
#include "ps_lite/ps_weights.h"

// Messages from one part to another, in order.
typedef struct {
    rt_message *messages;
    uint32_t first, count, capacity;
    uint32_t speed; // how readily the schedule picks it
} fabric_queue;

void fabric_queue_put(fabric_queue *q, rt_message *message); // it is empty afterwards
void fabric_queue_fini(fabric_queue *q);

// As a transport does: validated on arrival.
rt_message fabric_queue_take(fabric_queue *q, uint32_t sender);

rt_message fabric_copy(const rt_message *from);

// Of a model; context: it.
extern const ew_weights_ops fabric_weights_ops;

// The shard's part is the model's, bit for bit, with its state, in this version; NULL where shards
// keep none.
void fabric_check_part(const ew_weights *weights, ew_model *model, const ps_weights *kept,
                       uint32_t rank, uint64_t version);

#endif
