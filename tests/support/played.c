#include "tests/support/played.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/one_by_one.h"
#include "tests/support/played_parts.h"
#include "tests/support/played_rules.h"
#include "tests/support/test.h"

#define TURN_NS UINT64_C(1000000)
#define LATE_TURNS 2u
#define TURNS_MAX 2000000u

static played *stage; // where the transport's other ends are

const played *played_stage(void)
{
    return stage;
}

// ---- peers -------------------------------------------------------------------------------------

played_peer *played_find(played *p, uint32_t peer)
{
    const uint32_t rank = rt_peer_rank(peer);
    if (rt_peer_role(peer) == RT_ROLE_WORKER && rank < RT_WORKERS_MAX)
        return &p->peers[rank];
    if (rt_peer_role(peer) == RT_ROLE_PS && rank < RT_SHARDS_MAX)
        return &p->peers[RT_WORKERS_MAX + rank];
    if (rt_peer_role(peer) == RT_ROLE_VISITOR && rank < PLAYED_VISITORS)
        return &p->peers[RT_WORKERS_MAX + RT_SHARDS_MAX + rank];
    return NULL;
}

uint32_t played_peer_of(const char *name)
{
    static const char letters[] = "wpv";
    static const rt_role roles[] = {RT_ROLE_WORKER, RT_ROLE_PS, RT_ROLE_VISITOR};
    const char *letter = *name ? strchr(letters, *name) : NULL;
    uint32_t rank;
    if (!letter || sscanf(name + 1, "%" SCNu32, &rank) != 1)
        return UINT32_MAX;
    return rt_peer(roles[letter - letters], rank);
}

void played_write(played *p, uint32_t peer, rt_message *message)
{
    const bool is_late =
        rt_peer_role(peer) == RT_ROLE_WORKER && p->manners.late >> rt_peer_rank(peer) & 1;
    assert_int_equal(
        rt_grow(&p->letters, &p->letter_capacity, p->letter_count + 1u, sizeof *p->letters), RT_OK);
    p->letters[p->letter_count++] =
        (played_letter){peer, p->turns + (is_late ? LATE_TURNS : 0), *message};
    *message = (rt_message){0};
}

void played_say(played *p, uint32_t peer, rt_message_type type, uint64_t iteration, uint32_t count,
                const void *payload, size_t size)
{
    rt_message message;
    assert_int_equal(rt_message_create(&message, type, peer, iteration, count, size), RT_OK);
    if (size)
        memcpy(rt_message_payload(&message), payload, size);
    played_write(p, peer, &message);
}

rt_wire_hello played_hello(const played *p, uint32_t peer)
{
    const rt_config *config = p->config;
    const uint32_t rank = rt_peer_rank(peer);
    const bool is_shard = rt_peer_role(peer) == RT_ROLE_PS;
    rt_wire_hello hello = rt_control_greet(peer, &p->identity);
    char address[RT_ADDRESS_MAX];
    hello.pid = 1;
    hello.allowed = p->allowed;
    if (p->has_keys)
        memset(hello.key, 9, sizeof hello.key);
    if (is_shard ? rank < config->ps_shard_count : rank < config->worker_count)
        hello.box = rt_config_hash_box(config, is_shard ? rt_config_box_of_shard(config, rank)
                                                        : rt_config_box_of_worker(config, rank));
    snprintf(address, sizeof address, "tcp://127.0.0.1:%" PRIu32, (is_shard ? 100u : 200u) + rank);
    if (is_shard || rt_dispatch_is_mutual(&config->dispatch))
        rt_control_put_text(hello.address, sizeof hello.address, address);
    return hello;
}

void played_join(played *p, uint32_t peer, const rt_wire_hello *hello)
{
    played_peer *one = played_find(p, peer);
    one->is_there = true;
    if (one->is_gone || one->told.has_left)
        one->told = (played_told){0};
    one->is_gone = one->is_mute = one->is_full = one->is_broken = false;
    played_say(p, peer, RT_MESSAGE_HELLO, 0, 0, hello, sizeof *hello);
}

void played_begin(played *p)
{
    stage = p;
    p->turns = 0;
    p->iteration = 0;
    p->given_copies = p->allowed = 0;
}

void played_end(played *p)
{
    for (uint32_t i = 0; i < PLAYED_PEERS; i++) {
        rt_free(p->peers[i].keys);
        p->peers[i] = (played_peer){0};
    }
    for (uint32_t i = 0; i < p->letter_count; i++)
        rt_message_release(&p->letters[i].message);
    p->letter_count = p->slice_count = 0;
    p->held.count = p->trained.count = p->wanted.count = 0;
    memset(p->done, 0, sizeof p->done);
    p->samples = 0;
    stage = NULL;
}

