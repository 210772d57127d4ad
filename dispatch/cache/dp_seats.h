// dp_seats - the copies that left one worker's cache in an iteration, and those that came.
//
// Rows get their slots worker by worker, on several threads at once, but a chain of copies
// (dp_cache.h) goes through all caches. So what a worker changes of chains waits here: until all
// have their slots nobody changes a chain, and everybody may follow one. Then all copies that left
// are taken out, and after that those that came are put in, in the order of workers. Every record
// belongs to one of part_count parts, which several threads may work off at once; chains do not
// depend on the number of parts.
#ifndef DP_SEATS_H
#define DP_SEATS_H

#include "dispatch/cache/dp_cache.h"

typedef struct {
    uint32_t record, slot;
} dp_seat;

typedef struct {
    dp_seat *left, *taken;
    uint32_t left_count, taken_count;
} __attribute__((aligned(64))) dp_seats; // several threads count, each a worker's

// One for every worker, each with room for so many copies of either kind. RT_NO_MEMORY.
rt_status dp_seats_create(uint32_t worker_count, uint32_t seat_count_max, dp_seats **seats_p);
void dp_seats_destroy(dp_seats *seats, uint32_t worker_count);

static inline void dp_seats_leave(dp_seats *seats, uint32_t record, uint32_t slot)
{
    seats->left[seats->left_count++] = (dp_seat){record, slot};
}

static inline void dp_seats_take(dp_seats *seats, uint32_t record, uint32_t slot)
{
    seats->taken[seats->taken_count++] = (dp_seat){record, slot};
}

// Which set of caches and copies.
typedef struct {
    const dp_seats *seats; // by worker
    dp_cache *caches;
    uint32_t worker_count;
    bool shown; // dp_record.shown instead of dp_record.copies
} dp_seating;

// Of the records of one part: copies that left leave their chains, and their workers are no
// holders; then, after all parts of that, those that came enter theirs.
void dp_seats_unlink(const dp_seating *seating, dp_directory *directory, uint32_t part,
                     uint32_t part_count);
void dp_seats_link(const dp_seating *seating, dp_directory *directory, uint32_t part,
                   uint32_t part_count);

// The part of a record.
static inline uint32_t dp_seats_part(uint32_t record, uint32_t part_count)
{
    return (uint32_t)((uint64_t)(record * 2654435761u) * part_count >> 32);
}

#endif
