// rt_view - what is known of a run by the records of its metrics: how it stands, and how it went.
//
// The same numbers stand behind `lanyard top`, the coordinator's pages and the alerts. Records come
// one by one, from a file or as they are written; memory does not grow with a run. One owner. NAN:
// not known. Fields are those of docs/METRICS.md.
#ifndef RT_VIEW_H
#define RT_VIEW_H

#include "runtime/config/rt_config.h"
#include "runtime/metrics/rt_course.h"
#include "runtime/watch/rt_metric.h"
#include "runtime/wire/rt_counts.h"

#define RT_VIEW_POINTS 160u // of the course on a page
#define RT_VIEW_TIMES (0u RT_TIMES_MAP(RT_COUNTS_ONE))
#define RT_VIEW_OPS (0u RT_COUNTS_MAP(RT_COUNTS_ONE, RT_COUNTS_NONE)) // those that are transfers
#define RT_VIEW_RECENT 256u    // moments that rates are taken of
#define RT_VIEW_RECENT_S 300.0 // so long after it something is not over
#define RT_VIEW_SLICES_MAX 16u
#define RT_VIEW_WARNINGS 8u
#define RT_VIEW_TEXT 256u
#define RT_VIEW_NAME 64u

// Values of sets of metrics (rt_metric_map.h), each at the place of its line.
typedef struct {
    RT_METRICS_OF_PROCESS(RT_METRIC_MEMBER)
} rt_view_memory;

typedef struct {
    RT_METRICS_OF_SLICE(RT_METRIC_MEMBER)
} rt_view_quality;

typedef struct {
    RT_METRICS_OF_LINK(RT_METRIC_MEMBER)
} rt_view_link;

// Bytes of rows, requests and dense gradients one way.
typedef struct {
    double bytes_per_s;  // of the link, in force
    double best;         // the highest rate that it had
    double sum;          // bytes so far
    double rows;         // of them, rows and requests
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
    RT_METRICS_OF_SHARD(RT_METRIC_MEMBER)
} rt_view_shard;

typedef struct {
    char name[RT_VIEW_NAME];
    RT_METRICS_OF_COLUMN(RT_METRIC_MEMBER)
} rt_view_column;

typedef struct {
    char name[RT_VIEW_NAME];
    rt_view_quality quality;
} rt_view_slice;

typedef struct {
    double time_s, samples, malformed, iterations;
} rt_view_tick;

typedef struct {
    char name[RT_VIEW_NAME]; // of the run, for people; "": it has none

    double offset_s;     // of the clock by which ages are told, at time_s 0
    double ahead_s;      // what the machine's clock is ahead of that: times for others are by it
    double time_s;       // of the last record
    double taken_unix_s; // when that was taken; NAN: nobody knows
    bool has_ended;      // the run said so

    // As the last records said, and sums. What depends on the time is not in it: rt_view_values.
    union {
        double values[RT_RUN_METRICS];
        struct {
            RT_METRICS_OF_RUN(RT_METRIC_MEMBER)
        };
    };
    double told[RT_RUN_METRICS];   // by this process, of what is counted
    rt_mean means[RT_RUN_METRICS]; // over iterations
    rt_course course;              // of those with a chart (rt_view_series)

    double earlier_s;         // that processes before this one trained for
    double iteration_time_s;  // of the last one; NAN: this process has trained none
    double again;             // iterations that were lost and made again
    double lost_time_s;       // when it was told of the last losses of the input; NAN: of none
    double checkpoint_time_s; // of the newest one, or when the run began
    double unsaved_time_s; // of the first iteration that no checkpoint has, or later; NAN: all are
    double bad_time_s;     // of the last batch whose loss was not finite; NAN: none was
    double doubted_time_s; // when the last record came whose times are wrong
    double standby_away_time_s; // since then it does not answer; NAN: it does
    double in_force_time_s;     // when this process published the version in force; NAN: it has not
    double held_time_s;         // since then versions are held back
    char held_why[RT_VIEW_TEXT];
    rt_view_tick recent[RT_VIEW_RECENT];
    uint64_t tick_count; // ever

    char policy[RT_VIEW_NAME];
    uint32_t worker_count, worker_most, shard_count; // worker_most: ever
    rt_view_worker workers[RT_WORKERS_MAX];
    uint32_t out_count, out[RT_WORKERS_MAX]; // ranks that do not take part
    rt_view_shard shards[RT_SHARDS_MAX];
    rt_view_memory coordinator;
    double dense_bytes;
    double ops[RT_VIEW_OPS]; // rows moved, sums

    uint32_t column_count;
    rt_view_column *columns; // RT_FIELDS_MAX
    char slice_column[RT_VIEW_NAME];
    uint32_t slice_count;
    rt_view_slice slices[RT_VIEW_SLICES_MAX];

    struct {
        double time_s;
        char text[RT_VIEW_TEXT];
    } texts[RT_VIEW_WARNINGS]; // of warnings, the newest at (warnings - 1) modulo their number
} rt_view;

