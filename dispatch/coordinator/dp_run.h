// dp_run - what the coordinator's parts share: the state of one run, from the first HELLO to the
// end.
//
// dp_coordinator.c opens what it needs and takes it to the end, dp_iterations.c
// carries it from slice to slice, dp_ending.c collects the model. One thread.
//
// A run goes through its phases once, and each waits for others in turns (dp_run_turn):
//
//     JOINS      all say HELLO; a run that goes on: shards read their rows, workers fill caches
//       |  WELCOME, or the first plan after a checkpoint
//     TRAINS     slices go out, REPORTs come in
//       |  the last plan, a flush, is out
//     DRAINS     REPORTs of what is under way, the checkpoint at the end
//       |  nothing is under way
//     FINISHES   FINISH to the workers, until each has FINISHED
//       |
//     SAVES      SAVE to shards and one worker, until all PIECEs are on disk; then the manifest
//
// While it TRAINS an open iteration is one between its slices and the last REPORT on it. With two
// workers, run_ahead 1, and a checkpoint after iteration 3:
//
//     slices out   1 2     3       cut        MARK . . . CUT . .   4 5
//     reports in       1.0   1.1 2.0   2.1 3.0 3.1  marks    captured    (iteration.worker)
//     open         1 2 2   2 2     1   1 0 ...                     1 2
//
// No slice goes out while as many iterations are open as may be, a cut waits for its marks and shards
// (cut.planned), links are probed (prober.open), or all are to start anew (restart.checkpoint).
#ifndef DP_RUN_H
#define DP_RUN_H

#include "dispatch/coordinator/dp_ages.h"
#include "dispatch/coordinator/dp_collect.h"
#include "dispatch/coordinator/dp_control.h"
#include "dispatch/coordinator/dp_coordinator.h"
#include "dispatch/coordinator/dp_cut.h"
#include "dispatch/coordinator/dp_feed.h"
#include "dispatch/coordinator/dp_links.h"
#include "dispatch/coordinator/dp_losses.h"
#include "dispatch/coordinator/dp_members.h"
#include "dispatch/coordinator/dp_membership.h"
#include "dispatch/coordinator/dp_move.h"
#include "dispatch/coordinator/dp_publisher.h"
#include "dispatch/coordinator/dp_saved.h"
#include "dispatch/coordinator/dp_stats.h"
#include "dispatch/coordinator/dp_watch.h"
#include "dispatch/planner/dp_controller.h"
#include "runtime/live/rt_live.h"
#include "runtime/live/rt_mirror.h"
#include "runtime/stream/rt_scale.h"
#include "runtime/stream/rt_stream.h"

// ---- dp_initial.c -----------------------------------------------------------------------------

// The finished model that a run begins with (--init): read and judged here, by the coordinator,
// before anybody joins.
//
// Rows, dense part and the scale of the dense features are the model's. All else is the run's own:
// workers, shards, caches, and fields behind those of the model. The shards hold its rows in
// version 0, which nobody has trained: whoever touches one first pulls it. One thread.

typedef struct {
    dp_saved saved;  // iteration 0, one folder
    rt_scale *scale; // NULL: dense features stay as they are
} dp_initial;

// folder: of a model; config and schema: of the run. All files are there, with their sums.
// RT_CONFIG: it is another model, or one of other columns, error names what differs; RT_NOT_FOUND,
// RT_DATA, RT_IO, RT_NO_MEMORY. *initial is zeros then.
rt_status dp_initial_read(const char *folder, const rt_config *config, const rt_schema *schema,
                          dp_initial *initial, rt_error *error);
void dp_initial_fini(dp_initial *initial);

// -----------------------------------------------------------------------------------------------

#define DP_SELF rt_peer(RT_ROLE_COORDINATOR, 0)

typedef enum {
    DP_RUN_JOINS,    // members, and what is read from a checkpoint
    DP_RUN_TRAINS,   // slices go out
    DP_RUN_DRAINS,   // the last one is out
    DP_RUN_FINISHES, // workers are asked whether all is done
    DP_RUN_SAVES     // the model comes in
} dp_run_phase;

// Iterations that are out and not all have reported on, by sequence number.
typedef struct {
    dp_planned *planned;           // NULL: free
    uint64_t reported;             // mask of workers
    uint64_t skipped;              // of them, those that applied nothing
    bool bad;                      // a loss is not finite
    uint64_t compute_ns, dense_ns; // of those that trained: the longest, the shortest
} dp_open_iteration;

typedef struct {
    dp_open_iteration *list;
    uint32_t max, count;
} dp_open_iterations;

struct dp_run {
    dp_run_phase phase;
    bool interrupted, stopped_early;
    dp_coordinator_config own; // as the caller gave it, but for the hash of those that take part
    // Of all boxes: own.config, and behind its boxes those that were added. Its ranks are those of
    // people and of files beside checkpoints; members prove in HELLO that they have it.
    rt_config site_config;
    // Of the boxes and workers that take part, with the learning rates that were set: what is
    // planned, trained and saved. Its ranks are places.
    rt_config run_config;

