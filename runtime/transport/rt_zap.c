#include "runtime/transport/rt_zmq_parts.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <zmq.h>

#include "runtime/config/rt_address.h"
#include "runtime/rt_log.h"
#include "runtime/rt_thread.h"

#define ZAP_ADDRESS "inproc://zeromq.zap.01" // ZeroMQ RFC 27
#define ZAP_VERSION "1.0"
#define ZAP_FRAMES 7 // version, request, domain, address, identity, mechanism, credentials
#define FRAME_BYTES_MAX 256
#define DOMAIN "lanyard"
#define LISTENERS_MAX 8
#define LOOK_MS 200 // for new listeners
#define SERVERS_MAX (1 + RT_SHARDS_MAX + RT_WORKERS_MAX)

// A listener whose refused connections are counted; its monitor belongs to the thread.
typedef struct {
    void *monitor; // NULL: none (any more)
    char address[RT_NAME_MAX];
    char last[INET6_ADDRSTRLEN + 16]; // who connected last
    rt_log_limit refused;
} watched;

struct rt_zap {
    void *context;
    rt_keys keys;
    rt_public_key more[RT_BOXES_MAX]; // rt_zap_allow
    atomic_uint more_count;           // entries below it are complete
    struct {
        uint32_t peer; // 0: none
        uint8_t key[RT_KEY_BYTES];
    } servers[SERVERS_MAX];
    pthread_t thread;
    bool has_thread;
    void *requests; // the thread's
    rt_log_limit unknown;
    watched listeners[LISTENERS_MAX];
    atomic_uint listener_count; // entries below it are complete
};

bool rt_zap_has_keys(const rt_zap *zap, const char *address)
{
    return zap && zap->keys.is_set && strncmp(address, "tcp://", strlen("tcp://")) == 0;
}

rt_status rt_zap_check_address(const rt_zap *zap, const char *address, rt_error *error)
{
    return rt_address_check(rt_zap_has_keys(zap, address), zap && zap->keys.is_insecure, address,
                            error);
}

// NULL: nobody's whom we know.
static const char *find_name(const rt_zap *zap, const uint8_t key[RT_KEY_BYTES])
{
    const char *name = rt_keys_find(&zap->keys, key);
    const uint32_t count = atomic_load_explicit(&zap->more_count, memory_order_acquire);
    for (uint32_t i = 0; i < count && !name; i++)
        if (memcmp(zap->more[i].bytes, key, RT_KEY_BYTES) == 0)
            name = zap->more[i].name;
    return name;
}

static bool has_name(const rt_zap *zap, uint32_t more_count, const char *name)
{
    bool found = strcmp(zap->keys.own.name, name) == 0;
    for (uint32_t i = 0; i < zap->keys.allowed_count; i++)
        found |= strcmp(zap->keys.allowed[i].name, name) == 0;
    for (uint32_t i = 0; i < more_count; i++)
        found |= strcmp(zap->more[i].name, name) == 0;
    return found;
}

rt_status rt_zap_allow(rt_zap *zap, const rt_public_key *key, rt_error *error)
{
    const uint32_t at = atomic_load_explicit(&zap->more_count, memory_order_relaxed);
    if (!zap->keys.is_set || find_name(zap, key->bytes))
        return RT_OK;
    if (has_name(zap, at, key->name))
        return rt_fail(error, RT_CONFIG, "%s: security.allow has another key of that name",
                       key->name);
    if (at == RT_BOXES_MAX)
        return rt_fail(error, RT_LIMIT, "more than %u boxes were added", RT_BOXES_MAX);
    zap->more[at] = *key;
    atomic_store_explicit(&zap->more_count, at + 1, memory_order_release);
    return RT_OK;
}

// ---- the thread ------------------------------------------------------------------------------

typedef struct {
    uint8_t bytes[FRAME_BYTES_MAX + 1];
    size_t size;
} frame;

static bool frame_is(const frame *one, const char *text)
{
    return one->size == strlen(text) && memcmp(one->bytes, text, one->size) == 0;
}

// A whole request; false when there is none. It comes from libzmq itself, but holds a peer's bytes.
static bool receive_request(void *socket, frame frames[ZAP_FRAMES], int *count_p)
{
    int more = 1;
    size_t size = sizeof more;
    for (*count_p = 0; more; ++*count_p) {
        frame spare, *to = *count_p < ZAP_FRAMES ? &frames[*count_p] : &spare;
        int got = zmq_recv(socket, to->bytes, FRAME_BYTES_MAX, ZMQ_DONTWAIT);
        if (got < 0)
            return false;
        to->size = rt_min_u64((uint64_t)got, FRAME_BYTES_MAX);
        to->bytes[to->size] = '\0';
        if (zmq_getsockopt(socket, ZMQ_RCVMORE, &more, &size) != 0)
            return false;
    }
    return true;
}

