#include "runtime/transport/rt_guests.h"

#include <inttypes.h>
#include <poll.h>

#include "runtime/config/rt_address.h"

#define WAY_LOOK_MS 100 // between two looks for a way to the coordinator

static rt_status find_way(const rt_door *door, const char *bound, char *reachable, rt_error *error)
{
    const double limit_s = door->config->timeout_start_s;
    const uint64_t deadline_ns = rt_now_ns() + (uint64_t)(limit_s * 1e9);
    rt_error why = {0};
    rt_status status = rt_address_reachable(bound, door->coordinator, reachable, RT_NAME_MAX, &why);
    if (status == RT_IO)
        rt_info("waiting for a way to the coordinator: %s (timeouts.start_s: %g)", why.text,
                limit_s);
    while (status == RT_IO && rt_now_ns() < deadline_ns) {
        rt_notify_ready(door->notify);
        rt_notify_alive(door->notify);
        (void)poll(NULL, 0, WAY_LOOK_MS);
        status = rt_address_reachable(bound, door->coordinator, reachable, RT_NAME_MAX, &why);
    }
    if (status)
        return rt_fail(error, status, "%s", why.text);
    return RT_OK;
}

rt_status rt_guests_listen(rt_guests *guests, rt_transport *transport, const rt_door *door,
                           char *reachable, rt_error *error)
{
    char address[RT_PATH_MAX], bound[RT_NAME_MAX];
    const rt_config *config = door->config;
    rt_status status =
        rt_address_listen(config->network_bind, door->given, config->network_interface, door->port,
                          address, sizeof address, error);
    if (!status)
        status =
            guests->ops->listen(transport, guests->self, address, bound, &guests->endpoint, error);
    if (!status)
        status = find_way(door, bound, reachable, error);
    if (!status && rt_address_is_loopback(bound) && !rt_address_is_loopback(door->coordinator))
        status = rt_fail(error, RT_CONFIG,
                         "%s would listen at %s, which workers on other machines cannot reach: "
                         "give %s, network.interface or --bind",
                         door->who, reachable, door->key);
    return status;
}

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
        (void)rt_transport_send(guests->ops, guests->endpoint, peer, &refusal);
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
