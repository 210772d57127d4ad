// Checkpoints and restarts with real processes: whatever is killed, frozen or damaged on the way,
// the model at the end is the one of a run that nothing happened to, byte for byte.
#define _GNU_SOURCE // unshare
#include "tests/support/test.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ps_lite/ps_model_file.h"
#include "ps_lite/ps_table.h"
#include "runtime/rt_base.h"
#include "runtime/files/rt_checkpoint.h"
#include "runtime/files/rt_tensors.h"
#include "tests/support/process_case.h"
#include "tests/support/run_case.h"

#define RUN_S RUN_CASE_S
#define SETS_MAX 24

static const char config[] =
    "{\"workers\": 3, \"batch\": {\"samples_per_worker\": 16},"
    " \"stream\": {\"format\": \"synthetic\", \"samples_max\": 4800,"
    "  \"synthetic\": {\"scale\": 0.001, \"clusters\": 4}},"
    " \"model\": {\"embedding_dim\": 4, \"mlp\": [8, 4]},"
    " \"dispatch\": {\"measure_compute\": false},"
    " \"cache\": {\"rows\": 500}, \"timeouts\": {\"start_s\": 20},"
    " \"checkpoint\": {\"every_iterations\": 20, \"full_every\": 2, \"keep\": 3}}";

static void start(process *p, const char *out, const char *flag, const char *const *sets)
{
    run_start_up(p, config, out, flag, sets);
}

static void run(const char *out, const char *flag, const char *const *sets)
{
    run_up(config, out, flag, sets);
}

static void write_file(const char *out, const char *name, const char *bytes, size_t size)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s", out, name);
    run_write(path, bytes, size);
}

static void strike(process *p, const char *out, const char *victim, int signal, uint32_t after)
{
    run_await_iterations(p, out, after);
    assert_int_equal(kill(process_child(p, victim), signal), 0);
}

// ---- killed ----------------------------------------------------------------------------------

typedef struct {
    const char *sets[SETS_MAX];
    uint32_t shards;
    const char *victims[3];
    uint32_t after[3]; // iterations
} attack;

static void kill_and_compare(const attack *a)
{
    process p;
    run("calm", NULL, a->sets);
    start(&p, "hit", NULL, a->sets);
    for (uint32_t i = 0; i < 3 && a->victims[i]; i++)
        strike(&p, "hit", a->victims[i], SIGKILL, a->after[i]);
    run_must_end(&p, 0);
    run_must_say(&p, "restart 1: ");
    run_must_say(&p, "caches as they were");
    process_fini(&p);
    run_must_be_the_same("hit", "calm", a->shards);
    run_must_equal("hit", "calm", "model/scale.bin"); // the statistics went on where they were
    run_same_line("hit", "calm", "\"dense_clipped\"");
}

static void a_worker_is_killed(void **state)
{
    (void)state;
    kill_and_compare(&(attack){.sets = {"on_worker_loss=restart", "stream.samples_max=6000",
                                        "dispatch.policy=het", "cache.rows=500"},
                               .shards = 1,
                               .victims = {"--rank 1", "worker"},
                               .after = {45, 70}});
}

static void a_shard_is_killed(void **state)
{
    (void)state;
    kill_and_compare(
        &(attack){.sets = {"on_worker_loss=restart", "ps.shards=2", "dispatch.policy=makespan",
                           "optimizer.rows.name=adam", "optimizer.dense.name=adam",
                           "cache.eviction=lfu", "cache.lookahead=2", "dispatch.window=4"},
                  .shards = 2,
                  .victims = {"ps"},
                  .after = {50}});
}

static void the_coordinator_is_killed(void **state)
{
    (void)state;
    kill_and_compare(
        &(attack){.sets = {"on_worker_loss=restart", "dispatch.policy=laia", "dispatch.tables=5",
                           "cache.eviction=lru", "checkpoint.full_every=4", "checkpoint.keep=1"},
                  .shards = 1,
                  .victims = {"coordinator"},
                  .after = {85}});
}