static void log_unknown(rt_zap *zap, const frame frames[ZAP_FRAMES])
{
    char key[RT_KEY_TEXT_SIZE];
    uint64_t count;
    if (!rt_log_due(&zap->unknown, &count))
        return;
    rt_warn("refused %" PRIu64 " connections, the last from %s with the key %s, which "
            "security.allow does not have",
            count, (const char *)frames[3].bytes, rt_key_text(frames[6].bytes, key));
}

static void answer(rt_zap *zap, const frame frames[ZAP_FRAMES], int count)
{
    const char *name = NULL;
    const frame *request = &frames[1];
    if (count == ZAP_FRAMES && frame_is(&frames[0], ZAP_VERSION) && frame_is(&frames[5], "CURVE") &&
        frames[6].size == RT_KEY_BYTES) {
        name = find_name(zap, frames[6].bytes);
        if (!name)
            log_unknown(zap, frames);
    }
    const char *texts[] = {"400", "unknown key", "", ""};
    if (name) {
        texts[0] = "200";
        texts[1] = "OK";
        texts[2] = name;
    }
    (void)zmq_send(zap->requests, ZAP_VERSION, strlen(ZAP_VERSION), ZMQ_SNDMORE);
    (void)zmq_send(zap->requests, request->bytes, count > 1 ? request->size : 0, ZMQ_SNDMORE);
    for (size_t i = 0; i < RT_COUNT_OF(texts); i++) {
        const int more = i + 1 < RT_COUNT_OF(texts) ? ZMQ_SNDMORE : 0;
        (void)zmq_send(zap->requests, texts[i], strlen(texts[i]), more);
    }
}

static void note_peer(watched *listener, int descriptor)
{
    struct sockaddr_storage peer;
    socklen_t size = sizeof peer;
    if (getpeername(descriptor, (struct sockaddr *)&peer, &size) != 0)
        return; // gone already
    const void *address = peer.ss_family == AF_INET
                              ? (void *)&((struct sockaddr_in *)&peer)->sin_addr
                              : (void *)&((struct sockaddr_in6 *)&peer)->sin6_addr;
    (void)inet_ntop(peer.ss_family, address, listener->last, sizeof listener->last);
}

// Takes one event of a listener; false when there is none.
static bool take_event(watched *listener)
{
    uint8_t bytes[6]; // zmq_socket_monitor(3): 16 bits event, 32 bits value; then the address
    uint16_t event;
    int32_t value;
    uint64_t count;
    if (zmq_recv(listener->monitor, bytes, sizeof bytes, ZMQ_DONTWAIT) != (int)sizeof bytes)
        return false;
    (void)zmq_recv(listener->monitor, NULL, 0, ZMQ_DONTWAIT);
    memcpy(&event, bytes, sizeof event);
    memcpy(&value, bytes + sizeof event, sizeof value);
    if (event == ZMQ_EVENT_ACCEPTED)
        note_peer(listener, value);
    else if (event == ZMQ_EVENT_MONITOR_STOPPED) {
        zmq_close(listener->monitor);
        listener->monitor = NULL;
        return false;
    } else if (rt_log_due(&listener->refused, &count)) {
        rt_warn("%s: %" PRIu64 " connections did not prove a key, the last from %s",
                listener->address, count, listener->last);
    }
    return true;
}

// Waits for and takes what there is; false when the context has ended.
static bool serve(rt_zap *zap)
{
    frame frames[ZAP_FRAMES];
    zmq_pollitem_t items[1 + LISTENERS_MAX] = {{zap->requests, 0, ZMQ_POLLIN, 0}};
    watched *polled[1 + LISTENERS_MAX];
    const uint32_t listeners = atomic_load_explicit(&zap->listener_count, memory_order_acquire);
    int item_count = 1, frame_count;
    for (uint32_t i = 0; i < listeners; i++) {
        if (!zap->listeners[i].monitor)
            continue;
        polled[item_count] = &zap->listeners[i];
        items[item_count++] = (zmq_pollitem_t){zap->listeners[i].monitor, 0, ZMQ_POLLIN, 0};
    }
    if (zmq_poll(items, item_count, LOOK_MS) < 0)
        return errno == EINTR;
    if (items[0].revents) {
        if (receive_request(zap->requests, frames, &frame_count))
            answer(zap, frames, frame_count);
        else if (errno == ETERM)
            return false;
    }
    for (int i = 1; i < item_count; i++)
        while (items[i].revents && take_event(polled[i]))
            ;
    return true;
}

static void *run(void *argument)
{
    rt_zap *zap = argument;
    while (serve(zap))
        ;
    const uint32_t listeners = atomic_load_explicit(&zap->listener_count, memory_order_acquire);
    for (uint32_t i = 0; i < listeners; i++)
        if (zap->listeners[i].monitor)
            zmq_close(zap->listeners[i].monitor);
    zmq_close(zap->requests);
    return NULL;
}

