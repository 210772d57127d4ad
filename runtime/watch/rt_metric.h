// rt_metric - the numbers that a run shows of itself: what each is, how it is read, where it is shown.
//
// They stand in one table, a metric a line (rt_metric_map.h). A set is a part of it: the metrics of
// the run, of each shard, ... The values of a set are an array of doubles in the order of its lines,
// which structs made by RT_METRIC_MEMBER name. NAN: not known.
#ifndef RT_METRIC_H
#define RT_METRIC_H

#include <cjson/cJSON.h>

#include "runtime/rt_base.h"
#include "runtime/watch/rt_metric_map.h"

// How a value is written for people.
typedef enum {
    RT_FORM_SHORT, // four digits at most, with k, M, G
    RT_FORM_WHOLE,
    RT_FORM_DIGITS_1,
    RT_FORM_DIGITS_3,
    RT_FORM_DIGITS_4,
    RT_FORM_SHARE,   // in percent, one digit
    RT_FORM_PERCENT, // the same, without the digit from 10% on
    RT_FORM_AGE
} rt_form;

// What a value is after a record that has the member.
typedef enum {
    RT_TAKE_LAST,  // what it says; NAN after one that lacks it
    RT_TAKE_KEPT,  // what the last one said that has it
    RT_TAKE_SUM,   // the sum of all
    RT_TAKE_COUNT, // the sum of what processes count, each from 0
} rt_take;

typedef enum { RT_SHOWN_ALWAYS, RT_SHOWN_IF_KNOWN, RT_SHOWN_IF_ANY } rt_printable_when;

#define RT_CHART_PAGE 1u
#define RT_CHART_REPORT 2u

typedef struct {
    const char *name, *unit, *help;
    const char *from, *at; // records and member; NULL: rt_view.c works it out
    rt_take take;
    bool is_sparse, is_truth;
    const char *status;
    const char *series, *labels;
    double base_units; // of one unit, for Prometheus; 0: 1
    rt_printable_when tile_when;
    uint32_t mean_of; // another metric of the run, whose mean it is where it is unknown; 0: none
    struct {
        const char *id, *title;
        rt_form form;
    } tile;
    struct {
        uint32_t place; // 10 times the line, and the place in it; 0: nowhere
        const char *text;
        rt_form form;
    } top;
    struct {
        uint32_t place; // from 1; 0: nowhere
        const char *title;
        rt_form form;
    } column;
    struct {
        uint32_t where; // RT_CHART_PAGE, RT_CHART_REPORT
        const char *title, *unit;
        bool from_zero;
        double scale;
    } chart;
    struct {
        const char *title;
        rt_form form;
        double scale;
    } cell;
} rt_metric;

#define RT_METRIC_MEMBER(name, ...) double name;
#define RT_METRIC_ONE(name, ...) +1

// RT_RUN_keys is the place of `keys` among the values of the run; RT_RUN_METRICS how many there are.
#define XX(name, ...) RT_RUN_##name,
enum { RT_METRICS_OF_RUN(XX) RT_RUN_METRICS };
#undef XX

typedef struct {
    const rt_metric *metrics;
    uint32_t count;
} rt_metric_set;

#define XX(SET, set) RT_SET_##SET,
typedef enum { RT_METRIC_SETS(XX) RT_METRIC_SET_COUNT } rt_metric_set_kind;
#undef XX

extern const rt_metric_set rt_metric_sets[RT_METRIC_SET_COUNT];

// Those of the run.
static inline const rt_metric *rt_metric_of_run(uint32_t index)
{
    return &rt_metric_sets[RT_SET_RUN].metrics[index];
}

// Nothing is known yet; sums are 0.
void rt_metric_begin(rt_metric_set_kind set, double *values);

// The values that records of this kind have. told: as many as values, what was counted last; NULL:
// none counts.
void rt_metric_take_all(rt_metric_set_kind set, const char *from, const cJSON *json, double *values,
                        double *told);

// The value for people; "-" where nobody knows it.
const char *rt_form_text(rt_form form, double value, char text[32]);

// Where a value of /status is: its group ("" without one) of `size` bytes, and its own name.
const char *rt_metric_status_name(const rt_metric *metric, char *group, size_t size);

#endif
