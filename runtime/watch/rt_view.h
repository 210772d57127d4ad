// rt_view - what is known of a run by the records of its metrics: how it stands, and how it went.
//
// The same numbers stand behind `lanyard top`, the coordinator's pages and the alerts. Records come
// one by one, from a file or as they are written; memory does not grow with a run. One owner. NAN:
// not known. Fields are those of docs/METRICS.md.
#ifndef RT_VIEW_H
#define RT_VIEW_H

#include "runtime/config/rt_config.h"
#include "runtime/metrics/rt_course.h"
#include "runtime/rt_json.h"
#include "runtime/wire/rt_counts.h"

#define RT_VIEW_POINTS 240u
#define RT_VIEW_TIMES (0u RT_TIMES_MAP(RT_COUNTS_ONE))
#define RT_VIEW_RECENT 256u // iterations that rates are taken of
#define RT_VIEW_SLICES_MAX 16u
#define RT_VIEW_WARNINGS 8u
#define RT_VIEW_TEXT 256u
#define RT_VIEW_NAME 64u

// What a chart shows. XX(name, title, unit, from zero)
#define RT_VIEW_SERIES_MAP(XX)                                                      \
    XX(iterations, "Speed", "iterations/s", true)                                   \
    XX(log_loss, "Log loss, of the window", "nats", false)                          \
    XX(auc, "AUC, of the window", "", false)                                        \
    XX(accuracy, "Accuracy, of the window", "", false)                              \
    XX(calibration, "Calibration, of the window", "mean prediction / label", false) \
    XX(cost, "Transmission cost", "rows on the fastest link, per iteration", true)  \
    XX(predicted_ms, "Predicted time of an iteration", "ms", true)                  \
    XX(hits, "Cache hits", "% of look-ups", true)                                   \
    XX(lag, "Events that wait", "events", true)

#define XX(name, title, unit, from_zero) RT_VIEW_##name,
typedef enum { RT_VIEW_SERIES_MAP(XX) RT_VIEW_SERIES } rt_view_series;
#undef XX

typedef struct {
    double samples, log_loss, auc, calibration;
    double mean_label, accuracy; // of a label of 0 and 1; of one of several classes; else NAN
} rt_view_quality;

typedef struct {
    double rss_bytes, max_bytes;
} rt_view_memory;

// Bytes of rows, requests and dense gradients one way.
typedef struct {
    double bytes_per_s;  // of the link, in force
    double best;         // the highest rate that it had
    double sum;          // bytes so far
    double an_iteration; // bytes, a fading mean
} rt_view_way;

typedef struct {
    uint32_t rank;
    bool takes_part;                // in the last iteration
    double times_ms[RT_VIEW_TIMES]; // of an iteration, fading means
    double time_s[RT_VIEW_TIMES];   // sums
    rt_view_way ways[2];            // up, down
    rt_view_memory memory;
} rt_view_worker;

typedef struct {
    rt_view_memory memory;
    double keys, row_bytes, row_bytes_max;
} rt_view_shard;

typedef struct {
    char name[RT_VIEW_NAME];
    double values, empty, fresh; // look-ups so far; of them without a value, with one never trained
    double empty_share, new_share; // of the last record
} rt_view_column;

typedef struct {
    char name[RT_VIEW_NAME];
    rt_view_quality quality;
} rt_view_slice;

typedef struct {
    bool is_known;             // the run has one
    bool is_there, is_in_step; // it answers; and has all of the journals
    double away_time_s;        // since then it does not answer; NAN: it does
    double behind_bytes;       // that it lacks; NAN: it is away
    double commits_alone;      // that were acknowledged without it, by this process
    double checkpoint;         // iteration of the newest that it has as a whole; 0: none
} rt_view_standby;

// Of a run that publishes.
typedef struct {
    double in_force;             // iteration of the version that servers answer with; 0: none yet
    double held, held_iteration; // so many since are held back by the guard; the newest of them
    double held_time_s;          // since when
    char why[RT_VIEW_TEXT];
} rt_view_published;

