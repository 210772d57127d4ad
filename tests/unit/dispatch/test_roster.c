// Who takes part in a run: the case plays shard and workers, over real sockets.
#define _GNU_SOURCE // pthread_tryjoin_np
#include "dispatch/coordinator/dp_roster.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "runtime/transport/rt_member.h"
#include "tests/support/members.h"
#include "tests/support/test.h"

#define HASH 7u
#define RUN 77u // id of the run's folder
#define EPOCH 5u
#define WORKERS 3u
#define PATIENCE_S 20u // a step that takes longer has failed
#define COORDINATOR rt_peer(RT_ROLE_COORDINATOR, 0)

static const rt_transport_ops *const ops = &rt_transport_zmq;

typedef struct {
    rt_config config;
    rt_transport *transport;
    dp_roster *roster;
    rt_endpoint *shard, *workers[WORKERS];
    uint64_t end_ns;
} fixture;

static void say(rt_endpoint *endpoint, uint32_t self, rt_message_type type, const void *payload,
                size_t size)
{
    rt_message message;
    assert_int_equal(rt_message_create(&message, type, self, 0, size > 0, size), RT_OK);
    if (size)
        memcpy(rt_message_payload(&message), payload, size);
    assert_int_equal(ops->send(endpoint, COORDINATOR, &message), RT_OK);
}

static rt_endpoint *join_after(fixture *f, uint32_t self, uint64_t config_hash, uint64_t run,
                               uint32_t epoch)
{
    rt_endpoint *endpoint = NULL;
    rt_error error = {0};
    rt_wire_hello hello = {.role = rt_peer_role(self),
                           .rank = rt_peer_rank(self),
                           .config_hash = config_hash,
                           .run = run,
                           .epoch = epoch};
    rt_control_put_text(hello.program, sizeof hello.program, rt_build());
    if (rt_peer_role(self) == RT_ROLE_PS)
        rt_control_put_text(hello.address, sizeof hello.address, "tcp://127.0.0.1:1");
    if (ops->connect(f->transport, self, COORDINATOR, dp_roster_address(f->roster), &endpoint,
                     &error))
        fail_msg("%s", error.text);
    say(endpoint, self, RT_MESSAGE_HELLO, &hello, sizeof hello);
    return endpoint;
}

static rt_endpoint *join_as(fixture *f, uint32_t self, uint64_t config_hash)
{
    return join_after(f, self, config_hash, 0, 0);
}

static rt_endpoint *join(fixture *f, uint32_t self)
{
    return join_as(f, self, HASH);
}

static void join_worker(fixture *f, uint32_t rank)
{
    f->workers[rank] = join(f, rt_peer(RT_ROLE_WORKER, rank));
}

// Who is without is not waited for, all others are. No member has joined yet.
static void start_alone(fixture *f, uint64_t without, uint32_t shards, uint64_t out_workers,
                        uint64_t out_shards)
{
    rt_error error = {0};
    *f = (fixture){.config = {.worker_count = WORKERS,
                              .ps_shard_count = shards,
                              .timeout_start_s = PATIENCE_S * test_limit_factor(),
                              .timeout_peer_s = PATIENCE_S,
                              .timeout_rejoin_s = 1000},
                   .end_ns = rt_now_ns() + PATIENCE_S * test_limit_factor() * UINT64_C(1000000000)};
    strcpy(f->config.network_bind, "127.0.0.1");
    assert_int_equal(ops->open(&f->transport, &error), RT_OK);
    const dp_roster_config config = {.ops = ops,
                                     .transport = f->transport,
                                     .config = &f->config,
                                     .identity = {.config_hash = HASH},
                                     .may_shrink = true,
                                     .run = RUN,
                                     .epoch = EPOCH};
    if (dp_roster_create(&config, &f->roster, &error))
        fail_msg("%s", error.text);
    dp_membership *members = dp_roster_members(f->roster);
    dp_membership_invite(members, RT_ROLE_WORKER, without, DP_INVITED_OPTIONAL);
    dp_membership_invite(members, RT_ROLE_WORKER, out_workers, DP_INVITED_NOT);
    dp_membership_invite(members, RT_ROLE_PS, out_shards, DP_INVITED_NOT);
}

