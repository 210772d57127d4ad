// dp_input - numbered input records: what a planner learns while it runs.
//
// A planner reads no clock and measures nothing. Link rates, computing times, alpha and limits
// reach it as records that take effect at a named iteration: the same stream and the same records
// give the same plans, anywhere. Plain values.
#ifndef DP_INPUT_H
#define DP_INPUT_H

#include "runtime/rt_base.h"
#include "runtime/wire/rt_fields.h"

#define DP_INPUTS_WAITING_MAX 1024u // records that a planner or feed holds before they take effect

typedef enum {
    DP_INPUT_LINK_UP,            // bytes/s, worker to PS
    DP_INPUT_LINK_DOWN,          // bytes/s, PS to worker
    DP_INPUT_COMPUTE,            // seconds that a worker computes per sample; 0: not known
    DP_INPUT_ALPHA,              // dispatch.alpha
    DP_INPUT_SEARCH_EVALUATIONS, // dispatch.search_evaluations
    DP_INPUT_TABLES,             // laia: tables that are scored, of a run that chooses; 0: all
    DP_INPUT_PS_LINK,            // bytes/s of the parameter servers, each way; 0: no limit
    DP_INPUT_SHARD_LINK,         // bytes/s of one of their shards, each way; 0: no limit
    DP_INPUT_PARTICIPATES,       // whether a worker trains: 1, or 0: it sits out
    DP_INPUT_ROWS_FLOOR,         // rows trained last before this iteration end; see dp_sweep.h
    DP_INPUT_POLICY,             // dispatch.policy: rt_policy_number
    DP_INPUT_FORGET,             // the row of a key ends: dp_input_key
    DP_INPUT_LOST,               // 1: a worker that sat out has gone, and does not come back
    DP_INPUT_KINDS
} dp_input_kind;

typedef struct {
    uint64_t number;    // from 1, in the order in which the planner took them; 0: not yet
    uint32_t iteration; // the first whose look-up sees it; 0: the next
    uint32_t kind;      // dp_input_kind
    uint32_t worker;    // or shard, of kinds that are about one, else 0
    uint32_t unused;
    double value;
} dp_input;

extern const rt_fields dp_input_fields; // as checkpoints keep those that wait

// The key of DP_INPUT_FORGET stands in worker (its lower half) and value (the upper one, and 1).
dp_input dp_input_forget(uint64_t key);
uint64_t dp_input_key(const dp_input *input);

const char *dp_input_name(dp_input_kind kind);    // "link_up"
const char *dp_input_subject(dp_input_kind kind); // "worker", "shard"; NULL: about all

// RT_CONFIG: no such kind.
rt_status dp_input_find(const char *name, dp_input_kind *kind_p);

// RT_CONFIG: worker, shard or value out of range; error names the kind and what is allowed.
rt_status dp_input_check(const dp_input *input, uint32_t worker_count, rt_error *error);

#endif