// point_max: of the course, even.
rt_status rt_view_init(rt_view *view, uint32_t point_max); // RT_NO_MEMORY
void rt_view_fini(rt_view *view);

// Takes a record, one line. unix_s: now, if it was written just now; NAN: nobody knows. False: it
// is none.
bool rt_view_take(rt_view *view, const char *line, double unix_s);

// What was taken is of a process that is gone: nothing in it is said of now.
void rt_view_begin_anew(rt_view *view);

// The members of summary.json, as if it were a record.
void rt_view_take_summary(rt_view *view, const cJSON *json);

// All metrics of the run as they are now.
void rt_view_values(const rt_view *view, double unix_s, double values[RT_RUN_METRICS]);

// Those of a way of a link.
rt_view_link rt_view_link_of(const rt_view_way *way, double iterations_per_s);

// A metric's chart: iterations, seconds of training and values of the course's points. False:
// nothing of it is known.
bool rt_view_line(const rt_view *view, uint32_t metric, double *iterations, double *times_s,
                  double *values);

// A metric's chart says something of this run: one worker with one shard has no choice of where a
// sample is trained, nor a second link.
bool rt_view_has_chart(const rt_view *view, uint32_t metric);
bool rt_view_is_alone(const rt_view *view);

// Which series of the course is of this metric, which has a chart.
uint32_t rt_view_series(uint32_t metric);

// A published version is in force, or one is held back.
bool rt_view_publishes(const rt_view *view);

// Seconds from a record's time until now; NAN where the clock is not known.
double rt_view_age_s(const rt_view *view, double time_s, double unix_s);

// How old the oldest iteration is that no checkpoint has, at least; 0: all that was trained is in
// one; NAN: none is due by time, or the run has ended.
double rt_view_unsaved_s(const rt_view *view, double unix_s);

// For how long the standby does not answer; 0: it does; NAN: there is none, or the run has ended.
double rt_view_standby_away_s(const rt_view *view, double unix_s);

// Of the link that has least of its best rate, and of the process that has most of its memory, the
// share, and in about whose it is; NAN: nobody knows.
double rt_view_link_share(const rt_view *view, char about[RT_VIEW_NAME]);
double rt_view_memory_share(const rt_view *view, char about[RT_VIEW_NAME]);

// Over the last ten seconds or the last iterations; 0: it stands still.
typedef struct {
    double iterations_per_s, samples_per_s, malformed_share, iteration_ms;
} rt_view_rates;
rt_view_rates rt_view_rates_of(const rt_view *view, double unix_s);

// "starts", "trains", "waits" (for input), "stalls" or "ended".
const char *rt_view_state(const rt_view *view, double unix_s);

extern const char *const rt_view_time_names[RT_VIEW_TIMES]; // as in records
extern const char *const rt_view_op_names[RT_VIEW_OPS];

#endif
