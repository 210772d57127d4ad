// dp_stats - what a run has measured so far: progress line, metrics records, summary.
//
// One thread. Numbers that come from plans (cost, operations, hits) and numbers that workers report
// (loss, executed operations, times) are kept apart, so that they can be held against each other.
#ifndef DP_STATS_H
#define DP_STATS_H

#include "dispatch/coordinator/dp_feed.h"
#include "dispatch/coordinator/dp_guard.h"
#include "dispatch/coordinator/dp_quality.h"
#include "runtime/metrics/rt_metrics.h"
#include "runtime/rt_json.h"
#include "runtime/wire/rt_control.h"

// ---- dp_reading.c -----------------------------------------------------------------------------

// What a run read of its input, for its summary and for people.
//
// A plain value of the coordinator's thread, made once reading has ended.

typedef struct {
    rt_stream_stats stats;
    const dp_feed *feed; // knows the single inputs; NULL: nobody does
    rt_error failure;    // why reading ended where it did; RT_OK: at the end, or told to
} dp_reading;

// RT_OK in failure, and the counts, of a feed whose final flush was taken.
void dp_reading_take(dp_feed *feed, dp_reading *reading);

// Members of the summary: malformed_lines, odd_labels, input_bytes_lost, input_events_lost,
// input_breaks, negatives_left_out, join, input_error, inputs.
void dp_reading_write(const dp_reading *reading, rt_json *json);

// A line for each input that has something to tell, and for what was left out. The failure is the
// run's, which ends with it.
void dp_reading_print(const dp_reading *reading);

// -----------------------------------------------------------------------------------------------

typedef struct dp_stats dp_stats;

typedef struct {
    const rt_config *config;
    dp_account_config costs;
    uint32_t dense_count;  // features
    const char *directory; // metrics.jsonl and trace.jsonl go there; NULL: nowhere
    dp_slices *slices;     // of watch.column; NULL: none
    bool trace;
    bool progress;
    bool keeps;   // metrics.jsonl and trace.jsonl of an earlier start go on
    bool resumed; // and so does its history; else it begins anew, which is recorded
} dp_stats_config;

rt_status dp_stats_create(const dp_stats_config *config, dp_stats **stats_p, rt_error *error);
void dp_stats_destroy(dp_stats *stats);

// What the metrics hold so far is no part of the history any more.
void dp_stats_begin_anew(dp_stats *stats);

// Sums over all iterations that are complete, and back into a new stats. RT_DATA: no such state.
void dp_stats_save(const dp_stats *stats, rt_bytes *bytes);
rt_status dp_stats_load(dp_stats *stats, rt_reader *reader, rt_error *error);

// Where this object's records go; others may add theirs.
rt_metrics *dp_stats_metrics(const dp_stats *stats);

uint64_t dp_stats_samples(const dp_stats *stats); // of all complete iterations
uint64_t dp_stats_iterations(const dp_stats *stats);
uint64_t dp_stats_bad_batches(const dp_stats *stats);

// One worker's report on an iteration. predictions: report->sample_count x labels of a sample.
void dp_stats_report(dp_stats *stats, const dp_planned *planned, uint32_t worker,
                     const rt_wire_report *report, const float *predictions);

// The flush at the end, which belongs to no iteration: what is planned, and what a worker executed.
void dp_stats_flush(dp_stats *stats, const dp_planned *planned);
void dp_stats_flushed(dp_stats *stats, uint32_t worker, const rt_wire_report *report);

// Rows have ended, after an iteration (dp_sweep.h).
typedef struct {
    uint32_t iteration, floor;
    uint64_t forgotten;        // keys that ended because people named them
    uint64_t keys_ended, keys; // of the planner: that ended, that are left
} dp_sweep_record;

// rows_ended: of the shards, which lack rows that only a cache had. pause_ms: from its plan to the
// last answer.
void dp_stats_swept(dp_stats *stats, const dp_sweep_record *sweep, uint64_t rows_ended,
                    double pause_ms);

// All reports of a training iteration are in.
void dp_stats_iteration(dp_stats *stats, const dp_planned *planned, const rt_stream_stats *stream);

// Whether the model is fit to be published (dp_guard_judge); and what it is judged by.
void dp_stats_judge(const dp_stats *stats, bool is_learnt, dp_verdict *verdict);
dp_guard *dp_stats_guard(dp_stats *stats);
const dp_evidence *dp_stats_evidence(const dp_stats *stats);

// What crossed the links since this start, and the samples that were trained; for the summary.
void dp_stats_traffic(dp_stats *stats, const rt_traffic *traffic, uint64_t samples);

// Prints the summary for people, and writes directory/summary.json. RT_IO, RT_NO_MEMORY.
rt_status dp_stats_finish(dp_stats *stats, const dp_reading *reading, bool interrupted,
                          rt_error *error);

#endif
