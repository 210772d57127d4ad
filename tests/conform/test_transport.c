// What every transport must do. A backend is added at the end of this file, with one more STAMP.
#include "runtime/transport/rt_transport.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/rt_address.h"
#include "runtime/rt_config.h"
#include "runtime/rt_hash.h"
#include "tests/support/test.h"

#define COORDINATOR (rt_peer(RT_ROLE_COORDINATOR, 0))
#define ANY_PORT "tcp://127.0.0.1:0"
#define PATIENCE_MS 20000 // a step that takes longer has failed
#define SHORT_MS 20
#define FOREVER_MS 3600000 // longer than a case may take

static uint32_t worker(uint32_t rank)
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

static rt_status wait_moving(const rt_transport_ops *ops, rt_endpoint *endpoint, uint32_t limit_ms)
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

static rt_status receive_within(const rt_transport_ops *ops, rt_endpoint *endpoint,
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
static rt_status send_within(const rt_transport_ops *ops, rt_endpoint *endpoint, uint32_t peer,
                             rt_message *message)
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

static rt_message number_message(uint32_t sender, uint64_t number, size_t payload_bytes)
{
    rt_message message = {0};
    rt_assert(rt_message_create(&message, RT_MESSAGE_SLICE, sender, number, 0, payload_bytes) ==
              RT_OK);
    uint8_t *payload = rt_message_payload(&message);
    for (size_t i = 0; i < payload_bytes; i++)
        payload[i] = (uint8_t)(i * 7 + i / 256 + number);
    return message;
}

static bool number_matches(const rt_message *message, uint32_t sender, uint64_t number,
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

static void send_number(const rt_transport_ops *ops, rt_endpoint *endpoint, uint32_t self,
                        uint32_t peer, uint64_t number, size_t payload_bytes)
{
    rt_message message = number_message(self, number, payload_bytes);
    assert_int_equal(send_within(ops, endpoint, peer, &message), RT_OK);
    assert_null(message.data);
}

static void expect_number(const rt_transport_ops *ops, rt_endpoint *endpoint, uint32_t peer,
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

static void *connect_one(void *context)
{
    connecting *one = context;
    one->status = one->ops->connect(one->transport, one->self, COORDINATOR, one->address,
                                    &one->endpoint, NULL);
    atomic_store(&one->is_done, true);
    return NULL;
}

static rt_endpoint *connect_to(const pair *both, rt_transport *transport, uint32_t self)
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

static void pair_open(const rt_transport_ops *ops, pair *both)
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

static void pair_close(pair *both)
{
    if (open_pairs[0] == both)
        open_pairs[0] = open_pairs[1];
    open_pairs[1] = NULL;
    both->ops->end(both->client, 0);
    both->ops->end(both->server, 0);
    both->ops->close(both->transport);
}

// ---- delivery

static void small_both_ways(const rt_transport_ops *ops)
{
    pair both;
    pair_open(ops, &both);
    for (size_t bytes = 0; bytes < 300; bytes++) {
        send_number(ops, both.client, worker(3), COORDINATOR, bytes, bytes);
        expect_number(ops, both.server, worker(3), bytes, bytes);
        send_number(ops, both.server, COORDINATOR, worker(3), bytes, bytes);
        expect_number(ops, both.client, COORDINATOR, bytes, bytes);
    }
    pair_close(&both);
}

static void sizes_around_buffers(const rt_transport_ops *ops)
{
    pair both;
    pair_open(ops, &both);
    for (size_t bytes = 1000; bytes < 300000; bytes = bytes * 5 / 4 + 1)
        send_number(ops, both.client, worker(3), COORDINATOR, bytes, bytes);
    for (size_t bytes = 1000; bytes < 300000; bytes = bytes * 5 / 4 + 1)
        expect_number(ops, both.server, worker(3), bytes, bytes);
    pair_close(&both);
}

static void large_and_back(const rt_transport_ops *ops)
{
    const size_t bytes = 64 << 20;
    pair both;
    uint32_t peer;
    rt_message message = {0};
    pair_open(ops, &both);
    send_number(ops, both.client, worker(3), COORDINATOR, 2, bytes);
    assert_int_equal(receive_within(ops, both.server, &peer, &message, NULL), RT_OK);
    assert_true(number_matches(&message, worker(3), 2, bytes));
    rt_message_header(&message)->sender = COORDINATOR; // what was received can be sent on
    assert_int_equal(send_within(ops, both.server, worker(3), &message), RT_OK);
    expect_number(ops, both.client, COORDINATOR, 2, bytes);
    pair_close(&both);
}

static void many_in_order(const rt_transport_ops *ops)
{
    const uint64_t count = 100000;
    pair both;
    pair_open(ops, &both);
    uint64_t sent = 0, received = 0;
    uint64_t end_ns = rt_now_ns() + 2 * PATIENCE_MS * UINT64_C(1000000);
    while (received < count) {
        assert_true(rt_now_ns() < end_ns);
        rt_message message = {0};
        for (rt_status status = RT_OK; sent < count && status == RT_OK; sent += status == RT_OK) {
            message = number_message(worker(3), sent, sent % 50);
            status = ops->send(both.client, COORDINATOR, &message);
            rt_message_release(&message);
        }
        uint32_t peer;
        while (ops->receive(both.server, &peer, &message, NULL) == RT_OK) {
            assert_true(number_matches(&message, worker(3), received, received % 50));
            rt_message_release(&message);
            received++;
        }
    }
    pair_close(&both);
}

// ---- several peers, each with a thread of its own

#define SERVERS 2
#define CLIENTS 8
#define ROUNDS 400

typedef struct {
    const rt_transport_ops *ops;
    rt_transport *transport;
    rt_endpoint *listening;
    char (*addresses)[RT_NAME_MAX];
    uint32_t rank;
    bool failed;
} party;

static size_t round_bytes(uint32_t server, uint32_t client, uint64_t round)
{
    return (round * 37 + client * 11 + server) % 9000;
}

// Sends every message back, and checks that each client's come in their order.
static void *serve(void *context)
{
    party *me = context;
    uint64_t next[CLIENTS] = {0};
    uint32_t self = rt_peer(RT_ROLE_PS, me->rank);
    for (int i = 0; i < CLIENTS * ROUNDS && !me->failed; i++) {
        uint32_t peer = 0;
        rt_message message = {0};
        me->failed = receive_within(me->ops, me->listening, &peer, &message, NULL) != RT_OK ||
                     rt_peer_rank(peer) >= CLIENTS;
        if (me->failed)
            break;
        uint64_t round = next[rt_peer_rank(peer)]++;
        size_t bytes = round_bytes(me->rank, rt_peer_rank(peer), round);
        me->failed = !number_matches(&message, peer, round, bytes);
        rt_message_header(&message)->sender = self;
        me->failed |= send_within(me->ops, me->listening, peer, &message) != RT_OK;
    }
    return NULL;
}

static bool client_round(party *me, rt_endpoint *const *endpoints, uint64_t round, uint64_t *back)
{
    for (uint32_t s = 0; s < SERVERS; s++) {
        rt_message message =
            number_message(worker(me->rank), round, round_bytes(s, me->rank, round));
        if (send_within(me->ops, endpoints[s], rt_peer(RT_ROLE_PS, s), &message) != RT_OK)
            return false;
    }
    bool ready[SERVERS] = {false};
    uint64_t end_ns = rt_now_ns() + PATIENCE_MS * UINT64_C(1000000);
    while (back[0] + 8 < round || back[1] + 8 < round ||
           (round == ROUNDS - 1 && back[0] < ROUNDS) || (round == ROUNDS - 1 && back[1] < ROUNDS)) {
        if (rt_now_ns() > end_ns || me->ops->wait(endpoints, SERVERS, -1, SHORT_MS, ready) != RT_OK)
            return false;
        for (uint32_t s = 0; s < SERVERS; s++) {
            uint32_t peer = 0;
            rt_message message = {0};
            if (!ready[s] || me->ops->receive(endpoints[s], &peer, &message, NULL) != RT_OK)
                continue;
            bool is_right = number_matches(&message, rt_peer(RT_ROLE_PS, s), back[s],
                                           round_bytes(s, me->rank, back[s]));
            rt_message_release(&message);
            back[s]++;
            if (!is_right)
                return false;
        }
    }
    return true;
}

static void *ask(void *context)
{
    party *me = context;
    rt_endpoint *endpoints[SERVERS] = {NULL};
    uint64_t back[SERVERS] = {0};
    for (uint32_t s = 0; s < SERVERS; s++)
        me->failed |= me->ops->connect(me->transport, worker(me->rank), rt_peer(RT_ROLE_PS, s),
                                       me->addresses[s], &endpoints[s], NULL) != RT_OK;
    for (uint64_t round = 0; round < ROUNDS && !me->failed; round++)
        me->failed = !client_round(me, endpoints, round, back);
    for (uint32_t s = 0; s < SERVERS; s++)
        me->ops->end(endpoints[s], 0);
    return NULL;
}

static void two_servers_eight_clients(const rt_transport_ops *ops)
{
    char addresses[SERVERS][RT_NAME_MAX];
    party parties[SERVERS + CLIENTS];
    pthread_t threads[SERVERS + CLIENTS];
    rt_transport *transport = NULL;
    assert_int_equal(ops->open(&transport, NULL), RT_OK);
    for (uint32_t i = 0; i < SERVERS + CLIENTS; i++) {
        bool serves = i < SERVERS;
        parties[i] = (party){ops, transport, NULL, addresses, serves ? i : i - SERVERS, false};
        if (serves)
            assert_int_equal(ops->listen(transport, rt_peer(RT_ROLE_PS, i), ANY_PORT, addresses[i],
                                         &parties[i].listening, NULL),
                             RT_OK);
    }
    for (uint32_t i = 0; i < SERVERS + CLIENTS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, i < SERVERS ? serve : ask, &parties[i]),
                         0);
    for (uint32_t i = 0; i < SERVERS + CLIENTS; i++)
        pthread_join(threads[i], NULL);
    for (uint32_t i = 0; i < SERVERS + CLIENTS; i++)
        assert_false(parties[i].failed);
    for (uint32_t i = 0; i < SERVERS; i++)
        ops->end(parties[i].listening, 0);
    ops->close(transport);
}

// ---- the end of a peer

// Sends until the answer is not "later"; the deadline turns a hang into a failure.
static rt_status send_until_gone(const rt_transport_ops *ops, rt_endpoint *endpoint, uint32_t self,
                                 uint32_t peer)
{
    uint64_t end_ns = rt_now_ns() + PATIENCE_MS * UINT64_C(1000000);
    rt_status status = RT_OK;
    for (uint64_t number = 0; status == RT_OK || status == RT_AGAIN; number++) {
        if (rt_now_ns() > end_ns)
            return RT_TIMEOUT;
        rt_message message = number_message(self, number, 1000);
        status = ops->send(endpoint, peer, &message);
        assert_true((status == RT_OK) == (message.data == NULL)); // it stays unless it was sent
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

// Sends 64 KB messages that nobody reads, until there is no room for more: their number.
static uint64_t fill(const rt_transport_ops *ops, rt_endpoint *from, uint32_t self, uint32_t peer)
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
            bytes[n] = (uint8_t[]){0, 0xff, (uint8_t)(n % 8 == 0),
                                   (uint8_t)rt_random_u64(&random)}[i % 4];
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

// ---- limits

// Nobody reads: a bounded number is taken, then RT_AGAIN, and nothing of it is lost.
static void back_pressure(const rt_transport_ops *ops, bool from_server)
{
    pair both;
    pair_open(ops, &both);
    rt_endpoint *from = from_server ? both.server : both.client;
    rt_endpoint *to = from_server ? both.client : both.server;
    uint32_t self = from_server ? COORDINATOR : worker(3);
    uint32_t peer = from_server ? worker(3) : COORDINATOR;
    uint64_t sent = fill(ops, from, self, peer);
    for (uint64_t i = 0; i < sent; i++)
        expect_number(ops, to, self, i, 65536);
    send_number(ops, from, self, peer, sent, 65536);
    expect_number(ops, to, self, sent, 65536);
    pair_close(&both);
}

static void back_pressure_on_client(const rt_transport_ops *ops)
{
    back_pressure(ops, false);
}

static void back_pressure_on_server(const rt_transport_ops *ops)
{
    back_pressure(ops, true);
}

static void count_release(void *hint)
{
    ++*(volatile int *)hint;
}

static void message_changes_hands_once(const rt_transport_ops *ops)
{
    pair both;
    int releases = 0;
    pair_open(ops, &both);
    rt_message block = number_message(worker(3), 2, 100000);
    rt_message message = {block.data, block.size, count_release, &releases};
    assert_int_equal(ops->send(both.client, worker(4), &message), RT_NOT_FOUND);
    assert_ptr_equal(message.data, block.data);
    assert_int_equal(releases, 0);
    assert_int_equal(send_within(ops, both.client, COORDINATOR, &message), RT_OK);
    assert_null(message.data);
    expect_number(ops, both.server, worker(3), 2, 100000);
    pair_close(&both);
    assert_int_equal(releases, 1);
    rt_message_release(&block);
}

static void unknown_peer(const rt_transport_ops *ops)
{
    pair both;
    pair_open(ops, &both);
    rt_message message = number_message(COORDINATOR, 2, 10);
    assert_int_equal(ops->send(both.server, worker(4), &message), RT_NOT_FOUND);
    assert_non_null(message.data);
    rt_message_release(&message);
    send_number(ops, both.server, COORDINATOR, worker(3), 3, 10); // the known one is well
    expect_number(ops, both.client, COORDINATOR, 3, 10);
    pair_close(&both);
}

static void wait_tells_which(const rt_transport_ops *ops)
{
    pair a, b;
    uint32_t peer;
    rt_message message = {0};
    pair_open(ops, &a);
    pair_open(ops, &b);
    rt_endpoint *endpoints[] = {a.server, a.client, b.server, b.client};
    bool ready[] = {true, true, true, true};
    assert_int_equal(ops->wait(endpoints, 4, -1, 10, ready), RT_OK);
    assert_false(ready[0] || ready[1] || ready[2] || ready[3]);
    assert_int_equal(ops->receive(b.server, &peer, &message, NULL), RT_AGAIN);
    send_number(ops, b.client, worker(3), COORDINATOR, 9, 10);
    assert_int_equal(ops->wait(endpoints, 4, -1, PATIENCE_MS, ready), RT_OK);
    assert_true(!ready[0] && !ready[1] && ready[2] && !ready[3]);
    expect_number(ops, b.server, worker(3), 9, 10);
    assert_int_equal(ops->wait(endpoints, 0, -1, 0, ready), RT_OK);
    // wake_fd ends it too, as often as it is readable.
    const uint64_t one = 1;
    int wake_fd = eventfd(0, EFD_NONBLOCK);
    assert_int_equal(write(wake_fd, &one, sizeof one), sizeof one);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ops->wait(endpoints, 4, wake_fd, FOREVER_MS, ready), RT_OK);
        assert_false(ready[0] || ready[1] || ready[2] || ready[3]);
    }
    close(wake_fd);
    pair_close(&a);
    pair_close(&b);
}

// A send may take in the signal of a message that has come meanwhile; a wait after it must know.
static void wait_after_send(const rt_transport_ops *ops)
{
    pair both;
    uint32_t peer;
    rt_message message = {0};
    bool ready = false;
    pair_open(ops, &both);
    for (uint64_t i = 0; i < 300; i++) {
        send_number(ops, both.server, COORDINATOR, worker(3), i, 10);
        assert_int_equal(ops->wait(NULL, 0, -1, 2, NULL), RT_OK); // it arrives
        send_number(ops, both.client, worker(3), COORDINATOR, i, 10);
        assert_int_equal(ops->wait(&both.client, 1, -1, FOREVER_MS, &ready), RT_OK);
        assert_true(ready);
        expect_number(ops, both.client, COORDINATOR, i, 10);
        assert_int_equal(ops->receive(both.client, &peer, &message, NULL), RT_AGAIN);
        assert_int_equal(ops->wait(&both.server, 1, -1, FOREVER_MS, &ready), RT_OK);
        assert_true(ready);
        expect_number(ops, both.server, worker(3), i, 10);
    }
    pair_close(&both);
}

// Who takes one message of several is told of the others.
static void wait_after_one_of_several(const rt_transport_ops *ops)
{
    pair both;
    uint32_t peer;
    pair_open(ops, &both);
    for (uint64_t round = 0; round < 20; round++) {
        for (uint64_t i = 0; i < 10; i++)
            send_number(ops, both.client, worker(3), COORDINATOR, i, 10);
        for (uint64_t i = 0; i < 10; i++) {
            bool ready = false;
            rt_message message = {0};
            assert_int_equal(ops->wait(&both.server, 1, -1, FOREVER_MS, &ready), RT_OK);
            assert_true(ready);
            assert_int_equal(ops->receive(both.server, &peer, &message, NULL), RT_OK);
            assert_true(number_matches(&message, worker(3), i, 10));
            rt_message_release(&message);
        }
        bool ready = true;
        assert_int_equal(ops->wait(&both.server, 1, -1, 0, &ready), RT_OK);
        assert_false(ready);
    }
    pair_close(&both);
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

static void listen_errors_are_named(const rt_transport_ops *ops)
{
    pair both;
    pair_open(ops, &both);
    expect_listen_error(ops, both.address, "already in use");
    pair_close(&both);
    expect_listen_error(ops, "tcp://192.0.2.1:0", "no such interface"); // RFC 5737: nobody's
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
    } cases[] = {{"tcp://no-such-host.invalid:5000", "unknown host"},
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
            RT_CONFIG);
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
    for (; sent < count_max && status == RT_OK; sent += status == RT_OK) {
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

// UCX is optional. Looked for in a child process: some cases must fork before there are threads.
static void skip_without_ucx(void)
{
    int results[2];
    rt_error error = {0};
    assert_int_equal(pipe(results), 0);
    pid_t child = fork();
    if (child == 0) {
        rt_transport *transport;
        if (rt_transport_ucx.open(&transport, &error) == RT_OK)
            rt_transport_ucx.close(transport);
        _exit(write(results[1], &error, sizeof error) != sizeof error);
    }
    assert_true(child > 0);
    assert_int_equal(read(results[0], &error, sizeof error), sizeof error);
    assert_int_equal(waitpid(child, NULL, 0), child);
    if (error.status)
        test_skip("%s", error.text);
}

#define CASES(XX)                      \
    XX(small_both_ways)                \
    XX(sizes_around_buffers)           \
    XX(large_and_back)                 \
    XX(many_in_order)                  \
    XX(two_servers_eight_clients)      \
    XX(client_ends_while_server_sends) \
    XX(server_ends_while_client_sends) \
    XX(killed_process_is_noticed)      \
    XX(last_words_arrive)              \
    XX(no_resumption)                  \
    XX(linger_sends_the_rest)          \
    XX(restarted_client_is_let_in)     \
    XX(started_twice)                  \
    XX(any_order_of_ends)              \
    XX(back_pressure_on_client)        \
    XX(back_pressure_on_server)        \
    XX(message_changes_hands_once)     \
    XX(unknown_peer)                   \
    XX(wait_tells_which)               \
    XX(wait_after_send)                \
    XX(wait_after_one_of_several)      \
    XX(listen_errors_are_named)        \
    XX(connect_errors_are_named)       \
    XX(server_comes_later)             \
    XX(server_never_comes)             \
    XX(garbage_is_ignored)

#define STAMP(name)                        \
    static void zmq_##name(void **state)   \
    {                                      \
        (void)state;                       \
        name(&rt_transport_zmq);           \
    }                                      \
    static void ucx_##name(void **state)   \
    {                                      \
        (void)state;                       \
        skip_without_ucx();                \
        name(&rt_transport_ucx);           \
    }                                      \
    static void mixed_##name(void **state) \
    {                                      \
        (void)state;                       \
        skip_without_ucx();                \
        name(&rt_transport_mixed);         \
    }
CASES(STAMP)
#undef STAMP

// ---- both at once

// A mixed server hears both; a second process of a peer is refused also by the other transport.
static void mixed_server_hears_both(void **state)
{
    (void)state;
    skip_without_ucx();
    const rt_transport_ops *const zmq = &rt_transport_zmq, *const mixed = &rt_transport_mixed;
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

#define ENTRIES(name) TEST(zmq_##name), TEST(ucx_##name), TEST(mixed_##name),
TEST_MAIN(CASES(ENTRIES) TEST(mixed_server_hears_both))
