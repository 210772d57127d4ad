// `lanyard report`: what runs with --out wrote, as one HTML file that needs nothing else.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "runtime/page/rt_chart.h"
#include "cli/cli_run.h"
#include "runtime/files/rt_file.h"

#define RUNS_MAX RT_CHART_LINES_MAX
#define BIT 8e-6 // Mbit per byte

typedef struct {
    cli_run runs[RUNS_MAX];
    uint32_t run_count;
    double x[RUNS_MAX][CLI_RUN_POINTS], y[RUNS_MAX][CLI_RUN_POINTS]; // of the chart in progress
    rt_page page;
} report;

// ---- comparison ------------------------------------------------------------------------------

static void cell(rt_page *page, double value)
{
    char text[32];
    rt_page_add(page, "<td>%s</td>", rt_page_number(value, text));
}

static void cell_fixed(rt_page *page, double value, int digits)
{
    if (isfinite(value))
        rt_page_add(page, "<td>%.*f</td>", digits, value);
    else
        rt_page_add(page, "<td>-</td>");
}

// Over all of a run: what its summary says, or, without one, the mean of its iterations.
static void cell_whole(rt_page *page, const cli_run *run, double of_summary, cli_run_series series)
{
    if (run->has_summary)
        cell_fixed(page, of_summary, 4);
    else
        cell_fixed(page, rt_mean_of(&run->all[series]), 4);
}

static double per_second(const cli_run *run)
{
    return 1e3 / rt_mean_of(&run->all[CLI_RUN_MS]);
}

// Of runs, of which others may have a label of 0 and 1.
static bool has_accuracy(const report *r)
{
    for (uint32_t i = 0; i < r->run_count; i++)
        if (r->runs[i].all[CLI_RUN_ACCURACY].count)
            return true;
    return false;
}

static void write_comparison(report *r)
{
    rt_page *page = &r->page;
    const bool of_classes = has_accuracy(r);
    const char *accuracy = of_classes ? "<th>accuracy</th>" : "";
    rt_page_add(page,
                "<div class=\"table\"><table>\n<tr><th>run</th><th>iterations</th>"
                "<th>iterations/s</th><th>of the first</th><th>samples/s</th>"
                "<th>ms, measured</th><th>ms, predicted</th><th>cost, rows</th>"
                "<th>hits</th><th>decision, ms</th><th>log loss</th><th>AUC</th>"
                "%s<th>last fifth: log loss</th><th>AUC</th>%s<th>stale reads</th></tr>\n",
                accuracy, accuracy);
    for (uint32_t i = 0; i < r->run_count; i++) {
        const cli_run *run = &r->runs[i];
        const char *unfinished = run->interrupted ? " (unfinished)" : "";
        rt_page_add(page, "<tr><td>");
        rt_page_text(page, run->directory);
        rt_page_add(page, "%s</td><td>%" PRIu64 "</td>", unfinished,
                    run->iterations - rt_min_u64(run->again, run->iterations));
        cell(page, per_second(run));
        rt_page_add(page, "<td>%.2fx</td>", per_second(run) / per_second(&r->runs[0]));
        cell(page, per_second(run) * rt_mean_of(&run->all[CLI_RUN_SAMPLES]));
        cell(page, rt_mean_of(&run->all[CLI_RUN_MS]));
        cell(page, rt_mean_of(&run->all[CLI_RUN_PREDICTED_MS]));
        cell(page, rt_mean_of(&run->all[CLI_RUN_COST]));
        cell_fixed(page, rt_mean_of(&run->all[CLI_RUN_HITS]), 3);
        cell(page, rt_mean_of(&run->all[CLI_RUN_DECISION_MS]));
        cell_whole(page, run, run->log_loss, CLI_RUN_LOSS);
        cell_whole(page, run, run->auc, CLI_RUN_AUC);
        if (of_classes)
            cell_whole(page, run, run->accuracy, CLI_RUN_ACCURACY);
        cell_fixed(page, run->log_loss_last_fifth, 4);
        cell_fixed(page, run->auc_last_fifth, 4);
        if (of_classes)
            cell_fixed(page, run->accuracy_last_fifth, 4);
        cell(page, run->stale_reads);
        rt_page_add(page, "</tr>\n");
    }
    rt_page_add(page, "</table></div>\n");
}

// Of runs whose samples have several labels.
static void write_labels(report *r)
{
    rt_page *page = &r->page;
    uint32_t rows = 0;
    for (uint32_t i = 0; i < r->run_count; i++)
        rows += r->runs[i].label_count;
    if (rows == 0)
        return;
    rt_page_add(page, "<div class=\"table\"><table>\n<tr><th>run</th><th>label</th>"
                      "<th>log loss</th><th>AUC</th><th>calibration</th>"
                      "<th>last fifth: log loss</th><th>AUC</th></tr>\n");
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
        cell_fixed(page, label->log_loss, 4);
        cell_fixed(page, label->auc, 4);
        cell_fixed(page, label->calibration, 3);
        cell_fixed(page, label->log_loss_last_fifth, 4);
        cell_fixed(page, label->auc_last_fifth, 4);
        rt_page_add(page, "</tr>\n");
    }
    rt_page_add(page, "</table></div>\n");
}

// ---- over time -------------------------------------------------------------------------------

static double identity(double value)
{
    return value;
}

static double rate_of_ms(double ms)
{
    return ms > 0 ? 1e3 / ms : NAN;
}

static double percent(double share)
{
    return 100 * share;
}

