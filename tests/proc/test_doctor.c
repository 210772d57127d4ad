// `lanyard doctor` beside a coordinator that waits for its members: what it learns of it.
#include "tests/support/test.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/rt_base.h"
#include "tests/support/run_case.h"
#include "tests/support/visitors.h"

#define SAY_S 30.0

typedef struct {
    char coordinator[64], key[300], allow[300], server[300]; // KEY=VALUE
} box;

static void make_keys(const char *name)
{
    process p = {0};
    const char *const all[] = {process_lanyard(), "keygen", run_folder(), "--name", name, NULL};
    assert_int_equal(process_run(&p, all, SAY_S), 0);
    process_fini(&p);
}

static void let_in(const char *list, const char *name)
{
    char from[600], to[600], line[256];
    snprintf(to, sizeof to, "%s/%s", run_folder(), list);
    (void)mkdir(to, 0755);
    snprintf(from, sizeof from, "%s/%s.public", run_folder(), name);
    snprintf(to + strlen(to), sizeof to - strlen(to), "/%s.public", name);
    FILE *in = fopen(from, "r"), *out = fopen(to, "w");
    assert_true(in && out && fgets(line, sizeof line, in));
    assert_true(fputs(line, out) >= 0);
    fclose(in);
    assert_int_equal(fclose(out), 0);
}

static box box_of(const char *name, const char *list, unsigned port)
{
    box b;
    snprintf(b.coordinator, sizeof b.coordinator, "network.coordinator=127.0.0.1:%u", port);
    snprintf(b.key, sizeof b.key, "security.key=%s/%s.secret", run_folder(), name);
    snprintf(b.allow, sizeof b.allow, "security.allow=%s/%s", run_folder(), list);
    snprintf(b.server, sizeof b.server, "security.server_key=%s/hub.public", run_folder());
    return b;
}

static void ask_doctor(const box *b, const char *set, int want, const char *text)
{
    process p = {0};
    const char *const all[] = {process_lanyard(),
                               "doctor",
                               "configs/demo.json",
                               "--set",
                               b->coordinator,
                               "--set",
                               b->key,
                               "--set",
                               b->allow,
                               "--set",
                               b->server,
                               "--set",
                               set,
                               NULL};
    const int status = process_run(&p, all, SAY_S);
    if (status != want || !strstr(p.text, text))
        fail_msg("exit status %d, expected %d and \"%s\"; it said:\n%s", status, want, text,
                 p.text);
    process_fini(&p);
}

// The port is open to all three; only one of them would be let in.
static void the_coordinator_is_asked(void **state)
{
    (void)state;
    static const char *const names[] = {"hub", "known", "unknown"};
    const unsigned port = test_free_port();
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        make_keys(names[i]);
        let_in("all", names[i]);
        if (i < 2)
            let_in("some", names[i]);
    }
    const box hub = box_of("hub", "some", port), known = box_of("known", "all", port),
              unknown = box_of("unknown", "all", port);
    // On one machine every box has the coordinator's address, and all but one another key.
    ask_doctor(&known, "seed=1", 1,
               "belongs on this box by its address, and on box hub by its key");
    process p = {0};
    const char *const coordinator[] = {
        process_lanyard(), "coordinator", "configs/demo.json", "--set", hub.coordinator, "--set",
        hub.key,           "--set",       hub.allow,           "--set", hub.server,      NULL};
    process_start(&p, coordinator);
    process_await(&p, 0, "listening on", SAY_S);
    ask_doctor(&hub, "seed=1", 0, "would let this box in: it knows the key, same build");
    ask_doctor(&known, "seed=1", 1, "would let this box in: it knows the key, same build");
    ask_doctor(&known, "seed=2", 1, "would not let this box in: visitor ");
    ask_doctor(&known, "seed=2", 1, "runs with another configuration");
    ask_doctor(&unknown, "seed=1", 1, "refuses this box's key");
    for (int i = 0; i < 3; i++) // it was none of the run, and leaves its place to the next
        ask_doctor(&hub, "seed=1", 0, "would let this box in");
    assert_int_equal(kill(p.pid, SIGINT), 0);
    assert_int_equal(process_end(&p, SAY_S), 1);
    run_must_say(&p, "interrupted before the run began");
    process_fini(&p);
}

