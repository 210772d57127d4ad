// `lanyard report`: what runs with --out wrote, as one HTML file that needs nothing else.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "runtime/page/rt_chart.h"
#include "cli/cli_run.h"
#include "runtime/files/rt_file.h"
#include "runtime/watch/rt_view_write.h"

#define RUNS_MAX RT_CHART_LINES_MAX
#define COLUMNS_MAX 32u // of the comparison, by metrics
#define BIT 8e-6        // Mbit per byte

typedef struct {
    cli_run runs[RUNS_MAX];
    uint32_t run_count;
    double x[RUNS_MAX][CLI_RUN_POINTS], times_s[RUNS_MAX][CLI_RUN_POINTS],
        y[RUNS_MAX][CLI_RUN_POINTS]; // of the chart in progress
    rt_page page;
} report;

// ---- comparison ------------------------------------------------------------------------------

static void cell(rt_page *page, rt_form form, double value)
{
    char text[32];
    rt_page_add(page, "<td>%s</td>", rt_form_text(form, value, text));
}

static double per_second(const cli_run *run)
{
    return 1e3 / cli_run_value(run, RT_RUN_passed_ms);
}

// The metric of a column of the table; NULL: none is there, or nobody knows what is left out then.
static const rt_metric *column_at(const report *r, uint32_t place, uint32_t *metric)
{
    for (uint32_t m = 0; m < RT_RUN_METRICS; m++) {
        const rt_metric *of = rt_metric_of_run(m);
        bool is_known = !of->is_sparse;
        for (uint32_t i = 0; i < r->run_count; i++)
            is_known |= !isnan(cli_run_value(&r->runs[i], m));
        *metric = m;
        if (of->column.place == place && is_known)
            return of;
    }
    return NULL;
}

static void write_comparison(report *r)
{
    rt_page *page = &r->page;
    const rt_metric *of;
    uint32_t metric;
    rt_page_add(page, "<div class=\"table\"><table>\n<tr><th>run</th><th>iterations</th>"
                      "<th>iterations/s</th><th>of the first</th><th>samples/s</th>");
    for (uint32_t place = 1; place <= COLUMNS_MAX; place++)
        if ((of = column_at(r, place, &metric)))
            rt_page_add(page, "<th>%s</th>", of->column.title);
    rt_page_add(page, "</tr>\n");
    for (uint32_t i = 0; i < r->run_count; i++) {
        const cli_run *run = &r->runs[i];
        const rt_view *view = &run->view;
        rt_page_add(page, "<tr><td>");
        rt_page_text(page, run->directory);
        rt_page_add(page, "%s</td><td>%.0f</td>", run->interrupted ? " (unfinished)" : "",
                    fmax(view->iterations - view->again, 0));
        cell(page, RT_FORM_SHORT, per_second(run));
        const double ratio = per_second(run) / per_second(&r->runs[0]);
        rt_page_add(page, isfinite(ratio) ? "<td>%.2fx</td>" : "<td></td>", ratio);
        cell(page, RT_FORM_SHORT, per_second(run) * view->samples / view->iterations);
        for (uint32_t place = 1; place <= COLUMNS_MAX; place++)
            if ((of = column_at(r, place, &metric)))
                cell(page, of->column.form, cli_run_value(run, metric));
        rt_page_add(page, "</tr>\n");
    }
    rt_page_add(page, "</table></div>\n");
}

// Of runs whose samples have several labels.
static void write_labels(report *r)
{
    static const rt_metric_set_kind set = RT_SET_LABEL;
    rt_page *page = &r->page;
    uint32_t rows = 0;
    for (uint32_t i = 0; i < r->run_count; i++)
        rows += r->runs[i].label_count;
    if (rows == 0)
        return;
    rt_view_begin_table(page, "run</th><th>label", &set, 1);
    for (uint32_t k = 0; k < r->run_count * RT_LABELS_MAX; k++) {
        const cli_run *run = &r->runs[k / RT_LABELS_MAX];
        const cli_run_label *label = &run->labels[k % RT_LABELS_MAX];
        if (k % RT_LABELS_MAX >= run->label_count)
            continue;
        rt_page_add(page, "<tr><td>");
        rt_page_text(page, run->directory);
        rt_page_add(page, "</td><td>");
        rt_page_text(page, label->name);
        rt_page_add(page, "</td>");
        rt_view_write_cells(page, set, &label->log_loss);
        rt_page_add(page, "</tr>\n");
    }
    rt_page_add(page, "</table></div>\n");
}

