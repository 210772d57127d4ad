// A view as a page: what the run does now, and the charts of `lanyard report`, of one run.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "runtime/page/rt_chart.h"
#include "runtime/watch/rt_view_write.h"

#define LINK_PARTS RT_BAR_PARTS_MAX // the first and the last, whose colour is grey

static void fact(rt_page *page, const char *id, const char *name, const char *value)
{
    rt_page_add(page, "<div class=\"fact\"><small>%s</small><b id=\"%s\">", name, id);
    rt_page_text(page, value);
    rt_page_add(page, "</b></div>\n");
}

static void write_standby(const rt_view *view, double unix_s, rt_page *page)
{
    char text[32] = "in step";
    const char *name = "standby";
    if (!(view->standby_there > 0)) {
        name = "standby, away";
        rt_page_age(rt_view_standby_away_s(view, unix_s), text);
    } else if (!(view->standby_in_step > 0)) {
        name = "standby, bytes behind";
        rt_page_number(view->standby_behind_bytes, text);
    }
    fact(page, "standby", name, text);
}

static bool has_tile(const rt_metric *metric, double value)
{
    if (metric->tile_when == RT_SHOWN_IF_KNOWN)
        return !isnan(value);
    return metric->tile.title && (metric->tile_when != RT_SHOWN_IF_ANY || value > 0);
}

static void write_facts(const rt_view *view, double unix_s, rt_page *page)
{
    double values[RT_RUN_METRICS];
    char text[32];
    rt_view_values(view, unix_s, values);
    rt_page_add(page, "<div class=\"facts\">\n");
    fact(page, "state", "state", rt_view_state(view, unix_s));
    for (uint32_t i = 0; i < RT_RUN_METRICS; i++) {
        const rt_metric *metric = rt_metric_of_run(i);
        if (i == RT_RUN_standby_there && !isnan(view->standby_there))
            write_standby(view, unix_s, page);
        if (has_tile(metric, values[i]))
            fact(page, metric->tile.id, metric->tile.title,
                 rt_form_text(metric->tile.form, values[i], text));
    }
    rt_page_add(page, "</div>\n");
}

// A time between two texts; nothing where nobody knows it.
static void write_age(rt_page *page, const char *before, double seconds, const char *after)
{
    char text[32];
    if (isfinite(seconds))
        rt_page_add(page, "<small>%s%s%s</small>", before, rt_page_age(seconds, text), after);
}

// In UTC: the page is one for all who look, wherever they are.
static void write_since(rt_page *page, double unix_s)
{
    const time_t at = (time_t)unix_s;
    struct tm day;
    if (isfinite(unix_s) && gmtime_r(&at, &day))
        rt_page_add(page, " <small>since %04d-%02d-%02d %02d:%02d UTC</small>", day.tm_year + 1900,
                    day.tm_mon + 1, day.tm_mday, day.tm_hour, day.tm_min);
}

static void write_alerts(const rt_view *view, const rt_alerts *alerts, double unix_s, rt_page *page)
{
    for (int kind = 0; kind < RT_ALERT_COUNT && alerts; kind++) {
        const rt_alert *one = &alerts->alerts[kind];
        if (!one->is_firing)
            continue;
        rt_page_add(page, "<p class=\"alert\" data-alert=\"%s\">%s%s",
                    rt_alert_name((rt_alert_kind)kind), rt_alert_text((rt_alert_kind)kind),
                    *one->about ? ": " : "");
        rt_page_text(page, one->about);
        write_since(page, one->since_unix_s);
        write_age(page, " (for ", fmax(unix_s - one->since_unix_s, 0), ")");
        rt_page_add(page, "</p>\n");
    }
    const uint64_t all = (uint64_t)view->warnings, count = rt_min_u64(all, RT_VIEW_WARNINGS);
    for (uint64_t i = 1; i <= count; i++) {
        const uint64_t at = (all - i) % RT_VIEW_WARNINGS;
        rt_page_add(page, "<p class=\"warn\">");
        write_age(page, "", rt_view_age_s(view, view->texts[at].time_s, unix_s), " ago: ");
        rt_page_text(page, view->texts[at].text);
        rt_page_add(page, "</p>\n");
    }
}

// ---- charts ----------------------------------------------------------------------------------

static void write_chart(const rt_view *view, uint32_t metric, rt_page *page)
{
    double x[RT_VIEW_POINTS], times_s[RT_VIEW_POINTS], y[RT_VIEW_POINTS];
    const rt_metric *of = rt_metric_of_run(metric);
    const rt_chart_line line = {of->chart.title, x, times_s, y, view->course.count};
    if (!rt_view_has_chart(view, metric) || !rt_view_line(view, metric, x, times_s, y))
        return;
    rt_page_add(page, "<section><h3>%s <small>%s</small></h3>\n", of->chart.title, of->chart.unit);
    rt_chart_lines(page, of->chart.from_zero, &line, 1);
    rt_page_add(page, "</section>\n");
}

