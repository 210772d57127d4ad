#include "runtime/rt_clock.h"

#include <math.h>
#include <stdatomic.h>
#include <time.h>

#define STEP_NS INT64_C(1000000000) // less is how clocks are steered

// Of this process: what it adds to the monotonic clock; 0: it was not asked yet.
static _Atomic(int64_t) offset;
static _Atomic(int64_t) seen; // what the machine's clock is ahead of it, as last looked at
static _Atomic(int64_t) set_from, set_by; // the last time that it was set forward

int64_t rt_day_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int64_t begin(void)
{
    int64_t none = 0, first = rt_day_ns() - (int64_t)rt_now_ns();
    first += first == 0;
    (void)atomic_compare_exchange_strong(&offset, &none, first);
    return atomic_load(&offset);
}

uint64_t rt_arrival_ns(void)
{
    int64_t ahead = atomic_load_explicit(&offset, memory_order_relaxed);
    if (ahead == 0)
        ahead = begin();
    return rt_now_ns() + (uint64_t)ahead;
}

double rt_steady_s(void)
{
    return (double)rt_arrival_ns() * 1e-9;
}

int64_t rt_clock_offset(void)
{
    return begin();
}

// seen stays the machine's clock's.
void rt_clock_set_offset(int64_t to)
{
    const int64_t before = begin();
    to += to == 0;
    atomic_store(&offset, to);
    atomic_fetch_add(&seen, before - to);
}

void rt_clock_at_least(uint64_t ns)
{
    const uint64_t now = rt_arrival_ns();
    if (ns > now)
        rt_clock_set_offset(atomic_load(&offset) + (int64_t)(ns - now));
}

bool rt_clock_was_set(double *by_s)
{
    const int64_t ahead = rt_day_ns() - (int64_t)rt_arrival_ns(), by = ahead - atomic_load(&seen);
    if (by > -STEP_NS && by < STEP_NS)
        return false;
    atomic_store(&seen, ahead);
    if (by > 0) {
        atomic_store(&set_from, rt_day_ns() - by);
        atomic_store(&set_by, by);
    }
    *by_s = (double)by * 1e-9;
    return true;
}

double rt_clock_age_s(double written_s)
{
    double age_s = rt_unix_s() - written_s;
    if (atomic_load(&set_by) && written_s <= (double)atomic_load(&set_from) * 1e-9 + 1)
        age_s -= (double)atomic_load(&set_by) * 1e-9;
    return fmax(0, age_s);
}
