// A view in the text format of Prometheus: names, base units and suffixes by its conventions.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "runtime/rt_build.h"
#include "runtime/rt_printable.h"
#include "runtime/watch/rt_view_write.h"

#define LABEL_BYTES (2 * RT_VIEW_NAME)
#define LABELS_BYTES (2 * LABEL_BYTES + 64)
#define TEXT_OR_NONE(text) (*(text) ? (text) : "none")

// A series has its two lines of description before its first number.
typedef struct {
    rt_page *text;
    const char *begun; // the name of the series
} writer;

// labels: with braces, or "". What is not known is left out.
static void sample(writer *w, const char *name, const char *help, const char *labels, double value)
{
    static const char total[] = "_total"; // counters end so, and nothing else does
    char number[32];
    const size_t length = strlen(name);
    const bool is_counter =
        length > strlen(total) && strcmp(name + length - strlen(total), total) == 0;
    if (isnan(value))
        return;
    if (!w->begun || strcmp(w->begun, name) != 0)
        rt_page_add(w->text, "# HELP %s %s\n# TYPE %s %s\n", name, help, name,
                    is_counter ? "counter" : "gauge");
    w->begun = name;
    rt_page_add(w->text, "%s%s %s\n", name, labels, rt_json_format_double(value, number));
}

// A label's value: backslash and quote escaped, and nothing that does not print.
static const char *label(const char *value, char out[LABEL_BYTES])
{
    char shown[RT_VIEW_NAME];
    size_t at = 0;
    snprintf(shown, sizeof shown, "%s", value);
    rt_printable_clean(shown);
    for (const char *next = shown; *next; next++) {
        if (*next == '\\' || *next == '"')
            out[at++] = '\\';
        out[at++] = *next;
    }
    out[at] = '\0';
    return out;
}

// ---- what each is of -------------------------------------------------------------------------

typedef struct {
    const rt_view *view;
    double values[RT_RUN_METRICS]; // of the run, now
    rt_view_link links[2 * RT_WORKERS_MAX];
    double parts[RT_WORKERS_MAX];
} source;

// The coordinator, workers, shards.
static uint32_t count_of(const rt_view *view, rt_metric_set_kind set)
{
    const uint32_t counts[RT_METRIC_SET_COUNT] = {[RT_SET_RUN] = 1,
                                                  [RT_SET_PROCESS] =
                                                      1 + view->worker_count + view->shard_count,
                                                  [RT_SET_SHARD] = view->shard_count,
                                                  [RT_SET_WORKER] = view->worker_count,
                                                  [RT_SET_LINK] = 2 * view->worker_count,
                                                  [RT_SET_COLUMN] = view->column_count,
                                                  [RT_SET_SLICE] = view->slice_count};
    return counts[set];
}

// The values of the one at this place, and its labels.
static const double *label_process(const rt_view *view, uint32_t place, char *labels)
{
    static const char format[] = "{process=\"%s\",rank=\"%" PRIu32 "\"}";
    const uint32_t j = place - 1, s = j - view->worker_count;
    if (place == 0) {
        snprintf(labels, LABELS_BYTES, format, "coordinator", 0u);
        return &view->coordinator.rss_bytes;
    }
    if (j < view->worker_count) {
        snprintf(labels, LABELS_BYTES, format, "worker", view->workers[j].rank);
        return &view->workers[j].memory.rss_bytes;
    }
    snprintf(labels, LABELS_BYTES, format, "ps", s);
    return &view->shards[s].memory.rss_bytes;
}

