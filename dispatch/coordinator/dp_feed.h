// dp_feed - reads the stream and plans ahead, in two threads, up to a bounded number of iterations.
//
//   stream ──► reader thread ──► batches ──► planner thread ──► dp_planned ──► caller
//
// The planner needs no feedback from workers, so it runs ahead as far as the pool of dp_planned
// allows. Input records reach it through dp_feed_tell; the planner takes them before its next
// look-up, names the iteration, and journals them; batches that are not full, too.
#ifndef DP_FEED_H
#define DP_FEED_H

#include "dispatch/coordinator/dp_columns.h"
#include "dispatch/coordinator/dp_evidence.h"
#include "dispatch/planner/dp_account.h"
#include "dispatch/plan/dp_journal.h"
#include "dispatch/planner/dp_snapshot.h"
#include "dispatch/plan/dp_slice_wire.h"
#include "runtime/config/rt_config.h"
#include "runtime/stream/rt_base_rate.h"
#include "runtime/stream/rt_position.h"
#include "runtime/stream/rt_scale.h"
#include "runtime/stream/rt_stream.h"

// One planned iteration on its way to the workers. Taken from dp_feed_take, given back with
// dp_feed_give; messages that were not sent are released then.
typedef struct {
    uint64_t sequence;         // of slices, from dp_feed_config.sequence_first
    uint32_t iteration;        // 0: a flush, of a cut or the final one
    bool is_last;              // the final flush
    bool is_cut;               // everything up to here goes into a checkpoint:
    uint32_t cut;              // the last iteration before it; of a sweep, too
    uint32_t epochs;           // of a cut at the end of an epoch (stream.patience): which; else 0
    rt_position_events events; // where reading goes on behind a cut
    bool is_sweep;             // rows end
    uint32_t floor;            // of a sweep (dp_sweep.h), which is a flush that is no cut
    uint64_t ended;            // keys that it ends
    uint64_t forgotten[DP_INPUTS_WAITING_MAX]; // of them, those that people named
    uint32_t forgotten_count;
    uint64_t keys;          // that the planner knows
    uint64_t admitted;      // of them, since the iteration before
    uint32_t refused;       // look-ups of keys that have no row yet (rows.admit)
    rt_bytes state;         // rt_stream_tell, dp_planner_save
    rt_bytes ids;           // rt_stream_save_ids
    rt_bytes scale;         // rt_scale_save (not of features that stay as they are),
                            // rt_stream_save, rt_base_rate_save, rt_repeats_save
    rt_bytes scale_bin;     // the same as a model's file: dp_feed_put_scale
    uint64_t scale_samples; // that it was learnt from
    uint32_t sample_count;
    bool is_untrained; // predicted only (rt_base_rate.h)
    bool is_judged;    // the share of its labels is that of events: the guard counts it
    bool is_learnt;    // of a cut: something was trained before it
    dp_heard heard;    // of its samples, some to judge by
    uint32_t arrival_count;
    uint64_t *arrivals; // arrival_count, by sample: nanoseconds of the clock of the day; 0: unknown
    uint64_t participants; // workers that train it
    uint64_t needed;       // workers whose slices are more than DROPs: who train, or send something
    uint64_t clean;        // dp_planner_clean, behind it
    uint64_t idle;         // workers that have nothing to do in it: they get no slice
    rt_message slices[RT_WORKERS_MAX];          // SLICE
    uint32_t label_offsets[RT_WORKERS_MAX + 1]; // samples of the workers before j
    float *labels;          // sample_count x labels of a sample, worker by worker, in slice order
    float *weights;         // likewise, 1 where the stream has none
    uint64_t *slice_keys;   // likewise, of slice_field; NULL without one
    dp_columns columns;     // of all samples
    dp_ranges ranges;       // of labels and dense features, as they were read
    uint64_t dense_clipped; // values beyond RT_SCALE_LIMIT
    dp_account account;     // of this iteration alone
    uint64_t slice_bytes;   // of all messages
    dp_decision decision;
    uint64_t fingerprint;                               // of the plan; 0: the flush
    uint64_t decision_ns, place_ns, commit_ns, read_ns; // decision: look-up and placement
    uint64_t choice_ns;                                 // of who trains it
    uint64_t ready_ns;                                  // when, by rt_now_ns
} dp_planned;