static void start_with(fixture *f, uint64_t without, uint32_t shards, uint64_t out_workers,
                       uint64_t out_shards)
{
    start_alone(f, without, shards, out_workers, out_shards);
    f->shard = join(f, rt_peer(RT_ROLE_PS, 0));
}

static void start(fixture *f, uint64_t without)
{
    start_with(f, without, 1, 0, 0);
}

static void finish(fixture *f)
{
    for (uint32_t w = 0; w < WORKERS; w++) {
        if (f->workers[w])
            ops->end(f->workers[w], 0);
    }
    if (f->shard)
        ops->end(f->shard, 0);
    dp_roster_destroy(f->roster);
    ops->close(f->transport);
}

static void assemble(fixture *f)
{
    rt_error error = {0};
    if (dp_roster_assemble(f->roster, -1, &error))
        fail_msg("%s", error.text);
}

// A HELLO that comes before the end of the connection before it is refused: once more then.
static void join_again_if_refused(fixture *f, uint32_t rank)
{
    uint32_t peer;
    rt_message message = {0};
    rt_error error = {0};
    const bool refused = f->workers[rank] &&
                         ops->receive(f->workers[rank], &peer, &message, &error) == RT_OK &&
                         rt_message_header(&message)->type == RT_MESSAGE_STOP;
    rt_message_release(&message);
    if (!refused)
        return;
    ops->end(f->workers[rank], 0);
    join_worker(f, rank);
}

// A connection that is full of heartbeats needs no more of them.
static void beat(rt_endpoint *endpoint, uint32_t self)
{
    rt_message message;
    assert_int_equal(rt_message_create(&message, RT_MESSAGE_HEARTBEAT, self, 0, 0, 0), RT_OK);
    const rt_status status = ops->send(endpoint, COORDINATOR, &message);
    if (status == RT_AGAIN)
        rt_message_release(&message);
    else
        assert_int_equal(status, RT_OK);
}

// The shard and these workers say that they are there, and what came is taken.
static rt_status take_a_turn(fixture *f, uint64_t workers, rt_error *error)
{
    uint32_t peer;
    rt_message message = {0};
    beat(f->shard, rt_peer(RT_ROLE_PS, 0));
    for (uint64_t rest = workers; rest; rest &= rest - 1) {
        const uint32_t w = rt_lowest_bit(rest);
        beat(f->workers[w], rt_peer(RT_ROLE_WORKER, w));
    }
    assert_int_equal(dp_roster_wait(f->roster, -1, error), RT_OK);
    rt_status status = dp_roster_receive(f->roster, &peer, &message, error);
    rt_message_release(&message);
    return status == RT_AGAIN ? RT_OK : status;
}

// Lets messages come until the mask of those that wait is this one; those that take part go on
// saying that they are there.
static void await_waiting(fixture *f, uint64_t want)
{
    while (dp_membership_returning(dp_roster_members(f->roster)) != want) {
        rt_error error = {0};
        if (rt_now_ns() > f->end_ns)
            fail_msg("%#" PRIx64 " wait, expected %#" PRIx64,
                     dp_membership_returning(dp_roster_members(f->roster)), want);
        join_again_if_refused(f, 1);
        if (take_a_turn(f, 5, &error))
            fail_msg("%s", error.text);
    }
}

static rt_message receive(fixture *f, rt_endpoint *endpoint)
{
    for (;;) {
        uint32_t peer;
        bool ready;
        rt_message message = {0};
        rt_error error = {0};
        rt_status status = ops->receive(endpoint, &peer, &message, &error);
        if (status == RT_OK && rt_message_header(&message)->type != RT_MESSAGE_HEARTBEAT)
            return message;
        rt_message_release(&message);
        if ((status && status != RT_AGAIN) || rt_now_ns() > f->end_ns)
            fail_msg("nothing came: %s", error.text);
        assert_int_equal(ops->wait(&endpoint, 1, -1, 100, &ready), RT_OK);
    }
}

