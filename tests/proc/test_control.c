// What people ask of a run that trains: `lanyard set` becomes input records, by which the simulator
// makes the same plans; what `lanyard forget` ends is in no table, file or later checkpoint,
// whatever is killed meanwhile.
#include "tests/support/test.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ps_lite/ps_model_file.h"
#include "runtime/config/rt_config.h"
#include "runtime/config/rt_policies.h"
#include "runtime/rt_hash.h"
#include "tests/support/process_case.h"
#include "tests/support/run_case.h"

static const char endless[] =
    "{\"workers\": 3, \"batch\": {\"samples_per_worker\": 16},"
    " \"stream\": {\"format\": \"synthetic\", \"synthetic\": {\"scale\": 0.001}},"
    " \"model\": {\"embedding_dim\": 4, \"mlp\": [8, 4]}, \"ps\": {\"shards\": 2},"
    " \"dispatch\": {\"measure_compute\": false, \"participants\": [0, 1]}, \"sim\": {\"warmup\": "
    "0},"
    " \"cache\": {\"rows\": 700}, \"timeouts\": {\"start_s\": 20}}";

// status: what the command must end with; says: what it must print. NULL: anything.
static void ask(const char *verb, const char *first, const char *second, int status,
                const char *says)
{
    process p;
    const char *const words[] = {verb, run_path("out"), first, second, NULL};
    run_start(&p, words, NULL);
    run_must_end(&p, status);
    if (says)
        run_must_say(&p, says);
    process_fini(&p);
}

static uint32_t count_in(const char *name, const char *text)
{
    size_t size;
    uint32_t count = 0;
    char *all = run_file("out", name, &size);
    assert_non_null(all);
    for (const char *at = all; (at = strstr(at, text)); at++)
        count++;
    free(all);
    return count;
}

// Of a run with many iterations, too: metrics grow by megabytes in a second.
static void a_late_record_is_seen(void **state)
{
    (void)state;
    process none = {0};
    const char *const path = run_path("out/metrics.jsonl");
    assert_int_equal(mkdir(run_path("out"), 0700), 0);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (uint32_t i = 0; i < 20000; i++)
        fprintf(file, "{\"record\":\"iteration\",\"iteration\":%u,\"pad\":\"%0500d\"}\n", i, 0);
    fprintf(file, "{\"record\":\"members\",\"ended\":false}\n");
    assert_int_equal(fclose(file), 0);
    run_await_iterations(&none, "out", 20000);
    run_await_records(&none, "out", "\"record\":\"members\"", 1);
}

static uint64_t iterations_of(void)
{
    size_t size;
    char *summary = run_file("out", "summary.json", &size);
    const char *at = summary ? strstr(summary, "\"iterations\": ") : NULL;
    assert_non_null(at);
    const uint64_t count = strtoull(at + strlen("\"iterations\": "), NULL, 10);
    free(summary);
    return count;
}

