// rt_priority - who goes first where processes share cores: answers before training.
//
// Of the calling thread and of all that it starts from then on, threads and processes.
#ifndef RT_PRIORITY_H
#define RT_PRIORITY_H

#include "runtime/rt_base.h"

// Runs when nobody else wants the core, and leaves it at once to whoever does (SCHED_IDLE). The
// leader of a session says so for the session, too: where the kernel shares cores by session
// (autogroup) priorities count only within one. RT_UNSUPPORTED: the kernel refuses.
rt_status rt_priority_idle(rt_error *error);
bool rt_priority_is_idle(void);

// Wants little at a time, but soon: a slice of half a millisecond, so that it need not wait until
// another one's of several is over (Linux 6.12; before, nothing changes).
void rt_priority_prompt(void);

// Does what nobody waits for: its share is a tenth of another thread's, more where there is room.
void rt_priority_behind(void);

#endif
