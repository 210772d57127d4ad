#include "runtime/transport/rt_watch.h"

#include <errno.h>

#define NS_PER_MS UINT64_C(1000000)

static bool prepare_all(const rt_watch_ops *ops, rt_endpoint *const *endpoints, uint32_t count,
                        struct pollfd *fds, uint64_t *limit_ms_p)
{
    bool any = false;
    for (uint32_t i = 0; i < count * RT_WATCH_FDS; i++)
        fds[i] = (struct pollfd){-1, POLLIN, 0};
    for (uint32_t i = 0; i < count; i++)
        any |= ops->prepare(endpoints[i], &fds[i * RT_WATCH_FDS], limit_ms_p);
    return any;
}

rt_status rt_watch_wait(const rt_watch_ops *ops, rt_endpoint *const *endpoints, uint32_t count,
                        int wake_fd, uint32_t timeout_ms, bool *ready)
{
    struct pollfd fds[RT_WATCH_FDS * RT_ENDPOINTS_MAX + 1];
    rt_assert(count <= RT_ENDPOINTS_MAX);
    for (uint32_t i = 0; i < count; i++)
        ready[i] = false;
    uint64_t now_ns = rt_now_ns(), end_ns = now_ns + timeout_ms * NS_PER_MS;
    struct pollfd *wake = &fds[count * RT_WATCH_FDS];
    for (;;) { // until end_ns
        uint64_t limit_ms = (end_ns - now_ns + NS_PER_MS - 1) / NS_PER_MS;
        bool any = prepare_all(ops, endpoints, count, fds, &limit_ms);
        *wake = (struct pollfd){wake_fd, POLLIN, 0};
        limit_ms = any ? 0 : rt_min_u64(limit_ms, INT32_MAX);
        if (poll(fds, count * RT_WATCH_FDS + 1, (int)limit_ms) < 0)
            return errno == EINTR ? RT_OK : RT_IO; // a signal: the caller looks at its flags
        any = false;
        for (uint32_t i = 0; i < count; i++) {
            ready[i] = ops->look(endpoints[i], &fds[i * RT_WATCH_FDS]);
            any |= ready[i];
        }
        now_ns = rt_now_ns();
        if (any || wake->revents != 0 || now_ns >= end_ns)
            return RT_OK;
    }
}
