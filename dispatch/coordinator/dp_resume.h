// dp_resume - makes a run that has just assembled go on from a checkpoint.
//
// The newest checkpoint that is whole: its own parts are read here, the shards are told to take
// their rows, tell which keys they hold (that is the planner's directory), and the workers get the
// dense part and, where caches are as they were, the rows that were in them. A shard that lacks a
// file, or finds it damaged, gets the coordinator's copy, if there is one. A checkpoint that turns
// out to be damaged is named and the one before is tried. One thread, between WELCOME and the first
// slice.
#ifndef DP_RESUME_H
#define DP_RESUME_H

#include "dispatch/coordinator/dp_roster.h"
#include "dispatch/coordinator/dp_saved.h"

typedef struct {
    const rt_config *config;
    const char *directory; // of the checkpoints
    uint64_t schema, config_hash;
    uint32_t epoch;
    uint32_t sender;
    const dp_planner_config *planner;
    dp_slice_limits limits;
    dp_roster *roster;
    dp_stats *stats;
    int stop_fd; // readable when the run is to end, or -1
    int wake_fd; // an eventfd, for copies that are sent back to shards
    // Takes messages that are not about resuming.
    rt_status (*other)(void *context, uint32_t peer, const rt_message *message, rt_error *error);
    void *context;
} dp_resume_config;

typedef struct {
    dp_planner *planner; // the caller's
    dp_restored restored;
    rt_bytes position;        // in the stream (rt_position.h); the caller's
    dp_state_rest beside;     // the caller's
    uint64_t sequence_next;   // of slices
    dp_checkpoint_past *past; // the caller's (rt_free)
    uint32_t past_count;
    dp_ages_kept ages;
    bool is_of_others; // with another number of shards, or other homes
} dp_resumed;

typedef enum {
    DP_RESUME_NO,     // a run of its own: there must be no checkpoints yet
    DP_RESUME_NEWEST, // there must be one
    DP_RESUME_IF_ANY
} dp_resume_kind;

// Where checkpoints of a run are (directory, size bytes; "": none are made), whether it goes on
// from one, and whether it has an epoch (without checkpoints it is 0). out: of the results, or
// NULL. Nothing is written: much can still be wrong with the run. RT_CONFIG: checkpoints are
// wanted, but there is no place for them, or it holds those of another run; RT_NOT_FOUND: there is
// none to resume from; RT_IO, RT_NO_MEMORY.
rt_status dp_resume_prepare(const rt_config *config, const char *out, dp_resume_kind kind,
                            char *directory, size_t size, bool *resumes_p, bool *has_epoch_p,
                            rt_error *error);

// Makes the directory, and begins the epoch of this start in it. RT_IO, RT_NO_MEMORY.
rt_status dp_resume_begin_epoch(const char *directory, uint32_t *epoch_p, rt_error *error);

// The same for a run that begins with a model (dp_initial): shards take its rows, workers its dense
// part. RT_DATA: a shard or a worker finds it damaged; others as below.
rt_status dp_resume_begin_with(const dp_resume_config *config, const dp_saved *model,
                               rt_error *error);

// Checkpoints newer than the one taken are set aside: their history is lost. RT_NOT_FOUND: none was
// ever completed, the shards are empty; what there is of them is removed. RT_DATA: there are
// checkpoints, and all are damaged: each was named, and nothing was changed in the folder.
// RT_STOPPED, RT_PEER, RT_WIRE, RT_NO_MEMORY, RT_CONFIG.
rt_status dp_resume_run(const dp_resume_config *config, dp_resumed *resumed, rt_error *error);

#endif
