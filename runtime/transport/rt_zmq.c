// rt_transport over ZeroMQ: a ROUTER listens, DEALERs connect, one frame is one message.
//
// A routing id is the peer's rt_peer in big-endian order (so it never starts with the zero byte
// that ZeroMQ keeps for itself) and a random number of the connection. ZeroMQ takes a while to
// forget a connection that ended, and would not let a restarted peer in under the same id; with the
// number the ROUTER can tell a restart (the old connection is gone: the new one takes its place)
// from a peer that was started twice (the old one is there: the new one is told to stop).
//
// ZeroMQ reconnects behind the program's back, and what was in flight is then missing in the middle
// of a conversation. So a connection that stood and ended is never resumed (RECONNECT_IVL is a
// day): a socket monitor tells of its end, what came before is still handed out, then the endpoint
// is dead and says RT_NOT_FOUND. Until a connection stands for the first time ZeroMQ gets nothing
// to send (a few messages wait here), and an attempt that failed is repeated with a new socket.
//
// Waiting is one poll(2) on the descriptors of sockets and monitors. Such a descriptor tells of a
// change, not of a state: any call on its socket may take the signal in and leave the message. So
// an endpoint remembers that it was called (hold_state) and asks ZeroMQ before it sleeps; only a
// receive that found nothing, or ZeroMQ's own word, clears that.
//
// No heartbeats of ZeroMQ's: whether a peer is alive is decided above, by messages and deadlines;
// TCP keepalive and a limit on unacknowledged bytes end connections to machines that vanished.
//
// A connecting endpoint's link (link_state), and what its calls say in each state:
//
//                an attempt failed: a new socket after 25 to 200 ms
//                     .--------.
//                     v        |
//     connect --> CONNECTING --+-- handshake --> UP -- it ends --> LOST -- all was read --> GONE
//
//                 CONNECTING        UP              LOST              GONE
//     send        keeps up to 8     sends           RT_NOT_FOUND      RT_NOT_FOUND
//     receive     RT_AGAIN          what came       what came         RT_NOT_FOUND
//
// What an endpoint knows of its socket before it waits (hold_state). A call is any call on it:
//
//     UNKNOWN --- receive finds nothing, or ZeroMQ says so ---> NOTHING
//     NOTHING --- a call, or a signal of the descriptor ------> UNKNOWN
//     UNKNOWN --- ZeroMQ says that there is a message --------> MESSAGE
//     MESSAGE --- receive ------------------------------------> UNKNOWN
#include "runtime/transport/rt_transport.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/config/rt_address.h"
#include "runtime/transport/rt_watch.h"
#include "runtime/transport/rt_zmq_parts.h"
#include "runtime/transport/rt_zmq_socket.h"

#define DROPS_MAX 64 // strangers' messages, per receive

static void transport_drop(rt_transport *transport)
{
    if (atomic_fetch_sub(&transport->references, 1) != 1)
        return;
    while (zmq_ctx_term(transport->context) != 0 && errno == EINTR)
        ; // a signal; the wait itself ends with the longest linger
    rt_zap_destroy(transport->zap);
    rt_free(transport);
}

static rt_status transport_open(rt_transport **transport_p, rt_error *error)
{
    rt_transport *transport = rt_alloc(1, sizeof *transport);
    if (!transport)
        return rt_fail(error, RT_NO_MEMORY, "no memory for the transport");
    transport->context = zmq_ctx_new();
    if (!transport->context) {
        rt_fail(error, RT_IO, "cannot start ZeroMQ: %s", zmq_strerror(errno));
        rt_free(transport);
        return RT_IO;
    }
    atomic_init(&transport->references, 1);
    *transport_p = transport;
    return RT_OK;
}

static void transport_close(rt_transport *transport)
{
    if (transport)
        transport_drop(transport);
}

static rt_status transport_secure(rt_transport *transport, const rt_keys *keys, rt_error *error)
{
    rt_assert(!transport->zap);
    return rt_zap_create(transport->context, keys, &transport->zap, error);
}

static rt_status transport_trust(rt_transport *transport, uint32_t server,
                                 const uint8_t key[RT_KEY_BYTES], rt_error *error)
{
    if (transport->zap)
        return rt_zap_trust(transport->zap, server, key, error);
    return RT_OK;
}

static rt_status transport_allow(rt_transport *transport, const rt_public_key *key, rt_error *error)
{
    if (transport->zap)
        return rt_zap_allow(transport->zap, key, error);
    return RT_OK;
}

static rt_status address_fail(rt_error *error, const char *what, const char *address, int reason)
{
    if (reason == EPROTONOSUPPORT || reason == ENOCOMPATPROTO)
        reason = EINVAL;
    return rt_address_fail(error, what, address, reason, zmq_strerror(reason));
}