static void values_are_set_while_it_trains(void **state)
{
    (void)state;
    process up, sim;
    char bound[64], records[400], path[400];
    run_write("config.json", endless, sizeof endless - 1);
    snprintf(path, sizeof path, "%s", run_path("config.json"));
    run_start_up(&up, endless, "out", NULL, NULL);
    run_await_iterations(&up, "out", 3);
    ask("set", "dispatch.alpha", "0.25", 0, "dispatch.alpha is 0.25");
    run_await_iterations(&up, "out", 10);
    for (uint32_t kind = 0; kind < RT_POLICY_HET; kind++) {
        const char *policy = rt_config_choice_name("dispatch.policy", (int)kind);
        ask("set", "dispatch.policy", policy, 0, policy);
        // Until it is in force: of two that come before one plan only the second would be.
        for (uint32_t n = 30; count_in("records.jsonl", "\"kind\":\"policy\"") <= kind; n += 10)
            run_await_iterations(&up, "out", n);
    }
    ask("set", "dispatch.participants", "[1, 2]", 0, NULL);
    ask("set", "log.level", "debug", 0, NULL);
    run_await_iterations(&up, "out", 160);
    ask("set", "workers", "2", 1, "cannot be set while a run trains");
    ask("set", "dispatch.alpha", "2", 1, "dispatch.alpha");
    ask("set", "dispatch.policy", "best", 1, "\"best\" is unknown");
    ask("set", "dispatch.policy", "het", 1, "has another consistency.staleness");
    ask("set", "dispatch.participants", "auto", 1, "only a run that began with it");
    kill(up.pid, SIGINT);
    run_must_end(&up, 0);
    process_fini(&up);
    assert_int_equal(count_in("metrics.jsonl", "\"record\":\"set\""), 3 + RT_POLICY_HET);
    assert_int_equal(count_in("records.jsonl", "\"kind\":\"policy\""), RT_POLICY_HET);
    assert_int_equal(count_in("records.jsonl", "\"kind\":\"participates\""), 2);
    assert_int_equal(access(run_path("out/running.json"), F_OK), -1);
    snprintf(bound, sizeof bound, "sim.iterations=%" PRIu64, iterations_of());
    snprintf(records, sizeof records, "%s", run_path("out/records.jsonl"));
    const char *const words[] = {"sim", path, "--json", "--records", records, NULL};
    run_start(&sim, words, (const char *const[]){bound, NULL});
    run_must_end(&sim, 0);
    run_must_have_planned("out", sim.text);
    process_fini(&sim);
    ask("set", "dispatch.alpha", "1", 1, "no run is there");
}

// ---- forget ----------------------------------------------------------------------------------

#define PERSON UINT64_C(0x0badcafe) // in the first column of some rows

static const char live[] =
    "{\"workers\": 2, \"batch\": {\"samples_per_worker\": 16, \"wait_ms\": 50},"
    " \"stream\": {\"format\": \"criteo\", \"source\": \"follow\"},"
    " \"model\": {\"embedding_dim\": 4, \"mlp\": [8]}, \"ps\": {\"shards\": 2},"
    " \"checkpoint\": {\"full_every\": 8, \"keep\": 2},"
    " \"cache\": {\"rows\": 2000}, \"timeouts\": {\"start_s\": 20}}";

static void append_rows(uint32_t count, bool has_person, uint32_t seed)
{
    rt_random random = {seed};
    FILE *file = fopen(run_path("rows.tsv"), "a");
    assert_non_null(file);
    for (uint32_t i = 0; i < count; i++) {
        fprintf(file, "%u", rt_random_below(&random, 2));
        for (uint32_t k = 0; k < 13; k++)
            fprintf(file, "\t%u", rt_random_below(&random, 40));
        fprintf(file, "\t%08" PRIx64,
                has_person && i % 3 == 0 ? PERSON : rt_random_below(&random, 50));
        for (uint32_t k = 1; k < 26; k++)
            fprintf(file, "\t%08x", rt_random_below(&random, 60));
        fputc('\n', file);
    }
    assert_int_equal(fclose(file), 0);
}

// Whether one of the two files of rows in a folder below out has the person's.
static bool has_person(const char *folder)
{
    bool found = false;
    for (uint32_t s = 0; s < 2; s++) {
        char path[700];
        ps_model_info info;
        ps_model_reader *reader;
        uint64_t key;
        uint32_t version;
        const float *row;
        snprintf(path, sizeof path, "%s/%s/rows-%03u-of-002.bin", run_path("out"), folder, s);
        assert_int_equal(ps_model_reader_open(path, NULL, NULL, &info, &reader, NULL), RT_OK);
        while (ps_model_reader_next(reader, &key, &version, &row, NULL) == RT_OK)
            found |= key == rt_key(0, PERSON);
        ps_model_reader_close(reader);
    }
    return found;
}

static void start_live_on(process *p, const char *flag, bool is_first, const char *storage)
{
    char files[400];
    snprintf(files, sizeof files, "stream.files=%s", run_path("rows.tsv"));
    if (is_first)
        append_rows(320, true, 1);
    run_start_up(p, live, "out", flag, (const char *const[]){files, storage, NULL});
}