// Workers 0 and 2 of three: they are 0 and 1 from then on, both ways.
static void the_others_are_numbered_anew(void **state)
{
    (void)state;
    fixture f;
    rt_error error = {0};
    rt_wire_welcome welcome = {.worker_count = 2, .shard_count = 1};
    start(&f, 2);
    join_worker(&f, 0);
    join_worker(&f, 2);
    assemble(&f);
    assert_int_equal(dp_roster_members(f.roster)->worker_places, 5);
    assert_int_equal(dp_roster_welcome(f.roster, &welcome, &error), RT_OK);
    rt_message message = receive(&f, f.workers[2]);
    assert_int_equal(rt_message_header(&message)->type, RT_MESSAGE_WELCOME);
    memcpy(&welcome, rt_message_payload(&message), sizeof welcome);
    rt_message_release(&message);
    assert_int_equal(welcome.workers, 5);
    const rt_member member = {.config = {.self = rt_peer(RT_ROLE_WORKER, 2)}, .welcome = welcome};
    assert_int_equal(rt_member_rank(&member), 1);

    assert_int_equal(rt_control_create(&message, RT_MESSAGE_FINISH, COORDINATOR), RT_OK);
    assert_int_equal(dp_roster_send(f.roster, rt_peer(RT_ROLE_WORKER, 1), &message, &error), RT_OK);
    message = receive(&f, f.workers[2]);
    assert_int_equal(rt_message_header(&message)->type, RT_MESSAGE_FINISH);
    rt_message_release(&message);
    say(f.workers[2], rt_peer(RT_ROLE_WORKER, 2), RT_MESSAGE_MARK, NULL, 0);
    rt_status status = RT_AGAIN;
    uint32_t peer = 0;
    while (status == RT_AGAIN && rt_now_ns() < f.end_ns) {
        assert_int_equal(dp_roster_wait(f.roster, -1, &error), RT_OK);
        status = dp_roster_receive(f.roster, &peer, &message, &error);
    }
    assert_int_equal(status, RT_OK);
    assert_int_equal(peer, rt_peer(RT_ROLE_WORKER, 1));
    rt_message_release(&message);
    finish(&f);
}

// Once timeouts.rejoin_s are over one worker is enough. However late that one is: without any there
// is no run.
static void who_is_late_is_not_waited_for(void **state)
{
    (void)state;
    fixture f;
    start(&f, 0);
    f.config.timeout_rejoin_s = 0.1;
    const uint64_t begin_ns = rt_now_ns();
    join_worker(&f, 1);
    assemble(&f);
    assert_true(rt_now_ns() - begin_ns >= 100000000);
    assert_int_equal(dp_roster_members(f.roster)->worker_places, 2);
    finish(&f);
}

// A shard is waited for, however late it is: only it has its rows.
static void no_run_without_a_shard(void **state)
{
    (void)state;
    fixture f;
    rt_error error = {0};
    start_alone(&f, 0, 1, 0, 0);
    f.config.timeout_rejoin_s = 0;
    f.config.timeout_start_s = 1;
    join_worker(&f, 0);
    join_worker(&f, 1);
    join_worker(&f, 2);
    assert_int_equal(dp_roster_assemble(f.roster, -1, &error), RT_TIMEOUT);
    assert_non_null(strstr(error.text, "ps 0"));
    finish(&f);
}

// It waits, may leave, fall silent and come again; the run hears of none of that.
static void who_waits_ends_nothing(void **state)
{
    (void)state;
    fixture f;
    start(&f, 2); // nobody waits for worker 1
    join_worker(&f, 0);
    join_worker(&f, 2);
    assemble(&f);
    assert_int_equal(dp_roster_members(f.roster)->worker_places, 5);
    join_worker(&f, 1);
    await_waiting(&f, 2);
    say(f.workers[1], rt_peer(RT_ROLE_WORKER, 1), RT_MESSAGE_FAILED, "enough", 6);
    await_waiting(&f, 0);
    ops->end(f.workers[1], 0);
    join_worker(&f, 1);
    await_waiting(&f, 2);
    f.config.timeout_peer_s = 2 * test_limit_factor(); // from now on it is silent for too long
    await_waiting(&f, 0);
    finish(&f);
}

// One whose connection ends without a word is noticed when it is to hear that the run is there,
// long before it would count as silent.
static void who_waits_may_be_cut_off(void **state)
{
    (void)state;
    fixture f;
    start(&f, 2);
    join_worker(&f, 0);
    join_worker(&f, 2);
    assemble(&f);
    join_worker(&f, 1);
    await_waiting(&f, 2);
    f.config.timeout_peer_s = PATIENCE_S / 2; // a heartbeat in a fifth of it
    f.end_ns = rt_now_ns() + (uint64_t)(0.8e9 * f.config.timeout_peer_s);
    ops->end(f.workers[1], 0);
    f.workers[1] = NULL;
    await_waiting(&f, 0);
    finish(&f);
}

