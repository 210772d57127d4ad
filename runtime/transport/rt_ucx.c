// rt_transport over UCX: RDMA where there is hardware, shared memory and TCP elsewhere.
//
// An endpoint has a UCX worker of its own, which only moves when it is called: in send, receive and
// wait. A listener gives every connection a slot and a number (WELCOME); the first frame says which
// peer it is. A peer that is connected already keeps its connection, the second is told to stop.
// UCX tells when a connection ends (its connection manager keeps a TCP socket for that; keepalives
// find machines that vanished), and it is not resumed.
//
// Ending an endpoint that may linger leaves it to a thread of its own; closing the transport waits
// for those.
#include "runtime/transport/rt_transport.h"

#if __has_include(<ucp/api/ucp.h>)

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/rt_address.h"
#include "runtime/rt_config.h"
#include "runtime/rt_log.h"
#include "runtime/transport/rt_ucx_link.h"
#include "runtime/transport/rt_watch.h"

#define CONNECT_WAIT_MS 1000u    // that connect itself waits for the connection
#define CONNECT_ATTEMPT_MS 3000u // for one attempt
#define CONNECT_RETRY_MS 200u    // between attempts
#define EARLY_MESSAGES_MAX 8u    // kept until the connection stands
#define CLOSE_MS 1000u           // that UCX may take to give everything back
#define PROGRESS_MAX 64u         // steps of UCX at a time
#define ARM_TRIES 16u
#define LINKS_MAX 160u      // of a listener
#define REQUESTS_MAX 64u    // to connect, not yet looked at
#define DROPS_MAX 64u       // messages of refused connections, per receive
#define RANKS_MAX 128u      // of a role, per listener
#define SEND_LOOK_EVERY 32u // sends, between two looks at what came
#define REFUSED_TEXT_MAX 128
#define NS_PER_MS UINT64_C(1000000)

struct rt_transport {
    atomic_uint references; // the transport itself and its endpoints, in any order of their ends
    rt_ucx_api api;
    pthread_mutex_t lock;
    rt_endpoint *lingering; // a list
};

typedef enum { STATE_LISTENING, STATE_CONNECTING, STATE_UP, STATE_GONE } endpoint_state;

struct rt_endpoint {
    rt_transport *transport;
    ucp_context_h context;
    rt_ucx_port port;
    int fd;
    ucp_listener_h listener; // NULL: it connects
    endpoint_state state;
    uint32_t server; // connected to
    struct sockaddr_storage to;
    socklen_t to_length;
    uint64_t attempt_end_ns, retry_at_ns; // retry_at_ns 0: an attempt is under way
    bool retry_logged;
    uint32_t early_count, send_count;
    rt_message early[EARLY_MESSAGES_MAX];
    rt_ucx_link *links[LINKS_MAX]; // by slot; the first one of an endpoint that connects
    uint32_t link_count;           // slots in use, about: none above
    uint32_t next;                 // slot that is read next
    uint64_t connection_count;
    ucp_conn_request_h requests[REQUESTS_MAX];
    uint32_t request_count;
    rt_ucx_link *peers[RT_ROLE_PS][RANKS_MAX]; // of a listener
    char address[RT_PATH_MAX];
    uint32_t linger_ms;
    pthread_t thread;
    rt_endpoint *next_lingering;
};

// ---- the transport

static void *linger(void *context);
static void endpoint_destroy(rt_endpoint *endpoint);

static rt_status transport_open(rt_transport **transport_p, rt_error *error)
{
    rt_transport *transport = calloc(1, sizeof *transport);
    if (!transport)
        return rt_fail(error, RT_NO_MEMORY, "no memory for the transport");
    rt_status status = rt_ucx_api_open(&transport->api, error);
    if (status) {
        free(transport);
        return status;
    }
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
        free(endpoint);
    }
    pthread_mutex_destroy(&transport->lock);
    free(transport);
}

static void transport_close(rt_transport *transport)
{
    if (transport)
        transport_drop(transport);
}

// ---- peers of a listener

