#define _GNU_SOURCE // strsep
#include "tests/support/run_case.h"

#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "runtime/rt_base.h"
#include "tests/support/test.h"

#define WORDS_MAX 64

const char *run_folder(void)
{
    static char path[200];
    if (!path[0])
        snprintf(path, sizeof path, "%s", test_path(".")); // there is one folder of a case
    return path;
}

const char *run_path(const char *name)
{
    static char paths[4][400];
    static unsigned next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", run_folder(), name);
    return path;
}

FILE *run_create(const char *name)
{
    FILE *file = fopen(run_path(name), "w");
    assert_non_null(file);
    return file;
}

void run_write(const char *name, const void *bytes, size_t size)
{
    FILE *file = run_create(name);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

void run_start(process *p, const char *const *words, const char *const *sets)
{
    const char *arguments[WORDS_MAX] = {process_lanyard()};
    size_t count = 1;
    while (*words && count < WORDS_MAX)
        arguments[count++] = *words++;
    for (; sets && *sets && count + 2 < WORDS_MAX; sets++) {
        arguments[count++] = "--set";
        arguments[count++] = *sets;
    }
    assert_true(count < WORDS_MAX && !(sets && *sets));
    *p = (process){0};
    process_start(p, arguments);
}

void run_start_config(process *p, const char *command, const char *config, const char *out,
                      const char *const *sets)
{
    const char *words[6] = {command, run_path("config.json"), out ? "--out" : "--json"};
    size_t count = 3;
    run_write("config.json", config, strlen(config));
    if (out)
        words[count++] = run_path(out);
    if (sets && *sets && strncmp(*sets, "--", 2) == 0)
        words[count++] = *sets++;
    run_start(p, words, sets);
}

void run_start_up(process *p, const char *config, const char *out, const char *flag,
                  const char *const *sets)
{
    run_write("config.json", config, strlen(config));
    run_start(
        p, (const char *const[]){"up", run_path("config.json"), "--out", run_path(out), flag, NULL},
        sets);
}

void run_up(const char *config, const char *out, const char *flag, const char *const *sets)
{
    process p;
    run_start_up(&p, config, out, flag, sets);
    run_must_end(&p, 0);
    process_fini(&p);
}

void run_must_end(process *p, int want)
{
    int status = process_end(p, RUN_CASE_S);
    if (status != want)
        fail_msg("exit status %d, expected %d; it said:\n%s", status, want, p->text);
}

void run_must_say(const process *p, const char *text)
{
    if (!strstr(p->text, text))
        fail_msg("nothing about \"%s\" in:\n%s", text, p->text);
}

char *run_file(const char *out, const char *name, size_t *size_p)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s/%s", run_folder(), out, name);
    FILE *file = fopen(path, "r");
    if (!file)
        return NULL;
    struct stat about;
    assert_int_equal(fstat(fileno(file), &about), 0);
    char *bytes = calloc((size_t)about.st_size + 1, 1);
    assert_non_null(bytes);
    *size_p = fread(bytes, 1, (size_t)about.st_size, file);
    fclose(file);
    return bytes;
}

void run_must_equal(const char *out, const char *other, const char *name)
{
    size_t size[2] = {0};
    char *bytes[2] = {run_file(out, name, &size[0]), run_file(other, name, &size[1])};
    if (!bytes[0] || !bytes[1] || size[0] != size[1] || memcmp(bytes[0], bytes[1], size[0]) != 0)
        fail_msg("%s of %s and %s differ (%zu and %zu bytes)", name, out, other, size[0], size[1]);
    free(bytes[0]);
    free(bytes[1]);
}

void run_same_line(const char *out, const char *other, const char *key)
{
    size_t size;
    char *text[2] = {run_file(out, "summary.json", &size), run_file(other, "summary.json", &size)};
    char *at[2];
    for (int i = 0; i < 2; i++) {
        assert_non_null(text[i]);
        at[i] = strstr(text[i], key);
        assert_non_null(at[i]);
        at[i][strcspn(at[i], "\n")] = '\0';
    }
    assert_string_equal(at[0], at[1]);
    free(text[0]);
    free(text[1]);
}

void run_value(const char *text, const char *name, char value[64])
{
    const char *at = strstr(text, name);
    if (!at)
        fail_msg("%s is not there", name);
    at += strlen(name);
    snprintf(value, 64, "%.*s", (int)strcspn(at, ",\n"), at);
}

static void summary_value(const char *out, const char *name, char value[64])
{
    size_t size;
    char *summary = run_file(out, "summary.json", &size);
    assert_non_null(summary);
    run_value(summary, name, value);
    free(summary);
}

static void must_have(const char *out, const char *simulated, const char *name)
{
    char want[64], got[64];
    run_value(simulated, name, want);
    summary_value(out, name, got);
    if (strcmp(got, want) != 0)
        fail_msg("%s%s in %s, simulated %s", name, got, out, want);
}

