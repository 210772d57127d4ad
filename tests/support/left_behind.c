#include "tests/support/left_behind.h"

#include <cjson/cJSON.h>
#include <dirent.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "dispatch/sim/dp_sim.h"
#include "runtime/files/rt_checkpoint.h"
#include "runtime/files/rt_manifest.h"
#include "tests/support/played_rules.h"
#include "tests/support/records.h"
#include "tests/support/test.h"

#define NAMES_MAX 64u

#define ITERATIONS_MAX 4096u

typedef struct {
    uint32_t first, last; // iterations of metrics.jsonl; 0: none
    uint32_t samples[ITERATIONS_MAX];
} metrics;

static double number_of(const cJSON *object, const char *name)
{
    const cJSON *one = cJSON_GetObjectItemCaseSensitive(object, name);
    return cJSON_IsNumber(one) ? one->valuedouble : NAN;
}

// ---- records -----------------------------------------------------------------------------------

// A run that goes on, or begins anew in the same folder, takes back what came after.
static void take_iteration(played *p, const cJSON *record, metrics *all)
{
    const double iteration = number_of(record, "iteration");
    if (!(iteration >= 1 && iteration < ITERATIONS_MAX) ||
        (all->last && iteration != 1 && iteration != all->last + 1)) {
        played_break(p, "metrics.jsonl: iteration %g follows %" PRIu32, iteration, all->last);
        return;
    }
    all->first = all->first ? all->first : (uint32_t)iteration;
    all->last = (uint32_t)iteration;
    all->samples[all->last] = (uint32_t)number_of(record, "samples");
}

// Every line is a record, in the order of their times.
static void check_lines(played *p, const char *path, metrics *all)
{
    double before_s = 0;
    char *text = records_read(path);
    for (char *rest = text, *line; rest && (line = strsep(&rest, "\n"));) {
        cJSON *record = *line ? cJSON_Parse(line) : NULL;
        const cJSON *named = cJSON_GetObjectItemCaseSensitive(record, "record");
        const char *kind = cJSON_IsString(named) ? named->valuestring : "";
        const double time_s = number_of(record, "time_s");
        const bool goes_on = strcmp(kind, "resumed") == 0;
        if (*line && !*kind)
            played_break(p, "%s: no record: %.100s", path, line);
        if (*line && !goes_on && !(time_s >= before_s))
            played_break(p, "%s: a record of %g s follows one of %g s", path, time_s, before_s);
        before_s = *line ? time_s : before_s;
        if (goes_on)
            all->last = (uint32_t)number_of(record, "iteration");
        if (strcmp(kind, "iteration") == 0)
            take_iteration(p, record, all);
        cJSON_Delete(record);
    }
    free(text);
}

static uint64_t samples_of(const metrics *all)
{
    uint64_t sum = 0;
    for (uint32_t i = all->first; i <= all->last && i < ITERATIONS_MAX; i++)
        sum += all->samples[i];
    return sum;
}

// Sums of what was reported, as means of an iteration: of those who take part now, unless one was
// lost on the way.
static void check_operations(played *p, const cJSON *summary, double iterations)
{
    rt_counts done = {0};
    for (uint32_t w = 0; w < RT_WORKERS_MAX; w++) {
        if (p->welcome.workers >> w & 1)
            rt_counts_add(&done, &p->done[w]);
        if (p->peers[w].told.has_left)
            return;
    }
    const cJSON *ops = cJSON_GetObjectItemCaseSensitive(summary, "ops");
    const struct {
        const char *name;
        uint64_t count;
    } counts[] = {
#define XX(name, title) {#name, done.name},
        RT_COUNTS_MAP(XX, XX)
#undef XX
    };
    for (size_t i = 0; i < RT_COUNT_OF(counts); i++) {
        const double sum = number_of(ops, counts[i].name) * iterations;
        if (!(fabs(sum - (double)counts[i].count) < 1e-3 * (1 + sum)))
            played_break(p, "summary.json: %g %s, members reported %" PRIu64, sum, counts[i].name,
                         counts[i].count);
    }
}

static void check_summary(played *p, const cJSON *summary, const metrics *all)
{
    const double iterations = number_of(summary, "iterations");
    const uint64_t samples = samples_of(all);
    if (iterations != all->last)
        played_break(p, "summary.json: %g iterations, metrics.jsonl has %" PRIu32, iterations,
                     all->last);
    if (number_of(summary, "samples") != (double)samples || samples != p->samples)
        played_break(p, "samples: summary.json %g, metrics.jsonl %" PRIu64 ", reported %" PRIu64,
                     number_of(summary, "samples"), samples, p->samples);
    check_operations(p, summary, iterations);
}

// ---- folders -----------------------------------------------------------------------------------

