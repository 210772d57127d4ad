// A transport on which nothing arrives, and which notes what is sent.
#ifndef SUPPORT_NOTES_H
#define SUPPORT_NOTES_H

#include "runtime/transport/rt_transport.h"

#define NOTES_MAX 64u

struct rt_endpoint {
    uint32_t count;
    rt_status broken; // what sending returns
    struct {
        uint32_t peer;
        rt_wire_header header;
    } sent[NOTES_MAX];
};
struct rt_transport {
    rt_endpoint endpoint;
};

extern const rt_transport_ops notes_ops;

// Whom messages of this type went to: their ranks, as bits, if all have this role and iteration.
uint32_t notes_ranks(const rt_transport *transport, rt_message_type type, rt_role role,
                     uint64_t iteration);

void notes_clear(rt_transport *transport);

#endif
