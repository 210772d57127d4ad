// `lanyard trace`: iterations of a run in the Trace Event Format, which browsers draw: a process
// for the coordinator and one for each worker, all on the coordinator's clock.
//
// A worker's five times follow each other and fill what passed since its iteration before, up to
// its report (docs/METRICS.md); they are drawn in a fixed order, as each is a sum over the
// iteration.
#include <cjson/cJSON.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "runtime/files/rt_file.h"
#include "runtime/rt_json.h"
#include "runtime/rt_json_read.h"
#include "runtime/watch/rt_view_tail.h"
#include "runtime/wire/rt_counts.h"

#define COUNT_MAX 10000u
#define COORDINATOR 0 // process ids; workers have their rank + 1
#define US_PER_MS 1e3

typedef struct {
    uint64_t first; // 0: the last ones
    uint64_t count;
    cJSON **records; // a ring; the newest is number seen - 1
    uint64_t seen;
    rt_json json;
    double *end_ms; // of each record that is drawn, oldest first, and worker
} trace;

#define XX(name, title) AT_##name,
enum { RT_TIMES_MAP(XX) TIMES };
#undef XX
#define XX(name, title) [AT_##name] = {#name, title},
static const char *const time_names[TIMES][2] = {RT_TIMES_MAP(XX)};
#undef XX

static double element(const cJSON *json, const char *name, int j)
{
    const double value = rt_json_value(cJSON_GetArrayItem(rt_json_member(json, name), j));
    return isnan(value) ? 0 : value;
}

// ---- reading ---------------------------------------------------------------------------------

static void forget(trace *t)
{
    for (uint64_t i = 0; i < t->count; i++) {
        cJSON_Delete(t->records[i]);
        t->records[i] = NULL;
    }
    t->seen = 0;
}

static bool is_wanted(const trace *t, double iteration)
{
    const double first = (double)t->first;
    return !t->first || (iteration >= first && iteration < first + (double)t->count);
}

// Takes a line if it is one of the iterations; one that a restart made again counts as it was then.
static bool take_line(void *context, const char *line)
{
    trace *t = context;
    const char *kind;
    cJSON *json = rt_json_record(line, &kind);
    if (!json)
        return false;
    if (strcmp(kind, "resumed") == 0)
        forget(t); // the clock begins anew
    const bool fits = strcmp(kind, "iteration") == 0 &&
                      is_wanted(t, rt_json_number_or_0(json, "iteration")) &&
                      cJSON_IsArray(rt_json_member(json, "reported_before_ms"));
    if (!fits) {
        cJSON_Delete(json);
        return true;
    }
    cJSON **place = &t->records[t->seen++ % t->count];
    cJSON_Delete(*place);
    *place = json;
    return true;
}

static rt_status read_run(trace *t, const char *run, rt_error *error)
{
    rt_view_lines lines[2];
    const rt_status status = rt_view_read_run(run, take_line, t, lines, error);
    if (status)
        return status;
    const char *what = t->first ? "none of these iterations is in it" : "no iteration is in it";
    if (t->seen == 0)
        return rt_fail(error, RT_NOT_FOUND, "%s/metrics.jsonl: %s", run, what);
    return RT_OK;
}

// ---- writing ---------------------------------------------------------------------------------

static void begin_event(rt_json *json, const char *phase, const char *name, int process)
{
    rt_json_begin_object(json, NULL);
    rt_json_string(json, "ph", phase);
    rt_json_string(json, "name", name);
    rt_json_u64(json, "pid", (uint64_t)process);
    rt_json_u64(json, "tid", 0);
}

static void put_process(rt_json *json, int process, const char *name)
{
    begin_event(json, "M", "process_name", process);
    rt_json_begin_object(json, "args");
    rt_json_string(json, "name", name);
    rt_json_end_object(json);
    rt_json_end_object(json);
}

// What took a part of an iteration.
static void put_span(rt_json *json, int process, const char *name, double from_ms, double ms,
                     const cJSON *record)
{
    if (ms <= 0)
        return;
    begin_event(json, "X", name, process);
    rt_json_double(json, "ts", from_ms * US_PER_MS);
    rt_json_double(json, "dur", ms * US_PER_MS);
    rt_json_begin_object(json, "args");
    rt_json_double(json, "iteration", rt_json_number_or_0(record, "iteration"));
    rt_json_end_object(json);
    rt_json_end_object(json);
}

static void put_bytes(rt_json *json, int process, double at_ms, const cJSON *record, int j)
{
    begin_event(json, "C", "bytes of rows and requests", process);
    rt_json_double(json, "ts", at_ms * US_PER_MS);
    rt_json_begin_object(json, "args");
    rt_json_double(json, "up", element(record, "bytes_up", j));
    rt_json_double(json, "down", element(record, "bytes_down", j));
    rt_json_end_object(json);
    rt_json_end_object(json);
}

static double sum_ms(const cJSON *times)
{
    double sum = 0;
    for (size_t k = 0; k < TIMES; k++)
        sum += rt_json_number_or_0(times, time_names[k][0]);
    return sum;
}

static const cJSON *times_of(const cJSON *record, int j)
{
    return cJSON_GetArrayItem(rt_json_member(record, "times_ms"), j);
}