static void write_workers(const rt_view *view, double unix_s, rt_page *page)
{
#define XX(name, title) title,
    static const char *const time_titles[] = { RT_TIMES_MAP(XX) };
#undef XX
    static const char *const link_titles[LINK_PARTS] = {"used", [LINK_PARTS - 1] = "free"};
    const rt_view_rates rates = rt_view_rates_of(view, unix_s);
    rt_bars times = {.count = 0}, links = {.count = 0};
    for (uint32_t j = 0; j < view->worker_count; j++) {
        const rt_view_worker *worker = &view->workers[j];
        const char *note = worker->takes_part ? "" : " (out)";
        memcpy(rt_bars_add(&times, worker->rank, note), worker->times_ms, sizeof worker->times_ms);
        for (uint32_t way = 0; way < 2; way++) {
            const double rate = worker->ways[way].bytes_per_s * 8e-6;
            double *parts = rt_bars_add(&links, worker->rank, way ? " down" : " up");
            const double used = rt_view_link_of(&worker->ways[way], rates.iterations_per_s).used;
            parts[0] = parts[LINK_PARTS - 1] = 0;
            if (!isfinite(used))
                continue;
            parts[0] = fmin(used, 1) * rate;
            parts[LINK_PARTS - 1] = rate - parts[0];
        }
    }
    rt_bars_draw(page, &times, "Where an iteration's time goes", "ms", time_titles, RT_VIEW_TIMES);
    if (!rt_view_is_alone(view))
        rt_bars_draw(page, &links, "Links", "Mbit/s", link_titles, LINK_PARTS);
}

// ---- tables ----------------------------------------------------------------------------------

void rt_view_begin_table(rt_page *page, const char *first, const rt_metric_set_kind *sets,
                         uint32_t set_count)
{
    rt_page_add(page, "<div class=\"table\"><table>\n<tr><th>%s</th>", first);
    for (uint32_t k = 0; k < set_count; k++) {
        for (uint32_t i = 0; i < rt_metric_sets[sets[k]].count; i++) {
            const char *title = rt_metric_sets[sets[k]].metrics[i].cell.title;
            if (title)
                rt_page_add(page, "<th>%s</th>", title);
        }
    }
    rt_page_add(page, "</tr>\n");
}

void rt_view_write_cells(rt_page *page, rt_metric_set_kind set, const double *values)
{
    char text[32];
    for (uint32_t i = 0; i < rt_metric_sets[set].count; i++) {
        const rt_metric *metric = &rt_metric_sets[set].metrics[i];
        const double value = values ? values[i] * metric->cell.scale : (double)NAN;
        if (metric->cell.title)
            rt_page_add(page, "<td>%s</td>", rt_form_text(metric->cell.form, value, text));
    }
}

static void write_process(rt_page *page, const char *name, uint32_t number,
                          const rt_view_memory *memory, const rt_view_shard *shard)
{
    rt_page_add(page, "<tr><td>%s %" PRIu32 "</td>", name, number);
    rt_view_write_cells(page, RT_SET_PROCESS, &memory->rss_bytes);
    rt_view_write_cells(page, RT_SET_SHARD, shard ? &shard->keys : NULL);
    rt_page_add(page, "</tr>\n");
}

static void write_processes(const rt_view *view, rt_page *page)
{
    static const rt_metric_set_kind sets[] = {RT_SET_PROCESS, RT_SET_SHARD};
    rt_page_add(page, "<h2>Processes</h2>\n");
    rt_view_begin_table(page, "process", sets, RT_COUNT_OF(sets));
    write_process(page, "coordinator", 0, &view->coordinator, NULL);
    for (uint32_t s = 0; s < view->shard_count; s++)
        write_process(page, "ps", s, &view->shards[s].memory, &view->shards[s]);
    for (uint32_t j = 0; j < view->worker_count; j++)
        write_process(page, "worker", view->workers[j].rank, &view->workers[j].memory, NULL);
    rt_page_add(page, "</table></div>\n");
}

static void write_row(rt_page *page, const char *name, rt_metric_set_kind set, const double *values)
{
    rt_page_add(page, "<tr><td>");
    rt_page_text(page, name);
    rt_page_add(page, "</td>");
    rt_view_write_cells(page, set, values);
    rt_page_add(page, "</tr>\n");
}

static void write_slices(const rt_view *view, rt_page *page)
{
    static const rt_metric_set_kind set = RT_SET_SLICE;
    if (view->slice_count == 0)
        return;
    rt_page_add(page, "<h2>By ");
    rt_page_text(page, view->slice_column);
    rt_page_add(page, "</h2>\n");
    rt_view_begin_table(page, "value", &set, 1);
    for (uint32_t i = 0; i < view->slice_count; i++)
        write_row(page, view->slices[i].name, set, &view->slices[i].quality.samples);
    rt_page_add(page, "</table></div>\n");
}

static void write_columns(const rt_view *view, rt_page *page)
{
    static const rt_metric_set_kind set = RT_SET_COLUMN;
    if (view->column_count == 0)
        return;
    rt_page_add(page, "<h2>Columns</h2>\n");
    rt_view_begin_table(page, "column", &set, 1);
    for (uint32_t c = 0; c < view->column_count; c++)
        write_row(page, view->columns[c].name, set, &view->columns[c].values);
    rt_page_add(page, "</table></div>\n");
}

void rt_view_write_body(const rt_view *view, const rt_alerts *alerts, double unix_s, rt_page *page)
{
    write_facts(view, unix_s, page);
    write_alerts(view, alerts, unix_s, page);
    rt_page_add(page, "<div class=\"charts\">\n");
    for (uint32_t i = 0; i < RT_RUN_METRICS; i++)
        if (rt_metric_of_run(i)->chart.where & RT_CHART_PAGE)
            write_chart(view, i, page);
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
    rt_page_head(page, *view->name ? view->name : "lanyard");
    rt_page_add(page, "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                      "style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; "
                      "img-src data:\"/>\n<link rel=\"icon\" href=\"data:,\"/>\n"
                      "<noscript><meta http-equiv=\"refresh\" content=\"10\"/></noscript>\n"
                      "</head>\n<body>\n<h1>lanyard <small id=\"name\">");
    rt_page_text(page, view->name);
    rt_page_add(page, "</small></h1>\n<p class=\"warn\" id=\"link\"></p>\n");
    rt_page_begin_main(page);
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
