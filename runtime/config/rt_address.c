#include "runtime/config/rt_address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/config/rt_config.h"

#define SCHEME "tcp://"

static bool stands_for_all(const char *bound)
{
    static const char *const hosts[] = {"0.0.0.0:", "[::]:", "*:"};
    const char *host = bound + strlen(SCHEME);
    if (strncmp(bound, SCHEME, strlen(SCHEME)) != 0)
        return false;
    for (size_t i = 0; i < RT_COUNT_OF(hosts); i++)
        if (strncmp(host, hosts[i], strlen(hosts[i])) == 0)
            return true;
    return false;
}

bool rt_address_is_six(const char *host)
{
    struct in6_addr number;
    char text[INET6_ADDRSTRLEN];
    const size_t length = strcspn(host, "%"); // a scope follows
    if (length >= sizeof text)
        return false;
    memcpy(text, host, length);
    text[length] = '\0';
    return inet_pton(AF_INET6, text, &number) == 1;
}

const char *rt_address_form(const char *address)
{
    const char *colon = strchr(address, ':');
    if (colon && strchr(colon + 1, ':'))
        return "\"HOST:PORT\", a number of IPv6 in brackets: \"[::1]:7301\"";
    return "\"HOST:PORT\"";
}

bool rt_address_host(const char *place, char *host, size_t size)
{
    const size_t length = strlen(place);
    const bool has_brackets = length > 1 && place[0] == '[' && place[length - 1] == ']';
    if (length >= size)
        return false;
    memcpy(host, place + has_brackets, length - 2 * has_brackets);
    host[length - 2 * has_brackets] = '\0';
    return true;
}

bool rt_address_join(const char *host, uint32_t port, char *address, size_t size)
{
    const int length = snprintf(address, size, strchr(host, ':') ? "[%s]:%u" : "%s:%u", host, port);
    return length >= 0 && (size_t)length < size;
}

bool rt_address_split(const char *address, char *host, size_t size, uint32_t *port_p)
{
    const char *begin = address;
    if (strncmp(address, SCHEME, strlen(SCHEME)) == 0)
        begin += strlen(SCHEME);
    const char *end = strrchr(begin, ':');
    if (!end || end == begin)
        return false;
    const size_t digits = strspn(end + 1, "0123456789");
    if (digits == 0 || digits > 5 || end[1 + digits] != '\0' || atoi(end + 1) > UINT16_MAX)
        return false;
    *port_p = (uint32_t)atoi(end + 1);
    const bool has_brackets = *begin == '[' && end[-1] == ']';
    begin += has_brackets;
    end -= has_brackets;
    if (end <= begin || (size_t)(end - begin) >= size)
        return false;
    memcpy(host, begin, (size_t)(end - begin));
    host[end - begin] = '\0';
    // The last group of an IPv6 address is no port.
    return has_brackets || !strchr(host, ':') || rt_address_is_six(host);
}

static bool is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET) {
        struct sockaddr_in four;
        memcpy(&four, address, sizeof four);
        return ntohl(four.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
    }
    struct sockaddr_in6 six;
    if (address->sa_family != AF_INET6)
        return false;
    memcpy(&six, address, sizeof six);
    return IN6_IS_ADDR_LOOPBACK(&six.sin6_addr);
}

bool rt_address_is_loopback(const char *address)
{
    char host[NI_MAXHOST];
    uint32_t port;
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    if (strncmp(address, "ipc://", strlen("ipc://")) == 0)
        return true;
    if (!rt_address_split(address, host, sizeof host, &port) || strcmp(host, "*") == 0 ||
        getaddrinfo(host, NULL, &hints, &found) != 0)
        return false;
    bool all = true;
    for (const struct addrinfo *one = found; one; one = one->ai_next)
        all = all && is_loopback(one->ai_addr);
    freeaddrinfo(found);
    return all;
}

rt_status rt_address_check(bool has_keys, bool is_insecure, const char *address, rt_error *error)
{
    if (has_keys || is_insecure || rt_address_is_loopback(address))
        return RT_OK;
    return rt_fail(error, RT_CONFIG,
                   "%s: other machines can be reached only with keys: give security.key, "
                   "security.allow and security.server_key (`lanyard keygen`), or, where everybody "
                   "in the network may read and change all of it, security.insecure: true",
                   address);
}

static bool write_address(const char *host, uint32_t port, char *address, size_t size)
{
    const size_t scheme = strlen(SCHEME);
    if (size <= scheme)
        return false;
    memcpy(address, SCHEME, scheme);
    return rt_address_join(host, port, address + scheme, size - scheme);
}

