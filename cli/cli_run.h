// cli_run - what a run directory holds: metrics.jsonl and summary.json, boiled down for a report.
//
// However long a run was, its course is kept in CLI_RUN_POINTS points at most, each the mean of as
// many iterations in a row. Of unfinished or damaged files the good part counts, and notes say what
// was left out.
#ifndef CLI_RUN_H
#define CLI_RUN_H

#include "runtime/config/rt_config.h"
#include "runtime/metrics/rt_course.h"
#include "runtime/wire/rt_counts.h"

#define CLI_RUN_POINTS 400u
#define CLI_RUN_OPS (0u RT_COUNTS_MAP(RT_COUNTS_ONE, RT_COUNTS_NONE)) // those that are transfers
#define CLI_RUN_TIMES (0u RT_TIMES_MAP(RT_COUNTS_ONE))
#define CLI_RUN_SUMMARY_MAX (1u << 20)

typedef enum {
    CLI_RUN_MS, // measured, from one record to the next
    CLI_RUN_PREDICTED_MS,
    CLI_RUN_COST,
    CLI_RUN_ALPHA,
    CLI_RUN_DECISION_MS,
    CLI_RUN_HITS, // share of look-ups
    CLI_RUN_LOSS,
    CLI_RUN_AUC,
    CLI_RUN_ACCURACY, // of a label of several classes
    CLI_RUN_SAMPLES,
    CLI_RUN_SERIES
} cli_run_series;

typedef struct {
    double up, down;             // bytes of rows and requests
    double times[CLI_RUN_TIMES]; // ms
    double ops[CLI_RUN_OPS];     // per iteration, of the summary
} cli_run_worker;

// Of one of several labels, over a whole run and its last fifth.
typedef struct {
    char name[RT_NAME_MAX];
    double log_loss, auc, calibration, log_loss_last_fifth, auc_last_fifth;
} cli_run_label;

typedef struct {
    const char *directory; // as given
    char notes[3][RT_PATH_MAX + 256];
    uint32_t note_count;
    uint64_t iterations; // records
    uint64_t again;      // of them, of iterations that were lost and made again
    double last_iteration;
    double seconds; // from the first record to the last
    rt_course course;
    rt_mean all[CLI_RUN_SERIES];
    double ops[CLI_RUN_OPS]; // sums
    uint32_t worker_count;
    cli_run_worker workers[RT_WORKERS_MAX];
    double last_time_s;
    bool has_summary, has_worker_ops, interrupted;
    uint32_t label_count; // 0: there is one
    cli_run_label labels[RT_LABELS_MAX];
    double dense_bytes, log_loss, auc, log_loss_last_fifth, auc_last_fifth, stale_reads;
    double accuracy, accuracy_last_fifth; // of a label of several classes; else NAN
} cli_run;

// RT_NOT_FOUND: neither file is there; RT_DATA: no iteration in it; RT_NO_MEMORY. The run is the
// caller's on RT_OK (cli_run_fini).
rt_status cli_run_load(const char *directory, cli_run *run, rt_error *error);
void cli_run_fini(cli_run *run);

#endif
