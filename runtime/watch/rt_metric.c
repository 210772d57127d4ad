#include "runtime/watch/rt_metric.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "runtime/page/rt_page.h"
#include "runtime/rt_json_read.h"

#define PATH_MAX_BYTES 64u

// What the lines of rt_metric_map.h are made of.
#define FROM(record, member) .from = record, .at = member
#define SUM .take = RT_TAKE_SUM
#define COUNT .take = RT_TAKE_COUNT
#define KEPT .take = RT_TAKE_KEPT
#define STATUS(member) .status = member
#define TRUTH .is_truth = true
#define SPARSE .is_sparse = true
#define SERIES(text) .series = text
#define SECONDS(text) .series = text, .base_units = 1e-3
#define LABELS(text) .labels = text
#define TILE(id, title, form) .tile = {id, title, RT_FORM_##form}
#define IF_KNOWN .tile_when = RT_SHOWN_IF_KNOWN
#define IF_ANY .tile_when = RT_SHOWN_IF_ANY
#define TOP(place, text, form) .top = {place, text, RT_FORM_##form}
#define COLUMN(place, title, form) .column = {place, title, RT_FORM_##form}
#define OR_MEAN_OF(other) .mean_of = RT_RUN_##other
#define CHART_IN(where, title, unit, from_zero, scale) \
    .chart = {where, title, unit, from_zero, false, scale}
#define CHART(...) CHART_IN(RT_CHART_PAGE | RT_CHART_REPORT, __VA_ARGS__)
#define CHART_OF_PAGE(...) CHART_IN(RT_CHART_PAGE, __VA_ARGS__)
#define CHART_OF_REPORT(...) CHART_IN(RT_CHART_REPORT, __VA_ARGS__)
#define CHART_OF_RATE(title, unit, scale) \
    .chart = {RT_CHART_PAGE | RT_CHART_REPORT, title, unit, true, true, scale}
#define CELL(title, form, scale) .cell = {title, RT_FORM_##form, scale}

