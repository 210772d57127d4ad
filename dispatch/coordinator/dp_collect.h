// dp_collect - files that members send to the coordinator's box, as they come in.
//
// One at a time of each shard, and one of a worker. Pieces are written by threads (rt_parcel); the
// coordinator goes on meanwhile, and holds a megabyte of each file at most. One thread.
#ifndef DP_COLLECT_H
#define DP_COLLECT_H

#include "dispatch/coordinator/dp_roster.h"
#include "runtime/files/rt_parcel.h"

typedef struct {
    dp_roster *roster;
    uint32_t sender; // rt_peer of the coordinator
    int wake_fd;     // an eventfd: written when dp_collect_step has something to do
    uint32_t giver;  // the worker that sends the dense part
    rt_parcel_in worker, shards[RT_SHARDS_MAX];
} dp_collect;

void dp_collect_fini(dp_collect *collect); // drops all; also of a zeroed one

// From now on peer may send a file, to go to path. RT_NO_MEMORY, RT_LIMIT, RT_CONFIG.
rt_status dp_collect_expect(dp_collect *collect, uint32_t peer, uint64_t iteration,
                            const char *path, rt_error *error);

// What is still on its way of it is not taken any more.
void dp_collect_drop(dp_collect *collect, uint32_t peer);

// The one that peer sends; its status says how far it is. Never NULL for the giver and shards.
const rt_parcel_in *dp_collect_of(const dp_collect *collect, uint32_t peer);

// Takes a PIECE. RT_WIRE: nobody waits for it. One of a file that was dropped is passed over.
rt_status dp_collect_take(dp_collect *collect, uint32_t peer, const rt_message *message,
                          rt_error *error);

// Tells members what has been written. RT_PEER, RT_NO_MEMORY.
rt_status dp_collect_step(dp_collect *collect, rt_error *error);

#endif
