#include "runtime/transport/rt_zmq_socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <zmq.h>

#include "runtime/config/rt_address.h"
#include "runtime/wire/rt_wire.h"

// Messages queued per peer and direction. The credits of the layers above keep far fewer in flight;
// the mark only bounds memory when they fail. Then TCP stops the sender, which gets RT_AGAIN.
#define QUEUE_MESSAGES_MAX 256
#define CONNECT_ATTEMPT_MS 3000
#define UNHEARD_MS 30000  // what was sent and not acknowledged ends a connection, as keepalive does
#define HANDSHAKE_MS 5000 // a connection that says nothing is closed then
#define RECONNECT_MS (24 * 3600 * 1000)
// No peer sends a server more: what one that announces it makes us set aside is bounded.
#define LISTENER_MESSAGE_BYTES_MAX (INT64_C(128) << 20)
#define CONGESTION_CONTROL "reno"

// ZeroMQ looks up IPv4 addresses alone, or IPv6 ones alone.
static bool is_six(const char *address)
{
    struct sockaddr_storage place = {0};
    socklen_t length;
    return rt_address_resolve(address, &place, &length) && place.ss_family == AF_INET6;
}

void *rt_zmq_socket_create(void *context, int type, const char *address)
{
    const struct {
        int option, value;
    } options[] = {
        {ZMQ_SNDHWM, QUEUE_MESSAGES_MAX},
        {ZMQ_RCVHWM, QUEUE_MESSAGES_MAX},
        {ZMQ_LINGER, 0},
        {ZMQ_RECONNECT_IVL, RECONNECT_MS},
        {ZMQ_CONNECT_TIMEOUT, CONNECT_ATTEMPT_MS},
        {ZMQ_HANDSHAKE_IVL, HANDSHAKE_MS},
        {ZMQ_TCP_KEEPALIVE, 1},
        {ZMQ_TCP_KEEPALIVE_IDLE, 10},
        {ZMQ_TCP_KEEPALIVE_INTVL, 5},
        {ZMQ_TCP_KEEPALIVE_CNT, 4},
        {ZMQ_TCP_MAXRT, UNHEARD_MS},
        {ZMQ_IPV6, is_six(address)},
        {ZMQ_ROUTER_MANDATORY, 1}, // the last: for a ROUTER only
    };
    size_t count = RT_COUNT_OF(options) - (type != ZMQ_ROUTER);
    int64_t message_bytes_max = RT_WIRE_PAYLOAD_BYTES_MAX + sizeof(rt_wire_header);
    if (type == ZMQ_ROUTER)
        message_bytes_max = LISTENER_MESSAGE_BYTES_MAX;
    void *socket = zmq_socket(context, type);
    if (!socket)
        return NULL;
    int failed =
        zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &message_bytes_max, sizeof message_bytes_max);
    for (size_t i = 0; i < count; i++)
        failed |= zmq_setsockopt(socket, options[i].option, &options[i].value, sizeof(int));
    rt_assert(failed == 0); // the values are all ours
    return socket;
}

int rt_zmq_socket_fd(void *socket)
{
    int fd = -1;
    size_t size = sizeof fd;
    rt_assert(zmq_getsockopt(socket, ZMQ_FD, &fd, &size) == 0);
    return fd;
}

void *rt_zmq_socket_monitor(void *context, void *socket, const char *name, int events)
{
    if (zmq_socket_monitor(socket, name, events) != 0)
        return NULL;
    void *monitor = zmq_socket(context, ZMQ_PAIR);
    if (monitor && zmq_connect(monitor, name) == 0)
        return monitor;
    int reason = errno;
    zmq_socket_monitor(socket, NULL, 0);
    if (monitor)
        zmq_close(monitor);
    errno = reason;
    return NULL;
}

bool rt_zmq_socket_event(void *monitor, int *event_p, int32_t *value_p)
{
    uint8_t bytes[6]; // zmq_socket_monitor(3): 16 bits event, 32 bits value; then the address
    uint16_t event;
    if (zmq_recv(monitor, bytes, sizeof bytes, ZMQ_DONTWAIT) != (int)sizeof bytes)
        return false;
    (void)zmq_recv(monitor, NULL, 0, ZMQ_DONTWAIT);
    memcpy(&event, bytes, sizeof event);
    memcpy(value_p, bytes + sizeof event, sizeof *value_p);
    *event_p = event;
    return true;
}

static bool choose_reno(int fd)
{
    return setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, CONGESTION_CONTROL,
                      sizeof CONGESTION_CONTROL - 1) == 0;
}

bool rt_zmq_socket_tune(int fd)
{
    struct sockaddr_storage peer = {0};
    socklen_t size = sizeof peer;
    if (getpeername(fd, (struct sockaddr *)&peer, &size) != 0)
        return false;
    bool is_local = false;
    if (peer.ss_family == AF_INET)
        is_local = ntohl(((struct sockaddr_in *)&peer)->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
    else if (peer.ss_family == AF_INET6)
        is_local = IN6_IS_ADDR_LOOPBACK(&((struct sockaddr_in6 *)&peer)->sin6_addr);
    return is_local && choose_reno(fd);
}

// ZeroMQ listens at numbers and interfaces only; what is neither may be the name of a box.
static int bind_by_name(void *socket, const char *address)
{
    struct sockaddr_storage place = {0};
    socklen_t length;
    char number[64];
    if (zmq_bind(socket, address) == 0)
        return 0;
    const int reason = errno;
    if (reason == ENODEV && rt_address_resolve(address, &place, &length) &&
        rt_address_write(&place, number, sizeof number))
        return zmq_bind(socket, number);
    errno = reason;
    return -1;
}

// Connections have what their listener had when they were accepted.
int rt_zmq_socket_bind(void *context, void *socket, const char *address)
{
    char name[64];
    int event, reason;
    int32_t listener;
    if (!rt_address_is_loopback(address))
        return bind_by_name(socket, address);
    snprintf(name, sizeof name, "inproc://listening-%p", socket);
    void *monitor = rt_zmq_socket_monitor(context, socket, name, ZMQ_EVENT_LISTENING);
    int failed = bind_by_name(socket, address);
    reason = errno;
    if (!monitor)
        return failed;
    if (!failed && rt_zmq_socket_event(monitor, &event, &listener) && event == ZMQ_EVENT_LISTENING)
        (void)choose_reno(listener);
    zmq_socket_monitor(socket, NULL, 0);
    zmq_close(monitor);
    errno = reason;
    return failed;
}