typedef struct {
    const rt_config *config;
    const dp_planner_config *planner;
    dp_account_config costs;
    dp_slice_limits limits;
    uint32_t planned_max; // iterations that exist at once, planned or in flight
    int wake_fd;          // written whenever a planned iteration is ready, or -1
    uint32_t sender;      // of the slices
    const char *journal;  // file for the input records; NULL: none
    const char *ledger;   // file that counts what pipes gave, over restarts; NULL: none
    bool is_fresh;        // such a file of an earlier run means nothing
    uint64_t heard_every; // every how many samples are kept to judge by; 0: none are
    uint32_t slice_field; // whose keys dp_planned has; none of the stream's: none
    bool cuts;            // config->checkpoint is heeded, and dp_feed_request_cut
    uint32_t epoch;       // of the slices
    uint64_t sequence_first;
    // A run that goes on: the planner (taken over on RT_OK), the scale (NULL: dense features stay
    // as they are, whatever config says) and where its stream stood.
    dp_planner *restored;
    const rt_bytes *chooser_state; // dp_participants_save; NULL or empty: none
    const rt_scale *scale;
    const rt_base_rate *rate; // as it stood; NULL: the run begins
    bool has_model;           // with a model
    uint32_t iteration;       // trained last
    uint64_t input_count;     // records taken until then
    const rt_bytes *position;
    const rt_bytes *waiting; // rt_stream_save; empty or NULL: nothing waits
    const rt_bytes *ids;
    const rt_bytes *repeats; // rt_repeats_save; empty or NULL: no key has come
} dp_feed_config;

typedef struct dp_feed dp_feed;

// Takes the stream over (it is closed by dp_feed_destroy). Starts the threads.
rt_status dp_feed_create(const dp_feed_config *config, rt_stream *stream, dp_feed **feed_p,
                         rt_error *error);
// Stops the threads. All planned iterations must have been given back.
void dp_feed_destroy(dp_feed *feed);

// The next planned iteration or cut, the last one being the final flush. RT_AGAIN: not ready.
// RT_END: the flush was taken. RT_DATA, RT_IO, RT_NO_MEMORY: the planner failed, or the stream
// before its first batch. One that fails later ends there: dp_feed_input_failure.
rt_status dp_feed_take(dp_feed *feed, dp_planned **planned_p, rt_error *error);
void dp_feed_give(dp_feed *feed, dp_planned *planned);

// No more batches are read; the flush follows what is planned already. Any thread.
void dp_feed_stop(dp_feed *feed);

// An input record for the next look-up (its number and iteration are not looked at). One of the
// same kind and worker that the planner has not taken yet is replaced. Any thread.
void dp_feed_tell(dp_feed *feed, const dp_input *input);

// Whether who chooses the participants, if anybody does, goes on choosing. Any thread.
void dp_feed_choose_on(dp_feed *feed, bool chooses);

// A cut before the next batch that is planned, or at once where no batch is there, if one was
// planned since the last cut. Any thread.
void dp_feed_request_cut(dp_feed *feed);

// The journal takes the place of an earlier run's, which is there until then. Any thread, once.
void dp_feed_keep_journal(dp_feed *feed);

// After the final flush: why the input ended where it did. RT_OK: it was read to its end, or the
// run was stopped.
rt_status dp_feed_input_failure(dp_feed *feed, rt_error *error);

// After the final flush: what was read of every input; as rt_stream_report.
bool dp_feed_report(const dp_feed *feed, uint32_t number, rt_stream_input *input);

rt_stream_stats dp_feed_stream_stats(dp_feed *feed);

// Appends the file scale.bin of a model that was trained on all that was planned, once dp_feed_take
// said RT_END or gave the last flush; nothing where dense features stay as they are. RT_NO_MEMORY.
rt_status dp_feed_put_scale(const dp_feed *feed, rt_bytes *file);
uint64_t dp_feed_scale_samples(const dp_feed *feed); // that it was learnt from

#endif
