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
    .chart = {where, title, unit, from_zero, scale}
#define CHART(...) CHART_IN(RT_CHART_PAGE | RT_CHART_REPORT, __VA_ARGS__)
#define CHART_OF_PAGE(...) CHART_IN(RT_CHART_PAGE, __VA_ARGS__)
#define CHART_OF_REPORT(...) CHART_IN(RT_CHART_REPORT, __VA_ARGS__)
#define CELL(title, form, scale) .cell = {title, RT_FORM_##form, scale}

#define LINE(metric, unit_text, help_text, ...) \
    {.name = #metric, .unit = unit_text, .help = help_text, ##__VA_ARGS__},
#define XX(SET, set) static const rt_metric of_##set[] = {RT_METRICS_OF_##SET(LINE)};
RT_METRIC_SETS(XX)
#undef XX

#define XX(SET, set) {of_##set, RT_COUNT_OF(of_##set)},
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