static rt_endpoint *endpoint_create(rt_transport *transport, uint32_t self, const char *address)
{
    rt_endpoint *endpoint = rt_alloc(1, sizeof *endpoint);
    if (!endpoint)
        return NULL;
    endpoint->transport = transport;
    endpoint->self = self;
    endpoint->socket_fd = endpoint->monitor_fd = -1;
    snprintf(endpoint->address, sizeof endpoint->address, "%s", address);
    atomic_fetch_add(&transport->references, 1);
    return endpoint;
}

static void endpoint_end(rt_endpoint *endpoint, uint32_t linger_ms)
{
    if (!endpoint)
        return;
    bool is_heard = endpoint->link == LINK_NONE || endpoint->link == LINK_UP;
    for (uint32_t i = 0; i < endpoint->early_count; i++)
        rt_message_release(&endpoint->early[i]);
    rt_zmq_link_close(endpoint, is_heard ? linger_ms : 0);
    transport_drop(endpoint->transport);
    rt_free(endpoint);
}

static rt_status endpoint_listen(rt_transport *transport, uint32_t self, const char *address,
                                 char *bound, rt_endpoint **endpoint_p, rt_error *error)
{
    if (!rt_address_is_valid(address))
        return address_fail(error, "cannot listen on", address, EINVAL);
    rt_status status = rt_zap_check_address(transport->zap, address, error);
    if (status)
        return status;
    rt_endpoint *endpoint = endpoint_create(transport, self, address);
    if (!endpoint)
        return rt_fail(error, RT_NO_MEMORY, "no memory to listen on %s", address);
    size_t bound_size = RT_NAME_MAX;
    endpoint->socket = rt_zmq_socket_create(transport->context, ZMQ_ROUTER, address);
    if (!endpoint->socket || !rt_zap_guard_listener(transport->zap, endpoint->socket, address) ||
        rt_zmq_socket_bind(transport->context, endpoint->socket, address) != 0)
        status = address_fail(error, "cannot listen on", address, errno);
    else if (zmq_getsockopt(endpoint->socket, ZMQ_LAST_ENDPOINT, bound, &bound_size) != 0)
        status = rt_fail(error, RT_CONFIG, "cannot listen on %s: longer than %d bytes", address,
                         RT_NAME_MAX - 1);
    else {
        endpoint->socket_fd = rt_zmq_socket_fd(endpoint->socket);
        endpoint->holds = HOLDS_UNKNOWN;
        rt_zap_watch(transport->zap, endpoint->socket, bound);
        *endpoint_p = endpoint;
        return RT_OK;
    }
    endpoint_end(endpoint, 0);
    return status;
}

static rt_status endpoint_connect(rt_transport *transport, uint32_t self, uint32_t server,
                                  const char *address, rt_endpoint **endpoint_p, rt_error *error)
{
    char what[64], name[32];
    snprintf(what, sizeof what, "cannot connect to %s at", rt_peer_name(server, name));
    if (!rt_address_is_valid(address))
        return address_fail(error, what, address, EINVAL);
    if (!rt_address_host_is_known(address))
        return rt_fail(error, RT_IO, "%s %s: unknown host", what, address); // so far
    if (rt_zap_check_address(transport->zap, address, error))
        return RT_CONFIG;
    rt_endpoint *endpoint = endpoint_create(transport, self, address);
    if (!endpoint)
        return rt_fail(error, RT_NO_MEMORY, "%s %s: no memory", what, address);
    endpoint->server = server;
    endpoint->link = LINK_CONNECTING;
    if (rt_zmq_link_start(endpoint) != 0) {
        rt_status status = address_fail(error, what, address, errno);
        endpoint_end(endpoint, 0);
        return status;
    }
    rt_zmq_link_await(endpoint);
    *endpoint_p = endpoint;
    return RT_OK;
}

// What a send that failed means for its peer.
static rt_status send_status(rt_endpoint *endpoint, int reason)
{
    if (reason == EHOSTUNREACH)
        return RT_NOT_FOUND;
    if (reason != EAGAIN && reason != EINTR)
        return RT_IO;
    if (endpoint->monitor)
        rt_zmq_link_update(endpoint);
    if (endpoint->link >= LINK_LOST)
        return RT_NOT_FOUND;
    return RT_AGAIN;
}

// Over a connection that stands, or to a listener's peer.
static rt_status send_now(rt_endpoint *endpoint, uint32_t peer, const rt_zmq_peer *entry,
                          rt_message *message)
{
    zmq_msg_t frame;
    rt_zmq_sent *sent;
    rt_status status = rt_zmq_frame_wrap(message, &frame, &sent);
    if (status)
        return status;
    if (endpoint->holds == HOLDS_NOTHING)
        endpoint->holds = HOLDS_UNKNOWN;
    bool is_addressed = !entry || rt_zmq_address_send(endpoint, peer, entry->connection);
    if (!is_addressed || zmq_msg_send(&frame, endpoint->socket, ZMQ_DONTWAIT) < 0) {
        status = send_status(endpoint, errno);
        rt_zmq_frame_disown(&frame, sent);
        return status;
    }
    *message = (rt_message){0};
    return RT_OK;
}

