// cli_plan - what a run takes, known before it starts: memory per process, bytes per link.
//
// Exact where the numbers are given (slab, table, dense exchange), an upper bound for rows in
// traffic: what they really move, `lanyard sim` counts. What a process takes of itself, about
// CLI_PROCESS_BYTES with a BLAS, is in none of the numbers per process, and in those per box.
#ifndef CLI_PLAN_H
#define CLI_PLAN_H

#include <stdio.h>

#include "cli/cli.h"

#define CLI_PROCESS_BYTES UINT64_C(100000000) // code, BLAS, buffers

typedef struct {
    rt_schema schema;
    uint64_t distinct_keys; // declared or counted; 0: not known
    uint32_t slot_count;    // per worker; 0: not known, as it depends on the keys
    uint32_t micro_batch;   // samples, at most
    uint64_t lookups;       // of a micro-batch, at most
    uint64_t row_bytes, state_bytes;
    uint64_t dense_bytes;        // each way, per worker and iteration
    uint64_t slice_bytes;        // to each worker per iteration, about
    uint64_t rows_bytes;         // each way, per worker and iteration, at most
    uint64_t rows_max;           // of all shards, ever; 0: not known
    uint32_t planner_slot_bytes; // of the coordinator, for each slot of each worker
    uint32_t batches_ahead;      // read before their turn: cache.lookahead, or dispatch.window
    uint64_t ahead_bytes;        // of these, at most
    uint64_t cache_bytes, worker_bytes, shard_bytes, coordinator_bytes;
} cli_plan;

// count: read the input once if its distinct keys are needed and not declared. RT_CONFIG: something
// cannot fit, error says what and which key to change; RT_IO: the input cannot be read here.
rt_status cli_plan_make(const rt_config *config, bool count, cli_plan *plan, rt_error *error);

// Who is on a box.
typedef struct {
    uint32_t workers, shards;
    bool has_coordinator;
} cli_residents;

// What a box takes, in bytes: memory of all its processes; a model beside the one that takes its
// place on disk, which is whole on the coordinator's box, and on others what their shards have of
// it. Where the distinct keys are not known, without what follows from them.
uint64_t cli_plan_memory(const cli_plan *plan, const cli_residents *who);
uint64_t cli_plan_disk(const cli_plan *plan, const rt_config *config, const cli_residents *who);

// The same in words, for whoever reads of one box (check: all are on it; doctor: this one).
void cli_plan_tell_memory(const cli_plan *plan, const rt_config *config, const cli_residents *who,
                          char *text, size_t size);
void cli_plan_tell_disk(const cli_plan *plan, const rt_config *config, const cli_residents *who,
                        char *text, size_t size);

void cli_plan_print(const cli_plan *plan, const rt_config *config, FILE *file);

#endif
