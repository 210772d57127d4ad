#define _GNU_SOURCE // sched_getaffinity
#include "runtime/rt_thread.h"

#include <errno.h>
#include <sched.h>

#include "runtime/rt_group.h"
#include "runtime/rt_locale.h"

sigset_t rt_thread_hold_signals(void)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    return before;
}

void rt_thread_take_signals(sigset_t before)
{
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

typedef struct {
    void *(*run)(void *);
    void *context;
} beginning;

// A thread begins in the locale of its process, which may be that of a host (rt_locale.h).
static void *begin(void *context)
{
    const beginning b = *(beginning *)context;
    rt_free(context);
    (void)rt_locale_enter();
    return b.run(b.context);
}

static int start(pthread_t *thread, const pthread_attr_t *how, void *(*run)(void *), void *context)
{
    beginning *b = rt_alloc(1, sizeof *b);
    if (!b)
        return ENOMEM;
    *b = (beginning){run, context};
    const sigset_t before = rt_thread_hold_signals();
    const int reason = pthread_create(thread, how, begin, b);
    rt_thread_take_signals(before);
    if (reason)
        rt_free(b);
    return reason;
}

int rt_thread_start(pthread_t *thread, void *(*run)(void *), void *context)
{
    return start(thread, NULL, run, context);
}

rt_status rt_thread_refusal(int reason)
{
    return reason == ENOMEM ? RT_NO_MEMORY : RT_LIMIT;
}

rt_status rt_thread_run(pthread_t *thread, bool *runs_p, void *(*run)(void *), void *context,
                        rt_error *error)
{
    const int reason = rt_thread_start(thread, run, context);
    *runs_p = reason == 0;
    if (reason)
        return rt_fail(error, rt_thread_refusal(reason), "cannot start a thread");
    return RT_OK;
}

int rt_thread_detach(void *(*run)(void *), void *context)
{
    pthread_t thread;
    pthread_attr_t detached;
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    const int reason = start(&thread, &detached, run, context);
    pthread_attr_destroy(&detached);
    return reason;
}

uint32_t rt_thread_cores(void)
{
    cpu_set_t mask; // of 1,024 cores; a machine with more refuses, and counts as one
    const bool known = sched_getaffinity(0, sizeof mask, &mask) == 0;
    const uint64_t limit = rt_group_cores();
    uint64_t allowed = known ? (uint64_t)CPU_COUNT(&mask) : 1;
    if (limit)
        allowed = rt_min_u64(allowed, limit);
    return (uint32_t)rt_max_u64(1, allowed);
}

uint32_t rt_thread_share(uint32_t core_count, uint32_t sharer_count, uint32_t number)
{
    const uint32_t each = core_count / sharer_count, left = core_count % sharer_count;
    const uint32_t share = each + (number % sharer_count < left);
    return (uint32_t)rt_max_u64(share, 1);
}
