// A view as a page: what the run does now, and the charts of `lanyard report`, of one run.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "runtime/page/rt_chart.h"
#include "runtime/watch/rt_view_write.h"

#define LINK_PARTS 2u

static void fact(rt_page *page, const char *id, const char *name, const char *value)
{
    rt_page_add(page, "<div class=\"fact\"><small>%s</small><b id=\"%s\">", name, id);
    rt_page_text(page, value);
    rt_page_add(page, "</b></div>\n");
}

static void number(rt_page *page, const char *id, const char *name, double value)
{
    char text[32];
    fact(page, id, name, rt_page_number(value, text));
}

static void shown_as(rt_page *page, const char *id, const char *name, const char *format,
                     double value)
{
    char text[32] = "-";
    if (isfinite(value))
        snprintf(text, sizeof text, format, value);
    fact(page, id, name, text);
}

static void age(rt_page *page, const char *id, const char *name, double seconds)
{
    char text[32];
    fact(page, id, name, rt_page_age(seconds, text));
}

static void write_standby(const rt_view *view, double unix_s, rt_page *page)
{
    if (!view->standby.is_there)
        age(page, "standby", "standby, away", rt_view_standby_away_s(view, unix_s));
    else if (view->standby.is_in_step)
        fact(page, "standby", "standby", "in step");
    else
        number(page, "standby", "standby, bytes behind", view->standby.behind_bytes);
}

static void write_facts(const rt_view *view, double unix_s, rt_page *page)
{
    const rt_view_rates rates = rt_view_rates_of(view, unix_s);
    rt_page_add(page, "<div class=\"facts\">\n");
    fact(page, "state", "state", rt_view_state(view, unix_s));
    shown_as(page, "iteration", "iteration", "%.0f", (double)view->iteration);
    age(page, "age", "last one, age", rt_view_age_s(view, view->iteration_time_s, unix_s));
    number(page, "speed", "iterations/s", rates.iterations_per_s);
    number(page, "samples", "samples/s", rates.samples_per_s);
    shown_as(page, "loss", "log loss", "%.4f", view->window.log_loss);
    shown_as(page, "auc", "AUC", "%.4f", view->window.auc);
    if (!isnan(view->window.accuracy)) // of classes only
        shown_as(page, "accuracy", "accuracy", "%.4f", view->window.accuracy);
    shown_as(page, "calibration", "calibration", "%.4f", view->window.calibration);
    shown_as(page, "hits", "cache hits", "%.1f%%", 100 * view->hits);
    number(page, "keys", "keys", view->keys);
    age(page, "checkpoint", "checkpoint, age",
        rt_view_age_s(view, view->checkpoint_time_s, unix_s));
    if (!isnan(view->lag_events))
        number(page, "lag", "events wait", view->lag_events);
    if (view->standby.is_known)
        write_standby(view, unix_s, page);
    if (view->published.in_force > 0)
        shown_as(page, "in-force", "iteration in force", "%.0f", view->published.in_force);
    if (view->published.held > 0)
        number(page, "held", "versions held back", view->published.held);
    shown_as(page, "malformed", "malformed lines", "%.1f%%", 100 * rates.malformed_share);
    rt_page_add(page, "</div>\n");
}

static void write_alerts(const rt_view *view, const rt_alerts *alerts, rt_page *page)
{
    for (int kind = 0; kind < RT_ALERT_COUNT && alerts; kind++) {
        const rt_alert *one = &alerts->alerts[kind];
        if (!one->is_firing)
            continue;
        rt_page_add(page, "<p class=\"warn\" data-alert=\"%s\">%s%s",
                    rt_alert_name((rt_alert_kind)kind), rt_alert_text((rt_alert_kind)kind),
                    *one->about ? ": " : "");
        rt_page_text(page, one->about);
        rt_page_add(page, "</p>\n");
    }
    const uint64_t count = rt_min_u64(view->warning_count, RT_VIEW_WARNINGS);
    for (uint64_t i = 1; i <= count; i++) {
        rt_page_add(page, "<p class=\"note\">");
        rt_page_text(page, view->warnings[(view->warning_count - i) % RT_VIEW_WARNINGS].text);
        rt_page_add(page, "</p>\n");
    }
}

