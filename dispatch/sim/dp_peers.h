// dp_peers - how other systems move rows on the same stream and links: FAE and Bagpipe.
//
// For `lanyard sim` alone: no run of Lanyard works like this. Their rows are counted operation for
// operation, by what their papers say, or papers that measured beside them; every choice that these
// leave open is named in docs/POLICIES.md. Both train the model of synchronous training, but for
// FAE's order of samples (schedule).
//
// Rows that all workers sum among themselves move in a ring: each worker sends and receives
// 2 (n - 1) / n of the vectors, no ids, and nothing passes the parameter servers. So do their dense
// gradients. Neither is part of `cost`, which counts transfers of the parameter servers as ESD
// does; both are part of the predicted time and of reduce_bytes.
#ifndef DP_PEERS_H
#define DP_PEERS_H

#include "dispatch/sim/dp_sim.h"

#define DP_PEER_WINDOW_MAX 1024u // batches

typedef enum { DP_PEER_FAE, DP_PEER_BAGPIPE } dp_peer_kind;

typedef struct {
    dp_peer_kind kind;
    uint64_t hot_rows; // fae: replicated rows; 0: as many as a worker's cache has
    uint64_t profile;  // fae: samples from the start of the stream that popularity is counted over
    // fae: of dp_popularity_write, instead of counting; with hot_rows 0 all its rows. "": none.
    char file[RT_PATH_MAX];
    bool schedule;   // fae: batches are all hot or all cold, as far as the samples allow
    uint32_t window; // bagpipe: batches looked ahead, the present one included; 0: what the cache
                     // holds
    bool replicate;  // bagpipe: every row is replicated (its first design), not only shared ones
    bool partition;  // bagpipe: every row is on one worker (its second), samples go where rows are
} dp_peer;

// A SPEC "fae[:hot_rows=N][:profile=N|FILE][:schedule=true]" or
// "bagpipe[:window=N][:replicate=true|:partition=true]". RT_NOT_FOUND: it names neither. RT_CONFIG:
// a key or value that is not known, or both designs.
rt_status dp_peer_parse(const char *spec, dp_peer *peer, rt_error *error);

// As dp_sim_run; of the result, costs, account, warm-up, slot count and what is said to be of such
// a system are set. fae: RT_CONFIG where hot_rows is more than its file has; the errors of
// dp_popularity_read. bagpipe: RT_CONFIG where a batch has more distinct rows than the cache.
rt_status dp_peer_run(const dp_sim_config *sim, const dp_peer *peer, dp_sim_result *result,
                      rt_error *error);

#endif