static const struct {
    const char *title, *unit;
    cli_run_series series;
    bool from_zero;
    double (*convert)(double);
} over_time[] = {
    {"Speed", "iterations/s", CLI_RUN_MS, true, rate_of_ms},
    {"Transmission cost", "rows on the fastest link, per iteration", CLI_RUN_COST, true, identity},
    {"Predicted time of an iteration", "ms", CLI_RUN_PREDICTED_MS, true, identity},
    {"Cache hits", "% of look-ups", CLI_RUN_HITS, true, percent},
    {"Log loss of the predictions made before training", "nats", CLI_RUN_LOSS, false, identity},
    {"AUC of the predictions made before training", "", CLI_RUN_AUC, false, identity},
    {"Accuracy of the predictions made before training", "", CLI_RUN_ACCURACY, false, identity},
    {"Time of a decision", "ms", CLI_RUN_DECISION_MS, true, identity},
    {"alpha", "share of samples placed exactly", CLI_RUN_ALPHA, true, identity},
};

static void write_over_time(report *r)
{
    rt_page *page = &r->page;
    rt_page_add(page, "<h2>Over time</h2>\n<div class=\"charts\">\n");
    for (size_t c = 0; c < RT_COUNT_OF(over_time); c++) {
        if (over_time[c].series == CLI_RUN_ACCURACY && !has_accuracy(r))
            continue;
        rt_chart_line lines[RUNS_MAX];
        for (uint32_t i = 0; i < r->run_count; i++) {
            const cli_run *run = &r->runs[i];
            for (uint32_t p = 0; p < run->course.count; p++) {
                const double mean = rt_mean_of(&run->course.points[p].values[over_time[c].series]);
                r->x[i][p] = run->course.points[p].at;
                r->y[i][p] = NAN;
                if (isfinite(mean))
                    r->y[i][p] = over_time[c].convert(mean);
            }
            lines[i] = (rt_chart_line){run->directory, r->x[i], r->y[i], run->course.count};
        }
        rt_page_add(page, "<section><h3>%s <small>%s</small></h3>\n", over_time[c].title,
                    over_time[c].unit);
        rt_chart_lines(page, over_time[c].from_zero, lines, r->run_count);
        rt_page_add(page, "</section>\n");
    }
    rt_page_add(page, "</div>\n");
}

// ---- by kind and worker ----------------------------------------------------------------------

#define XX(name, title) title,
static const char *const kind_names[CLI_RUN_OPS] = {RT_COUNTS_MAP(XX, RT_COUNTS_NONE)};
static const char *const time_names[CLI_RUN_TIMES] = {RT_TIMES_MAP(XX)};
#undef XX
static const char *const byte_names[] = {"rows and requests", "dense weights"};

static void write_kinds(report *r)
{
    static double parts[RUNS_MAX][CLI_RUN_OPS];
    rt_chart_bar bars[RUNS_MAX];
    char names[RUNS_MAX][16];
    for (uint32_t i = 0; i < r->run_count; i++) {
        for (uint32_t k = 0; k < CLI_RUN_OPS; k++)
            parts[i][k] = r->runs[i].ops[k] / (double)r->runs[i].iterations;
        snprintf(names[i], sizeof names[i], "run %" PRIu32, i + 1);
        bars[i] = (rt_chart_bar){names[i], parts[i]};
    }
    rt_page_add(&r->page, "<h2>By kind</h2>\n<div class=\"charts\">\n"
                          "<section><h3>Rows moved per iteration <small>rows</small></h3>\n");
    rt_chart_bars(&r->page, bars, r->run_count, kind_names, CLI_RUN_OPS);
    rt_page_add(&r->page, "</section>\n</div>\n");
}

_Static_assert(CLI_RUN_OPS <= RT_BAR_PARTS_MAX && CLI_RUN_TIMES <= RT_BAR_PARTS_MAX,
               "bars have room");

// Of a first iteration, and of one after a restart, no time is known: all are taken to be like the
// others.
static void write_links(report *r, const cli_run *run, rt_bars *bars)
{
    const double count = (double)run->iterations;
    const double seconds = run->seconds * count / (double)run->all[CLI_RUN_MS].count;
    for (uint32_t j = 0; j < run->worker_count && seconds > 0; j++) {
        const double rows[] = {run->workers[j].up, run->workers[j].down};
        for (uint32_t way = 0; way < 2; way++) {
            double *parts = rt_bars_add(bars, j, way ? " down" : " up");
            parts[0] = rows[way] / seconds * BIT;
            parts[1] = run->dense_bytes * count / seconds * BIT;
        }
    }
    rt_bars_draw(&r->page, bars, "Use of the links", "Mbit/s, mean", byte_names, 2);
}

static void write_workers(report *r, const cli_run *run, rt_bars *bars)
{
    rt_page_add(&r->page, "<div class=\"charts\">\n");
    write_links(r, run, bars);
    for (uint32_t j = 0; j < run->worker_count; j++) {
        double *parts = rt_bars_add(bars, j, "");
        for (uint32_t k = 0; k < CLI_RUN_TIMES; k++)
            parts[k] = run->workers[j].times[k] / (double)run->iterations;
    }
    rt_bars_draw(&r->page, bars, "Where an iteration's time goes", "ms", time_names, CLI_RUN_TIMES);
    for (uint32_t j = 0; j < run->worker_count && run->has_worker_ops; j++)
        memcpy(rt_bars_add(bars, j, ""), run->workers[j].ops, sizeof run->workers[j].ops);
    if (run->has_worker_ops)
        rt_bars_draw(&r->page, bars, "Rows moved per iteration", "rows", kind_names, CLI_RUN_OPS);
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
        if (run->course.stride > 1)
            rt_page_add(&r->page,
                        "<p class=\"note\">Every point of its lines is the mean of %" PRIu64
                        " iterations.</p>\n",
                        run->course.stride);
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
    write_over_time(r);
    write_kinds(r);
    rt_status status = write_each(r);
    rt_page_add(page, "</body>\n</html>\n");
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
