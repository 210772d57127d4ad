// visitors - numbers of a listener that others have, so that whoever comes has to find another one.
#ifndef VISITORS_H
#define VISITORS_H

#include "runtime/transport/rt_transport.h"

typedef struct {
    rt_transport *transport;
    rt_endpoint *ends[RT_RANKS_MAX];
    uint32_t count;
} visitors;

// Connects to a listener without keys as visitors first to first + count - 1, each of which sends
// one message, and waits until all were answered. Fails the case where one is not.
void visitors_take(visitors *v, const char *address, uint32_t first, uint32_t count,
                   rt_message_type type, const void *payload, size_t size);
void visitors_leave(visitors *v);

#endif