// All that its manifest names is there, and it is of this iteration.
static bool is_whole(const char *folder, uint32_t iteration, bool has_rows, uint32_t *base_p)
{
    cJSON *root = NULL;
    uint32_t of = UINT32_MAX;
    *base_p = 0;
    if (rt_manifest_read(folder, &root, NULL))
        return false;
    const rt_status status = has_rows ? rt_manifest_check(folder, root, NULL)
                                      : rt_manifest_check_without_rows(folder, root, NULL);
    (void)rt_manifest_u32(root, "base", UINT32_MAX, base_p);
    (void)rt_manifest_u32(root, "iteration", UINT32_MAX, &of);
    cJSON_Delete(root);
    return status == RT_OK && of == iteration;
}

// And what it builds on.
static bool is_checkpoint(const char *directory, uint32_t iteration)
{
    char path[RT_PATH_MAX];
    uint32_t base;
    do {
        assert_int_equal(rt_checkpoint_path(directory, iteration, path, sizeof path, NULL), RT_OK);
        if (!is_whole(path, iteration, false, &base) || base >= iteration)
            return false;
        iteration = base;
    } while (base);
    return true;
}

// Names them in text: "5 10 (15)", in brackets what is not whole.
static void name_folders(const char *directory, const char *what, char *text, size_t size)
{
    uint32_t *iterations = NULL, count = 0;
    if (rt_checkpoint_list(directory, &iterations, &count, NULL))
        return; // something else has its name
    for (uint32_t i = 0; i < count; i++) {
        const size_t used = strlen(text);
        const bool is_one = is_checkpoint(directory, iterations[i]);
        snprintf(text + used, size - used, is_one ? "%s %" PRIu32 : "%s (%" PRIu32 ")",
                 i ? "" : what, iterations[i]);
    }
    rt_free(iterations);
}

static int compare(const void *left, const void *right)
{
    return strcmp(left, right);
}

// Files of the folder itself, but for those of most runs.
static void name_files(char *text, size_t size)
{
    static const char usual[] = "metrics.jsonl records.jsonl stream.taken summary.json model "
                                "checkpoints published";
    char names[NAMES_MAX][64];
    uint32_t count = 0;
    DIR *folder = opendir("out");
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        const size_t length = strlen(entry->d_name);
        const char *at = strstr(usual, entry->d_name);
        const bool is_usual = at && (at[length] == ' ' || at[length] == '\0');
        if (*entry->d_name != '.' && !is_usual && count < NAMES_MAX && length < sizeof *names)
            memcpy(names[count++], entry->d_name, length + 1);
    }
    if (folder)
        closedir(folder);
    qsort(names, count, sizeof *names, compare);
    for (uint32_t i = 0; i < count; i++)
        snprintf(text + strlen(text), size - strlen(text), " %s", names[i]);
}

// ---- plans -------------------------------------------------------------------------------------

static void check_plans(const left_run *run, played *p, const cJSON *summary)
{
    static dp_sim_result result;
    char made[32];
    rt_schema schema;
    rt_error error = {0};
    dp_inputs inputs = {0};
    const cJSON *of_run = cJSON_GetObjectItemCaseSensitive(summary, "plan_fingerprint");
    rt_status status =
        rt_stream_read_schema(&run->config->stream, run->config->seed, &schema, &error);
    if (!status)
        status = dp_inputs_load("out/records.jsonl", run->config->worker_count, &inputs, &error);
    const dp_sim_config sim = {.config = run->config,
                               .schema = &schema,
                               .dense_bytes = run->own->dense_bytes,
                               .inputs = &inputs};
    if (!status)
        status = dp_sim_run(&sim, &result, &error);
    snprintf(made, sizeof made, "%016" PRIx64, result.fingerprint);
    if (status)
        played_break(p, "no simulation can be made of the run: %s", error.text);
    else if (!cJSON_IsString(of_run) || strcmp(of_run->valuestring, made) != 0)
        played_break(p, "a simulation with the run's records makes other plans");
    dp_inputs_fini(&inputs);
}

void left_check(const left_run *run, played *members, char *text, size_t size)
{
    static metrics all, inputs;
    uint32_t base;
    struct stat info;
    *text = '\0';
    all = inputs = (metrics){0};
    check_lines(members, "out/metrics.jsonl", &all);
    check_lines(members, "out/records.jsonl", &inputs);
    if (all.last)
        snprintf(text, size, " iterations %" PRIu32 "-%" PRIu32, all.first, all.last);
    name_folders("out/checkpoints", ", checkpoints", text, size);
    name_folders("out/published", ", published", text, size);
    if (stat("out/model", &info) == 0)
        snprintf(text + strlen(text), size - strlen(text),
                 is_whole("out/model", all.last, true, &base) ? ", model"
                                                              : ", no model of its end");
    name_files(text, size);
    char *written =
        run->status == RT_OK && run->own->directory ? records_read("out/summary.json") : NULL;
    cJSON *summary = written ? cJSON_Parse(written) : NULL;
    free(written);
    if (summary && all.first == 1)
        check_summary(members, summary, &all);
    if (summary && run->may_simulate)
        check_plans(run, members, summary);
    cJSON_Delete(summary);
}
