// rt_clock - the time of day as this process measures it: a clock that nobody can set.
//
// It begins with the machine's clock of the day and goes on by the monotonic one. What waits, ages
// and expires is measured by it, so that a machine whose clock is set (one without a battery begins
// in 1970) ends and holds up nothing. Where a journal keeps its stamps it never goes back from one
// process to the next either: rt_clock_resume. The machine's own clock (rt_unix_s) is for what
// people and other machines read. Any thread; the planner never calls it.
#ifndef RT_CLOCK_H
#define RT_CLOCK_H

#include "runtime/rt_base.h"

// Nanoseconds, seconds since 1970.
uint64_t rt_arrival_ns(void);
double rt_steady_s(void);

// What it is ahead of the monotonic clock, in nanoseconds; and that from now on.
int64_t rt_clock_offset(void);
void rt_clock_set_offset(int64_t offset);

// From now on not before this.
void rt_clock_at_least(uint64_t ns);

// Whether the machine's clock was set since the last call, or the start; by so many seconds. One
// thread asks.
bool rt_clock_was_set(double *by_s);

// How long ago it was by this clock that something got a time of the machine's clock (a file, say):
// what it was set forward since then, as far as rt_clock_was_set was told, is no age.
double rt_clock_age_s(double written_s);

// Nanoseconds since 1970 as the machine's clock has them, to compare with.
int64_t rt_day_ns(void);

#endif
