// Workers that a run does without: lost ones, late ones, those that were lost too often; who is
// there and does not answer; and what keeps a run from beginning.
#include "tests/unit/dispatch/test_coordinator_ask.h"

#include <time.h>

#include "dispatch/coordinator/dp_losses.h"
#include "tests/support/config_case.h"

static void say_finished(fixture *f, uint32_t worker, const rt_wire_report *flushed)
{
    rt_message message = expect(f, 1 + worker, RT_MESSAGE_FINISH);
    rt_message_release(&message);
    say(f, 1 + worker, RT_MESSAGE_FINISHED, 0, flushed, sizeof *flushed, NULL, 0);
}

// ---- lost while it trains ----------------------------------------------------------------------

// Worker `trains` takes part, the other one sits out. What may be checkpointed never is.
static void prepare_pair(fixture *f, uint32_t trains)
{
    prepare(f);
    f->config.dispatch.participants = RT_PARTICIPANTS_LIST;
    f->config.dispatch.participant_mask = 1u << trains;
    f->config.dispatch.measure_compute = false;
    f->config.on_worker_loss = RT_LOSS_SHRINK;
    f->config.checkpoint.every_iterations = 1000000;
}

// The next slice of a worker is trained; its iteration.
static uint32_t train_one(fixture *f, uint32_t worker, bool idle)
{
    uint32_t iteration;
    rt_message slice = expect(f, 1 + worker, RT_MESSAGE_SLICE);
    rt_wire_report one = report_on(&slice, &iteration);
    one.idle = idle;
    if (iteration)
        report(f, worker, rt_message_header(&slice)->iteration, &one);
    rt_message_release(&slice);
    return iteration;
}

static void fail_worker(fixture *f, uint32_t worker)
{
    say(f, 1 + worker, RT_MESSAGE_FAILED, 0, "enough", 6, NULL, 0);
}

static void await_lines(const fixture *f, const char *name, const char *text, uint32_t count)
{
    while (count_lines(f, name, text) < count) {
        assert_true(rt_now_ns() < f->end_ns);
        usleep(1000);
    }
}

// The run of one of two workers comes to its end: it alone is asked for what is left.
static void end_alone(fixture *f, uint32_t worker)
{
    const rt_wire_report flushed = {0};
    say_finished(f, worker, &flushed);
    give_file(f, 1 + worker, 0, "dense weights");
    give_file(f, 0, 0, rows);
    for (uint32_t m = 0; m < MEMBERS; m++) {
        if (m != 2 - worker) { // the other one was told nothing
            rt_message message = expect(f, m, RT_MESSAGE_STOP);
            assert_int_equal(rt_message_header(&message)->iteration, RT_REASON_COMPLETE);
            rt_message_release(&message);
        }
        ops->end(f->members[m], 0);
    }
}

// The run ends because of a member, whoever hears of it.
static void leave_all(fixture *f, const char *text)
{
    pthread_join(f->thread, NULL);
    for (uint32_t m = 0; m < MEMBERS; m++) {
        if (f->members[m])
            ops->end(f->members[m], 0);
    }
    finish_joined(f, RT_PEER, text);
}

