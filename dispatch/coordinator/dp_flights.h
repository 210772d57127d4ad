// dp_flights - iterations that the workers have and not all have reported on.
//
// A plain value of the coordinator's thread, by sequence number.
#ifndef DP_FLIGHTS_H
#define DP_FLIGHTS_H

#include "dispatch/coordinator/dp_feed.h"

typedef struct {
    dp_planned *planned; // NULL: free
    uint64_t reported;   // mask of workers
    uint64_t skipped;    // of them, those that applied nothing
    bool bad;            // a loss is not finite
} dp_flight;

typedef struct {
    dp_flight *list;
    uint32_t max, count;
} dp_flights;

// Of these workers, those that have to report it and have not.
static inline uint64_t dp_flight_awaited(const dp_flight *flight, uint64_t workers)
{
    return workers & ~flight->reported & ~flight->planned->idle;
}

rt_status dp_flights_init(dp_flights *flights, uint32_t max); // RT_NO_MEMORY
// Gives what is left back to the feed, which may be NULL if nothing was ever put.
void dp_flights_fini(dp_flights *flights, dp_feed *feed);

static inline bool dp_flights_full(const dp_flights *flights)
{
    return flights->count == flights->max;
}

void dp_flights_put(dp_flights *flights, dp_planned *planned); // not full
// The one that was put first of those that this worker has to report; NULL: there is none.
dp_flight *dp_flights_awaited(const dp_flights *flights, uint32_t worker);
// The one that was put first, once all of these workers have reported it; NULL: they have not, or
// there is none.
dp_flight *dp_flights_complete(const dp_flights *flights, uint64_t workers);
dp_planned *dp_flights_take(dp_flights *flights, dp_flight *flight); // it is free then

// The one that was put first; NULL: there is none.
dp_flight *dp_flights_oldest(const dp_flights *flights);

#endif
