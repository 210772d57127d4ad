// Whether directory and caches agree. For tests: it walks everything. See dp_planner.h.
#include <inttypes.h>

#include "dispatch/planner/dp_planner_parts.h"

// Every holder has a copy in one slot, and there are no other copies but outdated ones.
static bool caches_are_legal(const dp_planner *planner, const dp_cache_set *set, rt_error *error)
{
    const dp_cache *caches = set->caches;
    uint64_t latest = 0, copies = 0, occupied = 0, filled = 0;
    for (uint64_t i = 0; i <= planner->directory.mask; i++) {
        const dp_entry *entry = &planner->directory.entries[i];
        if (!entry->record)
            continue;
        const dp_copies *of = dp_planner_copies(planner, set, entry->record - 1);
        for (uint64_t rest = of->holders; rest; rest &= rest - 1) {
            uint32_t worker = rt_lowest_bit(rest);
            uint32_t slot = dp_cache_slot(caches, worker, of);
            if (slot == DP_NO_SLOT || caches[worker].slots[slot].record != entry->record - 1) {
                rt_fail(error, RT_CONFIG, "key %" PRIx64 ": worker %" PRIu32 " holds it in no slot",
                        entry->key, worker);
                return false;
            }
            latest++;
        }
        for (uint32_t copy = of->first; copy != DP_NO_COPY;
             copy = caches[dp_copy_worker(copy)].slots[dp_copy_slot(copy)].next_copy)
            copies++;
    }
    for (uint32_t w = 0; w < planner->config.worker_count; w++) {
        const uint32_t filled_here = caches[w].occupied + caches[w].outdated;
        occupied += caches[w].occupied;
        filled += filled_here;
        if (filled_here + caches[w].free_count != caches[w].slot_count) {
            rt_fail(error, RT_CONFIG, "worker %" PRIu32 ": slots are lost", w);
            return false;
        }
    }
    if (latest == occupied && copies == filled)
        return true;
    rt_fail(error, RT_CONFIG,
            "%" PRIu64 " latest copies of %" PRIu64 ", slots for %" PRIu64 " of %" PRIu64, latest,
            copies, occupied, filled);
    return false;
}

bool dp_planner_legal(const dp_planner *planner, rt_error *error)
{
    return dp_directory_legal(&planner->directory, error) &&
           caches_are_legal(planner, &planner->own, error) &&
           (!planner->viewed.caches || caches_are_legal(planner, &planner->viewed, error));
}