void run_must_have_planned(const char *out, const char *simulated)
{
    must_have(out, simulated, "\"plan_fingerprint\": ");
}

void run_must_be_simulated(const char *config, const char *out, const char *const *sets,
                           const char *const *members)
{
    process p;
    run_start_config(&p, "sim", config, NULL, sets);
    run_must_end(&p, 0);
    run_must_have_planned(out, p.text);
    must_have(out, "\"stale_reads\": 0,", "\"stale_reads\": ");
    for (; *members; members++)
        must_have(out, p.text, *members);
    process_fini(&p);
}

double run_sum(const char *out, const char *name)
{
    size_t size;
    double sum = 0;
    char *metrics = run_file(out, "metrics.jsonl", &size);
    for (const char *at = metrics; (at = strstr(at, name)); at += strlen(name))
        sum += strtod(at + strlen(name), NULL);
    free(metrics);
    return sum;
}

double run_sum_as_summed_up(const char *out, const char *name)
{
    char each[64], iterations[64];
    const double sum = run_sum(out, name);
    summary_value(out, name, each);
    summary_value(out, "\"iterations\": ", iterations);
    assert_int_equal((uint64_t)sum, (uint64_t)(atof(each) * atof(iterations) + 0.5));
    return sum;
}

void run_must_have_one_model(const char *out, const char *other, uint32_t shards)
{
    char name[64];
    size_t size;
    char *scale = run_file(out, "model/scale.bin", &size);
    run_must_equal(out, other, "model/dense.bin");
    if (scale) // with dense features
        run_must_equal(out, other, "model/scale.bin");
    free(scale);
    for (uint32_t s = 0; s < shards; s++) {
        snprintf(name, sizeof name, "model/rows-%03u-of-%03u.bin", s, shards);
        run_must_equal(out, other, name);
    }
}

void run_must_be_the_same(const char *out, const char *other, uint32_t shards)
{
    run_must_have_one_model(out, other, shards);
    run_same_line(out, other, "\"plan_fingerprint\"");
    run_same_line(out, other, "\"iterations\"");
    run_same_line(out, other, "\"samples\"");
    run_same_line(out, other, "\"logloss\"");
    run_same_line(out, other, "\"auc_last_fifth\"");
    run_same_line(out, other, "\"stale_reads\": 0");
}

void run_await_records(process *p, const char *out, const char *text, uint32_t count)
{
    const uint64_t end = rt_now_ns() + (uint64_t)(RUN_CASE_S * test_limit_factor() * 1e9);
    for (uint32_t seen = 0; seen < count;) {
        size_t size = 0;
        const bool goes_on = process_goes_on(p);
        char *metrics = run_file(out, "metrics.jsonl", &size);
        seen = 0;
        for (const char *at = metrics; at && (at = strstr(at, text)); at++)
            seen++;
        free(metrics);
        if (seen < count && (!goes_on || rt_now_ns() > end))
            fail_msg("%u times %s, waited for %u%s; it said:\n%s", seen, text, count,
                     goes_on ? "" : " until it ended", p->text);
        (void)poll(NULL, 0, 1 + (int)(size >> 20)); // to read is not to hold up who writes
    }
}

void run_await_iterations(process *p, const char *out, uint32_t count)
{
    run_await_records(p, out, "\"record\":\"iteration\"", count);
}

void run_await_checkpoint(process *p, const char *out)
{
    run_await_records(p, out, "\"complete\":true", 1);
}

// The number behind a key of a line; fails without.
static uint64_t number_of(const char *line, const char *key)
{
    const char *at = strstr(line, key);
    if (!at)
        fail_msg("no %s in %.200s", key, line);
    return strtoull(at + strlen(key), NULL, 10);
}

// Of an iteration's record: times_ms has an object for every worker.
static uint32_t workers_of(const char *line)
{
    uint32_t workers = 0;
    for (const char *at = strstr(line, "\"compute\":"); at; at = strstr(at + 1, "\"compute\":"))
        workers++;
    return workers;
}

// Whether the last iteration that a text tells of had so many workers.
static bool has_workers(char *text, uint32_t workers)
{
    static const char record[] = "\"record\":\"iteration\"";
    const char *last = NULL;
    for (const char *at = text; (at = strstr(at, record)); at++)
        last = strchr(at, '\n') ? at : last; // the newest line may be half written
    if (!last)
        return false;
    *strchr(last, '\n') = 0;
    return workers_of(last) == workers;
}

void run_await_going_on(process *p, const char *out, uint32_t workers)
{
    const uint64_t end = rt_now_ns() + (uint64_t)(RUN_CASE_S * test_limit_factor() * 1e9);
    for (bool is_seen = false; !is_seen; (void)poll(NULL, 0, 20)) {
        size_t size;
        const bool goes_on = process_goes_on(p);
        char *metrics = run_file(out, "metrics.jsonl", &size), *last = metrics;
        for (char *at = metrics; at && (at = strstr(at, "\"record\":\"resumed\"")); at++)
            last = at;
        is_seen = last && last != metrics && has_workers(last, workers);
        free(metrics);
        if (!is_seen && (!goes_on || rt_now_ns() > end))
            fail_msg("no iteration of %u workers after the run went on%s; it said:\n%s", workers,
                     goes_on ? "" : ", until it ended", p->text);
    }
}