static void put_worker(trace *t, const cJSON *record, int j, double end_ms)
{
    // From the slice to the sum of the gradients.
    static const int drawn[] = {AT_plan, AT_pull, AT_push, AT_compute, AT_dense};
    _Static_assert(RT_COUNT_OF(drawn) == TIMES, "all of them");
    const cJSON *times = times_of(record, j);
    double at_ms = end_ms - sum_ms(times);
    put_bytes(&t->json, j + 1, at_ms, record, j);
    for (size_t k = 0; k < TIMES; k++) {
        const char *const *one = time_names[drawn[k]];
        const double ms = rt_json_number_or_0(times, one[0]);
        put_span(&t->json, j + 1, one[1], at_ms, ms, record);
        at_ms += ms;
    }
}

// A worker's iteration ended when its report came, or before: a report may wait until the
// coordinator looks, but the next iteration began when this one ended.
static void find_ends(trace *t, uint64_t begin, int workers)
{
    for (uint64_t i = t->seen; i-- > begin;) {
        const cJSON *record = t->records[i % t->count];
        double *ends = t->end_ms + (i - begin) * (uint64_t)workers;
        for (int j = 0; j < workers; j++) {
            ends[j] = rt_json_number_or_0(record, "time_s") * 1e3 -
                      element(record, "reported_before_ms", j);
            if (i + 1 < t->seen)
                ends[j] = fmin(ends[j], ends[workers + j] -
                                            sum_ms(times_of(t->records[(i + 1) % t->count], j)));
        }
    }
}

static void put_record(trace *t, const cJSON *record, const double *ends, int workers)
{
    const double record_ms = rt_json_number_or_0(record, "time_s") * 1e3;
    const double planned_ms = record_ms - rt_json_number_or_0(record, "planned_before_ms");
    const double commit = rt_json_number_or_0(record, "commit_ms"),
                 decision = rt_json_number_or_0(record, "decision_ms");
    put_span(&t->json, COORDINATOR, "decision", planned_ms - commit - decision, decision, record);
    put_span(&t->json, COORDINATOR, "commit of the plan", planned_ms - commit, commit, record);
    for (int j = 0; j < workers; j++)
        put_worker(t, record, j, ends[j]);
}

static rt_status put_all(trace *t)
{
    char name[32];
    rt_json *json = &t->json;
    const uint64_t kept = rt_min_u64(t->seen, t->count), begin = t->seen - kept;
    const cJSON *any = t->records[begin % t->count];
    const int listed = cJSON_GetArraySize(rt_json_member(any, "times_ms"));
    const int workers = (int)rt_min_u64((uint64_t)listed, RT_WORKERS_MAX);
    t->end_ms = rt_alloc(kept * (uint64_t)workers + 1, sizeof *t->end_ms);
    if (!t->end_ms)
        return RT_NO_MEMORY;
    find_ends(t, begin, workers);
    rt_json_begin_object(json, NULL);
    rt_json_string(json, "displayTimeUnit", "ms");
    rt_json_begin_array(json, "traceEvents");
    put_process(json, COORDINATOR, "coordinator");
    for (int j = 0; j < workers; j++) {
        snprintf(name, sizeof name, "worker %d", j);
        put_process(json, j + 1, name);
    }
    for (uint64_t i = begin; i < t->seen; i++)
        put_record(t, t->records[i % t->count], t->end_ms + (i - begin) * (uint64_t)workers,
                   workers);
    rt_json_end_array(json);
    rt_json_end_object(json);
    return RT_OK;
}

static rt_status write_trace(trace *t, const char *out, rt_error *error)
{
    if (put_all(t))
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    size_t size;
    const char *text = rt_json_text(&t->json, &size);
    if (!text)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    if (out)
        return rt_file_save_named(out, text, size, error);
    puts(text);
    return RT_OK;
}

// ---- arguments -------------------------------------------------------------------------------

// An option's number in [1, max]; left alone where it is not given.
static bool take_number(const char *option, const char *text, uint64_t max, uint64_t *value)
{
    char *end = NULL;
    if (!text)
        return true;
    errno = 0;
    const unsigned long long number_given = strtoull(text, &end, 10);
    if (*text >= '0' && *text <= '9' && !*end && !errno && number_given > 0 &&
        number_given <= max) {
        *value = number_given;
        return true;
    }
    fprintf(stderr, "lanyard trace: %s: expected a number in [1, %" PRIu64 "], not \"%s\"\n",
            option, max, text);
    return false;
}

int cli_trace(int argc, char **argv)
{
    const char *run = NULL, *out = NULL, *first = NULL, *count = NULL, *sets[CLI_SETS_MAX];
    uint32_t set_count;
    rt_error error = {0};
    trace t = {.count = 1};
    const cli_option options[] = {
        {"out", &out, NULL}, {"iteration", &first, NULL}, {"count", &count, NULL}};
    rt_log_setup(RT_LOG_INFO, "lanyard");
    if (!cli_parse(argc, argv, options, RT_COUNT_OF(options), &run, sets, &set_count) ||
        !take_number("--iteration", first, UINT64_C(1) << 53, &t.first) ||
        !take_number("--count", count, COUNT_MAX, &t.count))
        return CLI_USAGE;
    if (!run || set_count) {
        fprintf(stderr, "lanyard trace: expected RUN, the folder that --out named\n");
        return CLI_USAGE;
    }
    rt_json_init(&t.json, 0);
    t.records = rt_alloc(t.count, sizeof *t.records);
    rt_status status;
    if (t.records)
        status = read_run(&t, run, &error);
    else
        status = rt_fail(&error, RT_NO_MEMORY, "out of memory");
    if (!status)
        status = write_trace(&t, out, &error);
    if (t.records)
        forget(&t);
    rt_free(t.records);
    rt_free(t.end_ms);
    rt_json_fini(&t.json);
    return cli_end(status, &error);
}
