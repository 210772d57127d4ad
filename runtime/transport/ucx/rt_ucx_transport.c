// rt_transport over UCX: RDMA where there is hardware, TCP elsewhere (UCX 1.13 does not tell the
// end of a peer over shared memory, so it leaves that out).
//
// An endpoint has a UCX worker of its own, which only moves when it is called: in send, receive and
// wait. Connections begin at a TCP socket, by which both sides learn UCX's address of the other,
// and the listener gives the connection a slot and a number. With the first frame a peer is known;
// one that is connected already keeps its connection, the second is told to stop. A connection ends
// when UCX says so or that socket closes, and is not resumed.
//
// Ending an endpoint that may linger leaves it to a thread of its own; closing the transport waits
// for those.
#include "runtime/transport/ucx/rt_ucx_plugin.h"

#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/config/rt_address.h"
#include "runtime/config/rt_config.h"
#include "runtime/rt_thread.h"
#include "runtime/transport/ucx/rt_ucx_endpoint.h"
#include "runtime/transport/rt_watch.h"

#define CONNECT_WAIT_MS 1000u // that connect itself waits for the connection
#define CLOSE_MS 1000u        // that UCX may take to give back what it has
#define ARM_TRIES 16u
#define DROPS_MAX 64u       // messages of refused connections, per receive
#define SEND_LOOK_EVERY 32u // sends, between two looks at what came

struct rt_transport {
    atomic_uint references; // the transport itself and its endpoints, in any order of their ends
    pthread_mutex_t lock;
    rt_endpoint *lingering; // a list
    bool is_insecure;       // addresses beyond loopback may be used
};

// ---- the transport ---------------------------------------------------------------------------

static void *linger(void *context);
static void endpoint_destroy(rt_endpoint *endpoint);

static rt_status transport_open(rt_transport **transport_p, rt_error *error)
{
    rt_transport *transport = rt_alloc(1, sizeof *transport);
    if (!transport)
        return rt_fail(error, RT_NO_MEMORY, "no memory for the transport");
    atomic_init(&transport->references, 1);
    pthread_mutex_init(&transport->lock, NULL);
    *transport_p = transport;
    return RT_OK;
}

static void transport_drop(rt_transport *transport)
{
    if (atomic_fetch_sub(&transport->references, 1) != 1)
        return;
    while (transport->lingering) {
        rt_endpoint *endpoint = transport->lingering;
        transport->lingering = endpoint->next_lingering;
        pthread_join(endpoint->thread, NULL);
        rt_free(endpoint);
    }
    pthread_mutex_destroy(&transport->lock);
    rt_free(transport);
}

static void transport_close(rt_transport *transport)
{
    if (transport)
        transport_drop(transport);
}

// ---- creating --------------------------------------------------------------------------------

// Without RDMA, UCX shall use the interface that the address is on, and no other that would only
// look as if it led there. With it UCX knows best. What the user has set in UCX_* stays.
static void choose_devices(ucp_config_t *config, const struct sockaddr_storage *address,
                           bool is_local)
{
    char name[64];
    if (!rt_ucx_program->has_rdma && !getenv("UCX_NET_DEVICES") &&
        rt_address_interface(address, is_local, name, sizeof name))
        (void)ucp_config_modify(config, "NET_DEVICES", name);
}

static ucs_status_t context_create(rt_endpoint *endpoint, const struct sockaddr_storage *address,
                                   bool is_local)
{
    const ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                                 .features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP};
    ucp_config_t *config;
    ucs_status_t status = ucp_config_read(NULL, NULL, &config);
    if (status != UCS_OK)
        return status;
    choose_devices(config, address, is_local);
    status = ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &endpoint->context);
    ucp_config_release(config);
    return status;
}