// ---- charts ----------------------------------------------------------------------------------

static const struct {
    const char *title, *unit;
    bool from_zero;
} series[] = {
#define XX(name, title, unit, from_zero) {title, unit, from_zero},
    RT_VIEW_SERIES_MAP(XX)
#undef XX
};

static void write_chart(const rt_view *view, rt_view_series kind, rt_page *page)
{
    double x[RT_VIEW_POINTS], y[RT_VIEW_POINTS];
    bool is_known = false;
    for (uint32_t p = 0; p < view->course.count; p++) {
        const double mean = rt_mean_of(&view->course.points[p].values[kind]);
        x[p] = view->course.points[p].at;
        y[p] = kind == RT_VIEW_iterations && mean > 0 ? 1 / mean : mean;
        is_known |= isfinite(mean);
    }
    const rt_chart_line line = {series[kind].title, x, y, view->course.count};
    if (!is_known)
        return;
    rt_page_add(page, "<section><h3>%s <small>%s</small></h3>\n", series[kind].title,
                series[kind].unit);
    rt_chart_lines(page, series[kind].from_zero, &line, 1);
    rt_page_add(page, "</section>\n");
}

static void write_workers(const rt_view *view, double unix_s, rt_page *page)
{
#define XX(name, title) title,
    static const char *const time_titles[] = { RT_TIMES_MAP(XX) };
#undef XX
    static const char *const link_titles[LINK_PARTS] = {"used", "free"};
    const rt_view_rates rates = rt_view_rates_of(view, unix_s);
    rt_bars times = {.count = 0}, links = {.count = 0};
    for (uint32_t j = 0; j < view->worker_count; j++) {
        const rt_view_worker *worker = &view->workers[j];
        const char *note = worker->takes_part ? "" : " (out)";
        memcpy(rt_bars_add(&times, worker->rank, note), worker->times_ms, sizeof worker->times_ms);
        for (uint32_t way = 0; way < 2; way++) {
            const double rate = worker->ways[way].bytes_per_s * 8e-6;
            double *parts = rt_bars_add(&links, worker->rank, way ? " down" : " up");
            const double used = rt_view_use(&worker->ways[way], &rates);
            parts[0] = parts[1] = 0;
            if (!isfinite(used))
                continue;
            parts[0] = fmin(used, 1) * rate;
            parts[1] = rate - parts[0];
        }
    }
    rt_bars_draw(page, &times, "Where an iteration's time goes", "ms", time_titles, RT_VIEW_TIMES);
    rt_bars_draw(page, &links, "Links", "Mbit/s", link_titles, LINK_PARTS);
}

// ---- tables ----------------------------------------------------------------------------------

static void cell(rt_page *page, double value)
{
    char text[32];
    rt_page_add(page, "<td>%s</td>", rt_page_number(value, text));
}

static void write_process(rt_page *page, const char *name, uint32_t number,
                          const rt_view_memory *memory, const rt_view_shard *shard)
{
    rt_page_add(page, "<tr><td>%s %" PRIu32 "</td>", name, number);
    cell(page, memory->rss_bytes * 1e-6);
    cell(page, memory->max_bytes * 1e-6);
    static const rt_view_shard unknown = {
        .keys = (double)NAN, .row_bytes = (double)NAN, .row_bytes_max = (double)NAN};
    if (!shard)
        shard = &unknown;
    cell(page, shard->keys);
    cell(page, shard->row_bytes * 1e-6);
    cell(page, shard->row_bytes_max * 1e-6);
    rt_page_add(page, "</tr>\n");
}

static void write_processes(const rt_view *view, rt_page *page)
{
    rt_page_add(page, "<h2>Processes</h2>\n<div class=\"table\"><table>\n<tr><th>process</th>"
                      "<th>memory, MB</th><th>of, MB</th><th>rows</th><th>rows, MB</th>"
                      "<th>of, MB</th></tr>\n");
    write_process(page, "coordinator", 0, &view->coordinator, NULL);
    for (uint32_t s = 0; s < view->shard_count; s++)
        write_process(page, "ps", s, &view->shards[s].memory, &view->shards[s]);
    for (uint32_t j = 0; j < view->worker_count; j++)
        write_process(page, "worker", view->workers[j].rank, &view->workers[j].memory, NULL);
    rt_page_add(page, "</table></div>\n");
}

