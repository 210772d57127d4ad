// What every transport must do: delivery, several peers at once, limits.
#include "tests/support/transport_case.h"

#include <sys/eventfd.h>

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
        for (rt_status status = RT_OK; sent < count && !status; sent += !status) {
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

#define CASES(XX)                  \
    XX(small_both_ways)            \
    XX(sizes_around_buffers)       \
    XX(large_and_back)             \
    XX(many_in_order)              \
    XX(two_servers_eight_clients)  \
    XX(back_pressure_on_client)    \
    XX(back_pressure_on_server)    \
    XX(message_changes_hands_once) \
    XX(unknown_peer)               \
    XX(wait_tells_which)           \
    XX(wait_after_send)            \
    XX(wait_after_one_of_several)

CASES(TRANSPORT_STAMP)

TEST_MAIN(CASES(TRANSPORT_ENTRIES))
