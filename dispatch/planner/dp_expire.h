// dp_expire - rows leave caches after their last known use (cache.eviction "ttl").
//
// Bagpipe (SOSP'23, section 3.2) calls it a time to live: of a row that a batch uses and that no batch
// in sight needs again, the latest copy is written back and its slot is free, beside the next
// iteration and before anybody needs either. So who needs the row later finds it at the PS.
#ifndef DP_EXPIRE_H
#define DP_EXPIRE_H

#include "dispatch/planner/dp_planner_parts.h"

static inline bool dp_expire_is_on(const dp_planner *planner)
{
    return planner->config.eviction == RT_EVICT_TTL && planner->preview.next_use != NULL;
}

// After the training of a batch was planned: notes its rows that no batch in sight needs.
void dp_expire_note(dp_planner *planner);

// They leave, with the plan that follows; a sweep and a flush are plans, too. Between two iterations,
// or once the next batch is looked up. RT_NO_MEMORY.
rt_status dp_expire(dp_planner *planner, dp_plan *plan, dp_reason reason);

#endif