// Other workers every few iterations: at every checkpoint some sit out, worker 0, who sends the
// dense part, among them at times.
static void killed_while_some_sit_out(void **state)
{
    (void)state;
    kill_and_compare(
        &(attack){.sets = {"on_worker_loss=restart", "dispatch.participants=rotate", "ps.shards=2",
                           "cache.rows=2000", "optimizer.dense.name=adam",
                           "checkpoint.every_iterations=7", "optimizer.dense.clip_norm=0.1"},
                  .shards = 2,
                  .victims = {"--rank 0", "ps", "coordinator"},
                  .after = {30, 70, 90}});
}

// Who takes part was chosen before, and is chosen again, by batches of both sides of the cut.
static void killed_between_choices(void **state)
{
    (void)state;
    kill_and_compare(&(attack){.sets = {"on_worker_loss=restart", "dispatch.participants=auto",
                                        "links.workers=[1,0.01,0.3]", "cache.rows=2000"},
                               .shards = 1,
                               .victims = {"--rank 1"},
                               .after = {45}});
    size_t size;
    char *records = run_file("hit", "records.jsonl", &size);
    assert_non_null(strstr(records, "\"participates\""));
    free(records);
}

// Killed before there is a checkpoint, or while the first is being written: from the beginning.
static void killed_early(void **state)
{
    (void)state;
    process p;
    char begun[300];
    const char *const sets[] = {"on_worker_loss=restart", "checkpoint.every_iterations=1000", NULL};
    run("calm", NULL, sets);
    start(&p, "hit", NULL, sets);
    run_await_iterations(&p, "hit", 10);
    snprintf(begun, sizeof begun, "%s/hit/checkpoints/ckpt-000000000005", run_folder());
    assert_int_equal(mkdir(begun, 0777), 0);
    write_file("hit/checkpoints/ckpt-000000000005", "dense.bin", "half", 4);
    strike(&p, "hit", "--rank 1", SIGKILL, 10);
    run_must_end(&p, 0);
    run_must_say(&p, "the checkpoint of iteration 5 was not completed");
    run_must_say(&p, "starting from the beginning");
    process_fini(&p);
    run_must_be_the_same("hit", "calm", 1);
}

// A process that stands still is named, ended, and replaced.
static void a_frozen_process(void **state)
{
    (void)state;
    static const char *const victims[] = {"--rank 2", "ps", "coordinator"};
    static const char *const names[] = {"worker 2", "ps 0", "coordinator"};
    const char *const sets[] = {"on_worker_loss=restart", "timeouts.peer_s=1", NULL};
    run("calm", NULL, sets);
    for (size_t i = 0; i < RT_COUNT_OF(victims); i++) {
        char out[16];
        process p;
        snprintf(out, sizeof out, "hit%zu", i);
        start(&p, out, NULL, sets);
        strike(&p, out, victims[i], SIGSTOP, 45);
        run_must_end(&p, 0);
        run_must_say(&p, "was silent for 1");
        run_must_say(&p, names[i]);
        process_fini(&p);
        run_must_be_the_same(out, "calm", 1);
    }
}

static void one_worker_fewer(void **state)
{
    (void)state;
    process p;
    const char *const sets[] = {"on_worker_loss=shrink", "batch.samples_per_worker=16", NULL};
    start(&p, "hit", NULL, sets);
    strike(&p, "hit", "--rank 1", SIGKILL, 45);
    run_must_end(&p, 0);
    run_must_say(&p, "worker 1 was lost; 2 workers go on");
    run_must_say(&p, "4800 samples");
    process_fini(&p);
}

// Checkpoints on request only, so that a case knows how many there are.
#define ON_REQUEST "checkpoint.every_iterations=100000", "stream.samples_max=10000000"

// Asks for a checkpoint and waits until the metrics tell how that ended: `count` times the same.
static void request(process *p, const char *out, const char *how, uint32_t count)
{
    assert_int_equal(kill(p->pid, SIGUSR1), 0);
    run_await_records(p, out, how, count);
}

// Those that are there, ascending; the caller's (rt_free).
static uint32_t *list_all(const char *out, uint32_t *count_p)
{
    char directory[300];
    uint32_t *iterations;
    snprintf(directory, sizeof directory, "%s/%s/checkpoints", run_folder(), out);
    assert_int_equal(rt_checkpoint_list(directory, &iterations, count_p, NULL), RT_OK);
    assert_true(*count_p > 1);
    return iterations;
}