// Half of the numbers of visitors are taken: doctor finds one of the others.
static void others_ask_too(void **state)
{
    (void)state;
    char coordinator[64], address[64];
    process hub = {0}, p = {0};
    visitors others;
    static const char nothing[] = "nothing";
    const unsigned port = test_free_port();
    snprintf(coordinator, sizeof coordinator, "network.coordinator=127.0.0.1:%u", port);
    snprintf(address, sizeof address, "tcp://127.0.0.1:%u", port);
    const char *const run[] = {process_lanyard(), "coordinator", "configs/demo.json",
                               "--set",           coordinator,   NULL};
    process_start(&hub, run);
    process_await(&hub, 0, "listening on", SAY_S);
    visitors_take(&others, address, 0, RT_RANKS_MAX / 2, RT_MESSAGE_CONTROL, nothing,
                  strlen(nothing));
    const char *const ask[] = {process_lanyard(), "doctor",    "configs/demo.json",
                               "--set",           coordinator, NULL};
    (void)process_run(&p, ask, SAY_S);
    run_must_say(&p, "would let this box in: same build");
    process_fini(&p);
    visitors_leave(&others);
    assert_int_equal(kill(hub.pid, SIGINT), 0);
    (void)process_end(&hub, SAY_S);
    process_fini(&hub);
}

static void doctor_out(const char *out, int want, const char *text)
{
    process p = {0};
    const char *const all[] = {process_lanyard(), "doctor", "configs/demo.json",
                               "--out",           out,      NULL};
    const int status = process_run(&p, all, SAY_S);
    if (status != want || !strstr(p.text, text))
        fail_msg("--out %s: exit status %d, expected %d and \"%s\"; it said:\n%s", out, status,
                 want, text, p.text);
    process_fini(&p);
}

static void a_folder_must_be_possible(void **state)
{
    (void)state;
    char out[600];
    snprintf(out, sizeof out, "%s/new", run_folder());
    doctor_out(out, 0, "new is not there; a run makes it");
    doctor_out(run_folder(), 0, "this user can write to");
    doctor_out("/no/such", 1,
               "FIX  rights     /no/such is not there, and a run cannot make it in "
               "/no: No such file");
    doctor_out("/etc/passwd", 1,
               "FIX  rights     this user cannot write to /etc/passwd: Not a "
               "directory");
}

// What follows a mark in what a command says, up to the end of the line; static, until the next
// call with another keep.
static const char *told(const char *command, const char *keys, const char *mark, int keep)
{
    static char texts[2][700];
    process p = {0};
    const char *const all[] = {process_lanyard(), command, "configs/demo.json",
                               "--set",           keys,    NULL};
    assert_int_equal(process_run(&p, all, SAY_S), 0);
    const char *at = strstr(p.text, mark);
    if (!at)
        fail_msg("%s: nothing of \"%s\" in:\n%s", command, mark, p.text);
    at += strlen(mark);
    snprintf(texts[keep], sizeof texts[keep], "%.*s", (int)strcspn(at, "\n"), at);
    process_fini(&p);
    return texts[keep];
}

// Where all is on one box.
static void check_and_doctor_say_the_same(void **state)
{
    (void)state;
    static const char *const keys[] = {"cache.distinct_keys=0", "cache.distinct_keys=500000",
                                       "dispatch.policy=bagpipe"};
    static const char workers[] = "on one box: 4 workers", model[] = "on one box: a model and";
    for (size_t i = 0; i < RT_COUNT_OF(keys); i++) {
        assert_string_equal(told("doctor", keys[i], "MB are available: 4 workers", 0),
                            told("check", keys[i], workers, 1));
        const char *disk = strstr(told("doctor", keys[i], " disk ", 0), "a model and");
        assert_non_null(disk);
        assert_string_equal(disk + strlen("a model and"), told("check", keys[i], model, 1));
        assert_true(!strstr(told("check", keys[i], workers, 1), "is not known") == (i == 1));
    }
    // 16 floats, as many of Adagrad's state, key and version; the dense part; all of it twice.
    const double mb = strtod(strstr(told("check", keys[1], model, 1), "about ") + 6, NULL);
    test_close(mb, 2 * 500000 * (16 * 4 + 16 * 4 + 12) * 1e-6 + 5.8, 0.01, 0, "MB of disk");
}

