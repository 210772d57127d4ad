// cli_run - what a run directory holds: metrics.jsonl and summary.json, boiled down for a report.
//
// However long a run was, its course is kept in CLI_RUN_POINTS points at most, each the mean of as
// many iterations in a row. Of unfinished or damaged files the good part counts, and notes say what
// was left out.
#ifndef CLI_RUN_H
#define CLI_RUN_H

#include "runtime/watch/rt_view.h"

#define CLI_RUN_POINTS 400u
#define CLI_RUN_SUMMARY_MAX (1u << 20)

typedef struct {
    char name[RT_NAME_MAX];
    RT_METRICS_OF_LABEL(RT_METRIC_MEMBER)
} cli_run_label;

typedef struct {
    const char *directory; // as given
    char notes[3][RT_PATH_MAX + 256];
    uint32_t note_count;
    rt_view view; // of all records
    bool has_summary, interrupted;
    uint32_t label_count; // 0: there is one
    cli_run_label labels[RT_LABELS_MAX];
    // Of the summary: bytes of an iteration on each link, and rows that each worker moved in one.
    double dense_bytes;
    uint32_t worker_count; // 0: it does not say which worker moved what
    double ops[RT_WORKERS_MAX][RT_VIEW_OPS];
} cli_run;

// RT_NOT_FOUND: neither file is there; RT_DATA: no iteration in it; RT_NO_MEMORY. The run is the
// caller's on RT_OK (cli_run_fini).
rt_status cli_run_load(const char *directory, cli_run *run, rt_error *error);
void cli_run_fini(cli_run *run);

// A metric over the whole run: what the summary says, or the mean of the iterations. NAN: neither.
double cli_run_value(const cli_run *run, uint32_t metric);

#endif
