// dp_sim - the planner without workers: runs a stream through it and counts what a real run of the
// same config would move, operation for operation.
#ifndef DP_SIM_H
#define DP_SIM_H

#include <stdio.h>

#include "dispatch/planner/dp_account.h"
#include "dispatch/plan/dp_journal.h"
#include "runtime/config/rt_config.h"
#include "runtime/stream/rt_stream.h"

typedef struct {
    const rt_config *config;
    const rt_schema *schema;
    uint64_t distinct_keys;  // of the input, or 0 (dp_setup)
    uint64_t dense_bytes;    // of one worker, each way and iteration
    const dp_inputs *inputs; // NULL, or: the records of another run instead of the controllers
    const char *journal;     // NULL, or: file for the records of the controllers
    FILE *trace;             // NULL, or: one JSON line per iteration and worker (dp_trace_plan)
    FILE *placements;        // NULL, or: one line per sample (dp_trace_placement)
    bool progress;           // a line on standard error while it runs
} dp_sim_config;

typedef struct {
    dp_account_config costs;
    dp_account account; // after the warm-up
    uint64_t warmup_iterations;
    uint32_t slot_count;                     // cache rows per worker
    double decision_ms_p50, decision_ms_p99; // look-up and placement
    double decision_ms_max;                  // with the choice of participants
    double commit_ms_p50;                    // cache update and plan
    double planned_samples_per_s;            // both, without reading the stream
    uint64_t directory_keys, directory_bytes;
    dp_decisions decisions;      // after the warm-up
    uint64_t participants;       // in the last iteration
    uint64_t sweeps, rows_ended; // dp_sweep.h
    // of a system of dp_peers.h, over the counted iterations:
    uint64_t reduce_bytes;          // vectors that workers summed among themselves
    uint64_t reduce_critical_bytes; // of them, those that the next batch needs
    uint64_t window_rows;           // rows of the window
    uint64_t window_batches;
    uint64_t fingerprint; // of all plans (dp_fingerprint_add), warm-up included
} dp_sim_result;

// Reads the stream to its end, or sim.iterations. RT_CONFIG, RT_DATA, RT_IO, RT_NO_MEMORY.
rt_status dp_sim_run(const dp_sim_config *sim, dp_sim_result *result, rt_error *error);

// A SPEC "name[:key=value]..." over the keys of `dispatch`, applied to a config. RT_CONFIG.
rt_status dp_sim_apply_spec(rt_config *config, const char *spec, rt_error *error);

#endif
