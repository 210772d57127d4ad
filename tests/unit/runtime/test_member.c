#include "runtime/transport/rt_member.h"

#include <string.h>

#include "runtime/rt_hash.h"
#include "tests/support/test.h"

#define SELF rt_peer(RT_ROLE_PS, 0)
#define PATIENCE_S 20 // a step that takes longer has failed

// A coordinator that never answers; it counts what it gets.
typedef struct {
    uint32_t hellos, beats, others;
    uint32_t room;       // for messages
    uint64_t stop;       // rt_reason of a STOP after a FAILED; 0: none
    rt_message allow[2]; // come after as many HELLOs
    uint32_t allow_count, allowed;
    uint64_t told;                 // the last HELLO's allowed
    uint32_t taken_until, refused; // so many HELLOs find the place taken
} mute;

static rt_status mute_connect(rt_transport *transport, uint32_t self, uint32_t server,
                              const char *address, rt_endpoint **endpoint_p, rt_error *error)
{
    (void)self;
    (void)server;
    (void)address;
    (void)error;
    *endpoint_p = (rt_endpoint *)(void *)transport;
    return RT_OK;
}

static rt_status mute_send(rt_endpoint *endpoint, uint32_t peer, rt_message *message)
{
    mute *m = (mute *)(void *)endpoint;
    const uint32_t type = rt_message_header(message)->type;
    (void)peer;
    if (m->hellos + m->beats + m->others == m->room)
        return RT_AGAIN;
    m->hellos += type == RT_MESSAGE_HELLO;
    if (type == RT_MESSAGE_HELLO)
        m->told = ((const rt_wire_hello *)(const void *)rt_message_payload(message))->allowed;
    m->beats += type == RT_MESSAGE_HEARTBEAT;
    m->others += type != RT_MESSAGE_HELLO && type != RT_MESSAGE_HEARTBEAT;
    rt_message_release(message);
    return RT_OK;
}

static rt_status mute_receive(rt_endpoint *endpoint, uint32_t *peer, rt_message *message,
                              rt_error *error)
{
    mute *m = (mute *)(void *)endpoint;
    (void)peer;
    (void)error;
    if (m->allow_count && m->hellos > m->allowed) {
        *message = m->allow[m->allowed++];
        m->allow_count--;
        return RT_OK;
    }
    if (m->hellos > m->refused && m->refused < m->taken_until) {
        m->refused++;
        return rt_control_create_taken(message, rt_peer(RT_ROLE_COORDINATOR, 0), SELF);
    }
    if (!m->stop || !m->others)
        return RT_AGAIN;
    assert_int_equal(rt_control_create_text(message, RT_MESSAGE_STOP, SELF, "mend it"), RT_OK);
    rt_message_header(message)->iteration = m->stop;
    m->stop = 0;
    return RT_OK;
}

static rt_status mute_wait(rt_endpoint *const *endpoints, uint32_t count, int wake_fd,
                           uint32_t timeout_ms, bool *ready)
{
    (void)endpoints;
    (void)count;
    (void)wake_fd;
    (void)timeout_ms;
    *ready = false;
    return RT_OK;
}

static char known[RT_SITE_BOXES_MAX][RT_NAME_MAX];
static uint32_t known_count;

static rt_status mute_allow(rt_transport *transport, const rt_public_key *key, rt_error *error)
{
    (void)transport;
    (void)error;
    assert_true(known_count < RT_SITE_BOXES_MAX);
    memcpy(known[known_count++], key->name, sizeof *known);
    return RT_OK;
}

static void mute_end(rt_endpoint *endpoint, uint32_t linger_ms)
{
    (void)endpoint;
    (void)linger_ms;
}

static const rt_transport_ops ops = {.name = "mute",
                                     .connect = mute_connect,
                                     .send = mute_send,
                                     .receive = mute_receive,
                                     .wait = mute_wait,
                                     .allow = mute_allow,
                                     .end = mute_end};

static rt_status join_within(mute *coordinator, double start_s, rt_error *error)
{
    rt_member member;
    const rt_member_config config = {.ops = &ops,
                                     .transport = (rt_transport *)(void *)coordinator,
                                     .self = SELF,
                                     .coordinator = "tcp://127.0.0.1:1",
                                     .address = "",
                                     .timeout_start_s = start_s,
                                     .timeout_peer_s = 0.5};
    return rt_member_join(&member, &config, error);
}

static rt_status join(mute *coordinator, rt_error *error)
{
    return join_within(coordinator, 2.5, error);
}

// The coordinator waits for all, and those who are there already must not seem dead meanwhile.
static void waiting_for_others_is_not_silence(void **state)
{
    (void)state;
    mute coordinator = {.room = UINT32_MAX};
    rt_error error = {0};
    assert_int_equal(join(&coordinator, &error), RT_TIMEOUT);
    assert_non_null(strstr(error.text, "tcp://127.0.0.1:1"));
    assert_int_equal(coordinator.hellos, 1);
    assert_true(coordinator.beats >= 5); // at least one in every timeout_peer_s
    assert_int_equal(coordinator.others, 0);
}

