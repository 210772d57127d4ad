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
#include "runtime/transport/rt_transport.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <zmq.h>

#include "runtime/config/rt_address.h"
#include "runtime/config/rt_config.h"
#include "runtime/rt_log.h"
#include "runtime/transport/rt_watch.h"
#include "runtime/transport/rt_zap.h"
#include "runtime/transport/rt_zmq_socket.h"

#define CONNECT_WAIT_MS 1000 // that connect itself waits for the connection
#define CONNECT_RETRY_MS 200 // between attempts
#define EARLY_MESSAGES_MAX 8 // kept until the connection stands
#define EVENTS_MAX 64        // of a monitor, per look
#define DROPS_MAX 64         // strangers' messages, per receive
#define IDENTITY_BYTES 12
#define RANKS_MAX 128 // of a role, per listener
#define REFUSED_TEXT_MAX 128
#define NS_PER_MS UINT64_C(1000000)

struct rt_transport {
    void *context;
    rt_zap *zap;            // NULL: loopback only
    atomic_uint references; // the transport itself and its endpoints, in any order of their ends
    atomic_uint monitor_count;
};

typedef enum {
    LINK_NONE,       // listening: ZeroMQ keeps track of the peers
    LINK_CONNECTING, // nothing was sent or received yet
    LINK_UP,
    LINK_LOST, // ended; what it brought may not have been read yet
    LINK_GONE, // and the receiver knows
} link_state;

// What a socket holds beyond what its descriptor will tell.
typedef enum { HOLDS_NOTHING, HOLDS_UNKNOWN, HOLDS_MESSAGE } hold_state;

// The connections of one peer, by their numbers; 0: none.
typedef struct {
    uint64_t connection; // that is heard and written to
    uint64_t refused;    // the last one that is not: replaced, or started twice
} peer_entry;

struct rt_endpoint {
    rt_transport *transport;
    void *socket;              // NULL: creating one failed, to be tried again
    void *monitor;             // of a connecting endpoint
    int socket_fd, monitor_fd; // -1: there is none
    hold_state holds;
    bool monitor_may_hold;
    uint32_t self;
    uint32_t server; // connected to; 0 when listening
    link_state link;
    uint64_t retry_at_ns;     // of the next attempt; 0: one is under way
    const char *retry_reason; // that was logged last
    uint32_t early_count;
    rt_message early[EARLY_MESSAGES_MAX];
    rt_log_limit drops; // strangers' messages
    char address[RT_PATH_MAX];
    peer_entry peers[RT_ROLES][RANKS_MAX]; // of a listening endpoint
};

// A message on its way out; ZeroMQ's thread gives it back.
typedef struct {
    _Atomic(void (*)(void *hint)) release; // NULL: the caller has kept the message
    void *hint;
} sent_message;

// A message that came in and was handed out in ZeroMQ's own memory.
typedef struct {
    zmq_msg_t frame;
} received_message;

static void identity_write(uint32_t peer, uint64_t connection, uint8_t identity[IDENTITY_BYTES])
{
    for (int i = 0; i < 4; i++)
        identity[i] = (uint8_t)(peer >> (24 - 8 * i));
    memcpy(identity + 4, &connection, sizeof connection);
}

// The table entry of a peer; NULL when there can be no such peer.
static peer_entry *peer_find(rt_endpoint *endpoint, uint32_t peer)
{
    uint32_t role = (uint32_t)rt_peer_role(peer), rank = rt_peer_rank(peer);
    if (role < RT_ROLE_COORDINATOR || role > RT_ROLES || rank >= RANKS_MAX)
        return NULL;
    return &endpoint->peers[role - 1][rank];
}