// Flips a bit of a file of every checkpoint; the second time puts it back.
static void bend_all(const char *out, const char *file)
{
    char name[100];
    uint32_t count, *iterations = list_all(out, &count);
    for (uint32_t i = 0; i < count; i++) {
        size_t size;
        snprintf(name, sizeof name, "checkpoints/ckpt-%012" PRIu32 "/%s", iterations[i], file);
        char *bytes = run_file(out, name, &size);
        assert_non_null(bytes);
        bytes[size / 2] ^= 1;
        write_file(out, name, bytes, size);
        free(bytes);
    }
    rt_free(iterations);
}

// Of every checkpoint, or only of the one that the others build on.
static void rename_file(const char *out, const char *file, const char *name, bool of_first)
{
    char from[400], to[400];
    uint32_t count, *iterations = list_all(out, &count);
    for (uint32_t i = 0; i < (of_first ? 1 : count); i++) {
        const int length = snprintf(from, sizeof from, "%s/%s/checkpoints/ckpt-%012" PRIu32 "/",
                                    run_folder(), out, iterations[i]);
        memcpy(to, from, (size_t)length);
        snprintf(from + length, sizeof from - (size_t)length, "%s", file);
        snprintf(to + length, sizeof to - (size_t)length, "%s", name);
        assert_int_equal(rename(from, to), 0);
    }
    rt_free(iterations);
}

// Damage, for this reason, and not that there is none (with which a restart begins anew).
static void must_be_damage(const char *const *sets, const char *why)
{
    process p;
    start(&p, "hit", "--resume", sets);
    run_must_end(&p, 1);
    run_must_say(&p, why);
    run_must_say(&p, "no checkpoint can be read");
    process_fini(&p);
}

// Beginning anew would throw away what was trained: a restart does not, and changes nothing.
static void nothing_left_to_restart_from(void **state)
{
    (void)state;
    process p;
    const char *const sets[] = {"on_worker_loss=restart", ON_REQUEST, NULL};
    start(&p, "hit", NULL, sets);
    run_await_iterations(&p, "hit", 10);
    request(&p, "hit", "\"complete\":true", 1);
    request(&p, "hit", "\"complete\":true", 2);
    bend_all("hit", "planner.bin");
    assert_int_equal(kill(process_child(&p, "--rank 1"), SIGKILL), 0);
    run_must_end(&p, 1);
    run_must_say(&p, "restart 1: ");
    run_must_say(&p, "hit/checkpoints: no checkpoint can be read (those of the iterations ");
    if (strstr(p.text, "restart 2: ") || strstr(p.text, "from the beginning"))
        fail_msg("it began anew:\n%s", p.text);
    process_fini(&p);
    must_be_damage(sets, "planner.bin");
    bend_all("hit", "planner.bin");
    rename_file("hit", "dense.bin", "away", false);
    must_be_damage(sets, "dense.bin: No such file");
    rename_file("hit", "away", "dense.bin", false);
    rename_file("hit", "manifest.json", "away", true); // restored without what they build on
    must_be_damage(sets, "it builds on the one of iteration ");
    rename_file("hit", "away", "manifest.json", true);
    start(&p, "hit", "--resume", sets);
    process_await(&p, 0, "going on after iteration", RUN_S);
    assert_int_equal(kill(p.pid, SIGINT), 0);
    run_must_end(&p, 0);
    process_fini(&p);
}

static void too_many_restarts(void **state)
{
    (void)state;
    process p;
    const char *const sets[] = {"on_worker_loss=restart", "restarts_max=1",
                                "stream.samples_max=24000", NULL};
    start(&p, "hit", NULL, sets);
    strike(&p, "hit", "--rank 1", SIGKILL, 45);
    process_await(&p, 0, "going on after iteration", RUN_S);
    assert_int_equal(kill(process_child(&p, "ps"), SIGKILL), 0);
    run_must_end(&p, 1);
    run_must_say(&p, "giving up");
    process_fini(&p);
}

// ---- resumed ---------------------------------------------------------------------------------

