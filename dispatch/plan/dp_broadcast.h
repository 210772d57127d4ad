// dp_broadcast - batches and input records on their way to a planner elsewhere (dp_replica).
//
// A BATCH message says: with these records and batches the plan of this sequence number becomes
// final.
//
// Layout of a BATCH payload: rt_wire_broadcast, input_count x rt_wire_input, then batch_count times
// rt_wire_batch, rt_wire_learning, labels (float, sample by sample), weights likewise, dense
// features (float, sample by sample), key offsets (uint32_t, sample_count + 1), keys; every array
// padded to 8 bytes. Everything is validated on arrival.
#ifndef DP_BROADCAST_H
#define DP_BROADCAST_H

#include "dispatch/plan/dp_input.h"
#include "runtime/stream/rt_batch.h"
#include "runtime/wire/rt_wire.h"

#define DP_BROADCAST_END 1u // no batches follow

typedef struct {
    uint32_t flags;
    uint32_t batch_count;
    uint32_t input_count;
    uint32_t reserved; // zero
} rt_wire_broadcast;
_Static_assert(sizeof(rt_wire_broadcast) == 16, "wire layout");

typedef struct {
    uint64_t number;
    uint32_t iteration;
    uint32_t kind; // dp_input_kind
    uint32_t worker;
    uint32_t reserved; // zero
    double value;
} rt_wire_input;
_Static_assert(sizeof(rt_wire_input) == 32, "wire layout");

#define DP_BATCH_WEIGHTED 0x80000000u
#define DP_BATCH_LEARNING 0x40000000u
typedef struct {
    uint32_t sample_count; // DP_BATCH_WEIGHTED: its samples have weights, behind the labels;
                           // DP_BATCH_LEARNING: an rt_wire_learning follows
    uint32_t key_count;
} rt_wire_batch;
_Static_assert(sizeof(rt_wire_batch) == 8, "wire layout");

// rt_batch_learning, where it says anything.
typedef struct {
    float log_odds[RT_LABELS_MAX];
    uint32_t unknown;
    uint32_t is_untrained;
    float less[2];
} rt_wire_learning;
_Static_assert(sizeof(rt_wire_learning) == 48, "wire layout");

// Collects what the next message carries. Grows to the largest message; one thread.
typedef struct {
    uint8_t *batches; // as they go out
    size_t batch_bytes, batch_capacity;
    uint32_t batch_count;
    rt_wire_input inputs[DP_INPUTS_WAITING_MAX];
    uint32_t input_count;
} dp_broadcast;

void dp_broadcast_fini(dp_broadcast *broadcast);

// RT_NO_MEMORY. RT_LIMIT: more records than can wait.
rt_status dp_broadcast_add_batch(dp_broadcast *broadcast, const rt_batch *batch);
rt_status dp_broadcast_add_input(dp_broadcast *broadcast, const dp_input *input);

// The message that completes the plan of this sequence number, with all that was added since the
// last one. end: no batches follow. RT_NO_MEMORY, RT_LIMIT.
rt_status dp_broadcast_take(dp_broadcast *broadcast, uint32_t sender, uint64_t sequence, bool end,
                            rt_message *message);

// Bytes of the message for one batch alone.
uint64_t dp_broadcast_bytes(const rt_batch *batch);

// What a receiver knows of the batches that come.
typedef struct {
    uint32_t dense_count;
    uint32_t more_labels; // of a sample, after the first
    uint32_t field_count;
    uint32_t sample_count_max; // of a batch
    uint32_t keys_per_sample_max;
} dp_broadcast_limits;

// A message in parts: begin, then input_count times next_input, batch_count times next_batch.
typedef struct {
    dp_broadcast_limits limits;
    rt_wire_broadcast head;
    rt_reader reader;
} dp_broadcast_reader;

// RT_WIRE: error says what is wrong.
rt_status dp_broadcast_begin(const rt_message *message, const dp_broadcast_limits *limits,
                             dp_broadcast_reader *reader, rt_error *error);
rt_status dp_broadcast_next_input(dp_broadcast_reader *reader, dp_input *input, rt_error *error);
// Replaces what is in batch. RT_NO_MEMORY as well.
rt_status dp_broadcast_next_batch(dp_broadcast_reader *reader, rt_batch *batch, rt_error *error);

#endif
