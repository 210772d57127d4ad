#include "runtime/http/rt_http_patience.h"

#include <pthread.h>
#include <sys/socket.h>
#include <time.h>

#include "runtime/rt_thread.h"

#define LOOKS_PER_LIMIT 4u

struct rt_http_guest {
    rt_http_guest *next, *before;
    int socket;
    bool has_request;
    uint64_t since_ns; // it waits
};

struct rt_http_patience {
    uint64_t limit_ns;
    pthread_t thread;
    bool started;
    pthread_mutex_t lock; // all below
    pthread_cond_t changed;
    bool stops;
    rt_http_guest guests; // a ring
};

static void end_the_slow(rt_http_patience *p)
{
    const uint64_t now = rt_now_ns();
    for (rt_http_guest *one = p->guests.next; one != &p->guests; one = one->next)
        if (!one->has_request && now - one->since_ns > p->limit_ns)
            (void)shutdown(one->socket, SHUT_RDWR); // its owner sees an end
}

static void *look(void *context)
{
    rt_http_patience *p = context;
    pthread_mutex_lock(&p->lock);
    while (!p->stops) {
        const uint64_t next_ns = rt_now_ns() + p->limit_ns / LOOKS_PER_LIMIT;
        const struct timespec next = {(time_t)(next_ns / 1000000000u),
                                      (long)(next_ns % 1000000000u)};
        (void)pthread_cond_timedwait(&p->changed, &p->lock, &next);
        end_the_slow(p);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

rt_status rt_http_patience_open(double limit_s, rt_http_patience **patience_p)
{
    pthread_condattr_t clock;
    rt_http_patience *p = rt_alloc(1, sizeof *p);
    if (!p)
        return RT_NO_MEMORY;
    p->limit_ns = (uint64_t)(limit_s * 1e9);
    p->guests.next = p->guests.before = &p->guests;
    pthread_mutex_init(&p->lock, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&p->changed, &clock);
    pthread_condattr_destroy(&clock);
    p->started = rt_thread_start(&p->thread, look, p) == 0;
    if (!p->started) {
        rt_http_patience_close(p);
        return RT_LIMIT;
    }
    *patience_p = p;
    return RT_OK;
}

void rt_http_patience_close(rt_http_patience *p)
{
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    p->stops = true;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    if (p->started)
        pthread_join(p->thread, NULL);
    for (rt_http_guest *one = p->guests.next, *next; one != &p->guests; one = next) {
        next = one->next;
        rt_free(one);
    }
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
    rt_free(p);
}

rt_http_guest *rt_http_patience_enter(rt_http_patience *p, int socket)
{
    rt_http_guest *one = rt_alloc(1, sizeof *one);
    if (!one)
        return NULL;
    pthread_mutex_lock(&p->lock);
    *one = (rt_http_guest){
        .next = &p->guests, .before = p->guests.before, .socket = socket, .since_ns = rt_now_ns()};
    one->next->before = one->before->next = one;
    pthread_mutex_unlock(&p->lock);
    return one;
}

void rt_http_patience_leave(rt_http_patience *p, rt_http_guest *one)
{
    if (!one)
        return;
    pthread_mutex_lock(&p->lock);
    one->next->before = one->before;
    one->before->next = one->next;
    pthread_mutex_unlock(&p->lock);
    rt_free(one);
}

void rt_http_patience_note(rt_http_patience *p, rt_http_guest *one, bool has_request)
{
    if (!one)
        return;
    pthread_mutex_lock(&p->lock);
    one->has_request = has_request;
    one->since_ns = rt_now_ns();
    pthread_mutex_unlock(&p->lock);
}
