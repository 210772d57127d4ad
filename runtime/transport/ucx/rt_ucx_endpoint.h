// rt_ucx_endpoint - an endpoint over UCX and how its connections come about; for rt_ucx_transport.c only.
//
// One thread at a time. Everything moves in rt_ucx_progress (what came by UCX) and rt_ucx_turn (the
// sockets too: who comes, who has gone, the next attempt to connect).
#ifndef RT_UCX_ENDPOINT_H
#define RT_UCX_ENDPOINT_H

#include <pthread.h>
#include <sys/socket.h>
#include <ucp/api/ucp.h>

#include "runtime/config/rt_config.h"
#include "runtime/rt_base.h"
#include "runtime/transport/rt_transport.h"
#include "runtime/wire/rt_wire.h"

// ---- rt_ucx_door.c ----------------------------------------------------------------------------

// How two UCX endpoints find each other: a TCP socket per connection.
//
// Both say who they are and under which address UCX reaches them, once; then the socket is only
// watched: when it closes, the other side has ended. (UCX could do this by itself, but aborts the
// process on bytes that are not its own.) Sockets never block. No state, any thread.

#define RT_UCX_ADDRESS_MAX 8192u      // of a worker with many network interfaces: 1 or 2 KB
#define RT_UCX_DOOR_MAGIC 0x3144524cu // "LRD1"

typedef struct {
    uint32_t magic;
    uint32_t peer;         // who speaks
    uint64_t connection;   // its number, and
    uint16_t slot;         // its slot, by the listener; 0 from the other side
    uint16_t reserved;     // zero
    uint32_t address_size; // of UCX's address, which follows
} rt_ucx_intro;
_Static_assert(sizeof(rt_ucx_intro) == 24, "wire layout");

// What was heard so far.
typedef struct {
    int fd; // -1: none
    uint64_t end_ns;
    size_t used;
    uint8_t bytes[sizeof(rt_ucx_intro) + RT_UCX_ADDRESS_MAX];
} rt_ucx_greeting;

// A socket, or -1 with errno. bound: what it is bound to.
int rt_ucx_door_listen(const struct sockaddr_storage *at, socklen_t length,
                       struct sockaddr_storage *bound);
int rt_ucx_door_connect(const struct sockaddr_storage *to, socklen_t length); // writable once done
int rt_ucx_door_accept(int listener);

// Whether all of it went out: it is the first thing that does, so the socket has room.
bool rt_ucx_door_say(int fd, const rt_ucx_intro *intro, const void *address);

// RT_OK: the greeting is complete. RT_AGAIN: not yet. RT_WIRE: it is none, or the socket closed.
rt_status rt_ucx_door_hear(rt_ucx_greeting *greeting);

static inline rt_ucx_intro rt_ucx_door_intro(const rt_ucx_greeting *greeting)
{
    rt_ucx_intro intro;
    __builtin_memcpy(&intro, greeting->bytes, sizeof intro);
    return intro;
}

// After the greetings: nothing may come but the end.
bool rt_ucx_door_is_shut(int fd);

// ---- rt_ucx_link.c ----------------------------------------------------------------------------

// One connection over UCX, and the frames on it.
//
// A frame is one active message: a rt_ucx_head and, for a MESSAGE, the bytes of an rt_message.
// Messages are numbered per connection and direction. At most RT_UCX_WINDOW of them are on their
// way or unread: the receiver tells how many were taken, which bounds memory on both sides. The
// numbers also restore the order: large messages are fetched by the receiver, small ones may
// overtake them.
//
// An end is said before it is made (BYE, with the number of messages sent in all) and agreed to
// (GONE) once all of them have arrived: nothing is lost to a connection that closes.
// For rt_ucx_transport.c only; one thread at a time per port.

#define RT_UCX_WINDOW 256u // messages
#define RT_UCX_AM 0u       // the active message that all frames are

typedef enum {
    RT_UCX_HELLO = 1, // sequence 1: from who connects; 2: the answer; 3: the answer to that
    RT_UCX_MESSAGE,
    RT_UCX_TAKEN, // sequence: messages taken so far
    RT_UCX_BYE,   // sequence: messages sent in all
    RT_UCX_GONE,
} rt_ucx_kind;

#define RT_UCX_MAGIC 0x3155524cu // "LRU1"

typedef struct {
    uint32_t magic;
    uint16_t kind;
    uint16_t slot;       // of the connection, at the listener
    uint32_t peer;       // who sends
    uint32_t reserved;   // zero
    uint64_t connection; // its number, by the listener: the next user of a slot has another
    uint64_t sequence;
} rt_ucx_head;
_Static_assert(sizeof(rt_ucx_head) == 32, "wire layout");

// A frame with UCX, which reads head and message until the request is done.
typedef struct rt_ucx_request rt_ucx_request;

// What the connections of an endpoint share.
typedef struct {
    ucp_worker_h worker;
    uint32_t self;
    rt_ucx_request *unused; // a list
    rt_ucx_request *in_use; // another
    bool is_changed;        // a connection failed, or closed, since this was cleared
} rt_ucx_port;

typedef struct rt_ucx_link rt_ucx_link;

typedef enum { RT_UCX_NOTHING, RT_UCX_COMING, RT_UCX_HERE, RT_UCX_BROKEN } rt_ucx_arrival_state;

typedef struct {
    rt_ucx_link *link;
    rt_ucx_arrival_state state;
    rt_message message;
} rt_ucx_arrival;

