#include "runtime/http/rt_http_guests.h"

#include <netinet/in.h>
#include <pthread.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>

#include "runtime/rt_thread.h"

#define LOOK_NS UINT64_C(500000000)
#define LOOK_FULL_NS UINT64_C(25000000)
#define SLOW_SHARE 0.01 // of what a guest may take: from then on it is slow
#define KNOWN_NS UINT64_C(3600000000000)
#define KNOWN_SHARE 4u  // one of so many places is for those that are known
#define REMEMBERED 256u // addresses without a guest
#define ADDRESS_BYTES 16u
#define NETWORK_BYTES 8u // of an IPv6 address: who has one has all of its network
#define UNREAD_MAX 16u   // guests with something to read that are passed over in one search

typedef struct {
    uint8_t address[ADDRESS_BYTES];
    uint32_t guest_count;
    uint32_t waiting_count; // of them, those that could go: while one is looked for
    uint64_t known_ns;      // 0: it has shown nothing
    uint64_t seen_ns;
} host;

struct rt_http_guest {
    rt_http_guest *next, *before;
    int socket;
    uint32_t host;
    rt_http_guest_state state;
    bool is_ending, is_passed_over;
    uint64_t since_ns; // that it is in this state
    uint64_t bytes;    // that it sent in it
};

struct rt_http_guests {
    rt_http_guests_config config;
    pthread_t thread;
    bool started;
    pthread_mutex_t lock; // all below
    pthread_cond_t changed;
    bool stops, is_full;
    rt_http_guest guests; // a ring, in the order in which they came
    uint32_t guest_count, ending_count;
    host *hosts;
    uint32_t host_count, host_capacity;
};

// ---- addresses -------------------------------------------------------------------------------

static void address_of(const struct sockaddr *from, uint8_t address[ADDRESS_BYTES])
{
    memset(address, 0, ADDRESS_BYTES);
    if (from && from->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)from;
        memcpy(address + ADDRESS_BYTES - 4, &in->sin_addr, 4);
    } else if (from && from->sa_family == AF_INET6) {
        const struct in6_addr *in6 = &((const struct sockaddr_in6 *)from)->sin6_addr;
        if (IN6_IS_ADDR_V4MAPPED(in6))
            memcpy(address + ADDRESS_BYTES - 4, in6->s6_addr + ADDRESS_BYTES - 4, 4);
        else
            memcpy(address, in6->s6_addr, NETWORK_BYTES);
    }
}

// Its entry; that of the address without guests that was seen first makes room.
static uint32_t take_host(rt_http_guests *g, const uint8_t address[ADDRESS_BYTES])
{
    uint32_t place = g->host_count;
    for (uint32_t i = 0; i < g->host_count; i++)
        if (memcmp(g->hosts[i].address, address, ADDRESS_BYTES) == 0)
            return i;
    if (g->host_count < g->host_capacity) {
        g->host_count++;
    } else {
        for (uint32_t i = 0; i < g->host_count; i++)
            if (g->hosts[i].guest_count == 0 &&
                (place == g->host_count || g->hosts[i].seen_ns < g->hosts[place].seen_ns))
                place = i;
    }
    if (place == g->host_count && place == g->host_capacity)
        return UINT32_MAX; // more guests than places
    g->hosts[place] = (host){.seen_ns = rt_now_ns()};
    memcpy(g->hosts[place].address, address, ADDRESS_BYTES);
    return place;
}

static bool is_known(const rt_http_guests *g, const rt_http_guest *one)
{
    const uint64_t known_ns = g->hosts[one->host].known_ns;
    return known_ns && rt_now_ns() - known_ns < KNOWN_NS;
}

// ---- who goes --------------------------------------------------------------------------------

static void end_guest(rt_http_guests *g, rt_http_guest *one)
{
    if (one->is_ending)
        return;
    one->is_ending = true;
    g->ending_count++;
    (void)shutdown(one->socket, SHUT_RDWR); // its owner sees an end
}

