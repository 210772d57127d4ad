// rt_memory - what this process has in memory, and what it may have.
#ifndef RT_MEMORY_H
#define RT_MEMORY_H

#include "runtime/rt_base.h"

// Resident; 0: not known.
uint64_t rt_memory_resident(void);

// Resident and of no file: what the kernel cannot drop. 0: not known.
uint64_t rt_memory_private(void);

// What its control group may have, or the machine has, whichever is less; 0: not known.
uint64_t rt_memory_limit(void);

#endif
