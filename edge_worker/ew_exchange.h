// ew_exchange - the dense gradients of all workers become their sum, while they are computed.
//
// The vector of gradients is the caller's; their sum comes to stand in the same place. An iteration
// is begin, then final as gradients get their last value, from the end of the vector down, then
// trained, then take until it says that the sum is there. What is final is never looked at again by
// who computed it, so sums may arrive before the rest is computed.
//
// How (network.collective):
//   ps    messages to the shards and back, in chunks (ew_lanes); sums in worker order, so a run
//         repeats bit for bit whatever arrives when, with overlap and without; of those workers
//         that take part in the iteration; who does so alone sends nothing, and its gradients,
//         as they are in 32 bits, are the sum
//   mpi, nccl   a library's all-reduce on a thread of its own (ew_reducer, ew_collective): equal
//         bits on all workers; the order of additions is the library's
// All workers decide by the same answer of shard 0 (DENSE_JOINED); with auto, once more when they
// have met by nccl, or not: then by ps. network.dense_wire "bf16" (ps only): gradients are rounded,
// what a worker's rounding loses is added to its next gradient, however many iterations it sits out
// until then, and what the PS's rounding of the sum loses is lost; all workers get the same bits.
//
// The communication thread calls everything but final, which is the training thread's.
#ifndef EW_EXCHANGE_H
#define EW_EXCHANGE_H

#include "edge_worker/collective/ew_collective.h"
#include "runtime/config/rt_config.h"
#include "runtime/wire/rt_wire.h"

typedef struct ew_exchange ew_exchange;

typedef struct {
    rt_collective collective;
    rt_coding wire;
    bool overlap;
    uint32_t rank, worker_count;
    uint32_t shard_count;    // that have a part of the vector
    uint32_t count;          // floats of the vector, at least 1
    float *gradients;        // in host memory
    float *device_gradients; // the same, but for the last float, which stays in host memory, in the
                             // device's; on unified devices the same pointer
    void *device_state;      // NULL: the device is not a GPU
    bool keyed;       // the run's messages are encrypted: auto does without nccl, which is not
    double timeout_s; // until all have joined, and of a sum by mpi or nccl
    int wake_fd;      // eventfd, written when there is something to send or to take
    // Takes the message on RT_OK; RT_AGAIN: a gradient is offered again at the next advance.
    rt_status (*send)(void *context, uint32_t shard, rt_message *message);
    void *send_context;
    // Tables in place of the plug-ins', for tests; NULL: none.
    const ew_collective_ops *mpi, *nccl;
} ew_exchange_config;

// RT_UNSUPPORTED: the collective that is asked for cannot be had here.
rt_status ew_exchange_create(const ew_exchange_config *config, ew_exchange **exchange_p,
                             rt_error *error);

// is_complete: the run came to its regular end on all workers.
void ew_exchange_destroy(ew_exchange *exchange, bool is_complete);

// Tells the others what this worker can do, where that is to be decided.
rt_status ew_exchange_join(ew_exchange *exchange, rt_error *error);

// RT_OK: iterations can begin. RT_AGAIN: the others are not there yet. RT_TIMEOUT, RT_UNSUPPORTED.
rt_status ew_exchange_ready(ew_exchange *exchange, rt_error *error);
const char *ew_exchange_name(const ew_exchange *exchange); // "ps", once ready
bool ew_exchange_overlaps(const ew_exchange *exchange);
bool ew_exchange_on_device(const ew_exchange *exchange); // which of the two vectors is used

// The messages that it takes: DENSE_SUM, DENSE_SUM_BF16, DENSE_SUM_INT8, DENSE_JOINED.
bool ew_exchange_takes(uint32_t type);
rt_status ew_exchange_receive(ew_exchange *exchange, const rt_message *message, rt_error *error);

// chunk_floats: of a message (ps), if the bounds on their number and size allow. workers: that take
// part, this one among them; all of them but with ps.
void ew_exchange_begin(ew_exchange *exchange, uint64_t iteration, uint32_t chunk_floats,
                       uint64_t workers);

// Floats [from, count) are final. Only with overlap.
void ew_exchange_final(ew_exchange *exchange, uint32_t from);

// All floats are, and the training thread will not call final again in this iteration.
void ew_exchange_trained(ew_exchange *exchange);

// Sends what is final and not sent, as far as it is taken.
rt_status ew_exchange_advance(ew_exchange *exchange, rt_error *error);
bool ew_exchange_is_held_up(const ew_exchange *exchange); // something was not taken

// ps: a message to a shard, behind all gradients that were filled into messages; it is taken.
rt_status ew_exchange_post(ew_exchange *exchange, uint32_t shard, rt_message *message,
                           rt_error *error);

// RT_OK, once: the sum is in place and the iteration is over. RT_AGAIN: not yet, or none begun.
rt_status ew_exchange_take(ew_exchange *exchange, rt_error *error);
// Whether the sum of the last float is there; *sum is it. It may be before the others', and stays
// until the next begin.
bool ew_exchange_last(const ew_exchange *exchange, float *sum);
// Of the iteration begun last: this worker takes part alone (ps).
bool ew_exchange_alone(const ew_exchange *exchange);
bool ew_exchange_busy(const ew_exchange *exchange); // between begin and RT_OK of take

// Of the iteration begun last: bytes of gradients that were sent before trained.
uint64_t ew_exchange_early_bytes(const ew_exchange *exchange);

#endif
