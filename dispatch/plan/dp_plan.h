// dp_plan - what one iteration does: who trains which sample, where every row sits, which rows
// move.
//
// The planner writes plans, workers and PS only execute them (docs/ARCHITECTURE.md, "Plan, then
// execute"). The operations are the complete vocabulary of the coherence protocol
// (docs/PROTOCOL.md has every precondition and effect). A plan belongs to its planner and is valid
// until the planner is stepped again.
#ifndef DP_PLAN_H
#define DP_PLAN_H

#include "runtime/rt_base.h"
#include "runtime/rt_hash.h"
#include "runtime/wire/rt_counts.h"

// A number stays with its operation, and so do those of modes: fingerprints of plans depend on
// them.
typedef enum {
    DP_OP_PUSH_ROW = 0,    // dirty row to the PS, with optimizer state
    DP_OP_DROP = 1,        // the copy is given up, the slot is free
    DP_OP_PULL = 2,        // row from the PS, once it has the version
    DP_OP_INIT = 3,        // first touch: the worker computes the initial value
    DP_OP_SEND = 5,        // row to another worker
    DP_OP_RECV = 6,        // row from another worker
    DP_OP_PUSH_GRAD = 7,   // this worker's gradient of a row that several trained
    DP_OP_REDUCE = 9,      // gradient to another worker, which sums
    DP_OP_PUSH_DELTA = 10, // what this worker changed of a row since it came (bounded staleness)
    DP_OP_MARK = 11,       // end of a worker's part of a cut
    DP_OP_FORGET = 12,     // a shard gives up a row, up to a version: it is at home elsewhere
    DP_OP_SUM = 13,        // another worker's gradient comes into the sum here
    DP_OP_KINDS
} dp_op_kind;

typedef enum {
    DP_REASON_UPDATE, // another worker needs the row
    DP_REASON_EVICT,  // the slot is needed
    DP_REASON_FLUSH   // checkpoint or end of the run
} dp_reason;

typedef enum { DP_MODE_OWN = 0, DP_MODE_GRAD = 1, DP_MODE_REDUCE = 3 } dp_mode;

#define DP_NO_SLOT UINT32_MAX
#define DP_NO_WORKER 0xffu
#define DP_OP_STATE 1u // flag: optimizer state travels with the row
#define DP_OP_WHOLE 2u // flag of PUSH_ROW, PULL where rows travel rounded: this one does not
#define DP_OP_SHARD 2u // flags from this bit on: 1 + the shard, where homes are planned; else 0

typedef struct {
    uint64_t key;
    uint64_t mask;    // PUSH_GRAD, REDUCE, SUM: workers in the sum; PUSH_DELTA: version that
                      // the slot has
    uint32_t slot;    // on this worker
    uint32_t version; // PULL, PUSH_ROW: of the row; PUSH_GRAD, REDUCE, SUM, PUSH_DELTA:
                      // that it makes
    uint32_t base;    // PUSH_GRAD, PUSH_DELTA: version that sum or change applies to; PUSH_ROW:
                      // that the PS has, where it travels as a change
    uint8_t kind;     // dp_op_kind
    uint8_t reason;   // dp_reason
    union {
        uint8_t peer;  // SEND, RECV, REDUCE, SUM: the worker at the other end; else DP_NO_WORKER
        uint8_t pulls; // PUSH_DELTA: pulls of base that come before it
    };
    uint8_t flags; // DP_OP_STATE, DP_OP_WHOLE
} dp_op;
_Static_assert(sizeof(dp_op) == 32, "ops are copied in bulk");

// The shard that an operation is about.
static inline uint32_t dp_op_shard(const dp_op *op, uint32_t shard_count)
{
    const uint32_t planned = op->flags >> DP_OP_SHARD;
    if (planned)
        return planned - 1;
    return rt_key_shard(op->key, shard_count);
}

static inline void dp_op_set_shard(dp_op *op, uint32_t shard)
{
    op->flags = (uint8_t)((op->flags & (DP_OP_STATE | DP_OP_WHOLE)) | (shard + 1) << DP_OP_SHARD);
}

typedef struct {
    dp_op *items;
    uint32_t count;
    uint32_t capacity;
} dp_ops;

