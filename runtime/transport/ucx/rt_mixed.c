// rt_transport over both: servers listen for ZeroMQ at a port and for UCX at the next one, and who
// connects by this transport does so by UCX. Others connect by rt_transport_zmq to the same
// address.
//
// A peer belongs to the transport by which it was heard first; under its name nobody else is let in
// by the other one.
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/config/rt_address.h"
#include "runtime/config/rt_config.h"
#include "runtime/rt_log.h"
#include "runtime/transport/ucx/rt_ucx_plugin.h"
#include "runtime/wire/rt_control.h"

#define PORT_TRIES 16 // where the port is free to choose, and the one after it is not
#define ZMQ_FDS 2     // of a ZeroMQ endpoint
#define DROPS_MAX 64  // messages of the wrong transport, per receive

typedef enum { BY_NOBODY, BY_ZMQ, BY_UCX } owner;

struct rt_transport {
    rt_transport *zmq, *ucx;
};

struct rt_endpoint {
    rt_endpoint *zmq; // NULL: it connects
    rt_endpoint *ucx;
    uint32_t self;
    bool ucx_is_next; // to be read
    uint8_t owners[RT_ROLES][RT_RANKS_MAX];
};

static rt_status transport_open(rt_transport **transport_p, rt_error *error)
{
    rt_transport *transport = rt_alloc(1, sizeof *transport);
    if (!transport)
        return rt_fail(error, RT_NO_MEMORY, "no memory for the transport");
    rt_status status = rt_transport_ucx.open(&transport->ucx, error);
    if (!status) {
        status = rt_ucx_program->zmq->open(&transport->zmq, error);
        if (status)
            rt_transport_ucx.close(transport->ucx);
    }
    if (status) {
        rt_free(transport);
        return status;
    }
    *transport_p = transport;
    return RT_OK;
}

static void transport_close(rt_transport *transport)
{
    if (!transport)
        return;
    rt_transport_ucx.close(transport->ucx);
    rt_ucx_program->zmq->close(transport->zmq);
    rt_free(transport);
}

static rt_status transport_secure(rt_transport *transport, const rt_keys *keys, rt_error *error)
{
    rt_status status = rt_transport_ucx.secure(transport->ucx, keys, error);
    if (status)
        return status;
    return rt_ucx_program->zmq->secure(transport->zmq, keys, error);
}

static rt_status transport_trust(rt_transport *transport, uint32_t server,
                                 const uint8_t key[RT_KEY_BYTES], rt_error *error)
{
    return rt_ucx_program->zmq->trust(transport->zmq, server, key, error);
}

static rt_status transport_allow(rt_transport *transport, const rt_public_key *key, rt_error *error)
{
    return rt_ucx_program->zmq->allow(transport->zmq, key, error);
}

static void endpoint_end(rt_endpoint *endpoint, uint32_t linger_ms)
{
    if (!endpoint)
        return;
    rt_transport_ucx.end(endpoint->ucx, linger_ms);
    rt_ucx_program->zmq->end(endpoint->zmq, linger_ms);
    rt_free(endpoint);
}

// The address one port further. False: there is none.
static bool next_address(const char *address, char next[RT_PATH_MAX])
{
    const char *port = strrchr(address, ':') + 1;
    const int number = atoi(port) + 1;
    if (number > UINT16_MAX)
        return false;
    int length = snprintf(next, RT_PATH_MAX, "%.*s%d", (int)(port - address), address, number);
    return length > 0 && length < RT_PATH_MAX;
}

static rt_status listen_both(rt_transport *transport, rt_endpoint *endpoint, const char *address,
                             char *bound, rt_error *error)
{
    char next[RT_PATH_MAX], next_bound[RT_NAME_MAX];
    rt_status status = rt_ucx_program->zmq->listen(transport->zmq, endpoint->self, address, bound,
                                                   &endpoint->zmq, error);
    if (status)
        return status;
    if (next_address(bound, next))
        status = rt_transport_ucx.listen(transport->ucx, endpoint->self, next, next_bound,
                                         &endpoint->ucx, error);
    else
        status = rt_fail(error, RT_IO, "cannot listen on %s: UCX needs the next port", bound);
    if (status) {
        rt_ucx_program->zmq->end(endpoint->zmq, 0);
        endpoint->zmq = NULL;
    }
    return status;
}

static rt_status endpoint_listen(rt_transport *transport, uint32_t self, const char *address,
                                 char *bound, rt_endpoint **endpoint_p, rt_error *error)
{
    rt_status status = RT_IO;
    if (!rt_address_is_valid(address) || strncmp(address, "tcp://", 6) != 0)
        return rt_address_fail(error, "cannot listen on", address, EINVAL, "");
    rt_endpoint *endpoint = rt_alloc(1, sizeof *endpoint);
    if (!endpoint)
        return rt_fail(error, RT_NO_MEMORY, "no memory to listen on %s", address);
    endpoint->self = self;
    const int tries = strcmp(strrchr(address, ':'), ":0") == 0 ? PORT_TRIES : 1;
    for (int i = 0; i < tries && status == RT_IO; i++)
        status = listen_both(transport, endpoint, address, bound, error);
    if (status)
        rt_free(endpoint);
    else
        *endpoint_p = endpoint;
    return status;
}

