// dp_members - which boxes of the configuration take part in a run, from one start to the next.
//
// A file beside the checkpoints, "boxes", names them once somebody has changed it (`lanyard add`,
// `lanyard drain`); without it they are those that are not spare. `lanyard up` and the coordinator
// read it before every start.
#ifndef DP_MEMBERS_H
#define DP_MEMBERS_H

#include "runtime/config/rt_config.h"

typedef struct {
    uint64_t boxes;           // mask, by the configuration; 0: it tells of no boxes
    uint64_t workers, shards; // masks of their ranks
    double still_s; // training stands still for a change since then, seconds since 1970; 0: it does not
} dp_members;

// Of these boxes of a configuration.
dp_members dp_members_of(const rt_config *config, uint64_t boxes);

// folder: of the checkpoints, "": there is none. Boxes that the configuration does not have any more
// are left out, which the log says. RT_CONFIG: none is left that has a worker, or none with a shard;
// RT_DATA, RT_IO: of the file, which error names.
rt_status dp_members_read(const rt_config *config, const char *folder, dp_members *members,
                          rt_error *error);

// RT_IO, RT_NO_MEMORY.
rt_status dp_members_write(const rt_config *config, const char *folder, const dp_members *members,
                           rt_error *error);

#endif