// The table entry of a peer; NULL when there can be no such peer.
static rt_ucx_link **peer_find(rt_endpoint *endpoint, uint32_t peer)
{
    uint32_t role = (uint32_t)rt_peer_role(peer), rank = rt_peer_rank(peer);
    if (role < RT_ROLE_COORDINATOR || role > RT_ROLE_PS || rank >= RANKS_MAX)
        return NULL;
    return &endpoint->peers[role - 1][rank];
}

// Tells a second process of the same peer to end.
static void second_stop(rt_ucx_link *link, uint32_t peer)
{
    char text[REFUSED_TEXT_MAX], name[32];
    rt_message message;
    size_t size = (size_t)snprintf(text, sizeof text, "another %s is connected already",
                                   rt_peer_name(peer, name));
    if (rt_message_create(&message, RT_MESSAGE_STOP, link->port->self, 0, 0, size) != RT_OK)
        return;
    memcpy(rt_message_payload(&message), text, size);
    (void)rt_ucx_link_send(link, &message);
    rt_message_release(&message);
}

// The first frame of a connection says whose it is.
static bool peer_admit(rt_endpoint *endpoint, rt_ucx_link *link, uint32_t peer)
{
    rt_ucx_link **entry = peer_find(endpoint, peer);
    if (!entry)
        return false;
    link->peer = peer;
    if (*entry && !(*entry)->has_failed && !(*entry)->got_bye) {
        link->is_refused = true;
        rt_warn("%s: another %s is refused: one is connected already", endpoint->address,
                rt_peer_name(peer, (char[32]){0}));
        second_stop(link, peer);
    } else {
        *entry = link;
    }
    return true;
}

// ---- frames

static void link_drop(rt_ucx_link *link)
{
    link->has_failed = link->port->is_changed = true;
}

static void take_welcome(rt_endpoint *endpoint, const rt_ucx_head *head)
{
    rt_ucx_link *link = endpoint->links[0];
    if (!link || link->number || head->connection == 0)
        return;
    if (head->peer != endpoint->server) {
        link_drop(link); // it is tried again, and said so
        return;
    }
    link->peer = head->peer;
    link->slot = head->slot;
    link->number = head->connection;
}

static ucs_status_t frame_arrived(void *context, const void *header, size_t header_length,
                                  void *data, size_t length, const ucp_am_recv_param_t *param)
{
    rt_endpoint *endpoint = context;
    rt_ucx_head head;
    if (header_length != sizeof head)
        return UCS_OK;
    memcpy(&head, header, sizeof head);
    if (head.magic != RT_UCX_MAGIC)
        return UCS_OK;
    if (endpoint->state != STATE_LISTENING && head.kind == RT_UCX_WELCOME) {
        take_welcome(endpoint, &head);
        return UCS_OK;
    }
    uint32_t slot = endpoint->state == STATE_LISTENING ? head.slot : 0;
    rt_ucx_link *link = slot < LINKS_MAX ? endpoint->links[slot] : NULL;
    if (!link || link->number != head.connection || head.connection == 0)
        return UCS_OK;
    if (link->peer == 0 && !peer_admit(endpoint, link, head.peer)) {
        link_drop(link);
        return UCS_OK;
    }
    if (link->peer != head.peer) {
        link_drop(link);
        return UCS_OK;
    }
    return rt_ucx_link_take_frame(link, &head, data, length, param);
}

static void connection_requested(ucp_conn_request_h request, void *context)
{
    rt_endpoint *endpoint = context;
    if (endpoint->request_count < REQUESTS_MAX)
        endpoint->requests[endpoint->request_count++] = request;
    else
        endpoint->port.api.ucp_listener_reject(endpoint->listener, request);
}

static void connection_accept(rt_endpoint *endpoint, ucp_conn_request_h request)
{
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST,
                              .conn_request = request};
    uint16_t slot = 0;
    while (slot < LINKS_MAX && endpoint->links[slot])
        slot++;
    rt_ucx_link *link =
        slot < LINKS_MAX ? rt_ucx_link_create(&endpoint->port, slot, ++endpoint->connection_count)
                         : NULL;
    if (!link) {
        endpoint->port.api.ucp_listener_reject(endpoint->listener, request);
        return;
    }
    if (rt_ucx_link_open(link, &params) != UCS_OK) {
        rt_ucx_link_destroy(link);
        return;
    }
    endpoint->links[slot] = link;
    endpoint->link_count = (uint32_t)rt_max_u64(endpoint->link_count, slot + 1u);
    rt_ucx_link_say(link, RT_UCX_WELCOME, 0);
}