// It has nothing that others lack: the run goes on, from where it is, and a later start knows.
static void who_sits_out_may_go(void **state)
{
    (void)state;
    for (uint32_t trains = 0; trains < WORKERS; trains++) {
        const uint32_t gone = 1 - trains;
        fixture f;
        char want[64];
        prepare_pair(&f, trains);
        start(&f);
        assert_int_equal(train_one(&f, gone, true), 1);
        for (uint32_t t = 1; t <= 3; t++)
            assert_int_equal(train_one(&f, trains, false), t);
        fail_worker(&f, gone);
        await_lines(&f, "metrics.jsonl", "\"record\":\"lost\"", 1);
        for (uint32_t t = 4; t <= ITERATIONS; t++)
            assert_int_equal(train_one(&f, trains, false), t);
        assert_int_equal(train_one(&f, trains, false), 0); // the flush
        end_alone(&f, trains);
        finish(&f, RT_OK, "");
        cJSON *lost = last_record(&f, "lost"), *members = last_record(&f, "members");
        assert_true(number(lost, "worker") == gone);
        snprintf(want, sizeof want, "worker %u failed: enough", gone);
        text_must_be(lost, "why", want);
        const cJSON *out = cJSON_GetObjectItem(members, "out");
        assert_int_equal(cJSON_GetArraySize(out), 1);
        assert_true(cJSON_GetArrayItem(out, 0)->valuedouble == gone);
        snprintf(want, sizeof want, "%u ", gone);
        assert_int_equal(count_lines(&f, "checkpoints/losses", want), 1);
        snprintf(want, sizeof want, "\"kind\":\"lost\",\"worker\":%u,\"value\":1", gone);
        assert_int_equal(count_lines(&f, "records.jsonl", want), 1);
        cJSON_Delete(lost);
        cJSON_Delete(members);
        remove_out(&f);
    }
}

// A cut is carried out; giver: as the question named it.
static void say_mark(fixture *f, uint32_t worker, uint64_t sequence, uint32_t giver)
{
    rt_message message;
    const uint32_t self = rt_peer(RT_ROLE_WORKER, worker);
    assert_int_equal(rt_message_create(&message, RT_MESSAGE_MARK, self, sequence, giver, 0), RT_OK);
    assert_int_equal(ops->send(f->members[1 + worker], COORDINATOR, &message), RT_OK);
}

// The one that a cut asked for the dense weights: another one gives them.
static void who_goes_during_a_cut(void **state)
{
    (void)state;
    const rt_wire_part part = {.total = 5};
    const rt_wire_written written = {.bytes = 5, .hash = 88};
    fixture f;
    prepare_pair(&f, 1);
    f.config.checkpoint.every_iterations = 4;
    f.config.checkpoint.copies = false;
    start(&f);
    assert_int_equal(train_one(&f, 0, true), 1);
    for (uint32_t t = 1; t <= 4; t++)
        assert_int_equal(train_one(&f, 1, false), t);
    assert_int_equal(train_one(&f, 1, false), 0); // the flush of the cut
    rt_message message = expect(&f, 2, RT_MESSAGE_MARK);
    const uint64_t sequence = rt_message_header(&message)->iteration;
    assert_int_equal(rt_message_header(&message)->count, 1 + 0);
    say_mark(&f, 1, sequence, 1 + 0);
    rt_message_release(&message);
    fail_worker(&f, 0);
    message = expect(&f, 2, RT_MESSAGE_MARK);
    assert_int_equal(rt_message_header(&message)->count, 1 + 1);
    assert_int_equal(rt_message_header(&message)->iteration, sequence);
    rt_message_release(&message);
    say(&f, 2, RT_MESSAGE_PART, 0, &part, sizeof part, "dense", 5);
    say_mark(&f, 1, sequence, 1 + 1);
    message = expect(&f, 0, RT_MESSAGE_CUT);
    assert_int_equal(rt_message_header(&message)->iteration, 4);
    rt_message_release(&message);
    say(&f, 0, RT_MESSAGE_CUT, 4, NULL, 0, NULL, 0);
    say(&f, 0, RT_MESSAGE_WRITTEN, 4, &written, sizeof written, NULL, 0);
    assert_int_equal(train_one(&f, 1, false), 5);
    say(&f, 0, RT_MESSAGE_FAILED, 0, "enough", 6, NULL, 0);
    leave_all(&f, "ps 0 failed: enough");
}