void rt_zmq_send_early(rt_endpoint *endpoint)
{
    uint32_t count = endpoint->early_count;
    endpoint->early_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        (void)send_now(endpoint, endpoint->server, NULL, &endpoint->early[i]);
        rt_message_release(&endpoint->early[i]);
    }
}

static rt_status endpoint_send(rt_endpoint *endpoint, uint32_t peer, rt_message *message)
{
    rt_assert(message->release && message->size >= sizeof(rt_wire_header));
    rt_assert(rt_message_header(message)->sender == endpoint->self);
    if (endpoint->link == LINK_NONE) {
        const rt_zmq_peer *entry = rt_zmq_peer_find(endpoint, peer);
        bool is_known = entry && entry->connection != 0;
        if (is_known)
            return send_now(endpoint, peer, entry, message);
        return RT_NOT_FOUND;
    }
    if (endpoint->link == LINK_CONNECTING)
        rt_zmq_link_update(endpoint);
    if (endpoint->link >= LINK_LOST || endpoint->server != peer)
        return RT_NOT_FOUND;
    if (endpoint->link == LINK_UP)
        return send_now(endpoint, peer, NULL, message);
    if (endpoint->early_count == RT_ZMQ_EARLY_MESSAGES_MAX)
        return RT_AGAIN;
    endpoint->early[endpoint->early_count++] = *message;
    *message = (rt_message){0};
    return RT_OK;
}

// The next frame; RT_AGAIN when there is none, RT_NOT_FOUND when there will never be one.
static rt_status frame_receive(rt_endpoint *endpoint, zmq_msg_t *frame)
{
    if (endpoint->link == LINK_CONNECTING)
        rt_zmq_link_update(endpoint);
    if (endpoint->link == LINK_GONE)
        return RT_NOT_FOUND;
    if (!endpoint->socket)
        return RT_AGAIN;
    zmq_msg_init(frame);
    endpoint->holds = HOLDS_UNKNOWN;
    if (zmq_msg_recv(frame, endpoint->socket, ZMQ_DONTWAIT) >= 0)
        return RT_OK;
    int reason = errno;
    zmq_msg_close(frame);
    if (reason == EAGAIN)
        endpoint->holds = HOLDS_NOTHING;
    // What came before the end became visible before the end did, and there is no more of it.
    if (endpoint->link == LINK_LOST && reason == EAGAIN) {
        endpoint->link = LINK_GONE;
        return RT_NOT_FOUND;
    }
    errno = reason;
    if (endpoint->link == LINK_CONNECTING || reason == EAGAIN || reason == EINTR)
        return RT_AGAIN;
    return RT_IO;
}

// Closes the frame and all that follow it in its message; true when there were any.
static bool frames_skip(rt_endpoint *endpoint, zmq_msg_t *frame)
{
    bool were_more = zmq_msg_more(frame);
    while (zmq_msg_more(frame)) {
        if (zmq_msg_recv(frame, endpoint->socket, ZMQ_DONTWAIT) < 0)
            break;
    }
    zmq_msg_close(frame);
    return were_more;
}

// The first frame of a message to a connected endpoint; empty ones only asked whether it is there.
static rt_status frame_receive_connected(rt_endpoint *endpoint, zmq_msg_t *frame)
{
    for (int i = 0; i < DROPS_MAX; i++) {
        rt_status status = frame_receive(endpoint, frame);
        if (status || zmq_msg_size(frame) > 0 || zmq_msg_more(frame))
            return status;
        zmq_msg_close(frame);
    }
    return RT_AGAIN;
}

// The first frame after the address of a message that a known peer sent to a listening endpoint.
static rt_status frame_receive_listening(rt_endpoint *endpoint, zmq_msg_t *frame, uint32_t *peer_p)
{
    for (int i = 0; i < DROPS_MAX; i++) {
        uint32_t peer = 0;
        uint64_t connection;
        rt_status status = frame_receive(endpoint, frame);
        if (status)
            return status;
        rt_zmq_peer *entry = rt_zmq_identity_read(endpoint, frame, &peer, &connection);
        bool is_admitted = entry && zmq_msg_more(frame) &&
                           rt_zmq_connection_admit(endpoint, entry, peer, connection);
        if (is_admitted) {
            zmq_msg_close(frame);
            *peer_p = peer;
            status = frame_receive(endpoint, frame);
            if (!status)
                rt_zmq_peer_place(endpoint, entry, frame);
            return status;
        }
        frames_skip(endpoint, frame);
        rt_zmq_drop_log(endpoint, entry != NULL, peer);
    }
    return RT_AGAIN;
}

