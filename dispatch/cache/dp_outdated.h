// dp_outdated - the outdated copies of one cache: which of them makes room first (Emark).
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
#ifndef DP_OUTDATED_H
#define DP_OUTDATED_H

#include "runtime/rt_base.h"

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

#endif
