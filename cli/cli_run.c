#include "cli/cli_run.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "runtime/rt_json_read.h"
#include "runtime/watch/rt_view_tail.h"

__attribute__((format(printf, 2, 3))) static void note(cli_run *run, const char *format, ...)
{
    va_list arguments;
    if (run->note_count == RT_COUNT_OF(run->notes))
        return;
    va_start(arguments, format);
    vsnprintf(run->notes[run->note_count++], sizeof run->notes[0], format, arguments);
    va_end(arguments);
}

static bool take_record(void *view, const char *line)
{
    return rt_view_take(view, line, NAN);
}

static rt_status read_metrics(cli_run *run, rt_error *error)
{
    rt_view_lines lines[2];
    if (rt_view_init(&run->view, CLI_RUN_POINTS))
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    const rt_status status =
        rt_view_read_run(run->directory, take_record, &run->view, lines, error);
    if (status)
        return status;
    for (uint32_t i = 0; i < 2; i++)
        if (lines[i].bad)
            note(run,
                 "%s: %" PRIu64 " of %" PRIu64
                 " lines are damaged or cut short (first: line %" PRIu64 ") and are left out",
                 lines[i].path, lines[i].bad, lines[i].count, lines[i].first_bad);
    if (!lines[1].is_there)
        note(run, "%s is not there", lines[1].path);
    if (!(run->view.iterations > 0))
        return rt_fail(error, RT_DATA, "%s/metrics.jsonl: no iteration is in it", run->directory);
    return RT_OK;
}

// ---- summary ---------------------------------------------------------------------------------

static void take_labels(cli_run *run, const cJSON *labels)
{
    const cJSON *one;
    cJSON_ArrayForEach(one, labels)
    {
        if (run->label_count == RT_LABELS_MAX || !one->string)
            return;
        cli_run_label *label = &run->labels[run->label_count++];
        snprintf(label->name, sizeof label->name, "%s", one->string);
        rt_metric_take_all(RT_SET_LABEL, "summary", one, &label->log_loss, NULL);
    }
}

static void take_summary(cli_run *run, const cJSON *json)
{
    const cJSON *one;
    rt_view_take_summary(&run->view, json);
    run->has_summary = true;
    run->interrupted = cJSON_IsTrue(rt_json_member(json, "interrupted"));
    take_labels(run, rt_json_member(json, "labels"));
    run->dense_bytes = rt_json_number_or_0(json, "dense_bytes");
    cJSON_ArrayForEach(one, rt_json_member(json, "ops_by_worker"))
    {
        if (run->worker_count == RT_WORKERS_MAX)
            break;
        for (uint32_t k = 0; k < RT_VIEW_OPS; k++)
            run->ops[run->worker_count][k] = rt_json_number_or_0(one, rt_view_op_names[k]);
        run->worker_count++;
    }
}

// Members were told of, and not that it has ended. A summary is then of an earlier process.
static bool goes_on(const rt_view *view)
{
    return view->shard_count > 0 && !view->has_ended;
}

// Of a run that has not ended there is none.
static rt_status read_summary(cli_run *run, rt_error *error)
{
    char path[RT_PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/summary.json", run->directory);
    if (goes_on(&run->view)) {
        run->interrupted = true;
        note(run, "the run has not ended: this is what it has done so far");
        return RT_OK;
    }
    FILE *file = fopen(path, "r");
    run->interrupted = !file;
    if (!file && errno == ENOENT) {
        note(run, "%s is not there", path);
        return RT_OK;
    }
    if (!file)
        return rt_fail(error, RT_IO, "%s: %s", path, strerror(errno));
    char *text = rt_alloc(CLI_RUN_SUMMARY_MAX, 1);
    if (text)
        text[fread(text, 1, CLI_RUN_SUMMARY_MAX - 1, file)] = '\0';
    fclose(file);
    if (!text)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    cJSON *json = cJSON_ParseWithOpts(text, NULL, true);
    if (cJSON_IsObject(json))
        take_summary(run, json);
    else
        note(run, "%s: is no JSON object and is left out", path);
    cJSON_Delete(json);
    rt_free(text);
    return RT_OK;
}

rt_status cli_run_load(const char *directory, cli_run *run, rt_error *error)
{
    *run = (cli_run){.directory = directory};
    rt_status status = read_metrics(run, error);
    if (!status)
        status = read_summary(run, error);
    if (status)
        cli_run_fini(run);
    return status;
}

void cli_run_fini(cli_run *run)
{
    rt_view_fini(&run->view);
}

double cli_run_value(const cli_run *run, uint32_t metric)
{
    const rt_metric *of = rt_metric_of_run(metric);
    if (of->from && strcmp(of->from, "summary") == 0) {
        if (run->has_summary || !of->mean_of)
            return run->view.values[metric];
        metric = of->mean_of;
    }
    return rt_mean_of(&run->view.means[metric]);
}
