// A view as JSON: what /status answers.
#include <math.h>

#include "runtime/watch/rt_view_write.h"

static void write_quality(rt_json *json, const rt_view_quality *quality)
{
    rt_json_double(json, "samples", quality->samples);
    rt_json_double(json, "log_loss", quality->log_loss);
    rt_json_double(json, "auc", quality->auc);
    rt_json_double(json, "calibration", quality->calibration);
    if (!isnan(quality->accuracy)) // of classes only
        rt_json_double(json, "accuracy", quality->accuracy);
}

static void write_memory(rt_json *json, const rt_view_memory *memory)
{
    rt_json_double(json, "rss_bytes", memory->rss_bytes);
    rt_json_double(json, "memory_max_bytes", memory->max_bytes);
}

static void write_way(rt_json *json, const char *key, const rt_view_way *way,
                      const rt_view_rates *rates)
{
    rt_json_begin_object(json, key);
    rt_json_double(json, "bytes_per_s", way->bytes_per_s);
    rt_json_double(json, "used", rt_view_use(way, rates));
    rt_json_end_object(json);
}

static void write_worker(rt_json *json, const rt_view_worker *worker, const rt_view_rates *rates)
{
    rt_json_begin_object(json, NULL);
    rt_json_u64(json, "rank", worker->rank);
    rt_json_bool(json, "takes_part", worker->takes_part);
    rt_json_begin_object(json, "times_ms");
    for (uint32_t k = 0; k < RT_VIEW_TIMES; k++)
        rt_json_double(json, rt_view_time_names[k], worker->times_ms[k]);
    rt_json_end_object(json);
    write_way(json, "up", &worker->ways[0], rates);
    write_way(json, "down", &worker->ways[1], rates);
    write_memory(json, &worker->memory);
    rt_json_end_object(json);
}

static void write_members(const rt_view *view, const rt_view_rates *rates, rt_json *json)
{
    rt_json_begin_array(json, "workers");
    for (uint32_t j = 0; j < view->worker_count; j++)
        write_worker(json, &view->workers[j], rates);
    rt_json_end_array(json);
    rt_json_begin_array(json, "out");
    for (uint32_t i = 0; i < view->out_count; i++)
        rt_json_u64(json, NULL, view->out[i]);
    rt_json_end_array(json);
    rt_json_begin_array(json, "shards");
    for (uint32_t s = 0; s < view->shard_count; s++) {
        const rt_view_shard *shard = &view->shards[s];
        rt_json_begin_object(json, NULL);
        rt_json_double(json, "keys", shard->keys);
        rt_json_double(json, "row_bytes", shard->row_bytes);
        rt_json_double(json, "row_bytes_max", shard->row_bytes_max);
        write_memory(json, &shard->memory);
        rt_json_end_object(json);
    }
    rt_json_end_array(json);
    rt_json_begin_object(json, "coordinator");
    write_memory(json, &view->coordinator);
    rt_json_end_object(json);
}

static void write_input(const rt_view *view, rt_json *json)
{
    rt_json_begin_array(json, "columns");
    for (uint32_t c = 0; c < view->column_count; c++) {
        rt_json_begin_object(json, NULL);
        rt_json_string(json, "name", view->columns[c].name);
        rt_json_double(json, "empty", view->columns[c].empty_share);
        rt_json_double(json, "new", view->columns[c].new_share);
        rt_json_end_object(json);
    }
    rt_json_end_array(json);
    rt_json_string(json, "slice_column", view->slice_column);
    rt_json_begin_array(json, "slices");
    for (uint32_t i = 0; i < view->slice_count; i++) {
        rt_json_begin_object(json, NULL);
        rt_json_string(json, "value", view->slices[i].name);
        write_quality(json, &view->slices[i].quality);
        rt_json_end_object(json);
    }
    rt_json_end_array(json);
}