static const double *label_one(const source *of, rt_metric_set_kind set, uint32_t place,
                               char labels[LABELS_BYTES])
{
    const rt_view *view = of->view;
    char name[LABEL_BYTES], other[LABEL_BYTES];
    switch (set) {
    case RT_SET_PROCESS:
        return label_process(view, place, labels);
    case RT_SET_SHARD:
        snprintf(labels, LABELS_BYTES, "{shard=\"%" PRIu32 "\"}", place);
        return &view->shards[place].keys;
    case RT_SET_WORKER:
        snprintf(labels, LABELS_BYTES, "{worker=\"%" PRIu32 "\"}", view->workers[place].rank);
        return &of->parts[place];
    case RT_SET_LINK:
        snprintf(labels, LABELS_BYTES, "{worker=\"%" PRIu32 "\",direction=\"%s\"}",
                 view->workers[place / 2].rank, place % 2 ? "down" : "up");
        return &of->links[place].sum;
    case RT_SET_COLUMN:
        snprintf(labels, LABELS_BYTES, "{column=\"%s\"}", label(view->columns[place].name, name));
        return &view->columns[place].values;
    case RT_SET_SLICE:
        snprintf(labels, LABELS_BYTES, "{column=\"%s\",value=\"%s\"}",
                 label(view->slice_column, name), label(view->slices[place].name, other));
        return &view->slices[place].quality.samples;
    default:
        *labels = '\0';
        return of->values;
    }
}

static void write_set(const source *of, rt_metric_set_kind set, writer *w)
{
    char labels[LABELS_BYTES];
    for (uint32_t i = 0; i < rt_metric_sets[set].count; i++) {
        const rt_metric *metric = &rt_metric_sets[set].metrics[i];
        const double scale = metric->base_units > 0 ? metric->base_units : 1;
        for (uint32_t place = 0; place < count_of(of->view, set) && metric->series; place++) {
            const double *values = label_one(of, set, place, labels);
            sample(w, metric->series, metric->help, metric->labels ? metric->labels : labels,
                   values[i] * scale);
        }
    }
}

// ---- what is no metric of the table ----------------------------------------------------------

static void write_times(const rt_view *view, writer *w)
{
    char labels[LABELS_BYTES];
    for (uint32_t j = 0; j < view->worker_count; j++) {
        for (uint32_t k = 0; k < RT_VIEW_TIMES; k++) {
            snprintf(labels, sizeof labels, "{worker=\"%" PRIu32 "\",part=\"%s\"}",
                     view->workers[j].rank, rt_view_time_names[k]);
            sample(w, "lanyard_worker_time_seconds_total", "Where the time of iterations went.",
                   labels, view->workers[j].time_s[k]);
        }
    }
}

static void write_alerts(const rt_alerts *alerts, writer *w)
{
    char labels[LABELS_BYTES];
    for (int kind = 0; kind < RT_ALERT_COUNT && alerts; kind++) {
        snprintf(labels, sizeof labels, "{alert=\"%s\"}", rt_alert_name((rt_alert_kind)kind));
        sample(w, "lanyard_alert_firing", "1: the run itself says that it fires.", labels,
               alerts->alerts[kind].is_firing);
    }
}

static void write_info(const rt_view *view, writer *w)
{
    char labels[LABELS_BYTES], name[LABEL_BYTES];
    snprintf(labels, sizeof labels, "{version=\"%s\",policy=\"%s\"}", RT_PROGRAM_VERSION,
             label(TEXT_OR_NONE(view->policy), name));
    sample(w, "lanyard_info", "The program and the policy of the run.", labels, 1);
}

rt_status rt_view_write_prometheus(const rt_view *view, const rt_alerts *alerts, double unix_s,
                                   rt_page *text)
{
    writer w = {.text = text};
    source of = {.view = view};
    rt_view_values(view, unix_s, of.values);
    for (uint32_t j = 0; j < view->worker_count; j++) {
        of.parts[j] = view->workers[j].takes_part;
        for (uint32_t way = 0; way < 2; way++)
            of.links[2 * j + way] =
                rt_view_link_of(&view->workers[j].ways[way], of.values[RT_RUN_iterations_per_s]);
    }
    write_info(view, &w);
    for (int set = 0; set < RT_METRIC_SET_COUNT; set++)
        write_set(&of, (rt_metric_set_kind)set, &w);
    write_times(view, &w);
    write_alerts(alerts, &w);
    if (text->failed)
        return RT_NO_MEMORY;
    return RT_OK;
}
