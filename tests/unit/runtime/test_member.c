#include "runtime/transport/rt_member.h"

#include <string.h>

#include "tests/support/test.h"

#define SELF rt_peer(RT_ROLE_PS, 0)

// A coordinator that never answers; it counts what it gets.
typedef struct {
    uint32_t hellos, beats, others;
    uint32_t room; // for messages
    uint64_t stop; // rt_reason of a STOP after a FAILED; 0: none
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
                                     .end = mute_end};

static rt_status join(mute *coordinator, rt_error *error)
{
    rt_member member;
    const rt_member_config config = {.ops = &ops,
                                     .transport = (rt_transport *)(void *)coordinator,
                                     .self = SELF,
                                     .coordinator = "tcp://nowhere:1",
                                     .address = "",
                                     .timeout_start_s = 0.5,
                                     .timeout_peer_s = 0.1};
    return rt_member_join(&member, &config, error);
}

// The coordinator waits for all, and those who are there already must not seem dead meanwhile.
static void waiting_for_others_is_not_silence(void **state)
{
    (void)state;
    mute coordinator = {.room = UINT32_MAX};
    rt_error error = {0};
    assert_int_equal(join(&coordinator, &error), RT_TIMEOUT);
    assert_non_null(strstr(error.text, "tcp://nowhere:1"));
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

// The reason of an end may be heard after what it looks like.
static void who_gives_up_hears_the_reason(void **state)
{
    (void)state;
    const rt_member_config config = {.ops = &ops, .self = SELF, .timeout_peer_s = 20};
    for (uint64_t reason = 0; reason <= RT_REASON_DRAINED; reason++) {
        mute coordinator = {.room = UINT32_MAX, .stop = reason};
        rt_member member = {.config = config,
                            .endpoint = (rt_endpoint *)(void *)&coordinator,
                            .heard_ns = rt_now_ns()};
        rt_error error = {RT_PEER, "a shard is gone"};
        const bool lasts = reason == RT_REASON_LASTS;
        const bool drained = reason == RT_REASON_DRAINED;
        assert_int_equal(rt_member_give_up(&member, &error),
                         lasts     ? RT_REFUSED
                         : drained ? RT_STOPPED
                                   : RT_PEER);
        assert_string_equal(error.text, lasts     ? "mend it"
                                        : drained ? RT_BOX_DRAINED
                                                  : "a shard is gone");
        assert_int_equal(coordinator.others, 1);
    }
    rt_member nowhere = {.config = config};
    rt_error error = {RT_PEER, "a shard is gone"};
    assert_int_equal(rt_member_give_up(&nowhere, &error), RT_PEER);
}

TEST_MAIN(TEST(waiting_for_others_is_not_silence), TEST(a_coordinator_may_come_later),
          TEST(who_gives_up_hears_the_reason))
