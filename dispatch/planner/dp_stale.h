// dp_stale - bounded staleness: which copies may be trained on, and what of them moves (HET,
// VLDB'22, section 3).
//
// Every row has a global clock c_g, every copy a start clock c_s (c_g when it was pulled) and a
// current one c_c: one more with every iteration that trains it here. A copy may be read while
//     (1) c_c <= c_s + s    it has not taken more than s updates of its own since, and
//     (2) c_g <= c_c + s    it does not lack more than s.
// One that may not, and one that leaves its cache, is pushed: what this worker changed of it since
// it came is added to the row (PUSH_DELTA), and c_g = max(c_g, c_c). Then it is pulled again, or
// gone. The clocks are the planner's, so none is sent.
//
// An iteration:
//     read   worker by worker: copies that may not be read are pushed; then all pulls of the
//            iteration, which have every push before them
//     train  c_c + 1 for every row that was read
//     trim   worker by worker: rows leave until only the cache's own number is left. Within an
//            iteration it holds the rows of a micro-batch on top of that
//            (dp_planner_config.overshoot).
// Two copies of a row that are read in one iteration differ by at most 2s + 1; by 2s, if both were
// checked at one c_g (Lemma 1 of the paper). That is asserted at every read.
//
// Versions: each PUSH_DELTA makes one, later than the one before and never below the iteration, and
// names the one that it applies to and how many pulls of that one come first. So the PS adds in the
// planned order and every pull gets exactly the version that it names, whatever arrives when
// (docs/PROTOCOL.md).
//
// A flush pushes every copy and leaves it spent: pulled anew when it is read next. Clocks matter
// only relative to those of other copies, so a row without copies has clock 0, and a checkpoint has
// no clocks at all. Staleness 0 is none of this: see dp_commit.c, is_summed.
#ifndef DP_STALE_H
#define DP_STALE_H

#include "dispatch/plan/dp_plan.h"

struct dp_planner;

typedef struct {
    uint32_t start, current; // c_s, c_c
    uint32_t version; // that the worker has in the slot: as it was pulled, or of its last training
    bool spent;       // everything of it was pushed by a flush
} dp_stale_copy;

typedef struct {
    uint32_t staleness;
    dp_stale_copy *copies[RT_WORKERS_MAX]; // by slot
    uint64_t *owed;                        // by distinct key: dp_view.owed
    uint32_t *lowest, *highest;            // by distinct key: clocks of the copies that are read
} dp_stale;

// For an iteration of lookup_count_max look-ups. RT_NO_MEMORY.
rt_status dp_stale_create(uint32_t staleness, uint32_t worker_count, const uint32_t *slot_count,
                          uint64_t lookup_count_max, dp_stale **stale_p);
void dp_stale_destroy(dp_stale *stale);

// At the look-up of a key: workers whose copy may be read; *owed_p: those whose copy has to be
// pushed before.
uint64_t dp_stale_holders(const struct dp_planner *planner, uint32_t record, uint64_t *owed_p);

// Read, train and trim of a batch that was collected (dp_commit.c). RT_NO_MEMORY.
rt_status dp_stale_plan(struct dp_planner *planner);

// Whether the copy in a slot has something that no push took.
static inline bool dp_stale_is_dirty(const dp_stale *stale, uint32_t worker, uint32_t slot)
{
    const dp_stale_copy *copy = &stale->copies[worker][slot];
    return !copy->spent && copy->current > copy->start;
}

// The push of a flush. RT_NO_MEMORY.
rt_status dp_stale_flush(struct dp_planner *planner, dp_plan *plan, uint32_t worker, uint32_t slot);

// The copies of a cache that was just loaded have nothing to push.
void dp_stale_spend(dp_stale *stale, uint32_t worker, uint32_t slot_count);

#endif
