#include "runtime/rt_thread.h"

#include <pthread.h>
#include <signal.h>

int rt_thread_detach(void *(*run)(void *), void *context)
{
    sigset_t all, before;
    pthread_t thread;
    pthread_attr_t detached;
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int reason = pthread_create(&thread, &detached, run, context);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&detached);
    return reason;
}
