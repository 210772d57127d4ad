// rt_thread - threads that take no signals: those are for the threads that were there before, which
// look at their flags. And how many threads are worth starting.
#ifndef RT_THREAD_H
#define RT_THREAD_H

#include <pthread.h>
#include <signal.h>

#include "runtime/rt_base.h"

// Runs run(context) in a thread that the caller joins. 0, or an errno: nothing was started.
int rt_thread_start(pthread_t *thread, void *(*run)(void *), void *context);
rt_status rt_thread_refusal(int reason); // as a status: RT_NO_MEMORY, RT_LIMIT

// The same for an object that joins it where it ends: *runs_p says whether there is one to join.
// RT_LIMIT, RT_NO_MEMORY: it could not be started.
rt_status rt_thread_run(pthread_t *thread, bool *runs_p, void *(*run)(void *), void *context,
                        rt_error *error);

// The same in a detached one, for waits that may last as long as a disk does.
int rt_thread_detach(void *(*run)(void *), void *context);

// Around what starts threads by itself (a library): they take no signals either.
sigset_t rt_thread_hold_signals(void); // those that the caller held before
void rt_thread_take_signals(sigset_t before);

// The cores that this process may use: those of its affinity mask, and no more than its control
// groups get time for (rt_group.h). At least 1. Whoever starts threads by number of cores asks here.
uint32_t rt_thread_cores(void);

// Of these, what falls to one of sharer_count processes (at least 1) that share them, in turn by
// number: at least 1, and where there are enough cores no more than all of them together.
uint32_t rt_thread_share(uint32_t core_count, uint32_t sharer_count, uint32_t number);

#endif