// Each of these ends the run: it trains, it is needed by others, or nobody has allowed it.
static void who_must_not_go(void **state)
{
    (void)state;
    enum { TRAINS, NOT_ALLOWED, ALL_TAKE_PART, MUTUAL, NOT_SETTLED, CASES };
    for (uint32_t which = TRAINS; which < CASES; which++) {
        fixture f;
        char want[64];
        const uint32_t gone = which == TRAINS ? 0 : 1;
        prepare_pair(&f, 0);
        if (which == NOT_ALLOWED)
            f.config.on_worker_loss = RT_LOSS_RESTART;
        if (which == ALL_TAKE_PART)
            f.config.dispatch.participants = RT_PARTICIPANTS_ALL;
        f.config.dispatch.hand_over = which == MUTUAL;
        start(&f);
        for (uint32_t w = 0; w < WORKERS && which == MUTUAL; w++) {
            rt_message message = expect(&f, 1 + w, RT_MESSAGE_PEERS);
            rt_message_release(&message);
        }
        (void)train_one(&f, 0, true);
        if (which != NOT_SETTLED)
            (void)train_one(&f, 1, true);
        (void)train_one(&f, 0, true);
        if (which == ALL_TAKE_PART) // and a slice more is out
            (void)train_one(&f, 0, true);
        fail_worker(&f, gone);
        snprintf(want, sizeof want, "worker %u failed: enough", gone);
        if (which == NOT_SETTLED) { // it had nothing to do, and is not waited for
            await_lines(&f, "metrics.jsonl", "\"record\":\"lost\"", 1);
            say(&f, 0, RT_MESSAGE_FAILED, 0, "enough", 6, NULL, 0);
            snprintf(want, sizeof want, "ps 0 failed: enough");
        }
        leave_all(&f, want);
        remove_out(&f);
    }
}

// The next start knows whose connection ended, if it is to do without.
static void who_ended_a_run_is_noted(void **state)
{
    (void)state;
    for (uint32_t shrinks = 0; shrinks < 2; shrinks++) {
        fixture f;
        prepare_pair(&f, 0);
        f.config.dispatch.participants = RT_PARTICIPANTS_ALL;
        f.config.timeout_peer_s = 4 * test_limit_factor(); // a heartbeat in a fifth of it
        f.config.on_worker_loss = shrinks ? RT_LOSS_SHRINK : RT_LOSS_RESTART;
        start(&f);
        ops->end(f.members[2], 0);
        f.members[2] = NULL;
        leave_all(&f, "worker 1 is gone: its connection has ended");
        assert_int_equal(count_lines(&f, "checkpoints/losses", "1 "), shrinks);
        remove_out(&f);
    }
}

// ---- not there when it begins ------------------------------------------------------------------

// As start, of the members of a mask alone. What is told of the run is there by then.
static void start_some(fixture *f, uint32_t members, uint32_t workers)
{
    begin_run(f);
    for (uint32_t m = 0; m < MEMBERS; m++) {
        if (members >> m & 1)
            join_run(f, m);
    }
    for (uint32_t m = 0; m < MEMBERS; m++) {
        if (!(members >> m & 1) || (m > 0 && !(workers >> (m - 1) & 1)))
            continue;
        rt_message message = expect(f, m, RT_MESSAGE_WELCOME);
        memcpy(&f->welcome, rt_message_payload(&message), sizeof f->welcome);
        rt_message_release(&message);
    }
    assert_int_equal(f->welcome.workers, workers);
}

static void prepare_shrinking(fixture *f)
{
    prepare(f);
    f->own.may_shrink = true;
    f->config.on_worker_loss = RT_LOSS_SHRINK;
    f->config.dispatch.measure_compute = false;
    f->config.checkpoint.every_iterations = 1000000;
    f->config.checkpoint.copies = false;
    f->config.timeout_rejoin_s = 1000;
}

