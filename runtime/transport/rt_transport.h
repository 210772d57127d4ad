// rt_transport - ordered, reliable delivery of whole messages between peers of a run.
//
// An endpoint either listens (coordinator, PS shards, workers that take rows from others) or
// connects to one listener (workers have one endpoint per server). It belongs to one thread, which
// others wake through wait's wake_fd.
// Messages between two peers arrive in the order sent, or not at all once the peer is gone.
// Some transports only move messages while an operation of the endpoint is called: who has sent
// goes on to wait or receive, or ends the endpoint.
// Nothing blocks: a full queue is RT_AGAIN (the caller's credits normally keep it from filling),
// an unknown peer RT_NOT_FOUND. Backends: zmq, ucx, mixed.
#ifndef RT_TRANSPORT_H
#define RT_TRANSPORT_H

#include "runtime/transport/rt_keys.h"
#include "runtime/wire/rt_traffic.h"
#include "runtime/wire/rt_wire.h"

#define RT_ENDPOINTS_MAX 88 // a worker: coordinator, shards, its listener, other workers

#define RT_RANKS_MAX 128u // of a role, that a listener knows

typedef struct rt_transport rt_transport; // sockets of one process (a ZeroMQ context)
typedef struct rt_endpoint rt_endpoint;

typedef struct rt_transport_ops {
    const char *name;
    rt_status (*open)(rt_transport **transport_p, rt_error *error);
    void (*close)(rt_transport *transport); // after its endpoints; drops what is not sent yet
    // address "tcp://127.0.0.1:0"; bound_p receives the real one (RT_NAME_MAX bytes).
    rt_status (*listen)(rt_transport *transport, uint32_t self, const char *address, char *bound,
                        rt_endpoint **endpoint_p, rt_error *error);
    // Returns once connected, or without an answer after at most a second; then it goes on trying,
    // and the first few messages are kept until somebody answers. RT_CONFIG, RT_IO: error names
    // address and reason.
    rt_status (*connect)(rt_transport *transport, uint32_t self, uint32_t server,
                         const char *address, rt_endpoint **endpoint_p, rt_error *error);
    void (*end)(rt_endpoint *endpoint, uint32_t linger_ms);
    // On RT_OK the message is the transport's and *message is empty; otherwise it stays.
    rt_status (*send)(rt_endpoint *endpoint, uint32_t peer, rt_message *message);
    // RT_AGAIN: no message is there; where no connection stands yet, error may say why not.
    // RT_WIRE: it was not valid, and was dropped; error names the peer. RT_NOT_FOUND: the
    // connection ended, and all messages that it brought were received; from then on send says the
    // same, and it is not resumed. An end may show only after a wait.
    rt_status (*receive)(rt_endpoint *endpoint, uint32_t *peer_p, rt_message *message,
                         rt_error *error);
    // Waits until receive has something to say of an endpoint (a message, or the end of its
    // connection), wake_fd is readable (-1: there is none), or timeout_ms have passed. A signal
    // ends it, too. ready[i]: of endpoints[i]. Nothing is read from wake_fd.
    rt_status (*wait)(rt_endpoint *const *endpoints, uint32_t count, int wake_fd,
                      uint32_t timeout_ms, bool *ready);
    // Before the first listen and connect: keys for addresses beyond loopback, or leave to do
    // without. Without this call only loopback addresses are accepted, others are RT_CONFIG.
    rt_status (*secure)(rt_transport *transport, const rt_keys *keys, rt_error *error);
    // With keys: the one that a server must prove; the coordinator's comes with secure. RT_CONFIG:
    // it is not on the list of those that may join.
    rt_status (*trust)(rt_transport *transport, uint32_t server, const uint8_t key[RT_KEY_BYTES],
                       rt_error *error);
    // With keys: one more that may join, beside those that came with secure; one thread. RT_CONFIG:
    // there is another one of that name; RT_LIMIT.
    rt_status (*allow)(rt_transport *transport, const rt_public_key *key, rt_error *error);
    // Of a listening endpoint: whether a peer that it heard is on this machine.
    bool (*is_here)(rt_endpoint *endpoint, uint32_t peer);
} rt_transport_ops;

// Whether a peer of a listening endpoint may ask for what only people of the run may: where there
// are keys it has shown one, else it has to be on this machine.
static inline bool rt_transport_may_ask(const rt_transport_ops *ops, rt_endpoint *endpoint,
                                        const rt_keys *keys, uint32_t peer)
{
    return (keys && keys->is_set) || !ops->is_here || ops->is_here(endpoint, peer);
}

// Opens a transport; keys NULL: for loopback only.
static inline rt_status rt_transport_open(const rt_transport_ops *ops, const rt_keys *keys,
                                          rt_transport **transport_p, rt_error *error)
{
    rt_transport *transport;
    rt_status status = ops->open(&transport, error);
    if (status)
        return status;
    status = keys ? ops->secure(transport, keys, error) : RT_OK;
    if (status)
        ops->close(transport);
    else
        *transport_p = transport;
    return status;
}

// ops->send and ops->receive, and the bytes are counted (rt_traffic.h).
static inline rt_status rt_transport_send(const rt_transport_ops *ops, rt_endpoint *endpoint,
                                          uint32_t peer, rt_message *message)
{
    const uint32_t type = rt_message_header(message)->type;
    const size_t size = message->size;
    const rt_status status = ops->send(endpoint, peer, message);
    if (!status)
        rt_traffic_count(RT_WAY_SENT, type, peer, size);
    return status;
}

static inline rt_status rt_transport_receive(const rt_transport_ops *ops, rt_endpoint *endpoint,
                                             uint32_t *peer_p, rt_message *message, rt_error *error)
{
    const rt_status status = ops->receive(endpoint, peer_p, message, error);
    if (!status)
        rt_traffic_count(RT_WAY_RECEIVED, rt_message_header(message)->type, *peer_p, message->size);
    return status;
}

extern const rt_transport_ops rt_transport_zmq;

// The transport of "network.transport"; one thread at a time. ucx and mixed load a plug-in
// (rt_ucx.h). RT_UNSUPPORTED: error says what is missing.
rt_status rt_transport_find(rt_network_transport kind, const rt_transport_ops **ops_p,
                            rt_error *error);

#endif