static void start_live(process *p, const char *flag, bool is_first)
{
    start_live_on(p, flag, is_first, "ps.storage=memory");
}

static void forget_with(const char *storage)
{
    process up;
    start_live_on(&up, NULL, true, storage);
    run_await_iterations(&up, "out", 10);
    kill(up.pid, SIGUSR1);
    run_await_records(&up, "out", "\"record\":\"checkpoint\"", 1);
    assert_true(has_person("checkpoints/ckpt-000000000010"));
    ask("forget", "C1", "0badcafe", 0, "1 keys");
    ask("forget", "I1", "5", 1, "no rows of its own");
    ask("forget", "person", "5", 1, "no such column");
    append_rows(1600, false, 2);
    run_await_records(&up, "out", "\"forgotten\":1", 1);
    run_await_records(&up, "out", "\"record\":\"checkpoint\"", 2);
    run_await_iterations(&up, "out", 60);
    kill(up.pid, SIGINT);
    run_must_end(&up, 0);
    process_fini(&up);
    assert_false(has_person("model"));
    assert_int_equal(access(run_path("out/checkpoints/forgotten"), F_OK), -1);
    assert_int_equal(count_in("records.jsonl", "\"kind\":\"forget\""), 1);
    assert_int_equal(count_in("metrics.jsonl", "\"record\":\"forget\""), 1);
}

static void what_is_forgotten_is_nowhere(void **state)
{
    (void)state;
    forget_with("ps.storage=memory");
}

// Nor in a table that is a mapped file.
static void nor_on_disk(void **state)
{
    (void)state;
    forget_with("ps.storage=disk");
}

// Killed before a checkpoint without the row: who goes on from the one before ends it again.
static void a_kill_brings_nobody_back(void **state)
{
    (void)state;
    process up;
    start_live(&up, NULL, true);
    run_await_iterations(&up, "out", 10);
    kill(up.pid, SIGUSR1);
    run_await_records(&up, "out", "\"record\":\"checkpoint\"", 1);
    ask("forget", "C1", "0badcafe", 0, NULL);
    kill(up.pid, SIGKILL);
    run_must_end(&up, 128 + SIGKILL); // its coordinator too, which has the folder until then
    process_fini(&up);
    assert_int_equal(access(run_path("out/checkpoints/forgotten"), F_OK), 0);
    append_rows(1600, false, 3);
    start_live(&up, "--resume", false);
    run_await_records(&up, "out", "\"forgotten\":1", 1);
    run_await_records(&up, "out", "\"record\":\"checkpoint\"", 2);
    kill(up.pid, SIGINT);
    run_must_end(&up, 0);
    run_must_say(&up, "1 rows that were to be forgotten end again");
    process_fini(&up);
    assert_false(has_person("model"));
}

// ---- clocks ----------------------------------------------------------------------------------

#define CLOCK "/usr/lib/%s/faketime/libfaketimeMT.so.1"

static void set_clock(const char *offset)
{
    run_write("clock", offset, strlen(offset));
}

// Of the processes that are started between the two; files have the times that they have.
static void take_the_clock(void)
{
    static const char *const machines[] = {"x86_64-linux-gnu", "aarch64-linux-gnu"};
    char library[100] = "";
    for (size_t i = 0; i < 2 && access(library, R_OK) != 0; i++)
        snprintf(library, sizeof library, CLOCK, machines[i]);
    if (access(library, R_OK) != 0)
        test_skip("no %s: install the package faketime", library);
    set_clock("+0");
    setenv("LD_PRELOAD", library, 1);
    setenv("ASAN_OPTIONS", "verify_asan_link_order=0", 1); // it stands before the sanitizer
    setenv("FAKETIME_TIMESTAMP_FILE", run_path("clock"), 1);
    setenv("FAKETIME_NO_CACHE", "1", 1);
    setenv("FAKETIME_DONT_FAKE_MONOTONIC", "1", 1);
    setenv("NO_FAKE_STAT", "1", 1);
}