// One that nobody waits for: the run is one of the others, and has a hash of its own. When it
// comes, and has waited for timeouts.rejoin_s, all processes start again from a checkpoint.
static void who_comes_late_is_taken_back(void **state)
{
    (void)state;
    fixture f;
    char folder[700], hash[32], want[128];
    cJSON *manifest;
    prepare_shrinking(&f);
    f.own.without = 1;
    f.config.stream.samples_max = 0; // no end
    f.config.timeout_rejoin_s = 0.2;
    start_some(&f, 5, 2);
    assert_int_equal(f.welcome.worker_count, 1);
    assert_int_equal(train_one(&f, 1, false), 1);
    join_run(&f, 1);
    uint32_t last = 1;
    for (uint32_t t = last; t; t = train_one(&f, 1, false))
        last = t;
    rt_message message = expect(&f, 2, RT_MESSAGE_MARK);
    const rt_wire_part part = {.total = 5};
    say(&f, 2, RT_MESSAGE_PART, 0, &part, sizeof part, "dense", 5);
    say(&f, 2, RT_MESSAGE_MARK, rt_message_header(&message)->iteration, NULL, 0, NULL, 0);
    rt_message_release(&message);
    message = expect(&f, 0, RT_MESSAGE_CUT);
    const rt_wire_written written = {.bytes = 5, .hash = 88, .ns = 1000};
    assert_int_equal(rt_message_header(&message)->iteration, last);
    say(&f, 0, RT_MESSAGE_CUT, last, NULL, 0, NULL, 0);
    say(&f, 0, RT_MESSAGE_WRITTEN, last, &written, sizeof written, NULL, 0);
    rt_message_release(&message);
    expect_stop(&f, RT_REASON_ANEW);
    snprintf(want, sizeof want, "workers are back: all processes start again from iteration %u",
             last);
    finish(&f, RT_AGAIN, want);
    snprintf(folder, sizeof folder, "%s/checkpoints/ckpt-%012u", f.out, last);
    assert_int_equal(rt_manifest_read(folder, &manifest, NULL), RT_OK);
    const uint64_t both[2] = {HASH, 2};
    snprintf(hash, sizeof hash, "%016" PRIx64, rt_hash_bytes(both, sizeof both));
    text_must_be(manifest, "config", hash);
    cJSON_Delete(manifest);
    assert_int_equal(count_lines(&f, "checkpoints/losses", ""), 0); // nobody was lost
}

// Who is asked for by rank is found in a run whose places begin with another one.
static void ranks_are_those_of_all(void **state)
{
    (void)state;
    fixture f;
    prepare_shrinking(&f);
    f.own.without = 1;
    f.config.stream.samples_max = 0; // no end
    f.config.dispatch.participants = RT_PARTICIPANTS_LIST;
    f.config.dispatch.participant_mask = 3;
    start_some(&f, 5, 2);
    assert_int_equal(train_one(&f, 1, false), 1);
    refuse(&f, "set\ndispatch.participants\n[0,1]",
           "dispatch.participants: not in this run now: worker 0");
    ask(&f, "set\ndispatch.participants\n[1]", RT_OK,
        "dispatch.participants is [1] from the next plan on");
    for (uint32_t t = 1; t < 10;)
        t = train_one(&f, 1, false);
    assert_int_equal(count_lines(&f, "records.jsonl", "\"participates\""), 0); // as it was
    say(&f, 0, RT_MESSAGE_FAILED, 0, "enough", 6, NULL, 0);
    leave_all(&f, "ps 0 failed: enough");
}

static void note_losses(const fixture *f, uint32_t worker, uint32_t count)
{
    char path[600];
    snprintf(path, sizeof path, "%s/checkpoints", f->out);
    (void)mkdir(path, 0700);
    strcat(path, "/losses");
    FILE *file = fopen(path, "a");
    assert_non_null(file);
    for (uint32_t i = 0; i < count; i++)
        fprintf(file, "%u %ld\n", worker, (long)time(NULL) - 5);
    fclose(file);
}

