// A lost worker that comes back is taken back, and nothing else about the run changes: under `up`,
// and with every process started by itself and started again on failure, as systemd would.
#include "tests/support/test.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/rt_base.h"
#include "tests/support/process_case.h"
#include "tests/support/run_case.h"

#define WORKERS 3u
#define SAMPLES 48000u
// The case ends the run, once it has seen what it waits for.
#define ENDLESS "stream.samples_max=100000000"
#define RESTART_S "0.2" // between the end of a process and its next start

static const char config[] =
    "{\"workers\": 3, \"batch\": {\"samples_per_worker\": 16},"
    " \"stream\": {\"format\": \"synthetic\", \"samples_max\": 48000,"
    "  \"synthetic\": {\"scale\": 0.001, \"clusters\": 4}},"
    " \"model\": {\"embedding_dim\": 4, \"mlp\": [8, 4]},"
    " \"dispatch\": {\"measure_compute\": false},"
    " \"cache\": {\"rows\": 500}, \"restarts_max\": 1,"
    " \"timeouts\": {\"start_s\": 20, \"peer_s\": 2, \"rejoin_s\": 1},"
    " \"checkpoint\": {\"every_iterations\": 100, \"full_every\": 2, \"keep\": 3}}";

// Written once: processes that start again read it at any time.
static const char *config_path(void)
{
    static char path[300];
    if (*path)
        return path;
    snprintf(path, sizeof path, "%s/config.json", run_folder());
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(config, file) >= 0);
    assert_int_equal(fclose(file), 0);
    return path;
}

// ---- by `up` ---------------------------------------------------------------------------------

static void a_worker_comes_back(void **state)
{
    (void)state;
    process p = {0};
    char out[300];
    snprintf(out, sizeof out, "%s/hit", run_folder());
    const char *const arguments[] = {
        process_lanyard(),       "up",    config_path(), "--out", out, "--set",
        "on_worker_loss=shrink", "--set", ENDLESS,       NULL};
    process_start(&p, arguments);
    run_await_checkpoint(&p, "hit");
    assert_int_equal(kill(process_child(&p, "--rank 1"), SIGKILL), 0);
    const size_t at =
        process_await(&p, 0, "workers are back: all processes start again", RUN_CASE_S);
    process_await(&p, at, "going on after iteration", RUN_CASE_S);
    run_await_going_on(&p, "hit", 3);
    assert_int_equal(kill(p.pid, SIGINT), 0);
    run_must_end(&p, 0); // restarts_max is 1: the second start, a planned one, does not count
    run_must_say(&p, "worker 1 was lost; 2 workers go on");
    run_must_say(&p, "worker 1 is there again: it waits");
    process_fini(&p);
    run_must_train_once("hit", run_samples("hit"), (uint32_t[]){3, 2, 3}, 3);
}

// Lost again and again, it is done without: the others get on.
static void a_worker_that_flaps_is_put_aside(void **state)
{
    (void)state;
    process p = {0};
    char out[300];
    size_t at = 0;
    snprintf(out, sizeof out, "%s/hit", run_folder());
    const char *const arguments[] = {process_lanyard(),
                                     "up",
                                     config_path(),
                                     "--out",
                                     out,
                                     "--set",
                                     "on_worker_loss=shrink",
                                     "--set",
                                     "stream.samples_max=1000000000",
                                     "--set",
                                     "restarts_max=20",
                                     "--set",
                                     "timeouts.rejoin_s=2",
                                     "--set",
                                     "checkpoint.every_s=0.7",
                                     NULL};
    process_start(&p, arguments);
    run_await_checkpoint(&p, "hit");
    for (uint32_t i = 1; i <= 5; i++) {
        assert_int_equal(kill(process_child(&p, "--rank 1"), SIGKILL), 0);
        at = process_await(&p, at, "worker 1 was lost; 2 workers go on", RUN_CASE_S);
        if (i == 5)
            break;
        at = process_await(&p, at, "all processes start again", RUN_CASE_S);
        at = process_await(&p, at, "going on after iteration", RUN_CASE_S);
    }
    at = process_await(&p, at, "worker 1 was lost 5 times within 600 s: it is put aside",
                       RUN_CASE_S);
    process_await(&p, at, "going on after iteration", RUN_CASE_S);
    size_t size;
    uint32_t seen = 0;
    char *metrics = run_file("hit", "metrics.jsonl", &size);
    for (const char *one = metrics; one && (one = strstr(one, "\"complete\":true")); one++)
        seen++;
    free(metrics);
    run_await_records(&p, "hit", "\"complete\":true", seen + 5); // longer than it would stay away
    assert_int_equal(kill(p.pid, SIGINT), 0);
    run_must_end(&p, 0);
    if (strstr(p.text + at, "is there again"))
        fail_msg("it was taken back:\n%s", p.text + at);
    process_fini(&p);
}

