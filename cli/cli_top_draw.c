#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli_top.h"
#include "runtime/rt_json_read.h"
#include "runtime/rt_printable.h"
#include "runtime/watch/rt_view.h"

#define SLICES_SHOWN 8
#define COLUMN_CELLS 4 // of a line
#define MB 1e-6
#define MBIT 8e-6

typedef struct {
    rt_page *text;
    uint32_t rows_left;
} screen;

// One line, cut where the screen ends; characters that would steer the terminal are shown as "?".
__attribute__((format(printf, 2, 3))) static void line(screen *s, const char *format, ...)
{
    char text[512];
    uint32_t shown = 0, at = 0;
    va_list arguments;
    if (s->rows_left == 0)
        return;
    s->rows_left--;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    rt_printable_clean(text);
    for (; text[at]; at++) {
        shown += ((unsigned char)text[at] & 0xc0) != 0x80; // the first byte of a character
        if (shown > CLI_TOP_COLUMNS)
            break;
    }
    text[at] = '\0';
    rt_page_add(s->text, "%s\n", text);
}

typedef struct {
    char text[32];
} cell;

static cell as(rt_form form, double value)
{
    cell c;
    rt_form_text(form, value, c.text);
    return c;
}

// Of a mean that fades: what is next to nothing would take more letters than a column has.
static cell ms_of(double ms)
{
    cell c = as(RT_FORM_SHORT, ms);
    if (ms > 0 && ms < 0.00005)
        snprintf(c.text, sizeof c.text, "0");
    else if (ms > 0 && ms < 0.01)
        snprintf(c.text, sizeof c.text, "%.4f", ms);
    return c;
}

// ---- the run ---------------------------------------------------------------------------------

#define LINE_FIRST 2u // of metrics
#define LINE_LAST 9u
#define PLACES 10u // of a line

static const rt_metric *metric_at(uint32_t place)
{
    for (uint32_t i = 0; i < RT_RUN_METRICS; i++)
        if (rt_metric_of_run(i)->top.place == place)
            return rt_metric_of_run(i);
    return NULL;
}

// The text of a metric, with its value in place of %s; nothing where it is left out.
static void add_metric(char *text, size_t size, const rt_metric *metric, const cJSON *status)
{
    char group[32], number[32];
    const char *name = rt_metric_status_name(metric, group, sizeof group);
    const double value = rt_json_number(*group ? rt_json_member(status, group) : status, name);
    const char *gap = strstr(metric->top.text, "%s");
    const size_t used = strlen(text);
    if (!gap || (metric->is_sparse && isnan(value)))
        return;
    snprintf(text + used, size - used, "%.*s%s%s", (int)(gap - metric->top.text), metric->top.text,
             rt_form_text(metric->top.form, value, number), gap + 2);
}

static void draw_metrics(screen *s, const cJSON *status)
{
    for (uint32_t at = LINE_FIRST; at <= LINE_LAST; at++) {
        char text[4 * CLI_TOP_COLUMNS] = "";
        for (uint32_t place = 0; place < PLACES; place++) {
            const rt_metric *metric = metric_at(at * PLACES + place);
            if (metric)
                add_metric(text, sizeof text, metric, status);
        }
        if (*text)
            line(s, "%s", text);
    }
}

static void draw_checkpoint(screen *s, const cJSON *checkpoint)
{
    const double every_s = rt_json_number(checkpoint, "every_s");
    const double iteration = rt_json_number(checkpoint, "iteration");
    const cell age = as(RT_FORM_AGE, rt_json_number(checkpoint, "age_s"));
    if (every_s > 0)
        line(s, "checkpoint of iteration %.0f, %s old, one every %s", iteration, age.text,
             as(RT_FORM_AGE, every_s).text);
    else
        line(s, "checkpoint of iteration %.0f, %s old", iteration, age.text);
}

static void draw_run(screen *s, const cJSON *json, const char *source)
{
    const cJSON *checkpoint = rt_json_member(json, "checkpoint");
    line(s, "%-38.38s %-7s %-10s iteration %.0f", source, rt_json_text_of(json, "state"),
         rt_json_text_of(json, "policy"), rt_json_number(json, "iteration"));
    draw_metrics(s, json);
    if (rt_json_number(checkpoint, "iteration") > 0)
        draw_checkpoint(s, checkpoint);
}