static ucs_status_t worker_create(rt_endpoint *endpoint)
{
    const ucp_worker_params_t params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                        .thread_mode = UCS_THREAD_MODE_SERIALIZED};
    const ucp_am_handler_param_t handler = {
        .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                      UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG,
        .id = RT_UCX_AM,
        .flags = UCP_AM_FLAG_WHOLE_MSG,
        .cb = rt_ucx_take_frame,
        .arg = endpoint};
    ucs_status_t status = ucp_worker_create(endpoint->context, &params, &endpoint->port.worker);
    if (status == UCS_OK)
        status = ucp_worker_set_am_recv_handler(endpoint->port.worker, &handler);
    if (status == UCS_OK)
        status = ucp_worker_get_efd(endpoint->port.worker, &endpoint->ucx_fd);
    if (status != UCS_OK)
        return status;
    endpoint->fd = epoll_create1(EPOLL_CLOEXEC);
    bool is_set =
        endpoint->fd >= 0 && rt_ucx_watch(endpoint, endpoint->ucx_fd, RT_UCX_TAG_UCX, 0, EPOLLIN);
    return is_set ? UCS_OK : UCS_ERR_IO_ERROR;
}

// On failure nothing is left and *status_p says why.
static rt_endpoint *endpoint_create(rt_transport *transport, uint32_t self, const char *address,
                                    const struct sockaddr_storage *at, bool is_local,
                                    ucs_status_t *status_p)
{
    rt_endpoint *endpoint = rt_alloc(1, sizeof *endpoint);
    *status_p = UCS_ERR_NO_MEMORY;
    if (!endpoint)
        return NULL;
    endpoint->transport = transport;
    endpoint->port.self = self;
    endpoint->fd = endpoint->listener = -1;
    for (uint32_t i = 0; i < RT_UCX_GREETINGS_MAX; i++)
        endpoint->greetings[i].fd = -1;
    snprintf(endpoint->address, sizeof endpoint->address, "%s", address);
    *status_p = context_create(endpoint, at, is_local);
    if (*status_p == UCS_OK)
        *status_p = worker_create(endpoint);
    if (*status_p != UCS_OK) {
        endpoint_destroy(endpoint);
        rt_free(endpoint);
        return NULL;
    }
    atomic_fetch_add(&transport->references, 1);
    return endpoint;
}

// Whether UCX still has something of connections that were closed.
static bool links_are_busy(const rt_endpoint *endpoint)
{
    for (uint32_t i = 0; i < endpoint->link_count; i++)
        if (endpoint->links[i] && !endpoint->links[i]->ep && endpoint->links[i]->requests > 0)
            return true;
    return false;
}

// Everything but the memory of the endpoint itself.
static void endpoint_destroy(rt_endpoint *endpoint)
{
    const uint64_t end_ns = rt_now_ns() + CLOSE_MS * RT_UCX_NS_PER_MS;
    for (uint32_t i = 0; i < endpoint->link_count; i++)
        if (endpoint->links[i])
            rt_ucx_link_close(endpoint->links[i]);
    while (links_are_busy(endpoint) && rt_now_ns() < end_ns)
        ucp_worker_progress(endpoint->port.worker);
    for (uint32_t i = 0; i < RT_UCX_GREETINGS_MAX; i++)
        rt_ucx_end_greeting(&endpoint->greetings[i]);
    if (endpoint->listener >= 0)
        close(endpoint->listener);
    if (endpoint->fd >= 0)
        close(endpoint->fd);
    if (endpoint->port.worker)
        ucp_worker_destroy(endpoint->port.worker); // with all connections
    rt_ucx_port_fini(&endpoint->port);
    for (uint32_t i = 0; i < endpoint->link_count; i++)
        rt_ucx_link_destroy(endpoint->links[i]);
    if (endpoint->context)
        ucp_cleanup(endpoint->context);
    for (uint32_t i = 0; i < endpoint->early_count; i++)
        rt_message_release(&endpoint->early[i]);
}

// ---- ending ----------------------------------------------------------------------------------

// Says goodbye to every peer; false when all of them have everything, or are gone.
static bool goodbyes_are_open(rt_endpoint *endpoint)
{
    bool is_open = false;
    for (uint32_t i = 0; i < endpoint->link_count; i++) {
        rt_ucx_link *link = endpoint->links[i];
        if (!link || link->has_failed || link->peer == 0)
            continue;
        rt_ucx_link_say_bye(link);
        is_open |= !link->got_gone;
    }
    return is_open;
}

