#include "cli/cli_run.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/rt_json_read.h"

// As in the files.
#define XX(name, title) #name,
static const char *const op_names[CLI_RUN_OPS] = {RT_COUNTS_MAP(XX, RT_COUNTS_NONE)};
static const char *const time_names[CLI_RUN_TIMES] = {RT_TIMES_MAP(XX)};
#undef XX

__attribute__((format(printf, 2, 3))) static void note(cli_run *run, const char *format, ...)
{
    va_list arguments;
    if (run->note_count == RT_COUNT_OF(run->notes))
        return;
    va_start(arguments, format);
    vsnprintf(run->notes[run->note_count++], sizeof run->notes[0], format, arguments);
    va_end(arguments);
}

// ---- iterations ------------------------------------------------------------------------------

static double number_at(const cJSON *array, int index)
{
    const cJSON *one = cJSON_GetArrayItem(array, index);
    if (!cJSON_IsNumber(one))
        return 0;
    return one->valuedouble;
}

static void add_workers(cli_run *run, const cJSON *json)
{
    const cJSON *up = cJSON_GetObjectItemCaseSensitive(json, "bytes_up");
    const cJSON *down = cJSON_GetObjectItemCaseSensitive(json, "bytes_down");
    const cJSON *times = cJSON_GetObjectItemCaseSensitive(json, "times_ms");
    const int count = cJSON_GetArraySize(times);
    for (int j = 0; j < count && j < (int)RT_WORKERS_MAX; j++) {
        cli_run_worker *worker = &run->workers[j];
        const cJSON *one = cJSON_GetArrayItem(times, j);
        for (uint32_t k = 0; k < CLI_RUN_TIMES; k++)
            worker->times[k] += rt_json_number_or_0(one, time_names[k]);
        worker->up += number_at(up, j);
        worker->down += number_at(down, j);
        run->worker_count = (uint32_t)rt_max_u64(run->worker_count, (uint64_t)j + 1);
    }
}

static void add_iteration(cli_run *run, const cJSON *json)
{
    const cJSON *quality = cJSON_GetObjectItemCaseSensitive(json, "quality");
    const cJSON *ops = cJSON_GetObjectItemCaseSensitive(json, "ops");
    const cJSON *hits = cJSON_GetObjectItemCaseSensitive(json, "hit_ratio");
    const double time_s = rt_json_number(json, "time_s"),
                 iteration = rt_json_number(json, "iteration");
    const bool follows = run->iterations && time_s >= run->last_time_s; // in the same process
    const double values[CLI_RUN_SERIES] = {
        [CLI_RUN_MS] = follows ? (time_s - run->last_time_s) * 1e3 : NAN,
        [CLI_RUN_PREDICTED_MS] = rt_json_number(json, "predicted_ms"),
        [CLI_RUN_COST] = rt_json_number(json, "cost"),
        [CLI_RUN_ALPHA] = rt_json_number(json, "alpha"),
        [CLI_RUN_DECISION_MS] = rt_json_number(json, "decision_ms"),
        [CLI_RUN_HITS] = rt_json_number(hits, "lookups"),
        [CLI_RUN_LOSS] = rt_json_number(quality, "log_loss"),
        [CLI_RUN_AUC] = rt_json_number(quality, "auc"),
        [CLI_RUN_ACCURACY] = rt_json_number(quality, "accuracy"),
        [CLI_RUN_SAMPLES] = rt_json_number(json, "samples"),
    };
    run->last_iteration = isnan(iteration) ? (double)run->iterations + 1 : iteration;
    rt_course_add(&run->course, run->last_iteration, values);
    for (uint32_t k = 0; k < CLI_RUN_SERIES; k++)
        rt_mean_add(&run->all[k], values[k]);
    for (uint32_t k = 0; k < CLI_RUN_OPS; k++)
        run->ops[k] += rt_json_number_or_0(ops, op_names[k]);
    add_workers(run, json);
    if (follows)
        run->seconds += time_s - run->last_time_s;
    run->last_time_s = time_s;
    run->iterations++;
}

