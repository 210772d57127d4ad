// rt_visitor - the number of one who asks a listener without being a member of its run.
//
// A listener tells connections apart by their peers, so each visitor needs a number that no other
// one of this listener has. Nobody hands them out: a visitor begins with one at random, and where
// another has it, which the listener says at once (rt_control_is_taken), goes on with the next,
// until it has tried all. So two never share one, whoever comes when. One thread.
#ifndef RT_VISITOR_H
#define RT_VISITOR_H

#include "runtime/transport/rt_transport.h"

typedef struct {
    uint32_t rank;
    uint32_t tried; // numbers that others have, one after the other
} rt_visitor;

// RT_IO: no random numbers.
rt_status rt_visitor_init(rt_visitor *visitor, rt_error *error);

// The peer to connect as.
uint32_t rt_visitor_peer(const rt_visitor *visitor);

// Another visitor has the number: from now on it is the next one, for a connection of its own.
// False: all numbers were tried since init, or since a round before; who waits a while may begin
// another.
bool rt_visitor_next(rt_visitor *visitor);

// The number is ours: later a whole round is tried again.
void rt_visitor_settle(rt_visitor *visitor);

#endif
