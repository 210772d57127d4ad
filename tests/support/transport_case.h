// transport_case - a server and a client joined by a transport, numbered messages between them, and
// the same cases for every transport.
//
// Static: every test has its own copy.
#ifndef TRANSPORT_CASE_H
#define TRANSPORT_CASE_H

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/transport/rt_ucx.h"
#include "tests/support/process_case.h"
#include "tests/support/test.h"

#define COORDINATOR (rt_peer(RT_ROLE_COORDINATOR, 0))
#define ANY_PORT "tcp://127.0.0.1:0"
#define PATIENCE_MS 20000 // a step that takes longer has failed
#define SHORT_MS 20
#define FOREVER_MS 3600000 // longer than a case may take

static inline uint32_t worker(uint32_t rank)
{
    return rt_peer(RT_ROLE_WORKER, rank);
}

// A coordinator that listens and a worker 3 that is connected and known.
typedef struct {
    const rt_transport_ops *ops;
    rt_transport *transport;
    rt_endpoint *server, *client;
    char address[RT_NAME_MAX];
} pair;

// Messages of some transports only move while their endpoints are called. So whoever waits at one
// end of a pair of its thread lets the other end move too.
#define PAIRS_MAX 2
static _Thread_local const pair *open_pairs[PAIRS_MAX];

static inline rt_status wait_moving(const rt_transport_ops *ops, rt_endpoint *endpoint,
                                    uint32_t limit_ms)
{
    rt_endpoint *endpoints[1 + 2 * PAIRS_MAX] = {endpoint};
    bool ready[1 + 2 * PAIRS_MAX] = {false};
    uint32_t count = 1;
    for (size_t i = 0; i < PAIRS_MAX && open_pairs[i]; i++) {
        rt_endpoint *const ends[] = {open_pairs[i]->server, open_pairs[i]->client};
        for (size_t n = 0; n < 2; n++)
            if (ends[n] && ends[n] != endpoint)
                endpoints[count++] = ends[n];
    }
    return ops->wait(endpoints, count, -1, limit_ms, ready);
}

// ---- steps that wait for what must come

static inline rt_status receive_within(const rt_transport_ops *ops, rt_endpoint *endpoint,
                                       uint32_t *peer_p, rt_message *message, rt_error *error)
{
    uint64_t end_ns = rt_now_ns() + PATIENCE_MS * UINT64_C(1000000);
    rt_status status;
    while ((status = ops->receive(endpoint, peer_p, message, error)) == RT_AGAIN) {
        if (rt_now_ns() > end_ns)
            return RT_TIMEOUT;
        status = wait_moving(ops, endpoint, SHORT_MS);
        if (status)
            return status;
    }
    return status;
}

// Sends, trying again while the queue is full. The message is used up, also on failure.
static inline rt_status send_within(const rt_transport_ops *ops, rt_endpoint *endpoint,
                                    uint32_t peer, rt_message *message)
{
    uint64_t end_ns = rt_now_ns() + PATIENCE_MS * UINT64_C(1000000);
    rt_status status;
    while ((status = ops->send(endpoint, peer, message)) == RT_AGAIN) {
        status = rt_now_ns() > end_ns ? RT_TIMEOUT : wait_moving(ops, endpoint, 1);
        if (status)
            break;
    }
    rt_message_release(message);
    return status;
}

static inline rt_message number_message(uint32_t sender, uint64_t number, size_t payload_bytes)
{
    rt_message message = {0};
    rt_assert(rt_message_create(&message, RT_MESSAGE_SLICE, sender, number, 0, payload_bytes) ==
              RT_OK);
    uint8_t *payload = rt_message_payload(&message);
    for (size_t i = 0; i < payload_bytes; i++)
        payload[i] = (uint8_t)(i * 7 + i / 256 + number);
    return message;
}

static inline bool number_matches(const rt_message *message, uint32_t sender, uint64_t number,
                                  size_t payload_bytes)
{
    const rt_wire_header *header = rt_message_header(message);
    const uint8_t *payload = rt_message_payload(message);
    if ((uintptr_t)message->data % 8 != 0 || header->sender != sender ||
        header->iteration != number || message->size != sizeof *header + payload_bytes)
        return false;
    for (size_t i = 0; i < payload_bytes; i++)
        if (payload[i] != (uint8_t)(i * 7 + i / 256 + number))
            return false;
    return true;
}

static inline void send_number(const rt_transport_ops *ops, rt_endpoint *endpoint, uint32_t self,
                               uint32_t peer, uint64_t number, size_t payload_bytes)
{
    rt_message message = number_message(self, number, payload_bytes);
    assert_int_equal(send_within(ops, endpoint, peer, &message), RT_OK);
    assert_null(message.data);
}

