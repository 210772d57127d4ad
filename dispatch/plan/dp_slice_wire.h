// dp_slice_wire - a worker's slice of a plan as one message: its samples, rows and operations.
//
// Layout of a SLICE payload: rt_wire_slice, then the arrays that its counts announce, in the order
// of dp_slice_view, each padded to 8 bytes. A SEND is a push, a RECV a pull, a REDUCE a gradient,
// with a worker in place of the PS; the SUMs of a row are one entry. Everything is validated on
// arrival: counts against the payload and the worker's limits, slots, row indices and modes against
// their ranges.
#ifndef DP_SLICE_WIRE_H
#define DP_SLICE_WIRE_H

#include "dispatch/plan/dp_plan.h"
#include "runtime/numbers/rt_optimizer.h"
#include "runtime/stream/rt_batch.h"
#include "runtime/wire/rt_wire.h"

#define DP_SLICE_UNIFORM 1u  // every sample has one key per field: no bag offsets
#define DP_SLICE_FLUSH 2u    // no training: the end of a run, or of a cut
#define DP_SLICE_WEIGHTED 4u // samples have weights
#define DP_SLICE_HOMES 8u    // homes of rows are planned: operations name the shard they are about
#define DP_SLICE_HANDS 16u   // rows go from worker to worker: pushes and pulls name the worker
#define DP_SLICE_SUMS 32u    // trainers may sum: gradients name the worker
#define DP_SLICE_SHIFTS 64u  // biases are shifted (rt_batch_learning): log_odds, more_odds
#define DP_SLICE_UNTRAINED 128u // predicted only: applied nowhere
#define DP_PUSH_WHOLE 0x80u     // with a reason: DP_OP_WHOLE

typedef struct {
    uint32_t flags;
    uint32_t iteration;     // that is trained, from 1; of a flush: 0
    uint32_t batch_samples; // N, of a full batch of all workers: gradients are scaled by 1/N
    uint32_t sample_count;
    uint32_t lookup_count;
    uint32_t row_count;
    uint32_t push_count, drop_count, pull_count, init_count;
    uint32_t grad_count;
    uint32_t delta_count, delta_late; // delta_late: of them, the last so many follow the training
    uint32_t dense_chunk_floats;      // of a message of the dense exchange; of a flush: 0
    uint64_t fingerprint;             // of the whole plan, for the report; 0: not known, or a flush
    uint64_t workers;   // mask of those that take part in the iteration; of a flush: 0
    float log_odds;     // SHIFTS: added to the bias of the output (the first); else 0
    uint32_t sum_count; // rows whose gradients are summed here
    uint32_t push_late; // of the pushes, the last so many follow the pulls
    uint32_t forget_count;
    uint32_t left_out; // slices between this one and the one before it that this worker was not
                       // sent: it sits out, and nothing was in them
    uint32_t cut;      // of a flush: the iteration that is trained before it; 0: not known
    uint32_t step;     // dp_plan.step
    uint32_t trained;  // samples of all workers, at most batch_samples; of a flush: 0
} rt_wire_slice;
_Static_assert(sizeof(rt_wire_slice) == 104, "wire layout");

// Where its optimizer steps stand.
static inline uint64_t dp_slice_place(const rt_wire_slice *slice)
{
    return rt_optimizer_place(slice->step, slice->trained, slice->batch_samples);
}

// A slice in place: pointers into the message.
typedef struct {
    rt_wire_slice counts;
    const float *labels;         // sample_count x labels of a sample
    const float *weights;        // likewise; NULL: all are 1
    const float *more_odds;      // SHIFTS: log_odds of the labels after the first; else NULL
    const float *dense;          // sample_count x dense_count
    const uint32_t *bag_offsets; // sample_count x field_count + 1; NULL when uniform
    const uint32_t *lookup_rows; // lookup_count, index into rows
    const uint32_t *row_slots, *row_versions;   // row_count
    const uint8_t *row_modes;                   // row_count, dp_mode
    const uint32_t *push_slots, *push_versions; // push_count
    const uint8_t *push_reasons;                // dp_reason, DP_PUSH_WHOLE
    const uint8_t *push_homes;                  // shards, here and below; NULL: hashed
    const uint8_t *push_peers;  // SEND: the worker that gets the row, else DP_NO_WORKER; NULL: none
    const uint32_t *drop_slots; // drop_count
    const uint64_t *pull_keys;  // pull_count
    const uint32_t *pull_slots, *pull_versions;
    const uint8_t *pull_flags; // DP_OP_STATE, DP_OP_WHOLE
    const uint8_t *pull_homes;
    const uint8_t *pull_peers; // RECV: the worker that sends the row, likewise
    const uint64_t *init_keys; // init_count
    const uint32_t *init_slots;
    const uint64_t *grad_masks; // grad_count
    const uint32_t *grad_rows, *grad_bases;
    const uint8_t *grad_homes;
    const uint8_t *grad_peers; // REDUCE: the worker that sums, else DP_NO_WORKER; NULL: none
    const uint64_t *sum_keys;  // sum_count
    const uint64_t *sum_masks; // workers that train the row, this one among them
    const uint32_t *sum_rows;
    const uint32_t *delta_slots; // delta_count
    const uint32_t *delta_held;  // version that the slot has
    const uint32_t *delta_versions, *delta_bases;
    const uint8_t *delta_pulls, *delta_reasons;
    const uint64_t *forget_keys; // forget_count
    const uint32_t *forget_versions;
    const uint8_t *forget_homes; // shards that have to
} dp_slice_view;

typedef struct {
    uint32_t dense_count;
    uint32_t more_labels; // of a sample, after the first
    uint32_t field_count;
    uint32_t worker_count;
    uint32_t rank;          // decoding: of the worker whose slice it is
    uint32_t batch_samples; // encoding: of a full batch of all workers
    uint32_t sample_count_max;
    uint32_t lookup_count_max;
    uint32_t slot_count;
    uint32_t shard_count; // 0: homes are not planned
    bool hands;           // dispatch.hand_over: slices say which rows go from worker to worker
    bool sums;            // dispatch.reduce: and which gradients
} dp_slice_limits;

// The message for one worker of a plan. sequence counts slices from 1 (training iterations and
// flushes). batch: the one that the plan was made from; NULL for a flush.
rt_status dp_slice_encode(const dp_plan *plan, uint32_t worker, const rt_batch *batch,
                          const dp_slice_limits *limits, uint32_t sender, uint64_t sequence,
                          rt_message *message);

// Into an encoded slice: dp_plan_fingerprint of its plan.
void dp_slice_set_fingerprint(rt_message *message, uint64_t fingerprint);

// Likewise: rt_wire_slice.left_out, and cut, which is 0 but for a flush.
void dp_slice_set_place(rt_message *message, uint32_t left_out, uint32_t cut);

// Size of that message.
uint64_t dp_slice_bytes(const dp_plan *plan, uint32_t worker, const rt_batch *batch,
                        const dp_slice_limits *limits);

// RT_WIRE: error says what is wrong. The view points into message.
rt_status dp_slice_decode(const rt_message *message, const dp_slice_limits *limits,
                          dp_slice_view *view, rt_error *error);

#endif
