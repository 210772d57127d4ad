// What every transport must do when a peer ends, comes late, or is a stranger; addresses.
#include "tests/support/transport_case.h"

#include <signal.h>
#include <stdlib.h>

#include "runtime/config/rt_address.h"
#include "runtime/rt_hash.h"

// ---- the end of a peer

// Sends until the answer is not "later"; the deadline turns a hang into a failure.
static rt_status send_until_gone(const rt_transport_ops *ops, rt_endpoint *endpoint, uint32_t self,
                                 uint32_t peer)
{
    uint64_t end_ns = rt_now_ns() + PATIENCE_MS * UINT64_C(1000000);
    rt_status status = RT_OK;
    for (uint64_t number = 0; !status || status == RT_AGAIN; number++) {
        if (rt_now_ns() > end_ns)
            return RT_TIMEOUT;
        rt_message message = number_message(self, number, 1000);
        status = ops->send(endpoint, peer, &message);
        assert_true((!status) == (message.data == NULL)); // it stays unless it was sent
        rt_message_release(&message);
        if (status == RT_AGAIN)
            wait_moving(ops, endpoint, 1);
    }
    return status;
}

static void client_ends_while_server_sends(const rt_transport_ops *ops)
{
    pair both;
    pair_open(ops, &both);
    for (uint64_t i = 0; i < 10; i++)
        send_number(ops, both.server, COORDINATOR, worker(3), i, 1000);
    ops->end(both.client, 0);
    both.client = NULL;
    assert_int_equal(send_until_gone(ops, both.server, COORDINATOR, worker(3)), RT_NOT_FOUND);
    pair_close(&both);
}

static void server_ends_while_client_sends(const rt_transport_ops *ops)
{
    pair both;
    pair_open(ops, &both);
    ops->end(both.server, 0);
    both.server = NULL;
    assert_int_equal(send_until_gone(ops, both.client, worker(3), COORDINATOR), RT_NOT_FOUND);
    pair_close(&both);
}

static void killed_process_is_noticed(const rt_transport_ops *ops)
{
    int address_pipe[2];
    assert_int_equal(pipe(address_pipe), 0);
    pid_t child = fork(); // before there are threads
    assert_true(child >= 0);
    if (child == 0) {
        pair mine = {.ops = ops};
        uint32_t peer;
        rt_message message = {0};
        if (read(address_pipe[0], mine.address, RT_NAME_MAX) != RT_NAME_MAX ||
            ops->open(&mine.transport, NULL) != RT_OK ||
            ops->connect(mine.transport, worker(5), COORDINATOR, mine.address, &mine.client,
                         NULL) != RT_OK)
            _exit(EXIT_FAILURE);
        message = number_message(worker(5), 0, 0);
        send_within(ops, mine.client, COORDINATOR, &message);
        receive_within(ops, mine.client, &peer, &message, NULL);
        raise(SIGKILL);
    }
    pair both = {.ops = ops};
    assert_int_equal(ops->open(&both.transport, NULL), RT_OK);
    assert_int_equal(
        ops->listen(both.transport, COORDINATOR, ANY_PORT, both.address, &both.server, NULL),
        RT_OK);
    assert_int_equal(write(address_pipe[1], both.address, RT_NAME_MAX), RT_NAME_MAX);
    expect_number(ops, both.server, worker(5), 0, 0);
    assert_int_equal(send_until_gone(ops, both.server, COORDINATOR, worker(5)), RT_NOT_FOUND);
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    ops->end(both.server, 0);
    ops->close(both.transport);
}

