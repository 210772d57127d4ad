// A shard's server whose transport says no: what it waits for meanwhile, and how it ends. Over real
// sockets, with a hand on what their calls return. And probes, while nobody else has a turn.
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>

#include "tests/support/server_case.h"

// What the transport does to the endpoint that workers come to, beside its work.
static rt_endpoint *_Atomic guests;
static atomic_int send_says, receive_says, wait_says; // rt_status; RT_OK: what is so
static atomic_uint last_wait_ms, sends;

// And to the one that goes to the coordinator: the message with this number, from 1, is not taken;
// 0: all are.
static rt_endpoint *_Atomic upward;
static atomic_uint fails_at;

static rt_status faulty_listen(rt_transport *transport, uint32_t self, const char *address,
                               char *bound, rt_endpoint **endpoint_p, rt_error *error)
{
    const rt_status status = ops->listen(transport, self, address, bound, endpoint_p, error);
    if (!status)
        atomic_store(&guests, *endpoint_p);
    return status;
}

static rt_status faulty_connect(rt_transport *transport, uint32_t self, uint32_t server,
                                const char *address, rt_endpoint **endpoint_p, rt_error *error)
{
    const rt_status status = ops->connect(transport, self, server, address, endpoint_p, error);
    if (!status)
        atomic_store(&upward, *endpoint_p);
    return status;
}

static rt_status faulty_send(rt_endpoint *endpoint, uint32_t peer, rt_message *message)
{
    const rt_status status = (rt_status)atomic_load(&send_says);
    if (endpoint == atomic_load(&upward) && atomic_load(&fails_at) && !is_sign_of_life(message) &&
        atomic_fetch_sub(&fails_at, 1) == 1)
        return RT_IO;
    if (endpoint != atomic_load(&guests))
        return ops->send(endpoint, peer, message);
    atomic_fetch_add(&sends, 1);
    return status ? status : ops->send(endpoint, peer, message);
}

static rt_status faulty_receive(rt_endpoint *endpoint, uint32_t *peer_p, rt_message *message,
                                rt_error *error)
{
    const rt_status status = (rt_status)atomic_load(&receive_says);
    if (endpoint == atomic_load(&guests) && status)
        return rt_fail(error, status, "the line is bad");
    return ops->receive(endpoint, peer_p, message, error);
}

static rt_status faulty_wait(rt_endpoint *const *endpoints, uint32_t count, int wake_fd,
                             uint32_t timeout_ms, bool *ready)
{
    atomic_store(&last_wait_ms, timeout_ms);
    const rt_status status = (rt_status)atomic_load(&wait_says);
    return status ? status : ops->wait(endpoints, count, wake_fd, timeout_ms, ready);
}

static rt_transport_ops faulty;

static void begin(fixture *f)
{
    faulty = *ops;
    faulty.listen = faulty_listen;
    faulty.connect = faulty_connect;
    faulty.send = faulty_send;
    faulty.receive = faulty_receive;
    faulty.wait = faulty_wait;
    start(f);
    f->server.transport = &faulty;
    launch(f);
    join_run(f, HASH);
}

static const row_record record = {{5, 2, 0}, {1, 2, 3, 4}};

static void push(fixture *f)
{
    from_worker(f, RT_MESSAGE_PUSH_ROW, &record, sizeof record);
}

// Until a condition holds of what the server's thread does.
#define AWAIT(condition)                                                       \
    do {                                                                       \
        const uint64_t end_ns = rt_now_ns() + PATIENCE_MS * UINT64_C(1000000); \
        for (; !(condition); (void)poll(NULL, 0, 1))                           \
            if (rt_now_ns() > end_ns)                                          \
                fail_msg("%s never came", #condition);                         \
    } while (0)

// The transport does not tell when it has room again: the server asks every millisecond, as long as
// something waits, and then no more.
static void what_is_not_taken_is_offered_again(void **state)
{
    (void)state;
    fixture f;
    begin(&f);
    AWAIT(atomic_load(&last_wait_ms) > 1);
    atomic_store(&send_says, RT_AGAIN);
    push(&f);
    AWAIT(atomic_load(&sends) > 20); // offered again and again
    assert_true(atomic_load(&last_wait_ms) <= 1);
    atomic_store(&send_says, RT_OK);
    rt_message message = expect(f.worker, RT_MESSAGE_PUSHED);
    rt_message_release(&message);
    AWAIT(atomic_load(&last_wait_ms) > 1);
    const uint32_t before = atomic_load(&sends);
    push(&f);
    message = expect(f.worker, RT_MESSAGE_PUSHED);
    rt_message_release(&message);
    assert_int_equal(atomic_load(&sends), before + 1);
    from_coordinator(&f, RT_MESSAGE_STOP, "enough", 6);
    end(&f, RT_STOPPED, "enough");
}

static rt_status shut_open(rt_transport **transport_p, rt_error *error)
{
    (void)transport_p;
    return rt_fail(error, RT_IO, "no transport today");
}

static rt_status shut_listen(rt_transport *transport, uint32_t self, const char *address,
                             char *bound, rt_endpoint **endpoint_p, rt_error *error)
{
    (void)transport, (void)self, (void)address, (void)bound, (void)endpoint_p;
    return rt_fail(error, RT_IO, "nobody listens today");
}

static rt_status shut_connect(rt_transport *transport, uint32_t self, uint32_t server,
                              const char *address, rt_endpoint **endpoint_p, rt_error *error)
{
    (void)transport, (void)self, (void)server, (void)address, (void)endpoint_p;
    return rt_fail(error, RT_IO, "no way to the coordinator");
}

// Before it has said anything to anybody.
static void a_transport_that_does_not_open(void **state)
{
    (void)state;
    static const char *const says[] = {"no transport today", "nobody listens today",
                                       "no way to the coordinator"};
    for (uint32_t i = 0; i < RT_COUNT_OF(says); i++) {
        fixture f;
        start(&f);
        faulty = *ops;
        if (i == 0)
            faulty.open = shut_open;
        if (i == 1)
            faulty.listen = shut_listen;
        if (i == 2)
            faulty.connect = shut_connect;
        f.server.transport = &faulty;
        assert_int_equal(pthread_create(&f.thread, NULL, run_server, &f), 0);
        end(&f, RT_IO, says[i]);
    }
}

static void a_transport_that_fails_ends_the_shard(void **state)
{
    (void)state;
    static const struct {
        atomic_int *call;
        const char *text;
    } cases[] = {{&send_says, "cannot send to worker 0: "},
                 {&receive_says, "the line is bad"},
                 {&wait_says, "waiting for messages: "}};
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
        fixture f;
        begin(&f);
        push(&f);
        rt_message message = expect(f.worker, RT_MESSAGE_PUSHED);
        rt_message_release(&message);
        atomic_store(cases[i].call, RT_IO);
        if (cases[i].call != &wait_says)
            push(&f);
        else
            from_worker(&f, RT_MESSAGE_HEARTBEAT, NULL, 0);
        expect_failed(&f, RT_IO, cases[i].text);
        atomic_store(cases[i].call, RT_OK);
    }
}

