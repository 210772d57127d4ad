// The n-th allocation, write, sync, send of a process fails, n = 1, 2, 3...: the program must end
// with an error that says so, or with its work done; never by a signal, never not at all.
//
// tests/support/failing is loaded into the program. Beyond the first few n grow by a quarter each
// time; LANYARD_FAIL_ALL=1 takes every n (hours).
#include "tests/support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/rt_base.h"
#include "tests/support/process_case.h"

#define LIBRARY "build/release/tests/libfailing.so"
#define END_S 40.0
#define EVERY_MAX 12 // n up to this are all taken
#define RUNS_MAX 4000
#define CASE_S 10.0 // no new run begins after that: the bound on a busy machine

static const char *folder(void)
{
    static char path[200];
    if (!path[0])
        snprintf(path, sizeof path, "%s", test_directory());
    return path;
}

static const char config[] =
    "{\"workers\": 2, \"batch\": {\"samples_per_worker\": 16},"
    " \"stream\": {\"format\": \"synthetic\", \"samples_max\": 640,"
    "  \"synthetic\": {\"scale\": 0.001, \"clusters\": 4}},"
    " \"model\": {\"embedding_dim\": 4, \"mlp\": [8]}, \"cache\": {\"rows\": 600},"
    " \"checkpoint\": {\"every_iterations\": 8}, \"timeouts\": {\"start_s\": 5, \"peer_s\": 3}}";

static void must_be_clean(const process *one, int status, const char *order)
{
    static const char *const signs[] = {"by signal 6",    "by signal 11", "by signal 7",
                                        "internal error", "Assertion",    "corrupted"};
    bool clean = status >= 0 && status <= 3;
    for (size_t i = 0; i < RT_COUNT_OF(signs); i++)
        clean = clean && !strstr(one->text, signs[i]);
    bool says_why = status == 0 || strstr(one->text, "error: ") || strstr(one->text, "memory");
    if (!clean || !says_why)
        fail_msg("LANYARD_FAIL=\"%s\": exit status %d; it said:\n%s", order, status, one->text);
}

// One run with the n-th call failing; false when there is no n-th call.
static bool run_once(const char *command, const char *kind, unsigned long n,
                     const char *const *arguments, int *status_p)
{
    char order[64];
    process one = {0};
    snprintf(order, sizeof order, "%s %s %lu", command, kind, n);
    setenv("LANYARD_FAIL", order, 1);
    setenv("LD_PRELOAD", LIBRARY, 1);
    setenv("ASAN_OPTIONS", "verify_asan_link_order=0", 1); // it stands before the sanitizer
    process_start(&one, arguments);
    unsetenv("LD_PRELOAD");
    *status_p = process_end(&one, END_S);
    must_be_clean(&one, *status_p, order);
    bool happened = strstr(one.text, "failing: ") != NULL;
    process_fini(&one);
    return happened;
}

static void fail_each(const char *command, const char *kind, const char *const *arguments)
{
    const bool all = getenv("LANYARD_FAIL_ALL") != NULL;
    const uint64_t end_ns = rt_now_ns() + (uint64_t)(CASE_S * 1e9);
    unsigned long n = 1, runs = 0;
    int status;
    for (; runs < RUNS_MAX && (all || rt_now_ns() < end_ns); runs++) {
        if (!run_once(command, kind, n, arguments, &status))
            break;
        n += all || n < EVERY_MAX ? 1 : n / 4;
    }
    print_message("%s, %s: %lu runs, the last n is %lu\n", command, kind, runs, n);
    if (runs == 0)
        fail_msg("no %s of `lanyard %s` ever failed", kind, command);
}

static void prepare(void)
{
    char path[300];
    process_lanyard();
    if (access(LIBRARY, R_OK) != 0)
        test_skip("%s is not there", LIBRARY);
    snprintf(path, sizeof path, "%s/config.json", folder());
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(config, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void fail_in_run(const char *command, const char *kind)
{
    char path[300], out[300];
    prepare();
    snprintf(path, sizeof path, "%s/config.json", folder());
    snprintf(out, sizeof out, "%s/out", folder());
    const char *const arguments[] = {process_lanyard(), "up", path, "--out", out, NULL};
    fail_each(command, kind, arguments);
}

static void memory_of_reading_a_configuration(void **state)
{
    (void)state;
    prepare();
    const char *const arguments[] = {
        process_lanyard(),       "check", "configs/formats/avazu.json", "--set",
        "stream.files=Makefile", NULL};
    fail_each("check", "memory", arguments);
}

static void memory_of_a_simulation(void **state)
{
    (void)state;
    char path[300];
    prepare();
    snprintf(path, sizeof path, "%s/config.json", folder());
    const char *const arguments[] = {process_lanyard(), "sim", path, NULL};
    fail_each("sim", "memory", arguments);
}

#define RUN_CASE(command, kind)                     \
    static void kind##_of_a_##command(void **state) \
    {                                               \
        (void)state;                                \
        fail_in_run(#command, #kind);               \
    }
RUN_CASE(coordinator, memory)
RUN_CASE(ps, memory)
RUN_CASE(worker, memory)
RUN_CASE(coordinator, write)
RUN_CASE(ps, write)
RUN_CASE(worker, write)
RUN_CASE(coordinator, sync)
RUN_CASE(ps, sync)
RUN_CASE(coordinator, send)
RUN_CASE(ps, send)
RUN_CASE(worker, send)

// Ctrl-C is for `up` alone: also that which comes before its children are a group of their own.
static void no_child_is_ended_by_ctrl_c(void **state)
{
    (void)state;
    char path[300], out[300];
    int status;
    prepare();
    snprintf(path, sizeof path, "%s/config.json", folder());
    snprintf(out, sizeof out, "%s/out", folder());
    const char *const arguments[] = {process_lanyard(), "up", path, "--out", out, NULL};
    assert_true(run_once("up", "group", 1, arguments, &status));
    assert_int_equal(status, 0);
}

#define LIMIT_S 120

TEST_MAIN(TEST(no_child_is_ended_by_ctrl_c), TEST_SLOW(memory_of_reading_a_configuration, LIMIT_S),
          TEST_SLOW(memory_of_a_simulation, LIMIT_S), TEST_SLOW(memory_of_a_coordinator, LIMIT_S),
          TEST_SLOW(memory_of_a_ps, LIMIT_S), TEST_SLOW(memory_of_a_worker, LIMIT_S),
          TEST_SLOW(write_of_a_coordinator, LIMIT_S), TEST_SLOW(write_of_a_ps, LIMIT_S),
          TEST_SLOW(write_of_a_worker, LIMIT_S), TEST_SLOW(sync_of_a_coordinator, LIMIT_S),
          TEST_SLOW(sync_of_a_ps, LIMIT_S), TEST_SLOW(send_of_a_coordinator, LIMIT_S),
          TEST_SLOW(send_of_a_ps, LIMIT_S), TEST_SLOW(send_of_a_worker, LIMIT_S))
