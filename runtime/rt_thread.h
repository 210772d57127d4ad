// rt_thread - a thread that nobody joins, for waits that may last as long as a disk does.
#ifndef RT_THREAD_H
#define RT_THREAD_H

// Runs run(context) in a detached thread that takes no signals: they are for the threads that were
// there before. 0, or an errno: nothing was started.
int rt_thread_detach(void *(*run)(void *), void *context);

#endif
