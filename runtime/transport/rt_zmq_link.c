// The link of a connecting endpoint: attempts, and what its monitor tells (rt_zmq.c has the
// picture).
#include "runtime/transport/rt_zmq_parts.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "runtime/transport/rt_zmq_socket.h"

#define CONNECT_WAIT_MS 1000 // that connect itself waits for the connection
#define EVENTS_MAX 64        // of a monitor, per look

void rt_zmq_link_close(rt_endpoint *endpoint, uint32_t linger_ms)
{
    if (endpoint->monitor) {
        zmq_socket_monitor(endpoint->socket, NULL, 0);
        zmq_close(endpoint->monitor);
    }
    if (endpoint->socket) {
        int linger = linger_ms > INT32_MAX ? INT32_MAX : (int)linger_ms;
        zmq_setsockopt(endpoint->socket, ZMQ_LINGER, &linger, sizeof linger);
        zmq_close(endpoint->socket);
    }
    endpoint->monitor = NULL;
    endpoint->socket = NULL;
    endpoint->socket_fd = endpoint->monitor_fd = -1;
}

int rt_zmq_link_start(rt_endpoint *endpoint)
{
    const int events = ZMQ_EVENT_CONNECTED | ZMQ_EVENT_HANDSHAKE_SUCCEEDED |
                       ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_CLOSED | ZMQ_EVENT_CONNECT_RETRIED |
                       ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL |
                       ZMQ_EVENT_HANDSHAKE_FAILED_AUTH;
    rt_transport *transport = endpoint->transport;
    uint8_t identity[RT_ZMQ_IDENTITY_BYTES];
    uint64_t connection = 0;
    char monitor[32];
    if (getrandom(&connection, sizeof connection, 0) != sizeof connection)
        return -1;
    rt_zmq_identity_write(endpoint->self, connection | 1, identity);
    snprintf(monitor, sizeof monitor, "inproc://monitor-%u",
             atomic_fetch_add(&transport->monitor_count, 1));
    endpoint->retry_at_ns = 0;
    endpoint->socket = rt_zmq_socket_create(transport->context, ZMQ_DEALER, endpoint->address);
    if (!endpoint->socket)
        return -1;
    if (zmq_setsockopt(endpoint->socket, ZMQ_ROUTING_ID, identity, sizeof identity) == 0 &&
        (endpoint->monitor =
             rt_zmq_socket_monitor(transport->context, endpoint->socket, monitor, events)) &&
        rt_zap_guard_client(transport->zap, endpoint->socket, endpoint->address,
                            endpoint->server) &&
        zmq_connect(endpoint->socket, endpoint->address) == 0) {
        endpoint->socket_fd = rt_zmq_socket_fd(endpoint->socket);
        endpoint->monitor_fd = rt_zmq_socket_fd(endpoint->monitor);
        endpoint->holds = HOLDS_UNKNOWN;
        endpoint->monitor_may_hold = true;
        return 0;
    }
    int reason = errno;
    rt_zmq_link_close(endpoint, 0);
    errno = reason;
    return -1;
}

// An attempt failed: the next one comes later.
static void link_retry_later(rt_endpoint *endpoint, const char *reason)
{
    char name[32];
    if (endpoint->retry_at_ns)
        return; // the first event of an attempt says why it failed
    endpoint->retry_ms = (uint32_t)rt_min_u64(
        rt_max_u64(2 * endpoint->retry_ms, RT_ZMQ_RETRY_FIRST_MS), RT_ZMQ_RETRY_MS);
    endpoint->retry_at_ns = rt_now_ns() + endpoint->retry_ms * RT_ZMQ_NS_PER_MS;
    if (endpoint->retry_reason && strcmp(endpoint->retry_reason, reason) == 0)
        return;
    endpoint->retry_reason = reason;
    rt_info("%s at %s %s; trying on", rt_peer_name(endpoint->server, name), endpoint->address,
            reason);
}

// Takes one event off the monitor; false when there is none.
static bool link_event(rt_endpoint *endpoint)
{
    int event;
    int32_t value;
    if (!rt_zmq_socket_event(endpoint->monitor, &event, &value))
        return false;
    if (event == ZMQ_EVENT_CONNECTED) {
        (void)rt_zmq_socket_tune(value);
    } else if (endpoint->link == LINK_CONNECTING) {
        if (event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED)
            endpoint->link = LINK_UP;
        else if (event == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH)
            link_retry_later(endpoint, "refuses this box's key (its security.allow has it not)");
        else if (event != ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL &&
                 event != ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL)
            link_retry_later(endpoint, "does not answer yet");
        else if (rt_zap_has_keys(endpoint->transport->zap, endpoint->address))
            link_retry_later(endpoint, "has another key than expected, or none");
        else if (event == ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL)
            link_retry_later(endpoint, "does not speak our protocol, or wants keys");
        else
            link_retry_later(endpoint, "ended the connection: it stops, wants keys, or does not "
                                       "speak our protocol");
    } else if (endpoint->link == LINK_UP && event == ZMQ_EVENT_DISCONNECTED) {
        endpoint->link = LINK_LOST;
    }
    return true;
}

void rt_zmq_link_update(rt_endpoint *endpoint)
{
    int event_count = 0;
    while (endpoint->monitor && event_count < EVENTS_MAX && link_event(endpoint))
        event_count++;
    endpoint->monitor_may_hold = event_count == EVENTS_MAX;
    if (endpoint->link == LINK_UP && endpoint->early_count > 0)
        rt_zmq_send_early(endpoint);
    if (endpoint->link != LINK_CONNECTING || endpoint->retry_at_ns == 0 ||
        rt_now_ns() < endpoint->retry_at_ns)
        return;
    rt_zmq_link_close(endpoint, 0);
    if (rt_zmq_link_start(endpoint) != 0)
        link_retry_later(endpoint, zmq_strerror(errno));
}

void rt_zmq_link_await(rt_endpoint *endpoint)
{
    const uint64_t end_ns = rt_now_ns() + CONNECT_WAIT_MS * RT_ZMQ_NS_PER_MS;
    for (uint64_t now_ns = rt_now_ns(); now_ns < end_ns; now_ns = rt_now_ns()) {
        zmq_pollitem_t item = {.socket = endpoint->monitor, .events = ZMQ_POLLIN};
        const bool is_signal =
            zmq_poll(&item, 1, (long)((end_ns - now_ns) / RT_ZMQ_NS_PER_MS + 1)) < 0 &&
            errno == EINTR;
        rt_zmq_link_update(endpoint);
        if (is_signal || endpoint->link != LINK_CONNECTING || endpoint->retry_at_ns)
            return;
    }
}