static void two_parts_are_one(void **state)
{
    (void)state;
    process p;
    const char *const whole[] = {"checkpoint.every_iterations=50", NULL};
    const char *const first[] = {"checkpoint.every_iterations=0", "checkpoint.at_end=true",
                                 "stream.samples_max=2400", NULL};
    const char *const second[] = {"checkpoint.every_iterations=0", NULL};
    run("whole", NULL, whole);
    run("parts", NULL, first);
    start(&p, "parts", NULL, second); // not by mistake over an earlier run
    run_must_end(&p, 1);
    run_must_say(&p, "holds checkpoints of an earlier run");
    process_fini(&p);
    run("parts", "--resume", second);
    run_must_be_the_same("parts", "whole", 1);
    start(&p, "nothing", "--resume", second);
    run_must_end(&p, 1);
    run_must_say(&p, "holds no checkpoint");
    process_fini(&p);
}

// SIGUSR1 to `up`: a checkpoint when nothing else asks for one.
static void on_request(void **state)
{
    (void)state;
    process p;
    const char *const sets[] = {"checkpoint.every_iterations=0", "stream.samples_max=24000", NULL};
    start(&p, "asked", NULL, sets);
    run_await_iterations(&p, "asked", 20);
    assert_int_equal(kill(p.pid, SIGUSR1), 0);
    run_must_end(&p, 0);
    process_fini(&p);
    size_t size;
    char *metrics = run_file("asked", "metrics.jsonl", &size);
    assert_non_null(metrics);
    assert_non_null(strstr(metrics, "\"record\":\"checkpoint\""));
    assert_non_null(strstr(metrics, "\"complete\":true"));
    free(metrics);
}

static void load_rows(const char *out, uint32_t shards, ps_table **table_p)
{
    const ps_table_config sizes = {.row_floats = 4, .memory_bytes_max = 1 << 28};
    assert_int_equal(ps_table_create(&sizes, table_p), RT_OK);
    for (uint32_t s = 0; s < shards; s++) {
        char path[600];
        ps_model_info info;
        ps_model_reader *reader;
        uint64_t key;
        uint32_t version;
        const float *row;
        snprintf(path, sizeof path, "%s/%s/model/rows-%03u-of-%03u.bin", run_folder(), out, s,
                 shards);
        assert_int_equal(ps_model_reader_open(path, NULL, NULL, &info, &reader, NULL), RT_OK);
        while (ps_model_reader_next(reader, &key, &version, &row, NULL) == RT_OK) {
            assert_int_equal(ps_table_reserve(*table_p, 1, NULL), RT_OK);
            ps_entry *entry = ps_table_insert(*table_p, key);
            entry->version = version;
            memcpy(ps_table_row(*table_p, entry), row, 4 * sizeof *row);
        }
        ps_model_reader_close(reader);
    }
}

// Another number of workers, shards, another cache: sums in another order, so the bound is that of
// tests/conform/test_oracle.c, 1e-4 of the largest value.
static void with_other_numbers(void **state)
{
    (void)state;
    ps_table *tables[2];
    float largest = 0, furthest = 0;
    const char *const whole[] = {"checkpoint.every_iterations=50", NULL};
    const char *const first[] = {"checkpoint.every_iterations=25", "checkpoint.at_end=true",
                                 "stream.samples_max=2400", NULL};
    const char *const second[] = {"workers=2",      "batch.samples_per_worker=24", "ps.shards=3",
                                  "cache.rows=900", "cache.eviction=lru",          NULL};
    run("whole", NULL, whole);
    run("parts", NULL, first);
    run("parts", "--resume", second);
    load_rows("whole", 1, &tables[0]);
    load_rows("parts", 3, &tables[1]);
    assert_int_equal(ps_table_count(tables[0]), ps_table_count(tables[1]));
    for (uint64_t i = 0; i < ps_table_count(tables[0]); i++) {
        const ps_entry *a = ps_table_find(tables[0], ps_table_key(tables[0], i));
        const ps_entry *b = ps_table_find(tables[1], a->key);
        assert_non_null(b);
        assert_int_equal(a->version, b->version);
        for (uint32_t k = 0; k < 4; k++) {
            float x = ps_table_row(tables[0], a)[k], y = ps_table_row(tables[1], b)[k];
            largest = fmaxf(largest, fabsf(x));
            furthest = fmaxf(furthest, fabsf(x - y));
        }
    }
    test_close(furthest, 0, 1e-4, largest, "a row's value");
    ps_table_destroy(tables[0]);
    ps_table_destroy(tables[1]);
}