static void give_the_clock_back(void)
{
    unsetenv("LD_PRELOAD");
}

// A day ahead, two days back, on all boxes at once, and a worker is lost meanwhile: all rows are
// trained, once, checkpoints are made, and nothing waits for the clock to come back.
static void clocks_are_set(void **state)
{
    (void)state;
    process up;
    char files[400];
    append_rows(320, true, 1);
    snprintf(files, sizeof files, "stream.files=%s", run_path("rows.tsv"));
    take_the_clock();
    run_start_up(&up, live, "out", NULL,
                 (const char *const[]){files, "on_worker_loss=restart", "checkpoint.every_s=0.3",
                                       "checkpoint.keep_s=3600", "stream.samples_max=1600", NULL});
    give_the_clock_back();
    run_await_iterations(&up, "out", 10);
    run_await_checkpoint(&up, "out");
    set_clock("+1d");
    append_rows(320, false, 2);
    run_await_iterations(&up, "out", 20);
    set_clock("-1d");
    append_rows(320, false, 3);
    run_await_iterations(&up, "out", 30);
    assert_int_equal(kill(process_child(&up, "worker"), SIGKILL), 0);
    set_clock("+0");
    append_rows(640, false, 4);
    run_must_end(&up, 0);
    run_must_say(&up, "restart 1: worker");
    if (strstr(up.text, "silent") || strstr(up.text, "restart 2"))
        fail_msg("more was lost than the worker:\n%s", up.text);
    process_fini(&up);
    assert_true(run_samples("out") == 1600);
    run_must_train_once("out", 1600, (uint32_t[]){2}, 1);
}

// ---- boxes -----------------------------------------------------------------------------------

// One worker, so that sums have one order wherever rows are. Box c is not asked for.
static const char site[] =
    "{\"boxes\": [{\"name\": \"a\", \"gbps\": 1, \"shards\": 1},"
    "  {\"name\": \"s\", \"gbps\": 1, \"workers\": 0, \"shards\": 1},"
    "  {\"name\": \"c\", \"gbps\": 1, \"spare\": true}],"
    " \"batch\": {\"samples_per_worker\": 16},"
    " \"stream\": {\"format\": \"synthetic\", \"samples_max\": 120000,"
    "  \"synthetic\": {\"scale\": 0.001}},"
    " \"model\": {\"embedding_dim\": 4, \"mlp\": [8, 4]}, \"links\": {\"pin\": true},"
    " \"dispatch\": {\"measure_compute\": false}, \"checkpoint\": {\"at_end\": true},"
    " \"cache\": {\"rows\": 700}, \"timeouts\": {\"start_s\": 20}}";

// In the metrics once a shard has said what it holds.
#define VITALS "\"row_bytes_max\":8589934592"

static void same_model(const char *out, const char *other, uint32_t shards)
{
    char name[64];
    run_must_equal(out, other, "model/dense.bin");
    for (uint32_t s = 0; s < shards; s++) {
        snprintf(name, sizeof name, "model/rows-%03u-of-%03u.bin", s, shards);
        run_must_equal(out, other, name);
    }
    run_same_line(out, other, "\"samples\"");
    run_same_line(out, other, "\"logloss\"");
}

// The coordinator has no standby, and then is taken for one.
static void promote_who_leads(void)
{
    process p;
    size_t size;
    char standby[128], *running = run_file("out", "running.json", &size);
    const char *at = strstr(running, "\"coordinator\": \"");
    ask("promote", NULL, NULL, 1, "coordinator.standby: no standby is named");
    if (!at)
        fail_msg("no address in %s", running);
    at = strchr(at + strlen("\"coordinator\": \""),
                ':'); // its port; by another name, as it is no other place
    snprintf(standby, sizeof standby, "coordinator.standby=localhost%.*s", (int)strcspn(at, "\""),
             at);
    free(running);
    run_start(&p,
              (const char *const[]){"promote", run_path("out"), "--set", standby, "--set",
                                    "checkpoint.every_s=60", NULL},
              NULL);
    run_must_end(&p, 1);
    run_must_say(&p, "the process there already leads the run");
    process_fini(&p);
}