void played_fini(played *p)
{
    rt_free(p->letters);
    rt_free(p->held.rows);
    rt_free(p->trained.rows);
    rt_free(p->wanted.rows);
    rt_free(p->slices);
    rt_bytes_fini(&p->broken);
    rt_bytes_fini(&p->heard);
    for (uint32_t i = 0; i < p->cut_count; i++)
        rt_free(p->cuts[i].rows);
}

// ---- the transport -----------------------------------------------------------------------------

static rt_status open_stage(rt_transport **transport_p, rt_error *error)
{
    (void)error;
    *transport_p = (rt_transport *)stage;
    return RT_OK;
}

static void close_stage(rt_transport *transport)
{
    (void)transport;
}

static rt_status listen_here(rt_transport *transport, uint32_t self, const char *address,
                             char *bound, rt_endpoint **endpoint_p, rt_error *error)
{
    const played *p = (const played *)transport;
    (void)self;
    (void)address;
    if (p->manners.deaf)
        return rt_fail(error, RT_IO, "nobody can listen");
    snprintf(bound, RT_NAME_MAX, "tcp://127.0.0.1:1234");
    *endpoint_p = (rt_endpoint *)transport;
    return RT_OK;
}

static void end_here(rt_endpoint *endpoint, uint32_t linger_ms)
{
    (void)endpoint;
    (void)linger_ms;
}

static rt_status send_there(rt_endpoint *endpoint, uint32_t peer, rt_message *message)
{
    played *p = (played *)endpoint;
    rt_error error = {0};
    played_peer *to = played_find(p, peer);
    if (!to || !to->is_there || to->is_gone)
        return RT_NOT_FOUND;
    if (to->is_full)
        return RT_AGAIN;
    if (to->is_broken)
        return RT_IO;
    if (rt_message_validate(message, peer, &error))
        fail_msg("the coordinator sends what nobody takes: %s", error.text);
    played_rules_told(p, peer, message);
    p->on_message(p, (rt_message_type)rt_message_header(message)->type);
    if (!to->is_mute)
        played_answer(p, peer, message);
    rt_message_release(message);
    return RT_OK;
}

static rt_status receive_here(rt_endpoint *endpoint, uint32_t *peer_p, rt_message *message,
                              rt_error *error)
{
    played *p = (played *)endpoint;
    one_by_one_rest();
    for (uint32_t i = 0; i < p->letter_count; i++) {
        const played_letter letter = p->letters[i];
        if (letter.due > p->turns)
            continue;
        memmove(&p->letters[i], &p->letters[i + 1], (--p->letter_count - i) * sizeof letter);
        *peer_p = letter.peer;
        *message = letter.message;
        if (rt_message_validate(message, letter.peer, error) == RT_OK) {
            played_rules_took(p, letter.peer, message);
            return RT_OK;
        }
        rt_message_release(message);
        return RT_WIRE;
    }
    return RT_AGAIN;
}

static bool has_letter(const played *p)
{
    for (uint32_t i = 0; i < p->letter_count; i++) {
        if (p->letters[i].due <= p->turns)
            return true;
    }
    return false;
}

static rt_status wait_here(rt_endpoint *const *endpoints, uint32_t count, int wake_fd,
                           uint32_t timeout_ms, bool *ready)
{
    played *p = (played *)endpoints[0];
    struct pollfd wake = {.fd = wake_fd, .events = POLLIN};
    assert_int_equal(count, 1);
    if (p->turns++ == TURNS_MAX)
        fail_msg("the run does not end");
    if (p->turns == p->manners.fails)
        return RT_IO;
    one_by_one_pass(TURN_NS * (p->manners.turn_ms ? p->manners.turn_ms : 1));
    one_by_one_rest();
    if (p->turns % (1 + p->manners.slow) == 0)
        one_by_one_end_children();
    p->on_turn(p);
    *ready = has_letter(p);
    if (*ready || p->letter_count || (wake_fd >= 0 && poll(&wake, 1, 0) == 1))
        return RT_OK;
    one_by_one_pass(timeout_ms * UINT64_C(1000000));
    return RT_OK;
}

static rt_status take_keys(rt_transport *transport, const rt_keys *keys, rt_error *error)
{
    (void)transport;
    (void)keys;
    (void)error;
    return RT_OK;
}

static rt_status allow_here(rt_transport *transport, const rt_public_key *key, rt_error *error)
{
    (void)transport;
    if (strcmp(key->name, "odd") == 0)
        return rt_fail(error, RT_LIMIT, "there is no room for the key %s", key->name);
    return RT_OK;
}

const rt_transport_ops played_ops = {.name = "played",
                                     .open = open_stage,
                                     .close = close_stage,
                                     .listen = listen_here,
                                     .end = end_here,
                                     .send = send_there,
                                     .receive = receive_here,
                                     .wait = wait_here,
                                     .secure = take_keys,
                                     .allow = allow_here};