// The entry of the peer that a frame names; NULL when the frame is no identity of ours.
static peer_entry *identity_read(rt_endpoint *endpoint, zmq_msg_t *frame, uint32_t *peer_p,
                                 uint64_t *connection_p)
{
    const uint8_t *bytes = zmq_msg_data(frame);
    if (zmq_msg_size(frame) != IDENTITY_BYTES)
        return NULL;
    *peer_p =
        (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
    memcpy(connection_p, bytes + 4, sizeof *connection_p);
    return *connection_p ? peer_find(endpoint, *peer_p) : NULL;
}

static void transport_drop(rt_transport *transport)
{
    if (atomic_fetch_sub(&transport->references, 1) != 1)
        return;
    while (zmq_ctx_term(transport->context) != 0 && errno == EINTR)
        ; // a signal; the wait itself ends with the longest linger
    rt_zap_destroy(transport->zap);
    free(transport);
}

static rt_status transport_open(rt_transport **transport_p, rt_error *error)
{
    rt_transport *transport = calloc(1, sizeof *transport);
    if (!transport)
        return rt_fail(error, RT_NO_MEMORY, "no memory for the transport");
    transport->context = zmq_ctx_new();
    if (!transport->context) {
        rt_fail(error, RT_IO, "cannot start ZeroMQ: %s", zmq_strerror(errno));
        free(transport);
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
    return transport->zap ? rt_zap_trust(transport->zap, server, key, error) : RT_OK;
}

static rt_status address_fail(rt_error *error, const char *what, const char *address, int reason)
{
    if (reason == EPROTONOSUPPORT || reason == ENOCOMPATPROTO)
        reason = EINVAL;
    return rt_address_fail(error, what, address, reason, zmq_strerror(reason));
}

static void socket_close(rt_endpoint *endpoint, uint32_t linger_ms)
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

static rt_endpoint *endpoint_create(rt_transport *transport, uint32_t self, const char *address)
{
    rt_endpoint *endpoint = calloc(1, sizeof *endpoint);
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
    socket_close(endpoint, is_heard ? linger_ms : 0);
    transport_drop(endpoint->transport);
    free(endpoint);
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

// One attempt to connect, with a fresh socket and a monitor on it.
static int link_start(rt_endpoint *endpoint)
{
    const int events = ZMQ_EVENT_CONNECTED | ZMQ_EVENT_HANDSHAKE_SUCCEEDED |
                       ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_CLOSED | ZMQ_EVENT_CONNECT_RETRIED |
                       ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL |
                       ZMQ_EVENT_HANDSHAKE_FAILED_AUTH;
    rt_transport *transport = endpoint->transport;
    uint8_t identity[IDENTITY_BYTES];
    uint64_t connection = 0;
    char monitor[32];
    if (getrandom(&connection, sizeof connection, 0) != sizeof connection)
        return -1;
    identity_write(endpoint->self, connection | 1, identity);
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
    socket_close(endpoint, 0);
    errno = reason;
    return -1;
}

// An attempt failed: the next one comes later.
static void link_retry_later(rt_endpoint *endpoint, const char *reason)
{
    char name[32];
    if (endpoint->retry_at_ns)
        return; // the first event of an attempt says why it failed
    endpoint->retry_at_ns = rt_now_ns() + CONNECT_RETRY_MS * NS_PER_MS;
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
        else
            link_retry_later(endpoint, event == ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL
                                           ? "does not speak our protocol, or wants keys"
                                           : "ended the connection: it stops, wants keys, or does "
                                             "not speak our protocol");
    } else if (endpoint->link == LINK_UP && event == ZMQ_EVENT_DISCONNECTED) {
        endpoint->link = LINK_LOST;
    }
    return true;
}

static void send_early(rt_endpoint *endpoint);

// Takes in what the monitor tells and starts the next attempt when it is due.
static void link_update(rt_endpoint *endpoint)
{
    int event_count = 0;
    while (endpoint->monitor && event_count < EVENTS_MAX && link_event(endpoint))
        event_count++;
    endpoint->monitor_may_hold = event_count == EVENTS_MAX;
    if (endpoint->link == LINK_UP && endpoint->early_count > 0)
        send_early(endpoint);
    if (endpoint->link != LINK_CONNECTING || endpoint->retry_at_ns == 0 ||
        rt_now_ns() < endpoint->retry_at_ns)
        return;
    socket_close(endpoint, 0);
    if (link_start(endpoint) != 0)
        link_retry_later(endpoint, zmq_strerror(errno));
}

// Until it is known whether this attempt succeeds.
static void link_await(rt_endpoint *endpoint)
{
    const uint64_t end_ns = rt_now_ns() + CONNECT_WAIT_MS * NS_PER_MS;
    for (uint64_t now_ns = rt_now_ns(); now_ns < end_ns; now_ns = rt_now_ns()) {
        zmq_pollitem_t item = {.socket = endpoint->monitor, .events = ZMQ_POLLIN};
        const bool is_signal =
            zmq_poll(&item, 1, (long)((end_ns - now_ns) / NS_PER_MS + 1)) < 0 && errno == EINTR;
        link_update(endpoint);
        if (is_signal || endpoint->link != LINK_CONNECTING || endpoint->retry_at_ns)
            return;
    }
}

static rt_status endpoint_connect(rt_transport *transport, uint32_t self, uint32_t server,
                                  const char *address, rt_endpoint **endpoint_p, rt_error *error)
{
    char what[64], name[32];
    snprintf(what, sizeof what, "cannot connect to %s at", rt_peer_name(server, name));
    if (!rt_address_is_valid(address))
        return address_fail(error, what, address, EINVAL);
    if (!rt_address_host_is_known(address))
        return rt_fail(error, RT_CONFIG, "%s %s: unknown host", what, address);
    if (rt_zap_check_address(transport->zap, address, error))
        return RT_CONFIG;
    rt_endpoint *endpoint = endpoint_create(transport, self, address);
    if (!endpoint)
        return rt_fail(error, RT_NO_MEMORY, "%s %s: no memory", what, address);
    endpoint->server = server;
    endpoint->link = LINK_CONNECTING;
    if (link_start(endpoint) != 0) {
        rt_status status = address_fail(error, what, address, errno);
        endpoint_end(endpoint, 0);
        return status;
    }
    link_await(endpoint);
    *endpoint_p = endpoint;
    return RT_OK;
}

static void give_back(void *data, void *hint)
{
    (void)data;
    sent_message *sent = hint;
    void (*release)(void *) = atomic_load_explicit(&sent->release, memory_order_acquire);
    if (release)
        release(sent->hint);
    free(sent);
}

// A frame over the message's own memory. Sending it takes the message over; closing it otherwise
// leaves it with the caller, if frame_disown is called first.
static rt_status frame_wrap(const rt_message *message, zmq_msg_t *frame, sent_message **sent_p)
{
    sent_message *sent = malloc(sizeof *sent);
    if (!sent)
        return RT_NO_MEMORY;
    sent->hint = message->hint;
    atomic_init(&sent->release, NULL);
    atomic_store_explicit(&sent->release, message->release, memory_order_release);
    if (zmq_msg_init_data(frame, message->data, message->size, give_back, sent) != 0) {
        free(sent);
        return RT_NO_MEMORY;
    }
    *sent_p = sent;
    return RT_OK;
}

static void frame_disown(zmq_msg_t *frame, sent_message *sent)
{
    atomic_store_explicit(&sent->release, NULL, memory_order_release);
    zmq_msg_close(frame);
}

// What a send that failed means for its peer.
static rt_status send_status(rt_endpoint *endpoint, int reason)
{
    if (reason == EHOSTUNREACH)
        return RT_NOT_FOUND;
    if (reason != EAGAIN && reason != EINTR)
        return RT_IO;
    if (endpoint->monitor)
        link_update(endpoint);
    return endpoint->link >= LINK_LOST ? RT_NOT_FOUND : RT_AGAIN;
}

// The first frame of a message from a ROUTER. Once it is taken the next one is too (or dropped with
// the peer); a peer without a connection fails as EHOSTUNREACH.
static bool address_send(rt_endpoint *endpoint, uint32_t peer, uint64_t connection)
{
    uint8_t identity[IDENTITY_BYTES];
    identity_write(peer, connection, identity);
    return zmq_send(endpoint->socket, identity, sizeof identity, ZMQ_SNDMORE | ZMQ_DONTWAIT) >= 0;
}

// Over a connection that stands, or to a listener's peer.
static rt_status send_now(rt_endpoint *endpoint, uint32_t peer, const peer_entry *entry,
                          rt_message *message)
{
    zmq_msg_t frame;
    sent_message *sent;
    rt_status status = frame_wrap(message, &frame, &sent);
    if (status)
        return status;
    if (endpoint->holds == HOLDS_NOTHING)
        endpoint->holds = HOLDS_UNKNOWN;
    bool is_addressed = !entry || address_send(endpoint, peer, entry->connection);
    if (!is_addressed || zmq_msg_send(&frame, endpoint->socket, ZMQ_DONTWAIT) < 0) {
        status = send_status(endpoint, errno);
        frame_disown(&frame, sent);
        return status;
    }
    *message = (rt_message){0};
    return RT_OK;
}

// What was kept until the connection stood. The queue has room for more than that; what fails here
// fails because the connection has ended again.
static void send_early(rt_endpoint *endpoint)
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
        const peer_entry *entry = peer_find(endpoint, peer);
        bool is_known = entry && entry->connection != 0;
        return is_known ? send_now(endpoint, peer, entry, message) : RT_NOT_FOUND;
    }
    if (endpoint->link == LINK_CONNECTING)
        link_update(endpoint);
    if (endpoint->link >= LINK_LOST || endpoint->server != peer)
        return RT_NOT_FOUND;
    if (endpoint->link == LINK_UP)
        return send_now(endpoint, peer, NULL, message);
    if (endpoint->early_count == EARLY_MESSAGES_MAX)
        return RT_AGAIN;
    endpoint->early[endpoint->early_count++] = *message;
    *message = (rt_message){0};
    return RT_OK;
}