// An answer that the coordinator does not get: the run cannot go on, and the shard says so,
// whatever it was asked.
static void answers_that_are_not_taken(void **state)
{
    (void)state;
    static const rt_wire_expire expire;
    static rt_wire_cut cut;
    static rt_wire_load load;
    snprintf(cut.folder, sizeof cut.folder, "%s", test_path("ckpt-000000000000"));
    const struct {
        rt_message_type type;
        const void *payload;
        size_t size;
        uint32_t answers;
    } orders[] = {
        {RT_MESSAGE_KEYS, NULL, 0, 1},         {RT_MESSAGE_EXPIRE, &expire, sizeof expire, 1},
        {RT_MESSAGE_CUT, &cut, sizeof cut, 2}, {RT_MESSAGE_LOAD, &load, sizeof load, 1},
        {RT_MESSAGE_SAVE, NULL, 0, 1},         {RT_MESSAGE_FINISH, NULL, 0, 1}};
    for (size_t i = 0; i < RT_COUNT_OF(orders); i++) {
        for (uint32_t n = 1; n <= orders[i].answers; n++) {
            fixture f;
            rt_message message = {0};
            begin(&f);
            push(&f);
            message = expect(f.worker, RT_MESSAGE_PUSHED);
            atomic_store(&fails_at, n);
            from_coordinator(&f, orders[i].type, orders[i].payload, orders[i].size);
            do {
                rt_message_release(&message);
                receive(f.coordinator, &message);
            } while (rt_message_header(&message)->type != RT_MESSAGE_FAILED);
            rt_message_release(&message);
            assert_int_equal(atomic_load(&fails_at), 0);
            end(&f, RT_PEER, "cannot send to the coordinator");
        }
    }
}

// ---- probes ----------------------------------------------------------------------------------

static void probe(rt_endpoint *from, uint32_t worker, uint32_t kind, uint64_t number)
{
    const rt_wire_probe ask = {.kind = kind, .answer_bytes = 8};
    send_bytes(from, rt_peer(RT_ROLE_WORKER, worker), rt_peer(RT_ROLE_PS, 0), RT_MESSAGE_PROBE,
               number, 1, &ask, sizeof ask);
}

static void expect_probed(rt_endpoint *endpoint, uint64_t number)
{
    rt_message message = expect(endpoint, RT_MESSAGE_PROBED);
    assert_int_equal(rt_message_header(&message)->iteration, number);
    assert_int_equal(rt_message_header(&message)->sender, rt_peer(RT_ROLE_PS, 0));
    rt_message_release(&message);
}

// One at a time; the turn of one that falls silent goes to the next, though no message comes.
static void a_probe_that_falls_silent_loses_its_turn(void **state)
{
    (void)state;
    fixture f;
    rt_error error;
    rt_endpoint *other;
    begin(&f);
    assert_int_equal(ops->connect(f.transport, rt_peer(RT_ROLE_WORKER, 1), rt_peer(RT_ROLE_PS, 0),
                                  f.shard_address, &other, &error),
                     RT_OK);
    probe(f.worker, 0, RT_PROBE_BEGIN, 11);
    expect_probed(f.worker, 11);
    probe(other, 1, RT_PROBE_BEGIN, 12); // has to wait
    probe(f.worker, 0, RT_PROBE_ECHO, 13);
    expect_probed(f.worker, 13);
    expect_probed(other, 12);
    ops->end(other, 0);
    probe(f.worker, 0, 9, 14);
    expect_failed(&f, RT_WIRE, "worker 0: a probe of kind 9");
}

TEST_MAIN(TEST(what_is_not_taken_is_offered_again), TEST(a_transport_that_does_not_open),
          TEST(a_transport_that_fails_ends_the_shard), TEST(answers_that_are_not_taken),
          TEST(a_probe_that_falls_silent_loses_its_turn))