// What the coordinator takes, in MB, with this setting.
static double coordinator_mb(const char *set)
{
    const char *at = strstr(told("check", set, "on one box: 4 workers", 0), "the coordinator (");
    assert_non_null(at);
    return strtod(at + strlen("the coordinator ("), NULL);
}

// A batch of demo.json: 1,024 samples of a label, its weight, 13 numbers, the same as they were read,
// a place, and of 26 keys; in look-ahead each key is a use, and each that is new 16 bytes, of which
// three of four may be free.
static void batches_in_sight_take_memory(void **state)
{
    (void)state;
    const double batch = 1024 * (8 + 13 * 12 + 4 + 26 * 8) * 1e-6, uses = 1024 * 26 * 72 * 1e-6;
    const double least = coordinator_mb("cache.lookahead=0");
    const double in_sequence = coordinator_mb("dispatch.policy=random");
    test_close(coordinator_mb("cache.lookahead=100") - least, 100 * (batch + uses), 0.01, 0, "MB");
    test_close(coordinator_mb("dispatch.window=32") - least, 31 * batch, 0.02, 0, "MB");
    test_close(coordinator_mb("dispatch.policy=bagpipe") - in_sequence, 199 * (batch + uses), 0.01,
               0, "MB");
    assert_non_null(
        told("check", "dispatch.policy=bagpipe", "batches in sight: 199 (cache.lookahead)", 0));
    assert_non_null(
        told("check", "dispatch.window=32", "batches in sight: 31 (dispatch.window)", 0));
}

// Decisions on snapshots see caches that are kept beside the workers'; stale copies have clocks.
static void caches_take_memory(void **state)
{
    (void)state;
    const double slots = 4 * 30000 * 1e-6, least = coordinator_mb("dispatch.policy=random");
    assert_true(least > 160 * slots);
    test_close(coordinator_mb("dispatch.policy=esd") - least, 56 * slots, 0.02, 0, "MB");
    // and a micro-batch more of rows, which leave a cache after the iteration
    const double more = 4 * (256 * 26 * 176 + 30000 * 16) * 1e-6;
    test_close(coordinator_mb("dispatch.policy=het") - least, more, 0.02, 0, "MB");
}

// The coordinator's box has the whole model, also where no shard is.
static void a_model_comes_to_the_coordinator(void **state)
{
    (void)state;
    char coordinator[64];
    process p = {0};
    snprintf(coordinator, sizeof coordinator, "network.coordinator=127.0.0.1:%u", test_free_port());
    const char *const all[] = {process_lanyard(),
                               "doctor",
                               "configs/demo.json",
                               "--set",
                               "cache.distinct_keys=500000",
                               "--set",
                               coordinator,
                               "--set",
                               "network.ps=[\"192.0.2.1:7001\"]",
                               "--set",
                               "security.insecure=true",
                               NULL};
    (void)process_run(&p, all, SAY_S); // the shard's box is nowhere
    run_must_say(&p, ": a model and its successor, about 14");
    run_must_say(&p, "MB are available: the coordinator (4");
    process_fini(&p);
}

// A container of 300 MB on a larger machine: what is there is what it may have, and each part of the
// sum is told.
static void a_group_bounds_the_box(void **state)
{
    (void)state;
    process p = {0};
    const char *const all[] = {process_lanyard(), "doctor", "configs/demo.json", NULL};
    process_in_group("memory.max", "300000000\n");
    assert_int_equal(process_run(&p, all, SAY_S), 1);
    run_must_say(&p, "FIX  memory     300.0 MB are available: 4 workers (");
    run_must_say(&p, " MB), 1 shard (");
    run_must_say(&p, " MB), the coordinator (");
    run_must_say(&p, " MB of memory, with 100.0 MB for each process itself");
    process_fini(&p);
}

TEST_MAIN(TEST(the_coordinator_is_asked), TEST(others_ask_too), TEST(a_folder_must_be_possible),
          TEST(check_and_doctor_say_the_same), TEST(batches_in_sight_take_memory),
          TEST(caches_take_memory), TEST(a_model_comes_to_the_coordinator),
          TEST(a_group_bounds_the_box))
