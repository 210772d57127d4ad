// What strangers may do to rt_transport over ZeroMQ: raw sockets instead of a well-behaved peer.
// (What every transport does is in tests/conform/test_transport.c.)
#include "runtime/transport/rt_transport.h"

#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#include "runtime/config/rt_config.h"
#include "tests/support/test.h"

#define COORDINATOR (rt_peer(RT_ROLE_COORDINATOR, 0))
#define WORKER (rt_peer(RT_ROLE_WORKER, 3))
#define PATIENCE_MS 20000

static const rt_transport_ops *const ops = &rt_transport_zmq;

// A listening coordinator and a raw socket that connects to it as worker 3.
typedef struct {
    rt_transport *transport;
    rt_endpoint *server;
    void *context, *raw;
    char address[RT_NAME_MAX];
} scene;

static void *raw_connect(scene *on, const void *identity, size_t size)
{
    int linger = 0;
    void *raw = zmq_socket(on->context, ZMQ_DEALER);
    assert_non_null(raw);
    zmq_setsockopt(raw, ZMQ_LINGER, &linger, sizeof linger);
    if (size)
        assert_int_equal(zmq_setsockopt(raw, ZMQ_ROUTING_ID, identity, size), 0);
    assert_int_equal(zmq_connect(raw, on->address), 0);
    return raw;
}

static void scene_open(scene *on)
{
    const uint8_t identity[12] = {RT_ROLE_WORKER, 0, 0, 3, 1};
    assert_int_equal(ops->open(&on->transport, NULL), RT_OK);
    assert_int_equal(ops->listen(on->transport, COORDINATOR, "tcp://127.0.0.1:0", on->address,
                                 &on->server, NULL),
                     RT_OK);
    on->context = zmq_ctx_new();
    on->raw = raw_connect(on, identity, sizeof identity);
}

static void scene_close(scene *on)
{
    zmq_close(on->raw);
    zmq_ctx_term(on->context);
    ops->end(on->server, 0);
    ops->close(on->transport);
}

static rt_status receive_within(rt_endpoint *endpoint, uint32_t *peer_p, rt_message *message,
                                rt_error *error)
{
    uint64_t end_ns = rt_now_ns() + PATIENCE_MS * UINT64_C(1000000);
    rt_status status;
    bool ready = false;
    while ((status = ops->receive(endpoint, peer_p, message, error)) == RT_AGAIN) {
        if (rt_now_ns() > end_ns)
            return RT_TIMEOUT;
        ops->wait(&endpoint, 1, -1, 20, &ready);
    }
    return status;
}

static void raw_send_hello(void *raw, uint32_t sender)
{
    rt_message message = {0};
    assert_int_equal(rt_message_create(&message, RT_MESSAGE_HELLO, sender, 0, 0, 10), RT_OK);
    memset(rt_message_payload(&message), 0, 10);
    assert_int_equal(zmq_send(raw, message.data, message.size, 0), message.size);
    rt_message_release(&message);
}

// The next message is refused, the text naming the peer and saying why.
static void expect_refused(scene *on, const char *why)
{
    uint32_t peer = 0;
    rt_message message = {0};
    rt_error error = {0};
    assert_int_equal(receive_within(on->server, &peer, &message, &error), RT_WIRE);
    assert_int_equal(peer, WORKER);
    assert_null(message.data);
    if (!strstr(error.text, why) || !strstr(error.text, "worker 3"))
        fail_msg("\"%s\" does not say \"%s\" and who", error.text, why);
}

static void expect_hello(scene *on)
{
    uint32_t peer = 0;
    rt_message message = {0};
    assert_int_equal(receive_within(on->server, &peer, &message, NULL), RT_OK);
    assert_int_equal(peer, WORKER);
    assert_int_equal(rt_message_header(&message)->type, RT_MESSAGE_HELLO);
    rt_message_release(&message);
}

static void malformed_messages_are_refused(void **state)
{
    (void)state;
    scene on;
    uint8_t bytes[20000];
    scene_open(&on);
    memset(bytes, 0xee, sizeof bytes);
    for (size_t size = 0; size < 40; size++) {
        zmq_send(on.raw, bytes, size, 0);
        expect_refused(&on, "at least 40");
    }
    zmq_send(on.raw, bytes, 40, 0);
    expect_refused(&on, "0xeeeeeeee");
    zmq_send(on.raw, bytes, sizeof bytes, 0); // one that is not copied
    expect_refused(&on, "0xeeeeeeee");
    raw_send_hello(on.raw, WORKER);
    expect_hello(&on);
    scene_close(&on);
}

static void foreign_sender_is_refused(void **state)
{
    (void)state;
    scene on;
    scene_open(&on);
    raw_send_hello(on.raw, rt_peer(RT_ROLE_WORKER, 4));
    expect_refused(&on, "in the name of worker 4");
    raw_send_hello(on.raw, WORKER);
    expect_hello(&on);
    scene_close(&on);
}

static void several_frames_are_refused(void **state)
{
    (void)state;
    scene on;
    scene_open(&on);
    for (int parts = 2; parts < 20; parts++) {
        for (int i = 0; i < parts; i++)
            zmq_send(on.raw, "RLAYRLAY", 8, i < parts - 1 ? ZMQ_SNDMORE : 0);
        expect_refused(&on, "several frames");
    }
    zmq_send(on.raw, "", 0, ZMQ_SNDMORE); // what a REQ socket would send
    raw_send_hello(on.raw, WORKER);
    expect_refused(&on, "several frames");
    raw_send_hello(on.raw, WORKER);
    expect_hello(&on);
    scene_close(&on);
}