// What a server said before it ended is read to the last word, then the end is told.
static void last_words_arrive(const rt_transport_ops *ops)
{
    pair both;
    uint32_t peer;
    rt_message message = {0};
    rt_error error = {0};
    bool ready = false;
    pair_open(ops, &both);
    for (uint64_t i = 0; i < 200; i++)
        send_number(ops, both.server, COORDINATOR, worker(3), i, 3000);
    ops->end(both.server, PATIENCE_MS);
    both.server = NULL;
    for (uint64_t i = 0; i < 200; i++)
        expect_number(ops, both.client, COORDINATOR, i, 3000);
    assert_int_equal(ops->wait(&both.client, 1, -1, FOREVER_MS, &ready), RT_OK);
    assert_true(ready);
    assert_int_equal(receive_within(ops, both.client, &peer, &message, &error), RT_NOT_FOUND);
    assert_non_null(strstr(error.text, "coordinator"));
    assert_int_equal(ops->receive(both.client, &peer, &message, NULL), RT_NOT_FOUND);
    assert_int_equal(ops->wait(&both.client, 1, -1, 0, &ready), RT_OK);
    assert_false(ready); // told once: a caller that ignores it does not spin
    pair_close(&both);
}

// A server that comes back gets nothing from the connection of before: part of it is missing.
static void no_resumption(const rt_transport_ops *ops)
{
    pair both;
    uint32_t peer;
    rt_message message = {0};
    rt_transport *elsewhere = NULL;
    rt_endpoint *client = NULL;
    bool ready = true;
    pair_open(ops, &both);
    assert_int_equal(ops->open(&elsewhere, NULL), RT_OK);
    client = connect_to(&both, elsewhere, worker(4));
    (void)fill(ops, client, worker(4), COORDINATOR);
    pair_close(&both);
    assert_int_equal(ops->open(&both.transport, NULL), RT_OK);
    assert_int_equal(
        ops->listen(both.transport, COORDINATOR, both.address, both.address, &both.server, NULL),
        RT_OK);
    assert_int_equal(ops->wait(&both.server, 1, -1, 500, &ready), RT_OK);
    assert_false(ready);
    assert_int_equal(receive_within(ops, client, &peer, &message, NULL), RT_NOT_FOUND);
    ops->end(client, PATIENCE_MS);
    ops->close(elsewhere); // does not linger for a server that is gone
    ops->end(both.server, 0);
    ops->close(both.transport);
}

static void linger_sends_the_rest(const rt_transport_ops *ops)
{
    pair both;
    pair_open(ops, &both);
    uint64_t sent = fill(ops, both.client, worker(3), COORDINATOR);
    ops->end(both.client, PATIENCE_MS);
    both.client = NULL;
    for (uint64_t i = 0; i < sent; i++)
        expect_number(ops, both.server, worker(3), i, 65536);
    pair_close(&both);
}

static void restarted_client_is_let_in(const rt_transport_ops *ops)
{
    pair both;
    pair_open(ops, &both);
    for (uint64_t i = 0; i < 20; i++) {
        ops->end(both.client, 0);
        both.client = NULL;
        assert_int_equal(send_until_gone(ops, both.server, COORDINATOR, worker(3)), RT_NOT_FOUND);
        both.client = connect_to(&both, both.transport, worker(3));
        send_number(ops, both.client, worker(3), COORDINATOR, i, 10);
        expect_number(ops, both.server, worker(3), i, 10);
    }
    pair_close(&both);
}

// The second of two processes under one name is told to stop, the first does not notice.
static void started_twice(const rt_transport_ops *ops)
{
    pair both;
    uint32_t peer = 0;
    rt_endpoint *second = NULL;
    rt_message message = {0};
    pair_open(ops, &both);
    second = connect_to(&both, both.transport, worker(3));
    for (uint64_t i = 100; i < 103; i++)
        send_number(ops, second, worker(3), COORDINATOR, i, 10);
    // The server turns it away while it receives; after that comes only what the first sent.
    uint64_t end_ns = rt_now_ns() + PATIENCE_MS * UINT64_C(1000000);
    while (ops->receive(second, &peer, &message, NULL) == RT_AGAIN) {
        bool ready[2] = {false};
        rt_endpoint *endpoints[] = {both.server, second};
        assert_true(rt_now_ns() < end_ns);
        assert_int_equal(ops->wait(endpoints, 2, -1, SHORT_MS, ready), RT_OK);
        rt_message unwanted = {0};
        assert_int_equal(ops->receive(both.server, &peer, &unwanted, NULL), RT_AGAIN);
    }
    const char *want = "another worker 3 is connected already";
    assert_int_equal(peer, COORDINATOR);
    assert_int_equal(rt_message_header(&message)->type, RT_MESSAGE_STOP);
    assert_int_equal(message.size, sizeof(rt_wire_header) + strlen(want));
    assert_memory_equal(rt_message_payload(&message), want, strlen(want));
    rt_message_release(&message);
    for (uint64_t i = 0; i < 3; i++) {
        send_number(ops, both.client, worker(3), COORDINATOR, i, 10);
        expect_number(ops, both.server, worker(3), i, 10);
        send_number(ops, both.server, COORDINATOR, worker(3), i, 10);
        expect_number(ops, both.client, COORDINATOR, i, 10);
    }
    ops->end(second, 0);
    pair_close(&both);
}

