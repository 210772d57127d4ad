// fabric - a whole run in one process and one thread: planner, executors, models, PS shards.
//
// Parts are joined by a queue per (sender, receiver) that keeps its order. A seeded schedule picks
// what happens next: which queue delivers, who trains, when a slice is handed out, when a shard
// sends its replies. Every order that real processes can show is possible, and a seed repeats it.
// Nothing waits: a run in which nothing can happen any more fails and prints who waits for what.
// Errors end the test.
#ifndef FABRIC_H
#define FABRIC_H

#include "dispatch/cost/dp_ticks.h"
#include "dispatch/planner/dp_hot.h"
#include "dispatch/planner/dp_planner.h"
#include "dispatch/planner/dp_sweep.h"
#include "edge_worker/executor/ew_executor.h"
#include "edge_worker/model/ew_model.h"
#include "tests/support/planner_case.h"

// What is trained, and how.
typedef struct {
    uint64_t seed; // of samples, rows, weights and planner
    uint32_t worker_count, shard_count;
    uint32_t samples_per_worker;
    uint32_t more_labels; // of a sample, after the first: some are absent, losses have weights
    uint32_t iterations;
    uint32_t short_every;  // so many iterations: a batch is not full; 0: all are but the last
    uint32_t last_samples; // of the last batch; 0: a full one
    uint32_t change_every; // so many iterations: others take part; 0: all always do
    rt_coding dense_wire, row_wire;
    rt_homes homes;        // planned: worker j and shard j are on box j
    uint32_t lone_batches; // the first so many: all labels are 0, so that nothing can be learnt
    uint32_t bad_every;    // so many batches: one has a dense feature that is not finite; 0: none
    uint32_t field_count, ids_per_field, bag_max;
    uint32_t dense_count;
    double zipf;
    cache_size cache;
    rt_eviction_kind eviction;
    uint32_t lookahead; // batches that the planner sees before their turn
    uint32_t hot_ids;   // of every field: all workers keep them; 0: none
    rt_dispatch_config dispatch;
    rt_consistency_config consistency;
    rt_model_config model;
    rt_optimizer_config rows, dense; // optimizers
    dp_rows ends;                    // when rows end, and begin
    bool shares;                     // the last field has the rows of the first
    bool is_graph;                   // with shares: all fields have them
    uint32_t class_count;            // that labels are taken for; 0: none
} fabric_shape;

#define FABRIC_RUN_AHEAD_MAX 5u

// How it comes about: must not change any result.
typedef struct {
    uint64_t seed;          // of the choices
    uint32_t run_ahead;     // slices handed out before they are trained
    uint32_t push_credits;  // per worker and shard
    uint32_t message_bytes; // of a full message
    uint32_t queue_max;     // messages of rows in a queue, then RT_AGAIN; 0: no limit
} fabric_schedule;

typedef struct {
    fabric_shape shape;
    dp_planner_config planner;
    dp_hot *hot;       // or NULL
    rt_batch *batches; // shape.iterations, as they were planned
    rt_batch *offered; // with ends.admit or shares: as they came; else NULL
    rt_tables tables;
    rt_message *slices; // slice_count x worker_count; empty: left out
    uint32_t left_out;  // of them
    uint32_t iteration; // while planning: of the slice that was added last
    // While planning: slices in a row with nothing for a worker, and those of them that are left out.
    uint32_t idle[RT_WORKERS_MAX], gap[RT_WORKERS_MAX];
    rt_counts *counts;    // the same, as planned
    uint32_t *placements; // iterations x samples of a full batch: workers
    uint32_t slice_count; // the flush is the last
    uint32_t *floors;     // of each slice: of the sweep that it is, or 0
    uint32_t *swept;      // of each iteration: floor of the sweep after it, or 0
    uint64_t *keys;       // key_count, ascending: all keys of all batches
    uint32_t *versions;   // of each, at the end; 0: it has ended
    uint32_t key_count;
    rt_counts planned;  // all workers, all slices
    uint64_t handed;    // likewise: rows from worker to worker
    uint64_t gradients; // likewise
    dp_traffic traffic; // likewise: bytes that the cost model counts
} fabric_plan;

// What the slices of a worker may have.
dp_slice_limits fabric_limits(const fabric_plan *plan, uint32_t worker);

// Makes samples and plans of the whole run.
void fabric_plan_init(fabric_plan *plan, const fabric_shape *shape);
void fabric_plan_fini(fabric_plan *plan);

// Rows that a worker's cache holds between iterations.
uint32_t fabric_slots(const fabric_plan *plan, uint32_t worker);

// What a run leaves behind.
typedef struct {
    uint32_t key_count, row_floats; // values, then state
    float *rows;                    // key_count x row_floats, in the order of fabric_plan.keys
    uint32_t dense_count;
    float *dense;       // weights of worker 0; all others' are the same bits
    double loss_sum;    // of all samples, each before it was trained
    uint64_t turns;     // choices of the schedule
    uint64_t early;     // rows that came before their slot was free
    uint64_t parked;    // most pulls that waited at one shard
    uint64_t again;     // messages that a full queue refused
    uint64_t handed;    // rows that went from worker to worker
    uint64_t gradients; // likewise
    uint64_t alone;     // iterations that one worker trained alone
    uint64_t fetched;   // looks at weights that were on their way
} fabric_result;

// Carries the plan out. Checks on the way: stale reads, rows that change while they are trained,
// operations executed against those planned (slice by slice), bytes of rows against those that the
// cost model counts, versions, nothing left anywhere.
void fabric_run(const fabric_plan *plan, const fabric_schedule *schedule, fabric_result *result);
void fabric_result_fini(fabric_result *result);

// Where the optimizer's steps of iteration t stand (rt_optimizer_place).
uint64_t fabric_place(const fabric_plan *plan, uint32_t t);

// The model of a run on this shape; sample_count_max of the whole batch if whole, else of a worker.
ew_model_config fabric_model(const fabric_plan *plan, bool whole);

// The device that all models of a test share: opening one loads a BLAS. Never closed.
const ew_device *fabric_device(void);

#endif