typedef struct {
    fixture *f;
    rt_member member;
    rt_status status;
    rt_error error;
} joiner;

static void *join_by_member(void *argument)
{
    joiner *j = argument;
    const rt_member_config config = {.ops = ops,
                                     .transport = j->f->transport,
                                     .self = rt_peer(RT_ROLE_WORKER, 1),
                                     .coordinator = dp_roster_address(j->f->roster),
                                     .address = "",
                                     .identity = {.config_hash = HASH},
                                     .timeout_start_s = test_limit_factor(),
                                     .timeout_peer_s = 20};
    j->status = rt_member_join(&j->member, &config, &j->error);
    return NULL;
}

// A worker that hears the coordinator waits for longer than timeouts.start_s.
static void a_heard_coordinator_is_waited_for(void **state)
{
    (void)state;
    fixture f;
    pthread_t thread;
    joiner j = {.f = &f};
    start(&f, 2);
    join_worker(&f, 0);
    join_worker(&f, 2);
    assemble(&f);
    assert_int_equal(pthread_create(&thread, NULL, join_by_member, &j), 0);
    await_waiting(&f, 2);
    f.config.timeout_peer_s = 1; // five heartbeats a second
    const uint64_t until = rt_now_ns() + test_limit_factor() * UINT64_C(2000000000);
    while (rt_now_ns() < until) {
        rt_error error = {0};
        assert_int_equal(dp_roster_wait(f.roster, -1, &error),
                         RT_OK); // silence is judged elsewhere
    }
    dp_roster_stop(f.roster, RT_PEER, "enough");
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(j.status, RT_STOPPED);
    assert_string_equal(j.error.text, "enough");
    finish(&f);
}

// The reason of a STOP that came, and its text.
static uint64_t stop_of(fixture *f, rt_endpoint *endpoint, char *text, size_t size)
{
    rt_message message = receive(f, endpoint);
    assert_int_equal(rt_message_header(&message)->type, RT_MESSAGE_STOP);
    assert_int_equal(rt_control_text(&message, text, size), RT_OK);
    const uint64_t reason = rt_message_header(&message)->iteration;
    rt_message_release(&message);
    return reason;
}

// It is told whether a member like it would be let in, and is none.
static void a_visitor_learns_whether_it_fits(void **state)
{
    (void)state;
    fixture f;
    char text[256];
    start(&f, 2);
    join_worker(&f, 0);
    join_worker(&f, 2);
    assemble(&f);
    for (uint32_t differs = 0; differs < 2; differs++) {
        rt_error error = {0};
        uint32_t peer;
        rt_message message = {0};
        rt_endpoint *visitor = join_as(&f, rt_peer(RT_ROLE_VISITOR, differs), HASH + differs);
        // Until the answer is there: a HELLO that was read is an RT_AGAIN of the roster's.
        bool ready = false;
        while (!ready && rt_now_ns() < f.end_ns) {
            assert_int_equal(dp_roster_receive(f.roster, &peer, &message, &error), RT_AGAIN);
            assert_int_equal(ops->wait(&visitor, 1, -1, 20, &ready), RT_OK);
        }
        (void)stop_of(&f, visitor, text, sizeof text);
        if (differs)
            assert_non_null(strstr(text, "another configuration"));
        else
            assert_memory_equal(text, RT_VISITOR_FITS, strlen(RT_VISITOR_FITS));
        ops->end(visitor, 0);
    }
    assert_int_equal(dp_roster_members(f.roster)->worker_places, 5);
    finish(&f);
}

typedef struct {
    fixture *f;
    rt_status status;
    rt_error error;
} assembler;

static void *assemble_in_thread(void *context)
{
    assembler *a = context;
    a->status = dp_roster_assemble(a->f->roster, -1, &a->error);
    return NULL;
}

// The thread has ended, or the member was told to.
static bool ends_unless_stopped(fixture *f, pthread_t thread, rt_endpoint *member)
{
    while (pthread_tryjoin_np(thread, NULL) != 0) {
        uint32_t peer;
        bool ready;
        rt_message message = {0};
        const bool stopped = ops->receive(member, &peer, &message, NULL) == RT_OK &&
                             rt_message_header(&message)->type == RT_MESSAGE_STOP;
        rt_message_release(&message);
        if (stopped)
            return false;
        if (rt_now_ns() > f->end_ns)
            fail_msg("the run does not begin");
        assert_int_equal(ops->wait(&member, 1, -1, 10, &ready), RT_OK);
    }
    return true;
}