// ---- damaged ---------------------------------------------------------------------------------

static void copy_run(const char *from, const char *to)
{
    char command[700];
    snprintf(command, sizeof command, "rm -rf '%s/%s' && cp -a '%s/%s' '%s/%s'", run_folder(), to,
             run_folder(), from, run_folder(), to);
    assert_int_equal(system(command), 0);
}

static void passes_over(const char *name, const char *text)
{
    process p;
    start(&p, "bent", "--resume", NULL);
    run_must_end(&p, 0);
    if (!strstr(p.text, "the checkpoint of iteration 80 is damaged and passed over") ||
        !strstr(p.text, text) || !strstr(p.text, "going on after iteration 60"))
        fail_msg("%s: %s", name, p.text);
    process_fini(&p);
    run_must_be_the_same("bent", "good", 1);
}

// Every part of the newest checkpoint, at its beginning, middle and end, and cut short.
static void damaged_parts_are_named(void **state)
{
    (void)state;
    static const char *const parts[] = {"manifest.json", "planner.bin", "dense.bin",
                                        "rows-000-of-001.bin"};
    run("good", NULL, NULL);
    for (size_t i = 0; i < RT_COUNT_OF(parts); i++) {
        char name[100];
        size_t size;
        snprintf(name, sizeof name, "checkpoints/ckpt-000000000080/%s", parts[i]);
        char *bytes = run_file("good", name, &size);
        assert_non_null(bytes);
        const size_t places[] = {2, size / 2, size - 3};
        for (size_t k = 0; k < RT_COUNT_OF(places); k++) {
            copy_run("good", "bent");
            bytes[places[k]] ^= 0x20;
            write_file("bent", name, bytes, size);
            bytes[places[k]] ^= 0x20;
            passes_over(name, "ckpt-000000000080");
        }
        copy_run("good", "bent");
        write_file("bent", name, bytes, size / 2);
        passes_over(name, parts[i]);
        free(bytes);
    }
}

// A part that is whole, but of another run: the same keys in the same versions, other values.
static void parts_of_another_run(void **state)
{
    (void)state;
    static const char *const parts[] = {"planner.bin", "dense.bin", "rows-000-of-001.bin"};
    const char *const other[] = {"optimizer.rows.learning_rate=0.3",
                                 "optimizer.dense.learning_rate=0.3", NULL};
    run("good", NULL, NULL);
    run("other", NULL, other);
    for (size_t i = 0; i < RT_COUNT_OF(parts); i++) {
        char name[100];
        size_t size;
        snprintf(name, sizeof name, "checkpoints/ckpt-000000000080/%s", parts[i]);
        char *bytes = run_file("other", name, &size);
        assert_non_null(bytes);
        copy_run("good", "bent");
        write_file("bent", name, bytes, size);
        passes_over(name, parts[i]);
        free(bytes);
    }
}

// Nobody knows how many starts there were: the clock is above all of them.
static void a_damaged_epoch(void **state)
{
    (void)state;
    size_t size;
    process p;
    run("bent", NULL,
        (const char *const[]){"stream.samples_max=2400", "checkpoint.at_end=true", NULL});
    write_file("bent", "checkpoints/epoch", "2 0123456789abcdef\n", 19);
    start(&p, "bent", "--resume", NULL);
    run_must_end(&p, 0);
    run_must_say(&p, "epoch is damaged");
    process_fini(&p);
    char *text = run_file("bent", "checkpoints/epoch", &size);
    assert_non_null(text);
    assert_true(strtoull(text, NULL, 10) > 1000000000);
    free(text);
}