uint64_t run_samples(const char *out)
{
    size_t size;
    char *text = run_file(out, "summary.json", &size);
    assert_non_null(text);
    const uint64_t samples = number_of(text, "\"samples\": ");
    free(text);
    return samples;
}

typedef struct {
    uint64_t first_sample;
    uint32_t samples, workers;
} trained;

static trained trained_of(const char *line)
{
    return (trained){.first_sample = number_of(line, "\"first_sample\":"),
                     .samples = (uint32_t)number_of(line, "\"samples\":"),
                     .workers = workers_of(line)};
}

// How many entries of `workers` an iteration of `now` workers comes to, `phases` of them before it;
// 0: it does not fit. In a run that goes on without workers a slow one may miss a start, too, and
// is taken back like one that was lost: then there are fewer for a while.
static size_t phase_of(const uint32_t workers[], size_t count, size_t phases, uint32_t now)
{
    const bool may_be_late = count > 1;
    if (phases < count && now == workers[phases])
        return phases + 1;
    if (phases == 0)
        return may_be_late && now < workers[0] ? 1 : 0;
    if (may_be_late && phases < count && now < workers[phases] &&
        workers[phases] < workers[phases - 1])
        return phases + 1;
    return now == workers[phases - 1] || (may_be_late && now < workers[phases - 1]) ? phases : 0;
}

void run_must_train_once(const char *out, uint64_t sample_count, uint32_t workers[], size_t count)
{
    static trained all[RUN_CASE_ITERATIONS_MAX + 1];
    uint64_t last = 0, samples = 0;
    size_t size, phases = 0;
    char *text = run_file(out, "metrics.jsonl", &size), *rest = text;
    assert_non_null(text);
    for (char *line; (line = strsep(&rest, "\n"));) {
        if (strstr(line, "\"record\":\"resumed\""))
            last = number_of(line, "\"iteration\":"); // what came after it is lost
        if (!strstr(line, "\"record\":\"iteration\""))
            continue;
        const uint64_t iteration = number_of(line, "\"iteration\":");
        last = iteration == 1 ? 1 : last + 1; // 1: from the beginning
        assert_true(last <= RUN_CASE_ITERATIONS_MAX);
        assert_int_equal(iteration, last);
        all[last] = trained_of(line);
    }
    for (uint64_t i = 1; i <= last; i++) {
        assert_int_equal(all[i].first_sample, samples);
        samples += all[i].samples;
        phases = phase_of(workers, count, phases, all[i].workers);
        if (!phases)
            fail_msg("iteration %" PRIu64 " has %u workers", i, all[i].workers);
    }
    assert_int_equal(phases, count);
    assert_int_equal(all[last].workers, workers[count - 1]);
    assert_int_equal(samples, sample_count);
    free(text);
    text = run_file(out, "summary.json", &size);
    assert_non_null(text);
    assert_int_equal(number_of(text, "\"samples\": "), sample_count);
    assert_int_equal(number_of(text, "\"iterations\": "), last);
    assert_non_null(strstr(text, "\"stale_reads\": 0"));
    free(text);
}

void run_lose_the_end(const char *out)
{
    char command[700];
    snprintf(command, sizeof command,
             "cd %s && rm -r model summary.json && rm -r $(ls -d checkpoints/ckpt-* | tail -1)",
             run_path(out));
    assert_int_equal(system(command), 0);
}

void run_must_go_on_alike(const char *config, uint32_t shards, const char *const *sets)
{
    run_up(config, "whole", NULL, sets);
    run_up(config, "again", NULL, sets);
    run_must_be_the_same("whole", "again", shards);
    run_lose_the_end("again");
    run_up(config, "again", "--resume", sets);
    run_must_be_the_same("whole", "again", shards);
}

void run_must_regain_a_worker(const char *config, const char *out, const char *const *sets)
{
    process p = {0};
    run_start_up(&p, config, out, NULL, sets);
    run_await_checkpoint(&p, out);
    assert_int_equal(kill(process_child(&p, "--rank 2"), SIGKILL), 0);
    size_t at = process_await(&p, 0, "worker 2 was lost; 3 workers go on", RUN_CASE_S);
    at = process_await(&p, at, "workers are back: all processes start again", RUN_CASE_S);
    process_await(&p, at, "going on after iteration", RUN_CASE_S);
    run_await_going_on(&p, out, 4);
    assert_int_equal(kill(p.pid, SIGINT), 0);
    run_must_end(&p, 0);
    process_fini(&p);
    run_must_train_once(out, run_samples(out), (uint32_t[]){4, 3, 4}, 3);
}