// ---- over time -------------------------------------------------------------------------------

static void write_chart(report *r, uint32_t metric)
{
    const rt_metric *of = rt_metric_of_run(metric);
    rt_chart_line lines[RUNS_MAX];
    bool is_known = false;
    for (uint32_t i = 0; i < r->run_count; i++) {
        const rt_view *view = &r->runs[i].view;
        is_known |= rt_view_line(view, metric, r->x[i], r->times_s[i], r->y[i]) &&
                    rt_view_has_chart(view, metric);
        lines[i] = (rt_chart_line){r->runs[i].directory, r->x[i], r->times_s[i], r->y[i],
                                   view->course.count};
    }
    if (!is_known)
        return;
    rt_page_add(&r->page, "<section><h3>%s <small>%s</small></h3>\n", of->chart.title,
                of->chart.unit);
    rt_chart_lines(&r->page, of->chart.from_zero, lines, r->run_count);
    rt_page_add(&r->page, "</section>\n");
}

static void write_over_time(report *r)
{
    rt_page_add(&r->page, "<h2>Over time</h2>\n<div class=\"charts\">\n");
    for (uint32_t m = 0; m < RT_RUN_METRICS; m++)
        if (rt_metric_of_run(m)->chart.where & RT_CHART_REPORT)
            write_chart(r, m);
    rt_page_add(&r->page, "</div>\n");
}

// ---- by kind and worker ----------------------------------------------------------------------

#define XX(name, title) title,
static const char *const kind_names[RT_VIEW_OPS] = {RT_COUNTS_MAP(XX, RT_COUNTS_NONE)};
static const char *const time_names[RT_VIEW_TIMES] = {RT_TIMES_MAP(XX)};
#undef XX
static const char *const byte_names[] = {"rows and requests", "dense weights"};

static void write_kinds(report *r)
{
    static double parts[RUNS_MAX][RT_VIEW_OPS];
    rt_chart_bar bars[RUNS_MAX];
    char names[RUNS_MAX][16];
    for (uint32_t i = 0; i < r->run_count; i++) {
        for (uint32_t k = 0; k < RT_VIEW_OPS; k++)
            parts[i][k] = r->runs[i].view.ops[k] / r->runs[i].view.iterations;
        snprintf(names[i], sizeof names[i], "run %" PRIu32, i + 1);
        bars[i] = (rt_chart_bar){names[i], parts[i]};
    }
    rt_page_add(&r->page, "<h2>By kind</h2>\n<div class=\"charts\">\n"
                          "<section><h3>Rows moved per iteration <small>rows</small></h3>\n");
    rt_chart_bars(&r->page, bars, r->run_count, kind_names, RT_VIEW_OPS);
    rt_page_add(&r->page, "</section>\n</div>\n");
}

_Static_assert(RT_VIEW_OPS <= RT_BAR_PARTS_MAX && RT_VIEW_TIMES <= RT_BAR_PARTS_MAX,
               "bars have room");

// Of a first iteration, and of one after a restart, no time is known: all are taken to be like the
// others.
static void write_links(report *r, const cli_run *run, rt_bars *bars)
{
    const double count = run->view.iterations;
    const double seconds = cli_run_value(run, RT_RUN_passed_ms) * 1e-3 * count;
    for (uint32_t j = 0; j < run->view.worker_most && seconds > 0; j++) {
        for (uint32_t way = 0; way < 2; way++) {
            double *parts = rt_bars_add(bars, j, way ? " down" : " up");
            parts[0] = run->view.workers[j].ways[way].rows / seconds * BIT;
            parts[1] = run->dense_bytes * count / seconds * BIT;
        }
    }
    rt_bars_draw(&r->page, bars, "Use of the links", "Mbit/s, mean", byte_names, 2);
}

static void write_workers(report *r, const cli_run *run, rt_bars *bars)
{
    rt_page_add(&r->page, "<div class=\"charts\">\n");
    write_links(r, run, bars);
    for (uint32_t j = 0; j < run->view.worker_most; j++) {
        double *parts = rt_bars_add(bars, j, "");
        for (uint32_t k = 0; k < RT_VIEW_TIMES; k++)
            parts[k] = 1e3 * run->view.workers[j].time_s[k] / run->view.iterations;
    }
    rt_bars_draw(&r->page, bars, "Where an iteration's time goes", "ms", time_names, RT_VIEW_TIMES);
    for (uint32_t j = 0; j < run->worker_count; j++)
        memcpy(rt_bars_add(bars, j, ""), run->ops[j], sizeof run->ops[j]);
    if (run->worker_count)
        rt_bars_draw(&r->page, bars, "Rows moved per iteration", "rows", kind_names, RT_VIEW_OPS);
    rt_page_add(&r->page, "</div>\n");
}