static void *linger(void *context)
{
    rt_endpoint *endpoint = context;
    const uint64_t end_ns = rt_now_ns() + endpoint->linger_ms * RT_UCX_NS_PER_MS;
    rt_ucx_progress(endpoint);
    for (uint64_t now_ns; goodbyes_are_open(endpoint) && (now_ns = rt_now_ns()) < end_ns;) {
        if (ucp_worker_arm(endpoint->port.worker) == UCS_OK) {
            struct pollfd one = {endpoint->fd, POLLIN, 0};
            (void)poll(&one, 1, (int)rt_min_u64((end_ns - now_ns) / RT_UCX_NS_PER_MS + 1, 100));
        }
        rt_ucx_turn(endpoint);
    }
    endpoint_destroy(endpoint);
    return NULL;
}

static void endpoint_end(rt_endpoint *endpoint, uint32_t linger_ms)
{
    if (!endpoint)
        return;
    rt_transport *transport = endpoint->transport;
    bool is_heard = endpoint->state == RT_UCX_STATE_LISTENING || endpoint->state == RT_UCX_STATE_UP;
    endpoint->linger_ms = is_heard ? linger_ms : 0;
    if (endpoint->listener >= 0)
        close(endpoint->listener); // the address is free again at once
    endpoint->listener = -1;
    if (endpoint->linger_ms && rt_thread_start(&endpoint->thread, linger, endpoint) == 0) {
        pthread_mutex_lock(&transport->lock);
        endpoint->next_lingering = transport->lingering;
        transport->lingering = endpoint;
        pthread_mutex_unlock(&transport->lock);
    } else {
        if (endpoint->linger_ms)
            linger(endpoint);
        else
            endpoint_destroy(endpoint);
        rt_free(endpoint);
    }
    transport_drop(transport);
}

// ---- listening and connecting ----------------------------------------------------------------

static bool is_any(const struct sockaddr_storage *at)
{
    if (at->ss_family == AF_INET6)
        return IN6_IS_ADDR_UNSPECIFIED(&((const struct sockaddr_in6 *)at)->sin6_addr);
    return ((const struct sockaddr_in *)at)->sin_addr.s_addr == INADDR_ANY;
}

static rt_status endpoint_listen(rt_transport *transport, uint32_t self, const char *address,
                                 char *bound, rt_endpoint **endpoint_p, rt_error *error)
{
    const char *what = "cannot listen on";
    struct sockaddr_storage at, bound_to;
    socklen_t length;
    ucs_status_t status;
    if (!rt_address_is_valid(address))
        return rt_address_fail(error, what, address, EINVAL, "");
    if (!rt_address_resolve(address, &at, &length))
        return rt_address_fail(error, what, address, ENODEV, "");
    if (rt_address_check(false, transport->is_insecure, address, error))
        return RT_CONFIG;
    int listener = rt_ucx_door_listen(&at, length, &bound_to);
    if (listener < 0)
        return rt_address_fail(error, what, address, errno, strerror(errno));
    rt_endpoint *endpoint = endpoint_create(transport, self, address, &at, !is_any(&at), &status);
    if (!endpoint) {
        close(listener);
        return rt_fail(error, RT_IO, "%s %s: UCX: %s", what, address, ucs_status_string(status));
    }
    endpoint->state = RT_UCX_STATE_LISTENING;
    endpoint->listener = listener;
    if (!rt_ucx_watch(endpoint, listener, RT_UCX_TAG_LISTENER, 0, EPOLLIN) ||
        !rt_address_write(&bound_to, bound, RT_NAME_MAX)) {
        endpoint_end(endpoint, 0);
        return rt_fail(error, RT_IO, "%s %s: %s", what, address, strerror(errno));
    }
    *endpoint_p = endpoint;
    return RT_OK;
}

// Until the first attempt is decided.
static void connect_await(rt_endpoint *endpoint)
{
    const uint64_t end_ns = rt_now_ns() + CONNECT_WAIT_MS * RT_UCX_NS_PER_MS;
    while (endpoint->state == RT_UCX_STATE_CONNECTING && endpoint->retry_at_ns == 0 &&
           rt_now_ns() < end_ns) {
        struct pollfd one = {endpoint->fd, POLLIN, 0};
        (void)poll(&one, 1, RT_UCX_CONNECT_RETRY_MS);
        rt_ucx_turn(endpoint);
    }
}