// Before it is connected the transport keeps a few messages and no more.
static void a_coordinator_may_come_later(void **state)
{
    (void)state;
    mute coordinator = {.room = 3};
    rt_error error = {0};
    assert_int_equal(join(&coordinator, &error), RT_TIMEOUT);
    assert_int_equal(coordinator.hellos + coordinator.beats, 3);
}

static rt_message allow(uint32_t count, const char *name)
{
    rt_message message;
    const size_t size = count * sizeof(rt_wire_allowed);
    assert_int_equal(rt_message_create(&message, RT_MESSAGE_ALLOW, rt_peer(RT_ROLE_COORDINATOR, 0),
                                       0, count, size),
                     RT_OK);
    memset(rt_message_payload(&message), 0, size);
    for (uint32_t i = 0; i < count; i++)
        memcpy((char *)rt_message_payload(&message) + i * sizeof(rt_wire_allowed), name,
               strnlen(name, sizeof((rt_wire_allowed *)0)->name));
    return message;
}

// It takes them, and has joined with a HELLO that says so.
static void keys_of_boxes_that_were_added_are_taken(void **state)
{
    (void)state;
    rt_error error = {0};
    mute coordinator = {.room = UINT32_MAX, .allow = {allow(2, "c")}, .allow_count = 1};
    const uint64_t hash =
        rt_hash_bytes(rt_message_payload(&coordinator.allow[0]), 2 * sizeof(rt_wire_allowed));
    assert_int_equal(join_within(&coordinator, PATIENCE_S, &error), RT_PEER);
    assert_int_equal(coordinator.hellos, 2);
    assert_true(coordinator.told == hash);
    assert_int_equal(known_count, 2);
    assert_string_equal(known[1], "c");
}

static void an_allow_that_is_none_ends_joining(void **state)
{
    (void)state;
    char endless[80];
    memset(endless, 'n', sizeof endless - 1);
    endless[sizeof endless - 1] = '\0';
    rt_message cut = allow(2, "c");
    rt_message_finish(&cut, 2, sizeof(rt_wire_allowed));
    mute wrong[] = {{.allow = {allow(1, endless)}, .allow_count = 1},
                    {.allow = {allow(0, "")}, .allow_count = 1},
                    {.allow = {allow(RT_SITE_BOXES_MAX + 1, "c")}, .allow_count = 1},
                    {.allow = {cut}, .allow_count = 1},
                    {.allow = {allow(1, "c"), allow(1, "c")}, .allow_count = 2}};
    for (size_t i = 0; i < RT_COUNT_OF(wrong); i++) {
        rt_error error = {0};
        wrong[i].room = UINT32_MAX;
        assert_int_equal(join_within(&wrong[i], PATIENCE_S, &error), RT_WIRE);
        assert_non_null(strstr(error.text, "ALLOW"));
    }
}

// A place is free a little after its process was lost; when it stays taken two were started.
static void a_place_that_is_taken(void **state)
{
    (void)state;
    rt_error error = {0};
    mute freed = {.room = UINT32_MAX, .taken_until = 2};
    assert_int_equal(join_within(&freed, 2.5, &error), RT_TIMEOUT);
    assert_int_equal(freed.hellos, 3);
    mute taken = {.room = UINT32_MAX, .taken_until = UINT32_MAX};
    assert_int_equal(join_within(&taken, 0.5, &error), RT_REFUSED);
    assert_in_range(taken.hellos, 1, 4);
    assert_string_equal(error.text,
                        "another ps 0 is connected already, for 0.5 s (timeouts.start_s): two "
                        "processes of this rank are there, of which one has to end");
}

// The reason of an end may be heard after what it looks like.
static void who_gives_up_hears_the_reason(void **state)
{
    (void)state;
    const rt_member_config config = {.ops = &ops, .self = SELF, .timeout_peer_s = 20};
    for (uint64_t reason = 0; reason < RT_REASONS; reason++) {
        mute coordinator = {.room = UINT32_MAX, .stop = reason};
        rt_member member = {.config = config,
                            .endpoint = (rt_endpoint *)(void *)&coordinator,
                            .heard_ns = rt_now_ns()};
        rt_error error = {RT_PEER, "a shard is gone"};
        const bool lasts = reason == RT_REASON_LASTS;
        const bool drained = reason == RT_REASON_DRAINED;
        const bool anew = reason == RT_REASON_ANEW;
        const bool was_planned = drained || anew;
        assert_int_equal(rt_member_give_up(&member, &error), lasts         ? RT_REFUSED
                                                             : was_planned ? RT_STOPPED
                                                                           : RT_PEER);
        assert_string_equal(error.text, lasts || anew ? "mend it"
                                        : drained     ? RT_BOX_DRAINED
                                                      : "a shard is gone");
        assert_int_equal(member.is_anew, anew);
        assert_int_equal(coordinator.others, 1);
    }
    rt_member nowhere = {.config = config};
    rt_error error = {RT_PEER, "a shard is gone"};
    assert_int_equal(rt_member_give_up(&nowhere, &error), RT_PEER);
}

TEST_MAIN(TEST(waiting_for_others_is_not_silence), TEST(a_coordinator_may_come_later),
          TEST(keys_of_boxes_that_were_added_are_taken), TEST(an_allow_that_is_none_ends_joining),
          TEST(a_place_that_is_taken), TEST(who_gives_up_hears_the_reason))