// ---- progress

// Closes connections that failed and forgets those that have nothing left.
static void links_settle(rt_endpoint *endpoint)
{
    endpoint->port.is_changed = false;
    for (uint32_t i = 0; i < endpoint->link_count; i++) {
        rt_ucx_link *link = endpoint->links[i];
        if (!link || !link->has_failed)
            continue;
        rt_ucx_link **entry = link->peer ? peer_find(endpoint, link->peer) : NULL;
        if (entry && *entry == link)
            *entry = NULL;
        rt_ucx_link_close(link);
        if (endpoint->state == STATE_LISTENING && link->requests == 0 &&
            !rt_ucx_link_has_message(link)) {
            endpoint->links[i] = NULL;
            rt_ucx_link_destroy(link);
        }
    }
    while (endpoint->link_count > 1 && !endpoint->links[endpoint->link_count - 1])
        endpoint->link_count--;
}

static rt_status link_start(rt_endpoint *endpoint, const char **reason_p)
{
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR,
                              .flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER,
                              .sockaddr = {(struct sockaddr *)&endpoint->to, endpoint->to_length}};
    rt_ucx_link *link = rt_ucx_link_create(&endpoint->port, 0, 0);
    *reason_p = "no memory";
    if (!link)
        return RT_NO_MEMORY;
    ucs_status_t status = rt_ucx_link_open(link, &params);
    if (status != UCS_OK) {
        *reason_p = endpoint->port.api.ucs_status_string(status);
        rt_ucx_link_destroy(link);
        return RT_IO;
    }
    endpoint->links[0] = link;
    endpoint->link_count = 1;
    endpoint->retry_at_ns = 0;
    endpoint->attempt_end_ns = rt_now_ns() + CONNECT_ATTEMPT_MS * NS_PER_MS;
    return RT_OK;
}

// An attempt failed: the next one comes later.
static void retry_later(rt_endpoint *endpoint, const char *reason)
{
    char name[32];
    endpoint->retry_at_ns = rt_now_ns() + CONNECT_RETRY_MS * NS_PER_MS;
    if (endpoint->retry_logged)
        return;
    endpoint->retry_logged = true;
    rt_info("%s at %s %s; trying on", rt_peer_name(endpoint->server, name), endpoint->address,
            reason);
}

static void send_early(rt_endpoint *endpoint)
{
    uint32_t count = endpoint->early_count;
    endpoint->early_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        (void)rt_ucx_link_send(endpoint->links[0], &endpoint->early[i]); // fails if it ended again
        rt_message_release(&endpoint->early[i]);
    }
}

// Where an endpoint that connects is with that.
static void connect_update(rt_endpoint *endpoint)
{
    rt_ucx_link *link = endpoint->links[0];
    const char *reason;
    uint64_t now_ns = rt_now_ns();
    if (link && link->number && !link->has_failed) {
        endpoint->state = STATE_UP;
        send_early(endpoint);
        return;
    }
    if (link && endpoint->retry_at_ns == 0 &&
        (link->has_failed || now_ns >= endpoint->attempt_end_ns)) {
        rt_ucx_link_close(link);
        retry_later(endpoint, "does not answer yet");
    }
    if (endpoint->retry_at_ns == 0 || now_ns < endpoint->retry_at_ns || (link && link->requests))
        return;
    rt_ucx_link_destroy(link);
    endpoint->links[0] = NULL;
    if (link_start(endpoint, &reason) != RT_OK)
        retry_later(endpoint, reason);
}

