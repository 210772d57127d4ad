#include "runtime/config/rt_await.h"

#include <errno.h>
#include <net/if.h>
#include <netdb.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/config/rt_address.h"
#include "runtime/rt_log.h"

#define LOOK_MS 100 // between two looks
#define NS_PER_S 1e9

// Whether a socket may have it; an errno of another kind is for whoever listens to report.
static bool may_bind(const struct addrinfo *one)
{
    const int fd = socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return true;
    const bool is_lacking =
        bind(fd, one->ai_addr, one->ai_addrlen) != 0 && (errno == EADDRNOTAVAIL || errno == ENODEV);
    close(fd);
    return !is_lacking;
}

static const char *find_obstacle_of(const char *host)
{
    char number[NI_MAXHOST];
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *found = NULL;
    if (!*host || strcmp(host, "*") == 0)
        return NULL;
    if (if_nametoindex(host) != 0 && rt_address_of_interface(host, number, sizeof number, NULL))
        return "that interface has no address yet";
    if (if_nametoindex(host) != 0)
        return NULL;
    if (getaddrinfo(host, NULL, &hints, &found) != 0)
        return "no name or interface is called so yet";
    const bool is_bindable = may_bind(found);
    freeaddrinfo(found);
    if (!is_bindable)
        return "no interface of this machine has that address yet";
    return NULL;
}

// What keeps a process from listening there yet; NULL: nothing that waiting mends.
static const char *find_obstacle(const char *place)
{
    char host[NI_MAXHOST];
    uint32_t port;
    const char *obstacle = NULL;
    const bool has_port = rt_address_split(place, host, sizeof host, &port);
    if (has_port)
        obstacle = find_obstacle_of(host);
    if (has_port && (!obstacle || !rt_address_is_six(place)))
        return obstacle;
    if (strstr(place, "://") || !rt_address_host(place, host, sizeof host))
        return NULL;
    return find_obstacle_of(host); // "fe80::a:1" may have a port, or none
}

bool rt_await_pause(int stop_fd, int ms)
{
    struct pollfd stop = {stop_fd, POLLIN, 0};
    return poll(&stop, 1, ms) <= 0 || !(stop.revents & POLLIN);
}

static rt_status await(const rt_await_place *wanted, uint64_t deadline_ns, double timeout_s,
                       int stop_fd, rt_notify *notify, rt_error *error)
{
    const char *said = NULL;
    if (!*wanted->place)
        return RT_OK;
    const char *obstacle = find_obstacle(wanted->place);
    while (obstacle && rt_now_ns() < deadline_ns) {
        if (obstacle != said)
            rt_info("%s: waiting for %s: %s (timeouts.start_s: %g)", wanted->key, wanted->place,
                    obstacle, timeout_s);
        said = obstacle;
        rt_notify_ready(notify);
        rt_notify_alive(notify);
        if (!rt_await_pause(stop_fd, LOOK_MS))
            return rt_fail(error, RT_STOPPED, "%s: ended while waiting for %s", wanted->key,
                           wanted->place);
        obstacle = find_obstacle(wanted->place);
    }
    if (said && !obstacle)
        rt_info("%s: %s is there", wanted->key, wanted->place);
    return RT_OK;
}

rt_status rt_await_places(const rt_await_place *places, uint32_t count, double timeout_s,
                          int stop_fd, rt_notify *notify, rt_error *error)
{
    const uint64_t deadline_ns = rt_now_ns() + (uint64_t)(timeout_s * NS_PER_S);
    for (uint32_t i = 0; i < count; i++) {
        rt_status status = await(&places[i], deadline_ns, timeout_s, stop_fd, notify, error);
        if (status)
            return status;
    }
    return RT_OK;
}

void rt_await_host(const char *who, const char *address, double timeout_s, rt_notify *notify)
{
    const uint64_t deadline_ns = rt_now_ns() + (uint64_t)(timeout_s * NS_PER_S);
    bool said = false;
    while (!rt_address_host_is_known(address) && rt_now_ns() < deadline_ns) {
        if (!said)
            rt_info("waiting for %s at %s: no host is called so yet (%g s)", who, address,
                    timeout_s);
        said = true;
        rt_notify_alive(notify);
        (void)rt_await_pause(-1, LOOK_MS);
    }
}