// ---- one by one ------------------------------------------------------------------------------

// A coordinator, one shard, three workers, each under a shell that starts it again on failure.
typedef struct {
    char address[64], loss[64], out[300], extra[160]; // settings, the last one of the case
    uint32_t absent;                                  // mask of workers that are not started
    process coordinator, shard, workers[WORKERS];
} boxes;

// Starts it again as the units do, which say after which statuses not. The shell leads a group of
// its own, so that a box can be lost as a whole. extra: one more setting.
static void start_box_with(boxes *b, process *p, const char *role, const char *rank,
                           const char *extra)
{
    char command[2000];
    snprintf(command, sizeof command,
             "left=$(sed -n s/^RestartPreventExitStatus=//p configs/systemd/lanyard-%s*.service);"
             "while '%s' %s '%s' --set %s --set %s --set %s %s %s; code=$?;"
             " case \" 0 $left \" in *\" $code \"*) exit $code; esac; do sleep " RESTART_S "; done",
             role, process_lanyard(), role, config_path(), b->address, b->loss, extra,
             strcmp(role, "coordinator") == 0 ? "--restart --out" : "--rank", rank);
    const char *const arguments[] = {"/usr/bin/setsid", "/bin/sh", "-c", command, NULL};
    *p = (process){0};
    process_start(p, arguments);
}

static void start_box(boxes *b, process *p, const char *role, const char *rank)
{
    start_box_with(b, p, role, rank, b->extra);
}

static void start_boxes_without_shard(boxes *b, const char *out, const char *loss)
{
    snprintf(b->address, sizeof b->address, "network.coordinator=127.0.0.1:%u", test_free_port());
    snprintf(b->loss, sizeof b->loss, "on_worker_loss=%s", loss);
    snprintf(b->out, sizeof b->out, "%s/%s", run_folder(), out);
    for (uint32_t w = 0; w < WORKERS; w++) {
        if (!(b->absent >> w & 1))
            start_box(b, &b->workers[w], "worker", (const char *[]){"0", "1", "2"}[w]);
    }
    start_box(b, &b->coordinator, "coordinator", b->out);
}

static void start_boxes(boxes *b, const char *out, const char *loss)
{
    start_boxes_without_shard(b, out, loss);
    start_box(b, &b->shard, "ps", "0");
}

static void lose_box(process *p)
{
    assert_int_equal(kill(-p->pid, SIGKILL), 0);
    (void)process_end(p, RUN_CASE_S);
    process_fini(p);
}

static void boxes_must_end(boxes *b, int status)
{
    run_must_end(&b->coordinator, status);
    run_must_end(&b->shard, status);
    for (uint32_t w = 0; w < WORKERS; w++)
        run_must_end(&b->workers[w], status);
}

static void end_boxes(boxes *b)
{
    boxes_must_end(b, 0);
}

static void fini_boxes(boxes *b)
{
    process_fini(&b->coordinator);
    process_fini(&b->shard);
    for (uint32_t w = 0; w < WORKERS; w++)
        process_fini(&b->workers[w]);
}

// A run without an end loses a worker, and goes on without it from a checkpoint.
static void start_and_lose(boxes *b, const char *rank)
{
    char text[64];
    start_boxes(b, "hit", "shrink");
    run_await_checkpoint(&b->coordinator, "hit");
    const pid_t leads = process_child(&b->coordinator, "coordinator");
    const pid_t stays = process_child(&b->workers[2], "worker");
    lose_box(&b->workers[*rank - '0']);
    snprintf(text, sizeof text, "worker %s is not there: the run goes on without it", rank);
    const size_t at = process_await(&b->coordinator, 0, text, RUN_CASE_S);
    process_await(&b->coordinator, at, "going on after iteration", RUN_CASE_S);
    assert_int_equal(process_child(&b->coordinator, "coordinator"), leads);
    assert_int_equal(process_child(&b->workers[2], "worker"), stays);
}