// The clock begins anew, and what came after the checkpoint follows again.
static void add_resumed(cli_run *run, double iteration)
{
    run->last_time_s = INFINITY;
    if (run->last_iteration > iteration)
        run->again += (uint64_t)(run->last_iteration - iteration);
}

// Adds a line; false: it is no record.
static bool add_line(cli_run *run, const char *line)
{
    const char *kind;
    cJSON *json = rt_json_record(line, &kind);
    if (!json)
        return false;
    if (strcmp(kind, "iteration") == 0)
        add_iteration(run, json);
    if (strcmp(kind, "resumed") == 0)
        add_resumed(run, rt_json_number_or_0(json, "iteration"));
    cJSON_Delete(json);
    return true;
}

static rt_status read_metrics(cli_run *run, const char *path, FILE *file, rt_error *error)
{
    uint64_t number_of_line = 0, bad_count = 0, bad_first = 0;
    char *line = NULL;
    size_t room = 0;
    ssize_t length;
    while ((length = getline(&line, &room, file)) > 0) {
        number_of_line++;
        const bool is_whole = line[length - 1] == '\n' && strlen(line) == (size_t)length;
        if ((!is_whole || !add_line(run, line)) && bad_count++ == 0)
            bad_first = number_of_line;
    }
    free(line);
    if (ferror(file))
        return rt_fail(error, RT_IO, "%s: %s", path, strerror(errno));
    if (bad_count)
        note(run,
             "%s: %" PRIu64 " of %" PRIu64 " lines are damaged or cut short (first: line %" PRIu64
             ") and are left out",
             path, bad_count, number_of_line, bad_first);
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
        label->log_loss = rt_json_number(one, "logloss");
        label->auc = rt_json_number(one, "auc");
        label->calibration = rt_json_number(one, "calibration");
        label->log_loss_last_fifth = rt_json_number(one, "logloss_last_fifth");
        label->auc_last_fifth = rt_json_number(one, "auc_last_fifth");
    }
}

static void take_summary(cli_run *run, const cJSON *json)
{
    const cJSON *workers = cJSON_GetObjectItemCaseSensitive(json, "ops_by_worker");
    run->has_summary = true;
    run->interrupted = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(json, "interrupted"));
    run->log_loss = rt_json_number(json, "logloss");
    run->auc = rt_json_number(json, "auc");
    run->log_loss_last_fifth = rt_json_number(json, "logloss_last_fifth");
    run->auc_last_fifth = rt_json_number(json, "auc_last_fifth");
    run->accuracy = rt_json_number(json, "accuracy");
    run->accuracy_last_fifth = rt_json_number(json, "accuracy_last_fifth");
    take_labels(run, cJSON_GetObjectItemCaseSensitive(json, "labels"));
    run->stale_reads = rt_json_number(json, "stale_reads");
    run->dense_bytes = rt_json_number_or_0(json, "dense_bytes");
    run->has_worker_ops = cJSON_GetArraySize(workers) > 0;
    for (int j = 0; j < cJSON_GetArraySize(workers) && j < (int)RT_WORKERS_MAX; j++) {
        for (uint32_t k = 0; k < CLI_RUN_OPS; k++)
            run->workers[j].ops[k] =
                rt_json_number_or_0(cJSON_GetArrayItem(workers, j), op_names[k]);
        run->worker_count = (uint32_t)rt_max_u64(run->worker_count, (uint64_t)j + 1);
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
    if (rt_course_init(&run->course, CLI_RUN_POINTS, CLI_RUN_SERIES))
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
    if (run->iterations == 0)
        return rt_fail(error, RT_DATA, "%s/metrics.jsonl: no iteration is in it", run->directory);
    if (!summary)
        run->interrupted = true;
    return RT_OK;
}

rt_status cli_run_load(const char *directory, cli_run *run, rt_error *error)
{
    *run = (cli_run){.directory = directory,
                     .log_loss = NAN,
                     .auc = NAN,
                     .log_loss_last_fifth = NAN,
                     .auc_last_fifth = NAN,
                     .accuracy = NAN,
                     .accuracy_last_fifth = NAN,
                     .stale_reads = NAN};
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
    rt_course_fini(&run->course);
}