// No identity, short, long, no such role, rank too high, no connection number: nothing comes of it.
static void strangers_are_dropped(void **state)
{
    (void)state;
    scene on;
    const struct {
        uint8_t bytes[14];
        size_t size;
    } identities[] = {{{0}, 0},
                      {{RT_ROLE_WORKER, 0, 0, 1}, 4},
                      {{RT_ROLE_WORKER, 0, 0, 1, 1}, 11},
                      {{RT_ROLE_WORKER, 0, 0, 1, 1}, 13},
                      {{9, 0, 0, 1, 1}, 12},
                      {{RT_ROLE_WORKER, 0, 0, 200, 1}, 12},
                      {{RT_ROLE_PS, 0xff, 0xff, 0xff, 1}, 12},
                      {{RT_ROLE_WORKER, 0, 0, 2}, 12}};
    scene_open(&on);
    for (size_t i = 0; i < RT_COUNT_OF(identities); i++) {
        void *stranger = raw_connect(&on, identities[i].bytes, identities[i].size);
        for (int n = 0; n < 100; n++)
            raw_send_hello(stranger, WORKER);
        // Wait until something of it has arrived, then let the server look at all of it.
        bool ready = false;
        assert_int_equal(ops->wait(&on.server, 1, -1, PATIENCE_MS, &ready), RT_OK);
        assert_true(ready);
        for (uint32_t peer, n = 0; n < 10; n++) {
            rt_message message = {0};
            assert_int_equal(ops->receive(on.server, &peer, &message, NULL), RT_AGAIN);
        }
        zmq_close(stranger);
    }
    raw_send_hello(on.raw, WORKER);
    expect_hello(&on);
    scene_close(&on);
}

// A server of another make: wrong bytes and empty frames do not disturb the client.
static void bad_server_is_named(void **state)
{
    (void)state;
    scene on;
    rt_endpoint *client = NULL;
    uint32_t peer = 0;
    int linger = 0;
    size_t size = sizeof on.address;
    rt_message message = {0};
    rt_error error = {0};
    on.context = zmq_ctx_new();
    on.raw = zmq_socket(on.context, ZMQ_DEALER);
    zmq_setsockopt(on.raw, ZMQ_LINGER, &linger, sizeof linger);
    assert_int_equal(zmq_bind(on.raw, "tcp://127.0.0.1:*"), 0);
    zmq_getsockopt(on.raw, ZMQ_LAST_ENDPOINT, on.address, &size);
    assert_int_equal(ops->open(&on.transport, NULL), RT_OK);
    assert_int_equal(ops->connect(on.transport, WORKER, COORDINATOR, on.address, &client, NULL),
                     RT_OK);
    zmq_send(on.raw, "", 0, 0);
    zmq_send(on.raw, "rubbish", 7, 0);
    assert_int_equal(receive_within(client, &peer, &message, &error), RT_WIRE);
    assert_non_null(strstr(error.text, "coordinator sent 7 bytes"));
    raw_send_hello(on.raw, WORKER);
    assert_int_equal(receive_within(client, &peer, &message, &error), RT_WIRE);
    assert_non_null(strstr(error.text, "coordinator sent HELLO in the name of worker 3"));
    raw_send_hello(on.raw, COORDINATOR);
    assert_int_equal(receive_within(client, &peer, &message, &error), RT_OK);
    rt_message_release(&message);
    ops->end(client, 0);
    ops->close(on.transport);
    zmq_close(on.raw);
    zmq_ctx_term(on.context);
}

static void free_zeros(void *data, void *hint)
{
    (void)hint;
    free(data);
}

// More than RT_WIRE_PAYLOAD_BYTES_MAX ends the connection before it takes memory.
static void oversized_message_ends_the_connection(void **state)
{
    (void)state;
    scene on;
    uint32_t peer = 0;
    rt_message message = {0};
    scene_open(&on);
    raw_send_hello(on.raw, WORKER);
    expect_hello(&on);
    zmq_msg_t big;
    size_t size = RT_WIRE_PAYLOAD_BYTES_MAX + sizeof(rt_wire_header) + 1;
    void *zeros = calloc(1, size); // pages that nobody touches
    assert_non_null(zeros);
    assert_int_equal(zmq_msg_init_data(&big, zeros, size, free_zeros, NULL), 0);
    assert_int_equal(zmq_msg_send(&big, on.raw, 0), size);
    uint64_t end_ns = rt_now_ns() + PATIENCE_MS * UINT64_C(1000000);
    rt_status status = RT_OK;
    while (status == RT_OK || status == RT_AGAIN) {
        rt_message ping = {0};
        assert_true(rt_now_ns() < end_ns);
        assert_int_equal(ops->receive(on.server, &peer, &message, NULL), RT_AGAIN);
        assert_int_equal(rt_message_create(&ping, RT_MESSAGE_HEARTBEAT, COORDINATOR, 0, 0, 0),
                         RT_OK);
        status = ops->send(on.server, WORKER, &ping);
        rt_message_release(&ping);
    }
    assert_int_equal(status, RT_NOT_FOUND);
    scene_close(&on);
}

TEST_MAIN(TEST(malformed_messages_are_refused), TEST(foreign_sender_is_refused),
          TEST(several_frames_are_refused), TEST(strangers_are_dropped), TEST(bad_server_is_named),
          TEST(oversized_message_ends_the_connection))