// Its time, as a share of what it may take.
static double slowness(const rt_http_guests *g, const rt_http_guest *one, uint64_t now_ns)
{
    const rt_http_guests_config *config = &g->config;
    const double passed_s = (double)(now_ns - one->since_ns) * 1e-9;
    double may_s = config->head_s;
    if (one->state == RT_HTTP_GUEST_IDLE || one->state == RT_HTTP_GUEST_READING)
        may_s += config->idle_s;
    else if (one->state == RT_HTTP_GUEST_SENDING)
        may_s = config->body_s + (double)one->bytes / config->body_bytes_per_s;
    return passed_s / may_s;
}

static bool may_go(const rt_http_guests *g, const rt_http_guest *one)
{
    const rt_http_guest *newest = g->guests.before;
    return one != newest && !one->is_ending && one->state != RT_HTTP_GUEST_SERVED;
}

// Whether one goes before another. Both may go.
static bool goes_first(const rt_http_guests *g, const rt_http_guest *one,
                       const rt_http_guest *other, uint64_t now_ns)
{
    const bool is_known_one = is_known(g, one), is_known_other = is_known(g, other);
    if (is_known_one != is_known_other)
        return !is_known_one;
    const uint32_t count = g->hosts[one->host].waiting_count;
    const uint32_t other_count = g->hosts[other->host].waiting_count;
    if (count != other_count)
        return count > other_count;
    return slowness(g, one, now_ns) > slowness(g, other, now_ns);
}

static bool has_unread(const rt_http_guest *one)
{
    int count = 0;
    return ioctl(one->socket, FIONREAD, &count) == 0 && count > 0;
}

static rt_http_guest *find_first(const rt_http_guests *g, bool strangers_only, uint64_t now_ns)
{
    rt_http_guest *first = NULL;
    for (rt_http_guest *one = g->guests.next; one != &g->guests; one = one->next) {
        const bool is_asked = may_go(g, one) && !one->is_passed_over &&
                              !(strangers_only && is_known(g, one)) &&
                              slowness(g, one, now_ns) >= SLOW_SHARE;
        if (is_asked && (!first || goes_first(g, one, first, now_ns)))
            first = one;
    }
    return first;
}

// What a guest has sent and nobody has read may be what makes it worth its place.
static void end_one(rt_http_guests *g, bool strangers_only)
{
    const uint64_t now_ns = rt_now_ns();
    rt_http_guest *first = NULL;
    for (uint32_t i = 0; i < UNREAD_MAX; i++) {
        first = find_first(g, strangers_only, now_ns);
        if (!first || !has_unread(first))
            break;
        first->is_passed_over = true;
        first = NULL;
    }
    for (rt_http_guest *one = g->guests.next; one != &g->guests; one = one->next)
        one->is_passed_over = false;
    if (first)
        end_guest(g, first);
}

static uint32_t count_strangers(rt_http_guests *g)
{
    uint32_t strangers = 0;
    for (uint32_t i = 0; i < g->host_count; i++)
        g->hosts[i].waiting_count = 0;
    for (const rt_http_guest *one = g->guests.next; one != &g->guests; one = one->next) {
        const bool waits = !one->is_ending && one->state != RT_HTTP_GUEST_SERVED;
        g->hosts[one->host].waiting_count += waits;
        strangers += waits && !is_known(g, one);
    }
    return strangers;
}

// So that the next one finds a place. Where nobody is slow, the thread looks again soon.
static void make_room(rt_http_guests *g)
{
    const uint32_t places = g->config.places, open = places - places / KNOWN_SHARE;
    const bool was_full = g->is_full;
    const uint32_t count = g->guest_count - g->ending_count;
    g->is_full = count >= open && (count_strangers(g) >= open || count >= places);
    if (!g->is_full)
        return;
    end_one(g, count < places);
    if (!was_full)
        pthread_cond_signal(&g->changed);
}

// ---- time ------------------------------------------------------------------------------------

static void end_the_slow(rt_http_guests *g)
{
    const uint64_t now_ns = rt_now_ns();
    for (rt_http_guest *one = g->guests.next; one != &g->guests; one = one->next)
        if (one->state < RT_HTTP_GUEST_SERVED && slowness(g, one, now_ns) > 1)
            end_guest(g, one);
}

