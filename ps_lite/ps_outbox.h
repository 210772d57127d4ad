// ps_outbox - messages on their way from a shard to its workers.
//
// Records gather in open messages, one per (worker, type, iteration), each sent when it is full or
// at flush. What the transport does not take (RT_AGAIN) waits in a bounded queue per worker, in
// order. One thread.
#ifndef PS_OUTBOX_H
#define PS_OUTBOX_H

#include "runtime/wire/rt_wire.h"

typedef struct ps_outbox ps_outbox;

typedef struct {
    uint32_t self; // rt_peer of the sender
    uint32_t epoch;
    uint32_t worker_count;
    uint32_t message_bytes;      // payload of a full message, about
    uint32_t queue_messages_max; // per worker
    // Takes the message on RT_OK; RT_AGAIN: offered again later. Anything else ends the run.
    rt_status (*send)(void *context, uint32_t peer, rt_message *message);
    void *context;
} ps_outbox_config;

rt_status ps_outbox_create(const ps_outbox_config *config, ps_outbox **outbox_p);
void ps_outbox_destroy(ps_outbox *outbox); // drops what was not sent

// The epoch of the messages from now on; before the first one.
void ps_outbox_begin_epoch(ps_outbox *outbox, uint32_t epoch);

// Room for one record of size bytes in the open message; the caller fills it at once. Errors as
// ps_outbox_send.
rt_status ps_outbox_record(ps_outbox *outbox, uint32_t worker, rt_message_type type,
                           uint64_t iteration, size_t size, uint8_t **record_p, rt_error *error);

// Sends or queues a whole message, which is taken in every case. RT_LIMIT: the worker's queue is
// full (error names it); RT_NO_MEMORY; or what send returned.
rt_status ps_outbox_send(ps_outbox *outbox, uint32_t worker, rt_message *message, rt_error *error);

// A message without payload.
rt_status ps_outbox_notify(ps_outbox *outbox, uint32_t worker, rt_message_type type,
                           uint64_t iteration, rt_error *error);

// Sends the same bytes to every one of these workers (a mask, not empty), without a copy each; the
// message is taken.
rt_status ps_outbox_send_to(ps_outbox *outbox, uint64_t workers, rt_message *message,
                            rt_error *error);

// Sends all queues and open messages. RT_AGAIN: some are left; call again. Errors as send.
rt_status ps_outbox_flush(ps_outbox *outbox, rt_error *error);

#endif
