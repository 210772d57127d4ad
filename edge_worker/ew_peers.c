#include "edge_worker/ew_run.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "runtime/config/rt_address.h"

#define STRANGERS_MAX 64 // of their messages, per receive
#define NS_PER_S 1e9

// ---- joining ---------------------------------------------------------------------------------

rt_status ew_peers_listen(ew_peers *peers, const rt_transport_ops *ops, rt_transport *transport,
                          const ew_peers_config *config, rt_error *error)
{
    char who[32], host[RT_NAME_MAX], given[RT_NAME_MAX + 4] = "";
    const rt_config *run = config->config;
    if (!rt_dispatch_is_mutual(&run->dispatch))
        return RT_OK;
    *peers = (ew_peers){.ops = ops,
                        .transport = transport,
                        .patience_s = run->timeout_peer_s,
                        .guests = {.ops = ops,
                                   .self = rt_peer(RT_ROLE_WORKER, config->rank),
                                   .identity = config->identity}};
    rt_peer_name(peers->guests.self, who);
    if (rt_address_host(rt_config_host_of_worker(run, config->rank), host, sizeof host) && host[0])
        (void)rt_address_join(host, 0, given, sizeof given);
    rt_door door = {.config = run,
                    .who = who,
                    .given = given,
                    .key = "host in boxes",
                    .coordinator = config->coordinator,
                    .notify = config->notify};
    if (run->network_worker_port)
        door.port = run->network_worker_port + config->rank;
    const rt_status status =
        rt_guests_listen(&peers->guests, transport, &door, peers->address, error);
    if (status)
        return status;
    rt_info("%s listens for other workers at %s", who, peers->address);
    return RT_OK;
}

void ew_peers_welcome(ew_peers *peers, const rt_wire_welcome *welcome, uint32_t place)
{
    peers->rank = place;
    peers->worker_count = welcome->worker_count;
    peers->workers = welcome->workers;
    peers->guests.worker_count = welcome->worker_count;
}

// As others know this worker, and the worker of a place, which listens under its rank.
static uint32_t own_peer(const ew_peers *peers)
{
    return rt_peer(RT_ROLE_WORKER, peers->rank);
}

static uint32_t peer_at(const ew_peers *peers, uint32_t place)
{
    return rt_peer(RT_ROLE_WORKER, rt_bit_at(peers->workers, place));
}

static rt_status greet(ew_peers *peers, uint32_t place, rt_error *error)
{
    rt_message message;
    const rt_wire_hello hello = rt_control_greet(own_peer(peers), &peers->guests.identity);
    if (rt_control_create_struct(&message, RT_MESSAGE_HELLO, own_peer(peers), 0, &hello,
                                 sizeof hello, NULL))
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    rt_status status =
        rt_transport_send(peers->ops, peers->others[place], peer_at(peers, place), &message);
    rt_message_release(&message);
    if (status && status != RT_NOT_FOUND) // one that is gone is found by those who wait for it
        return rt_fail(error, status, "cannot send to worker %" PRIu32 ": %s", place,
                       rt_status_text(status));
    return RT_OK;
}

static rt_status connect_to(ew_peers *peers, uint32_t place, const char *address,
                            const uint8_t *key, rt_error *error)
{
    const uint32_t server = peer_at(peers, place);
    rt_status status = peers->ops->trust(peers->transport, server, key, error);
    if (status)
        return status;
    status = peers->ops->connect(peers->transport, own_peer(peers), server, address,
                                 &peers->others[place], error);
    if (status)
        return status;
    return greet(peers, place, error);
}

rt_status ew_peers_connect(ew_peers *peers, const rt_message *message, rt_error *error)
{
    rt_wire_workers all;
    if (!peers->ops)
        return rt_fail(error, RT_WIRE,
                       "coordinator: PEERS, but dispatch.hand_over and dispatch.reduce are false");
    if (peers->connected)
        return rt_fail(error, RT_WIRE, "coordinator: PEERS, but they have come already");
    if (!rt_control_has(message, sizeof all))
        return rt_fail(error, RT_WIRE, "coordinator: PEERS of %zu bytes, expected %zu",
                       message->size - sizeof(rt_wire_header), sizeof all);
    memcpy(&all, rt_message_payload(message), sizeof all);
    for (uint32_t p = 0; p < peers->worker_count; p++) {
        const char *address = all.workers[p].address;
        if (!address[0] || address[sizeof all.workers[p].address - 1])
            return rt_fail(error, RT_WIRE,
                           "coordinator: PEERS without an address of worker %" PRIu32, p);
        if (p == peers->rank)
            continue;
        const rt_status status = connect_to(peers, p, address, all.workers[p].key, error);
        if (status)
            return status;
    }
    peers->connected = true;
    return RT_OK;
}

// ---- messages --------------------------------------------------------------------------------

