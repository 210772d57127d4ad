#define _GNU_SOURCE // accept4
#include "runtime/transport/ucx/rt_ucx_endpoint.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define BACKLOG 128

static int door_open(int family)
{
    return socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

static int door_fail(int fd)
{
    int reason = errno;
    close(fd);
    errno = reason;
    return -1;
}

// Ends connections to machines that vanished.
static void door_set_up(int fd)
{
    const int yes = 1, idle_s = 10, interval_s = 5, count = 4;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
}

int rt_ucx_door_listen(const struct sockaddr_storage *at, socklen_t length,
                       struct sockaddr_storage *bound)
{
    const int yes = 1;
    socklen_t size = sizeof *bound;
    int fd = door_open(at->ss_family);
    if (fd < 0)
        return -1;
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0 ||
        bind(fd, (const struct sockaddr *)at, length) != 0 || listen(fd, BACKLOG) != 0 ||
        getsockname(fd, (struct sockaddr *)bound, &size) != 0)
        return door_fail(fd);
    return fd;
}

int rt_ucx_door_connect(const struct sockaddr_storage *to, socklen_t length)
{
    int fd = door_open(to->ss_family);
    if (fd < 0)
        return -1;
    door_set_up(fd);
    if (connect(fd, (const struct sockaddr *)to, length) != 0 && errno != EINPROGRESS)
        return door_fail(fd);
    return fd;
}

int rt_ucx_door_accept(int listener)
{
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0)
        door_set_up(fd);
    return fd;
}

bool rt_ucx_door_say(int fd, const rt_ucx_intro *intro, const void *address)
{
    const struct iovec parts[] = {{(void *)(uintptr_t)intro, sizeof *intro},
                                  {(void *)(uintptr_t)address, intro->address_size}};
    const struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)parts, .msg_iovlen = 2};
    return sendmsg(fd, &message, MSG_NOSIGNAL) == (ssize_t)(sizeof *intro + intro->address_size);
}

static bool is_sound(const rt_ucx_intro *intro)
{
    return intro->magic == RT_UCX_DOOR_MAGIC && intro->reserved == 0 && intro->address_size > 0 &&
           intro->address_size <= RT_UCX_ADDRESS_MAX;
}

// Never reads further than the greeting goes.
rt_status rt_ucx_door_hear(rt_ucx_greeting *greeting)
{
    for (int part = 0; part < 2; part++) {
        size_t want = sizeof(rt_ucx_intro);
        if (greeting->used >= want) {
            const rt_ucx_intro intro = rt_ucx_door_intro(greeting);
            if (!is_sound(&intro))
                return RT_WIRE;
            want += intro.address_size;
        }
        if (greeting->used < want) {
            ssize_t got = recv(greeting->fd, greeting->bytes + greeting->used,
                               want - greeting->used, MSG_DONTWAIT);
            if (got < 0 && (errno == EAGAIN || errno == EINTR))
                return RT_AGAIN;
            if (got <= 0)
                return RT_WIRE;
            greeting->used += (size_t)got;
        }
        if (greeting->used == want && want > sizeof(rt_ucx_intro))
            return RT_OK;
    }
    return RT_AGAIN;
}

bool rt_ucx_door_is_shut(int fd)
{
    char byte;
    ssize_t got = recv(fd, &byte, 1, MSG_DONTWAIT);
    return got >= 0 || (errno != EAGAIN && errno != EINTR);
}
