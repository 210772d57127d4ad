// rt_watch - waiting for the endpoints of a transport with poll(2): what every backend's wait does.
//
// For backends only. A backend says what an endpoint's descriptors are and what they mean; the
// loop, the deadline and the wake-up are here. One thread, no state.
#ifndef RT_WATCH_H
#define RT_WATCH_H

#include <poll.h>

#include "runtime/transport/rt_transport.h"

#define RT_WATCH_FDS 3 // of an endpoint

typedef struct {
    // Before a sleep: true when receive has something to say already. fds (all -1 before) gets what
    // to sleep on; *limit_ms_p is lowered where the endpoint wants a look sooner.
    bool (*prepare)(rt_endpoint *endpoint, struct pollfd *fds, uint64_t *limit_ms_p);
    // After it, fds as poll(2) left them: true when receive has something to say.
    bool (*look)(rt_endpoint *endpoint, const struct pollfd *fds);
} rt_watch_ops;

extern const rt_watch_ops rt_watch_zmq;

// As rt_transport_ops.wait.
rt_status rt_watch_wait(const rt_watch_ops *ops, rt_endpoint *const *endpoints, uint32_t count,
                        int wake_fd, uint32_t timeout_ms, bool *ready);

#endif
