#include "runtime/transport/rt_guests.h"

#include <inttypes.h>

rt_status rt_guests_take_hello(rt_guests *guests, uint32_t peer, const rt_message *message,
                               rt_error *error)
{
    char name[32];
    rt_wire_hello hello;
    rt_message refusal;
    const uint32_t rank = rt_peer_rank(peer);
    rt_status status = rt_control_hello(message, peer, guests->self, &hello, error);
    if (!status)
        status = rt_control_agree(&hello, &guests->identity, rt_peer_name(peer, name), error);
    if (!status && (rt_peer_role(peer) != RT_ROLE_WORKER || rank >= guests->worker_count))
        status = rt_fail(error, RT_WIRE, "%s is not one of the %" PRIu32 " workers of this run",
                         rt_peer_name(peer, name), guests->worker_count);
    if (!status)
        guests->greeted |= rt_bit(rank);
    else if (rt_control_create_end(&refusal, RT_MESSAGE_STOP, guests->self, status, error->text) ==
             RT_OK) {
        (void)guests->ops->send(guests->endpoint, peer, &refusal);
        rt_message_release(&refusal);
    }
    return status;
}

bool rt_guests_know(const rt_guests *guests, uint32_t peer)
{
    return rt_peer_role(peer) == RT_ROLE_WORKER && rt_peer_rank(peer) < RT_WORKERS_MAX &&
           (guests->greeted >> rt_peer_rank(peer) & 1);
}

void rt_guests_log_stranger(rt_guests *guests, const char *what)
{
    uint64_t count;
    if (rt_log_due(&guests->strangers, &count))
        rt_warn("refused %" PRIu64 " messages of strangers; the last: %s", count, what);
}
