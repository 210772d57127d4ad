// dp_cache - the planner's view of one worker's cache: which record sits in which slot.
//
// Several threads may change caches at once, each another one: a cache has cache lines of its own.
// Slots are numbers below slot_count; the worker's slab has the same. All copies of a record, over
// all workers, form a chain that starts in dp_copies.first. One thread; or one for each cache,
// while nobody changes a chain (dp_slot_changes.h).
//
// A copy that is not the latest any longer is outdated. It is of no use to anybody, but with some
// evictions (dp_eviction_keeps) it keeps its slot, and with it what eviction knows of the row,
// until the slot is needed or the row comes anew: it is in the chain, and its worker is no holder.
// With the others its slot is free at once.
#ifndef DP_CACHE_H
#define DP_CACHE_H

#include "dispatch/cache/dp_directory.h"
#include "dispatch/cache/dp_eviction.h"
#include "dispatch/plan/dp_plan.h"

#define DP_COPY_SLOT_BITS 26u
#define DP_SLOTS_MAX (1u << DP_COPY_SLOT_BITS) // slots per worker

// A copy in the chain: worker and slot in one number. Never DP_NO_COPY: slots are < DP_SLOTS_MAX
// - 1.
static inline uint32_t dp_copy(uint32_t worker, uint32_t slot)
{
    return worker << DP_COPY_SLOT_BITS | slot;
}
static inline uint32_t dp_copy_worker(uint32_t copy)
{
    return copy >> DP_COPY_SLOT_BITS;
}
static inline uint32_t dp_copy_slot(uint32_t copy)
{
    return copy & (DP_SLOTS_MAX - 1);
}

typedef struct {
    uint32_t record;    // valid while occupied
    uint32_t next_copy; // of the same record
} dp_slot;

typedef struct {
    uint32_t worker;
    uint32_t slot_count;
    uint32_t occupied; // slots of latest copies
    uint32_t outdated; // slots of outdated ones
    dp_slot *slots;
    uint32_t *free_slots; // a stack
    uint32_t free_count;
    dp_eviction *eviction;

    // dp_cache_count_fields, or NULL
    const dp_directory *directory;
    uint32_t *by_field;
} __attribute__((aligned(64))) dp_cache;

rt_status dp_cache_init(dp_cache *cache, uint32_t worker, const dp_eviction_config *config);
void dp_cache_fini(dp_cache *cache);

// Latest copies are counted by the field of their keys, into a table that several caches may share.
// For an empty cache; directory holds the records that the copies are of. Both outlive the cache.
void dp_cache_count_fields(dp_cache *cache, const dp_directory *directory, uint32_t *by_field);

// Puts record into a free slot and adds the copy to its chain and holders; the caller made sure
// that a slot is free, and that the worker has no copy. Returns the slot.
uint32_t dp_cache_fill(dp_cache *cache, dp_copies *copies, uint32_t record_index,
                       uint32_t iteration);

// Adds the copy that sits in slot to the record's chain and, unless it is outdated, to its holders;
// nothing else changes. For a cache whose free slots and eviction are known already.
void dp_cache_put(dp_cache *cache, uint32_t slot, dp_copies *copies, uint32_t record_index);

// What several threads do at once (dp_slot_changes.h) is in two parts: of one cache, without the record's
// chain and holders; and of those. record_index sits in the slot from take on.
uint32_t dp_cache_take(dp_cache *cache, uint32_t record_index, uint32_t iteration);
void dp_cache_use_anew(dp_cache *cache, uint32_t slot, uint32_t iteration); // an outdated copy's
void dp_cache_vacate(dp_cache *cache, uint32_t slot);
void dp_cache_keep_outdated(dp_cache *cache, uint32_t slot); // only where dp_eviction_keeps
void dp_cache_link(dp_cache *cache, uint32_t slot, dp_copies *copies); // holders stay as they are
void dp_cache_unlink(dp_cache *caches, uint32_t worker, uint32_t slot, dp_copies *copies);

// This worker's copy of record, in slot, is outdated. caches is the array that holds every worker's
// cache.
void dp_cache_outdate(dp_cache *caches, uint32_t worker, uint32_t slot, dp_copies *copies);

// Takes this worker's copy of record, outdated or not, out of the chain; its slot is free.
void dp_cache_drop(dp_cache *caches, uint32_t worker, dp_copies *copies);

// The copies of these workers are outdated, whether they are holders or not any longer.
void dp_cache_outdate_all(dp_cache *caches, uint64_t workers, dp_copies *copies);

// Starts loading what fill, use or drop of the copy will touch.
static inline void dp_cache_prefetch(const dp_cache *caches, uint32_t copy)
{
    const dp_cache *cache = &caches[dp_copy_worker(copy)];
    __builtin_prefetch(&cache->slots[dp_copy_slot(copy)], 1);
    dp_eviction_prefetch(cache->eviction, dp_copy_slot(copy));
}

// The slot of worker's copy of record, outdated or not; DP_NO_SLOT if there is none.
static inline uint32_t dp_cache_slot(const dp_cache *caches, uint32_t worker,
                                     const dp_copies *copies)
{
    uint32_t copy = copies->first;
    while (copy != DP_NO_COPY && dp_copy_worker(copy) != worker)
        copy = caches[dp_copy_worker(copy)].slots[dp_copy_slot(copy)].next_copy;
    return copy == DP_NO_COPY ? DP_NO_SLOT : dp_copy_slot(copy);
}

#endif