static rt_status endpoint_connect(rt_transport *transport, uint32_t self, uint32_t server,
                                  const char *address, rt_endpoint **endpoint_p, rt_error *error)
{
    char what[64], name[32];
    struct sockaddr_storage to;
    socklen_t length;
    ucs_status_t status;
    snprintf(what, sizeof what, "cannot connect to %s at", rt_peer_name(server, name));
    if (!rt_address_is_valid(address) || strncmp(address, "tcp://", 6) != 0)
        return rt_address_fail(error, what, address, EINVAL, "");
    if (!rt_address_resolve(address, &to, &length))
        return rt_fail(error, RT_IO, "%s %s: unknown host", what, address); // so far
    if (rt_address_check(false, transport->is_insecure, address, error))
        return RT_CONFIG;
    rt_endpoint *endpoint = endpoint_create(transport, self, address, &to, false, &status);
    if (!endpoint)
        return rt_fail(error, RT_IO, "%s %s: UCX: %s", what, address, ucs_status_string(status));
    endpoint->server = server;
    endpoint->state = RT_UCX_STATE_CONNECTING;
    endpoint->to = to;
    endpoint->to_length = length;
    rt_ucx_start_connecting(endpoint);
    connect_await(endpoint);
    *endpoint_p = endpoint;
    return RT_OK;
}

// ---- messages --------------------------------------------------------------------------------

// Over the peer's connection, which a look at what came may take away.
static rt_status send_over(rt_endpoint *endpoint, rt_ucx_link **link_p, rt_message *message)
{
    if (++endpoint->send_count % SEND_LOOK_EVERY == 0)
        rt_ucx_progress(endpoint);
    if (!*link_p)
        return RT_NOT_FOUND;
    rt_status status = rt_ucx_link_send(*link_p, message);
    if (status == RT_AGAIN)
        rt_ucx_progress(endpoint);
    return status;
}

static rt_status endpoint_send(rt_endpoint *endpoint, uint32_t peer, rt_message *message)
{
    rt_assert(message->release && message->size >= sizeof(rt_wire_header));
    rt_assert(rt_message_header(message)->sender == endpoint->port.self);
    if (endpoint->state == RT_UCX_STATE_LISTENING) {
        rt_ucx_link **entry = rt_ucx_find_peer(endpoint, peer);
        if (entry)
            return send_over(endpoint, entry, message);
        return RT_NOT_FOUND;
    }
    if (endpoint->state == RT_UCX_STATE_CONNECTING)
        rt_ucx_turn(endpoint);
    if (endpoint->state == RT_UCX_STATE_GONE || endpoint->server != peer)
        return RT_NOT_FOUND;
    if (endpoint->state == RT_UCX_STATE_UP)
        return send_over(endpoint, &endpoint->links[0], message);
    if (endpoint->early_count == RT_UCX_EARLY_MESSAGES_MAX)
        return RT_AGAIN;
    endpoint->early[endpoint->early_count++] = *message;
    *message = (rt_message){0};
    return RT_OK;
}

// The connection whose message is next, each in turn; NULL: none has one.
static rt_ucx_link *next_link(rt_endpoint *endpoint)
{
    for (uint32_t i = 0; i < endpoint->link_count; i++) {
        uint32_t slot = (endpoint->next + i) % endpoint->link_count;
        rt_ucx_link *link = endpoint->links[slot];
        for (uint32_t n = 0; n < DROPS_MAX && link && link->is_refused; n++) {
            if (!rt_ucx_link_has_message(link))
                break;
            rt_message message = rt_ucx_link_take(link);
            rt_message_release(&message);
        }
        if (!link || link->is_refused || !rt_ucx_link_has_message(link))
            continue;
        endpoint->next = slot + 1;
        return link;
    }
    return NULL;
}

static bool has_ended(const rt_endpoint *endpoint)
{
    return endpoint->state == RT_UCX_STATE_UP && rt_ucx_link_is_over(endpoint->links[0]);
}

static rt_status validate(rt_message *message, uint32_t peer, rt_error *error)
{
    char name[32], claimed[32];
    rt_status status = rt_message_validate(message, peer, error);
    const rt_wire_header *header = rt_message_header(message);
    if (!status && header->sender != peer)
        status = rt_fail(error, RT_WIRE, "%s sent %s in the name of %s", rt_peer_name(peer, name),
                         rt_message_type_name(header->type), rt_peer_name(header->sender, claimed));
    if (status)
        rt_message_release(message);
    return status;
}

