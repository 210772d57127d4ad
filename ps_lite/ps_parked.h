// ps_parked - pulls that wait for a version their row does not have yet.
//
// A multimap key -> pulls, for one thread. Storage grows up to a bound given at creation, then
// stays. Pulls of one key come out by version, those of one version in the order they were parked.
#ifndef PS_PARKED_H
#define PS_PARKED_H

#include "runtime/rt_base.h"

typedef struct ps_parked ps_parked;

typedef struct {
    uint64_t key;
    uint64_t iteration; // of the pull's message
    uint32_t version;   // that is awaited
    uint32_t tag;
    uint32_t worker;
} ps_parked_pull;

rt_status ps_parked_create(ps_parked **parked_p);
void ps_parked_destroy(ps_parked *parked);

// Room for count more. RT_NO_MEMORY: unchanged.
rt_status ps_parked_reserve(ps_parked *parked, uint32_t count);

// After a reserve.
void ps_parked_add(ps_parked *parked, const ps_parked_pull *pull);

// Takes out the next pull of the key that awaits at most version; false when there is none.
bool ps_parked_take(ps_parked *parked, uint64_t key, uint32_t version, ps_parked_pull *pull);

uint32_t ps_parked_count(const ps_parked *parked);

#endif
