// dp_shown - the caches as decisions of the papers see them: snapshots that follow the placements.
//
// ESD (section 5) and Herald (section 5) decide on snapshots of all caches, "updated at the end" of
// a dispatch "based on the dispatch result": whoever was given a sample with x holds x at the next
// decision, also if several were. Transmission is another matter: of several trainers each has only
// its own gradient, so all of them pull (docs/PROTOCOL.md). So there are two sets of caches, with
// the same slots and eviction: those of the workers, which plans are made of, and these, which only
// the policy sees. A key's trainers hold it here until others train it without them or its row is
// evicted here.
#include "dispatch/planner/dp_planner_parts.h"
#include "dispatch/cost/dp_ticks.h"

static dp_record *record_of(dp_planner *planner, const dp_work *work, uint32_t d)
{
    return &planner->directory.records[work->distinct[d].record];
}

static void evict(dp_planner *planner, dp_cache *cache)
{
    dp_planner_prefetch_victims(planner, planner->shown, cache);
    uint32_t slot = dp_eviction_victim(cache->eviction, planner->iteration);
    rt_assert(slot != DP_NO_SLOT); // dp_planner_create made sure that a micro-batch fits
    uint32_t index = cache->slots[slot].record;
    dp_cache_drop(planner->shown, cache->worker, &planner->directory.records[index].shown);
    dp_planner_evicted(planner, index);
}

static uint32_t fill(dp_planner *planner, dp_cache *cache, const dp_distinct *key)
{
    dp_record *record = &planner->directory.records[key->record];
    if (cache->free_count == 0)
        evict(planner, cache);
    uint32_t slot = dp_cache_fill(cache, &record->shown, key->record, planner->iteration);
    if (planner->by_bytes)
        dp_eviction_weigh(cache->eviction, slot,
                          dp_row_bytes(&planner->config.layout, key->field, true));
    return slot;
}

static void expect(const dp_planner *planner, dp_cache *cache, uint32_t slot, uint32_t d)
{
    if (planner->next_use)
        dp_eviction_expect(cache->eviction, slot, planner->next_use[d]);
}

// Rows that are there are marked as used first, so that no eviction takes one of them.
void dp_shown_place(dp_planner *planner, dp_work *work, uint32_t worker)
{
    dp_cache *cache = &planner->shown[worker];
    const uint32_t *row_keys = work->row_keys[worker];
    const uint32_t row_count = work->plan.slices[worker].row_count;
    uint32_t missing = 0;
    for (uint32_t r = 0; r < row_count; r++) {
        dp_planner_prefetch_row(planner, planner->shown, work, worker, r);
        dp_copies *shown = &record_of(planner, work, row_keys[r])->shown;
        uint32_t slot;
        if (shown->holders >> worker & 1) {
            slot = dp_cache_slot(planner->shown, worker, shown);
            dp_eviction_use(cache->eviction, slot, planner->iteration);
        } else {
            slot = dp_cache_renew(planner->shown, worker, shown, planner->iteration);
        }
        if (slot != DP_NO_SLOT)
            expect(planner, cache, slot, row_keys[r]);
        else
            planner->missing[missing++] = row_keys[r];
    }
    for (uint32_t i = 0; i < missing; i++) {
        uint32_t d = planner->missing[i];
        expect(planner, cache, fill(planner, cache, &work->distinct[d]), d);
    }
}

void dp_shown_forget(dp_planner *planner, const dp_work *work, uint32_t from, uint32_t until)
{
    for (uint32_t d = from; d < until; d++) {
        dp_planner_prefetch_record(planner, work, d);
        dp_copies *shown = &record_of(planner, work, d)->shown;
        for (uint64_t rest = shown->holders & ~work->trainers[d]; rest; rest &= rest - 1)
            dp_cache_outdate(planner->shown, rt_lowest_bit(rest), shown);
    }
}
