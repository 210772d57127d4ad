#include "runtime/transport/ucx/rt_ucx_endpoint.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "runtime/rt_log.h"
#include "runtime/wire/rt_control.h"

#define CONNECT_ATTEMPT_MS 3000u // for one attempt
#define PROGRESS_MAX 64u         // steps of UCX at a time
#define GREETING_MS 3000u        // that one may take
#define EVENTS_MAX 32            // of the descriptors, at a time

// ---- peers of a listener ---------------------------------------------------------------------

// The table entry of a peer; NULL when there can be no such peer.
rt_ucx_link **rt_ucx_find_peer(rt_endpoint *endpoint, uint32_t peer)
{
    uint32_t role = (uint32_t)rt_peer_role(peer), rank = rt_peer_rank(peer);
    if (role < RT_ROLE_COORDINATOR || role > RT_ROLES || rank >= RT_RANKS_MAX)
        return NULL;
    return &endpoint->peers[role - 1][rank];
}

// Tells a second process of the same peer to end.
static void second_stop(rt_ucx_link *link, uint32_t peer)
{
    rt_message message;
    if (rt_control_create_taken(&message, link->port->self, peer))
        return;
    (void)rt_ucx_link_send(link, &message);
    rt_message_release(&message);
}

// The first frame of a connection says whose it is.
static bool peer_admit(rt_endpoint *endpoint, rt_ucx_link *link, uint32_t peer)
{
    rt_ucx_link **entry = rt_ucx_find_peer(endpoint, peer);
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

// ---- frames ----------------------------------------------------------------------------------

static void send_early(rt_endpoint *endpoint);

// Before messages, three frames show both sides that UCX has set the connection up.
static void take_hello(rt_endpoint *endpoint, rt_ucx_link *link, const rt_ucx_head *head)
{
    rt_ucx_link_say(link, RT_UCX_HELLO, head->sequence + 1);
    if (endpoint->state != RT_UCX_STATE_CONNECTING || head->sequence != 2)
        return;
    link->is_wired = true;
    endpoint->state = RT_UCX_STATE_UP;
    send_early(endpoint);
}

ucs_status_t rt_ucx_take_frame(void *context, const void *header, size_t header_length, void *data,
                               size_t length, const ucp_am_recv_param_t *param)
{
    rt_endpoint *endpoint = context;
    rt_ucx_head head;
    if (header_length != sizeof head)
        return UCS_OK;
    memcpy(&head, header, sizeof head);
    if (head.magic != RT_UCX_MAGIC)
        return UCS_OK;
    uint32_t slot = endpoint->state == RT_UCX_STATE_LISTENING ? head.slot : 0;
    rt_ucx_link *link = slot < RT_UCX_LINKS_MAX ? endpoint->links[slot] : NULL;
    if (!link || link->number != head.connection || head.connection == 0)
        return UCS_OK;
    if (head.kind == RT_UCX_HELLO && head.sequence < 3) {
        take_hello(endpoint, link, &head);
        return UCS_OK;
    }
    link->is_wired = true;
    if ((link->peer == 0 && !peer_admit(endpoint, link, head.peer)) || link->peer != head.peer) {
        rt_ucx_link_fail(link);
        return UCS_OK;
    }
    if (head.kind == RT_UCX_HELLO)
        return UCS_OK;
    return rt_ucx_link_take_frame(link, &head, data, length, param);
}

// ---- doors -----------------------------------------------------------------------------------

bool rt_ucx_watch(rt_endpoint *endpoint, int fd, rt_ucx_tag kind, uint32_t index, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.u64 = (uint64_t)kind << 32 | index};
    return epoll_ctl(endpoint->fd, EPOLL_CTL_ADD, fd, &event) == 0 ||
           (errno == EEXIST && epoll_ctl(endpoint->fd, EPOLL_CTL_MOD, fd, &event) == 0);
}

void rt_ucx_end_greeting(rt_ucx_greeting *greeting)
{
    if (greeting->fd >= 0)
        close(greeting->fd);
    greeting->fd = -1;
}

static bool introduce(rt_endpoint *endpoint, int fd, uint16_t slot, uint64_t connection)
{
    ucp_address_t *address;
    size_t size;
    if (ucp_worker_get_address(endpoint->port.worker, &address, &size) != UCS_OK)
        return false;
    const rt_ucx_intro intro = {.magic = RT_UCX_DOOR_MAGIC,
                                .peer = endpoint->port.self,
                                .connection = connection,
                                .slot = slot,
                                .address_size = (uint32_t)size};
    bool is_said = size <= RT_UCX_ADDRESS_MAX && rt_ucx_door_say(fd, &intro, address);
    ucp_worker_release_address(endpoint->port.worker, address);
    return is_said;
}