// Rows go to the shard that is left, and back: the model is that of a run in which nothing
// happened.
static void a_box_with_rows_goes_and_comes(void **state)
{
    (void)state;
    process up;
    run_up(site, "calm", NULL, NULL);
    run_start_up(&up, site, "out", NULL, NULL);
    run_await_records(&up, "out", VITALS, 2);
    assert_int_equal(count_in("metrics.jsonl", "\"keys\":null"), 0); // the first record has them
    ask("drain", "b", NULL, 1, "no box of that name");
    ask("add", "s", NULL, 1, "already takes part in this run");
    ask("drain", "c", NULL, 1, "takes no part in this run");
    ask("drain", "a", NULL, 1, "has the last worker");
    promote_who_leads();
    ask("drain", "s", NULL, 0, "s leaves: all processes start again from iteration");
    run_await_records(&up, "out", "\"boxes\":[\"a\"],\"pause_s\"", 1);
    ask("add", "s", NULL, 0, "s joins: all processes start again from iteration");
    run_await_records(&up, "out", "\"boxes\":[\"a\",\"s\"],\"pause_s\"", 1);
    run_must_end(&up, 0);
    process_fini(&up);
    same_model("out", "calm", 2);
}

// Until its shards have said what they hold.
static void drain_once_it_can(const char *box)
{
    for (bool again = true; again;) {
        process p;
        const char *const words[] = {"drain", run_path("out"), box, NULL};
        run_start(&p, words, NULL);
        const int status = process_end(&p, RUN_CASE_S);
        again = strstr(p.text, "ask again in a few seconds") != NULL;
        if (status && !again)
            fail_msg("%s", p.text);
        process_fini(&p);
    }
}

static void add_new(int status, const char *says)
{
    process p;
    const char *const words[] = {"add", run_path("out"), "n", "--gbps", "1", "--workers",
                                 "0",   "--shards",      "1", NULL};
    run_start(&p, words, NULL);
    run_must_end(&p, status);
    run_must_say(&p, says);
    process_fini(&p);
}

// A box that the configuration lacks gets rows, and gives them back: `up` starts its shard by
// itself.
static void a_box_that_is_new_comes_and_goes(void **state)
{
    (void)state;
    process up;
    run_up(site, "calm", NULL, NULL);
    run_start_up(&up, site, "out", NULL, NULL);
    run_await_records(&up, "out", VITALS, 2);
    ask("add", "n", NULL, 1, "`lanyard add RUN BOX --gbps G` says what it is");
    add_new(0, "n joins: all processes start again from iteration");
    run_await_records(&up, "out", "\"boxes\":[\"a\",\"s\",\"n\"],\"pause_s\"", 1);
    add_new(1, "n: is already a box of this run");
    drain_once_it_can("n");
    run_await_records(&up, "out", "\"boxes\":[\"a\",\"s\"],\"pause_s\"", 1);
    run_must_end(&up, 0);
    process_fini(&up);
    same_model("out", "calm", 2);
}

// The iteration from which all started anew, as `up` has said behind at.
static uint64_t anew_at(const process *up, const char *what)
{
    static const char said[] = "all processes start again from iteration ";
    const char *at = strstr(up->text, what);
    at = at ? strstr(at, said) : NULL;
    if (!at)
        fail_msg("no \"%s: %s\" in:\n%s", what, said, up->text);
    return strtoull(at + strlen(said), NULL, 10);
}