static void write_warnings(const rt_view *view, double unix_s, rt_json *json)
{
    const uint64_t count = rt_min_u64(view->warning_count, RT_VIEW_WARNINGS);
    rt_json_begin_array(json, "warnings");
    for (uint64_t i = view->warning_count - count; i < view->warning_count; i++) {
        rt_json_begin_object(json, NULL);
        rt_json_double(json, "age_s",
                       rt_view_age_s(view, view->warnings[i % RT_VIEW_WARNINGS].time_s, unix_s));
        rt_json_string(json, "text", view->warnings[i % RT_VIEW_WARNINGS].text);
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

static void write_standby(const rt_view *view, double unix_s, rt_json *json)
{
    const rt_view_standby *standby = &view->standby;
    if (!standby->is_known)
        return;
    rt_json_begin_object(json, "standby");
    rt_json_bool(json, "there", standby->is_there);
    rt_json_bool(json, "in_step", standby->is_in_step);
    rt_json_double(json, "away_s", rt_view_standby_away_s(view, unix_s));
    rt_json_double(json, "behind_bytes", standby->behind_bytes);
    rt_json_double(json, "commits_alone", standby->commits_alone);
    rt_json_double(json, "checkpoint", standby->checkpoint);
    rt_json_end_object(json);
}

static void write_published(const rt_view *view, double unix_s, rt_json *json)
{
    const rt_view_published *published = &view->published;
    if (!(published->in_force > 0 || published->held > 0))
        return;
    rt_json_begin_object(json, "published");
    rt_json_double(json, "in_force", published->in_force);
    rt_json_double(json, "held", published->held);
    if (published->held > 0) {
        rt_json_double(json, "held_iteration", published->held_iteration);
        rt_json_double(json, "held_s", rt_view_age_s(view, published->held_time_s, unix_s));
        rt_json_string(json, "why", published->why);
    }
    rt_json_end_object(json);
}

static void write_speed(const rt_view *view, const rt_view_rates *rates, double unix_s,
                        rt_json *json)
{
    rt_json_u64(json, "iteration", view->iteration);
    rt_json_double(json, "samples", view->samples);
    rt_json_double(json, "iteration_age_s", rt_view_age_s(view, view->iteration_time_s, unix_s));
    rt_json_double(json, "iterations_per_s", rates->iterations_per_s);
    rt_json_double(json, "samples_per_s", rates->samples_per_s);
    rt_json_double(json, "iteration_ms", rates->iteration_ms);
    rt_json_double(json, "predicted_ms", view->predicted_ms);
    rt_json_double(json, "decision_ms", view->decision_ms);
    rt_json_double(json, "cost", view->cost);
    rt_json_double(json, "hits", view->hits);
    rt_json_double(json, "keys", view->keys);
    rt_json_double(json, "bad_batches", view->bad_batches);
    rt_json_double(json, "malformed_lines", view->malformed);
    rt_json_double(json, "malformed_share", rates->malformed_share);
    rt_json_double(json, "input_events_lost", view->input_lost);
    rt_json_double(json, "input_breaks", view->input_breaks);
}

void rt_view_write_json(const rt_view *view, const rt_alerts *alerts, double unix_s, rt_json *json)
{
    const rt_view_rates rates = rt_view_rates_of(view, unix_s);
    rt_json_begin_object(json, NULL);
    rt_json_string(json, "state", rt_view_state(view, unix_s));
    rt_json_string(json, "policy", view->policy);
    rt_json_double(json, "unix_s", unix_s + view->ahead_s);
    write_speed(view, &rates, unix_s, json);
    rt_json_begin_object(json, "window");
    write_quality(json, &view->window);
    rt_json_double(json, "log_loss_before", view->reference_loss);
    rt_json_end_object(json);
    write_members(view, &rates, json);
    rt_json_begin_object(json, "checkpoint");
    rt_json_double(json, "iteration", view->checkpoint_iteration);
    rt_json_double(json, "age_s", rt_view_age_s(view, view->checkpoint_time_s, unix_s));
    rt_json_double(json, "every_s", view->checkpoint_every_s);
    rt_json_double(json, "unsaved_s", rt_view_unsaved_s(view, unix_s));
    rt_json_end_object(json);
    rt_json_begin_object(json, "lag");
    rt_json_double(json, "events", view->lag_events);
    rt_json_double(json, "bytes", view->lag_bytes);
    rt_json_double(json, "latency_p99_ms", view->latency_p99_ms);
    rt_json_end_object(json);
    write_standby(view, unix_s, json);
    write_published(view, unix_s, json);
    write_input(view, json);
    write_warnings(view, unix_s, json);
    write_alerts(view, alerts, json);
    rt_json_end_object(json);
}