// Once it was taken back, and all train again, the run is ended. What was planned needs nobody who
// starts processes again: those that are there stay.
static void take_back_and_end(boxes *b)
{
    const process *all[] = {&b->coordinator, &b->shard, &b->workers[2]};
    const char *const roles[] = {"coordinator", "ps", "worker"};
    pid_t before[3];
    for (size_t i = 0; i < 3; i++)
        before[i] = process_child(all[i], roles[i]);
    const size_t at = process_await(&b->coordinator, 0,
                                    "workers are back: all processes start again", RUN_CASE_S);
    process_await(&b->coordinator, at, "going on after iteration", RUN_CASE_S);
    run_await_going_on(&b->coordinator, "hit", 3);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(process_child(all[i], roles[i]), before[i]);
    assert_int_equal(kill(process_child(&b->coordinator, "coordinator"), SIGINT), 0);
    end_boxes(b);
    fini_boxes(b);
    run_must_train_once("hit", run_samples("hit"), (uint32_t[]){3, 2, 3}, 3);
}

static void a_box_comes_back(void **state)
{
    (void)state;
    boxes b = {.extra = ENDLESS};
    start_and_lose(&b, "1");
    start_box(&b, &b.workers[1], "worker", "1");
    process_await(&b.coordinator, 0, "worker 1 is there again: it waits", RUN_CASE_S);
    take_back_and_end(&b);
}

// Puts a file where checkpoints go: none is written, which takes nobody back; or undoes that.
static void block_checkpoints(const char *out, bool blocks)
{
    char directory[300], away[320];
    snprintf(directory, sizeof directory, "%s/%s/checkpoints", run_folder(), out);
    snprintf(away, sizeof away, "%s.away", directory);
    if (!blocks) {
        assert_int_equal(unlink(directory), 0);
        assert_int_equal(rename(away, directory), 0);
        return;
    }
    assert_int_equal(rename(directory, away), 0);
    FILE *file = fopen(directory, "w");
    assert_non_null(file);
    assert_int_equal(fclose(file), 0);
}

// One that comes back and is lost again while it waits changes nothing. It waits for as long as no
// checkpoint can be written.
static void a_box_comes_and_goes(void **state)
{
    (void)state;
    boxes b = {.extra = ENDLESS};
    start_and_lose(&b, "0");
    block_checkpoints("hit", true);
    start_box(&b, &b.workers[0], "worker", "0");
    const size_t at = process_await(&b.coordinator, 0, "worker 0 is there again", RUN_CASE_S);
    lose_box(&b.workers[0]);
    process_await(&b.coordinator, at, "which waited to be taken back, is gone again", RUN_CASE_S);
    block_checkpoints("hit", false);
    start_box(&b, &b.workers[0], "worker", "0");
    take_back_and_end(&b);
}

// With `restart` every kind of process may be lost: the run waits for it, and is the same.
static void every_box_is_lost(void **state)
{
    (void)state;
    boxes b = {.extra = "seed=1"};
    start_boxes(&b, "calm", "restart");
    end_boxes(&b);
    fini_boxes(&b);
    start_boxes(&b, "hit", "restart");
    run_await_checkpoint(&b.coordinator, "hit");
    lose_box(&b.workers[1]);
    start_box(&b, &b.workers[1], "worker", "1");
    run_await_iterations(&b.coordinator, "hit", 350);
    lose_box(&b.shard);
    start_box(&b, &b.shard, "ps", "0");
    run_await_iterations(&b.coordinator, "hit", 550);
    lose_box(&b.coordinator);
    start_box(&b, &b.coordinator, "coordinator", b.out);
    end_boxes(&b);
    run_must_say(&b.coordinator, "going on after iteration");
    fini_boxes(&b);
    run_must_train_once("hit", SAMPLES, (uint32_t[]){3}, 1);
    run_must_be_the_same("hit", "calm", 1);
}