    // Who: dp_roster_members is the table of members.
    rt_transport *transport;
    dp_roster *roster;
    dp_members members; // boxes that take part
    dp_added added;
    dp_losses losses;
    dp_move move;
    struct {
        uint64_t not_before_ns; // from then on workers that came back are taken back
        uint32_t checkpoint;    // iteration of the one with which all start anew; 0: none is made
        uint32_t ahead, passed; // checkpoints that went ahead of it; iterations of the last of them
    } restart;
    dp_overdue overdue;
    uint64_t finished_workers; // that answered FINISH

    // What is read and planned.
    rt_live *live;     // NULL: nobody sends to this run
    rt_stream *stream; // until the feed has it; then NULL
    struct {
        dp_planner_config planner;
        dp_account_config costs;
        dp_slice_limits limits;
        uint64_t distinct_keys;
    } planning;
    dp_feed *feed;
    dp_open_iterations open;        // at most run_ahead + 1
    const dp_judgement *saved_best; // whose model was saved in place of the last one; or NULL
    rt_error input_failure;         // why the input ended early: the model is saved all the same

    // What is kept.
    struct {
        char checkpoints[RT_PATH_MAX]; // their directory; "": none are made
        uint64_t id;                   // where the run has or had a standby; else 0
        uint32_t epoch;
        bool resumes, has_epoch;
    } folder;
    dp_resumed resumed; // planner NULL: a run of its own
    dp_initial initial; // of own.model
    dp_checkpoint *checkpoint;
    dp_cut cut;
    dp_collect collect;
    dp_ages ages;
    dp_publisher *publisher; // NULL: nothing is published to other boxes
    rt_mirror *mirror;       // NULL: there is no standby

    // What is measured, and what is asked.
    dp_links links;
    dp_prober prober;
    dp_stats *stats;
    dp_watch watch;
    uint64_t iteration_ns;     // end of the iteration before; 0: none yet
    uint64_t live_recorded_ns; // when there was a record of live
    struct {
        dp_controller controller;
        dp_reload reload;
        dp_reloaded in_force; // of the keys that can be reloaded, as configured
    } settings;
    dp_control control;
    int wake_fd; // written by others
    int wait_fd; // readable when wake_fd is, or a part of a checkpoint is done
};

// Mask of the workers that take part, by their places.
static inline uint64_t dp_run_workers(const dp_run *run)
{
    return dp_membership_workers(dp_roster_members(run->roster));
}

// Of them, the one that is asked for the dense weights.
static inline uint32_t dp_run_lead(const dp_run *run)
{
    return rt_peer(RT_ROLE_WORKER, rt_lowest_bit(dp_run_workers(run)));
}

// Iteration of the newest checkpoint; 0: there is none.
static inline uint32_t dp_run_newest(const dp_run *run)
{
    if (!run->checkpoint)
        return 0;
    return dp_checkpoint_newest(run->checkpoint);
}

// What the controller has decided goes to the planner.
static inline void dp_run_tell_records(dp_run *run)
{
    dp_input input;
    while (dp_controller_next(&run->settings.controller, &input))
        dp_feed_tell(run->feed, &input);
}

// ---- dp_iterations.c -------------------------------------------------------------------------

rt_status dp_open_init(dp_open_iterations *open, uint32_t max, rt_error *error); // RT_NO_MEMORY
// Gives what is left back to the feed, which may be NULL if nothing was ever put.
void dp_open_fini(dp_open_iterations *open, dp_feed *feed);

// Takes a message of a member (dp_run *context). RT_WIRE, and what its part returns.
rt_status dp_run_take(void *context, uint32_t peer, const rt_message *message, rt_error *error);

// Waits for messages or plans, notes a request to stop, and takes all messages that came.
rt_status dp_run_turn(dp_run *run, rt_error *error);

// ---- dp_losses.c -----------------------------------------------------------------------------

// A worker (dp_run *context), by its place, is lost: whether the run goes on without it. why: what
// has become of it.
bool dp_run_spares(void *context, uint32_t worker, const char *why);

// From now on workers that come back wait for timeouts.rejoin_s.
void dp_run_put_off_taking_back(dp_run *run);

// To the end of the input, and until the last checkpoint is on disk or has failed. RT_AGAIN:
// workers are back, all is to start anew.
rt_status dp_run_train(dp_run *run, rt_error *error);

// ---- dp_watch.c --------------------------------------------------------------------------

// An iteration is complete; now and then, records where they are due; the last ones.
void dp_run_watch_iteration(dp_run *run, const dp_planned *planned);
void dp_run_watch(dp_run *run);
void dp_run_watch_end(dp_run *run);

// What has crossed the links since this start, as far as the workers have told.
void dp_run_traffic(const dp_run *run, rt_traffic *traffic);

// ---- dp_ending.c -----------------------------------------------------------------------------

// Everything is trained: the flush, the model, the summary.
rt_status dp_run_finish(dp_run *run, rt_error *error);

#endif
