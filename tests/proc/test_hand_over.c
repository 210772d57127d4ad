// Rows that go from worker to worker (dispatch.hand_over): real processes against the simulator,
// against the same run without, against one that goes on from a checkpoint; with a worker that is
// lost and comes back, and with strangers at a worker's door.
#include "tests/support/test.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/rt_base.h"
#include "runtime/transport/rt_transport.h"
#include "tests/support/process_case.h"
#include "tests/support/run_case.h"

#define ENDLESS "stream.samples_max=100000000" // the case ends the run
#define HAND_OVER "dispatch.hand_over=true"
#define ROWS "\"rows_handed\":"

static const char config[] =
    "{\"workers\": 4, \"batch\": {\"samples_per_worker\": 24},"
    " \"stream\": {\"format\": \"synthetic\", \"samples_max\": 4800,"
    "  \"synthetic\": {\"scale\": 0.001}},"
    " \"model\": {\"embedding_dim\": 4, \"mlp\": [8, 4]}, \"ps\": {\"shards\": 2},"
    " \"dispatch\": {\"policy\": \"makespan\", \"measure_compute\": false,"
    "  \"participants\": \"rotate\"},"
    " \"sim\": {\"warmup\": 0}, \"cache\": {\"rows\": 900},"
    " \"timeouts\": {\"start_s\": 20, \"peer_s\": 3, \"rejoin_s\": 1}, \"restarts_max\": 3,"
    " \"checkpoint\": {\"keep\": 9}}";

static void run(const char *out, const char *flag, const char *set, const char *other)
{
    run_up(config, out, flag, (const char *const[]){set, other, NULL});
}

// Every row is trained where it would be, in the same order. (Where workers sit out that is not so:
// they push as many rows as an iteration has time for, and what is pushed counts in decisions.)
static void the_model_is_that_of_a_run_without(void **state)
{
    (void)state;
    run("without", NULL, "dispatch.hand_over=false", "dispatch.participants=all");
    run("with", NULL, HAND_OVER, "dispatch.participants=all");
    assert_true(run_sum("with", ROWS) > 500);
    run_must_equal("with", "without", "model/rows-000-of-002.bin");
    run_must_equal("with", "without", "model/rows-001-of-002.bin");
    run_must_equal("with", "without", "model/dense.bin");
}

// With keys for every connection: the same model.
static void with_keys(void **state)
{
    (void)state;
    process p;
    char key[400], allow[400], server[400];
    run_start(&p, (const char *const[]){"keygen", run_path("keys"), "--name", "box", NULL}, NULL);
    run_must_end(&p, 0);
    process_fini(&p);
    snprintf(key, sizeof key, "security.key=%s", run_path("keys/box.secret"));
    snprintf(allow, sizeof allow, "security.allow=%s", run_path("keys/box.public"));
    snprintf(server, sizeof server, "security.server_key=%s", run_path("keys/box.public"));
    run("plain", NULL, HAND_OVER, "dispatch.participants=all");
    run_up(config, "keyed", NULL,
           (const char *const[]){HAND_OVER, "dispatch.participants=all", key, allow, server, NULL});
    assert_true(run_sum("keyed", ROWS) > 500);
    run_must_be_the_same("plain", "keyed", 2);
}

static void it_is_what_the_simulator_says(void **state)
{
    (void)state;
    run("with", NULL, HAND_OVER, NULL);
    run_must_be_simulated(config, "with", (const char *const[]){HAND_OVER, NULL},
                          (const char *const[]){ROWS, NULL});
    assert_true(run_sum_as_summed_up("with", ROWS) > 500);
}

static void it_goes_on_from_a_checkpoint_as_if_nothing_had_been(void **state)
{
    (void)state;
    run_must_go_on_alike(config, 2,
                         (const char *const[]){HAND_OVER, "checkpoint.every_iterations=15", NULL});
}

// The others have connections to it; it is the coordinator who finds that it is gone.
static void a_worker_is_lost_and_comes_back(void **state)
{
    (void)state;
    run_must_regain_a_worker(config, "lost",
                             (const char *const[]){HAND_OVER, ENDLESS, "on_worker_loss=shrink",
                                                   "dispatch.participants=all",
                                                   "checkpoint.every_iterations=100", NULL});
}

