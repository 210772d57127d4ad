// dp_replica - a planner that follows another one.
//
// Fed with the batches and input records of a coordinator, in its order, it makes the coordinator's
// plans bit for bit, and the slice of one worker. What the planner's determinism rests on
// (dp_planner.h) is all that it is told. No process of a run has one. One thread at a time.
#ifndef DP_REPLICA_H
#define DP_REPLICA_H

#include "dispatch/plan/dp_broadcast.h"
#include "dispatch/planner/dp_planner.h"
#include "dispatch/plan/dp_slice_wire.h"
#include "runtime/stream/rt_tables.h"

typedef struct {
    const dp_planner_config *planner; // as the coordinator's; needed while creating
    dp_slice_limits limits;
    const rt_tables *tables; // that fields share; needed while creating; NULL: none
    uint32_t rank;           // the worker
    uint32_t sender;         // that the slices name: the coordinator
} dp_replica_config;

typedef struct dp_replica dp_replica;

rt_status dp_replica_create(const dp_replica_config *config, dp_replica **replica_p,
                            rt_error *error);
void dp_replica_destroy(dp_replica *replica);

// Takes a BATCH message (it stays the caller's) and makes the SLICE message of its sequence number,
// fingerprint included. RT_WIRE: not the message that follows, or wrong in itself; RT_CONFIG: a
// record out of range; RT_NO_MEMORY. After an error the replica must not be used further.
rt_status dp_replica_plan(dp_replica *replica, const rt_message *batches, rt_message *slice,
                          rt_error *error);

#endif