static void endpoint_progress(rt_endpoint *endpoint)
{
    const rt_ucx_api *api = &endpoint->port.api;
    for (uint32_t i = 0; i < PROGRESS_MAX && api->ucp_worker_progress(endpoint->port.worker); i++)
        ;
    for (uint32_t i = 0; i < endpoint->request_count; i++)
        connection_accept(endpoint, endpoint->requests[i]);
    endpoint->request_count = 0;
    if (endpoint->port.is_changed)
        links_settle(endpoint);
    if (endpoint->state == STATE_CONNECTING)
        connect_update(endpoint);
}

// ---- creating

// Without RDMA, UCX shall use the interface that the address is on, and no other that would only
// look as if it led there. With it UCX knows best. What the user has set in UCX_* stays.
static void choose_devices(const rt_ucx_api *api, ucp_config_t *config,
                           const struct sockaddr_storage *address, bool is_local)
{
    char name[64];
    DIR *folder = opendir("/sys/class/infiniband");
    uint32_t count = 0;
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        count += entry->d_name[0] != '.';
    if (folder)
        closedir(folder);
    if (count == 0 && !getenv("UCX_NET_DEVICES") &&
        rt_address_interface(address, is_local, name, sizeof name))
        (void)api->ucp_config_modify(config, "NET_DEVICES", name);
    if (!getenv("UCX_CM_REUSEADDR"))
        (void)api->ucp_config_modify(config, "CM_REUSEADDR", "y");
}

static ucs_status_t context_create(rt_endpoint *endpoint, const struct sockaddr_storage *address,
                                   bool is_local)
{
    const rt_ucx_api *api = &endpoint->port.api;
    const ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                                 .features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP};
    ucp_config_t *config;
    ucs_status_t status = api->ucp_config_read(NULL, NULL, &config);
    if (status != UCS_OK)
        return status;
    choose_devices(api, config, address, is_local);
    status =
        api->ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &endpoint->context);
    api->ucp_config_release(config);
    return status;
}

static ucs_status_t worker_create(rt_endpoint *endpoint)
{
    const rt_ucx_api *api = &endpoint->port.api;
    const ucp_worker_params_t params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                        .thread_mode = UCS_THREAD_MODE_SERIALIZED};
    const ucp_am_handler_param_t handler = {
        .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                      UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG,
        .id = RT_UCX_AM,
        .flags = UCP_AM_FLAG_WHOLE_MSG,
        .cb = frame_arrived,
        .arg = endpoint};
    ucs_status_t status =
        api->ucp_worker_create(endpoint->context, &params, &endpoint->port.worker);
    if (status == UCS_OK)
        status = api->ucp_worker_set_am_recv_handler(endpoint->port.worker, &handler);
    return status == UCS_OK ? api->ucp_worker_get_efd(endpoint->port.worker, &endpoint->fd)
                            : status;
}

// On failure nothing is left and *status_p says why.
static rt_endpoint *endpoint_create(rt_transport *transport, uint32_t self, const char *address,
                                    const struct sockaddr_storage *at, bool is_local,
                                    ucs_status_t *status_p)
{
    rt_endpoint *endpoint = calloc(1, sizeof *endpoint);
    *status_p = UCS_ERR_NO_MEMORY;
    if (!endpoint)
        return NULL;
    endpoint->transport = transport;
    endpoint->port.api = transport->api;
    endpoint->port.self = self;
    endpoint->fd = -1;
    snprintf(endpoint->address, sizeof endpoint->address, "%s", address);
    *status_p = context_create(endpoint, at, is_local);
    if (*status_p == UCS_OK)
        *status_p = worker_create(endpoint);
    if (*status_p != UCS_OK) {
        endpoint_destroy(endpoint);
        free(endpoint);
        return NULL;
    }
    atomic_fetch_add(&transport->references, 1);
    return endpoint;
}

