#include "tests/support/notes.h"

#include <string.h>

#include "tests/support/test.h"

static rt_status listen_nowhere(rt_transport *transport, uint32_t self, const char *address,
                                char *bound, rt_endpoint **endpoint_p, rt_error *error)
{
    (void)self;
    (void)error;
    strcpy(bound, address);
    *endpoint_p = &transport->endpoint;
    return RT_OK;
}

static void end(rt_endpoint *endpoint, uint32_t linger_ms)
{
    (void)endpoint;
    (void)linger_ms;
}

static rt_status note(rt_endpoint *endpoint, uint32_t peer, rt_message *message)
{
    assert_true(endpoint->count < NOTES_MAX);
    if (endpoint->broken)
        return endpoint->broken;
    endpoint->sent[endpoint->count].peer = peer;
    endpoint->sent[endpoint->count++].header = *rt_message_header(message);
    rt_message_release(message);
    return RT_OK;
}

static rt_status receive_nothing(rt_endpoint *endpoint, uint32_t *peer_p, rt_message *message,
                                 rt_error *error)
{
    (void)endpoint;
    (void)peer_p;
    (void)message;
    (void)error;
    return RT_AGAIN;
}

const rt_transport_ops notes_ops = {.name = "notes",
                                    .listen = listen_nowhere,
                                    .end = end,
                                    .send = note,
                                    .receive = receive_nothing};

uint32_t notes_ranks(const rt_transport *transport, rt_message_type type, rt_role role,
                     uint64_t iteration)
{
    uint32_t ranks = 0;
    const rt_endpoint *endpoint = &transport->endpoint;
    for (uint32_t i = 0; i < endpoint->count; i++) {
        if (endpoint->sent[i].header.type != type)
            continue;
        assert_int_equal(rt_peer_role(endpoint->sent[i].peer), role);
        assert_int_equal(endpoint->sent[i].header.iteration, iteration);
        ranks |= (uint32_t)rt_bit(rt_peer_rank(endpoint->sent[i].peer));
    }
    return ranks;
}

void notes_clear(rt_transport *transport)
{
    transport->endpoint.count = 0;
}