static rt_status endpoint_receive(rt_endpoint *endpoint, uint32_t *peer_p, rt_message *message,
                                  rt_error *error)
{
    char name[32], claimed[32];
    uint32_t peer = endpoint->server;
    zmq_msg_t frame;
    rt_message received;
    rt_status status;
    if (endpoint->link == LINK_NONE)
        status = frame_receive_listening(endpoint, &frame, &peer);
    else
        status = frame_receive_connected(endpoint, &frame);
    rt_peer_name(peer, name);
    if (!status || status == RT_NOT_FOUND)
        *peer_p = peer;
    if (status == RT_NOT_FOUND)
        return rt_fail(error, status, "the connection to %s at %s ended", name, endpoint->address);
    if (status == RT_IO)
        return rt_fail(error, status, "receiving at %s: %s", endpoint->address,
                       zmq_strerror(errno));
    if (status == RT_AGAIN && endpoint->link == LINK_CONNECTING && endpoint->retry_reason)
        return rt_fail(error, status, "it %s", endpoint->retry_reason);
    if (status)
        return status;
    if (zmq_msg_more(&frame)) {
        frames_skip(endpoint, &frame);
        return rt_fail(error, RT_WIRE, "%s sent a message in several frames, expected one", name);
    }
    status = rt_zmq_frame_unwrap(&frame, &received);
    if (status)
        return rt_fail(error, status, "no memory for a message of %s", name);
    status = rt_message_validate(&received, peer, error);
    const rt_wire_header *header = rt_message_header(&received);
    if (!status && header->sender != peer)
        status = rt_fail(error, RT_WIRE, "%s sent %s in the name of %s", name,
                         rt_message_type_name(header->type), rt_peer_name(header->sender, claimed));
    if (status)
        rt_message_release(&received);
    else
        *message = received;
    return status;
}

// What ZeroMQ says; where it fails, receive shall say why.
static hold_state socket_look(void *socket)
{
    int events = 0;
    size_t size = sizeof events;
    int failed = zmq_getsockopt(socket, ZMQ_EVENTS, &events, &size);
    return failed || (events & ZMQ_POLLIN) ? HOLDS_MESSAGE : HOLDS_NOTHING;
}

// Whether receive has something to say.
static bool endpoint_look(rt_endpoint *endpoint, bool socket_signal, bool monitor_signal)
{
    if (monitor_signal || endpoint->monitor_may_hold || endpoint->link == LINK_CONNECTING)
        rt_zmq_link_update(endpoint);
    if (endpoint->link == LINK_GONE || !endpoint->socket)
        return false;
    if (endpoint->holds == HOLDS_UNKNOWN || (socket_signal && endpoint->holds == HOLDS_NOTHING))
        endpoint->holds = socket_look(endpoint->socket);
    return endpoint->holds == HOLDS_MESSAGE || endpoint->link == LINK_LOST;
}

static bool watch_prepare(rt_endpoint *endpoint, struct pollfd *fds, uint64_t *limit_ms_p)
{
    bool is_ready = endpoint_look(endpoint, false, false);
    if (endpoint->link == LINK_CONNECTING)
        *limit_ms_p = rt_min_u64(*limit_ms_p,
                                 endpoint->retry_ms ? endpoint->retry_ms : RT_ZMQ_RETRY_FIRST_MS);
    if (endpoint->link != LINK_GONE) {
        fds[0].fd = endpoint->socket_fd;
        fds[1].fd = endpoint->monitor_fd;
    }
    return is_ready;
}

static bool watch_look(rt_endpoint *endpoint, const struct pollfd *fds)
{
    return endpoint_look(endpoint, fds[0].revents != 0, fds[1].revents != 0);
}

const rt_watch_ops rt_watch_zmq = {watch_prepare, watch_look};

static rt_status endpoint_wait(rt_endpoint *const *endpoints, uint32_t count, int wake_fd,
                               uint32_t timeout_ms, bool *ready)
{
    return rt_watch_wait(&rt_watch_zmq, endpoints, count, wake_fd, timeout_ms, ready);
}

static bool endpoint_is_here(rt_endpoint *endpoint, uint32_t peer)
{
    const rt_zmq_peer *entry = rt_zmq_peer_find(endpoint, peer);
    return entry && entry->placed == entry->connection && entry->is_here;
}

const rt_transport_ops rt_transport_zmq = {
    .name = "zmq",
    .open = transport_open,
    .close = transport_close,
    .listen = endpoint_listen,
    .connect = endpoint_connect,
    .end = endpoint_end,
    .send = endpoint_send,
    .receive = endpoint_receive,
    .wait = endpoint_wait,
    .secure = transport_secure,
    .trust = transport_trust,
    .allow = transport_allow,
    .is_here = endpoint_is_here,
};