static void draw_lag(screen *s, const cJSON *lag)
{
    const double events = rt_json_number(lag, "events"), bytes = rt_json_number(lag, "bytes");
    const double latency = rt_json_number(lag, "latency_p99_ms");
    if (isfinite(events))
        line(s, "stream: %s events wait; 99%% are trained within %s ms of their arrival",
             as(RT_FORM_SHORT, events).text, as(RT_FORM_SHORT, latency).text);
    else if (isfinite(bytes))
        line(s, "stream: %s MB of its files are left", as(RT_FORM_SHORT, bytes * MB).text);
}

static void draw_standby(screen *s, const cJSON *standby)
{
    char saved[64] = "no checkpoint yet", lacks[64] = "not in step yet";
    const double iteration = rt_json_number(standby, "checkpoint"),
                 behind = rt_json_number(standby, "behind_bytes");
    if (!standby)
        return;
    if (iteration > 0)
        snprintf(saved, sizeof saved, "checkpoint of iteration %.0f", iteration);
    if (cJSON_IsTrue(rt_json_member(standby, "in_step")))
        snprintf(lacks, sizeof lacks, "in step");
    else if (behind > 0)
        snprintf(lacks, sizeof lacks, "lacks %s MB of events", as(RT_FORM_SHORT, behind * MB).text);
    if (cJSON_IsTrue(rt_json_member(standby, "there")))
        line(s, "standby: %s, %s", lacks, saved);
    else
        line(s, "standby: AWAY for %s, %s; %s commits without it",
             as(RT_FORM_AGE, rt_json_number(standby, "away_s")).text, saved,
             as(RT_FORM_WHOLE, rt_json_number(standby, "commits_alone")).text);
}

static void draw_trouble(screen *s, const cJSON *json)
{
    const cJSON *one;
    cJSON_ArrayForEach(one, rt_json_member(json, "alerts"))
        line(s, "ALERT %s: %s%s%s", rt_json_text_of(one, "alert"), rt_json_text_of(one, "text"),
             *rt_json_text_of(one, "about") ? ": " : "", rt_json_text_of(one, "about"));
    cJSON_ArrayForEach(one, rt_json_member(json, "warnings"))
        line(s, "warning, %s ago: %s", as(RT_FORM_AGE, rt_json_number(one, "age_s")).text,
             rt_json_text_of(one, "text"));
}

// ---- members ---------------------------------------------------------------------------------

static cell memory_of(const cJSON *json)
{
    cell c = {"-"};
    const double rss = rt_json_number(json, "rss_bytes"),
                 max = rt_json_number(json, "memory_max_bytes");
    if (isfinite(rss))
        snprintf(c.text, sizeof c.text, "%s MB %s", as(RT_FORM_SHORT, rss * MB).text,
                 as(RT_FORM_PERCENT, rss / max).text);
    return c;
}

static void draw_worker(screen *s, const cJSON *worker)
{
    const cJSON *times = rt_json_member(worker, "times_ms");
    const cJSON *up = rt_json_member(worker, "up"), *down = rt_json_member(worker, "down");
    char parts[8 * RT_VIEW_TIMES + 8] = "";
    for (uint32_t k = 0; k < RT_VIEW_TIMES; k++)
        snprintf(parts + strlen(parts), sizeof parts - strlen(parts), "%7.7s",
                 ms_of(rt_json_number(times, rt_view_time_names[k])).text);
    line(s, "%2.0f%c%s %7.7s %4.4s %7.7s %4.4s  %s", rt_json_number(worker, "rank"),
         cJSON_IsFalse(rt_json_member(worker, "takes_part")) ? '-' : ' ', parts,
         as(RT_FORM_SHORT, rt_json_number(up, "bytes_per_s") * MBIT).text,
         as(RT_FORM_PERCENT, rt_json_number(up, "used")).text,
         as(RT_FORM_SHORT, rt_json_number(down, "bytes_per_s") * MBIT).text,
         as(RT_FORM_PERCENT, rt_json_number(down, "used")).text, memory_of(worker).text);
}

