// Workers that a run does without: lost ones, late ones, those that were lost too often; who is
// there and does not answer; and what keeps a run from beginning.
#include "tests/unit/dispatch/test_coordinator_support.h"

#include <time.h>

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
    rt_message message = expect(f, 1 + worker, RT_MESSAGE_FINISH);
    rt_message_release(&message);
    say(f, 1 + worker, RT_MESSAGE_FINISHED, 0, &flushed, sizeof flushed, NULL, 0);
    give_file(f, 1 + worker, 0, "dense weights");
    give_file(f, 0, 0, rows);
    for (uint32_t m = 0; m < MEMBERS; m++) {
        if (m == 2 - worker)
            continue;
        message = expect(f, m, RT_MESSAGE_STOP);
        assert_int_equal(rt_message_header(&message)->iteration, RT_REASON_COMPLETE);
        rt_message_release(&message);
        ops->end(f->members[m], 0);
    }
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
        char command[600];
        snprintf(command, sizeof command, "rm -r '%s'", f.out);
        assert_int_equal(system(command), 0);
    }
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
        pthread_join(f.thread, NULL);
        if (f.status != RT_PEER || !strstr(f.error.text, want))
            fail_msg("case %u: status %d (%s)", which, f.status, f.error.text);
        for (uint32_t m = 0; m < MEMBERS; m++)
            ops->end(f.members[m], 0);
        ops->close(f.transport);
        rt_config_fini(&f.config);
        char command[600];
        snprintf(command, sizeof command, "rm -r '%s'", f.out);
        assert_int_equal(system(command), 0);
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
        pthread_join(f.thread, NULL); // a heartbeat, or a slice, cannot be sent
        assert_int_equal(f.status, RT_PEER);
        assert_string_equal(f.error.text, "worker 1 is gone: its connection has ended");
        assert_int_equal(count_lines(&f, "checkpoints/losses", "1 "), shrinks);
        ops->end(f.members[0], 0);
        ops->end(f.members[1], 0);
        ops->close(f.transport);
        rt_config_fini(&f.config);
        char command[600];
        snprintf(command, sizeof command, "rm -r '%s'", f.out);
        assert_int_equal(system(command), 0);
    }
}

TEST_MAIN(TEST(who_sits_out_may_go), TEST(who_must_not_go), TEST(who_ended_a_run_is_noted))