// A row that a worker trains in the iteration.
typedef struct {
    uint32_t slot;
    uint32_t version; // that it must have before training: every update of earlier iterations
    uint32_t mode;    // dp_mode
} dp_row;

// What bounded staleness (dp_stale.h) has to say of an iteration.
typedef struct {
    uint64_t stale_keys;     // (worker, distinct key): a copy was there, but not valid
    uint64_t clock_messages; // that HET would have sent: own clocks to the server, to be compared
    uint64_t clock_spread;   // largest difference of the clocks of two copies that were read
} dp_clocks;

void dp_clocks_add(dp_clocks *sum, const dp_clocks *one);

// One worker's part of a plan. Operations are in a legal order of execution: `release` (PUSH_ROW,
// DROP, PUSH_DELTA), `fill` (PULL, INIT, RECV), training, `after` (PUSH_GRAD, REDUCE, SUM,
// PUSH_DELTA, FORGET). PUSH_ROW in `after` are rows that are taken in: they go between
// fill and training.
typedef struct {
    uint32_t sample_count;
    uint32_t lookup_count;
    uint32_t row_count;
    uint32_t sample_capacity, lookup_capacity, row_capacity;
    uint32_t *samples;     // sample_count indices into the batch, ascending
    uint32_t *lookup_rows; // lookup_count indices into rows, sample by sample, in key order
    dp_row *rows;          // row_count, distinct
    dp_ops release, fill, after;
} __attribute__((aligned(64))) dp_slice; // which several threads make, each one's by itself

// How much of an iteration was served from the caches.
typedef struct {
    uint64_t lookups, lookups_hit; // (sample, key)
    uint64_t keys, keys_hit;       // (worker, distinct key)
    uint64_t distinct;             // keys of the batch
} dp_hits;

typedef struct {
    uint32_t iteration; // from 1; 0: not a training iteration (final flush)
    uint32_t step;      // full batches that the samples make, up to this one, rounded up; likewise
    uint32_t worker_count;
    uint32_t sample_count;
    uint64_t participants;       // workers that train and take part in the dense exchange
    uint64_t returning;          // of them, those that sat out before: they fetch dense weights
    uint64_t sharing;            // who trained alone before: gives the dense weights to the shards
    uint32_t dense_chunk_floats; // of a message of the dense exchange
    dp_slice *slices;            // worker_count
    uint64_t moves;              // rows that change their home
    dp_hits hits;
    dp_clocks clocks; // all 0 without bounded staleness
} dp_plan;

rt_status dp_plan_init(dp_plan *plan, uint32_t worker_count);
void dp_plan_fini(dp_plan *plan);
void dp_plan_clear(dp_plan *plan);

// Room for so many samples, lookups and as many rows in a slice. RT_NO_MEMORY.
rt_status dp_slice_reserve(dp_slice *slice, uint32_t sample_count, uint32_t lookup_count);

// Room for count more operations. RT_NO_MEMORY.
rt_status dp_ops_reserve(dp_ops *ops, uint32_t count);

// No sample, no row, no operation: the worker sits out, and has nothing to do.
static inline bool dp_slice_is_empty(const dp_slice *slice)
{
    return slice->sample_count + slice->row_count + slice->release.count + slice->fill.count +
               slice->after.count ==
           0;
}

// Appends an operation and returns it, zeroed but for kind and peer; NULL when out of memory.
static inline dp_op *dp_ops_add(dp_ops *ops, dp_op_kind kind)
{
    if (RT_UNLIKELY(ops->count == ops->capacity) && dp_ops_reserve(ops, 1))
        return NULL;
    dp_op *op = &ops->items[ops->count++];
    *op = (dp_op){.kind = (uint8_t)kind, .peer = DP_NO_WORKER};
    return op;
}

// Adds what operations count as.
void dp_counts_add_op(rt_counts *counts, const dp_op *op);
void dp_counts_add_slice(rt_counts *counts, const dp_slice *slice);

// A hash of everything in the plan, for comparing two planners bit by bit.
uint64_t dp_plan_fingerprint(const dp_plan *plan);

// Of all plans of a run: from 0, with every plan's fingerprint in order of iteration.
uint64_t dp_fingerprint_add(uint64_t run, uint64_t plan);

#endif
