// A view as JSON: what /status answers.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "runtime/watch/rt_view_write.h"

#define GROUP_BYTES 32u

// ---- metrics ---------------------------------------------------------------------------------

static void write_value(rt_json *json, const rt_metric *metric, const char *name, double value)
{
    if (isnan(value) && metric->is_sparse)
        return;
    if (metric->is_truth && !isnan(value))
        rt_json_bool(json, name, value > 0);
    else
        rt_json_double(json, name, value);
}

// Those of a list's item.
static void write_item(rt_json *json, rt_metric_set_kind set, const double *values)
{
    for (uint32_t i = 0; i < rt_metric_sets[set].count; i++) {
        const rt_metric *metric = &rt_metric_sets[set].metrics[i];
        if (metric->status)
            write_value(json, metric, metric->status, values[i]);
    }
}

// Of the run's, those from `first` on that are in its group.
static void write_group(const rt_view *view, uint32_t first, const char *group,
                        const double *values, rt_json *json)
{
    char own[GROUP_BYTES];
    rt_json_begin_object(json, group);
    for (uint32_t i = first; i < RT_RUN_METRICS; i++) {
        const rt_metric *metric = rt_metric_of_run(i);
        if (!metric->status)
            continue;
        const char *name = rt_metric_status_name(metric, own, sizeof own);
        if (strcmp(own, group) == 0)
            write_value(json, metric, name, values[i]);
    }
    if (strcmp(group, "published") == 0 && values[RT_RUN_held] > 0)
        rt_json_string(json, "why", view->held_why);
    rt_json_end_object(json);
}

// What belongs to no run that has none of it.
static bool has_group(const rt_view *view, const char *group)
{
    if (strcmp(group, "standby") == 0)
        return !isnan(view->standby_there);
    return strcmp(group, "published") != 0 || rt_view_publishes(view);
}

// A group is written at the first of its metrics.
static bool is_begun(uint32_t metric, const char *group)
{
    char own[GROUP_BYTES];
    for (uint32_t i = 0; i < metric; i++) {
        if (!rt_metric_of_run(i)->status)
            continue;
        (void)rt_metric_status_name(rt_metric_of_run(i), own, sizeof own);
        if (strcmp(own, group) == 0)
            return true;
    }
    return false;
}

static void write_run(const rt_view *view, double unix_s, rt_json *json)
{
    double values[RT_RUN_METRICS];
    char group[GROUP_BYTES];
    rt_view_values(view, unix_s, values);
    for (uint32_t i = 0; i < RT_RUN_METRICS; i++) {
        const rt_metric *metric = rt_metric_of_run(i);
        if (!metric->status)
            continue;
        const char *name = rt_metric_status_name(metric, group, sizeof group);
        if (!*group)
            write_value(json, metric, name, values[i]);
        else if (!is_begun(i, group) && has_group(view, group))
            write_group(view, i, group, values, json);
    }
}

// ---- lists -----------------------------------------------------------------------------------

static void write_worker(rt_json *json, const rt_view_worker *worker, double iterations_per_s)
{
    static const char *const ways[2] = {"up", "down"};
    const double takes_part = worker->takes_part;
    rt_json_begin_object(json, NULL);
    rt_json_u64(json, "rank", worker->rank);
    write_item(json, RT_SET_WORKER, &takes_part);
    rt_json_begin_object(json, "times_ms");
    for (uint32_t k = 0; k < RT_VIEW_TIMES; k++)
        rt_json_double(json, rt_view_time_names[k], worker->times_ms[k]);
    rt_json_end_object(json);
    for (uint32_t way = 0; way < 2; way++) {
        const rt_view_link link = rt_view_link_of(&worker->ways[way], iterations_per_s);
        rt_json_begin_object(json, ways[way]);
        write_item(json, RT_SET_LINK, &link.sum);
        rt_json_end_object(json);
    }
    write_item(json, RT_SET_PROCESS, &worker->memory.rss_bytes);
    rt_json_end_object(json);
}

