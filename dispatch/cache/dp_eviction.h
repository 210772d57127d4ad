// dp_eviction - which row a full cache gives up; decided by the planner, one instance per worker.
//
// Slots are numbers below slot_count. A slot is free or occupied; `use` is called once per
// iteration for every row that the worker trains in it, after a fill and at a hit alike. The victim
// is an occupied slot that this iteration does not use. All operations take constant time,
// amortised, but for copies that are outdated: logarithmic time.
//
// emark: ESD, section 8.1. A used row gets the mark `target`; when the cache is full and all marks
//        equal target, target grows by one. Victim: an outdated copy while there is one; lowest
//        mark, then lowest frequency (iterations in which the row was used since it came in), then
//        lowest slot. An outdated copy keeps its slot, mark and frequency until it is the victim
//        or the row is pulled anew, which is a further use of it.
//        by_bytes: lowest frequency per byte instead (ESD, section 8.2), compared exactly.
// lru:   the slot whose last use is longest ago.
// lfu:   lowest frequency, then the one that reached it first.
// light_lfu: HET's (VLDB'22, section 4.2). As lfu, but a row of frequency LIGHT_USES leaves the
//        lists: its uses only count on, and it is no victim. A hand passes over one slot with every
//        victim and halves the frequency of the row there, unless this iteration uses it or it is
//        1; below LIGHT_USES it is first in the list of its new frequency. So frequencies decay
//        once in as many evictions as there are slots, and what was popular gives way when the
//        stream drifts. With no victim in the lists the hand goes on until there is one.
// ttl:   as lru. The planner takes rows out before their slots are needed (dp_expire.h).
// To lru, lfu, light_lfu and ttl an outdated copy is a free slot.
//
// expects: of some rows the caller knows in which iteration they are used next. They stay while any
//        other row can go: the rules above treat them like rows that this iteration uses. When only
//        such rows are left, the one whose next use is farthest away goes, then the lowest slot.
#ifndef DP_EVICTION_H
#define DP_EVICTION_H

#include "runtime/wire/rt_bytes.h"
#include "runtime/config/rt_config.h"

typedef struct dp_eviction dp_eviction;

typedef struct {
    rt_eviction_kind kind;
    uint32_t slot_count;
    bool by_bytes; // emark: dp_eviction_weigh follows every first use of a slot
    bool expects;  // dp_eviction_expect may be called
} dp_eviction_config;

rt_status dp_eviction_create(const dp_eviction_config *config, dp_eviction **eviction_p);
void dp_eviction_destroy(dp_eviction *eviction);

// slot is trained in iteration; iterations never fall. A free slot becomes occupied.
void dp_eviction_use(dp_eviction *eviction, uint32_t slot, uint32_t iteration);

// The size of the row in an occupied slot. Only with by_bytes.
void dp_eviction_weigh(dp_eviction *eviction, uint32_t slot, uint32_t bytes);

// Says in which iteration the row in an occupied slot is used next; 0, or one that has passed: not
// known. After the first victim of an iteration, only for slots that this iteration uses: the order
// of the others is made then. Only with expects.
void dp_eviction_expect(dp_eviction *eviction, uint32_t slot, uint32_t next);

// Whether outdated copies keep their slots; otherwise dp_eviction_outdate must not be called.
bool dp_eviction_keeps(const dp_eviction *eviction);

// The copy in an occupied slot is outdated, until the slot's next use. Not between two victims of
// one iteration, nor for a slot that it uses.
void dp_eviction_outdate(dp_eviction *eviction, uint32_t slot);
bool dp_eviction_is_outdated(const dp_eviction *eviction, uint32_t slot);

// An occupied slot becomes free.
void dp_eviction_free(dp_eviction *eviction, uint32_t slot);

// The slot to give up; it stays occupied until dp_eviction_free. Only when no slot is free and at
// least one is not used in iteration; DP_NO_SLOT otherwise.
uint32_t dp_eviction_victim(dp_eviction *eviction, uint32_t iteration);

// Starts loading what use and free of this slot will touch.
void dp_eviction_prefetch(const dp_eviction *eviction, uint32_t slot);

// A slot that is likely to be the victim after `ahead` others; DP_NO_SLOT: no idea. For
// prefetching.
uint32_t dp_eviction_peek(const dp_eviction *eviction, uint32_t ahead);

// Everything that later victims depend on, but expectations, between two iterations.
void dp_eviction_save(const dp_eviction *eviction, rt_bytes *bytes);

// Into one just created with the same kind, slot_count and by_bytes; expects may differ. is_used
// tells by slot which are occupied. RT_DATA: no such state, or one of other slots; the eviction is
// of no use then.
rt_status dp_eviction_load(dp_eviction *eviction, const bool *is_used, rt_reader *reader);

#endif
