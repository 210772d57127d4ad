// dp_eviction_parts - what the kinds of eviction share: the state of one, and the table of rules in
// which they differ. For the files of dispatch/cache alone.
#ifndef DP_EVICTION_PARTS_H
#define DP_EVICTION_PARTS_H

#include "dispatch/cache/dp_eviction.h"
#include "dispatch/cache/dp_outdated.h"
#include "dispatch/plan/dp_plan.h"

#define DP_EVICTION_NONE UINT32_MAX

// One kind. None of the calls sees a slot at or above slot_count.
typedef struct {
    bool keeps;                        // outdated copies keep their slots (v->emark.outdated)
    bool weighs;                       // by_bytes means something
    rt_status (*init)(dp_eviction *v); // RT_NO_MEMORY: destroy frees what there is
    void (*use)(dp_eviction *v, uint32_t slot, uint32_t iteration);
    void (*free)(dp_eviction *v, uint32_t slot);
    // No outdated copy, nor one that is pinned. DP_NO_SLOT: there is no other.
    uint32_t (*victim)(dp_eviction *v, uint32_t iteration);
    // Occupied, and not used in iteration.
    bool (*is_candidate)(const dp_eviction *v, uint32_t slot, uint32_t iteration);
    void (*save)(const dp_eviction *v, rt_bytes *bytes);
    rt_status (*load)(dp_eviction *v, const bool *is_used, rt_reader *reader); // RT_DATA
} dp_eviction_rules;

extern const dp_eviction_rules dp_eviction_emark, dp_eviction_lru, dp_eviction_lfu,
    dp_eviction_light_lfu;

// Emark needs no queue: marks are `target` or older, and only the rows that were occupied when
// target last grew can have an older one. They are sorted once at that moment into `order`; a row
// used since then has the mark target and is passed over when its turn comes.
//
//     order     4   9   2   7   1   8     slots, those with the lowest frequency first
//     each is   f   p   t   o   p   o     f: free by now   t: used since, has the mark target
//                   ^       ^             p: used by this very iteration   o: old, may go
//                   |       cursor: slot 7 is the next victim
//                   pinned_cursor: slot 9 could not go now, but may in the next iteration
//
// Within an iteration cursor only moves on. When the iteration changes it goes back to
// pinned_cursor, the first that was passed over for being in use; f and t before it are never
// looked at again.
typedef struct {
    dp_emark_slot *slots;
    uint64_t *order, *scratch; // slots older than target, sorted; a sort key in the upper half
    uint32_t target;
    uint32_t order_count;
    uint32_t cursor;        // everything before it is used since, free, or pinned
    uint32_t pinned_cursor; // first entry passed over only because its iteration was running
    uint32_t iteration;
    dp_outdated outdated;
} dp_eviction_marks;

// lru and lfu: rows in lists of equal frequency, lists in ascending order (lru: one list).
typedef struct {
    uint32_t previous, next; // in the list; of a row that is DIRECT, next is its frequency
    uint32_t bucket;         // DP_EVICTION_NONE: free
    uint32_t used;
} dp_listed_slot;
_Static_assert(sizeof(dp_listed_slot) == sizeof(dp_emark_slot), "dp_eviction_prefetch");

typedef struct {
    uint32_t frequency;
    uint32_t first, last;    // slots, oldest first
    uint32_t previous, next; // buckets
} dp_eviction_bucket;

typedef struct {
    dp_listed_slot *slots;
    dp_eviction_bucket *buckets; // slot_count + 1
    uint32_t *free_buckets;
    uint32_t free_count;
    uint32_t lowest; // bucket, or DP_EVICTION_NONE
    bool by_frequency, light;
    uint32_t hand, direct_count; // light: the slot that is passed over next; rows in no list
    uint32_t iteration;
    uint32_t cursor; // slot: no victim of iteration stands before it; or DP_EVICTION_NONE
} dp_eviction_lists;

// With expects: what to do when only rows that will be needed are left.
typedef struct {
    uint32_t *next;            // by slot: iteration of the next use
    uint64_t *order, *scratch; // ~next << 32 | slot, made once in an iteration
    uint32_t order_count, cursor;
    uint32_t iteration; // of order
} dp_eviction_expected;

struct dp_eviction {
    const dp_eviction_rules *rules;
    const void *slots; // those of its kind, for prefetching
    dp_eviction_config config;
    uint32_t *bytes; // by slot, with by_bytes
    dp_eviction_marks emark;
    dp_eviction_lists listed;
    dp_eviction_expected expected;
};

// Rows that this iteration uses, or that are known to be used later.
static inline bool dp_eviction_pins(const dp_eviction *v, uint32_t slot, uint32_t used,
                                    uint32_t iteration)
{
    return used == iteration || (v->config.expects && v->expected.next[slot] > iteration);
}

#endif
