// rt_guests - who is heard at the listener of a member: workers of its run that have said HELLO.
//
// A shard's listener and, with dispatch.hand_over, a worker's. Whoever else connects is told why
// not, once, and logged, one line for many; nothing ends because of it. One thread. A plain value.
#ifndef RT_GUESTS_H
#define RT_GUESTS_H

#include "runtime/config/rt_config.h"
#include "runtime/rt_log.h"
#include "runtime/rt_notify.h"
#include "runtime/transport/rt_transport.h"
#include "runtime/wire/rt_control.h"

typedef struct {
    const rt_transport_ops *ops;
    rt_endpoint *endpoint; // listens
    uint32_t self;         // as the endpoint was opened
    rt_identity identity;
    uint32_t worker_count; // of the run, by their places
    uint64_t greeted;      // mask of those that said HELLO
    rt_log_limit strangers;
} rt_guests;

// Where a member listens, and who says so.
typedef struct {
    const rt_config *config;
    const char *who;         // "shard 1"
    const char *given;       // "HOST:PORT" of the configuration; "": none
    const char *key;         // that would have given it
    uint32_t port;           // 0: that of given, else any free one
    const char *coordinator; // address
    rt_notify *notify;       // or NULL
} rt_door;

// Opens the endpoint; ops and self are set. reachable (RT_NAME_MAX bytes): the address under which
// others find it. Where the network comes up late there is no way to the coordinator yet, or no
// name of it: for timeouts.start_s that is waited for. RT_CONFIG, RT_IO: error names address or
// key; the endpoint may be open.
rt_status rt_guests_listen(rt_guests *guests, rt_transport *transport, const rt_door *door,
                           char *reachable, rt_error *error);

// A HELLO. RT_CONFIG, RT_WIRE: it does not fit; the sender has been told.
rt_status rt_guests_take_hello(rt_guests *guests, uint32_t peer, const rt_message *message,
                               rt_error *error);

bool rt_guests_know(const rt_guests *guests, uint32_t peer);

// What a stranger sent, or did wrong.
void rt_guests_log_stranger(rt_guests *guests, const char *what);

#endif
