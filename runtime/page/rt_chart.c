#include "runtime/page/rt_chart.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define WIDTH 640.0
#define HEIGHT 220.0
#define LEFT 58.0
#define RIGHT 14.0
#define TOP 14.0
#define BOTTOM 24.0
#define UNIT_WIDTH 116.0 // of an axis, and half a label beside it, in the letters of a phone
#define BAR_HEIGHT 22.0
#define BAR_LEFT 160.0
#define BAR_RIGHT 80.0
#define TICKS_MAX 12

typedef struct {
    double low, high, step;
} axis;

// 1, 2, 5 or 10.
static double round_digit(double digit)
{
    if (digit < 1.5)
        return 1;
    if (digit < 3.5)
        return 2;
    if (digit < 7.5)
        return 5;
    return 10;
}

// Round numbers around low and high, about five.
static axis axis_of(double low, double high)
{
    if (!(high > low))
        high = low + fmax(fabs(low) * 0.1, 1e-3);
    const double rough = (high - low) / 5, power = pow(10, floor(log10(rough)));
    const double step = round_digit(rough / power) * power;
    return (axis){floor(low / step + 1e-9) * step, ceil(high / step - 1e-9) * step, step};
}

static double x_at(const axis *x, double value)
{
    return LEFT + (value - x->low) / (x->high - x->low) * (WIDTH - LEFT - RIGHT);
}

static double y_at(const axis *y, double value)
{
    return HEIGHT - BOTTOM - (value - y->low) / (y->high - y->low) * (HEIGHT - TOP - BOTTOM);
}

static void draw_y(rt_page *page, const axis *y)
{
    char text[32];
    for (int i = 0; i <= TICKS_MAX; i++) {
        const double value = y->low + i * y->step;
        if (value > y->high + y->step / 2)
            break;
        rt_page_add(page, "<path class=\"grid\" d=\"M%.0f %.1fH%.0f\"/>", LEFT, y_at(y, value),
                    WIDTH - RIGHT);
        const double shown = fabs(value) < y->step * 1e-6 ? 0 : value;
        rt_page_add(page, "<text x=\"%.0f\" y=\"%.1f\" class=\"end\">%s</text>\n", LEFT - 6,
                    y_at(y, value) + 4, rt_page_number(shown, text));
    }
}

static void draw_x(rt_page *page, const axis *x, const char *unit)
{
    char text[32];
    for (int i = 0; i <= TICKS_MAX; i++) {
        const double value = x->low + i * x->step;
        if (x_at(x, value) > WIDTH - RIGHT - UNIT_WIDTH && i > 0)
            break;
        rt_page_add(page, "<text x=\"%.1f\" y=\"%.0f\" class=\"middle\">%s</text>", x_at(x, value),
                    HEIGHT - BOTTOM + 16, rt_page_number(value, text));
    }
    rt_page_add(page, "<text x=\"%.0f\" y=\"%.0f\" class=\"end\">%s</text>\n", WIDTH - RIGHT,
                HEIGHT - BOTTOM + 16, unit);
}

static void draw_line(rt_page *page, const rt_chart_line *line, const double *at, double unit,
                      uint32_t number, const axis *x, const axis *y)
{
    bool joined = false;
    const char *dashes = number >= RT_CHART_COLOURS ? " dashed" : "";
    rt_page_add(page, "<path class=\"line s%u%s\" d=\"", number % RT_CHART_COLOURS, dashes);
    for (uint32_t i = 0; i < line->count; i++) {
        const bool there = isfinite(line->y[i]);
        const char command = joined ? 'L' : 'M';
        if (there)
            rt_page_add(page, "%c%.1f %.1f", command, x_at(x, at[i] / unit), y_at(y, line->y[i]));
        if (there && !joined && (i + 1 == line->count || !isfinite(line->y[i + 1])))
            rt_page_add(page, "h.1"); // a point alone is seen too
        joined = there;
    }
    rt_page_add(page, "\"><title>");
    rt_page_text(page, line->name);
    rt_page_add(page, "</title></path>\n");
}

static void legend(rt_page *page, const char *kind, uint32_t number, bool dashed, const char *name)
{
    const char *look = dashed ? " hollow" : "";
    rt_page_add(page, "<span><i class=\"%s%u%s\"></i>", kind, number, look);
    rt_page_text(page, name);
    rt_page_add(page, "</span>\n");
}

// What a time is counted in, so that an axis has round numbers.
static double time_unit(double seconds, const char **name_p)
{
    static const struct {
        double least, unit;
        const char *name;
    } units[] = {{2 * 86400.0, 86400, "days"}, {2 * 3600.0, 3600, "hours"}, {120, 60, "minutes"}};
    for (size_t i = 0; i < RT_COUNT_OF(units); i++) {
        *name_p = units[i].name;
        if (seconds >= units[i].least)
            return units[i].unit;
    }
    *name_p = "seconds";
    return 1;
}

// All lines over iterations, or over times.
static void draw_over(rt_page *page, bool by_time, const rt_chart_line *lines, uint32_t line_count,
                      const axis *y)
{
    const char *name = "iteration";
    double last = -INFINITY, first = INFINITY, unit = 1;
    for (uint32_t k = 0; k < line_count; k++) {
        const double *at = by_time ? lines[k].times_s : lines[k].iterations;
        for (uint32_t i = 0; i < lines[k].count; i++) {
            if (!isfinite(lines[k].y[i]))
                continue;
            first = fmin(first, at[i]);
            last = fmax(last, at[i]);
        }
    }
    if (by_time)
        unit = time_unit(last, &name);
    axis x = axis_of(by_time ? 0 : fmin(first - 1, 0), last / unit);
    x.high = fmax(last / unit, x.low + 1e-3); // no room for iterations that never were
    rt_page_add(page, "<g class=\"%s\">\n", by_time ? "by-time" : "by-iteration");
    draw_x(page, &x, name);
    for (uint32_t k = 0; k < line_count; k++)
        draw_line(page, &lines[k], by_time ? lines[k].times_s : lines[k].iterations, unit, k, &x,
                  y);
    rt_page_add(page, "</g>\n");
}

