// dp_coordinator - the process that owns a run: stream, plan, slices, progress, summary, model.
//
// Runs in one thread beside those of dp_feed. Ends when the input ends, after a stop request (both
// cleanly, with summary and model), or when a member fails (error names it, the others are told).
#ifndef DP_COORDINATOR_H
#define DP_COORDINATOR_H

#include "dispatch/coordinator/dp_evidence.h"
#include "dispatch/coordinator/dp_publisher.h"
#include "dispatch/coordinator/dp_reload.h"
#include "dispatch/coordinator/dp_resume.h"
#include "runtime/config/rt_config.h"
#include "runtime/rt_notify.h"
#include "runtime/transport/rt_transport.h"

// In the folder of a run while it is there: its configuration, and where it listens, with what keys.
#define DP_RUNNING "running.json"

// A plain value; what it points to is the caller's, and stays until the run has ended.
typedef struct {
    const rt_config *config;
    const rt_config *site; // as the other boxes have it in their files; NULL: config
    rt_identity identity;  // members must have the same
    uint64_t schema;
    const rt_transport_ops *ops;
    const rt_keys *keys; // NULL: loopback only
    dp_resume_kind resume;
    const char *model; // what a run begins with that does not go on; NULL: with nothing
    bool may_shrink;   // workers that do not come within timeouts.rejoin_s are done without
    uint64_t without;  // of them these are not waited for
    bool *is_anew;     // set where members are told that all start anew at once; NULL: this process
                       // cannot, so they are told after a loss that the run has failed
    bool spawned;      // whoever started this process starts the members of a box that is added
    // Results: summary.json, metrics.jsonl, records.jsonl, trace.jsonl, model/, checkpoints/; or
    // NULL.
    const char *directory;
    bool trace;           // trace.jsonl: what every worker executed, by iteration
    uint64_t dense_bytes; // of one worker, each way and iteration, for the prediction
    int stop_fd;          // becomes readable when the run should end early; or -1
    int signal_fd;        // a signalfd: SIGHUP: read the configuration again; SIGUSR1: a checkpoint
    dp_reload_source reload;
    bool progress;     // a live line on standard error
    rt_notify *notify; // or NULL
    // Predicts samples as they were read by the published model in a folder, with no more of its
    // rows in memory than they look up; for the guard. output_count predictions of each. NULL: it
    // does without. Called in a forked copy of the process.
    dp_recall recall;
    // With publish.address: files of rows without state, for servers.
    dp_values values;
    dp_merge merge; // or NULL: nothing is merged, shards write all rows now and then
    // Makes the model of a checkpoint in a folder, as `lanyard export` does: the one of the best epoch.
    // NULL: the last one is saved.
    rt_status (*extract)(const char *checkpoint, const char *folder, rt_error *error);
    // Called once, with the address that members connect to.
    void (*announce)(void *context, const char *address);
    // Called once model and summary are on disk: whatever happens to the run now has no effect.
    void (*saved)(void *context);
    void *announce_context; // of both
} dp_coordinator_config;

// RT_OK: the run ended as it should. RT_AGAIN: workers that were missing are back, a checkpoint is
// made, and everything is to be started anew from it. Otherwise error says who or what failed.
rt_status dp_coordinator_run(const dp_coordinator_config *config, rt_error *error);

#endif