// A worker with another configuration is told so, and waited for: once it is mended the run begins.
static void who_does_not_fit_is_waited_for(void **state)
{
    (void)state;
    fixture f;
    pthread_t thread;
    char text[256];
    start(&f, 0);
    assembler a = {.f = &f};
    assert_int_equal(pthread_create(&thread, NULL, assemble_in_thread, &a), 0);
    join_worker(&f, 0);
    join_worker(&f, 2);
    rt_endpoint *other = join_as(&f, rt_peer(RT_ROLE_WORKER, 1), HASH + 1);
    assert_int_equal(stop_of(&f, other, text, sizeof text), RT_REASON_LASTS);
    assert_non_null(strstr(text, "worker 1 runs with another configuration"));
    do { // as a process that starts again: until its connection before has ended here
        ops->end(other, 0);
        other = join_as(&f, rt_peer(RT_ROLE_WORKER, 1), HASH);
    } while (!ends_unless_stopped(&f, thread, other));
    f.workers[1] = other;
    if (a.status)
        fail_msg("%s", a.error.text);
    assert_int_equal(dp_roster_members(f.roster)->worker_places, 7);
    finish(&f);
}

// With its end the run says to all whether to start again may help; so does a member with its own.
static void ends_say_whether_they_last(void **state)
{
    (void)state;
    static const struct {
        rt_status status;
        rt_reason reason;
    } ends[] = {{RT_OK, RT_REASON_COMPLETE},  {RT_PEER, RT_REASON_FAILED},
                {RT_AGAIN, RT_REASON_ANEW},   {RT_IO, RT_REASON_FAILED},
                {RT_CONFIG, RT_REASON_LASTS}, {RT_DATA, RT_REASON_LASTS},
                {RT_REFUSED, RT_REASON_LASTS}};
    fixture f;
    char text[256];
    rt_error error = {0};
    rt_message message;
    start(&f, 2);
    join_worker(&f, 0);
    join_worker(&f, 2);
    assemble(&f);
    for (size_t i = 0; i < RT_COUNT_OF(ends); i++) {
        dp_roster_stop(f.roster, ends[i].status, "why");
        assert_int_equal(stop_of(&f, f.workers[2], text, sizeof text), ends[i].reason);
        assert_string_equal(text, "why");
    }
    assert_int_equal(rt_control_create_end(&message, RT_MESSAGE_FAILED, rt_peer(RT_ROLE_PS, 0),
                                           RT_CONFIG, "no room"),
                     RT_OK);
    assert_int_equal(ops->send(f.shard, COORDINATOR, &message), RT_OK);
    rt_status status = RT_AGAIN;
    uint32_t peer;
    while (status == RT_AGAIN && rt_now_ns() < f.end_ns) {
        assert_int_equal(dp_roster_wait(f.roster, -1, &error), RT_OK);
        status = dp_roster_receive(f.roster, &peer, &message, &error);
    }
    assert_int_equal(status, RT_REFUSED);
    assert_string_equal(error.text, "ps 0 failed: no room");
    finish(&f);
}

// A worker says why it leaves, and is gone when something is sent to it before that is read.
static void last_words_are_heard(void **state)
{
    (void)state;
    fixture f;
    rt_error error = {0};
    rt_message message;
    rt_status status = RT_OK;
    start(&f, 2);
    join_worker(&f, 0);
    join_worker(&f, 2);
    assemble(&f);
    assert_int_equal(rt_control_create_end(&message, RT_MESSAGE_FAILED, rt_peer(RT_ROLE_WORKER, 2),
                                           RT_DATA, "no model of mine"),
                     RT_OK);
    assert_int_equal(ops->send(f.workers[2], COORDINATOR, &message), RT_OK);
    ops->end(f.workers[2], 20000);
    f.workers[2] = NULL;
    while (status == RT_OK && rt_now_ns() < f.end_ns) {
        assert_int_equal(rt_control_create(&message, RT_MESSAGE_FINISH, COORDINATOR), RT_OK);
        status = dp_roster_send(f.roster, rt_peer(RT_ROLE_WORKER, 1), &message, &error);
    }
    assert_int_equal(status, RT_REFUSED);
    assert_string_equal(error.text, "worker 2 failed: no model of mine");
    finish(&f);
}