// A shard that keeps its rows, and whose place another process has taken, does not ask for ever.
static void a_shard_that_was_replaced(void **state)
{
    (void)state;
    process shard = {0};
    boxes b = {.extra = "timeouts.start_s=4 --set " ENDLESS, .absent = 6};
    start_boxes_without_shard(&b, "hit", "shrink");
    const char *const arguments[] = {process_lanyard(),
                                     "ps",
                                     config_path(),
                                     "--rank",
                                     "0",
                                     "--set",
                                     b.address,
                                     "--set",
                                     b.loss,
                                     "--set",
                                     ENDLESS,
                                     "--set",
                                     "timeouts.start_s=4",
                                     NULL};
    process_start(&shard, arguments);
    run_await_checkpoint(&b.coordinator, "hit");
    assert_int_equal(kill(shard.pid, SIGSTOP), 0);
    start_box(&b, &b.shard, "ps", "0");
    (void)process_await(&b.coordinator, 0, "going on after iteration", RUN_CASE_S);
    assert_int_equal(kill(shard.pid, SIGCONT), 0);
    run_must_end(&shard, 3);
    run_must_say(&shard, "the rows stay in memory");
    run_must_say(&shard, "not taken in again: another ps 0 is connected already");
    process_fini(&shard);
    lose_box(&b.workers[0]);
    lose_box(&b.shard);
    lose_box(&b.coordinator);
}

// The name of the coordinator's box may be known later than a process starts: its unit starts it
// again.
static void an_unknown_name_is_tried_again(void **state)
{
    (void)state;
    process p = {0};
    const char *const arguments[] = {
        process_lanyard(),    "worker", config_path(), "--rank", "0", "--coordinator",
        "later.invalid:7000", NULL};
    process_start(&p, arguments);
    run_must_end(&p, 1); // 5 would keep it down
    run_must_say(&p, "later.invalid:7000: unknown host");
    process_fini(&p);
}

static void ask_for_box(const char *verb, int status, const char *says)
{
    process p;
    run_start(&p, (const char *const[]){verb, run_path("hit"), "b", NULL}, NULL);
    run_must_end(&p, status);
    run_must_say(&p, says);
    process_fini(&p);
}

// A box is drained: its processes end for good, and the others go on with its rows. Started again
// they wait, until the box is added.
static void a_box_is_drained_and_added(void **state)
{
    (void)state;
    boxes b = {.absent = 6};
    process second = {0};
    process *const all[] = {&b.coordinator, &b.shard, &second, &b.workers[0], &b.workers[1]};
    snprintf(b.extra, sizeof b.extra, "%s",
             "'boxes=[{\"name\":\"a\",\"gbps\":1,\"shards\":1},"
             "{\"name\":\"b\",\"gbps\":1,\"shards\":1}]' --set " ENDLESS);
    start_boxes(&b, "hit", "restart");
    start_box(&b, &b.workers[1], "worker", "1");
    start_box(&b, &second, "ps", "1");
    // Both shards have said what they hold.
    run_await_records(&b.coordinator, "hit", "\"row_bytes_max\":8589934592", 2);
    ask_for_box("drain", 0, "b leaves");
    run_must_end(&b.workers[1], 6);
    run_must_end(&second, 6);
    process_fini(&b.workers[1]);
    process_fini(&second);
    run_await_records(&b.coordinator, "hit", "\"boxes\":[\"a\"],\"pause_s\"", 1);
    ask_for_box("add", 1, "not there yet: worker 1, ps 1");
    start_box(&b, &b.workers[1], "worker", "1");
    start_box(&b, &second, "ps", "1");
    process_await(&b.coordinator, 0, "worker 1 is there; its box takes no part", RUN_CASE_S);
    process_await(&b.coordinator, 0, "ps 1 is there; its box takes no part", RUN_CASE_S);
    ask_for_box("add", 0, "b joins");
    run_await_records(&b.coordinator, "hit", "\"boxes\":[\"a\",\"b\"],\"pause_s\"", 1);
    assert_int_equal(kill(process_child(&b.coordinator, "coordinator"), SIGINT), 0);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        run_must_end(all[i], 0);
        process_fini(all[i]);
    }
    run_must_train_once("hit", run_samples("hit"), (uint32_t[]){2, 1, 2}, 3);
}

// ---- what starting again does not mend -------------------------------------------------------

// Damages every checkpoint's part on the coordinator's box.
static void damage_all(const char *out)
{
    char command[700];
    snprintf(
        command, sizeof command,
        "for one in '%s/%s'/checkpoints/ckpt-*/planner.bin; do"
        " printf damaged | dd of=\"$one\" bs=1 seek=100 conv=notrunc status=none || exit 1; done",
        run_folder(), out);
    assert_int_equal(system(command), 0);
}

