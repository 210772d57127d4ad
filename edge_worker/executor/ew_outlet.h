// ew_outlet - messages to one PS shard that wait for credit or for the transport.
//
// First in, first out. One thread. Unbounded by itself: what waits is bounded by the slices that
// are outstanding.
#ifndef EW_OUTLET_H
#define EW_OUTLET_H

#include "runtime/wire/rt_wire.h"

typedef struct {
    rt_message *messages;
    uint32_t first, count, capacity;
    uint32_t credits;
    bool counted; // takes credits (pushes), or not (pull requests)
} ew_outlet;

typedef rt_status (*ew_outlet_send)(void *context, uint32_t shard, rt_message *message);

// Releases what still waits.
void ew_outlet_fini(ew_outlet *outlet);

// Takes the message, in every case (it is empty afterwards). RT_NO_MEMORY.
rt_status ew_outlet_put(ew_outlet *outlet, rt_message *message);

// Sends until credits, the transport (send answers RT_AGAIN) or the messages end. Otherwise the
// error of send.
rt_status ew_outlet_flush(ew_outlet *outlet, ew_outlet_send send, void *context, uint32_t shard);

#endif