// Makes a connection of a greeting that is complete; its socket is used up.
static rt_ucx_link *link_make(rt_endpoint *endpoint, rt_ucx_greeting *greeting, uint32_t index,
                              uint16_t slot, uint64_t number)
{
    rt_ucx_link *link = rt_ucx_link_create(&endpoint->port, greeting->fd, slot, number);
    if (!link) {
        rt_ucx_end_greeting(greeting);
        return NULL;
    }
    greeting->fd = -1;
    const void *address = greeting->bytes + sizeof(rt_ucx_intro);
    if (!rt_ucx_watch(endpoint, link->fd, RT_UCX_TAG_LINK, index, EPOLLIN) ||
        rt_ucx_link_open(link, address) != UCS_OK) {
        rt_ucx_link_destroy(link);
        return NULL;
    }
    endpoint->links[index] = link;
    endpoint->link_count = (uint32_t)rt_max_u64(endpoint->link_count, index + 1u);
    return link;
}

// Somebody has introduced himself to a listener: the answer.
static void admit(rt_endpoint *endpoint, rt_ucx_greeting *greeting)
{
    uint16_t slot = 0;
    while (slot < RT_UCX_LINKS_MAX && endpoint->links[slot])
        slot++;
    if (slot == RT_UCX_LINKS_MAX || !rt_ucx_find_peer(endpoint, rt_ucx_door_intro(greeting).peer)) {
        rt_ucx_end_greeting(greeting);
        return;
    }
    rt_ucx_link *link = link_make(endpoint, greeting, slot, slot, ++endpoint->connection_count);
    if (link && !introduce(endpoint, link->fd, slot, link->number))
        rt_ucx_link_fail(link);
}

static void listener_take(rt_endpoint *endpoint)
{
    for (uint32_t i = 0; i < RT_UCX_GREETINGS_MAX; i++) {
        int fd = rt_ucx_door_accept(endpoint->listener);
        if (fd < 0)
            return;
        uint32_t index = endpoint->next_greeting++ % RT_UCX_GREETINGS_MAX;
        rt_ucx_greeting *greeting = &endpoint->greetings[index];
        rt_ucx_end_greeting(greeting);
        greeting->fd = fd;
        greeting->used = 0;
        greeting->end_ns = rt_now_ns() + GREETING_MS * RT_UCX_NS_PER_MS;
        if (!rt_ucx_watch(endpoint, fd, RT_UCX_TAG_GREETING, index, EPOLLIN))
            rt_ucx_end_greeting(greeting);
    }
}

static void retry_later(rt_endpoint *endpoint, const char *reason);

// The listener has answered.
static void connection_stands(rt_endpoint *endpoint, rt_ucx_greeting *greeting)
{
    const rt_ucx_intro intro = rt_ucx_door_intro(greeting);
    if (intro.peer != endpoint->server) {
        retry_later(endpoint, "is somebody else");
        return;
    }
    rt_ucx_link *link = link_make(endpoint, greeting, 0, intro.slot, intro.connection);
    if (!link) {
        retry_later(endpoint, "cannot be reached by UCX");
        return;
    }
    link->peer = intro.peer;
    rt_ucx_link_say(link, RT_UCX_HELLO, 1);
}

static void greeting_take(rt_endpoint *endpoint, rt_ucx_greeting *greeting)
{
    if (greeting->fd < 0)
        return;
    if (endpoint->state == RT_UCX_STATE_CONNECTING && !endpoint->has_greeted) {
        int reason = 0;
        socklen_t size = sizeof reason;
        endpoint->has_greeted =
            getsockopt(greeting->fd, SOL_SOCKET, SO_ERROR, &reason, &size) == 0 && !reason &&
            introduce(endpoint, greeting->fd, 0, 0) &&
            rt_ucx_watch(endpoint, greeting->fd, RT_UCX_TAG_GREETING, 0, EPOLLIN);
        if (!endpoint->has_greeted)
            retry_later(endpoint, "does not answer yet");
        return;
    }
    rt_status status = rt_ucx_door_hear(greeting);
    if (!status && endpoint->state == RT_UCX_STATE_LISTENING)
        admit(endpoint, greeting);
    else if (!status)
        connection_stands(endpoint, greeting);
    else if (status != RT_AGAIN && endpoint->state == RT_UCX_STATE_CONNECTING)
        retry_later(endpoint, "does not speak our protocol");
    else if (status != RT_AGAIN)
        rt_ucx_end_greeting(greeting);
}

// Something happened at the socket of a connection. What came by UCX before it ended comes first.
static void door_take(rt_endpoint *endpoint, uint32_t index)
{
    rt_ucx_progress(endpoint);
    rt_ucx_link *link = endpoint->links[index];
    if (link && link->fd >= 0 && rt_ucx_door_is_shut(link->fd))
        rt_ucx_link_fail(link);
}