// How good an address is for who listens at an interface; 0: none of ours.
static int worth_of(const struct ifaddrs *one)
{
    struct sockaddr_in6 six;
    if (!one->ifa_addr)
        return 0;
    if (one->ifa_addr->sa_family == AF_INET)
        return 3;
    if (one->ifa_addr->sa_family != AF_INET6)
        return 0;
    memcpy(&six, one->ifa_addr, sizeof six);
    return IN6_IS_ADDR_LINKLOCAL(&six.sin6_addr) ? 1 : 2;
}

// The names of this machine's interfaces, for the error about one that is not there.
static void list_interfaces(const struct ifaddrs *all, char *text, size_t size)
{
    size_t used = 0;
    *text = '\0';
    for (const struct ifaddrs *one = all; one && used < size; one = one->ifa_next) {
        bool is_new = worth_of(one) > 0;
        for (const struct ifaddrs *before = all; before != one && is_new; before = before->ifa_next)
            is_new = worth_of(before) == 0 || strcmp(before->ifa_name, one->ifa_name) != 0;
        if (is_new)
            used +=
                (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : "", one->ifa_name);
    }
}

static socklen_t length_of(int family)
{
    if (family == AF_INET6)
        return sizeof(struct sockaddr_in6);
    return sizeof(struct sockaddr_in);
}

rt_status rt_address_of_interface(const char *name, char *host, size_t size, rt_error *error)
{
    struct ifaddrs *all = NULL;
    const struct ifaddrs *best = NULL;
    char names[256];
    if (getifaddrs(&all) != 0)
        return rt_fail(error, RT_IO, "cannot list the interfaces: %s", strerror(errno));
    for (const struct ifaddrs *one = all; one; one = one->ifa_next) {
        if (strcmp(one->ifa_name, name) != 0 || worth_of(one) == 0)
            continue;
        if (!best || worth_of(one) > worth_of(best))
            best = one;
    }
    list_interfaces(all, names, sizeof names);
    rt_status status = RT_OK;
    if (!best)
        status = rt_fail(error, RT_IO,
                         "network.interface: this machine has no \"%s\" with an "
                         "address; it has %s",
                         name, names);
    else if (getnameinfo(best->ifa_addr, length_of(best->ifa_addr->sa_family), host,
                         (socklen_t)size, NULL, 0, NI_NUMERICHOST) != 0)
        status =
            rt_fail(error, RT_IO, "network.interface: the address of \"%s\" cannot be read", name);
    freeifaddrs(all);
    return status;
}

// Who listens at a name and who goes there look it up by themselves. All take its first IPv4
// address, and another one only where it has none: "localhost" is both on most machines, [::1]
// first.
static int look_up(const char *host, const char *port, int flags, struct addrinfo **found_p)
{
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM, .ai_flags = flags};
    if (getaddrinfo(host, port, &hints, found_p) == 0)
        return 0;
    hints.ai_family = AF_UNSPEC;
    return getaddrinfo(host, port, &hints, found_p);
}

// ZeroMQ listens on numbers only. Names may be known late: when the network is there, or a box.
static rt_status resolve(const char *host, char *number, size_t size, rt_error *error)
{
    struct addrinfo *found = NULL;
    int reason = look_up(host, NULL, AI_PASSIVE, &found);
    if (reason)
        return rt_fail(error, RT_IO, "cannot listen on %s: %s", host, gai_strerror(reason));
    reason = getnameinfo(found->ai_addr, found->ai_addrlen, number, (socklen_t)size, NULL, 0,
                         NI_NUMERICHOST);
    freeaddrinfo(found);
    if (reason)
        return rt_fail(error, RT_CONFIG, "cannot listen on %s: %s", host, gai_strerror(reason));
    return RT_OK;
}

rt_status rt_address_listen(const char *bind, const char *given, const char *interface,
                            uint32_t port, char *address, size_t size, rt_error *error)
{
    char host[NI_MAXHOST] = "", number[NI_MAXHOST];
    uint32_t given_port = 0;
    rt_status status = RT_OK;
    if (*given && !rt_address_split(given, host, sizeof host, &given_port))
        return rt_fail(error, RT_CONFIG, "%s: not an address, expected HOST:PORT", given);
    if (*bind) { // names, too, and "*", which are ZeroMQ's to judge
        if (!rt_address_host(bind, host, sizeof host))
            status = rt_fail(error, RT_LIMIT, "address %s is too long", bind);
        else if (if_nametoindex(host) != 0)
            status = rt_address_of_interface(bind, host, sizeof host, error);
    } else if (*host) {
        status = resolve(host, number, sizeof number, error);
        if (!status)
            snprintf(host, sizeof host, "%s", number);
    } else if (*interface) {
        status = rt_address_of_interface(interface, host, sizeof host, error);
    } else {
        strcpy(host, "127.0.0.1");
    }
    if (status)
        return status;
    if (port == 0)
        port = given_port;
    if (!write_address(host, port, address, size))
        return rt_fail(error, RT_LIMIT, "address %s is too long", host);
    return RT_OK;
}

