#include "runtime/live/rt_intake.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/config/rt_address.h"
#include "runtime/rt_log.h"

rt_status rt_intake_check_open(const rt_config *config, const char *key, const char *address,
                               rt_error *error)
{
    if (rt_address_is_loopback(address))
        return RT_OK;
    if (!config->security_insecure)
        return rt_fail(error, RT_CONFIG,
                       "%s: %s can be reached from other machines, in the clear and by anybody: "
                       "that needs security.insecure: true (stream.source \"http\" and \"feed\" "
                       "have keys)",
                       key, address);
    rt_warn("security.insecure: whoever reaches %s can send events to train on", address);
    return RT_OK;
}

int rt_intake_listen(const char *name, const char *key, const char *address, rt_error *error)
{
    char text[RT_NAME_MAX + 16];
    struct sockaddr_storage place = {0};
    socklen_t length = sizeof place;
    const int on = 1;
    snprintf(text, sizeof text, "tcp://%s", address);
    if (!rt_address_resolve(text, &place, &length)) {
        rt_fail(error, RT_CONFIG,
                "%s: \"%s\" is no address of this machine, expected \"HOST:PORT\"", key, address);
        return -1;
    }
    const int listener = socket(place.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (listener >= 0)
        (void)setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (listener < 0 || bind(listener, (struct sockaddr *)&place, length) != 0 ||
        listen(listener, SOMAXCONN) != 0) {
        const int reason = errno;
        if (listener >= 0)
            close(listener);
        rt_address_fail(error, "cannot listen on", address, reason, strerror(reason));
        rt_fail_in(error, "%s", key);
        return -1;
    }
    length = sizeof place;
    if (getsockname(listener, (struct sockaddr *)&place, &length) == 0 &&
        rt_address_write(&place, text, sizeof text))
        rt_info("%s: listening on %s", name, text);
    return listener;
}
