// dp_eviction_parts - what the kinds of eviction share: the state of one, and the table of rules in
// which they differ. For the files of dispatch/cache alone.
#ifndef DP_EVICTION_PARTS_H
#define DP_EVICTION_PARTS_H

#include "dispatch/cache/dp_eviction.h"
#include "dispatch/plan/dp_plan.h"
#include "runtime/rt_base.h"

// ---- dp_outdated.c ----------------------------------------------------------------------------

// The outdated copies of one cache: which of them makes room first (Emark).
//
// First goes the lowest mark, then the lowest frequency (with sizes: frequency per byte, compared
// exactly), then the lowest slot. Many are renewed before anybody asks for room, and most of the
// others go together: so copies wait in an unordered tail, which is sorted as a whole when the next
// victim is wanted. What then is left of earlier ones stays in runs of its own:
//
//     items   [ run | run | run | not in order yet |  free  ]
//                                tail            count
//
// The victim is the first of the run whose first goes first. Entries of copies that are renewed or
// gone stay where they are, and are passed over: `where` says which entry is a copy's own. With
// RUNS_MAX runs, or without room, what is valid becomes one tail again. Adding and removing take
// constant time, amortised; so does first, but for the sort. One thread.

#define DP_OUTDATED_RUNS_MAX 16u

typedef struct {
    uint32_t mark; // 0: free
    uint32_t frequency;
    uint32_t used;  // last iteration
    uint32_t where; // of an outdated copy: 1 + index in dp_outdated.items; else 0
} dp_emark_slot;
_Static_assert(sizeof(dp_emark_slot) == 16, "slots are touched at random: one cache line");

typedef struct {
    uint32_t head, end; // in items
} dp_outdated_run;

typedef struct {
    uint64_t *items; // a slot in the lower half; the upper one is of use to the sort
    uint64_t *scratch;
    uint32_t tail, count, capacity;
    dp_outdated_run runs[DP_OUTDATED_RUNS_MAX];
    uint32_t run_count;
    uint32_t valid_count;
    dp_emark_slot *slots;  // only where is written
    const uint32_t *bytes; // by slot; NULL: all rows have one size
} dp_outdated;

// slots, bytes (or NULL) and scratch have slot_count members and outlive it. Mark, frequency and
// bytes of a copy do not change while it is outdated; scratch is written by dp_outdated_first only.
rt_status dp_outdated_init(dp_outdated *outdated, dp_emark_slot *slots, const uint32_t *bytes,
                           uint64_t *scratch, uint32_t slot_count);
void dp_outdated_fini(dp_outdated *outdated);

// The copy in slot, which is not outdated yet, is from now on.
void dp_outdated_add(dp_outdated *outdated, uint32_t slot);

static inline bool dp_outdated_has(const dp_outdated *outdated, uint32_t slot)
{
    return outdated->slots[slot].where != 0;
}

// The copy in slot is not outdated any longer, if it was.
static inline void dp_outdated_remove(dp_outdated *outdated, uint32_t slot)
{
    outdated->valid_count -= outdated->slots[slot].where != 0;
    outdated->slots[slot].where = 0;
}

// The slot of the copy to go first; there is one (valid_count > 0). It stays.
uint32_t dp_outdated_first(dp_outdated *outdated);

// A slot that is likely to be first after `ahead` others; UINT32_MAX: no idea. For prefetching.
static inline uint32_t dp_outdated_peek(const dp_outdated *outdated, uint32_t ahead)
{
    const dp_outdated_run *run = &outdated->runs[0];
    if (outdated->run_count == 0 || run->end - run->head <= ahead)
        return UINT32_MAX;
    return (uint32_t)outdated->items[run->head + ahead];
}

// -----------------------------------------------------------------------------------------------

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
