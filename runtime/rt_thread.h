// rt_thread - a thread that nobody joins, for waits that may last as long as a disk does; and how
// many threads are worth starting.
#ifndef RT_THREAD_H
#define RT_THREAD_H

#include "runtime/rt_base.h"

// Runs run(context) in a detached thread that takes no signals: they are for the threads that were
// there before. 0, or an errno: nothing was started.
int rt_thread_detach(void *(*run)(void *), void *context);

// The cores that this process may use: those of its affinity mask, and no more than its control
// group gets time for (cpu.max, rounded up). At least 1.
uint32_t rt_thread_cores(void);

// Of these, what falls to one of sharer_count processes (at least 1) that share them, in turn by
// number: at least 1, and where there are enough cores no more than all of them together.
uint32_t rt_thread_share(uint32_t core_count, uint32_t sharer_count, uint32_t number);

#endif