// The checkpoint that the newest one builds on is damaged: both are of no use.
static void a_damaged_base(void **state)
{
    (void)state;
    process p;
    size_t size;
    const char *name = "checkpoints/ckpt-000000000060/rows-000-of-001.bin";
    run("good", NULL, NULL); // 20 all, 40 changes, 60 all, 80 changes of 60; 20 stays, 40 needs it
    char *bytes = run_file("good", name, &size);
    assert_non_null(bytes);
    bytes[size / 2] ^= 1;
    copy_run("good", "bent");
    write_file("bent", name, bytes, size);
    free(bytes);
    start(&p, "bent", "--resume", NULL);
    run_must_end(&p, 0);
    run_must_say(&p, "iteration 80 is damaged");
    run_must_say(&p, "iteration 60 is damaged");
    run_must_say(&p, "going on after iteration 40");
    process_fini(&p);
    run_must_be_the_same("bent", "good", 1);
}

// Where checkpoints go there is suddenly something else: training goes on, the one before stays.
static void a_failing_disk(void **state)
{
    (void)state;
    process p;
    char directory[300], away[320];
    const char *const sets[] = {"stream.samples_max=9600", NULL};
    snprintf(directory, sizeof directory, "%s/out/checkpoints", run_folder());
    snprintf(away, sizeof away, "%s.away", directory);
    run("calm", NULL, sets);
    start(&p, "out", NULL, sets);
    run_await_iterations(&p, "out", 45);
    assert_int_equal(rename(directory, away), 0);
    FILE *file = fopen(directory, "w");
    assert_non_null(file);
    fclose(file);
    run_must_end(&p, 0);
    run_must_say(&p, "could not be written, training goes on");
    process_fini(&p);
    run_must_be_the_same("out", "calm", 1);
    assert_int_equal(unlink(directory), 0);
    assert_int_equal(rename(away, directory), 0);
    run("out", "--resume", sets);
    run_must_be_the_same("out", "calm", 1);
}

// The only one that stays is there until the next is complete: that one cannot be, for a folder
// stands in the place of a file, after the shards have written theirs.
static void the_last_one_stays(void **state)
{
    (void)state;
    static const char in_place[] = "out/checkpoints/ckpt-000000000040/planner.bin";
    const char *const sets[] = {"ps.shards=2", "checkpoint.keep=1", "checkpoint.full_every=1",
                                "stream.samples_max=1200", NULL};
    const char *const more[] = {"ps.shards=2", "checkpoint.keep=1", "checkpoint.full_every=1",
                                "stream.samples_max=2640", NULL};
    process p;
    run("calm", NULL, more);
    run("out", NULL, sets);
    assert_int_equal(rt_checkpoint_make(run_path(in_place), NULL), RT_OK);
    write_file(in_place, "in", "the way", 7);
    start(&p, "out", "--resume", more);
    run_must_end(&p, 0);
    run_must_say(&p, "going on after iteration 20");
    run_must_say(&p, "the checkpoint at iteration 40 could not be written");
    process_fini(&p);
    start(&p, "out", "--resume", more);
    run_must_end(&p, 0);
    run_must_say(&p, "going on after iteration 20");
    process_fini(&p);
    run_must_be_the_same("out", "calm", 2);
}

// Resumes from a copy of `good` whose rows of iteration 60 are a pipe. Returns its end, which the
// case writes to, once the shard has opened it; *bytes_p (free) is what was in the file.
static int resume_slowly(process *p, const char *const *sets, char **bytes_p, size_t *size_p)
{
    static const char name[] = "checkpoints/ckpt-000000000060/rows-000-of-001.bin";
    char path[400];
    int writer;
    const uint64_t end = rt_now_ns() + (uint64_t)(RUN_S * 1e9);
    copy_run("good", "slow");
    *bytes_p = run_file("slow", name, size_p);
    assert_non_null(*bytes_p);
    snprintf(path, sizeof path, "%s/slow/%s", run_folder(), name);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    start(p, "slow", "--resume", sets);
    while ((writer = open(path, O_WRONLY | O_NONBLOCK)) < 0 && rt_now_ns() < end)
        (void)poll(NULL, 0, 5);
    assert_true(writer >= 0);
    assert_int_equal(fcntl(writer, F_SETFL, 0), 0);
    return writer;
}

