// dp_feed_parts - inside a feed: what its reader, its planner and its caller share.
#ifndef DP_FEED_PARTS_H
#define DP_FEED_PARTS_H

#include <pthread.h>
#include <stdatomic.h>

#include "dispatch/coordinator/dp_control.h"
#include "dispatch/coordinator/dp_feed.h"
#include "dispatch/plan/dp_broadcast.h"
#include "dispatch/planner/dp_participants.h"
#include "runtime/rt_queue.h"

// One being read, one waiting, one being planned, one whose plan is not final; and cache.lookahead.
#define DP_FEED_BATCHES 4u
#define DP_FEED_BATCHES_MAX (DP_FEED_BATCHES + DP_LOOKAHEAD_MAX)

typedef struct {
    rt_batch batch;
    rt_bytes end;      // of the batch: where the stream goes on
    rt_scale *scale;   // as it stood at the end; NULL: none
    rt_base_rate rate; // likewise
    dp_heard heard;
    dp_ranges ranges; // before scaling
    uint64_t dense_clipped;
    uint64_t read_ns;
    uint32_t epochs;    // an epoch ended in it: so many have; 0: none did, or nobody asks
    uint64_t *arrivals; // arrival_count of the batch's samples, the first ones
    uint32_t arrival_count;
} dp_feed_batch;

struct dp_feed {
    dp_feed_config config; // without planner: the caller's only while creating
    uint32_t batch_size;   // of a full batch
    bool grows;            // batches up to there (rt_batch_grown)
    rt_stream *stream;
    rt_scale *scale;                     // the reader's; NULL: dense features stay as they are
    rt_base_rate rate;                   // the reader's
    uint64_t passed;                     // samples that it has read
    rt_repeats *repeats, *stood_repeats; // the reader's, and as they were after the batch that was
                                         // planned last; NULL: batches do not grow
    dp_planner *planner;
    rt_pool *pool;            // lent to the planner; NULL: it needs none
    dp_participants *chooser; // NULL: nobody chooses
    atomic_bool chooser_rests;
    dp_feed_batch batches[DP_FEED_BATCHES_MAX];
    uint32_t batch_count;
    dp_feed_batch *ahead[DP_LOOKAHEAD_MAX + 1]; // previewed, the next to plan first
    uint32_t ahead_count;                       // the planner thread's, as they are
    uint32_t iteration;                         // planned last
    uint32_t last_cut;     // iteration before the last cut, or where a run was resumed
    rt_bytes ids;          // of the events before the first that is read; the reader's
    rt_bytes stood;        // where the stream goes on after the batch that was planned last
    rt_scale *stood_scale; // likewise
    rt_base_rate stood_rate;
    uint32_t epochs;     // of the batch that was planned last
    uint32_t end_epochs; // as input_end: those that were begun
    bool is_learnt;      // something was trained up to there
    rt_bytes waiting;    // restored; the reader's
    rt_bytes input_end;  // where it ended, once the reader has seen that; else empty
    dp_planned *planned; // config.planned_max
    rt_queue *free_batches, *full_batches;
    rt_queue *free_planned, *full_planned;
    pthread_t reader, planning;
    bool reader_runs, planning_runs;
    uint64_t idle_since_ns, idle_limit_ns; // the caller's: it has asked in vain; 0: it has not
    atomic_bool stop, cut_requested;
    int stop_fd;                    // readable once stop is set: ends a wait for input
    int ledger_fd;                  // -1: none
    rt_metrics *journal;            // the planner thread's
    uint64_t empty[RT_WORKERS_MAX]; // slices of iterations in a row that had nothing for a worker
    uint32_t left_out[RT_WORKERS_MAX]; // of them, since one went to it
    pthread_mutex_t lock;              // the members below
    rt_error failure;
    rt_error input_failure; // of a stream that gave batches before
    rt_stream_stats stats;
    dp_input told[DP_INPUTS_WAITING_MAX];
    uint32_t told_count;
};

_Static_assert(DP_INPUTS_WAITING_MAX >= (DP_INPUT_KINDS - 1) * RT_WORKERS_MAX + DP_FORGET_MAX,
               "one of each fits");

// The first failure stays.
void dp_feed_fail(dp_feed *feed, const rt_error *error);

// dp_feed_first.c: what there is to say of the first batch that this process reads, which has just
// come. RT_CONFIG: its labels may mean one thing or another.
rt_status dp_feed_look_at_first(dp_feed *feed, const dp_feed_batch *first, rt_error *error);

// The threads; context: the feed.
void *dp_feed_read(void *context);
void *dp_feed_plan(void *context);

// Of the planner's thread: all records that were told so far, for the look-up that follows; and who
// trains the batch that is looked up next.
void dp_feed_apply_told(dp_feed *feed);
rt_status dp_feed_choose(dp_feed *feed, const rt_batch *batch);

#endif