static rt_status endpoint_connect(rt_transport *transport, uint32_t self, uint32_t server,
                                  const char *address, rt_endpoint **endpoint_p, rt_error *error)
{
    char next[RT_PATH_MAX], what[64], name[32];
    snprintf(what, sizeof what, "cannot connect to %s at", rt_peer_name(server, name));
    if (!rt_address_is_valid(address) || strncmp(address, "tcp://", 6) != 0 ||
        !next_address(address, next))
        return rt_address_fail(error, what, address, EINVAL, "");
    if (!rt_address_host_is_known(address))
        return rt_fail(error, RT_IO, "%s %s: unknown host", what, address); // so far
    rt_endpoint *endpoint = rt_alloc(1, sizeof *endpoint);
    if (!endpoint)
        return rt_fail(error, RT_NO_MEMORY, "%s %s: no memory", what, address);
    endpoint->self = self;
    rt_status status =
        rt_transport_ucx.connect(transport->ucx, self, server, next, &endpoint->ucx, error);
    if (status)
        rt_free(endpoint);
    else
        *endpoint_p = endpoint;
    return status;
}

// NULL: there can be no such peer.
static uint8_t *find_owner(rt_endpoint *endpoint, uint32_t peer)
{
    uint32_t role = (uint32_t)rt_peer_role(peer), rank = rt_peer_rank(peer);
    if (role < RT_ROLE_COORDINATOR || role > RT_ROLES || rank >= RT_RANKS_MAX)
        return NULL;
    return &endpoint->owners[role - 1][rank];
}

static rt_status endpoint_send(rt_endpoint *endpoint, uint32_t peer, rt_message *message)
{
    const uint8_t *by = find_owner(endpoint, peer);
    if (!endpoint->zmq || (by && *by == BY_UCX))
        return rt_transport_ucx.send(endpoint->ucx, peer, message);
    return rt_ucx_program->zmq->send(endpoint->zmq, peer, message);
}

// Tells a second process of the same peer, which came by the other transport, to end.
static void second_stop(rt_endpoint *endpoint, owner by, uint32_t peer)
{
    rt_message message;
    if (rt_control_create_taken(&message, endpoint->self, peer))
        return;
    if (by == BY_ZMQ)
        (void)rt_ucx_program->zmq->send(endpoint->zmq, peer, &message);
    else
        (void)rt_transport_ucx.send(endpoint->ucx, peer, &message);
    rt_message_release(&message);
}

static rt_status receive_by(rt_endpoint *endpoint, owner by, uint32_t *peer_p, rt_message *message,
                            rt_error *error)
{
    for (int i = 0; i < DROPS_MAX; i++) {
        rt_status status;
        if (by == BY_ZMQ)
            status = rt_ucx_program->zmq->receive(endpoint->zmq, peer_p, message, error);
        else
            status = rt_transport_ucx.receive(endpoint->ucx, peer_p, message, error);
        if (status)
            return status;
        uint8_t *of = find_owner(endpoint, *peer_p);
        if (!of)
            return RT_OK;
        if (*of == BY_NOBODY)
            *of = (uint8_t)by;
        if (*of == by)
            return status;
        second_stop(endpoint, by, *peer_p);
        rt_message_release(message);
    }
    return RT_AGAIN;
}

static rt_status endpoint_receive(rt_endpoint *endpoint, uint32_t *peer_p, rt_message *message,
                                  rt_error *error)
{
    if (!endpoint->zmq)
        return rt_transport_ucx.receive(endpoint->ucx, peer_p, message, error);
    endpoint->ucx_is_next = !endpoint->ucx_is_next;
    owner first = BY_ZMQ, second = BY_UCX;
    if (endpoint->ucx_is_next) {
        first = BY_UCX;
        second = BY_ZMQ;
    }
    rt_status status = receive_by(endpoint, first, peer_p, message, error);
    if (status != RT_AGAIN)
        return status;
    return receive_by(endpoint, second, peer_p, message, error);
}

_Static_assert(RT_WATCH_FDS > ZMQ_FDS, "UCX's descriptor comes after ZeroMQ's");

static bool watch_prepare(rt_endpoint *endpoint, struct pollfd *fds, uint64_t *limit_ms_p)
{
    bool is_ready = rt_watch_ucx.prepare(endpoint->ucx, fds + ZMQ_FDS, limit_ms_p);
    if (endpoint->zmq)
        is_ready |= rt_ucx_program->zmq_watch->prepare(endpoint->zmq, fds, limit_ms_p);
    return is_ready;
}

static bool watch_look(rt_endpoint *endpoint, const struct pollfd *fds)
{
    bool is_ready = rt_watch_ucx.look(endpoint->ucx, fds + ZMQ_FDS);
    if (endpoint->zmq)
        is_ready |= rt_ucx_program->zmq_watch->look(endpoint->zmq, fds);
    return is_ready;
}

static rt_status endpoint_wait(rt_endpoint *const *endpoints, uint32_t count, int wake_fd,
                               uint32_t timeout_ms, bool *ready)
{
    static const rt_watch_ops watch = {watch_prepare, watch_look};
    return rt_watch_wait(&watch, endpoints, count, wake_fd, timeout_ms, ready);
}

static bool endpoint_is_here(rt_endpoint *endpoint, uint32_t peer)
{
    const uint8_t *by = find_owner(endpoint, peer);
    if (!endpoint->zmq || (by && *by == BY_UCX))
        return rt_transport_ucx.is_here(endpoint->ucx, peer);
    return rt_ucx_program->zmq->is_here(endpoint->zmq, peer);
}

const rt_transport_ops rt_transport_mixed = {
    .name = "mixed",
    .open = transport_open,
    .close = transport_close,
    .listen = endpoint_listen,
    .connect = endpoint_connect,
    .end = endpoint_end,
    .send = endpoint_send,
    .receive = endpoint_receive,
    .wait = endpoint_wait,
    .secure = transport_secure,
    .trust = transport_trust,
    .allow = transport_allow,
    .is_here = endpoint_is_here,
};