static void release_received(void *hint)
{
    received_message *received = hint;
    zmq_msg_close(&received->frame);
    free(received);
}

// Makes a message of a frame, which is used up. ZeroMQ puts large messages into blocks of their
// own, aligned to 8 bytes; small ones (less than its 8 KB read buffer) lie anywhere and are copied.
static rt_status frame_unwrap(zmq_msg_t *frame, rt_message *message)
{
    size_t size = zmq_msg_size(frame);
    uint8_t *data = zmq_msg_data(frame);
    if ((uintptr_t)data % sizeof(uint64_t) != 0) {
        void *copy = malloc(size + 1); // at least one byte: NULL means no memory
        if (copy) {
            memcpy(copy, data, size);
            *message = (rt_message){copy, size, free, copy};
        }
        zmq_msg_close(frame);
        return copy ? RT_OK : RT_NO_MEMORY;
    }
    received_message *received = malloc(sizeof *received);
    if (!received) {
        zmq_msg_close(frame);
        return RT_NO_MEMORY;
    }
    zmq_msg_init(&received->frame);
    zmq_msg_move(&received->frame, frame);
    zmq_msg_close(frame);
    *message = (rt_message){zmq_msg_data(&received->frame), size, release_received, received};
    return RT_OK;
}

// The next frame; RT_AGAIN when there is none, RT_NOT_FOUND when there will never be one.
static rt_status frame_receive(rt_endpoint *endpoint, zmq_msg_t *frame)
{
    if (endpoint->link == LINK_CONNECTING)
        link_update(endpoint);
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
    return endpoint->link == LINK_CONNECTING || reason == EAGAIN || reason == EINTR ? RT_AGAIN
                                                                                    : RT_IO;
}