static void *look(void *context)
{
    rt_http_guests *g = context;
    pthread_mutex_lock(&g->lock);
    while (!g->stops) {
        const uint64_t next_ns = rt_now_ns() + (g->is_full ? LOOK_FULL_NS : LOOK_NS);
        const struct timespec next = {(time_t)(next_ns / 1000000000u),
                                      (long)(next_ns % 1000000000u)};
        (void)pthread_cond_timedwait(&g->changed, &g->lock, &next);
        if (g->config.ends_late)
            end_the_slow(g);
        make_room(g);
    }
    pthread_mutex_unlock(&g->lock);
    return NULL;
}

// ---- opening and closing ---------------------------------------------------------------------

rt_status rt_http_guests_open(const rt_http_guests_config *config, rt_http_guests **guests_p)
{
    pthread_condattr_t clock;
    rt_http_guests *g = rt_alloc(1, sizeof *g);
    if (!g)
        return RT_NO_MEMORY;
    g->config = *config;
    g->guests.next = g->guests.before = &g->guests;
    pthread_mutex_init(&g->lock, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&g->changed, &clock);
    pthread_condattr_destroy(&clock);
    g->host_capacity = 2 * config->places + REMEMBERED;
    g->hosts = rt_alloc(g->host_capacity, sizeof *g->hosts);
    if (!g->hosts) {
        rt_http_guests_close(g);
        return RT_NO_MEMORY;
    }
    g->started = rt_thread_start(&g->thread, look, g) == 0;
    if (!g->started) {
        rt_http_guests_close(g);
        return RT_LIMIT;
    }
    *guests_p = g;
    return RT_OK;
}

void rt_http_guests_close(rt_http_guests *g)
{
    if (!g)
        return;
    pthread_mutex_lock(&g->lock);
    g->stops = true;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
    if (g->started)
        pthread_join(g->thread, NULL);
    for (rt_http_guest *one = g->guests.next, *next; one != &g->guests; one = next) {
        next = one->next;
        rt_free(one);
    }
    rt_free(g->hosts);
    pthread_cond_destroy(&g->changed);
    pthread_mutex_destroy(&g->lock);
    rt_free(g);
}

// ---- what owners tell ------------------------------------------------------------------------

rt_http_guest *rt_http_guests_enter(rt_http_guests *g, int socket, const struct sockaddr *from)
{
    uint8_t address[ADDRESS_BYTES];
    rt_http_guest *one = rt_alloc(1, sizeof *one);
    if (!one)
        return NULL;
    address_of(from, address);
    pthread_mutex_lock(&g->lock);
    const uint32_t place = take_host(g, address);
    if (place != UINT32_MAX) {
        *one = (rt_http_guest){.next = &g->guests,
                               .before = g->guests.before,
                               .socket = socket,
                               .host = place,
                               .since_ns = rt_now_ns()};
        one->next->before = one->before->next = one;
        g->hosts[place].guest_count++;
        g->guest_count++;
        make_room(g);
    }
    pthread_mutex_unlock(&g->lock);
    if (place != UINT32_MAX)
        return one;
    rt_free(one);
    return NULL;
}

void rt_http_guests_leave(rt_http_guests *g, rt_http_guest *one)
{
    if (!one)
        return;
    pthread_mutex_lock(&g->lock);
    one->next->before = one->before;
    one->before->next = one->next;
    g->hosts[one->host].guest_count--;
    g->hosts[one->host].seen_ns = rt_now_ns();
    g->guest_count--;
    g->ending_count -= one->is_ending;
    pthread_mutex_unlock(&g->lock);
    rt_free(one);
}

void rt_http_guests_note(rt_http_guests *g, rt_http_guest *one, rt_http_guest_state state)
{
    if (!one)
        return;
    pthread_mutex_lock(&g->lock);
    one->state = state;
    one->bytes = 0;
    one->since_ns = rt_now_ns();
    if (state != RT_HTTP_GUEST_SERVED)
        make_room(g);
    pthread_mutex_unlock(&g->lock);
}

void rt_http_guests_note_bytes(rt_http_guests *g, rt_http_guest *one, size_t size)
{
    if (!one)
        return;
    pthread_mutex_lock(&g->lock);
    one->bytes += size;
    pthread_mutex_unlock(&g->lock);
}

void rt_http_guests_note_worth(rt_http_guests *g, rt_http_guest *one)
{
    if (!one)
        return;
    pthread_mutex_lock(&g->lock);
    g->hosts[one->host].known_ns = rt_now_ns();
    pthread_mutex_unlock(&g->lock);
}