// Host and port of "tcp://host:port", the host without brackets; the port is not judged.
static bool split(const char *address, char *host, size_t size, const char **port_p)
{
    const char *begin = address + strlen(SCHEME), *end = strrchr(address, ':');
    if (strncmp(address, SCHEME, strlen(SCHEME)) != 0 || end < begin)
        return false;
    *port_p = end + 1;
    if (*begin == '[' && end > begin && end[-1] == ']') {
        begin++;
        end--;
    }
    if ((size_t)(end - begin) >= size)
        return false;
    memcpy(host, begin, (size_t)(end - begin));
    host[end - begin] = '\0';
    return true;
}

// The route to a peer names the interface; connecting a datagram socket only looks it up.
static int find_local(const struct addrinfo *peer, char *host, size_t size)
{
    struct sockaddr_storage local;
    socklen_t length = sizeof local;
    int fd = socket(peer->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return errno;
    int reason = 0;
    if (connect(fd, peer->ai_addr, peer->ai_addrlen) != 0 ||
        getsockname(fd, (struct sockaddr *)&local, &length) != 0)
        reason = errno;
    else if (getnameinfo((struct sockaddr *)&local, length, host, (socklen_t)size, NULL, 0,
                         NI_NUMERICHOST) != 0)
        reason = EADDRNOTAVAIL;
    close(fd);
    return reason;
}

// Libraries would take port 99999 for 34463 and 12x for 12.
static bool port_is_valid(const char *port)
{
    size_t digits = strspn(port, "0123456789");
    return digits > 0 && digits <= 5 && port[digits] == '\0' && atoi(port) <= UINT16_MAX;
}

bool rt_address_is_valid(const char *address)
{
    if (strlen(address) >= RT_PATH_MAX)
        return false;
    return strncmp(address, "ipc://", 6) == 0 || (strncmp(address, SCHEME, strlen(SCHEME)) == 0 &&
                                                  port_is_valid(strrchr(address, ':') + 1));
}

bool rt_address_host_is_known(const char *address)
{
    char host[NI_MAXHOST];
    const char *port;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    if (!split(address, host, sizeof host, &port) || *host == '\0')
        return true;
    if (getaddrinfo(host, NULL, &hints, &found) != 0)
        return false;
    freeaddrinfo(found);
    return true;
}

rt_status rt_address_fail(rt_error *error, const char *what, const char *address, int reason,
                          const char *text)
{
    switch (reason) {
    case EADDRINUSE:
        return rt_fail(error, RT_IO, "%s %s: address already in use", what, address);
    case EADDRNOTAVAIL:
    case ENODEV:
        return rt_fail(error, RT_IO, "%s %s: no such interface on this machine", what, address);
    case EINVAL:
        if (strstr(address, "[fe80:") && !strchr(address, '%'))
            return rt_fail(error, RT_CONFIG,
                           "%s %s: an address of the link needs its interface, as in fe80::1%%eth0",
                           what, address);
        return rt_fail(error, RT_CONFIG, "%s %s: not an address, expected tcp://HOST:PORT", what,
                       address);
    default:
        return rt_fail(error, RT_IO, "%s %s: %s", what, address, text);
    }
}

bool rt_address_resolve(const char *address, struct sockaddr_storage *socket_p, socklen_t *length_p)
{
    char host[NI_MAXHOST];
    const char *port;
    struct addrinfo *found = NULL;
    if (!split(address, host, sizeof host, &port) ||
        look_up(strcmp(host, "*") == 0 ? "0.0.0.0" : host, port, AI_NUMERICSERV, &found) != 0)
        return false;
    memcpy(socket_p, found->ai_addr, found->ai_addrlen);
    *length_p = found->ai_addrlen;
    freeaddrinfo(found);
    return true;
}

bool rt_address_write(const struct sockaddr_storage *from, char *address, size_t size)
{
    char host[NI_MAXHOST], port[NI_MAXSERV];
    if (getnameinfo((const struct sockaddr *)from, length_of(from->ss_family), host, sizeof host,
                    port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        return false;
    const char *const format = from->ss_family == AF_INET6 ? SCHEME "[%s]:%s" : SCHEME "%s:%s";
    const int written = snprintf(address, size, format, host, port);
    return written > 0 && (size_t)written < size;
}

bool rt_address_interface(const struct sockaddr_storage *peer, bool is_local, char *name,
                          size_t size)
{
    char local[NI_MAXHOST], one[NI_MAXHOST];
    const socklen_t length = length_of(peer->ss_family);
    const struct addrinfo to = {.ai_family = peer->ss_family,
                                .ai_addr = (struct sockaddr *)(uintptr_t)peer,
                                .ai_addrlen = length};
    struct ifaddrs *all = NULL;
    bool found = false;
    int failed;
    if (is_local)
        failed = getnameinfo(to.ai_addr, length, local, sizeof local, NULL, 0, NI_NUMERICHOST);
    else
        failed = find_local(&to, local, sizeof local);
    if (failed)
        return false;
    if (getifaddrs(&all) != 0)
        return false;
    for (const struct ifaddrs *at = all; at && !found; at = at->ifa_next) {
        if (!at->ifa_addr || at->ifa_addr->sa_family != peer->ss_family ||
            getnameinfo(at->ifa_addr, length, one, sizeof one, NULL, 0, NI_NUMERICHOST) != 0 ||
            strcmp(one, local) != 0)
            continue;
        int written = snprintf(name, size, "%s", at->ifa_name);
        found = written > 0 && (size_t)written < size;
    }
    freeifaddrs(all);
    return found;
}

// An IPv4 address in the form of IPv6 becomes what it is.
static struct sockaddr_storage plain(const struct sockaddr_storage *address)
{
    const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)address;
    struct sockaddr_storage four = {0};
    if (address->ss_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&six->sin6_addr))
        return *address;
    four.ss_family = AF_INET;
    memcpy(&((struct sockaddr_in *)&four)->sin_addr, six->sin6_addr.s6_addr + 12, 4);
    return four;
}

static bool is_same_host(const struct sockaddr *one, const struct sockaddr_storage *other)
{
    if (one->sa_family != other->ss_family)
        return false;
    if (one->sa_family == AF_INET)
        return memcmp(&((const struct sockaddr_in *)one)->sin_addr,
                      &((const struct sockaddr_in *)other)->sin_addr, 4) == 0;
    return memcmp(&((const struct sockaddr_in6 *)one)->sin6_addr,
                  &((const struct sockaddr_in6 *)other)->sin6_addr, 16) == 0;
}

bool rt_address_is_here(const struct sockaddr_storage *address)
{
    const struct sockaddr_storage from = plain(address);
    struct ifaddrs *all;
    if (from.ss_family == AF_INET &&
        ntohl(((const struct sockaddr_in *)&from)->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET)
        return true;
    if ((from.ss_family != AF_INET && from.ss_family != AF_INET6) || getifaddrs(&all) != 0)
        return false;
    bool is_here = false;
    for (const struct ifaddrs *at = all; at && !is_here; at = at->ifa_next)
        is_here = at->ifa_addr && is_same_host(at->ifa_addr, &from);
    freeifaddrs(all);
    return is_here;
}

rt_status rt_address_reachable(const char *bound, const char *toward, char *address, size_t size,
                               rt_error *error)
{
    char host[NI_MAXHOST];
    uint32_t port;
    const struct addrinfo hints = {.ai_socktype = SOCK_DGRAM};
    struct addrinfo *found = NULL;
    if (!stands_for_all(bound)) {
        int length = snprintf(address, size, "%s", bound);
        if (length < 0 || (size_t)length >= size)
            return rt_fail(error, RT_LIMIT, "address %s is too long", bound);
        return RT_OK;
    }
    if (!rt_address_split(toward, host, sizeof host, &port))
        return rt_fail(error, RT_CONFIG, "%s: not an address, expected tcp://HOST:PORT", toward);
    char service[16];
    snprintf(service, sizeof service, "%u", port);
    int reason = getaddrinfo(host, service, &hints, &found);
    if (reason)
        return rt_fail(error, RT_IO, "%s: %s", toward, gai_strerror(reason));
    reason = find_local(found, host, sizeof host);
    freeaddrinfo(found);
    if (reason)
        return rt_fail(error, RT_IO, "%s: no way there: %s", toward, strerror(reason));
    if (!write_address(host, (uint32_t)atoi(strrchr(bound, ':') + 1), address, size))
        return rt_fail(error, RT_LIMIT, "address %s of this machine is too long", host);
    return RT_OK;
}

int rt_address_connect(const char *address, int limit_ms)
{
    struct sockaddr_storage place = {0};
    socklen_t length = sizeof place;
    int failure = 0;
    socklen_t size = sizeof failure;
    if (!rt_address_resolve(address, &place, &length)) {
        errno = EHOSTUNREACH;
        return -1;
    }
    const int fd = socket(place.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    struct pollfd one = {.fd = fd, .events = POLLOUT};
    if (connect(fd, (struct sockaddr *)&place, length) != 0 && errno != EINPROGRESS)
        failure = errno;
    else if (poll(&one, 1, limit_ms) != 1)
        failure = ETIMEDOUT;
    else
        (void)getsockopt(fd, SOL_SOCKET, SO_ERROR, &failure, &size);
    if (!failure)
        return fd;
    close(fd);
    errno = failure;
    return -1;
}
