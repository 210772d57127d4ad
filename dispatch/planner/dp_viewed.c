// dp_viewed - the caches as decisions of the papers see them: snapshots that follow the placements.
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

#define GONE_BLOCK 64u // keys whose copies are fetched together

static dp_copies *viewed_of(dp_planner *planner, uint32_t d)
{
    return &planner->directory.records[planner->work.distinct[d].record].viewed;
}

static void evict(dp_planner *planner, dp_cache *cache)
{
    dp_planner_prefetch_victims(planner, planner->viewed.caches, cache);
    uint32_t slot = dp_eviction_victim(cache->eviction, planner->iteration);
    rt_assert(slot != DP_NO_SLOT); // dp_planner_create made sure that a micro-batch fits
    dp_slot_changes_leave(&planner->viewed.changes[cache->worker], cache->slots[slot].record, slot);
    dp_cache_vacate(cache, slot);
}

static uint32_t fill(dp_planner *planner, dp_cache *cache, const dp_distinct *key)
{
    if (cache->free_count == 0)
        evict(planner, cache);
    uint32_t slot = dp_cache_take(cache, key->record, planner->iteration);
    if (planner->by_bytes)
        dp_eviction_weigh(cache->eviction, slot,
                          dp_row_bytes(&planner->config.layout, key->field, true));
    return slot;
}

static void expect(const dp_planner *planner, dp_cache *cache, uint32_t slot, uint32_t d)
{
    if (planner->preview.next_use)
        dp_eviction_expect(cache->eviction, slot, planner->preview.next_use[d]);
}

// ---- copies that are the latest no longer ----------------------------------------------------

static void outdate_key(dp_planner *planner, uint32_t d)
{
    dp_work *work = &planner->work;
    dp_copies *viewed = viewed_of(planner, d);
    for (uint64_t rest = viewed->holders & ~work->trainers[d]; rest; rest &= rest - 1) {
        const uint32_t worker = rt_lowest_bit(rest);
        dp_cache_outdate(planner->viewed.caches, worker,
                         dp_planner_slot(planner, &planner->viewed, d, worker), viewed);
    }
    viewed->holders = work->trainers[d]; // who has no copy yet gets one
}

typedef struct {
    dp_planner *planner;
    uint32_t part_count;
} key_parts;

static void note_gone(void *context, uint32_t part)
{
    const key_parts *all = context;
    dp_planner *planner = all->planner;
    const uint64_t *trainers = planner->work.trainers, count = planner->view.distinct_count;
    const uint32_t end = (uint32_t)(count * (part + 1) / all->part_count);
    for (uint32_t d = (uint32_t)(count * part / all->part_count); d < end; d++) {
        dp_planner_prefetch_record(planner, d);
        dp_copies *viewed = viewed_of(planner, d);
        planner->gone[d] = viewed->holders & ~trainers[d];
        viewed->holders = trainers[d];
    }
}

void dp_viewed_outdate(dp_planner *planner, uint32_t from, uint32_t until)
{
    rt_pool *pool = dp_planner_pool(planner);
    key_parts all = {planner, rt_pool_threads(pool)};
    if (pool) {
        rt_pool_run(pool, all.part_count, note_gone, &all);
        return;
    }
    for (uint32_t d = from; d < until; d++) {
        dp_planner_prefetch_record(planner, d);
        outdate_key(planner, d);
    }
}

static void outdate_gone(dp_planner *planner, uint32_t worker)
{
    dp_cache *cache = &planner->viewed.caches[worker];
    const uint32_t count = planner->view.distinct_count;
    for (uint32_t begin = 0; begin < count; begin += GONE_BLOCK) {
        const uint32_t end = (uint32_t)rt_min_u64(begin + GONE_BLOCK, count);
        uint32_t slots[GONE_BLOCK], slot_count = 0;
        for (uint32_t d = begin; d < end; d++) {
            if (!(planner->gone[d] >> worker & 1))
                continue;
            slots[slot_count] = dp_planner_slot(planner, &planner->viewed, d, worker);
            dp_eviction_prefetch(cache->eviction, slots[slot_count++]);
        }
        for (uint32_t i = 0; i < slot_count; i++)
            dp_cache_keep_outdated(cache, slots[i]);
    }
}

// ---- slots -----------------------------------------------------------------------------------

// Rows that are there are marked as used first, so that no eviction takes one of them. The others
// wait among the changes, with their key in place of the slot.
void dp_viewed_place(dp_planner *planner, uint32_t worker)
{
    dp_work *work = &planner->work;
    dp_cache *cache = &planner->viewed.caches[worker];
    dp_slot_changes *changes = &planner->viewed.changes[worker];
    const uint32_t *row_keys = work->row_keys[worker];
    const uint32_t row_count = work->plan.slices[worker].row_count;
    changes->left_count = changes->taken_count = 0;
    if (dp_planner_pool(planner))
        outdate_gone(planner, worker);
    for (uint32_t r = 0; r < row_count; r++) {
        dp_planner_prefetch_row(planner, &planner->viewed, worker, r);
        const uint32_t d = row_keys[r];
        const uint32_t slot = dp_planner_slot(planner, &planner->viewed, d, worker);
        if (slot == DP_NO_SLOT) {
            dp_slot_changes_take(changes, work->distinct[d].record, d);
            continue;
        }
        if (dp_eviction_is_outdated(cache->eviction, slot))
            dp_cache_use_anew(cache, slot, planner->iteration);
        else
            dp_eviction_use(cache->eviction, slot, planner->iteration);
        expect(planner, cache, slot, d);
    }
    for (uint32_t i = 0; i < changes->taken_count; i++) {
        const uint32_t d = changes->taken[i].slot;
        changes->taken[i].slot = fill(planner, cache, &work->distinct[d]);
        expect(planner, cache, changes->taken[i].slot, d);
    }
}