// One that was lost too often waits, though it is there; but a run needs some, and all of a run
// that may not shrink.
static void who_was_lost_too_often_waits(void **state)
{
    (void)state;
    static const struct {
        uint32_t losses[WORKERS];
        bool may_shrink;
        uint32_t workers;
    } cases[] = {{{0, DP_LOSSES_MAX}, true, 1},
                 {{DP_LOSSES_MAX, 1}, true, 2},
                 {{0, DP_LOSSES_MAX - 1}, true, 3},
                 {{DP_LOSSES_MAX, DP_LOSSES_MAX}, true, 3},
                 {{0, DP_LOSSES_MAX}, false, 3}};
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
        fixture f;
        prepare_shrinking(&f);
        f.own.may_shrink = cases[i].may_shrink;
        for (uint32_t w = 0; w < WORKERS; w++)
            note_losses(&f, w, cases[i].losses[w]);
        start_some(&f, 7, cases[i].workers);
        say(&f, 0, RT_MESSAGE_FAILED, 0, "enough", 6, NULL, 0);
        leave_all(&f, "ps 0 failed: enough");
        remove_out(&f);
    }
}

// The worker of a box that takes no part is no other one with which the run could begin.
static void the_last_of_those_that_take_part_stays(void **state)
{
    (void)state;
    fixture f;
    prepare_shrinking(&f);
    config_must_set(&f.config,
                    "boxes=[{\"name\":\"a\",\"gbps\":1,\"workers\":1,\"shards\":1},"
                    "{\"name\":\"b\",\"gbps\":1,\"workers\":1,\"shards\":0,\"spare\":true}]");
    note_losses(&f, 0, DP_LOSSES_MAX);
    start_some(&f, 3, 1);
    say(&f, 0, RT_MESSAGE_FAILED, 0, "enough", 6, NULL, 0);
    leave_all(&f, "ps 0 failed: enough");
}

// ---- there, and does not answer ----------------------------------------------------------------

static void who_does_not_answer_is_named(void **state)
{
    (void)state;
    enum { TRAINING, MARKING, CAPTURING, FINISHING, SAVING, CASES };
    static const char *const texts[] = {
        "worker 1: alive, but has not trained an iteration within",
        "worker 0, worker 1: alive, but has not carried out a cut within",
        "ps 0: alive, but has not carried out a cut within",
        "worker 1: alive, but has not finished the run within",
        "worker 0, ps 0: alive, but has sent nothing more of the model within"};
    for (uint32_t which = TRAINING; which < CASES; which++) {
        fixture f;
        const rt_wire_report flushed = {0};
        prepare(&f);
        f.config.timeout_answer_s = 0.5 * test_limit_factor();
        f.config.stream.samples_max = 3 * WORKERS * BATCH;
        f.config.checkpoint.every_iterations = which == MARKING || which == CAPTURING ? 2 : 0;
        start(&f);
        if (which == TRAINING)
            (void)train_one(&f, 0, false);
        else
            train_to_flush(&f);
        if (which == CAPTURING) {
            const rt_wire_part part = {.total = 5};
            say(&f, 1, RT_MESSAGE_PART, 0, &part, sizeof part, "dense", 5);
            for (uint32_t w = 0; w < WORKERS; w++) {
                rt_message message = expect(&f, 1 + w, RT_MESSAGE_MARK);
                const uint64_t sequence = rt_message_header(&message)->iteration;
                say(&f, 1 + w, RT_MESSAGE_MARK, sequence, NULL, 0, NULL, 0);
                rt_message_release(&message);
            }
        }
        if (which == FINISHING)
            say_finished(&f, 0, &flushed);
        if (which == SAVING) {
            say_finished(&f, 0, &flushed);
            say_finished(&f, 1, &flushed);
        }
        expect_stop(&f, RT_REASON_FAILED);
        finish(&f, RT_TIMEOUT, texts[which]);
        remove_out(&f);
    }
}

TEST_MAIN(TEST(who_sits_out_may_go), TEST(who_goes_during_a_cut), TEST(who_must_not_go),
          TEST(who_ended_a_run_is_noted), TEST(who_comes_late_is_taken_back),
          TEST(ranks_are_those_of_all), TEST(who_was_lost_too_often_waits),
          TEST(the_last_of_those_that_take_part_stays), TEST(who_does_not_answer_is_named))
