// rt_zmq_socket - ZeroMQ sockets as this system uses them: options, and TCP between two processes
// of one machine.
//
// Congestion control that paces, as BBR does, sets a timer for every few packets. Over loopback
// nothing is gained by that, and it takes a sixth of the time of a transfer; connections over
// loopback use Reno, which every Linux has and every user may choose.
#ifndef RT_ZMQ_SOCKET_H
#define RT_ZMQ_SOCKET_H

#include "runtime/rt_base.h"

// A ROUTER or DEALER for the address. NULL with errno when ZeroMQ cannot give one.
void *rt_zmq_socket_create(void *context, int type, const char *address);

// Binds, also by the name of a box; connections to a loopback address will be tuned. Uses the
// socket's monitor, and leaves none. -1 with errno when it cannot be bound.
int rt_zmq_socket_bind(void *context, void *socket, const char *address);

// The descriptor to poll.
int rt_zmq_socket_fd(void *socket);

// A PAIR that tells of the socket's events, under this name (inproc://...). NULL with errno.
void *rt_zmq_socket_monitor(void *context, void *socket, const char *name, int events);

// Takes one event of a monitor; false when there is none. value_p: of most events a descriptor.
bool rt_zmq_socket_event(void *monitor, int *event_p, int32_t *value_p);

// Tunes a connected TCP socket if its peer is on loopback; does nothing with any other descriptor,
// so that one which ZeroMQ closed meanwhile does no harm. True when it did.
bool rt_zmq_socket_tune(int fd);

#endif