static rt_status write_each(report *r)
{
    rt_bars *bars = rt_alloc(1, sizeof *bars);
    if (!bars)
        return RT_NO_MEMORY;
    for (uint32_t i = 0; i < r->run_count; i++) {
        const cli_run *run = &r->runs[i];
        rt_page_add(&r->page, "<h2>Run %" PRIu32 ": ", i + 1);
        rt_page_text(&r->page, run->directory);
        rt_page_add(&r->page, "</h2>\n");
        for (uint32_t k = 0; k < run->note_count; k++) {
            rt_page_add(&r->page, "<p class=\"warn\">partial: ");
            rt_page_text(&r->page, run->notes[k]);
            rt_page_add(&r->page, "</p>\n");
        }
        if (run->view.course.stride > 1)
            rt_page_add(&r->page,
                        "<p class=\"note\">Every point of its lines is the mean of %" PRIu64
                        " iterations.</p>\n",
                        run->view.course.stride);
        write_workers(r, run, bars);
    }
    rt_free(bars);
    return RT_OK;
}

// ---- the command -----------------------------------------------------------------------------

static rt_status write_page(report *r)
{
    rt_page *page = &r->page;
    rt_page_head(page, "lanyard report");
    rt_page_add(page,
                "</head>\n<body>\n<h1>lanyard report</h1>\n"
                "<p class=\"note\">%" PRIu32 " run%s</p>\n",
                r->run_count, r->run_count == 1 ? "" : "s");
    write_comparison(r);
    write_labels(r);
    rt_page_begin_main(page);
    write_over_time(r);
    write_kinds(r);
    rt_status status = write_each(r);
    rt_page_add(page, "</main>\n</body>\n</html>\n");
    if (page->failed)
        return RT_NO_MEMORY;
    return status;
}

static rt_status make_report(report *r, const char *const *directories, uint32_t count,
                             const char *out, rt_error *error)
{
    for (; r->run_count < count; r->run_count++) {
        cli_run *run = &r->runs[r->run_count];
        rt_status status = cli_run_load(directories[r->run_count], run, error);
        if (status)
            return status;
        for (uint32_t k = 0; k < run->note_count; k++)
            rt_warn("%s", run->notes[k]);
    }
    if (write_page(r))
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    return rt_file_save_named(out, r->page.text, r->page.size, error);
}

// Any number of directories: not what cli_parse takes.
static bool parse(int argc, char **argv, const char **directories, uint32_t *count,
                  const char **out)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--out") == 0 && i + 1 < argc) {
            *out = argv[++i];
        } else if (strncmp(argv[i], "--", 2) == 0) {
            const bool is_out = strcmp(argv[i], "--out") == 0;
            const char *what = is_out ? "a value is missing after" : "unknown option";
            fprintf(stderr, "lanyard report: %s \"%s\" (see lanyard report --help)\n", what,
                    argv[i]);
            return false;
        } else if (*count == RUNS_MAX) {
            fprintf(stderr, "lanyard report: more than %u RUNs\n", RUNS_MAX);
            return false;
        } else {
            directories[(*count)++] = argv[i];
        }
    }
    if (*count == 0)
        fprintf(stderr, "lanyard report: which RUN? A directory that --out named in a run\n");
    return *count > 0;
}

int cli_report(int argc, char **argv)
{
    const char *directories[RUNS_MAX], *out = "report.html";
    uint32_t count = 0;
    rt_error error = {0};
    if (!parse(argc, argv, directories, &count, &out))
        return CLI_USAGE;
    rt_log_setup(RT_LOG_INFO, "report");
    report *r = rt_alloc(1, sizeof *r);
    if (!r) {
        rt_fail(&error, RT_NO_MEMORY, "out of memory");
        return cli_fail(&error);
    }
    const rt_status status = make_report(r, directories, count, out, &error);
    for (uint32_t i = 0; i < r->run_count; i++)
        cli_run_fini(&r->runs[i]);
    rt_page_fini(&r->page);
    rt_free(r);
    if (status)
        return cli_fail(&error);
    printf("%s\n", out);
    return CLI_OK;
}