// Sends rows to the worker's listener that nobody asked for, without a HELLO.
static void hand_over_as_a_stranger(const char *address)
{
    const uint32_t worker = rt_peer(RT_ROLE_WORKER, 1);
    rt_transport *transport = NULL;
    rt_endpoint *endpoint = NULL;
    rt_error error = {0};
    bool ready;
    if (rt_transport_open(&rt_transport_zmq, NULL, &transport, &error) ||
        rt_transport_zmq.connect(transport, rt_peer(RT_ROLE_VISITOR, 7), worker, address, &endpoint,
                                 &error))
        fail_msg("%s", error.text);
    for (uint32_t i = 0; i < 20; i++) {
        rt_message message;
        const rt_wire_row row = {.key = i, .version = 1};
        assert_int_equal(rt_message_create(&message, RT_MESSAGE_HANDED, rt_peer(RT_ROLE_VISITOR, 7),
                                           1 + i, 1, sizeof row + 8 * sizeof(float)),
                         RT_OK);
        memset(rt_message_payload(&message), 0, sizeof row + 8 * sizeof(float));
        memcpy(rt_message_payload(&message), &row, sizeof row);
        (void)rt_transport_zmq.send(endpoint, worker, &message);
        rt_message_release(&message);
        (void)rt_transport_zmq.wait(&endpoint, 1, -1, 1, &ready);
    }
    rt_transport_zmq.end(endpoint, 1000);
    rt_transport_zmq.close(transport);
}

static void strangers_are_not_heard(void **state)
{
    static const char says[] = "worker 1 listens for other workers at ";
    process p = {0};
    char address[64];
    (void)state;
    run_start_up(&p, config, "calm", NULL,
                 (const char *const[]){HAND_OVER, ENDLESS, "dispatch.participants=all", NULL});
    const size_t at = process_await(&p, 0, says, RUN_CASE_S);
    run_await_iterations(&p, "calm", 5);
    snprintf(address, sizeof address, "%.*s", (int)strcspn(p.text + at, " \n"), p.text + at);
    hand_over_as_a_stranger(address);
    process_await(&p, at, "messages of strangers; the last: visitor 7 sent HANDED before a HELLO",
                  RUN_CASE_S);
    run_await_iterations(&p, "calm", 50);
    assert_int_equal(kill(p.pid, SIGINT), 0);
    run_must_end(&p, 0);
    process_fini(&p);
}

// What cannot go with it, and where a worker would listen.
static void what_does_not_fit_is_named(void **state)
{
    static const struct {
        const char *sets[3], *words;
    } cases[] = {
        {{"network.transport=ucx", NULL}, "dispatch.hand_over: not with network.transport \"ucx\""},
        {{"network.worker_port=65533", NULL},
         "network.worker_port: 65533, and that of worker 3 is no port: at most 65532"},
        {{"consistency.staleness=1", "dispatch.participants=all", NULL},
         "dispatch.hand_over: not with consistency.staleness"},
        {{"network.row_wire=bf16", NULL}, "network.row_wire: \"bf16\" not with dispatch.hand_over"},
    };
    (void)state;
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
        process p;
        run_start_config(
            &p, "sim", config, NULL,
            (const char *const[]){HAND_OVER, cases[i].sets[0], cases[i].sets[1], NULL});
        run_must_end(&p, 1);
        run_must_say(&p, cases[i].words);
        process_fini(&p);
    }
}

TEST_MAIN(TEST_SLOW(the_model_is_that_of_a_run_without, 120), TEST_SLOW(with_keys, 120),
          TEST_SLOW(it_is_what_the_simulator_says, 120),
          TEST_SLOW(it_goes_on_from_a_checkpoint_as_if_nothing_had_been, 120),
          TEST_SLOW(a_worker_is_lost_and_comes_back, 120), TEST_SLOW(strangers_are_not_heard, 120),
          TEST(what_does_not_fit_is_named))