// Everything but the memory of the endpoint itself.
static void endpoint_destroy(rt_endpoint *endpoint)
{
    const rt_ucx_api *api = &endpoint->port.api;
    uint64_t end_ns = rt_now_ns() + CLOSE_MS * NS_PER_MS;
    bool is_open = true;
    for (uint32_t i = 0; i < endpoint->link_count; i++)
        if (endpoint->links[i])
            rt_ucx_link_close(endpoint->links[i]);
    while (is_open && rt_now_ns() < end_ns) {
        is_open = false;
        api->ucp_worker_progress(endpoint->port.worker);
        for (uint32_t i = 0; i < endpoint->link_count; i++)
            is_open |= endpoint->links[i] && endpoint->links[i]->requests > 0;
    }
    for (uint32_t i = 0; i < endpoint->request_count; i++)
        api->ucp_listener_reject(endpoint->listener, endpoint->requests[i]);
    if (endpoint->listener)
        api->ucp_listener_destroy(endpoint->listener);
    if (endpoint->port.worker)
        api->ucp_worker_destroy(endpoint->port.worker);
    for (uint32_t i = 0; i < endpoint->link_count; i++)
        rt_ucx_link_destroy(endpoint->links[i]);
    if (endpoint->context)
        api->ucp_cleanup(endpoint->context);
    rt_ucx_port_fini(&endpoint->port);
    for (uint32_t i = 0; i < endpoint->early_count; i++)
        rt_message_release(&endpoint->early[i]);
}

// ---- ending

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
    const rt_ucx_api *api = &endpoint->port.api;
    const uint64_t end_ns = rt_now_ns() + endpoint->linger_ms * NS_PER_MS;
    endpoint_progress(endpoint);
    for (uint64_t now_ns; goodbyes_are_open(endpoint) && (now_ns = rt_now_ns()) < end_ns;) {
        if (api->ucp_worker_arm(endpoint->port.worker) == UCS_OK) {
            struct pollfd one = {endpoint->fd, POLLIN, 0};
            (void)poll(&one, 1, (int)rt_min_u64((end_ns - now_ns) / NS_PER_MS + 1, 100));
        }
        endpoint_progress(endpoint);
    }
    endpoint_destroy(endpoint);
    return NULL;
}

static void endpoint_end(rt_endpoint *endpoint, uint32_t linger_ms)
{
    if (!endpoint)
        return;
    rt_transport *transport = endpoint->transport;
    bool is_heard = endpoint->state == STATE_LISTENING || endpoint->state == STATE_UP;
    endpoint->linger_ms = is_heard ? linger_ms : 0;
    if (endpoint->listener) { // the address is free again at once
        for (uint32_t i = 0; i < endpoint->request_count; i++)
            endpoint->port.api.ucp_listener_reject(endpoint->listener, endpoint->requests[i]);
        endpoint->request_count = 0;
        endpoint->port.api.ucp_listener_destroy(endpoint->listener);
        endpoint->listener = NULL;
    }
    if (endpoint->linger_ms && pthread_create(&endpoint->thread, NULL, linger, endpoint) == 0) {
        pthread_mutex_lock(&transport->lock);
        endpoint->next_lingering = transport->lingering;
        transport->lingering = endpoint;
        pthread_mutex_unlock(&transport->lock);
    } else {
        if (endpoint->linger_ms)
            linger(endpoint);
        else
            endpoint_destroy(endpoint);
        free(endpoint);
    }
    transport_drop(transport);
}

// ---- listening and connecting

// Why an address could not be listened on, as plain sockets tell it.
static int listen_reason(const struct sockaddr_storage *at, socklen_t length)
{
    const int yes = 1;
    int fd = socket(at->ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0), reason = 0;
    if (fd < 0)
        return errno;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(fd, (const struct sockaddr *)at, length) != 0 || listen(fd, 1) != 0)
        reason = errno;
    close(fd);
    return reason;
}

static bool is_any(const struct sockaddr_storage *at)
{
    if (at->ss_family == AF_INET6)
        return IN6_IS_ADDR_UNSPECIFIED(&((const struct sockaddr_in6 *)at)->sin6_addr);
    return ((const struct sockaddr_in *)at)->sin_addr.s_addr == INADDR_ANY;
}

