// rt_ucx_endpoint - an endpoint over UCX and how its connections come about; for rt_ucx_transport.c only.
//
// One thread at a time. Everything moves in rt_ucx_progress (what came by UCX) and rt_ucx_turn (the
// sockets too: who comes, who has gone, the next attempt to connect).
#ifndef RT_UCX_ENDPOINT_H
#define RT_UCX_ENDPOINT_H

#include <pthread.h>

#include "runtime/config/rt_config.h"
#include "runtime/transport/rt_transport.h"
#include "runtime/transport/ucx/rt_ucx_door.h"
#include "runtime/transport/ucx/rt_ucx_link.h"

#define RT_UCX_NS_PER_MS UINT64_C(1000000)
#define RT_UCX_CONNECT_RETRY_MS 200u // between attempts
#define RT_UCX_EARLY_MESSAGES_MAX 8u // kept until the connection stands
#define RT_UCX_LINKS_MAX 160u        // of a listener
#define RT_UCX_GREETINGS_MAX 16u     // heard at a time; then the oldest gives way

// What a descriptor in an endpoint's epoll set is; its index is in the low half of the tag.
typedef enum {
    RT_UCX_TAG_UCX,
    RT_UCX_TAG_LISTENER,
    RT_UCX_TAG_GREETING,
    RT_UCX_TAG_LINK
} rt_ucx_tag;

typedef enum {
    RT_UCX_STATE_LISTENING,
    RT_UCX_STATE_CONNECTING,
    RT_UCX_STATE_UP,
    RT_UCX_STATE_GONE
} rt_ucx_state;

struct rt_endpoint {
    rt_transport *transport;
    ucp_context_h context;
    rt_ucx_port port;
    int ucx_fd;
    int fd;       // of an epoll set with ucx_fd and all sockets
    int listener; // -1: it connects
    rt_ucx_state state;
    uint32_t server; // connected to
    struct sockaddr_storage to;
    socklen_t to_length;
    uint64_t retry_at_ns; // 0: an attempt is under way
    bool has_greeted;
    bool retry_logged;
    uint32_t early_count, send_count;
    rt_message early[RT_UCX_EARLY_MESSAGES_MAX];
    rt_ucx_link *links[RT_UCX_LINKS_MAX]; // by slot; the first one of an endpoint that connects
    uint32_t link_count;                  // slots in use, about: none above
    uint32_t next;                        // slot that is read next
    uint64_t connection_count;
    rt_ucx_greeting greetings[RT_UCX_GREETINGS_MAX]; // the first one of an endpoint that connects
    uint32_t next_greeting;
    rt_ucx_link *peers[RT_ROLES][RT_RANKS_MAX]; // of a listener
    char address[RT_PATH_MAX];
    uint32_t linger_ms;
    pthread_t thread;
    rt_endpoint *next_lingering;
};

// The table entry of a peer of a listener; NULL when there can be no such peer.
rt_ucx_link **rt_ucx_find_peer(rt_endpoint *endpoint, uint32_t peer);

// Adds a socket to the endpoint's epoll set, or changes what it is watched for.
bool rt_ucx_watch(rt_endpoint *endpoint, int fd, rt_ucx_tag kind, uint32_t index, uint32_t events);
void rt_ucx_end_greeting(rt_ucx_greeting *greeting);
void rt_ucx_start_connecting(rt_endpoint *endpoint);

void rt_ucx_progress(rt_endpoint *endpoint);
void rt_ucx_turn(rt_endpoint *endpoint);

// UCX's handler of active messages.
ucs_status_t rt_ucx_take_frame(void *context, const void *header, size_t header_length, void *data,
                               size_t length, const ucp_am_recv_param_t *param);

#endif
