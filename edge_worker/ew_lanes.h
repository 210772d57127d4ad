// ew_lanes - the dense vector on its way to the shards, in chunks, and their sums on the way back.
//
// Every shard has a part of the vector (rt_stripes) and a lane: what is sent to it leaves in order,
// whatever it is. A chunk is so many floats of a part; it is filled when all of them are final,
// from the end of the vector down, and only once everything before it on its lane is gone: what a
// message holds stays as it is, sent or not, as with bf16 and int8 the residual has changed.
//
// Plain state of the exchange; its thread.
#ifndef EW_LANES_H
#define EW_LANES_H

#include "edge_worker/executor/ew_outlet.h"
#include "runtime/numbers/rt_stripes.h"

#define EW_LANE_CHUNKS_MAX 4096u

typedef struct {
    ew_outlet out;
    uint32_t count;        // floats of the part
    uint32_t chunk_floats; // of this iteration
    uint32_t sent_from;    // floats of the part from here on are filled into messages
    uint32_t chunks_left;  // whose sums have not come
    uint64_t arrived[EW_LANE_CHUNKS_MAX / 64];
} ew_lane;

typedef struct {
    rt_stripes stripes;
    rt_coding coding;
    uint32_t sender;  // of the messages
    float *gradients; // the vector; the caller's
    float *residual;  // bf16, int8: what rounding has lost so far; the caller's
    ew_outlet_send send;
    void *send_context;
    ew_lane *lanes; // stripes.shard_count

    // the iteration in progress
    uint64_t iteration, workers;
} ew_lanes;

// The members but lanes are filled in. RT_NO_MEMORY; RT_UNSUPPORTED: more floats than can go.
rt_status ew_lanes_init(ew_lanes *lanes, rt_error *error);
void ew_lanes_fini(ew_lanes *lanes);

// chunk_floats: of a message, if the bounds on their number and size allow. workers: who takes
// part.
void ew_lanes_begin(ew_lanes *lanes, uint64_t iteration, uint32_t chunk_floats, uint64_t workers);

// How far down the vector must be final for another chunk on every lane, at most.
uint32_t ew_lanes_step(const ew_lanes *lanes);

// Sends what waits, and what is final (floats of the vector from final_from on) and not sent, as
// far as it is taken. *bytes_p grows by what of it was filled into messages.
rt_status ew_lanes_advance(ew_lanes *lanes, uint32_t final_from, uint64_t *bytes_p,
                           rt_error *error);
bool ew_lanes_held_up(const ew_lanes *lanes); // something was not taken

// A message to a shard, behind all that is on its way there; it is taken. Errors as the
// transport's.
rt_status ew_lanes_post(ew_lanes *lanes, uint32_t shard, rt_message *message, rt_error *error);

// A DENSE_SUM, _BF16 or _INT8: the sum takes the place of the gradients. RT_WIRE.
rt_status ew_lanes_take(ew_lanes *lanes, const rt_message *message, rt_error *error);

bool ew_lanes_complete(const ew_lanes *lanes);                // all sums are there
bool ew_lanes_arrived(const ew_lanes *lanes, uint32_t place); // the sum of this float is

#endif