// Looks at the sockets: who comes, who introduces himself, who has gone.
static void doors_look(rt_endpoint *endpoint)
{
    struct epoll_event events[EVENTS_MAX];
    int count = epoll_wait(endpoint->fd, events, EVENTS_MAX, 0);
    for (int i = 0; i < count; i++) {
        rt_ucx_tag kind = (rt_ucx_tag)(events[i].data.u64 >> 32);
        uint32_t index = (uint32_t)events[i].data.u64;
        if (kind == RT_UCX_TAG_LISTENER && endpoint->listener >= 0)
            listener_take(endpoint);
        else if (kind == RT_UCX_TAG_GREETING)
            greeting_take(endpoint, &endpoint->greetings[index]);
        else if (kind == RT_UCX_TAG_LINK)
            door_take(endpoint, index);
    }
}

// Those that take too long; of an endpoint that connects also what comes after the greeting.
static void greetings_expire(rt_endpoint *endpoint)
{
    const uint64_t now_ns = rt_now_ns();
    const rt_ucx_link *link = endpoint->links[0];
    if (endpoint->state == RT_UCX_STATE_CONNECTING && link && endpoint->retry_at_ns == 0 &&
        (link->has_failed || now_ns >= endpoint->greetings[0].end_ns))
        retry_later(endpoint, "does not answer yet");
    for (uint32_t i = 0; i < RT_UCX_GREETINGS_MAX; i++) {
        rt_ucx_greeting *greeting = &endpoint->greetings[i];
        if (greeting->fd < 0 || now_ns < greeting->end_ns)
            continue;
        if (endpoint->state == RT_UCX_STATE_CONNECTING)
            retry_later(endpoint, "does not answer yet");
        else
            rt_ucx_end_greeting(greeting);
    }
}

// ---- progress --------------------------------------------------------------------------------

// Closes connections that failed and forgets those that have nothing left.
static void links_settle(rt_endpoint *endpoint)
{
    endpoint->port.is_changed = false;
    for (uint32_t i = 0; i < endpoint->link_count; i++) {
        rt_ucx_link *link = endpoint->links[i];
        if (!link || !link->has_failed)
            continue;
        rt_ucx_link **entry = link->peer ? rt_ucx_find_peer(endpoint, link->peer) : NULL;
        if (entry && *entry == link)
            *entry = NULL;
        rt_ucx_link_close(link);
        if (endpoint->state == RT_UCX_STATE_LISTENING && !link->ep && link->requests == 0 &&
            !rt_ucx_link_has_message(link)) {
            endpoint->links[i] = NULL;
            rt_ucx_link_destroy(link);
        }
    }
    while (endpoint->link_count > 1 && !endpoint->links[endpoint->link_count - 1])
        endpoint->link_count--;
}

// An attempt to connect begins.
void rt_ucx_start_connecting(rt_endpoint *endpoint)
{
    rt_ucx_greeting *greeting = &endpoint->greetings[0];
    uint32_t aside = 1; // where the connection of the attempt before waits for its end
    while (endpoint->links[0] && aside < RT_UCX_LINKS_MAX && endpoint->links[aside])
        aside++;
    if (aside == RT_UCX_LINKS_MAX) {
        retry_later(endpoint, "does not answer");
        return;
    }
    if (endpoint->links[0]) {
        rt_ucx_link_close(endpoint->links[0]);
        endpoint->links[aside] = endpoint->links[0];
        endpoint->links[0] = NULL;
        endpoint->link_count = (uint32_t)rt_max_u64(endpoint->link_count, aside + 1);
    }
    endpoint->retry_at_ns = 0;
    endpoint->has_greeted = false;
    greeting->used = 0;
    greeting->end_ns = rt_now_ns() + CONNECT_ATTEMPT_MS * RT_UCX_NS_PER_MS;
    greeting->fd = rt_ucx_door_connect(&endpoint->to, endpoint->to_length);
    if (greeting->fd < 0 || !rt_ucx_watch(endpoint, greeting->fd, RT_UCX_TAG_GREETING, 0, EPOLLOUT))
        retry_later(endpoint, "does not answer yet");
}

// An attempt failed: the next one comes later.
static void retry_later(rt_endpoint *endpoint, const char *reason)
{
    char name[32];
    rt_ucx_end_greeting(&endpoint->greetings[0]);
    endpoint->retry_at_ns = rt_now_ns() + RT_UCX_CONNECT_RETRY_MS * RT_UCX_NS_PER_MS;
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

void rt_ucx_progress(rt_endpoint *endpoint)
{
    for (uint32_t i = 0; i < PROGRESS_MAX && ucp_worker_progress(endpoint->port.worker); i++)
        ;
    if (endpoint->port.is_changed)
        links_settle(endpoint);
}

// The sockets too. After them, so that what came before an end is seen before it.
void rt_ucx_turn(rt_endpoint *endpoint)
{
    if (endpoint->state == RT_UCX_STATE_CONNECTING && endpoint->retry_at_ns &&
        rt_now_ns() >= endpoint->retry_at_ns)
        rt_ucx_start_connecting(endpoint);
    doors_look(endpoint);
    greetings_expire(endpoint);
    rt_ucx_progress(endpoint);
}