// Of two shards the first, and worker 1, are of a box that is no part of the run: the other shard
// is 0 from then on. Who is out waits, and cannot say anything; in the end its reason is another
// one.
static void boxes_that_are_out_wait(void **state)
{
    (void)state;
    fixture f;
    rt_error error = {0};
    rt_wire_welcome welcome = {.worker_count = 2, .shard_count = 1};
    start_with(&f, 0, 2, 2, 1);
    join_worker(&f, 0);
    join_worker(&f, 1);
    join_worker(&f, 2);
    rt_endpoint *other = join(&f, rt_peer(RT_ROLE_PS, 1));
    assemble(&f);
    assert_int_equal(dp_roster_members(f.roster)->worker_places, 5);
    assert_int_equal(dp_membership_returning(dp_roster_members(f.roster)), 0);
    assert_true(members_connected(f.roster, rt_peer(RT_ROLE_WORKER, 1)));
    assert_false(members_connected(f.roster, rt_peer(RT_ROLE_PS, 3)));
    assert_int_equal(dp_roster_welcome(f.roster, &welcome, &error), RT_OK);
    assert_int_equal(welcome.shards_in, 2);
    assert_int_equal(welcome.workers, 5);
    rt_message message = receive(&f, other);
    assert_int_equal(rt_message_header(&message)->type, RT_MESSAGE_WELCOME);
    rt_message_release(&message);
    message = receive(&f, f.workers[0]);
    assert_int_equal(rt_message_header(&message)->type, RT_MESSAGE_WELCOME);
    rt_message_release(&message);
    const rt_member member = {.config = {.self = rt_peer(RT_ROLE_PS, 1)}, .welcome = welcome};
    assert_int_equal(rt_member_rank(&member), 0);
    dp_membership_dismiss(dp_roster_members(f.roster), 1, 0);
    dp_roster_stop(f.roster, RT_AGAIN, "all start anew");
    char text[128];
    assert_int_equal(stop_of(&f, f.workers[0], text, sizeof text), RT_REASON_DRAINED);
    assert_string_equal(text, RT_BOX_DRAINED);
    assert_int_equal(stop_of(&f, f.workers[1], text, sizeof text), RT_REASON_ANEW);
    ops->end(other, 0);
    finish(&f);
}

// Lets messages come until that fails.
static void await_failure(fixture *f, rt_error *error)
{
    rt_status status = RT_AGAIN;
    while (status == RT_AGAIN && rt_now_ns() < f->end_ns) {
        uint32_t peer;
        rt_message message = {0};
        assert_int_equal(dp_roster_wait(f->roster, -1, error), RT_OK);
        status = dp_roster_receive(f->roster, &peer, &message, error);
        rt_message_release(&message);
    }
    assert_int_equal(status, RT_REFUSED);
}

// Members that have served this start of the run, or one before, or another run, take part; one
// that has served a later one ends it: the run is led from elsewhere, and its members go there.
static void a_later_epoch_ends_the_run(void **state)
{
    (void)state;
    fixture f;
    rt_error error = {0};
    char text[512];
    start(&f, 2);
    f.workers[0] = join_after(&f, rt_peer(RT_ROLE_WORKER, 0), HASH, RUN, EPOCH);
    f.workers[2] = join_after(&f, rt_peer(RT_ROLE_WORKER, 2), HASH, RUN + 1, EPOCH + 100);
    assemble(&f);
    assert_false(dp_roster_is_replaced(f.roster));
    f.workers[1] = join_after(&f, rt_peer(RT_ROLE_WORKER, 1), HASH, RUN, EPOCH + 1);
    await_failure(&f, &error);
    assert_true(dp_roster_is_replaced(f.roster));
    assert_non_null(
        strstr(error.text, "this coordinator was replaced: worker 1 has served epoch 6"));
    assert_int_equal(stop_of(&f, f.workers[1], text, sizeof text), RT_REASON_FAILED);
    dp_roster_stop(f.roster, RT_PEER, error.text);
    assert_int_equal(stop_of(&f, f.workers[0], text, sizeof text), RT_REASON_FAILED);
    finish(&f);
}