static rt_status endpoint_receive(rt_endpoint *endpoint, uint32_t *peer_p, rt_message *message,
                                  rt_error *error)
{
    char name[32];
    if (endpoint->state == RT_UCX_STATE_GONE) {
        *peer_p = endpoint->server;
        return rt_fail(error, RT_NOT_FOUND, "the connection to %s at %s ended",
                       rt_peer_name(endpoint->server, name), endpoint->address);
    }
    rt_ucx_link *link = next_link(endpoint);
    if (!link && !has_ended(endpoint)) {
        if (endpoint->state == RT_UCX_STATE_CONNECTING)
            rt_ucx_turn(endpoint);
        else
            rt_ucx_progress(endpoint);
        link = next_link(endpoint);
    }
    if (!link && has_ended(endpoint)) {
        endpoint->state = RT_UCX_STATE_GONE;
        return endpoint_receive(endpoint, peer_p, message, error);
    }
    if (!link)
        return RT_AGAIN;
    *peer_p = link->peer;
    rt_message received = rt_ucx_link_take(link);
    if (link->has_failed)
        endpoint->port.is_changed = true; // it may have been the last one
    rt_status status = validate(&received, link->peer, error);
    if (!status)
        *message = received;
    return status;
}

// ---- waiting ---------------------------------------------------------------------------------

static bool endpoint_look(rt_endpoint *endpoint)
{
    return endpoint->state != RT_UCX_STATE_GONE &&
           (next_link(endpoint) != NULL || has_ended(endpoint));
}

static bool watch_prepare(rt_endpoint *endpoint, struct pollfd *fds, uint64_t *limit_ms_p)
{
    if (endpoint->state == RT_UCX_STATE_GONE)
        return false;
    bool is_ready = endpoint_look(endpoint), is_armed = false;
    for (uint32_t i = 0; i < ARM_TRIES && !is_ready && !is_armed; i++) {
        rt_ucx_progress(endpoint);
        is_ready = endpoint_look(endpoint);
        is_armed = !is_ready && ucp_worker_arm(endpoint->port.worker) == UCS_OK;
    }
    if (is_armed)
        fds[0].fd = endpoint->fd;
    else if (!is_ready)
        *limit_ms_p = 0;
    if (endpoint->state == RT_UCX_STATE_CONNECTING)
        *limit_ms_p = rt_min_u64(*limit_ms_p, RT_UCX_CONNECT_RETRY_MS);
    return is_ready;
}

static bool watch_look(rt_endpoint *endpoint, const struct pollfd *fds)
{
    if (fds[0].revents || fds[0].fd < 0 || endpoint->state == RT_UCX_STATE_CONNECTING)
        rt_ucx_turn(endpoint);
    return endpoint_look(endpoint);
}

const rt_watch_ops rt_watch_ucx = {watch_prepare, watch_look};

static rt_status endpoint_wait(rt_endpoint *const *endpoints, uint32_t count, int wake_fd,
                               uint32_t timeout_ms, bool *ready)
{
    return rt_watch_wait(&rt_watch_ucx, endpoints, count, wake_fd, timeout_ms, ready);
}

// UCX encrypts nothing and asks nobody for a key.
static rt_status transport_secure(rt_transport *transport, const rt_keys *keys, rt_error *error)
{
    if (keys->is_set)
        return rt_fail(error, RT_CONFIG,
                       "network.transport: UCX knows no keys (security.key); use \"zmq\"");
    transport->is_insecure = keys->is_insecure;
    return RT_OK;
}

static rt_status transport_trust(rt_transport *transport, uint32_t server,
                                 const uint8_t key[RT_KEY_BYTES], rt_error *error)
{
    (void)transport, (void)server, (void)key, (void)error;
    return RT_OK;
}

static rt_status transport_allow(rt_transport *transport, const rt_public_key *key, rt_error *error)
{
    (void)transport, (void)key, (void)error;
    return RT_OK;
}

static bool endpoint_is_here(rt_endpoint *endpoint, uint32_t peer)
{
    rt_ucx_link *const *entry = rt_ucx_find_peer(endpoint, peer);
    struct sockaddr_storage from;
    socklen_t size = sizeof from;
    return entry && *entry && (*entry)->fd >= 0 &&
           getpeername((*entry)->fd, (struct sockaddr *)&from, &size) == 0 &&
           rt_address_is_here(&from);
}

const rt_transport_ops rt_transport_ucx = {
    .name = "ucx",
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
