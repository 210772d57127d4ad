// rt_live_clock - the clock of what comes (rt_clock.h), from one process of a run to the next.
#ifndef RT_LIVE_CLOCK_H
#define RT_LIVE_CLOCK_H

#include <stdint.h>

// Goes on where the stamps end that are kept in a folder (last_ns; 0: there are none). In the same
// boot of the same machine, which a file in the folder tells, by the monotonic clock; else the
// machine's clock is believed if it is at most a week ahead of the last stamp, and if not, no time
// has passed. Before the first stamp; a second journal of a process can only move it on.
void rt_live_clock_resume(const char *folder, uint64_t last_ns);

#endif
