// What `lanyard doctor` finds of addresses, and of the coordinator behind one.
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/cli_doctor.h"
#include "runtime/config/rt_address.h"
#include "runtime/transport/rt_member.h"
#include "runtime/transport/rt_visitor.h"

#define KNOCK_MS 2000
#define VISIT_S 3.0
#define say cli_doctor_say

// 0: a process of this box can listen there. Otherwise why not.
static int try_listen(const struct addrinfo *at)
{
    const int yes = 1;
    int reason = 0, one = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (one < 0)
        return errno;
    (void)setsockopt(one, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes); // as ZeroMQ does
    if (bind(one, at->ai_addr, at->ai_addrlen) != 0 || listen(one, 1) != 0)
        reason = errno;
    close(one);
    return reason;
}

// 0: somebody accepts connections there.
static int knock(const struct addrinfo *at)
{
    int reason = 0, one = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    socklen_t size = sizeof reason;
    if (one < 0)
        return errno;
    if (connect(one, at->ai_addr, at->ai_addrlen) != 0) {
        struct pollfd item = {one, POLLOUT, 0};
        if (errno != EINPROGRESS)
            reason = errno;
        else if (poll(&item, 1, KNOCK_MS) <= 0)
            reason = ETIMEDOUT;
        else if (getsockopt(one, SOL_SOCKET, SO_ERROR, &reason, &size) != 0)
            reason = errno;
    }
    close(one);
    return reason;
}

typedef struct {
    bool is_here; // the address is one of this box
    bool answers; // somebody accepts connections there
} place;

// An address that the configuration gives to a process.
static place check_place(doctor *d, const char *who, const char *address)
{
    char host[RT_PATH_MAX], service[16];
    uint32_t port;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    if (!rt_address_split(address, host, sizeof host, &port))
        return (place){0}; // the check of the configuration says so
    snprintf(service, sizeof service, "%" PRIu32, port);
    int reason = getaddrinfo(host, service, &hints, &found);
    if (reason) {
        say(d, BROKEN, "names", "%s at %s: %s: the name must be in DNS or in /etc/hosts", who,
            address, gai_strerror(reason));
        return (place){0};
    }
    int here = try_listen(found);
    if (here == 0)
        say(d, FINE, "ports", "%s can listen at %s, an address of this box", who, address);
    else if (here == EADDRINUSE)
        say(d, LOOK, "ports",
            "%s: %s is an address of this box, and the port is taken: by the run "
            "itself, or choose another (`ss -ltnp` shows by whom)",
            who, address);
    else if (here == EACCES)
        say(d, BROKEN, "ports", "%s: this user may not listen at %s: take a port above 1023", who,
            address);
    if (here == 0 || here == EADDRINUSE || here == EACCES) {
        freeaddrinfo(found);
        return (place){.is_here = true, .answers = here == EADDRINUSE};
    }
    int there = knock(found);
    freeaddrinfo(found);
    if (there == 0)
        say(d, FINE, "ports", "%s takes connections: %s, on another box", address, who);
    else if (there == ECONNREFUSED)
        say(d, LOOK, "ports", "%s: the box of %s is there, but nobody listens: not started yet?",
            who, address);
    else
        say(d, BROKEN, "ports",
            "%s: no way to %s: %s: is the address right, the box on, the port "
            "open in its firewall?",
            who, address, strerror(there));
    return (place){.answers = there == 0};
}

// Says HELLO to the coordinator, with this box's keys, as one that asks and does not join.
static rt_status visit(const doctor *d, const rt_keys *keys, rt_error *error)
{
    const rt_config *config = &d->config;
    rt_member member;
    rt_visitor self;
    char address[RT_PATH_MAX];
    rt_member_config own = {.coordinator = address,
                            .address = "",
                            .keys = keys,
                            .identity = d->identity,
                            .timeout_start_s = VISIT_S,
                            .timeout_peer_s = config->timeout_peer_s};
    snprintf(address, sizeof address, "tcp://%s", config->network_coordinator);
    rt_status status = rt_visitor_init(&self, error);
    if (!status)
        status = cli_transport(config, RT_ROLE_VISITOR, 0, &own.ops, error);
    if (!status)
        status = rt_transport_open(own.ops, keys, &own.transport, error);
    if (status)
        return status;
    do {
        own.self = rt_visitor_peer(&self);
        status = rt_member_join(&member, &own, error);
    } while (status && rt_control_says_taken(error->text) && rt_visitor_next(&self));
    if (!status)
        rt_member_leave(&member, NULL);
    own.ops->close(own.transport);
    return status;
}

// A port that is open tells nothing of keys, configurations and builds.
static void check_coordinator(doctor *d)
{
    const char *at = d->config.network_coordinator;
    rt_keys *keys = rt_alloc(1, sizeof *keys);
    rt_error error = {0};
    if (keys && rt_keys_load(&d->config, keys, &error) == RT_OK) { // else check_keys says why not
        const rt_status status = visit(d, keys, &error);
        const char *build = error.text + strlen(RT_VISITOR_FITS);
        const char *knows = keys->is_set ? "it knows the key, " : "";
        if (status != RT_STOPPED || strncmp(error.text, RT_VISITOR_FITS, strlen(RT_VISITOR_FITS)))
            build = NULL;
        if (build && strcmp(build, rt_build()) == 0)
            say(d, FINE, "hub",
                "the coordinator at %s would let this box in: %ssame build, same configuration", at,
                knows);
        else if (build)
            say(d, LOOK, "hub",
                "the coordinator at %s would let this box in: %ssame configuration, but its build "
                "is %s, here %s: better the same everywhere",
                at, knows, build, rt_build());
        else if (status == RT_TIMEOUT)
            say(d, BROKEN, "hub", "%s", error.text);
        else
            say(d, BROKEN, "hub", "the coordinator at %s would not let this box in: %s", at,
                error.text);
        rt_keys_clear(keys);
    }
    rt_free(keys);
}

void cli_doctor_network(doctor *d)
{
    const rt_config *config = &d->config;
    char name[32], host[RT_PATH_MAX];
    rt_error error;
    if (config->network_interface[0]) {
        if (rt_address_of_interface(config->network_interface, host, sizeof host, &error))
            say(d, BROKEN, "interface", "%s", error.text);
        else
            say(d, FINE, "interface", "%s has the address %s", config->network_interface, host);
    }
    if (!config->network_coordinator[0]) {
        say(d, config->network_ps_count ? LOOK : FINE, "names",
            "network.coordinator is not given: right for `lanyard up`; on several boxes give it");
        d->has_coordinator = true;
        d->shards_here = config->ps_shard_count;
        return;
    }
    const place coordinator = check_place(d, "coordinator", config->network_coordinator);
    d->has_coordinator = coordinator.is_here;
    for (uint32_t i = 0; i < config->network_ps_count; i++)
        d->shards_here +=
            check_place(d, rt_peer_name(rt_peer(RT_ROLE_PS, i), name), config->network_ps[i])
                .is_here;
    if (coordinator.answers)
        check_coordinator(d);
}
