// test_clock - the clocks of a test: they run as ever until they are stopped, then they move by
// hand.
//
// Included by one file of a test program: it takes the place of the C library's function, for the
// program under test, too. Waits of the kernel (poll, pthread_cond_timedwait) know nothing of it.
#ifndef TEST_CLOCK_H
#define TEST_CLOCK_H

#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static struct {
    _Atomic int64_t monotonic_ns, realtime_ns; // what they show while they are stopped; 0: they run
} test_clock;

int clock_gettime(clockid_t id, struct timespec *now)
{
    int64_t at_ns = 0;
    if (id == CLOCK_MONOTONIC)
        at_ns = atomic_load(&test_clock.monotonic_ns);
    else if (id == CLOCK_REALTIME)
        at_ns = atomic_load(&test_clock.realtime_ns);
    if (!at_ns)
        return (int)syscall(SYS_clock_gettime, id, now);
    *now = (struct timespec){.tv_sec = at_ns / 1000000000, .tv_nsec = at_ns % 1000000000};
    return 0;
}

static inline int64_t test_clock_of(clockid_t id)
{
    struct timespec now;
    (void)clock_gettime(id, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static inline void test_clock_stop(void)
{
    atomic_store(&test_clock.monotonic_ns, test_clock_of(CLOCK_MONOTONIC));
    atomic_store(&test_clock.realtime_ns, test_clock_of(CLOCK_REALTIME));
}

// Those that are stopped.
static inline void test_clock_move(double seconds)
{
    atomic_fetch_add(&test_clock.monotonic_ns, (int64_t)(seconds * 1e9));
    atomic_fetch_add(&test_clock.realtime_ns, (int64_t)(seconds * 1e9));
}

#endif