static ucs_status_t listener_create(rt_endpoint *endpoint, const struct sockaddr_storage *at,
                                    socklen_t length, char *bound)
{
    const rt_ucx_api *api = &endpoint->port.api;
    const ucp_listener_params_t params = {.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR |
                                                        UCP_LISTENER_PARAM_FIELD_CONN_HANDLER,
                                          .sockaddr = {(const struct sockaddr *)at, length},
                                          .conn_handler = {connection_requested, endpoint}};
    ucp_listener_attr_t attributes = {.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR};
    ucs_status_t status =
        api->ucp_listener_create(endpoint->port.worker, &params, &endpoint->listener);
    if (status == UCS_OK)
        status = api->ucp_listener_query(endpoint->listener, &attributes);
    if (status == UCS_OK && !rt_address_write(&attributes.sockaddr, bound, RT_NAME_MAX))
        status = UCS_ERR_EXCEEDS_LIMIT;
    return status;
}

static rt_status endpoint_listen(rt_transport *transport, uint32_t self, const char *address,
                                 char *bound, rt_endpoint **endpoint_p, rt_error *error)
{
    const char *what = "cannot listen on";
    struct sockaddr_storage at;
    socklen_t length;
    ucs_status_t status;
    if (!rt_address_is_valid(address) || !rt_address_resolve(address, &at, &length))
        return rt_address_fail(error, what, address, EINVAL, "");
    int reason = listen_reason(&at, length);
    if (reason)
        return rt_address_fail(error, what, address, reason, strerror(reason));
    rt_endpoint *endpoint = endpoint_create(transport, self, address, &at, !is_any(&at), &status);
    if (!endpoint)
        return rt_fail(error, RT_IO, "%s %s: UCX: %s", what, address,
                       transport->api.ucs_status_string(status));
    endpoint->state = STATE_LISTENING;
    status = listener_create(endpoint, &at, length, bound);
    if (status != UCS_OK) {
        endpoint_end(endpoint, 0);
        return rt_fail(error, RT_IO, "%s %s: UCX: %s", what, address,
                       transport->api.ucs_status_string(status));
    }
    *endpoint_p = endpoint;
    return RT_OK;
}

// Until the first attempt is decided.
static void connect_await(rt_endpoint *endpoint)
{
    const uint64_t end_ns = rt_now_ns() + CONNECT_WAIT_MS * NS_PER_MS;
    endpoint_progress(endpoint);
    while (endpoint->state == STATE_CONNECTING && endpoint->retry_at_ns == 0 &&
           rt_now_ns() < end_ns) {
        if (endpoint->port.api.ucp_worker_arm(endpoint->port.worker) == UCS_OK) {
            struct pollfd one = {endpoint->fd, POLLIN, 0};
            (void)poll(&one, 1, CONNECT_RETRY_MS);
        }
        endpoint_progress(endpoint);
    }
}

static rt_status endpoint_connect(rt_transport *transport, uint32_t self, uint32_t server,
                                  const char *address, rt_endpoint **endpoint_p, rt_error *error)
{
    char what[64], name[32];
    struct sockaddr_storage to;
    socklen_t length;
    ucs_status_t status;
    const char *reason;
    snprintf(what, sizeof what, "cannot connect to %s at", rt_peer_name(server, name));
    if (!rt_address_is_valid(address) || strncmp(address, "tcp://", 6) != 0)
        return rt_address_fail(error, what, address, EINVAL, "");
    if (!rt_address_resolve(address, &to, &length))
        return rt_fail(error, RT_CONFIG, "%s %s: unknown host", what, address);
    rt_endpoint *endpoint = endpoint_create(transport, self, address, &to, false, &status);
    if (!endpoint)
        return rt_fail(error, RT_IO, "%s %s: UCX: %s", what, address,
                       transport->api.ucs_status_string(status));
    endpoint->server = server;
    endpoint->state = STATE_CONNECTING;
    endpoint->to = to;
    endpoint->to_length = length;
    if (link_start(endpoint, &reason) != RT_OK)
        retry_later(endpoint, reason);
    connect_await(endpoint);
    *endpoint_p = endpoint;
    return RT_OK;
}

// ---- messages