// Counts a message that is not for us; one warning stands for many.
static void drop_log(rt_endpoint *endpoint, bool is_known, uint32_t peer)
{
    uint64_t count;
    char name[32];
    if (rt_log_due(&endpoint->drops, &count))
        rt_warn("%s: dropped %" PRIu64 " messages, the last from %s%s", endpoint->address, count,
                is_known ? rt_peer_name(peer, name) : "a stranger",
                is_known ? ", which was started twice, or restarted" : "");
}

// Tells a second process of the same peer to end.
static void second_stop(rt_endpoint *endpoint, uint32_t peer, uint64_t connection)
{
    char text[REFUSED_TEXT_MAX], name[32];
    rt_message message;
    size_t size = (size_t)snprintf(text, sizeof text, "another %s is connected already",
                                   rt_peer_name(peer, name));
    if (rt_message_create(&message, RT_MESSAGE_STOP, endpoint->self, 0, 0, size) != RT_OK)
        return;
    memcpy(rt_message_payload(&message), text, size);
    if (address_send(endpoint, peer, connection))
        (void)zmq_send(endpoint->socket, message.data, message.size, ZMQ_DONTWAIT);
    rt_message_release(&message);
}

// Whether a connection is the one by which its peer is heard; a new one becomes it when the old
// has ended. That is asked by an empty frame, which the other side ignores.
static bool connection_admit(rt_endpoint *endpoint, peer_entry *entry, uint32_t peer,
                             uint64_t connection)
{
    if (RT_LIKELY(entry->connection == connection))
        return true;
    if (entry->refused == connection)
        return false;
    if (entry->connection != 0) {
        if (address_send(endpoint, peer, entry->connection))
            (void)zmq_send(endpoint->socket, NULL, 0, ZMQ_DONTWAIT);
        else if (errno == EHOSTUNREACH) {
            entry->refused = entry->connection;
            entry->connection = 0;
        }
    }
    if (entry->connection == 0) {
        entry->connection = connection;
        return true;
    }
    entry->refused = connection;
    second_stop(endpoint, peer, connection);
    return false;
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
        peer_entry *entry = identity_read(endpoint, frame, &peer, &connection);
        bool is_admitted =
            entry && zmq_msg_more(frame) && connection_admit(endpoint, entry, peer, connection);
        if (is_admitted) {
            zmq_msg_close(frame);
            *peer_p = peer;
            return frame_receive(endpoint, frame);
        }
        frames_skip(endpoint, frame);
        drop_log(endpoint, entry != NULL, peer);
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
    rt_status status = endpoint->link == LINK_NONE
                           ? frame_receive_listening(endpoint, &frame, &peer)
                           : frame_receive_connected(endpoint, &frame);
    rt_peer_name(peer, name);
    if (status == RT_OK || status == RT_NOT_FOUND)
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
    status = frame_unwrap(&frame, &received);
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
        link_update(endpoint);
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
        *limit_ms_p = rt_min_u64(*limit_ms_p, CONNECT_RETRY_MS);
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
};
