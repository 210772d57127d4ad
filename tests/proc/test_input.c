// Input of real processes: more of it after the end, bad data, pipes whose writers come and go,
// batches that do not fill, folders of earlier runs.
#define _GNU_SOURCE // SCHED_IDLE
#include "tests/support/test.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/rt_base.h"
#include "runtime/rt_hash.h"
#include "tests/support/process_case.h"
#include "tests/support/run_case.h"

#define RUN_S RUN_CASE_S
#define BATCH 32u // 2 workers x 16
#define SETS_MAX 12

static const char config[] =
    "{\"workers\": 2, \"batch\": {\"samples_per_worker\": 16},"
    " \"stream\": {\"files\": \"none\", \"format\": \"table\", \"table\": {\"columns\": ["
    "  {\"name\": \"y\", \"kind\": \"label\"},"
    "  {\"name\": \"u\", \"kind\": \"categorical\", \"id\": \"number\"},"
    "  {\"name\": \"v\", \"kind\": \"categorical\", \"id\": \"number\"}]}},"
    " \"model\": {\"embedding_dim\": 4, \"mlp\": [4]}, \"cache\": {\"rows\": 300},"
    " \"dispatch\": {\"measure_compute\": false}, \"timeouts\": {\"start_s\": 20}}";

static const char *in_folder(const char *name)
{
    static char paths[4][300];
    static uint32_t next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", run_folder(), name);
    return path;
}