static void write_slices(const rt_view *view, rt_page *page)
{
    if (view->slice_count == 0)
        return;
    rt_page_add(page, "<h2>By ");
    rt_page_text(page, view->slice_column);
    rt_page_add(page, "</h2>\n<div class=\"table\"><table>\n<tr><th>value</th><th>samples</th>"
                      "<th>log loss</th><th>calibration</th><th>mean label</th></tr>\n");
    for (uint32_t i = 0; i < view->slice_count; i++) {
        const rt_view_quality *quality = &view->slices[i].quality;
        rt_page_add(page, "<tr><td>");
        rt_page_text(page, view->slices[i].name);
        rt_page_add(page, "</td>");
        cell(page, quality->samples);
        cell(page, quality->log_loss);
        cell(page, quality->calibration);
        cell(page, quality->mean_label);
        rt_page_add(page, "</tr>\n");
    }
    rt_page_add(page, "</table></div>\n");
}

static void write_columns(const rt_view *view, rt_page *page)
{
    if (view->column_count == 0)
        return;
    rt_page_add(page, "<h2>Columns</h2>\n<div class=\"table\"><table>\n<tr><th>column</th>"
                      "<th>empty, %%</th><th>new, %%</th></tr>\n");
    for (uint32_t c = 0; c < view->column_count; c++) {
        rt_page_add(page, "<tr><td>");
        rt_page_text(page, view->columns[c].name);
        rt_page_add(page, "</td><td>%.1f</td><td>%.1f</td></tr>\n",
                    100 * view->columns[c].empty_share, 100 * view->columns[c].new_share);
    }
    rt_page_add(page, "</table></div>\n");
}

void rt_view_write_body(const rt_view *view, const rt_alerts *alerts, double unix_s, rt_page *page)
{
    write_facts(view, unix_s, page);
    write_alerts(view, alerts, page);
    rt_page_add(page, "<div class=\"charts\">\n");
    for (int kind = 0; kind < RT_VIEW_SERIES; kind++)
        write_chart(view, (rt_view_series)kind, page);
    write_workers(view, unix_s, page);
    rt_page_add(page, "</div>\n");
    if (view->course.stride > 1)
        rt_page_add(page,
                    "<p class=\"note\">Every point of a line is the mean of %" PRIu64
                    " iterations.</p>\n",
                    view->course.stride);
    write_processes(view, page);
    write_slices(view, page);
    write_columns(view, page);
}

// What a browser shows is replaced as a whole: it holds as much after a month as after a minute.
static const char script[] =
    "<script>\n"
    "const now=document.getElementById('now'),link=document.getElementById('link');\n"
    "function ask(){const events=new EventSource('events');\n"
    "events.onmessage=e=>{now.innerHTML=e.data;link.textContent='';};\n"
    "events.onerror=()=>{link.textContent='The run does not answer; asking again.';\n"
    "if(events.readyState===2)setTimeout(ask,3000);};}\n"
    "ask();\n"
    "</script>\n";

void rt_view_write_page(const rt_view *view, const rt_alerts *alerts, double unix_s, rt_page *page)
{
    rt_page_head(page, "lanyard");
    rt_page_add(page, "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                      "style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; "
                      "img-src data:\"/>\n<link rel=\"icon\" href=\"data:,\"/>\n"
                      "<noscript><meta http-equiv=\"refresh\" content=\"10\"/></noscript>\n"
                      "</head>\n<body>\n<h1>lanyard</h1>\n<p class=\"warn\" id=\"link\"></p>\n"
                      "<main id=\"now\">\n");
    rt_view_write_body(view, alerts, unix_s, page);
    rt_page_add(page, "</main>\n%s</body>\n</html>\n", script);
}

// Every line of the text is one of the event; an empty one ends it.
void rt_view_write_event(const rt_page *body, rt_page *event)
{
    const char *at = body->text;
    rt_page_add(event, "retry: 2000\n");
    while (at && *at) {
        const size_t length = strcspn(at, "\n");
        rt_page_add(event, "data: %.*s\n", (int)length, at);
        at += length + (at[length] == '\n');
    }
    rt_page_add(event, "\n");
}
