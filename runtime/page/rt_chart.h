// rt_chart - charts of a report as SVG: lines over time or iterations, stacked bars.
//
// Colours are classes of the page (s0.. for runs, k0.. for kinds), so that it can be light or dark.
#ifndef RT_CHART_H
#define RT_CHART_H

#include "runtime/page/rt_page.h"

#define RT_CHART_COLOURS 8u
#define RT_CHART_LINES_MAX 16u // in one chart: colours, then the same colours dashed

typedef struct {
    const char *name; // from outside
    const double *iterations, *times_s, *y;
    uint32_t count; // points; those with y = NAN are gaps
} rt_chart_line;

// With both axes: rt_page_begin_main has the choice. From 0, or from about the least value with from_zero false.
void rt_chart_lines(rt_page *page, bool from_zero, const rt_chart_line *lines, uint32_t line_count);

typedef struct {
    const char *name; // from outside
    const double *parts;
} rt_chart_bar;

// One bar per line of text, all in the scale of the longest. part_names: one per colour.
void rt_chart_bars(rt_page *page, const rt_chart_bar *bars, uint32_t bar_count,
                   const char *const *part_names, uint32_t part_count);

// Bars that are added one by one; zero-initialised.
#define RT_BARS_MAX (2 * RT_WORKERS_MAX)
#define RT_BAR_PARTS_MAX 8u
typedef struct {
    rt_chart_bar bars[RT_BARS_MAX];
    char names[RT_BARS_MAX][32];
    double parts[RT_BARS_MAX][RT_BAR_PARTS_MAX];
    uint32_t count;
} rt_bars;

// One more, of a worker; way: " up", or "". Returns its parts, to be filled in.
double *rt_bars_add(rt_bars *bars, uint32_t worker, const char *way);

// A section with a title, and its chart; then there are no bars again.
void rt_bars_draw(rt_page *page, rt_bars *bars, const char *title, const char *unit,
                  const char *const *part_names, uint32_t part_count);

#endif