static void any_order_of_ends(const rt_transport_ops *ops)
{
    pair both;
    pair_open(ops, &both);
    send_number(ops, both.client, worker(3), COORDINATOR, 2, 100000);
    ops->close(both.transport);
    send_number(ops, both.client, worker(3), COORDINATOR, 3, 10); // still usable
    ops->end(both.server, 0);
    ops->end(both.client, 0);
    ops->end(NULL, 0);
    ops->close(NULL);
}

// ---- strangers

// Bytes of no protocol at the listener's port, some connections left open, some closed at once.
static void garbage_is_ignored(const rt_transport_ops *ops)
{
    enum { STRANGERS = 24, BYTES = 70000 };
    int strangers[STRANGERS];
    pair both;
    uint32_t peer;
    rt_message message = {0};
    rt_random random = {7};
    struct sockaddr_storage to;
    socklen_t length;
    uint8_t *bytes = malloc(BYTES);
    pair_open(ops, &both);
    assert_true(rt_address_resolve(both.address, &to, &length));
    for (uint32_t i = 0; i < STRANGERS; i++) {
        for (size_t n = 0; n < BYTES; n++) // all zeros, all ones, small numbers, anything
            bytes[n] =
                (uint8_t[]){0, 0xff, (uint8_t)(n % 8 == 0), (uint8_t)rt_random_u64(&random)}[i % 4];
        size_t size = i < 8 ? i * 3 : (size_t)(i * i * 121);
        strangers[i] = socket(to.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(connect(strangers[i], (struct sockaddr *)&to, length), 0);
        (void)send(strangers[i], bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (i % 3 == 0)
            close(strangers[i]);
        send_number(ops, both.client, worker(3), COORDINATOR, i, 100);
        expect_number(ops, both.server, worker(3), i, 100);
        assert_int_equal(ops->receive(both.server, &peer, &message, NULL), RT_AGAIN);
    }
    rt_endpoint *late = connect_to(&both, both.transport, worker(4)); // others still come in
    send_number(ops, late, worker(4), COORDINATOR, 1, 50000);
    rt_endpoint *const ends[] = {late, both.server};
    bool ready[2];
    for (int i = 0; i < 20; i++)
        assert_int_equal(ops->wait(ends, 2, -1, 1, ready), RT_OK);
    expect_number(ops, both.server, worker(4), 1, 50000);
    ops->end(late, 0);
    for (uint32_t i = 0; i < STRANGERS; i++)
        if (i % 3 != 0)
            close(strangers[i]);
    pair_close(&both);
    free(bytes);
}

// ---- addresses

static void expect_listen_error(const rt_transport_ops *ops, const char *address,
                                const char *reason)
{
    rt_transport *transport = NULL;
    rt_endpoint *endpoint = NULL;
    rt_error error = {0};
    char bound[RT_NAME_MAX];
    const rt_keys without = {.is_insecure = true};
    assert_int_equal(rt_transport_open(ops, &without, &transport, &error), RT_OK);
    assert_int_not_equal(ops->listen(transport, COORDINATOR, address, bound, &endpoint, &error),
                         RT_OK);
    assert_null(endpoint);
    if (!strstr(error.text, address) || !strstr(error.text, reason))
        fail_msg("\"%s\" does not name %s and \"%s\"", error.text, address, reason);
    ops->close(transport);
}

// A box has a name in most configurations; others hear of a number.
static void listens_by_name(const rt_transport_ops *ops)
{
    rt_transport *transport = NULL;
    rt_endpoint *server = NULL;
    rt_error error = {0};
    char bound[RT_NAME_MAX];
    assert_int_equal(ops->open(&transport, &error), RT_OK);
    if (ops->listen(transport, COORDINATOR, "tcp://localhost:0", bound, &server, &error))
        fail_msg("%s", error.text);
    if (strncmp(bound, "tcp://127.0.0.1:", 16) != 0 && strncmp(bound, "tcp://[::1]:", 12) != 0)
        fail_msg("listens at %s", bound);
    ops->end(server, 0);
    ops->close(transport);
}

static void listen_errors_are_named(const rt_transport_ops *ops)
{
    pair both;
    pair_open(ops, &both);
    expect_listen_error(ops, both.address, "already in use");
    pair_close(&both);
    expect_listen_error(ops, "tcp://192.0.2.1:0", "no such interface"); // RFC 5737: nobody's
    expect_listen_error(ops, "tcp://no-such-host.invalid:0", "no such interface");
    expect_listen_error(ops, "tcp://127.0.0.1:99999", "not an address");
    expect_listen_error(ops, "tcp://127.0.0.1:80x", "not an address");
    expect_listen_error(ops, "tcp://127.0.0.1", "not an address");
    expect_listen_error(ops, "127.0.0.1:5000", "not an address");
    expect_listen_error(ops, "inproc://inside", "not an address");
    expect_listen_error(ops, "", "not an address");
}

static void connect_errors_are_named(const rt_transport_ops *ops)
{
    const struct {
        const char *address, *reason;
    } cases[] = {{"tcp://no-such-host.invalid:5000", "unknown host"}, // RT_IO: names may come late
                 {"tcp://127.0.0.1:notaport", "not an address"},
                 {"tcp://127.0.0.1:65536", "not an address"},
                 {"tcp://127.0.0.1", "not an address"},
                 {"udp://127.0.0.1:5000", "not an address"}};
    rt_transport *transport = NULL;
    rt_endpoint *endpoint = NULL;
    assert_int_equal(ops->open(&transport, NULL), RT_OK);
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
        rt_error error = {0};
        assert_int_equal(
            ops->connect(transport, worker(0), COORDINATOR, cases[i].address, &endpoint, &error),
            i == 0 ? RT_IO : RT_CONFIG);
        if (!strstr(error.text, cases[i].address) || !strstr(error.text, cases[i].reason) ||
            !strstr(error.text, "coordinator"))
            fail_msg("\"%s\" does not name \"%s\"", error.text, cases[i].reason);
    }
    assert_null(endpoint);
    ops->close(transport);
}

// A worker may be started first: its first messages are kept until its server is there.
static void server_comes_later(const rt_transport_ops *ops)
{
    const uint64_t count_max = 1000;
    pair both;
    pair_open(ops, &both);
    pair_close(&both); // leaves a port that nobody listens on
    uint32_t peer;
    uint64_t sent = 0;
    rt_status status = RT_OK;
    bool ready = true;
    rt_message message = {0};
    both.server = NULL;
    open_pairs[0] = &both;
    assert_int_equal(ops->open(&both.transport, NULL), RT_OK);
    assert_int_equal(
        ops->connect(both.transport, worker(3), COORDINATOR, both.address, &both.client, NULL),
        RT_OK);
    for (; sent < count_max && !status; sent += !status) {
        message = number_message(worker(3), sent, 20);
        status = ops->send(both.client, COORDINATOR, &message);
        rt_message_release(&message);
    }
    assert_int_equal(status, RT_AGAIN);
    assert_true(sent >= 1);
    assert_int_equal(ops->receive(both.client, &peer, &message, NULL), RT_AGAIN);
    assert_int_equal(ops->wait(&both.client, 1, -1, 500, &ready), RT_OK); // some attempts fail
    assert_false(ready);
    assert_int_equal(
        ops->listen(both.transport, COORDINATOR, both.address, both.address, &both.server, NULL),
        RT_OK);
    send_number(ops, both.client, worker(3), COORDINATOR, sent, 20); // once there is room again
    for (uint64_t i = 0; i <= sent; i++)
        expect_number(ops, both.server, worker(3), i, 20);
    pair_close(&both);
}

// What was kept for a server that never came is given back.
static void server_never_comes(const rt_transport_ops *ops)
{
    pair both;
    int releases = 0;
    pair_open(ops, &both);
    pair_close(&both);
    assert_int_equal(ops->open(&both.transport, NULL), RT_OK);
    assert_int_equal(
        ops->connect(both.transport, worker(3), COORDINATOR, both.address, &both.client, NULL),
        RT_OK);
    rt_message block = number_message(worker(3), 2, 100);
    rt_message message = {block.data, block.size, count_release, &releases};
    assert_int_equal(ops->send(both.client, COORDINATOR, &message), RT_OK);
    assert_int_equal(releases, 0);
    ops->end(both.client, PATIENCE_MS);
    ops->close(both.transport);
    assert_int_equal(releases, 1);
    rt_message_release(&block);
}

#define CASES(XX)                      \
    XX(client_ends_while_server_sends) \
    XX(server_ends_while_client_sends) \
    XX(killed_process_is_noticed)      \
    XX(last_words_arrive)              \
    XX(no_resumption)                  \
    XX(linger_sends_the_rest)          \
    XX(restarted_client_is_let_in)     \
    XX(started_twice)                  \
    XX(any_order_of_ends)              \
    XX(listens_by_name)                \
    XX(listen_errors_are_named)        \
    XX(connect_errors_are_named)       \
    XX(server_comes_later)             \
    XX(server_never_comes)             \
    XX(garbage_is_ignored)

CASES(TRANSPORT_STAMP)

// ---- both at once

// A mixed server hears both; a second process of a peer is refused also by the other transport.
static void mixed_server_hears_both(void **state)
{
    (void)state;
    const rt_transport_ops *const zmq = &rt_transport_zmq, *const mixed = test_ucx()->mixed;
    pair both;
    uint32_t peer = 0;
    rt_transport *transport = NULL;
    rt_endpoint *client = NULL, *second = NULL;
    rt_message message = {0};
    pair_open(mixed, &both); // worker 3, by UCX
    assert_int_equal(zmq->open(&transport, NULL), RT_OK);
    assert_int_equal(zmq->connect(transport, worker(4), COORDINATOR, both.address, &client, NULL),
                     RT_OK);
    assert_int_equal(zmq->connect(transport, worker(3), COORDINATOR, both.address, &second, NULL),
                     RT_OK);
    send_number(zmq, second, worker(3), COORDINATOR, 99, 10);
    for (uint64_t i = 0; i < 50; i++) {
        send_number(zmq, client, worker(4), COORDINATOR, i, 1000 * i);
        expect_number(mixed, both.server, worker(4), i, 1000 * i);
        send_number(mixed, both.client, worker(3), COORDINATOR, i, 1000 * i);
        expect_number(mixed, both.server, worker(3), i, 1000 * i);
        send_number(mixed, both.server, COORDINATOR, worker(4), i, 10);
        send_number(mixed, both.server, COORDINATOR, worker(3), i, 20);
        open_pairs[0] = NULL; // of the other transport
        expect_number(zmq, client, COORDINATOR, i, 10);
        open_pairs[0] = &both;
        expect_number(mixed, both.client, COORDINATOR, i, 20);
    }
    assert_int_equal(mixed->receive(both.server, &peer, &message, NULL), RT_AGAIN);
    open_pairs[0] = NULL;
    assert_int_equal(receive_within(zmq, second, &peer, &message, NULL), RT_OK);
    assert_int_equal(rt_message_header(&message)->type, RT_MESSAGE_STOP);
    rt_message_release(&message);
    zmq->end(client, 0);
    zmq->end(second, 0);
    zmq->close(transport);
    pair_close(&both);
}

TEST_MAIN(CASES(TRANSPORT_ENTRIES) TEST(mixed_server_hears_both))