#define LINE(metric, unit_text, help_text, ...) \
    {.name = #metric, .unit = unit_text, .help = help_text, __VA_ARGS__},
#define XX(SET, set, of) static const rt_metric of_##set[] = {RT_METRICS_OF_##SET(LINE)};
RT_METRIC_SETS(XX)
#undef XX

#define XX(SET, set, of) {of_##set, RT_COUNT_OF(of_##set), of},
const rt_metric_set rt_metric_sets[RT_METRIC_SET_COUNT] = {RT_METRIC_SETS(XX)};
#undef XX

// ---- reading ---------------------------------------------------------------------------------

void rt_metric_begin(rt_metric_set_kind set, double *values)
{
    for (uint32_t i = 0; i < rt_metric_sets[set].count; i++) {
        const rt_take take = rt_metric_sets[set].metrics[i].take;
        values[i] = take == RT_TAKE_SUM || take == RT_TAKE_COUNT ? 0 : (double)NAN;
    }
}

// A number, or 0 and 1 of false and true; NAN: there is none.
static double read_member(const char *path, const cJSON *json)
{
    char name[PATH_MAX_BYTES];
    while (*path) {
        const size_t length = strcspn(path, ".");
        snprintf(name, sizeof name, "%.*s", (int)length, path);
        json = rt_json_member(json, name);
        path += length + (path[length] == '.');
    }
    if (cJSON_IsBool(json))
        return cJSON_IsTrue(json);
    return rt_json_value(json);
}

void rt_metric_take_all(rt_metric_set_kind set, const char *from, const cJSON *json, double *values,
                        double *told)
{
    for (uint32_t i = 0; i < rt_metric_sets[set].count; i++) {
        const rt_metric *metric = &rt_metric_sets[set].metrics[i];
        if (!metric->from || strcmp(metric->from, from) != 0)
            continue;
        const double now = read_member(metric->at, json);
        if (metric->take == RT_TAKE_LAST) {
            values[i] = now;
        } else if (!isnan(now) && metric->take == RT_TAKE_KEPT) {
            values[i] = now;
        } else if (!isnan(now) && metric->take == RT_TAKE_SUM) {
            values[i] += now;
        } else if (!isnan(now)) {
            rt_assert(told);
            values[i] += now < told[i] ? now : now - told[i]; // less: another process counts
            told[i] = now;
        }
    }
}

// ---- showing ---------------------------------------------------------------------------------

const char *rt_form_text(rt_form form, double value, char text[32])
{
    static const int digits[] = {[RT_FORM_WHOLE] = 0,
                                 [RT_FORM_DIGITS_1] = 1,
                                 [RT_FORM_DIGITS_3] = 3,
                                 [RT_FORM_DIGITS_4] = 4};
    if (form == RT_FORM_SHORT)
        return rt_page_number(value, text);
    if (form == RT_FORM_AGE)
        return rt_page_age(value, text);
    if (!isfinite(value))
        snprintf(text, 32, "-");
    else if (form == RT_FORM_SHARE || form == RT_FORM_PERCENT)
        snprintf(text, 32, "%.*f%%", form == RT_FORM_SHARE || value < 0.0995, 100 * value);
    else
        snprintf(text, 32, "%.*f", digits[form], value);
    return text;
}

const char *rt_metric_status_name(const rt_metric *metric, char *group, size_t size)
{
    const char *dot = strchr(metric->status, '.');
    snprintf(group, size, "%.*s", dot ? (int)(dot - metric->status) : 0, metric->status);
    if (dot)
        return dot + 1;
    return metric->status;
}

// ---- its page --------------------------------------------------------------------------------

// What holds a metric in a list, in records and in /status.
static const char *const lists[RT_METRIC_SET_COUNT][2] = {
    [RT_SET_RUN] = {"", ""},
    [RT_SET_PROCESS] = {"", ""},
    [RT_SET_SHARD] = {"shards[].", "shards[]."},
    [RT_SET_WORKER] = {"", "workers[]."},
    [RT_SET_LINK] = {"", "workers[].up."},
    [RT_SET_COLUMN] = {"columns[].", "columns[]."},
    [RT_SET_SLICE] = {"values[].", "slices[]."}};

static void write_quoted(rt_page *page, const char *before, const char *text)
{
    rt_page_add(page, text ? " `%s%s` |" : " |", before, text);
}

static void write_places(const rt_metric *metric, rt_page *page)
{
    const struct {
        const char *name;
        bool is_there;
    } places[] = {{"tile", metric->tile.title != NULL},
                  {"table", metric->cell.title != NULL},
                  {"chart", (metric->chart.where & RT_CHART_PAGE) != 0},
                  {"`top`", metric->top.place != 0},
                  {"`report`: column", metric->column.place != 0},
                  {"`report`: chart", (metric->chart.where & RT_CHART_REPORT) != 0}};
    const char *comma = " ";
    for (size_t i = 0; i < RT_COUNT_OF(places); i++) {
        if (!places[i].is_there)
            continue;
        rt_page_add(page, "%s%s", comma, places[i].name);
        comma = ", ";
    }
    rt_page_add(page, " |\n");
}

rt_status rt_metric_document(char **markdown_p)
{
    rt_page page = {0};
    for (int set = 0; set < RT_METRIC_SET_COUNT; set++) {
        rt_page_add(&page,
                    "%sOf %s:\n\n| metric | unit | meaning | record | Prometheus | `/status` | "
                    "page, `top`, `report` |\n|---|---|---|---|---|---|---|\n",
                    set ? "\n" : "", rt_metric_sets[set].of);
        for (uint32_t i = 0; i < rt_metric_sets[set].count; i++) {
            const rt_metric *metric = &rt_metric_sets[set].metrics[i];
            char from[PATH_MAX_BYTES] = "";
            if (metric->from)
                snprintf(from, sizeof from, "%s.%s", metric->from, lists[set][0]);
            rt_page_add(&page, "| `%s` | %s | %s |", metric->name, metric->unit, metric->help);
            write_quoted(&page, from, metric->at);
            write_quoted(&page, "", metric->series);
            write_quoted(&page, lists[set][1], metric->status);
            write_places(metric, &page);
        }
    }
    if (page.failed) {
        rt_page_fini(&page);
        return RT_NO_MEMORY;
    }
    *markdown_p = page.text;
    return RT_OK;
}