void rt_chart_lines(rt_page *page, bool from_zero, const rt_chart_line *lines, uint32_t line_count)
{
    double low = INFINITY, high = -INFINITY;
    if (from_zero)
        low = 0;
    for (uint32_t k = 0; k < line_count; k++) {
        for (uint32_t i = 0; i < lines[k].count; i++) {
            if (!isfinite(lines[k].y[i]))
                continue;
            low = fmin(low, lines[k].y[i]);
            high = fmax(high, lines[k].y[i]);
        }
    }
    if (!isfinite(high)) {
        rt_page_add(page, "<p class=\"note\">no values</p>\n");
        return;
    }
    const axis y = axis_of(low, high);
    rt_page_add(page, "<svg viewBox=\"0 0 %.0f %.0f\" role=\"img\">\n", WIDTH, HEIGHT);
    draw_y(page, &y);
    draw_over(page, true, lines, line_count, &y);
    draw_over(page, false, lines, line_count, &y);
    rt_page_add(page, "</svg>\n");
    if (line_count == 1) // the title says it
        return;
    rt_page_add(page, "<p class=\"legend\">");
    for (uint32_t k = 0; k < line_count; k++)
        legend(page, "s", k % RT_CHART_COLOURS, k >= RT_CHART_COLOURS, lines[k].name);
    rt_page_add(page, "</p>\n");
}

// The longest of the bars, 0 without any.
static double longest(const rt_chart_bar *bars, uint32_t bar_count, uint32_t part_count)
{
    double all = 0;
    for (uint32_t i = 0; i < bar_count; i++) {
        double sum = 0;
        for (uint32_t k = 0; k < part_count; k++)
            sum += bars[i].parts[k];
        all = fmax(all, sum);
    }
    return all;
}

static void draw_bar(rt_page *page, const rt_chart_bar *bar, double y, double scale,
                     const char *const *part_names, uint32_t part_count)
{
    char text[32];
    double sum = 0;
    rt_page_add(page, "<text x=\"%.0f\" y=\"%.1f\" class=\"end\">", BAR_LEFT - 6, y + 15);
    rt_page_text(page, bar->name);
    rt_page_add(page, "</text>");
    for (uint32_t k = 0; k < part_count; k++) {
        if (!(bar->parts[k] > 0))
            continue;
        rt_page_add(page,
                    "<rect class=\"k%u\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.0f\">"
                    "<title>%s: %s</title></rect>",
                    k, BAR_LEFT + sum * scale, y, bar->parts[k] * scale, BAR_HEIGHT - 3,
                    part_names[k], rt_page_number(bar->parts[k], text));
        sum += bar->parts[k];
    }
    rt_page_add(page, "<text x=\"%.1f\" y=\"%.1f\">%s</text>\n", BAR_LEFT + sum * scale + 6, y + 15,
                rt_page_number(sum, text));
}

void rt_chart_bars(rt_page *page, const rt_chart_bar *bars, uint32_t bar_count,
                   const char *const *part_names, uint32_t part_count)
{
    const double most = longest(bars, bar_count, part_count);
    const double height = BAR_HEIGHT * bar_count + 8;
    if (!(most > 0)) {
        rt_page_add(page, "<p class=\"note\">no values</p>\n");
        return;
    }
    rt_page_add(page, "<svg viewBox=\"0 0 %.0f %.0f\" role=\"img\">\n", WIDTH, height);
    for (uint32_t i = 0; i < bar_count; i++)
        draw_bar(page, &bars[i], 4 + BAR_HEIGHT * i, (WIDTH - BAR_LEFT - BAR_RIGHT) / most,
                 part_names, part_count);
    rt_page_add(page, "</svg>\n<p class=\"legend\">");
    for (uint32_t k = 0; k < part_count; k++) {
        bool used = false;
        for (uint32_t i = 0; i < bar_count; i++)
            used |= bars[i].parts[k] > 0;
        if (used)
            legend(page, "k", k, false, part_names[k]);
    }
    rt_page_add(page, "</p>\n");
}

double *rt_bars_add(rt_bars *bars, uint32_t worker, const char *way)
{
    rt_assert(bars->count < RT_BARS_MAX);
    const uint32_t at = bars->count++;
    snprintf(bars->names[at], sizeof bars->names[at], "worker %" PRIu32 "%s", worker, way);
    bars->bars[at] = (rt_chart_bar){bars->names[at], bars->parts[at]};
    return bars->parts[at];
}

void rt_bars_draw(rt_page *page, rt_bars *bars, const char *title, const char *unit,
                  const char *const *part_names, uint32_t part_count)
{
    rt_assert(part_count <= RT_BAR_PARTS_MAX);
    rt_page_add(page, "<section><h3>%s <small>%s</small></h3>\n", title, unit);
    rt_chart_bars(page, bars->bars, bars->count, part_names, part_count);
    rt_page_add(page, "</section>\n");
    bars->count = 0;
}
