#include "cli/cli_run.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

static rt_status read_metrics(cli_run *run, const char *path, FILE *file, rt_error *error)
{
    rt_view_lines lines = {0};
    const rt_status status = rt_view_read(path, file, &run->view, &lines, error);
    if (lines.bad)
        note(run,
             "%s: %" PRIu64 " of %" PRIu64 " lines are damaged or cut short (first: line %" PRIu64
             ") and are left out",
             path, lines.bad, lines.count, lines.first_bad);
    return status;
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
        label->log_loss = rt_json_number(one, "logloss");
        label->auc = rt_json_number(one, "auc");
        label->calibration = rt_json_number(one, "calibration");
        label->log_loss_last_fifth = rt_json_number(one, "logloss_last_fifth");
        label->auc_last_fifth = rt_json_number(one, "auc_last_fifth");
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

static rt_status read_summary(cli_run *run, const char *path, FILE *file, rt_error *error)
{
    char *text = rt_alloc(CLI_RUN_SUMMARY_MAX, 1);
    if (!text)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    text[fread(text, 1, CLI_RUN_SUMMARY_MAX - 1, file)] = '\0';
    cJSON *json = cJSON_ParseWithOpts(text, NULL, true);
    if (cJSON_IsObject(json))
        take_summary(run, json);
    else
        note(run, "%s: is no JSON object and is left out", path);
    cJSON_Delete(json);
    rt_free(text);
    return RT_OK;
}

// ---- both ------------------------------------------------------------------------------------

// *found: the file is there.
static rt_status read_one(cli_run *run, const char *name, bool *found,
                          rt_status (*take)(cli_run *, const char *, FILE *, rt_error *),
                          rt_error *error)
{
    char path[RT_PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/%s", run->directory, name);
    FILE *file = fopen(path, "r");
    *found = file != NULL;
    if (!file && (errno == ENOENT || errno == ENOTDIR)) {
        note(run, "%s is not there", path);
        return RT_OK;
    }
    if (!file)
        return rt_fail(error, RT_IO, "%s: %s", path, strerror(errno));
    rt_status status = take(run, path, file, error);
    fclose(file);
    return status;
}

// What was put aside (metrics.bytes_max), then what followed.
static rt_status read_all_metrics(cli_run *run, bool *found, rt_error *error)
{
    char older[RT_PATH_MAX + 32];
    rt_status status = RT_OK;
    snprintf(older, sizeof older, "%s/metrics.jsonl.1", run->directory);
    if (rt_view_init(&run->view, CLI_RUN_POINTS))
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    if (access(older, F_OK) == 0)
        status = read_one(run, "metrics.jsonl.1", found, read_metrics, error);
    if (status)
        return status;
    return read_one(run, "metrics.jsonl", found, read_metrics, error);
}

static rt_status load(cli_run *run, rt_error *error)
{
    bool metrics = false, summary = false;
    rt_status status = read_all_metrics(run, &metrics, error);
    if (status)
        return status;
    status = read_one(run, "summary.json", &summary, read_summary, error);
    if (status)
        return status;
    if (!metrics)
        return rt_fail(error, RT_NOT_FOUND, "%s: no metrics.jsonl: is this what --out named?",
                       run->directory);
    if (!(run->view.iterations > 0))
        return rt_fail(error, RT_DATA, "%s/metrics.jsonl: no iteration is in it", run->directory);
    if (!summary)
        run->interrupted = true;
    return RT_OK;
}

rt_status cli_run_load(const char *directory, cli_run *run, rt_error *error)
{
    *run = (cli_run){.directory = directory};
    if (strlen(directory) >= RT_PATH_MAX)
        return rt_fail(error, RT_LIMIT, "the path of a run has more than %d bytes",
                       RT_PATH_MAX - 1);
    const rt_status status = load(run, error);
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