static void write_members(const rt_view *view, double unix_s, rt_json *json)
{
    const rt_view_rates rates = rt_view_rates_of(view, unix_s);
    rt_json_begin_array(json, "workers");
    for (uint32_t j = 0; j < view->worker_count; j++)
        write_worker(json, &view->workers[j], rates.iterations_per_s);
    rt_json_end_array(json);
    rt_json_begin_array(json, "out");
    for (uint32_t i = 0; i < view->out_count; i++)
        rt_json_u64(json, NULL, view->out[i]);
    rt_json_end_array(json);
    rt_json_begin_array(json, "shards");
    for (uint32_t s = 0; s < view->shard_count; s++) {
        rt_json_begin_object(json, NULL);
        write_item(json, RT_SET_SHARD, &view->shards[s].keys);
        write_item(json, RT_SET_PROCESS, &view->shards[s].memory.rss_bytes);
        rt_json_end_object(json);
    }
    rt_json_end_array(json);
    rt_json_begin_object(json, "coordinator");
    write_item(json, RT_SET_PROCESS, &view->coordinator.rss_bytes);
    rt_json_end_object(json);
}

static void write_input(const rt_view *view, rt_json *json)
{
    rt_json_begin_array(json, "columns");
    for (uint32_t c = 0; c < view->column_count; c++) {
        rt_json_begin_object(json, NULL);
        rt_json_string(json, "name", view->columns[c].name);
        write_item(json, RT_SET_COLUMN, &view->columns[c].values);
        rt_json_end_object(json);
    }
    rt_json_end_array(json);
    rt_json_string(json, "slice_column", view->slice_column);
    rt_json_begin_array(json, "slices");
    for (uint32_t i = 0; i < view->slice_count; i++) {
        rt_json_begin_object(json, NULL);
        rt_json_string(json, "value", view->slices[i].name);
        write_item(json, RT_SET_SLICE, &view->slices[i].quality.samples);
        rt_json_end_object(json);
    }
    rt_json_end_array(json);
}

static void write_warnings(const rt_view *view, double unix_s, rt_json *json)
{
    const uint64_t all = (uint64_t)view->warnings, count = rt_min_u64(all, RT_VIEW_WARNINGS);
    rt_json_begin_array(json, "warnings");
    for (uint64_t i = all - count; i < all; i++) {
        rt_json_begin_object(json, NULL);
        rt_json_double(json, "age_s",
                       rt_view_age_s(view, view->texts[i % RT_VIEW_WARNINGS].time_s, unix_s));
        rt_json_string(json, "text", view->texts[i % RT_VIEW_WARNINGS].text);
        rt_json_end_object(json);
    }
    rt_json_end_array(json);
}

static void write_alerts(const rt_view *view, const rt_alerts *alerts, rt_json *json)
{
    rt_json_begin_array(json, "alerts");
    for (int kind = 0; kind < RT_ALERT_COUNT && alerts; kind++) {
        const rt_alert *one = &alerts->alerts[kind];
        if (!one->is_firing)
            continue;
        rt_json_begin_object(json, NULL);
        rt_json_string(json, "alert", rt_alert_name((rt_alert_kind)kind));
        rt_json_string(json, "text", rt_alert_text((rt_alert_kind)kind));
        rt_json_string(json, "about", one->about);
        rt_json_double(json, "value", one->value);
        rt_json_double(json, "threshold", one->threshold);
        rt_json_double(json, "since_unix_s", one->since_unix_s + view->ahead_s);
        rt_json_end_object(json);
    }
    rt_json_end_array(json);
}

void rt_view_write_json(const rt_view *view, const rt_alerts *alerts, double unix_s, rt_json *json)
{
    rt_json_begin_object(json, NULL);
    rt_json_string(json, "state", rt_view_state(view, unix_s));
    rt_json_string(json, "policy", view->policy);
    rt_json_double(json, "unix_s", unix_s + view->ahead_s);
    write_run(view, unix_s, json);
    write_members(view, unix_s, json);
    write_input(view, json);
    write_warnings(view, unix_s, json);
    write_alerts(view, alerts, json);
    rt_json_end_object(json);
}
