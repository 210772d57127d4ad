// dp_eviction - which row a full cache gives up; decided by the planner, one instance per worker.
//
// Slots are numbers below slot_count. A slot is free or occupied; `use` is called once per
// iteration for every row that the worker trains in it, after a fill and at a hit alike. The victim
// is an occupied slot that this iteration does not use. All operations take constant time,
// amortised.
//
// emark: ESD, section 8.1. A used row gets the mark `target`; when the cache is full and all marks
//        equal target, target grows by one. Victim: lowest mark, then lowest frequency (iterations
//        in which the row was used since it came in), then lowest slot. Outdated copies need no
//        rule here: the planner frees their slots as soon as they are outdated.
// lru:   the slot whose last use is longest ago.
// lfu:   lowest frequency, then the one that reached it first.
#ifndef DP_EVICTION_H
#define DP_EVICTION_H

#include "runtime/rt_config.h"

typedef struct dp_eviction dp_eviction;

rt_status dp_eviction_create(rt_eviction_kind kind, uint32_t slot_count, dp_eviction **eviction_p);
void dp_eviction_destroy(dp_eviction *eviction);

// slot is trained in iteration; iterations never fall. A free slot becomes occupied.
void dp_eviction_use(dp_eviction *eviction, uint32_t slot, uint32_t iteration);

// An occupied slot becomes free.
void dp_eviction_free(dp_eviction *eviction, uint32_t slot);

// The slot to give up; it stays occupied until dp_eviction_free. Only when no slot is free and at
// least one is not used in iteration; DP_NO_SLOT otherwise.
uint32_t dp_eviction_victim(dp_eviction *eviction, uint32_t iteration);

// Sorts count items by their upper 32 bits, ascending, stable; scratch holds count items too.
void dp_sort_upper(uint64_t *items, uint64_t *scratch, uint32_t count);

#endif
