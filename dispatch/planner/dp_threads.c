// dp_threads - how a planner's work is shared by the threads that it was lent.
//
// What is worked off at once touches different workers' caches and slices, or different keys, or
// different samples; nothing depends on who does it, or when.
#include <stddef.h>

#include "dispatch/planner/dp_planner_parts.h"

rt_status dp_planner_set_pool(dp_planner *planner, rt_pool *pool)
{
    dp_planner_end_locating(planner);
    if (!pool && planner->collect.row_of) { // there is room for one
        planner->pool = NULL;
        return RT_OK;
    }
    const uint64_t lookups =
        (uint64_t)planner->config.sample_count_max * planner->config.keys_per_sample_max;
    const uint32_t threads = rt_pool_threads(pool);
    uint32_t *row_of = rt_alloc_unset(threads * lookups, sizeof *row_of);
    uint32_t *keys = rt_alloc_unset(lookups, sizeof *keys);
    uint64_t *gone = rt_alloc_unset(lookups, sizeof *gone);
    uint64_t *trained = rt_alloc_unset(pool ? threads * lookups : 0, sizeof *trained);
    if (!row_of || !keys || !gone || !trained ||
        (threads > 1 && dp_numbers_share(&planner->numbers, lookups, threads))) {
        rt_free(row_of);
        rt_free(trained);
        rt_free(keys);
        rt_free(gone);
        return RT_NO_MEMORY;
    }
    rt_free(planner->collect.row_of);
    rt_free(planner->locate.held_rows.keys);
    rt_free(planner->gone);
    rt_free(planner->collect.trained);
    planner->collect.row_of = row_of;
    planner->collect.trained = trained;
    planner->locate.held_rows.keys = keys;
    planner->gone = gone;
    planner->pool = rt_pool_threads(pool) > 1 ? pool : NULL;
    return RT_OK;
}

bool dp_planner_locates(const dp_planner *planner)
{
    const dp_planner_config *config = &planner->config;
    return !planner->stale && config->homes != RT_HOMES_PLANNED &&
           dp_eviction_keeps(planner->own.caches[0].eviction);
}

rt_pool *dp_planner_pool(const dp_planner *planner)
{
    const bool one_by_one = !dp_planner_locates(planner) || planner->config.dispatch.full_sync ||
                            planner->own.caches[0].by_field ||
                            (planner->viewed.caches && planner->viewed.caches[0].by_field);
    return one_by_one ? NULL : planner->pool;
}

// ---- workers ---------------------------------------------------------------------------------

typedef struct {
    dp_planner *planner;
    dp_worker_part part;
    rt_status status[RT_WORKERS_MAX];
} worker_parts;

static void run_worker(void *context, uint32_t worker)
{
    worker_parts *all = context;
    all->status[worker] = all->part(all->planner, worker);
}

rt_status dp_planner_each_worker(dp_planner *planner, rt_pool *pool, dp_worker_part part)
{
    worker_parts all = {.planner = planner, .part = part};
    const uint32_t count = planner->config.worker_count;
    rt_pool_run(pool, count, run_worker, &all);
    for (uint32_t w = 0; w < count; w++) {
        if (all.status[w])
            return all.status[w];
    }
    return RT_OK;
}

// ---- chains ----------------------------------------------------------------------------------

typedef struct {
    dp_planner *planner;
    dp_slot_change_set sets[2];
    uint32_t set_count, part_count;
} change_parts;

static void unlink_part(void *context, uint32_t part)
{
    const change_parts *all = context;
    for (uint32_t i = 0; i < all->set_count; i++)
        dp_slot_changes_unlink(&all->sets[i], &all->planner->directory, part, all->part_count);
}

static void link_part(void *context, uint32_t part)
{
    const change_parts *all = context;
    for (uint32_t i = 0; i < all->set_count; i++)
        dp_slot_changes_link(&all->sets[i], &all->planner->directory, part, all->part_count);
}

static void add_set(const dp_planner *planner, const dp_cache_set *set, change_parts *all)
{
    all->sets[all->set_count++] = (dp_slot_change_set){.changes = set->changes,
                                                       .caches = set->caches,
                                                       .worker_count = planner->config.worker_count,
                                                       .viewed = set == &planner->viewed};
}

void dp_planner_settle_slot_changes(dp_planner *planner, bool own, bool viewed)
{
    rt_pool *pool = dp_planner_pool(planner);
    change_parts all = {.planner = planner, .part_count = rt_pool_threads(pool)};
    if (own)
        add_set(planner, &planner->own, &all);
    if (viewed)
        add_set(planner, &planner->viewed, &all);
    rt_pool_run(pool, all.part_count, unlink_part, &all);
    rt_pool_run(pool, all.part_count, link_part, &all);
}

// ---- records ---------------------------------------------------------------------------------

// Keys of the present batch have copies by now.
static bool is_left(const dp_planner *planner, uint32_t index)
{
    const dp_record *record = &planner->directory.records[index];
    return record->copies.first == DP_NO_COPY && record->viewed.first == DP_NO_COPY;
}

// What is given back here is marked by a slot that there is not.
static void detach_part(void *context, uint32_t part)
{
    const change_parts *all = context;
    dp_planner *planner = all->planner;
    for (uint32_t i = 0; i < all->set_count; i++) {
        for (uint32_t w = 0; w < planner->config.worker_count; w++) {
            const dp_slot_changes *changes = &all->sets[i].changes[w];
            for (uint32_t k = 0; k < changes->left_count; k++) {
                dp_slot_change *change = &changes->left[k];
                if (k + DP_AHEAD < changes->left_count)
                    dp_directory_prefetch(&planner->directory, change[DP_AHEAD].record);
                if (dp_slot_changes_part(change->record, all->part_count) == part &&
                    is_left(planner, change->record) &&
                    dp_directory_detach(&planner->directory, change->record))
                    change->slot = DP_NO_SLOT;
            }
        }
    }
}

void dp_planner_release_left(dp_planner *planner)
{
    rt_pool *pool = dp_planner_pool(planner);
    change_parts all = {.planner = planner, .part_count = rt_pool_threads(pool)};
    add_set(planner, &planner->own, &all);
    if (planner->viewed.caches)
        add_set(planner, &planner->viewed, &all);
    rt_pool_run(pool, all.part_count, detach_part, &all);
    for (uint32_t i = 0; i < all.set_count; i++) {
        for (uint32_t w = 0; w < planner->config.worker_count; w++) {
            const dp_slot_changes *changes = &all.sets[i].changes[w];
            for (uint32_t k = 0; k < changes->left_count; k++) {
                if (changes->left[k].slot == DP_NO_SLOT)
                    dp_directory_reclaim(&planner->directory, changes->left[k].record);
            }
        }
    }
}