typedef struct {
    double time_s, samples, malformed;
} rt_view_tick;

typedef struct {
    double offset_s; // of the clock by which ages are told, at time_s 0
    double ahead_s;  // what the machine's clock is ahead of that: times for others are by it
    double time_s;   // of the last record
    bool has_ended;  // the run said so

    uint64_t iteration, iterations; // the last one; records
    double iteration_time_s;
    double samples, malformed, bad_batches, keys; // so far
    double malformed_told;                        // by this process
    double input_lost, input_breaks;              // so far; see input of members in METRICS.md
    double lost_told, breaks_told;                // by this process
    double lost_time_s;                           // when it was told of the last ones; NAN: of none
    double predicted_ms, cost, hits, hits_keys, decision_ms, alpha;
    double latency_p99_ms;
    rt_view_quality window;
    double reference_loss; // of about ten windows
    rt_view_tick recent[RT_VIEW_RECENT];
    uint64_t tick_count; // ever

    char policy[RT_VIEW_NAME];
    uint32_t worker_count, shard_count;
    rt_view_worker workers[RT_WORKERS_MAX];
    uint32_t out_count, out[RT_WORKERS_MAX]; // ranks that do not take part
    rt_view_shard shards[RT_SHARDS_MAX];
    rt_view_memory coordinator;
    double dense_bytes;
    bool waits_for_input;
    double members_time_s;
    double checkpoint_every_s, checkpoint_time_s, checkpoint_iteration;
    double unsaved_time_s; // of the first iteration that no checkpoint has, or later; NAN: all are
    double bad_time_s;     // of the last batch whose loss was not finite; NAN: none was
    double waiting_events; // for their outcomes (stream.join)
    double doubted, doubted_time_s; // records whose times are wrong, and when the last one came
    double lag_events, lag_bytes;
    rt_view_standby standby; // coordinator.standby
    rt_view_published published;

    uint32_t column_count;
    rt_view_column *columns; // RT_FIELDS_MAX
    char slice_column[RT_VIEW_NAME];
    uint32_t slice_count;
    rt_view_slice slices[RT_VIEW_SLICES_MAX];

    uint64_t warning_count;
    struct {
        double time_s;
        char text[RT_VIEW_TEXT];
    } warnings[RT_VIEW_WARNINGS]; // the newest at (warning_count - 1) modulo their number
    rt_course course;
} rt_view;

rt_status rt_view_init(rt_view *view); // RT_NO_MEMORY
void rt_view_fini(rt_view *view);

// Takes a record, one line. unix_s: now, if it was written just now; NAN: nobody knows. False: it
// is none.
bool rt_view_take(rt_view *view, const char *line, double unix_s);

// What was taken is of a process that is gone: nothing in it is said of now.
void rt_view_begin_anew(rt_view *view);

// Seconds from a record's time until now; NAN where the clock is not known.
double rt_view_age_s(const rt_view *view, double time_s, double unix_s);

// How old the oldest iteration is that no checkpoint has, at least; 0: all that was trained is in
// one; NAN: none is due by time, or the run has ended.
double rt_view_unsaved_s(const rt_view *view, double unix_s);

// For how long the standby does not answer; 0: it does; NAN: there is none, or the run has ended.
double rt_view_standby_away_s(const rt_view *view, double unix_s);

// Over the last ten seconds or the last iterations; 0: it stands still.
typedef struct {
    double iterations_per_s, samples_per_s, malformed_share, iteration_ms;
} rt_view_rates;
rt_view_rates rt_view_rates_of(const rt_view *view, double unix_s);

// Share of a link that is used, of its rate.
double rt_view_use(const rt_view_way *way, const rt_view_rates *rates);

// "starts", "trains", "waits" (for input), "stalls" or "ended".
const char *rt_view_state(const rt_view *view, double unix_s);

extern const char *const rt_view_time_names[RT_VIEW_TIMES];

#endif