static void stopped_while_loading(void **state)
{
    (void)state;
    static const int signals[] = {SIGINT, SIGTERM};
    run("good", NULL, NULL);
    for (size_t i = 0; i < RT_COUNT_OF(signals); i++) {
        process p;
        char *bytes;
        size_t size;
        const int writer = resume_slowly(&p, NULL, &bytes, &size);
        assert_int_equal(kill(p.pid, signals[i]), 0);
        run_must_end(&p, 1);
        run_must_say(&p, "interrupted while a checkpoint was being loaded");
        process_fini(&p);
        close(writer);
        free(bytes);
    }
}

// A disk that stands still for longer than a silent process is waited for, and than a probe of the
// link to the shard is.
static void a_slow_disk(void **state)
{
    (void)state;
    process p;
    char *bytes;
    size_t size;
    const char *const sets[] = {"timeouts.peer_s=1", NULL};
    run("good", NULL, NULL);
    const int writer = resume_slowly(&p, sets, &bytes, &size);
    assert_int_equal(write(writer, bytes, 100), 100);
    (void)poll(NULL, 0, 6000);
    assert_int_equal(write(writer, bytes + 100, size - 100), size - 100);
    close(writer);
    run_must_end(&p, 0);
    run_must_say(&p, "going on after iteration 80");
    process_fini(&p);
    run_must_be_the_same("slow", "good", 1);
    free(bytes);
}

// ---- a full disk -----------------------------------------------------------------------------

static void write_text(const char *path, const char *text)
{
    int file = open(path, O_WRONLY);
    if (file < 0 || write(file, text, strlen(text)) != (ssize_t)strlen(text))
        test_skip("%s cannot be written", path);
    close(file);
}

// Makes this process root of a namespace in which nobody else has a number. Skips the case.
static void leave_other_users(int also)
{
    char map[64];
    const unsigned user = getuid(), group = getgid();
    if (unshare(CLONE_NEWUSER | also) != 0)
        test_skip("no namespace of users and mounts: %s", strerror(errno));
    write_text("/proc/self/setgroups", "deny");
    snprintf(map, sizeof map, "%u %u 1", user, user);
    write_text("/proc/self/uid_map", map);
    snprintf(map, sizeof map, "%u %u 1", group, group);
    write_text("/proc/self/gid_map", map);
}

// A file system of this process and those that it starts alone, below FOLDER. Skips the case.
static void mount_small(const char *path, const char *options)
{
    assert_int_equal(mkdir(path, 0777), 0);
    leave_other_users(CLONE_NEWNS);
    if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("none", path, "tmpfs", 0, options) != 0)
        test_skip("no mounts in a namespace: %s", strerror(errno));
}

// Takes all that is left.
static void fill_up(const char *path)
{
    static const char zeros[4096];
    int file = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    assert_true(file >= 0);
    while (write(file, zeros, sizeof zeros) > 0)
        ;
    assert_int_equal(errno, ENOSPC);
    close(file);
}

static void a_full_disk(void **state)
{
    (void)state;
    process p;
    char disk[250], filler[300], place[300], copy[300];
    const char *const sets[] = {ON_REQUEST, place, "checkpoint.full_every=1", NULL};
    const char *const from_copy[] = {ON_REQUEST, copy, NULL};
    snprintf(disk, sizeof disk, "%s/disk", run_folder());
    snprintf(filler, sizeof filler, "%s/filler", disk);
    snprintf(place, sizeof place, "checkpoint.directory=%s/checkpoints", disk);
    snprintf(copy, sizeof copy, "checkpoint.directory=%s/copy", run_folder());
    mount_small(disk, "size=16m");
    start(&p, "out", NULL, sets);
    run_await_iterations(&p, "out", 10);
    request(&p, "out", "\"complete\":true", 1);
    fill_up(filler);
    request(&p, "out", "\"complete\":false", 1);
    process_await(&p, 0, "could not be written, training goes on without it", RUN_S);
    run_must_say(&p, "No space left on device");
    copy_run("disk/checkpoints", "copy");
    assert_int_equal(unlink(filler), 0);
    request(&p, "out", "\"complete\":true", 2);
    assert_int_equal(kill(p.pid, SIGINT), 0);
    run_must_end(&p, 0);
    process_fini(&p);
    start(&p, "from_copy", "--resume", from_copy);
    process_await(&p, 0, "going on after iteration", RUN_S);
    assert_int_equal(kill(p.pid, SIGINT), 0);
    run_must_end(&p, 0);
    if (strstr(p.text, "damaged") || strstr(p.text, "not completed"))
        fail_msg("the failed checkpoint left something:\n%s", p.text);
    process_fini(&p);
    start(&p, "from_disk", "--resume", sets);
    process_await(&p, 0, "going on after iteration", RUN_S);
    assert_int_equal(kill(p.pid, SIGINT), 0);
    run_must_end(&p, 0);
    process_fini(&p);
}

