// rt_zmq_parts - what the files of the ZeroMQ transport share: its endpoint, its link
// (rt_zmq_link.c), its peers (rt_zmq_peer.c), messages as frames (rt_zmq_frame.c). rt_zmq.c says
// how it works.
#ifndef RT_ZMQ_PARTS_H
#define RT_ZMQ_PARTS_H

#include <stdatomic.h>
#include <zmq.h>

#include "runtime/config/rt_config.h"
#include "runtime/rt_log.h"
#include "runtime/transport/rt_keys.h"
#include "runtime/transport/rt_transport.h"
#include "runtime/wire/rt_wire.h"

// ---- rt_zap.c ---------------------------------------------------------------------------------

// Who may talk to a process over ZeroMQ: loopback addresses only, or CURVE keys and a list.
//
// With keys every TCP socket is a CURVE socket (ZeroMQ RFCs 26 and 27), and a thread answers the
// ZAP requests of its context: a key on the list gets in, everybody else is refused and logged, one
// line for many. The same thread watches listeners for connections that do not get as far as a
// key. ipc addresses stay as they are: the file system guards them.

typedef struct rt_zap rt_zap;

// Starts the thread if there are keys (which are copied). RT_NO_MEMORY, RT_IO, RT_UNSUPPORTED.
rt_status rt_zap_create(void *context, const rt_keys *keys, rt_zap **zap_p, rt_error *error);

// After zmq_ctx_term, which ends the thread. NULL is allowed.
void rt_zap_destroy(rt_zap *zap);

// A box more whose key gets in, beside those of the list, from now on; called by one thread. Where
// it is on the list already nothing changes. RT_CONFIG: the list has another key of that name;
// RT_LIMIT.
rt_status rt_zap_allow(rt_zap *zap, const rt_public_key *key, rt_error *error);

// The key that a server must prove to have. RT_CONFIG: it is not on the list.
rt_status rt_zap_trust(rt_zap *zap, uint32_t server, const uint8_t key[RT_KEY_BYTES],
                       rt_error *error);

// RT_CONFIG: the address needs keys, or that they be given up; zap NULL: loopback only.
rt_status rt_zap_check_address(const rt_zap *zap, const char *address, rt_error *error);

// Before bind and connect. Both do nothing where there are no keys, or for ipc addresses.
// false, errno set: ZeroMQ refused; EACCES: the server's key is not known.
bool rt_zap_guard_listener(rt_zap *zap, void *socket, const char *address);
bool rt_zap_guard_client(rt_zap *zap, void *socket, const char *address, uint32_t server);

// Logs connections to a listener that do not get as far as a key; after bind.
void rt_zap_watch(rt_zap *zap, void *socket, const char *address);

// Whether connections of this transport to such an address prove keys.
bool rt_zap_has_keys(const rt_zap *zap, const char *address);

// -----------------------------------------------------------------------------------------------

#define RT_ZMQ_RETRY_FIRST_MS 25 // between two attempts to connect; then twice as long, up to
#define RT_ZMQ_RETRY_MS 200
#define RT_ZMQ_EARLY_MESSAGES_MAX 8 // kept until the connection stands
#define RT_ZMQ_IDENTITY_BYTES 12
#define RT_ZMQ_NS_PER_MS UINT64_C(1000000)

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
    uint64_t placed;     // the one of which is_here tells
    bool is_here;        // it comes from this machine
} rt_zmq_peer;

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
    uint32_t retry_ms;        // between the last two
    const char *retry_reason; // that was logged last
    uint32_t early_count;
    rt_message early[RT_ZMQ_EARLY_MESSAGES_MAX];
    rt_log_limit drops; // strangers' messages
    char address[RT_PATH_MAX];
    rt_zmq_peer peers[RT_ROLES][RT_RANKS_MAX]; // of a listening endpoint
};

// ---- rt_zmq_link.c: of a connecting endpoint -------------------------------------------------

// One attempt to connect, with a fresh socket and a monitor on it. -1: errno says why.
int rt_zmq_link_start(rt_endpoint *endpoint);

// Takes in what the monitor tells and starts the next attempt when it is due.
void rt_zmq_link_update(rt_endpoint *endpoint);

// Until it is known whether this attempt succeeds.
void rt_zmq_link_await(rt_endpoint *endpoint);

// Of any endpoint: its socket and monitor.
void rt_zmq_link_close(rt_endpoint *endpoint, uint32_t linger_ms);

// ---- rt_zmq_peer.c: of a listening endpoint --------------------------------------------------

void rt_zmq_identity_write(uint32_t peer, uint64_t connection,
                           uint8_t identity[RT_ZMQ_IDENTITY_BYTES]);

// The entry of the peer that a frame names; NULL when the frame is no identity of ours.
rt_zmq_peer *rt_zmq_identity_read(rt_endpoint *endpoint, zmq_msg_t *frame, uint32_t *peer_p,
                                  uint64_t *connection_p);

// NULL when there can be no such peer.
rt_zmq_peer *rt_zmq_peer_find(rt_endpoint *endpoint, uint32_t peer);

// The first frame of a message from a ROUTER. Once it is taken the next one is too (or dropped with
// the peer); a peer without a connection fails as EHOSTUNREACH.
bool rt_zmq_address_send(rt_endpoint *endpoint, uint32_t peer, uint64_t connection);

// Whether a connection is the one by which its peer is heard; a new one becomes it when the old
// has ended. That is asked by an empty frame, which the other side ignores.
bool rt_zmq_connection_admit(rt_endpoint *endpoint, rt_zmq_peer *entry, uint32_t peer,
                             uint64_t connection);

// Notes where a connection that is admitted comes from, by a frame of it behind the
// identity, which need not know.
void rt_zmq_peer_place(rt_endpoint *endpoint, rt_zmq_peer *entry, zmq_msg_t *frame);

// Counts a message that is not for us; one warning stands for many.
void rt_zmq_drop_log(rt_endpoint *endpoint, bool is_known, uint32_t peer);

// ---- rt_zmq_frame.c: messages as frames ------------------------------------------------------

typedef struct rt_zmq_sent rt_zmq_sent;

// A frame over the message's own memory. Sending it takes the message over; closing it otherwise
// leaves it with the caller, if rt_zmq_frame_disown is called first. RT_NO_MEMORY.
rt_status rt_zmq_frame_wrap(const rt_message *message, zmq_msg_t *frame, rt_zmq_sent **sent_p);
void rt_zmq_frame_disown(zmq_msg_t *frame, rt_zmq_sent *sent);

// Makes a message of a frame, which is used up. ZeroMQ puts large messages into blocks of their
// own, aligned to 8 bytes; small ones (less than its 8 KB read buffer) lie anywhere and are copied.
rt_status rt_zmq_frame_unwrap(zmq_msg_t *frame, rt_message *message);

// ---- rt_zmq.c --------------------------------------------------------------------------------

// What was kept until the connection stood. The queue has room for more than that; what fails here
// fails because the connection has ended again.
void rt_zmq_send_early(rt_endpoint *endpoint);

#endif
