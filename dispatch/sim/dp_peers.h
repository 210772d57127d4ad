// dp_peers - how Bagpipe moves rows in the designs of its paper, on the same stream and links.
//
// For `lanyard sim` alone: where all trainers keep a row, no run of Lanyard works like this. Rows are
// counted operation for operation, by what the paper says; every choice that it leaves open is named
// in docs/POLICIES.md. The model is that of synchronous training.
//
// Rows that all workers sum among themselves move in a ring: each worker sends and receives
// 2 (n - 1) / n of the vectors, no ids, and nothing passes the parameter servers. So do their dense
// gradients. Neither is part of `cost`, which counts transfers of the parameter servers as ESD
// does; both are part of the predicted time and of reduce_bytes.
#ifndef DP_PEERS_H
#define DP_PEERS_H

#include "dispatch/sim/dp_sim.h"

#define DP_PEER_WINDOW_MAX 1024u // batches

typedef struct {
    uint32_t window; // batches looked ahead, the present one included; 0: what the cache holds
    bool replicate;  // every row is replicated (the first design), not only shared ones
    bool partition;  // every row is on one worker (the second), samples go where rows are
} dp_peer;

// A SPEC "bagpipe[:window=N][:replicate=true|:partition=true]". RT_NOT_FOUND: it names something
// else. RT_CONFIG: a key or value that is not known, or both designs.
rt_status dp_peer_parse(const char *spec, dp_peer *peer, rt_error *error);

// As dp_sim_run; of the result, costs, account, warm-up, slot count and what is said to be of such
// a system are set. RT_CONFIG where a batch has more distinct rows than the cache.
rt_status dp_peer_run(const dp_sim_config *sim, const dp_peer *peer, dp_sim_result *result,
                      rt_error *error);

#endif