// ---- a folder of somebody else ---------------------------------------------------------------

// That the newest checkpoint cannot be read is no damage: none is passed over, nothing is changed,
// and doctor finds it before.
static void somebody_elses_checkpoint(void **state)
{
    (void)state;
    process p;
    char newest[400], before[400], path[300], out[300];
    run("hit", NULL, NULL);
    snprintf(newest, sizeof newest, "%s/hit/checkpoints/ckpt-000000000080", run_folder());
    snprintf(before, sizeof before, "%s/hit/checkpoints/ckpt-000000000060", run_folder());
    snprintf(path, sizeof path, "%s/config.json", run_folder());
    snprintf(out, sizeof out, "%s/hit", run_folder());
    if (getuid() == 0 && chown(newest, 12345, 12345) != 0)
        test_skip("no files of other users: %s", strerror(errno));
    assert_int_equal(chmod(newest, getuid() == 0 ? 0700 : 0), 0);
    leave_other_users(0);
    start(&p, "hit", "--resume", NULL);
    run_must_end(&p, 1);
    run_must_say(&p, "ckpt-000000000080/manifest.json: Permission denied");
    if (strstr(p.text, "going on after") || access(newest, F_OK) || access(before, R_OK))
        fail_msg("it was passed over:\n%s", p.text);
    process_fini(&p);
    const char *const doctor[] = {process_lanyard(), "doctor", path, "--out", out, NULL};
    p = (process){0};
    assert_int_equal(process_run(&p, doctor, RUN_S), 1);
    run_must_say(&p, "cannot write to ");
    run_must_say(&p, "ckpt-000000000080: Permission denied");
    process_fini(&p);
}

// Two coordinators in one folder would write over each other's files.
static void a_folder_in_use(void **state)
{
    (void)state;
    process first, second;
    const char *const sets[] = {ON_REQUEST, NULL};
    start(&first, "hit", NULL, sets);
    run_await_iterations(&first, "hit", 10);
    request(&first, "hit", "\"complete\":true", 1);
    start(&second, "hit", "--resume", sets);
    run_must_end(&second, 1);
    run_must_say(&second, "hit: another coordinator uses this folder");
    process_fini(&second);
    request(&first, "hit", "\"complete\":true", 2);
    assert_int_equal(kill(first.pid, SIGINT), 0);
    run_must_end(&first, 0);
    process_fini(&first);
}

TEST_MAIN(TEST_SLOW(a_worker_is_killed, 120), TEST_SLOW(a_shard_is_killed, 120),
          TEST_SLOW(the_coordinator_is_killed, 120), TEST_SLOW(killed_while_some_sit_out, 120),
          TEST_SLOW(killed_between_choices, 120), TEST(killed_early),
          TEST_SLOW(a_frozen_process, 180), TEST(one_worker_fewer),
          TEST_SLOW(nothing_left_to_restart_from, 120), TEST(too_many_restarts),
          TEST(two_parts_are_one), TEST(on_request), TEST(with_other_numbers),
          TEST_SLOW(damaged_parts_are_named, 180), TEST_SLOW(parts_of_another_run, 90),
          TEST(a_damaged_epoch), TEST_SLOW(a_damaged_base, 90),
          TEST_SLOW(stopped_while_loading, 90), TEST_SLOW(a_slow_disk, 90),
          TEST_SLOW(a_failing_disk, 90), TEST_SLOW(the_last_one_stays, 90),
          TEST_SLOW(a_full_disk, 120), TEST_SLOW(somebody_elses_checkpoint, 90),
          TEST_SLOW(a_folder_in_use, 90))