static void a_later_epoch_ends_what_has_not_begun(void **state)
{
    (void)state;
    fixture f;
    rt_error error = {0};
    start(&f, 0);
    join_worker(&f, 0);
    join_worker(&f, 1);
    f.workers[2] = join_after(&f, rt_peer(RT_ROLE_WORKER, 2), HASH, RUN, EPOCH + 1);
    assert_int_equal(dp_roster_assemble(f.roster, -1, &error), RT_REFUSED);
    assert_non_null(strstr(error.text, "worker 2 has served epoch 6"));
    finish(&f);
}

static rt_endpoint *join_of_box(fixture *f, uint32_t self, uint64_t box)
{
    rt_endpoint *endpoint = NULL;
    rt_wire_hello hello = {
        .role = rt_peer_role(self), .rank = rt_peer_rank(self), .config_hash = HASH, .box = box};
    rt_control_put_text(hello.program, sizeof hello.program, rt_build());
    rt_control_put_text(hello.address, sizeof hello.address, "tcp://127.0.0.1:1");
    assert_int_equal(ops->connect(f->transport, self, COORDINATOR, dp_roster_address(f->roster),
                                  &endpoint, NULL),
                     RT_OK);
    say(endpoint, self, RT_MESSAGE_HELLO, &hello, sizeof hello);
    return endpoint;
}

static void give_box(rt_config *config, uint32_t workers, uint32_t shards)
{
    rt_box_config *box = &config->boxes[config->box_count++];
    *box = (rt_box_config){.worker_count = workers, .shard_count = shards, .link = {1, 1}};
    snprintf(box->name, sizeof box->name, "box%u", config->box_count);
}

// A box more while the run trains: its members wait, as those of any that is out; who says
// something else of its box than the run knows is told so. The others keep their places.
static void a_box_more_waits(void **state)
{
    (void)state;
    fixture f;
    char text[256];
    rt_error error = {0};
    uint32_t peer;
    rt_message message;
    start(&f, 2);
    join_worker(&f, 0);
    join_worker(&f, 2);
    assemble(&f);
    give_box(&f.config, WORKERS, 1);
    give_box(&f.config, 2, 1);
    f.config.worker_count += 2;
    f.config.ps_shard_count += 1;
    dp_membership_extend(dp_roster_members(f.roster), WORKERS + 2, 2);
    const uint32_t worker = rt_peer(RT_ROLE_WORKER, WORKERS + 1), shard = rt_peer(RT_ROLE_PS, 1);
    rt_endpoint *other = join_of_box(&f, worker, rt_config_hash_box(&f.config, 0));
    while (dp_roster_receive(f.roster, &peer, &message, &error) == RT_AGAIN &&
           ops->receive(other, &peer, &message, &error) == RT_AGAIN)
        assert_int_equal(dp_roster_wait(f.roster, -1, &error), RT_OK);
    assert_int_equal(rt_control_text(&message, text, sizeof text), RT_OK);
    assert_non_null(strstr(text, "worker 4 has a different entry for its box"));
    rt_message_release(&message);
    ops->end(other, 0);
    const uint64_t box = rt_config_hash_box(&f.config, 1);
    rt_endpoint *members[] = {join_of_box(&f, rt_peer(RT_ROLE_WORKER, WORKERS), box),
                              join_of_box(&f, shard, box)};
    while (!members_connected(f.roster, rt_peer(RT_ROLE_WORKER, WORKERS)) ||
           !members_connected(f.roster, shard)) {
        assert_true(rt_now_ns() < f.end_ns);
        assert_int_equal(dp_roster_wait(f.roster, -1, &error), RT_OK);
        rt_status status = dp_roster_receive(f.roster, &peer, &message, &error);
        if (status != RT_AGAIN)
            fail_msg("%s", error.text);
    }
    assert_int_equal(dp_roster_members(f.roster)->worker_places, 5); // of those that train
    assert_int_equal(rt_control_create(&message, RT_MESSAGE_FINISH, COORDINATOR), RT_OK);
    assert_int_equal(dp_roster_send(f.roster, rt_peer(RT_ROLE_PS, 0), &message, &error), RT_OK);
    message = receive(&f, f.shard);
    assert_int_equal(rt_message_header(&message)->type, RT_MESSAGE_FINISH);
    rt_message_release(&message);
    ops->end(members[0], 0);
    ops->end(members[1], 0);
    finish(&f);
}

