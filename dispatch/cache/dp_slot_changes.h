// dp_slot_changes - the copies that left one worker's cache in an iteration, and those that came.
//
// Rows get their slots worker by worker, on several threads at once, but a chain of copies
// (dp_cache.h) goes through all caches. So what a worker changes of chains waits here: until all
// have their slots nobody changes a chain, and everybody may follow one. Then all copies that left
// are taken out, and after that those that came are put in, in the order of workers. Every record
// belongs to one of part_count parts, which several threads may work off at once; chains do not
// depend on the number of parts.
#ifndef DP_SLOT_CHANGES_H
#define DP_SLOT_CHANGES_H

#include "dispatch/cache/dp_cache.h"

typedef struct {
    uint32_t record, slot;
} dp_slot_change;

typedef struct {
    dp_slot_change *left, *taken;
    uint32_t left_count, taken_count;
} __attribute__((aligned(64))) dp_slot_changes; // several threads count, each a worker's

// One for every worker, each with room for so many copies of either kind. RT_NO_MEMORY.
rt_status dp_slot_changes_create(uint32_t worker_count, uint32_t change_count_max,
                                 dp_slot_changes **changes_p);
void dp_slot_changes_destroy(dp_slot_changes *changes, uint32_t worker_count);

static inline void dp_slot_changes_leave(dp_slot_changes *changes, uint32_t record, uint32_t slot)
{
    changes->left[changes->left_count++] = (dp_slot_change){record, slot};
}

static inline void dp_slot_changes_take(dp_slot_changes *changes, uint32_t record, uint32_t slot)
{
    changes->taken[changes->taken_count++] = (dp_slot_change){record, slot};
}

// Which set of caches and copies.
typedef struct {
    const dp_slot_changes *changes; // by worker
    dp_cache *caches;
    uint32_t worker_count;
    bool viewed; // dp_record.viewed instead of dp_record.copies
} dp_slot_change_set;

// Of the records of one part: copies that left leave their chains, and their workers are no
// holders; then, after all parts of that, those that came enter theirs.
void dp_slot_changes_unlink(const dp_slot_change_set *set, dp_directory *directory, uint32_t part,
                            uint32_t part_count);
void dp_slot_changes_link(const dp_slot_change_set *set, dp_directory *directory, uint32_t part,
                          uint32_t part_count);

// The part of a record.
static inline uint32_t dp_slot_changes_part(uint32_t record, uint32_t part_count)
{
    return (uint32_t)((uint64_t)(record * 2654435761u) * part_count >> 32);
}

#endif