rt_status rt_zap_create(void *context, const rt_keys *keys, rt_zap **zap_p, rt_error *error)
{
    rt_zap *zap = rt_alloc(1, sizeof *zap);
    if (!zap)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    zap->context = context;
    zap->keys = *keys;
    int linger = 0, reason = 0;
    if (keys->is_set) {
        zap->servers[0].peer = rt_peer(RT_ROLE_COORDINATOR, 0);
        memcpy(zap->servers[0].key, keys->coordinator.bytes, RT_KEY_BYTES);
        zap->requests = zmq_socket(context, ZMQ_REP);
        if (!zap->requests ||
            zmq_setsockopt(zap->requests, ZMQ_LINGER, &linger, sizeof linger) != 0 ||
            zmq_bind(zap->requests, ZAP_ADDRESS) != 0)
            reason = errno;
        else
            reason = rt_thread_start(&zap->thread, run, zap);
        zap->has_thread = reason == 0;
    }
    if (reason == 0) {
        *zap_p = zap;
        return RT_OK;
    }
    if (zap->requests)
        zmq_close(zap->requests);
    rt_zap_destroy(zap);
    return rt_fail(error, RT_IO, "cannot start checking keys: %s", zmq_strerror(reason));
}

void rt_zap_destroy(rt_zap *zap)
{
    if (!zap)
        return;
    if (zap->has_thread)
        pthread_join(zap->thread, NULL);
    rt_keys_clear(&zap->keys);
    rt_free(zap);
}

// ---- sockets ---------------------------------------------------------------------------------

rt_status rt_zap_trust(rt_zap *zap, uint32_t server, const uint8_t key[RT_KEY_BYTES],
                       rt_error *error)
{
    char name[32], text[RT_KEY_TEXT_SIZE];
    size_t at = 0;
    if (!zap->keys.is_set)
        return RT_OK;
    if (!find_name(zap, key))
        return rt_fail(error, RT_CONFIG, "%s has the key %s, which security.allow does not have",
                       rt_peer_name(server, name), rt_key_text(key, text));
    while (at < SERVERS_MAX && zap->servers[at].peer && zap->servers[at].peer != server)
        at++;
    rt_assert(at < SERVERS_MAX);
    zap->servers[at].peer = server;
    memcpy(zap->servers[at].key, key, RT_KEY_BYTES);
    return RT_OK;
}

bool rt_zap_guard_client(rt_zap *zap, void *socket, const char *address, uint32_t server)
{
    if (!rt_zap_has_keys(zap, address))
        return true;
    for (size_t i = 0; i < SERVERS_MAX; i++) {
        if (zap->servers[i].peer != server)
            continue;
        return zmq_setsockopt(socket, ZMQ_CURVE_SERVERKEY, zap->servers[i].key, RT_KEY_BYTES) ==
                   0 &&
               zmq_setsockopt(socket, ZMQ_CURVE_PUBLICKEY, zap->keys.own.bytes, RT_KEY_BYTES) ==
                   0 &&
               zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, zap->keys.secret, RT_KEY_BYTES) == 0;
    }
    errno = EACCES;
    return false;
}

// Failing to watch costs log lines only.
void rt_zap_watch(rt_zap *zap, void *socket, const char *address)
{
    char name[48];
    if (!rt_zap_has_keys(zap, address))
        return;
    const uint32_t at = atomic_load_explicit(&zap->listener_count, memory_order_relaxed);
    if (at == LISTENERS_MAX)
        return;
    watched *listener = &zap->listeners[at];
    snprintf(name, sizeof name, "inproc://refused-%u", at);
    snprintf(listener->address, sizeof listener->address, "%s", address);
    snprintf(listener->last, sizeof listener->last, "an address that is gone");
    const int events = ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL |
                       ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_MONITOR_STOPPED;
    if (zmq_socket_monitor(socket, name, events) != 0 ||
        !(listener->monitor = zmq_socket(zap->context, ZMQ_PAIR)))
        return;
    if (zmq_connect(listener->monitor, name) != 0) {
        zmq_close(listener->monitor);
        return;
    }
    atomic_store_explicit(&zap->listener_count, at + 1, memory_order_release);
}

bool rt_zap_guard_listener(rt_zap *zap, void *socket, const char *address)
{
    const int yes = 1;
    if (!rt_zap_has_keys(zap, address))
        return true;
    return zmq_setsockopt(socket, ZMQ_CURVE_SERVER, &yes, sizeof yes) == 0 &&
           zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, zap->keys.secret, RT_KEY_BYTES) == 0 &&
           zmq_setsockopt(socket, ZMQ_ZAP_DOMAIN, DOMAIN, strlen(DOMAIN)) == 0;
}