typedef struct {
    uint64_t may; // mask of places
    uint32_t asked;
    char why[256];
    dp_membership *members;
} sparing;

static bool spares(void *context, uint32_t worker, const char *why)
{
    sparing *all = context;
    all->asked++;
    snprintf(all->why, sizeof all->why, "%u: %s", worker, why);
    if (!(all->may >> worker & 1))
        return false;
    all->members->clean = all->may;
    dp_membership_lose(all->members, worker);
    return true;
}

static void await_question(fixture *f, const sparing *all, uint32_t count)
{
    while (all->asked < count) {
        rt_error error = {0};
        assert_true(rt_now_ns() < f->end_ns);
        if (take_a_turn(f, 4, &error))
            fail_msg("%s", error.text);
        assert_string_equal(error.text, "");
    }
}

// Workers that the run can do without may say that they fail, be cut off and fall silent; what is
// sent to them goes nowhere, and they wait if they come back. One that it needs ends it.
static void who_can_be_spared_ends_nothing(void **state)
{
    (void)state;
    fixture f;
    rt_error error = {0};
    rt_message message;
    sparing all = {.may = 3};
    start_alone(&f, 2, 1, 0, 0);
    dp_roster_destroy(f.roster);
    const dp_roster_config config = {.ops = ops,
                                     .transport = f.transport,
                                     .config = &f.config,
                                     .identity = {.config_hash = HASH},
                                     .may_shrink = true,
                                     .spares = spares,
                                     .context = &all};
    assert_int_equal(dp_roster_create(&config, &f.roster, &error), RT_OK);
    all.members = dp_roster_members(f.roster);
    f.shard = join(&f, rt_peer(RT_ROLE_PS, 0));
    for (uint32_t w = 0; w < WORKERS; w++)
        join_worker(&f, w);
    assemble(&f);
    assert_int_equal(dp_roster_members(f.roster)->worker_places, 7);
    say(f.workers[0], rt_peer(RT_ROLE_WORKER, 0), RT_MESSAGE_FAILED, "enough", 6);
    await_question(&f, &all, 1);
    assert_string_equal(all.why, "0: worker 0 failed: enough");
    assert_int_equal(rt_control_create(&message, RT_MESSAGE_FINISH, COORDINATOR), RT_OK);
    assert_int_equal(dp_roster_send(f.roster, rt_peer(RT_ROLE_WORKER, 0), &message, &error), RT_OK);
    assert_int_equal(dp_roster_members(f.roster)->worker_places, 7); // by their places
    ops->end(f.workers[1], 0);
    f.workers[1] = NULL;
    f.config.timeout_peer_s = 2 * test_limit_factor(); // heartbeats, and silence
    await_question(&f, &all, 2);
    assert_string_equal(all.why, "1: worker 1 is gone: its connection has ended");
    join_worker(&f, 1);
    await_waiting(&f, 2);
    f.end_ns = rt_now_ns() + PATIENCE_S * test_limit_factor() * UINT64_C(1000000000);
    for (rt_status status = RT_OK; status != RT_PEER;) { // worker 2 says nothing
        assert_true(rt_now_ns() < f.end_ns);
        status = take_a_turn(&f, 2, &error);
    }
    assert_non_null(strstr(error.text, "worker 2 was silent"));
    assert_int_equal(all.asked, 3);
    assert_int_equal(dp_roster_lost(f.roster), 2);
    finish(&f);
}

TEST_MAIN(TEST(a_box_more_waits), TEST(who_can_be_spared_ends_nothing),
          TEST(the_others_are_numbered_anew), TEST(boxes_that_are_out_wait),
          TEST(who_is_late_is_not_waited_for), TEST(no_run_without_a_shard),
          TEST(a_visitor_learns_whether_it_fits), TEST(a_later_epoch_ends_the_run),
          TEST(a_later_epoch_ends_what_has_not_begun), TEST(who_waits_ends_nothing),
          TEST(who_waits_may_be_cut_off), TEST(a_heard_coordinator_is_waited_for),
          TEST(who_does_not_fit_is_waited_for), TEST(ends_say_whether_they_last),
          TEST(last_words_are_heard))
