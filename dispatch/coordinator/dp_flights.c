#include "dispatch/coordinator/dp_flights.h"

rt_status dp_flights_init(dp_flights *flights, uint32_t max)
{
    *flights = (dp_flights){.max = max, .list = rt_alloc(max, sizeof *flights->list)};
    if (!flights->list)
        return RT_NO_MEMORY;
    return RT_OK;
}

void dp_flights_fini(dp_flights *flights, dp_feed *feed)
{
    for (uint32_t i = 0; i < flights->max && flights->list; i++) {
        if (flights->list[i].planned)
            dp_feed_give(feed, flights->list[i].planned);
    }
    rt_free(flights->list);
    *flights = (dp_flights){0};
}

void dp_flights_put(dp_flights *flights, dp_planned *planned)
{
    dp_flight *flight = &flights->list[planned->sequence % flights->max];
    rt_assert(!flight->planned);
    *flight = (dp_flight){.planned = planned};
    flights->count++;
}

dp_planned *dp_flights_take(dp_flights *flights, dp_flight *flight)
{
    dp_planned *planned = flight->planned;
    flight->planned = NULL;
    flights->count--;
    return planned;
}

// Of those that this worker has to report; 0: of all.
static dp_flight *oldest_of(const dp_flights *flights, uint64_t worker)
{
    dp_flight *oldest = NULL;
    for (uint32_t i = 0; i < flights->max; i++) {
        dp_flight *one = &flights->list[i];
        if (one->planned && (!worker || dp_flight_awaited(one, worker)) &&
            (!oldest || one->planned->sequence < oldest->planned->sequence))
            oldest = one;
    }
    return oldest;
}

dp_flight *dp_flights_oldest(const dp_flights *flights)
{
    return oldest_of(flights, 0);
}

dp_flight *dp_flights_complete(const dp_flights *flights, uint64_t workers)
{
    dp_flight *oldest = oldest_of(flights, 0);
    if (!oldest || dp_flight_awaited(oldest, workers))
        return NULL;
    return oldest;
}

dp_flight *dp_flights_awaited(const dp_flights *flights, uint32_t worker)
{
    return oldest_of(flights, rt_bit(worker));
}
