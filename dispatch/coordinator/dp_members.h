// dp_members - what a run is from one start to the next, beside its configuration: which boxes take
// part, and with what learning rates.
//
// A file beside the checkpoints, "boxes", has it once somebody has changed it (`lanyard add`,
// `drain`, `set`); without it all boxes take part that are not spare, and rates are as configured.
// `lanyard up` and the coordinator read it before every start.
#ifndef DP_MEMBERS_H
#define DP_MEMBERS_H

#include "dispatch/coordinator/dp_added.h"
#include "runtime/config/rt_config.h"

#define DP_MEMBERS_NAME "boxes" // of the file

typedef struct {
    uint64_t boxes;             // mask, by the configuration; 0: it tells of no boxes
    uint64_t workers, shards;   // masks of their ranks
    float row_rate, dense_rate; // learning rates that were set; 0: as configured
    double still_s; // training stands still for a change since then, seconds since 1970; 0: it does
                    // not
} dp_members;

// Of these boxes of a configuration.
dp_members dp_members_of(const rt_config *config, uint64_t boxes);

// Puts the rates that were set into a configuration.
void dp_members_set_rates(const dp_members *members, rt_config *config);

// Leaves of a configuration only these boxes, with the rates that were set. whole: of all boxes.
// Caches, links and plans in a checkpoint are those of its members, so they have a hash of their
// own: *hash_p is that of the whole configuration before, theirs afterwards.
void dp_members_keep_boxes(const dp_members *members, const rt_config *whole, rt_config *part,
                           uint64_t *hash_p);

// And of them only these workers, by their ranks among all.
void dp_members_keep_workers(const dp_members *members, uint64_t workers, rt_config *part,
                             uint64_t *hash_p);

// folder: of the checkpoints, "": there is none. Boxes that the configuration does not have any
// more are left out, and so is a rate that is configured otherwise since it was set: the log says
// so. RT_CONFIG: none is left that has a worker, or none with a shard; RT_DATA, RT_IO: of the file,
// which error names; RT_NO_MEMORY.
rt_status dp_members_read(const rt_config *config, const char *folder, dp_members *members,
                          rt_error *error);

// What the file says of boxes that were added, first of all: config gets those that it lacks.
// Errors as dp_added_take; RT_IO: *added has none.
rt_status dp_members_read_added(const char *folder, rt_config *config, dp_added *added,
                                rt_error *error);

// RT_IO, RT_NO_MEMORY.
rt_status dp_members_write(const rt_config *config, const char *folder, const dp_members *members,
                           const dp_added *added, rt_error *error);

#endif