static void put_file(const char *name, const char *mode, const char *text)
{
    FILE *file = fopen(in_folder(name), mode);
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

// Rows "label,u,v"; the caller's (free).
static char *make_rows(uint32_t first, uint32_t count)
{
    char *text = calloc(count + 1, 32), *at = text;
    assert_non_null(text);
    for (uint32_t i = first; i < first + count; i++) {
        const uint64_t random = rt_mix(i);
        at += sprintf(at, "%u,%u,%u\n", (unsigned)(random >> 40 & 1), (unsigned)(random % 500), i);
    }
    return text;
}

static void put_rows(const char *name, const char *mode, uint32_t first, uint32_t count)
{
    char *rows = make_rows(first, count);
    put_file(name, mode, rows);
    free(rows);
}

// "lanyard COMMAND CONFIG [--out OUT] [FLAG] --set SET..."; out, flag: NULL: none.
static void start(process *p, const char *command, const char *out, const char *flag,
                  const char *const *sets, bool with_input)
{
    const char *arguments[8 + 2 * SETS_MAX] = {process_lanyard(), command,
                                               in_folder("config.json")};
    size_t count = 3;
    put_file("config.json", "w", config);
    if (out) {
        arguments[count++] = "--out";
        arguments[count++] = in_folder(out);
    }
    if (flag)
        arguments[count++] = flag;
    for (; *sets; sets++) {
        arguments[count++] = "--set";
        arguments[count++] = *sets;
    }
    *p = (process){.with_input = with_input};
    process_start(p, arguments);
}

static void run_input(process *p, const char *out, const char *flag, const char *const *sets,
                      int want)
{
    start(p, "up", out, flag, sets, false);
    run_must_end(p, want);
}

static const char *files_set(const char *names)
{
    static char texts[2][700];
    static uint32_t next;
    char list[300], *text = texts[next++ % 2];
    snprintf(list, sizeof list, "%s", names);
    size_t used = (size_t)sprintf(text, "stream.files=[");
    for (char *name = strtok(list, ","); name; name = strtok(NULL, ","))
        used += (size_t)sprintf(text + used, "%s\"%s/%s\"", text[used - 1] == '[' ? "" : ",",
                                run_folder(), name);
    strcpy(text + used, "]");
    return text;
}

static void must_have(const char *out, const char *name, const char *text)
{
    size_t size;
    char *bytes = run_file(out, name, &size);
    if (!bytes || !strstr(bytes, text))
        fail_msg("%s/%s does not say %s:\n%s", out, name, text, bytes ? bytes : "(not there)");
    free(bytes);
}

// ---- more input ------------------------------------------------------------------------------

// A run that came to its end goes on with a longer list as if that had been the list: the rows, and
// with checkpoints where batches end the model too, byte for byte.
static void a_longer_list_is_gone_on_with(void **state)
{
    (void)state;
    process p;
    put_rows("d0", "w", 0, 10 * BATCH);
    put_rows("d1", "w", 10 * BATCH, 4 * BATCH); // smaller
    run_input(&p, "run", NULL, (const char *[]){files_set("d0"), "checkpoint.at_end=true", NULL},
              0);
    process_fini(&p);
    for (uint32_t round = 0; round < 2; round++) { // the second time nothing is new
        run_input(&p, "run", "--resume",
                  (const char *[]){files_set("d0,d1"), "checkpoint.at_end=true", NULL}, 0);
        run_must_say(&p, round ? "nothing is new in the input" : "/d1 is read from its start");
        process_fini(&p);
        must_have("run", "summary.json", "\"samples\": 448");
    }
    put_rows("d1", "a", 14 * BATCH, 2 * BATCH);
    run_input(&p, "run", "--resume",
              (const char *[]){files_set("d0,d1"), "checkpoint.at_end=true", NULL}, 0);
    run_must_say(&p, "/d1 has grown since it was read");
    process_fini(&p);
    must_have("run", "summary.json", "\"state\": \"grown\"");
    run_input(&p, "calm", NULL, (const char *[]){files_set("d0,d1"), NULL}, 0);
    process_fini(&p);
    run_must_train_once("run", 16 * BATCH, (uint32_t[]){2}, 1);
    run_must_equal("run", "calm", "model/rows-000-of-001.bin");
}

// ---- bad data --------------------------------------------------------------------------------

static void bad_data_keeps_the_model(void **state)
{
    (void)state;
    process p;
    put_rows("good", "w", 0, 3000);
    put_rows("bad", "w", 0, 3000);
    for (uint32_t i = 0; i < 500; i++)
        put_file("bad", "a", "garbage\n");
    run_input(&p, "calm", NULL, (const char *[]){files_set("good"), NULL}, 0);
    process_fini(&p);
    run_input(&p, "run", NULL, (const char *[]){files_set("bad"), "checkpoint.at_end=true", NULL},
              1);
    run_must_say(&p, "of the last 3031 lines are malformed");
    process_fini(&p);
    run_must_equal("run", "calm", "model/rows-000-of-001.bin");
    run_must_equal("run", "calm", "model/dense.bin");
    must_have("run", "summary.json", "\"malformed_lines\": 31");
    must_have("run", "summary.json", "\"input_error\": \"");
    // Nothing but garbage: no model, and what an earlier run left is left alone.
    put_file("worse", "w", "garbage\ngarbage\n");
    run_input(&p, "calm", NULL, (const char *[]){files_set("worse"), NULL}, 1);
    process_fini(&p);
    must_have("calm", "metrics.jsonl", "\"iteration\":94");
    assert_int_equal(access(in_folder("calm/metrics.jsonl.new"), F_OK), -1);
    assert_int_equal(access(in_folder("calm/records.jsonl.new"), F_OK), -1);
    run_must_equal("run", "calm", "model/rows-000-of-001.bin");
}

static void a_run_without_a_place_says_so(void **state)
{
    (void)state;
    process p;
    put_rows("d0", "w", 0, 2 * BATCH);
    run_input(&p, NULL, NULL, (const char *[]){files_set("d0"), NULL}, 0);
    run_must_say(&p, "no --out");
    process_fini(&p);
}

// ---- pipes -----------------------------------------------------------------------------------

static void write_rows(int writer, uint32_t first, uint32_t count)
{
    char *rows = make_rows(first, count);
    const size_t size = strlen(rows);
    assert_int_equal(write(writer, rows, size), (ssize_t)size); // less than a pipe holds
    free(rows);
}

// Batches that a pause cut short are planned again from the journal, bit for bit; evaluation reads
// standard input without a cache.
static void short_batches_are_planned_again(void **state)
{
    (void)state;
    process p;
    size_t size, at = 0;
    static const uint32_t counts[] = {3 * BATCH, 5, BATCH + 7, 1};
    put_rows("all", "w", 0, 4 * BATCH + 13);
    start(&p, "up", "run", NULL, (const char *[]){"stream.files=-", "batch.wait_ms=50", NULL},
          true);
    for (uint32_t i = 0, first = 0; i < RT_COUNT_OF(counts); i++, first += counts[i - 1]) {
        char text[64];
        write_rows(p.input, first, counts[i]);
        snprintf(text, sizeof text, "\"iteration\":%u,", (const uint32_t[]){3, 4, 6, 7}[i]);
        run_await_records(&p, "run", text, 1);
    }
    close(p.input);
    p.input = -1;
    run_must_end(&p, 0);
    process_fini(&p);
    must_have("run", "records.jsonl", "\"iteration\":6,\"samples\":7}");
    char *summary = run_file("run", "summary.json", &size);
    char *fingerprint = strstr(summary, "\"plan_fingerprint\": \"");
    assert_non_null(fingerprint);
    fingerprint[39] = '\0';
    char wanted[64];
    snprintf(wanted, sizeof wanted, "%s", fingerprint);
    free(summary);
    const char *const sim[] = {process_lanyard(),
                               "sim",
                               in_folder("config.json"),
                               "--records",
                               in_folder("run/records.jsonl"),
                               "--json",
                               "--set",
                               files_set("all"),
                               "--set",
                               "sim.warmup=0",
                               NULL};
    assert_int_equal(process_run(&p, sim, RUN_S), 0);
    if (!strstr(p.text + at, wanted))
        fail_msg("%s is not in:\n%s", wanted, p.text);
    process_fini(&p);
    const char *const eval[] = {process_lanyard(), "eval",           in_folder("run/model"),
                                "--set",           "stream.files=-", NULL};
    p = (process){.with_input = true};
    process_start(&p, eval);
    write_rows(p.input, 0, 100);
    close(p.input);
    p.input = -1;
    run_must_end(&p, 0);
    run_must_say(&p, "100 samples");
    process_fini(&p);
}

// compute.idle: training has what others leave.
static void must_give_way(const process *p)
{
    static const char *const roles[] = {"coordinator", "ps", "worker"};
    for (size_t i = 0; i < RT_COUNT_OF(roles); i++)
        assert_int_equal(sched_getscheduler(process_child(p, roles[i])), SCHED_IDLE);
}

// The FIFO outlives its writers and the coordinator. What came is checkpointed though nothing
// follows: by time, and when asked for.
static void a_fifo_outlives_writers_and_restarts(void **state)
{
    (void)state;
    process p;
    assert_int_equal(mkfifo(in_folder("fifo"), 0600), 0);
    assert_true(signal(SIGPIPE, SIG_IGN) != SIG_ERR);
    start(&p, "up", "run", NULL,
          (const char *[]){files_set("fifo"), "on_worker_loss=restart", "batch.wait_ms=100",
                           "compute.idle=true", NULL},
          false);
    int writer = open(in_folder("fifo"), O_WRONLY);
    assert_true(writer >= 0);
    write_rows(writer, 0, 2 * BATCH + 3);
    close(writer);
    run_await_iterations(&p, "run", 3);
    must_give_way(&p);
    assert_int_equal(kill(p.pid, SIGUSR1), 0);
    run_await_records(&p, "run", "\"record\":\"checkpoint\"", 1);
    assert_int_equal(kill(p.pid, SIGUSR1), 0);
    process_await(&p, 0, "nothing is new since the checkpoint of iteration 3", RUN_S);
    writer = open(in_folder("fifo"), O_WRONLY);
    assert_true(writer >= 0);
    write_rows(writer, 2 * BATCH + 3, 1); // half a row more, which the coordinator takes with it
    assert_int_equal(write(writer, "1,77", 4), 4);
    run_await_iterations(&p, "run", 4);
    assert_int_equal(kill(process_child(&p, "coordinator"), SIGKILL), 0);
    process_await(&p, 0, "bytes that pipes or standard input gave before are in no checkpoint",
                  RUN_S);
    write_rows(writer, 1000, BATCH);
    run_await_iterations(&p, "run", 5);
    assert_int_equal(kill(p.pid, SIGINT), 0);
    run_must_end(&p, 0);
    process_fini(&p);
    close(writer);
    // 3 rows of the first writer were kept, the one before the kill was not.
    must_have("run", "summary.json", "\"samples\": 99");
    must_have("run", "summary.json", "\"input_bytes_lost\": 1");
}

TEST_MAIN(TEST(a_longer_list_is_gone_on_with), TEST(bad_data_keeps_the_model),
          TEST(a_run_without_a_place_says_so), TEST(short_batches_are_planned_again),
          TEST(a_fifo_outlives_writers_and_restarts))