static inline void expect_number(const rt_transport_ops *ops, rt_endpoint *endpoint, uint32_t peer,
                                 uint64_t number, size_t payload_bytes)
{
    uint32_t from = 0;
    rt_message message = {0};
    rt_error error = {0};
    rt_status status = receive_within(ops, endpoint, &from, &message, &error);
    if (status)
        fail_msg("no message %d: %s (%s)", (int)number, rt_status_text(status), error.text);
    assert_int_equal(from, peer);
    assert_true(number_matches(&message, peer, number, payload_bytes));
    rt_message_release(&message);
}

// Connecting, in a thread of its own so that the server can move meanwhile.
typedef struct {
    const rt_transport_ops *ops;
    rt_transport *transport;
    uint32_t self;
    const char *address;
    rt_endpoint *endpoint;
    rt_status status;
    atomic_bool is_done;
} connecting;

static inline void *connect_one(void *context)
{
    connecting *one = context;
    one->status = one->ops->connect(one->transport, one->self, COORDINATOR, one->address,
                                    &one->endpoint, NULL);
    atomic_store(&one->is_done, true);
    return NULL;
}

static inline rt_endpoint *connect_to(const pair *both, rt_transport *transport, uint32_t self)
{
    connecting one = {both->ops, transport, self, both->address, NULL, RT_OK, false};
    pthread_t thread;
    bool ready;
    assert_int_equal(pthread_create(&thread, NULL, connect_one, &one), 0);
    while (!atomic_load(&one.is_done)) // connect is bounded
        assert_int_equal(both->ops->wait(&both->server, 1, -1, 1, &ready), RT_OK);
    pthread_join(thread, NULL);
    assert_int_equal(one.status, RT_OK);
    return one.endpoint;
}

static inline void pair_open(const rt_transport_ops *ops, pair *both)
{
    rt_error error = {0};
    both->ops = ops;
    assert_int_equal(ops->open(&both->transport, &error), RT_OK);
    assert_int_equal(
        ops->listen(both->transport, COORDINATOR, ANY_PORT, both->address, &both->server, &error),
        RT_OK);
    both->client = connect_to(both, both->transport, worker(3));
    open_pairs[open_pairs[0] != NULL] = both;
    send_number(ops, both->client, worker(3), COORDINATOR, 1, 5);
    expect_number(ops, both->server, worker(3), 1, 5);
}

static inline void pair_close(pair *both)
{
    if (open_pairs[0] == both)
        open_pairs[0] = open_pairs[1];
    open_pairs[1] = NULL;
    both->ops->end(both->client, 0);
    both->ops->end(both->server, 0);
    both->ops->close(both->transport);
}

// Sends 64 KB messages that nobody reads, until there is no room for more: their number.
static inline uint64_t fill(const rt_transport_ops *ops, rt_endpoint *from, uint32_t self,
                            uint32_t peer)
{
    const uint64_t count_max = 4000;
    rt_status status = RT_OK;
    for (uint64_t sent = 0; sent < count_max; sent++) {
        rt_message message = number_message(self, sent, 65536);
        status = ops->send(from, peer, &message);
        if (status)
            assert_true(number_matches(&message, self, sent, 65536)); // still the caller's
        rt_message_release(&message);
        if (status) {
            assert_int_equal(status, RT_AGAIN);
            return sent;
        }
    }
    fail_msg("%d messages were taken", (int)count_max);
    return 0;
}

static inline void count_release(void *hint)
{
    ++*(volatile int *)hint;
}

// ---- every transport

// UCX is optional: the plug-in beside the program, whose loading starts no thread.
static inline const rt_ucx_plugin *test_ucx(void)
{
    const rt_ucx_plugin *plugin;
    rt_error error = {0};
    if (rt_ucx_open(process_beside(RT_UCX_FILE), &plugin, &error))
        test_skip("%s", error.text);
    return plugin;
}

// TRANSPORT_STAMP(f) makes a case of f(ops) for every transport; a backend is added here.
#define TRANSPORT_STAMP(name)              \
    static void zmq_##name(void **state)   \
    {                                      \
        (void)state;                       \
        name(&rt_transport_zmq);           \
    }                                      \
    static void ucx_##name(void **state)   \
    {                                      \
        (void)state;                       \
        name(test_ucx()->ucx);             \
    }                                      \
    static void mixed_##name(void **state) \
    {                                      \
        (void)state;                       \
        name(test_ucx()->mixed);           \
    }
#define TRANSPORT_ENTRIES(name) TEST(zmq_##name), TEST(ucx_##name), TEST(mixed_##name),

#endif
