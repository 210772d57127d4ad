// rt_ucx_link - one connection over UCX, and the frames on it.
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
#ifndef RT_UCX_LINK_H
#define RT_UCX_LINK_H

#include "runtime/wire/rt_wire.h"
#include <ucp/api/ucp.h>

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

#endif