// Over the peer's connection, which a look at what came may take away.
static rt_status send_over(rt_endpoint *endpoint, rt_ucx_link **link_p, rt_message *message)
{
    if (++endpoint->send_count % SEND_LOOK_EVERY == 0)
        endpoint_progress(endpoint);
    if (!*link_p)
        return RT_NOT_FOUND;
    rt_status status = rt_ucx_link_send(*link_p, message);
    if (status == RT_AGAIN)
        endpoint_progress(endpoint);
    return status;
}

static rt_status endpoint_send(rt_endpoint *endpoint, uint32_t peer, rt_message *message)
{
    rt_assert(message->release && message->size >= sizeof(rt_wire_header));
    rt_assert(rt_message_header(message)->sender == endpoint->port.self);
    if (endpoint->state == STATE_LISTENING) {
        rt_ucx_link **entry = peer_find(endpoint, peer);
        return entry ? send_over(endpoint, entry, message) : RT_NOT_FOUND;
    }
    if (endpoint->state == STATE_CONNECTING)
        endpoint_progress(endpoint);
    if (endpoint->state == STATE_GONE || endpoint->server != peer)
        return RT_NOT_FOUND;
    if (endpoint->state == STATE_UP)
        return send_over(endpoint, &endpoint->links[0], message);
    if (endpoint->early_count == EARLY_MESSAGES_MAX)
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
    return endpoint->state == STATE_UP && rt_ucx_link_is_over(endpoint->links[0]);
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
    if (endpoint->state == STATE_GONE) {
        *peer_p = endpoint->server;
        return rt_fail(error, RT_NOT_FOUND, "the connection to %s at %s ended",
                       rt_peer_name(endpoint->server, name), endpoint->address);
    }
    rt_ucx_link *link = next_link(endpoint);
    if (!link && !has_ended(endpoint)) {
        endpoint_progress(endpoint);
        link = next_link(endpoint);
    }
    if (!link && has_ended(endpoint)) {
        endpoint->state = STATE_GONE;
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

// ---- waiting

static bool endpoint_look(rt_endpoint *endpoint)
{
    return endpoint->state != STATE_GONE && (next_link(endpoint) != NULL || has_ended(endpoint));
}

static bool watch_prepare(rt_endpoint *endpoint, struct pollfd *fds, uint64_t *limit_ms_p)
{
    if (endpoint->state == STATE_GONE)
        return false;
    bool is_ready = endpoint_look(endpoint), is_armed = false;
    for (uint32_t i = 0; i < ARM_TRIES && !is_ready && !is_armed; i++) {
        endpoint_progress(endpoint);
        is_ready = endpoint_look(endpoint);
        is_armed = !is_ready && endpoint->port.api.ucp_worker_arm(endpoint->port.worker) == UCS_OK;
    }
    if (is_armed)
        fds[0].fd = endpoint->fd;
    else if (!is_ready)
        *limit_ms_p = 0;
    if (endpoint->state == STATE_CONNECTING)
        *limit_ms_p = rt_min_u64(*limit_ms_p, CONNECT_RETRY_MS);
    return is_ready;
}

static bool watch_look(rt_endpoint *endpoint, const struct pollfd *fds)
{
    if (fds[0].revents || fds[0].fd < 0 || endpoint->state == STATE_CONNECTING)
        endpoint_progress(endpoint);
    return endpoint_look(endpoint);
}

const rt_watch_ops rt_watch_ucx = {watch_prepare, watch_look};

static rt_status endpoint_wait(rt_endpoint *const *endpoints, uint32_t count, int wake_fd,
                               uint32_t timeout_ms, bool *ready)
{
    return rt_watch_wait(&rt_watch_ucx, endpoints, count, wake_fd, timeout_ms, ready);
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
};

#else

#include "runtime/transport/rt_watch.h"

static rt_status transport_open(rt_transport **transport_p, rt_error *error)
{
    (void)transport_p;
    return rt_fail(error, RT_UNSUPPORTED,
                   "this program was built without UCX: install libucx-dev and build it again");
}

const rt_watch_ops rt_watch_ucx = {NULL, NULL};
const rt_transport_ops rt_transport_ucx = {.name = "ucx", .open = transport_open};

#endif
