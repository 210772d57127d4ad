#include "runtime/rt_notify.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define NS_PER_US 1000u

// 0: not a number.
static uint64_t number(const char *text)
{
    char *end;
    errno = 0;
    if (!text || *text < '0' || *text > '9')
        return 0;
    const uint64_t value = strtoull(text, &end, 10);
    if (*end != '\0' || errno != 0)
        return 0;
    return value;
}

// A connected socket; -1: there is no such one.
static int reach(const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (!name)
        return -1;
    const size_t length = strlen(name);
    if (length < 2 || length >= sizeof address.sun_path || (*name != '/' && *name != '@'))
        return -1;
    memcpy(address.sun_path, name, length);
    if (*name == '@')
        address.sun_path[0] = '\0';
    const int one = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
    if (one >= 0 && connect(one, (const struct sockaddr *)&address, size) == 0)
        return one;
    if (one >= 0)
        close(one);
    return -1;
}

void rt_notify_open(const char *socket_name, const char *watchdog_us, const char *watchdog_pid,
                    rt_notify *notify)
{
    const bool is_ours = !watchdog_pid || number(watchdog_pid) == (uint64_t)getpid();
    const uint64_t limit_us = number(watchdog_us);
    *notify = (rt_notify){.socket = reach(socket_name)};
    if (is_ours && limit_us < UINT64_MAX / NS_PER_US)
        notify->every_ns = limit_us * NS_PER_US / 2;
}

void rt_notify_close(rt_notify *notify)
{
    if (notify->socket >= 0)
        close(notify->socket);
    notify->socket = -1;
}

static void tell(const rt_notify *notify, const char *text)
{
    ssize_t sent;
    do
        sent = send(notify->socket, text, strlen(text), MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
}

void rt_notify_ready(rt_notify *notify)
{
    if (notify && notify->socket >= 0)
        tell(notify, "READY=1");
}

void rt_notify_alive(rt_notify *notify)
{
    if (!notify || notify->socket < 0 || notify->every_ns == 0)
        return;
    const uint64_t now_ns = rt_now_ns();
    if (notify->sent_ns && now_ns - notify->sent_ns < notify->every_ns)
        return;
    notify->sent_ns = now_ns;
    tell(notify, "WATCHDOG=1");
}