static void draw_workers(screen *s, const cJSON *json)
{
    const cJSON *one;
    char names[8 * RT_VIEW_TIMES + 8] = "";
    for (uint32_t k = 0; k < RT_VIEW_TIMES; k++)
        snprintf(names + strlen(names), sizeof names - strlen(names), "%7.7s",
                 rt_view_time_names[k]);
    line(s, "%s", "");
    line(s, "w. %s up Mbit/s used   down used  memory", names);
    cJSON_ArrayForEach(one, rt_json_member(json, "workers")) draw_worker(s, one);
    cJSON_ArrayForEach(one, rt_json_member(json, "out"))
        line(s, "%2.0f  does not take part in the run", one->valuedouble);
}

static void draw_shards(screen *s, const cJSON *json)
{
    const cJSON *one;
    uint32_t rank = 0;
    line(s, "%s", "");
    cJSON_ArrayForEach(one, rt_json_member(json, "shards")) line(
        s, "ps %-2u %10s rows, %s MB of %s MB; memory %s", rank++,
        as(RT_FORM_SHORT, rt_json_number(one, "keys")).text,
        as(RT_FORM_SHORT, rt_json_number(one, "row_bytes") * MB).text,
        as(RT_FORM_SHORT, rt_json_number(one, "row_bytes_max") * MB).text, memory_of(one).text);
    line(s, "coordinator: memory %s", memory_of(rt_json_member(json, "coordinator")).text);
}

// ---- input -----------------------------------------------------------------------------------

static void draw_slices(screen *s, const cJSON *json)
{
    const cJSON *one, *slices = rt_json_member(json, "slices");
    int count = 0;
    if (cJSON_GetArraySize(slices) == 0)
        return;
    line(s, "%s", "");
    line(s, "%-38.38s %8s  %8s  calibration", rt_json_text_of(json, "slice_column"), "samples",
         "log loss");
    cJSON_ArrayForEach(one, slices)
    {
        if (count++ == SLICES_SHOWN)
            break;
        line(s, "%-38.38s %8s  %8s  %s", rt_json_text_of(one, "value"),
             as(RT_FORM_SHORT, rt_json_number(one, "samples")).text,
             as(RT_FORM_DIGITS_4, rt_json_number(one, "log_loss")).text,
             as(RT_FORM_DIGITS_3, rt_json_number(one, "calibration")).text);
    }
}

static void draw_columns(screen *s, const cJSON *json)
{
    const cJSON *one, *columns = rt_json_member(json, "columns");
    char cells[CLI_TOP_COLUMNS * 2] = "";
    int count = 0;
    if (cJSON_GetArraySize(columns) == 0)
        return;
    line(s, "%s", "");
    line(s, "columns: share of empty, of new values");
    cJSON_ArrayForEach(one, columns)
    {
        snprintf(cells + strlen(cells), sizeof cells - strlen(cells), "%-8.8s%5s %5s ",
                 rt_json_text_of(one, "name"),
                 as(RT_FORM_PERCENT, rt_json_number(one, "empty")).text,
                 as(RT_FORM_PERCENT, rt_json_number(one, "new")).text);
        if (++count % COLUMN_CELLS == 0 || !one->next) {
            line(s, "%s", cells);
            *cells = '\0';
        }
    }
}

static void draw_published(screen *s, const cJSON *published)
{
    const double held = rt_json_number(published, "held");
    if (!published)
        return;
    if (held > 0)
        line(s, "published: iteration %.0f; %.0f since HELD BACK, for %s: %s",
             rt_json_number(published, "in_force"), held,
             as(RT_FORM_AGE, rt_json_number(published, "held_s")).text,
             rt_json_text_of(published, "why"));
    else
        line(s, "published: iteration %.0f", rt_json_number(published, "in_force"));
}

void cli_top_draw(const cJSON *status, const char *source, uint32_t row_max, rt_page *text)
{
    screen s = {text, row_max};
    draw_run(&s, status, source);
    draw_lag(&s, rt_json_member(status, "lag"));
    draw_standby(&s, rt_json_member(status, "standby"));
    draw_published(&s, rt_json_member(status, "published"));
    draw_trouble(&s, status);
    draw_workers(&s, status);
    draw_shards(&s, status);
    draw_slices(&s, status);
    draw_columns(&s, status);
}