// Nobody goes on trying: all say why, and stay down.
static void nothing_left_to_start_from(void **state)
{
    (void)state;
    boxes b = {.extra = "stream.samples_max=10000000"};
    start_boxes(&b, "hit", "restart");
    run_await_checkpoint(&b.coordinator, "hit");
    lose_box(&b.coordinator);
    damage_all("hit");
    start_box(&b, &b.coordinator, "coordinator", b.out);
    boxes_must_end(&b, 5);
    run_must_say(&b.coordinator, "hit/checkpoints: no checkpoint can be read");
    run_must_say(&b.shard, "hit/checkpoints: no checkpoint can be read");
    run_must_say(&b.workers[2], "hit/checkpoints: no checkpoint can be read");
    fini_boxes(&b);
}

// The dense part is read by the workers: what one of them finds ends the run for all.
static void a_checkpoint_of_another_model(void **state)
{
    (void)state;
    boxes b = {.extra = "stream.samples_max=10000000"};
    start_boxes(&b, "hit", "restart");
    run_await_checkpoint(&b.coordinator, "hit");
    lose_box(&b.coordinator);
    lose_box(&b.shard);
    for (uint32_t w = 0; w < WORKERS; w++)
        lose_box(&b.workers[w]);
    b = (boxes){.extra = "model.mlp=[9,4]"};
    start_boxes(&b, "hit", "restart");
    boxes_must_end(&b, 5);
    run_must_say(&b.coordinator, " failed: ");
    fini_boxes(&b);
}

// The box with another configuration is named and stays down; the others wait for it.
static void a_box_with_another_configuration(void **state)
{
    (void)state;
    boxes b = {.extra = "seed=1", .absent = 2};
    process other;
    start_boxes(&b, "hit", "restart");
    start_box_with(&b, &other, "worker", "1", "seed=2");
    run_must_end(&other, 5);
    run_must_say(&other, "worker 1 runs with another configuration");
    process_fini(&other);
    start_box(&b, &b.workers[1], "worker", "1");
    end_boxes(&b);
    fini_boxes(&b);
}

// ---- away at the end -------------------------------------------------------------------------

// A worker that was away when the run became complete cannot know that, nor that no other follows:
// it says whom it misses, and is there for the next run.
static void away_when_the_run_is_complete(void **state)
{
    (void)state;
    boxes b = {.extra = "timeouts.start_s=2"}, next = b;
    start_boxes(&b, "hit", "shrink");
    run_await_checkpoint(&b.coordinator, "hit");
    lose_box(&b.workers[2]);
    b.workers[2] = (process){.output = -1, .input = -1};
    run_must_end(&b.coordinator, 0);
    run_must_end(&b.shard, 0);
    run_must_end(&b.workers[0], 0);
    run_must_end(&b.workers[1], 0);
    start_box(&b, &next.workers[2], "worker", "2");
    process_await(&next.workers[2], 0,
                  "error: no answer from the coordinator at tcp://127.0.0.1:", RUN_CASE_S);
    memcpy(next.address, b.address, sizeof next.address);
    memcpy(next.loss, b.loss, sizeof next.loss);
    snprintf(next.out, sizeof next.out, "%s/next", run_folder());
    start_box(&next, &next.coordinator, "coordinator", next.out);
    start_box(&next, &next.shard, "ps", "0");
    start_box(&next, &next.workers[0], "worker", "0");
    start_box(&next, &next.workers[1], "worker", "1");
    end_boxes(&next);
    fini_boxes(&b);
    fini_boxes(&next);
    run_must_train_once("next", SAMPLES, (uint32_t[]){3}, 1);
}

TEST_MAIN(TEST_SLOW(a_shard_that_was_replaced, 90),
          TEST_SLOW(a_worker_that_flaps_is_put_aside, 180), TEST_SLOW(a_worker_comes_back, 90),
          TEST_SLOW(a_box_comes_back, 90), TEST_SLOW(a_box_comes_and_goes, 90),
          TEST_SLOW(every_box_is_lost, 180), TEST_SLOW(a_box_is_drained_and_added, 120),
          TEST(an_unknown_name_is_tried_again), TEST_SLOW(nothing_left_to_start_from, 90),
          TEST_SLOW(a_checkpoint_of_another_model, 90),
          TEST_SLOW(a_box_with_another_configuration, 90),
          TEST_SLOW(away_when_the_run_is_complete, 90))
