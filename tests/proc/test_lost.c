// A worker that sits out is lost: the run goes on from where it is, and the model is the one that
// it would have been; and it is taken back.
#include "tests/support/test.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/rt_base.h"
#include "tests/support/process_case.h"
#include "tests/support/run_case.h"

#define GOES_ON "the run goes on without it"

// A peer may be silent for longer on a machine that does much else.
static const char *config(void)
{
    static char text[1000];
    snprintf(text, sizeof text,
             "{\"workers\": 3, \"ps\": {\"shards\": 2}, \"batch\": {\"samples_per_worker\": 16},"
             " \"stream\": {\"format\": \"synthetic\", \"samples_max\": 48000,"
             "  \"synthetic\": {\"scale\": 0.001, \"clusters\": 4}},"
             " \"model\": {\"embedding_dim\": 4, \"mlp\": [8, 4]},"
             " \"dispatch\": {\"measure_compute\": false}, \"links\": {\"pin\": true},"
             " \"cache\": {\"rows\": 2000}, \"restarts_max\": 1, \"on_worker_loss\": \"shrink\","
             " \"timeouts\": {\"start_s\": 20, \"peer_s\": %u, \"rejoin_s\": 100},"
             " \"checkpoint\": {\"every_iterations\": 100, \"full_every\": 2, \"keep\": 3}}",
             2 * test_limit_factor());
    return text;
}

// A run of which a worker that sits out is gone after the first checkpoint; others make the rest of
// the checkpoints, and the model.
static void run_and_lose(const char *participants, uint32_t lost, int signal)
{
    process p = {0};
    char set[64], gone[64];
    snprintf(set, sizeof set, "dispatch.participants=%s", participants);
    snprintf(gone, sizeof gone, "worker %u ", lost);
    const char *const sets[] = {set, NULL};
    run_up(config(), "calm", NULL, sets);
    run_start_up(&p, config(), "hit", NULL, sets);
    run_await_checkpoint(&p, "hit");
    const pid_t child = process_worker(&p, lost);
    assert_int_equal(kill(child, signal), 0);
    const size_t at = process_await(&p, 0, GOES_ON, RUN_CASE_S);
    if (signal == SIGSTOP)
        assert_int_equal(kill(child, SIGCONT), 0);
    run_must_end(&p, 0);
    run_must_say(&p, gone);
    if (strstr(p.text + at, "going on after iteration") || strstr(p.text, "restart"))
        fail_msg("it went back:\n%s", p.text);
    process_fini(&p);
    run_must_be_the_same("hit", "calm", 2);
    run_must_train_once("hit", 48000, (uint32_t[]){3}, 1);
}

static void killed(void **state)
{
    (void)state;
    run_and_lose("[0,1]", 2, SIGKILL);
}

// Another one gives the dense weights then, to checkpoints and to the model.
static void worker_0_killed(void **state)
{
    (void)state;
    run_and_lose("[1,2]", 0, SIGKILL);
}

// It stands still, and finds when it goes on that the run does not know it any more.
static void frozen(void **state)
{
    (void)state;
    run_and_lose("[0,2]", 1, SIGSTOP);
}

// Who trains has rows that nobody else has: all go back to a checkpoint.
static void one_that_trains(void **state)
{
    (void)state;
    process p = {0};
    run_start_up(&p, config(), "hit", NULL,
                 (const char *const[]){"dispatch.participants=[0,1]", NULL});
    run_await_checkpoint(&p, "hit");
    assert_int_equal(kill(process_worker(&p, 1), SIGKILL), 0);
    process_await(&p, 0, "worker 1 was lost; 2 workers go on", RUN_CASE_S);
    process_await(&p, 0, "going on after iteration", RUN_CASE_S);
    run_must_end(&p, 0);
    if (strstr(p.text, GOES_ON " from"))
        fail_msg("it was spared:\n%s", p.text);
    process_fini(&p);
}

// Started again it waits, and is taken back with a checkpoint.
static void it_is_taken_back(void **state)
{
    (void)state;
    process p = {0};
    run_start_up(&p, config(), "hit", NULL,
                 (const char *const[]){"dispatch.participants=[0,1]", "timeouts.rejoin_s=0.5",
                                       "stream.samples_max=100000000", NULL});
    run_await_checkpoint(&p, "hit");
    assert_int_equal(kill(process_worker(&p, 2), SIGKILL), 0);
    size_t at = process_await(&p, 0, GOES_ON, RUN_CASE_S);
    at = process_await(&p, at, "worker 2 is there again: it waits", RUN_CASE_S);
    at = process_await(&p, at, "workers are back: all processes start again", RUN_CASE_S);
    process_await(&p, at, "going on after iteration", RUN_CASE_S);
    run_await_going_on(&p, "hit", 3);
    assert_int_equal(kill(p.pid, SIGINT), 0);
    run_must_end(&p, 0);
    process_fini(&p);
    run_must_train_once("hit", run_samples("hit"), (uint32_t[]){3, 3}, 2);
}

// Who takes part changes every third iteration: some losses are spared, others are not, and every
// sample is trained once all the same.
static void whatever_it_does_just_then(void **state)
{
    (void)state;
    process p = {0};
    size_t at = 0;
    uint32_t records = 0;
    run_start_up(&p, config(), "hit", NULL,
                 (const char *const[]){"dispatch.participants=rotate", "timeouts.rejoin_s=2",
                                       "stream.samples_max=100000000", "restarts_max=100",
                                       "checkpoint.every_iterations=20", NULL});
    for (uint32_t i = 0; i < 4; i++) {
        run_await_checkpoint(&p, "hit");
        assert_int_equal(kill(process_worker(&p, 1), SIGKILL), 0);
        at = process_await(&p, at, "all processes start again", RUN_CASE_S);
        at = process_await(&p, at, "going on after iteration", RUN_CASE_S);
        run_await_going_on(&p, "hit", 3);
        records += 20;
        run_await_iterations(&p, "hit", records);
    }
    assert_int_equal(kill(p.pid, SIGINT), 0);
    run_must_end(&p, 0);
    process_fini(&p);
    run_must_train_once("hit", run_samples("hit"), (uint32_t[]){3, 3}, 2);
}

int main(int argc, char **argv)
{
    static const test_case cases[] = {
        TEST_SLOW(killed, 2 * RUN_CASE_S),           TEST_SLOW(worker_0_killed, 2 * RUN_CASE_S),
        TEST_SLOW(frozen, 2 * RUN_CASE_S),           TEST_SLOW(one_that_trains, RUN_CASE_S),
        TEST_SLOW(it_is_taken_back, 2 * RUN_CASE_S), TEST_SLOW(whatever_it_does_just_then, 300)};
    return test_run(cases, sizeof cases / sizeof cases[0], argc, argv);
}