static void note_gone(ew_peers *peers, uint32_t place)
{
    if (peers->gone_ns)
        return;
    peers->gone_ns = rt_now_ns();
    peers->gone = place;
}

rt_status ew_peers_send(ew_peers *peers, uint32_t place, rt_message *message)
{
    rt_assert(peers->connected && peers->others[place]);
    rt_message_header(message)->sender = own_peer(peers);
    rt_status status =
        rt_transport_send(peers->ops, peers->others[place], peer_at(peers, place), message);
    if (status != RT_NOT_FOUND)
        return status;
    note_gone(peers, place);
    rt_message_release(message);
    return RT_OK;
}

uint32_t ew_peers_endpoints(const ew_peers *peers, rt_endpoint **endpoints)
{
    uint32_t count = 0;
    if (!peers->connected)
        return 0;
    endpoints[count++] = peers->guests.endpoint;
    for (uint32_t p = 0; p < peers->worker_count; p++)
        if (peers->others[p])
            endpoints[count++] = peers->others[p];
    return count;
}

// One message at the listener. RT_OK with an empty message: it was about who is heard.
static rt_status receive_one(ew_peers *peers, uint32_t *peer_p, rt_message *message,
                             rt_error *error)
{
    char name[32];
    rt_guests *guests = &peers->guests;
    rt_status status = rt_transport_receive(peers->ops, guests->endpoint, peer_p, message, error);
    if (status == RT_NOT_FOUND)
        return RT_OK; // the end of its connection to us: what it sent was received
    if (status)
        return status;
    const uint32_t type = rt_message_header(message)->type;
    if (type == RT_MESSAGE_HELLO)
        status = rt_guests_take_hello(guests, *peer_p, message, error);
    else if (!rt_guests_know(guests, *peer_p))
        status = rt_fail(error, RT_WIRE, "%s sent %s before a HELLO", rt_peer_name(*peer_p, name),
                         rt_message_type_name(type));
    else
        return RT_OK;
    rt_message_release(message);
    return status;
}

rt_status ew_peers_receive(ew_peers *peers, uint32_t *peer_p, rt_message *message, rt_error *error)
{
    for (int i = 0; i < STRANGERS_MAX; i++) {
        rt_error why = {0};
        *peer_p = 0;
        rt_status status = receive_one(peers, peer_p, message, &why);
        if (!status && message->data)
            return RT_OK;
        if (status == RT_AGAIN)
            return RT_AGAIN;
        if ((status == RT_WIRE || status == RT_CONFIG) && !rt_guests_know(&peers->guests, *peer_p))
            rt_guests_log_stranger(&peers->guests, why.text);
        else if (status)
            return rt_fail(error, status, "%s", why.text);
    }
    return RT_AGAIN;
}

// A worker that we send to says nothing, but for why it does not hear us.
static rt_status look_at(ew_peers *peers, uint32_t place, rt_error *error)
{
    uint32_t peer;
    char text[256];
    rt_message message = {0};
    rt_status status =
        rt_transport_receive(peers->ops, peers->others[place], &peer, &message, error);
    if (status == RT_NOT_FOUND)
        note_gone(peers, place);
    if (status == RT_NOT_FOUND || status == RT_AGAIN)
        return RT_OK;
    if (status)
        return status;
    const uint32_t type = rt_message_header(&message)->type;
    if (type != RT_MESSAGE_STOP)
        status = rt_fail(error, RT_WIRE, "worker %" PRIu32 ": %s, which workers do not answer with",
                         place, rt_message_type_name(type));
    else if (rt_control_text(&message, text, sizeof text))
        status = rt_fail(error, RT_CONFIG, "worker %" PRIu32 " refuses this one", place);
    else
        status = rt_fail(error, RT_CONFIG, "worker %" PRIu32 " refuses this one: %s", place, text);
    rt_message_release(&message);
    return status;
}

rt_status ew_peers_look(ew_peers *peers, rt_error *error)
{
    for (uint32_t p = 0; p < peers->worker_count; p++) {
        if (!peers->others[p])
            continue;
        const rt_status status = look_at(peers, p, error);
        if (status)
            return status;
    }
    const double since_s = (double)(rt_now_ns() - peers->gone_ns) / NS_PER_S;
    if (!peers->gone_ns || since_s < peers->patience_s)
        return RT_OK;
    return rt_fail(error, RT_PEER,
                   "worker %" PRIu32 " is gone: the connection to it has ended, and the "
                   "coordinator said nothing of it for %g s (timeouts.peer_s)",
                   peers->gone, peers->patience_s);
}

void ew_peers_end(ew_peers *peers, uint32_t linger_ms)
{
    if (!peers->ops)
        return;
    for (uint32_t p = 0; p < RT_WORKERS_MAX; p++)
        peers->ops->end(peers->others[p], linger_ms);
    peers->ops->end(peers->guests.endpoint, linger_ms);
    *peers = (ew_peers){0};
}
