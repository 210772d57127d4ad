#include "dispatch/cache/dp_seats.h"

#define AHEAD 12u // copies between the prefetch of a record or slot and its use

rt_status dp_seats_create(uint32_t worker_count, uint32_t seat_count_max, dp_seats **seats_p)
{
    dp_seats *seats = rt_alloc(worker_count, sizeof *seats);
    bool is_complete = seats != NULL;
    for (uint32_t w = 0; w < worker_count && is_complete; w++) {
        seats[w].left = rt_alloc_unset(seat_count_max, sizeof *seats[w].left);
        seats[w].taken = rt_alloc_unset(seat_count_max, sizeof *seats[w].taken);
        is_complete = seats[w].left && seats[w].taken;
    }
    if (!is_complete) {
        dp_seats_destroy(seats, worker_count);
        return RT_NO_MEMORY;
    }
    *seats_p = seats;
    return RT_OK;
}

void dp_seats_destroy(dp_seats *seats, uint32_t worker_count)
{
    for (uint32_t w = 0; seats && w < worker_count; w++) {
        rt_free(seats[w].left);
        rt_free(seats[w].taken);
    }
    rt_free(seats);
}

static dp_copies *copies_of(const dp_seating *seating, dp_directory *directory, uint32_t record)
{
    dp_record *of = &directory->records[record];
    return seating->shown ? &of->shown : &of->copies;
}

// Records and slots are far apart in memory: both are fetched some copies before their use.
static void prefetch(const dp_seating *seating, dp_directory *directory, const dp_seat *seat,
                     uint32_t left)
{
    if (left > 2 * AHEAD)
        dp_directory_prefetch(directory, seat[2 * AHEAD].record);
    if (left > AHEAD) {
        const uint32_t first = copies_of(seating, directory, seat[AHEAD].record)->first;
        if (first != DP_NO_COPY)
            __builtin_prefetch(&seating->caches[dp_copy_worker(first)].slots[dp_copy_slot(first)],
                               1);
    }
}

void dp_seats_unlink(const dp_seating *seating, dp_directory *directory, uint32_t part,
                     uint32_t part_count)
{
    for (uint32_t w = 0; w < seating->worker_count; w++) {
        const dp_seats *seats = &seating->seats[w];
        for (uint32_t i = 0; i < seats->left_count; i++) {
            const dp_seat *seat = &seats->left[i];
            if (part_count == 1)
                prefetch(seating, directory, seat, seats->left_count - i);
            else if (dp_seats_part(seat->record, part_count) != part)
                continue;
            dp_cache_unlink(seating->caches, w, seat->slot,
                            copies_of(seating, directory, seat->record));
        }
    }
}

void dp_seats_link(const dp_seating *seating, dp_directory *directory, uint32_t part,
                   uint32_t part_count)
{
    for (uint32_t w = 0; w < seating->worker_count; w++) {
        const dp_seats *seats = &seating->seats[w];
        for (uint32_t i = 0; i < seats->taken_count; i++) {
            const dp_seat *seat = &seats->taken[i];
            if (part_count == 1 && i + AHEAD < seats->taken_count)
                dp_directory_prefetch(directory, seat[AHEAD].record);
            else if (part_count > 1 && dp_seats_part(seat->record, part_count) != part)
                continue;
            dp_cache_link(&seating->caches[w], seat->slot,
                          copies_of(seating, directory, seat->record));
        }
    }
}
