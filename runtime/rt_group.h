// rt_group - what the control groups of this process leave it: its own, and all that this one is
// in. Of either version, in a container or not. Plain files are read; nothing is kept.
#ifndef RT_GROUP_H
#define RT_GROUP_H

#include "runtime/rt_base.h"

// Cores that they get time for, rounded up; bytes of memory. The least of all groups; 0: none has a
// limit, or none that is known.
uint64_t rt_group_cores(void);
uint64_t rt_group_memory(void);

// The same with other places for /sys/fs/cgroup and /proc/self/cgroup, for tests.
uint64_t rt_group_cores_in(const char *mount, const char *membership);
uint64_t rt_group_memory_in(const char *mount, const char *membership);

#endif
