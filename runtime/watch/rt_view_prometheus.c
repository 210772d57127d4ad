// A view in the text format of Prometheus: names, base units and suffixes by its conventions.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "runtime/rt_build.h"
#include "runtime/rt_shown.h"
#include "runtime/watch/rt_view_write.h"

#define LABEL_BYTES (2 * RT_VIEW_NAME)
#define LABELS_BYTES (2 * LABEL_BYTES + 64)
#define TEXT_OR_NONE(text) (*(text) ? (text) : "none")

static void begin(rt_page *text, const char *name, const char *type, const char *help)
{
    rt_page_add(text, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

// labels: with braces, or "". What is not known is left out.
static void sample(rt_page *text, const char *name, const char *labels, double value)
{
    char number[32];
    if (!isnan(value))
        rt_page_add(text, "%s%s %s\n", name, labels, rt_json_format_double(value, number));
}

static void one(rt_page *text, const char *name, const char *type, const char *help, double value)
{
    if (isnan(value))
        return;
    begin(text, name, type, help);
    sample(text, name, "", value);
}

// A label's value: backslash and quote escaped, and nothing that does not print.
static const char *label(const char *value, char out[LABEL_BYTES])
{
    char shown[RT_VIEW_NAME];
    size_t at = 0;
    snprintf(shown, sizeof shown, "%s", value);
    rt_shown_clean(shown);
    for (const char *next = shown; *next; next++) {
        if (*next == '\\' || *next == '"')
            out[at++] = '\\';
        out[at++] = *next;
    }
    out[at] = '\0';
    return out;
}

// ---- the run ---------------------------------------------------------------------------------

static void write_speed(const rt_view *view, const rt_view_rates *rates, rt_page *text)
{
    char labels[LABELS_BYTES], name[LABEL_BYTES];
    snprintf(labels, sizeof labels, "{version=\"%s\",policy=\"%s\"}", RT_PROGRAM_VERSION,
             label(TEXT_OR_NONE(view->policy), name));
    begin(text, "lanyard_info", "gauge", "The program and the policy of the run.");
    sample(text, "lanyard_info", labels, 1);
    one(text, "lanyard_iterations_total", "counter", "Iterations that were trained.",
        (double)view->iterations);
    one(text, "lanyard_iteration", "gauge", "Number of the last iteration.",
        (double)view->iteration);
    one(text, "lanyard_samples_total", "counter", "Samples that were trained.", view->samples);
    one(text, "lanyard_malformed_lines_total", "counter", "Lines of the input that were left out.",
        view->malformed);
    one(text, "lanyard_input_lost_total", "counter",
        "Events that are lost, and times that an input was not the one that had been read.",
        view->input_lost + view->input_breaks);
    one(text, "lanyard_bad_batches_total", "counter", "Batches whose loss was not finite.",
        view->bad_batches);
    one(text, "lanyard_warnings_total", "counter", "Warnings of the coordinator's log.",
        (double)view->warning_count);
    one(text, "lanyard_last_iteration_timestamp_seconds", "gauge", "When it ended.",
        view->offset_s + view->ahead_s + view->iteration_time_s);
    one(text, "lanyard_waits_for_input", "gauge", "1: nothing is there to be trained.",
        view->waits_for_input);
    one(text, "lanyard_iteration_seconds", "gauge", "Time of an iteration, now.",
        rates->iteration_ms * 1e-3);
    one(text, "lanyard_predicted_iteration_seconds", "gauge", "Its time by plan and links.",
        view->predicted_ms * 1e-3);
    one(text, "lanyard_decision_seconds", "gauge", "Time of its decision.",
        view->decision_ms * 1e-3);
    one(text, "lanyard_cost_rows", "gauge", "Cost of its transfers, in rows on the fastest link.",
        view->cost);
    one(text, "lanyard_keys", "gauge", "Keys that the planner knows.", view->keys);
    if (!isnan(view->hits)) {
        begin(text, "lanyard_cache_hit_ratio", "gauge", "Of the last iteration.");
        sample(text, "lanyard_cache_hit_ratio", "{of=\"lookups\"}", view->hits);
        sample(text, "lanyard_cache_hit_ratio", "{of=\"keys\"}", view->hits_keys);
    }
}

static void write_window(const rt_view *view, rt_page *text)
{
    one(text, "lanyard_window_samples", "gauge", "Samples that the window holds.",
        view->window.samples);
    one(text, "lanyard_window_log_loss", "gauge", "Log loss of the window, in nats.",
        view->window.log_loss);
    one(text, "lanyard_window_auc", "gauge", "AUC of the window.", view->window.auc);
    one(text, "lanyard_window_accuracy_ratio", "gauge",
        "Of a label of several classes, whose likeliest one was right.", view->window.accuracy);
    one(text, "lanyard_window_calibration_ratio", "gauge", "Mean prediction over mean label.",
        view->window.calibration);
    one(text, "lanyard_reference_log_loss", "gauge",
        "Log loss on average over about ten windows, in nats.", view->reference_loss);
}

static void write_input(const rt_view *view, double unix_s, rt_page *text)
{
    one(text, "lanyard_stream_lag_events", "gauge", "Events that came and were not read yet.",
        view->lag_events);
    one(text, "lanyard_stream_lag_bytes", "gauge", "Of files, what was not read yet.",
        view->lag_bytes);
    one(text, "lanyard_latency_p99_seconds", "gauge", "From an event's arrival to trained rows.",
        view->latency_p99_ms * 1e-3);
    one(text, "lanyard_checkpoint_timestamp_seconds", "gauge",
        "When the last one was completed, or the run began.",
        view->offset_s + view->ahead_s + view->checkpoint_time_s);
    one(text, "lanyard_checkpoint_interval_seconds", "gauge", "checkpoint.every_s; 0: none.",
        view->checkpoint_every_s);
    one(text, "lanyard_model_in_force_iteration", "gauge",
        "Of the published version that servers answer with; 0: none.", view->published.in_force);
    one(text, "lanyard_models_held", "gauge", "Versions since then that the guard has held back.",
        view->published.held);
    one(text, "lanyard_unsaved_seconds", "gauge",
        "How old the oldest iteration is that no checkpoint has; 0: there is none.",
        rt_view_unsaved_s(view, unix_s));
    if (isnan(view->waiting_events))
        return;
    one(text, "lanyard_join_waiting_events", "gauge", "Events that wait for their outcomes.",
        view->waiting_events);
    one(text, "lanyard_join_doubted_total", "counter",
        "Events and outcomes whose times others do not bear out.", view->doubted);
}

// ---- members ---------------------------------------------------------------------------------

static void write_times(const rt_view *view, rt_page *text)
{
    char labels[128];
    begin(text, "lanyard_worker_time_seconds_total", "counter",
          "Where the time of iterations went.");
    for (uint32_t j = 0; j < view->worker_count; j++) {
        for (uint32_t k = 0; k < RT_VIEW_TIMES; k++) {
            snprintf(labels, sizeof labels, "{worker=\"%" PRIu32 "\",part=\"%s\"}",
                     view->workers[j].rank, rt_view_time_names[k]);
            sample(text, "lanyard_worker_time_seconds_total", labels, view->workers[j].time_s[k]);
        }
    }
}

typedef double (*way_value)(const rt_view_way *way, const rt_view_rates *rates);

static double sum_of(const rt_view_way *way, const rt_view_rates *rates)
{
    (void)rates;
    return way->sum;
}

static double rate_of(const rt_view_way *way, const rt_view_rates *rates)
{
    (void)rates;
    if (way->bytes_per_s > 0)
        return way->bytes_per_s;
    return (double)NAN;
}

static double best_of(const rt_view_way *way, const rt_view_rates *rates)
{
    (void)rates;
    if (way->best > 0)
        return way->best;
    return (double)NAN;
}

static void write_links(const rt_view *view, const rt_view_rates *rates, rt_page *text)
{
    static const struct {
        const char *name, *type, *help;
        way_value value;
    } all[] = {
        {"lanyard_link_bytes_total", "counter", "Rows, requests and dense gradients, as planned.",
         sum_of},
        {"lanyard_link_bytes_per_second", "gauge", "Rate that the planner counts on.", rate_of},
        {"lanyard_link_best_bytes_per_second", "gauge", "The best rate so far.", best_of},
        {"lanyard_link_used_ratio", "gauge", "Share of the rate that is used.", rt_view_use}};
    char labels[96];
    for (size_t i = 0; i < RT_COUNT_OF(all); i++) {
        begin(text, all[i].name, all[i].type, all[i].help);
        for (uint32_t j = 0; j < 2 * view->worker_count; j++) {
            const rt_view_worker *worker = &view->workers[j / 2];
            snprintf(labels, sizeof labels, "{worker=\"%" PRIu32 "\",direction=\"%s\"}",
                     worker->rank, j % 2 ? "down" : "up");
            sample(text, all[i].name, labels, all[i].value(&worker->ways[j % 2], rates));
        }
    }
}

static void write_parts(const rt_view *view, rt_page *text)
{
    char labels[96];
    begin(text, "lanyard_worker_takes_part", "gauge",
          "1: it trained the last iteration; 0: it sat out.");
    for (uint32_t j = 0; j < view->worker_count; j++) {
        snprintf(labels, sizeof labels, "{worker=\"%" PRIu32 "\"}", view->workers[j].rank);
        sample(text, "lanyard_worker_takes_part", labels, view->workers[j].takes_part);
    }
    one(text, "lanyard_workers", "gauge", "Workers of the run.", view->worker_count);
    one(text, "lanyard_workers_out", "gauge", "Workers that the run goes on without.",
        view->out_count);
}

static void write_standby(const rt_view *view, double unix_s, rt_page *text)
{
    const rt_view_standby *standby = &view->standby;
    if (!standby->is_known)
        return;
    one(text, "lanyard_standby_in_step", "gauge", "1: the standby has all of the journals.",
        standby->is_in_step);
    one(text, "lanyard_standby_away_seconds", "gauge",
        "For so long it does not answer; 0: it does.", rt_view_standby_away_s(view, unix_s));
    one(text, "lanyard_standby_behind_bytes", "gauge", "Bytes of the journals that it lacks.",
        standby->behind_bytes);
    one(text, "lanyard_standby_commits_alone_total", "counter",
        "Commits that were acknowledged without it.", standby->commits_alone);
    one(text, "lanyard_standby_checkpoint_iteration", "gauge",
        "Of the newest checkpoint that it has as a whole; 0: none.", standby->checkpoint);
}

static void sample_memory(rt_page *text, const char *name, const char *who, uint32_t number,
                          double value)
{
    char labels[96];
    snprintf(labels, sizeof labels, "{process=\"%s\",rank=\"%" PRIu32 "\"}", who, number);
    sample(text, name, labels, value);
}

static void write_memory(const rt_view *view, bool is_limit, const char *name, const char *help,
                         rt_page *text)
{
#define OF(memory) (is_limit ? (memory).max_bytes : (memory).rss_bytes)
    begin(text, name, "gauge", help);
    sample_memory(text, name, "coordinator", 0, OF(view->coordinator));
    for (uint32_t j = 0; j < view->worker_count; j++)
        sample_memory(text, name, "worker", view->workers[j].rank, OF(view->workers[j].memory));
    for (uint32_t s = 0; s < view->shard_count; s++)
        sample_memory(text, name, "ps", s, OF(view->shards[s].memory));
#undef OF
}

// Numbers of many alike, each with labels of its own.
typedef struct {
    const char *name, *type, *help;
    size_t offset;
} field;

typedef void (*label_writer)(const rt_view *view, uint32_t index, char labels[LABELS_BYTES]);

static void write_fields(rt_page *text, const field *fields, size_t field_count, const void *items,
                         size_t item_size, uint32_t item_count, const rt_view *view,
                         label_writer write_labels)
{
    char labels[LABELS_BYTES];
    for (size_t k = 0; k < field_count && item_count; k++) {
        begin(text, fields[k].name, fields[k].type, fields[k].help);
        for (uint32_t i = 0; i < item_count; i++) {
            double value;
            memcpy(&value, (const char *)items + i * item_size + fields[k].offset, sizeof value);
            write_labels(view, i, labels);
            sample(text, fields[k].name, labels, value);
        }
    }
}

static void label_shard(const rt_view *view, uint32_t index, char labels[LABELS_BYTES])
{
    (void)view;
    snprintf(labels, LABELS_BYTES, "{shard=\"%" PRIu32 "\"}", index);
}

static void write_shards(const rt_view *view, rt_page *text)
{
    static const field all[] = {
        {"lanyard_shard_rows", "gauge", "Rows that it holds.", offsetof(rt_view_shard, keys)},
        {"lanyard_shard_row_bytes", "gauge", "What they take.", offsetof(rt_view_shard, row_bytes)},
        {"lanyard_shard_row_limit_bytes", "gauge", "What they may take (ps.memory_bytes_max).",
         offsetof(rt_view_shard, row_bytes_max)}};
    write_fields(text, all, RT_COUNT_OF(all), view->shards, sizeof *view->shards, view->shard_count,
                 view, label_shard);
}

// ---- columns, slices, alerts -----------------------------------------------------------------

static void label_column(const rt_view *view, uint32_t index, char labels[LABELS_BYTES])
{
    char name[LABEL_BYTES];
    snprintf(labels, LABELS_BYTES, "{column=\"%s\"}", label(view->columns[index].name, name));
}

static void write_columns(const rt_view *view, rt_page *text)
{
    static const field all[] = {{"lanyard_column_values_total", "counter", "Values of a column.",
                                 offsetof(rt_view_column, values)},
                                {"lanyard_column_empty_total", "counter", "Of them empty.",
                                 offsetof(rt_view_column, empty)},
                                {"lanyard_column_new_total", "counter",
                                 "Values that were never trained before.",
                                 offsetof(rt_view_column, fresh)}};
    write_fields(text, all, RT_COUNT_OF(all), view->columns, sizeof *view->columns,
                 view->column_count, view, label_column);
}

static void label_slice(const rt_view *view, uint32_t index, char labels[LABELS_BYTES])
{
    char column[LABEL_BYTES], name[LABEL_BYTES];
    snprintf(labels, LABELS_BYTES, "{column=\"%s\",value=\"%s\"}",
             label(view->slice_column, column), label(view->slices[index].name, name));
}

static void write_slices(const rt_view *view, rt_page *text)
{
#define OF(member) (offsetof(rt_view_slice, quality) + offsetof(rt_view_quality, member))
    static const field all[] = {
        {"lanyard_slice_samples", "gauge", "Samples with a value of watch.column, fading.",
         OF(samples)},
        {"lanyard_slice_log_loss", "gauge", "Their log loss, in nats.", OF(log_loss)},
        {"lanyard_slice_calibration_ratio", "gauge", "Their mean prediction over mean label.",
         OF(calibration)}};
#undef OF
    write_fields(text, all, RT_COUNT_OF(all), view->slices, sizeof *view->slices, view->slice_count,
                 view, label_slice);
}

static void write_alerts(const rt_alerts *alerts, rt_page *text)
{
    char labels[96];
    begin(text, "lanyard_alert_firing", "gauge", "1: the run itself says that it fires.");
    for (int kind = 0; kind < RT_ALERT_COUNT; kind++) {
        snprintf(labels, sizeof labels, "{alert=\"%s\"}", rt_alert_name((rt_alert_kind)kind));
        sample(text, "lanyard_alert_firing", labels, alerts->alerts[kind].is_firing);
    }
}

rt_status rt_view_write_prometheus(const rt_view *view, const rt_alerts *alerts, double unix_s,
                                   rt_page *text)
{
    const rt_view_rates rates = rt_view_rates_of(view, unix_s);
    write_speed(view, &rates, text);
    write_window(view, text);
    write_input(view, unix_s, text);
    write_times(view, text);
    write_links(view, &rates, text);
    write_parts(view, text);
    write_standby(view, unix_s, text);
    write_memory(view, false, "lanyard_process_resident_memory_bytes", "Memory of a process.",
                 text);
    write_memory(view, true, "lanyard_process_memory_limit_bytes", "What it may have.", text);
    write_shards(view, text);
    write_columns(view, text);
    write_slices(view, text);
    if (alerts)
        write_alerts(alerts, text);
    if (text->failed)
        return RT_NO_MEMORY;
    return RT_OK;
}