struct rt_ucx_link {
    rt_ucx_port *port;
    ucp_ep_h ep; // NULL: not open
    int fd;      // rt_ucx_door, the link's to close; -1: none
    uint16_t slot;
    uint64_t number;
    uint32_t peer;   // 0: it has not said anything yet
    bool has_failed; // it ended, or was found to break the rules
    bool is_lost;    // UCX says so
    bool is_wired;   // frames went both ways: messages may be sent
    bool is_refused; // what comes is dropped
    bool said_bye, got_bye, said_gone, got_gone;
    uint64_t sent, sent_taken;            // messages; of these, taken by the other side
    uint64_t arrived, taken, taken_told;  // the other way
    uint64_t arrived_end;                 // in all, after got_bye
    uint32_t requests;                    // that UCX has not given back
    rt_ucx_arrival window[RT_UCX_WINDOW]; // by sequence
};

void rt_ucx_port_fini(rt_ucx_port *port); // after its worker, before its links

// NULL: no memory. fd is the link's from then on.
rt_ucx_link *rt_ucx_link_create(rt_ucx_port *port, int fd, uint16_t slot, uint64_t number);
// After the worker's destruction, or when nothing of it is with UCX (no ep, no requests).
void rt_ucx_link_destroy(rt_ucx_link *link);

ucs_status_t rt_ucx_link_open(rt_ucx_link *link, const ucp_address_t *address);
// What is not sent yet is dropped. UCX 1.13 aborts the process when it is told to close while it
// sets a connection up; one that is not wired is left to the worker's destruction.
void rt_ucx_link_close(rt_ucx_link *link);

void rt_ucx_link_fail(rt_ucx_link *link); // the other side ended, or breaks the rules

// RT_OK: the message is taken. RT_AGAIN: the window is full. RT_NOT_FOUND: the connection ended.
rt_status rt_ucx_link_send(rt_ucx_link *link, rt_message *message);
void rt_ucx_link_say(rt_ucx_link *link, rt_ucx_kind kind, uint64_t sequence);
// To be called in the end; got_gone, or has_failed, tells that the other side has everything.
void rt_ucx_link_say_bye(rt_ucx_link *link);

// A frame of this connection, in UCX's handler of active messages; what the handler returns.
ucs_status_t rt_ucx_link_take_frame(rt_ucx_link *link, const rt_ucx_head *head, void *data,
                                    size_t length, const ucp_am_recv_param_t *param);

static inline bool rt_ucx_link_has_message(const rt_ucx_link *link)
{
    return link->window[link->taken % RT_UCX_WINDOW].state == RT_UCX_HERE;
}
rt_message rt_ucx_link_take(rt_ucx_link *link); // has_message holds

// Nothing is waiting and nothing will come.
static inline bool rt_ucx_link_is_over(const rt_ucx_link *link)
{
    return (link->has_failed && !rt_ucx_link_has_message(link)) ||
           (link->got_bye && link->taken == link->arrived_end);
}

// -----------------------------------------------------------------------------------------------

#define RT_UCX_NS_PER_MS UINT64_C(1000000)
#define RT_UCX_CONNECT_RETRY_MS 200u // between attempts
#define RT_UCX_EARLY_MESSAGES_MAX 8u // kept until the connection stands
#define RT_UCX_LINKS_MAX 160u        // of a listener
#define RT_UCX_GREETINGS_MAX 16u     // heard at a time; then the oldest gives way

// What a descriptor in an endpoint's epoll set is; its index is in the low half of the tag.
typedef enum {
    RT_UCX_TAG_UCX,
    RT_UCX_TAG_LISTENER,
    RT_UCX_TAG_GREETING,
    RT_UCX_TAG_LINK
} rt_ucx_tag;

typedef enum {
    RT_UCX_STATE_LISTENING,
    RT_UCX_STATE_CONNECTING,
    RT_UCX_STATE_UP,
    RT_UCX_STATE_GONE
} rt_ucx_state;

struct rt_endpoint {
    rt_transport *transport;
    ucp_context_h context;
    rt_ucx_port port;
    int ucx_fd;
    int fd;       // of an epoll set with ucx_fd and all sockets
    int listener; // -1: it connects
    rt_ucx_state state;
    uint32_t server; // connected to
    struct sockaddr_storage to;
    socklen_t to_length;
    uint64_t retry_at_ns; // 0: an attempt is under way
    bool has_greeted;
    bool retry_logged;
    uint32_t early_count, send_count;
    rt_message early[RT_UCX_EARLY_MESSAGES_MAX];
    rt_ucx_link *links[RT_UCX_LINKS_MAX]; // by slot; the first one of an endpoint that connects
    uint32_t link_count;                  // slots in use, about: none above
    uint32_t next;                        // slot that is read next
    uint64_t connection_count;
    rt_ucx_greeting greetings[RT_UCX_GREETINGS_MAX]; // the first one of an endpoint that connects
    uint32_t next_greeting;
    rt_ucx_link *peers[RT_ROLES][RT_RANKS_MAX]; // of a listener
    char address[RT_PATH_MAX];
    uint32_t linger_ms;
    pthread_t thread;
    rt_endpoint *next_lingering;
};

// The table entry of a peer of a listener; NULL when there can be no such peer.
rt_ucx_link **rt_ucx_find_peer(rt_endpoint *endpoint, uint32_t peer);

// Adds a socket to the endpoint's epoll set, or changes what it is watched for.
bool rt_ucx_watch(rt_endpoint *endpoint, int fd, rt_ucx_tag kind, uint32_t index, uint32_t events);
void rt_ucx_end_greeting(rt_ucx_greeting *greeting);
void rt_ucx_start_connecting(rt_endpoint *endpoint);

void rt_ucx_progress(rt_endpoint *endpoint);
void rt_ucx_turn(rt_endpoint *endpoint);

// UCX's handler of active messages.
ucs_status_t rt_ucx_take_frame(void *context, const void *header, size_t header_length, void *data,
                               size_t length, const ucp_am_recv_param_t *param);

#endif