// A worker less: as if the run had been ended there, and gone on by hand without it.
static void a_worker_leaves_as_by_hand(void **state)
{
    (void)state;
    process up;
    const char *const both = "boxes=[{\"name\": \"a\", \"gbps\": 1, \"shards\": 1},"
                             "{\"name\": \"b\", \"gbps\": 1, \"shards\": 1}]";
    const char *const one = "boxes=[{\"name\": \"a\", \"gbps\": 1, \"shards\": 1},"
                            "{\"name\": \"b\", \"gbps\": 1, \"shards\": 1, \"spare\": true}]";
    char bound[64];
    run_start_up(&up, site, "out", NULL, (const char *const[]){both, NULL});
    run_await_records(&up, "out", VITALS, 2);
    ask("drain", "b", NULL, 0, "b leaves: all processes start again from iteration");
    run_must_end(&up, 0);
    const uint64_t samples = 32 * anew_at(&up, "b leaves");
    process_fini(&up);
    snprintf(bound, sizeof bound, "stream.samples_max=%" PRIu64, samples);
    run_up(site, "hand", NULL, (const char *const[]){both, bound, NULL});
    run_up(site, "hand", "--resume", (const char *const[]){one, NULL});
    same_model("out", "hand", 1);
    size_t size; // somebody wanted it so: nobody is to be told that a worker is missing
    char *records = run_file("out", "metrics.jsonl", &size);
    if (!strstr(records, "\"out\":[]") || strstr(records, "\"out\":[1]"))
        fail_msg("a worker of a drained box is missed: %s", records);
    free(records);
}

// Rates change at an iteration: as if the run had been ended there, and gone on by hand with them.
static void rates_change_as_by_hand(void **state)
{
    (void)state;
    process up;
    static const char rows[] = "optimizer.rows.learning_rate=0.3",
                      dense[] = "optimizer.dense.learning_rate=0.001";
    char first[64], second[64];
    run_start_up(&up, site, "out", NULL, NULL);
    run_await_iterations(&up, "out", 50);
    ask("set", "optimizer.rows.learning_rate", "-1", 1, "out of range");
    ask("set", "optimizer.rows.learning_rate", "0.3", 0, "all processes start again");
    run_await_records(&up, "out", "\"pause_s\"", 1);
    ask("set", "optimizer.dense.learning_rate", "0.001", 0, "all processes start again");
    run_must_end(&up, 0);
    snprintf(first, sizeof first, "stream.samples_max=%" PRIu64,
             16 * anew_at(&up, "optimizer.rows.learning_rate changes"));
    snprintf(second, sizeof second, "stream.samples_max=%" PRIu64,
             16 * anew_at(&up, "optimizer.dense.learning_rate changes"));
    run_must_say(&up, "asked: optimizer.rows.learning_rate is 0.3 from the next checkpoint on");
    process_fini(&up);
    run_up(site, "hand", NULL, (const char *const[]){first, NULL});
    run_up(site, "hand", "--resume", (const char *const[]){second, rows, NULL});
    run_up(site, "hand", "--resume", (const char *const[]){rows, dense, NULL});
    same_model("out", "hand", 2);
}

// The shard that would be left lacks memory.
static void rows_need_room(void **state)
{
    (void)state;
    process up;
    run_start_up(&up, site, "out", NULL,
                 (const char *const[]){"ps.memory_bytes_max=1048576", "stream.samples_max=0",
                                       "model.embedding_dim=64", NULL});
    run_await_records(&up, "out", "\"row_bytes_max\":1048576", 2);
    ask("drain", "s", NULL, 1, "the 1 shards that would be left hold");
    kill(up.pid, SIGINT);
    run_must_end(&up, 0);
    process_fini(&up);
}

TEST_MAIN(TEST(a_late_record_is_seen), TEST_SLOW(values_are_set_while_it_trains, 120),
          TEST_SLOW(clocks_are_set, 120), TEST_SLOW(a_box_with_rows_goes_and_comes, 120),
          TEST_SLOW(a_box_that_is_new_comes_and_goes, 120),
          TEST_SLOW(a_worker_leaves_as_by_hand, 120), TEST_SLOW(rates_change_as_by_hand, 120),
          TEST_SLOW(rows_need_room, 120), TEST_SLOW(what_is_forgotten_is_nowhere, 120),
          TEST_SLOW(nor_on_disk, 120), TEST_SLOW(a_kill_brings_nobody_back, 120))
