#include "dispatch/cache/dp_cache.h"

#include <string.h>

rt_status dp_cache_init(dp_cache *cache, uint32_t worker, const dp_eviction_config *config)
{
    uint32_t slot_count = config->slot_count;
    memset(cache, 0, sizeof *cache);
    rt_assert(slot_count > 0 && slot_count < DP_SLOTS_MAX);
    cache->worker = worker;
    cache->slot_count = slot_count;
    cache->slots = rt_alloc(slot_count, sizeof *cache->slots);
    cache->free_slots = rt_alloc_unset(slot_count, sizeof *cache->free_slots);
    if (!cache->slots || !cache->free_slots || dp_eviction_create(config, &cache->eviction)) {
        dp_cache_fini(cache);
        return RT_NO_MEMORY;
    }
    while (cache->free_count < slot_count) { // slot 0 on top
        cache->free_slots[cache->free_count] = slot_count - 1 - cache->free_count;
        cache->free_count++;
    }
    return RT_OK;
}

void dp_cache_fini(dp_cache *cache)
{
    rt_free(cache->slots);
    rt_free(cache->free_slots);
    dp_eviction_destroy(cache->eviction);
    memset(cache, 0, sizeof *cache);
}

void dp_cache_count_fields(dp_cache *cache, const dp_directory *directory, uint32_t *by_field)
{
    rt_assert(cache->occupied == 0);
    cache->directory = directory;
    cache->by_field = by_field;
}

static void count_field(const dp_cache *cache, uint32_t slot, bool is_there)
{
    uint32_t *count =
        &cache->by_field[rt_key_field(cache->directory->records[cache->slots[slot].record].key)];
    *count = is_there ? *count + 1 : *count - 1;
}

// The latest copy in slot is there, or is not any longer.
static inline void count_slot(const dp_cache *cache, uint32_t slot, bool is_there)
{
    if (RT_UNLIKELY(cache->by_field))
        count_field(cache, slot, is_there);
}

void dp_cache_link(dp_cache *cache, uint32_t slot, dp_copies *copies)
{
    cache->slots[slot].next_copy = copies->first;
    copies->first = dp_copy(cache->worker, slot);
}

static inline void hold(const dp_cache *cache, uint32_t slot, dp_copies *copies)
{
    copies->holders |= rt_bit(cache->worker);
    count_slot(cache, slot, true);
}

void dp_cache_put(dp_cache *cache, uint32_t slot, dp_copies *copies, uint32_t record_index)
{
    cache->slots[slot].record = record_index;
    dp_cache_link(cache, slot, copies);
    if (!dp_eviction_is_outdated(cache->eviction, slot))
        hold(cache, slot, copies);
}

uint32_t dp_cache_take(dp_cache *cache, uint32_t record_index, uint32_t iteration)
{
    rt_assert(cache->free_count > 0);
    uint32_t slot = cache->free_slots[--cache->free_count];
    cache->occupied++;
    dp_eviction_use(cache->eviction, slot, iteration);
    cache->slots[slot].record = record_index;
    count_slot(cache, slot, true);
    return slot;
}

uint32_t dp_cache_fill(dp_cache *cache, dp_copies *copies, uint32_t record_index,
                       uint32_t iteration)
{
    uint32_t slot = dp_cache_take(cache, record_index, iteration);
    dp_cache_link(cache, slot, copies);
    copies->holders |= rt_bit(cache->worker);
    return slot;
}

void dp_cache_use_anew(dp_cache *cache, uint32_t slot, uint32_t iteration)
{
    count_slot(cache, slot, true);
    cache->outdated--;
    cache->occupied++;
    dp_eviction_use(cache->eviction, slot, iteration);
}

void dp_cache_vacate(dp_cache *cache, uint32_t slot)
{
    if (dp_eviction_is_outdated(cache->eviction, slot)) {
        cache->outdated--;
    } else {
        cache->occupied--;
        count_slot(cache, slot, false);
    }
    dp_eviction_free(cache->eviction, slot);
    cache->free_slots[cache->free_count++] = slot;
}

void dp_cache_unlink(dp_cache *caches, uint32_t worker, uint32_t slot, dp_copies *copies)
{
    const uint32_t copy = dp_copy(worker, slot);
    uint32_t *link = &copies->first;
    while (*link != copy && *link != DP_NO_COPY)
        link = &caches[dp_copy_worker(*link)].slots[dp_copy_slot(*link)].next_copy;
    rt_assert(*link == copy);
    *link = caches[worker].slots[slot].next_copy;
    copies->holders &= ~rt_bit(worker);
}

void dp_cache_drop(dp_cache *caches, uint32_t worker, dp_copies *copies)
{
    const uint32_t slot = dp_cache_slot(caches, worker, copies);
    rt_assert(slot != DP_NO_SLOT); // its worker part would be that of worker 63
    dp_cache_unlink(caches, worker, slot, copies);
    dp_cache_vacate(&caches[worker], slot);
}

void dp_cache_keep_outdated(dp_cache *cache, uint32_t slot)
{
    cache->occupied--;
    cache->outdated++;
    count_slot(cache, slot, false);
    dp_eviction_outdate(cache->eviction, slot);
}

void dp_cache_outdate(dp_cache *caches, uint32_t worker, uint32_t slot, dp_copies *copies)
{
    if (!dp_eviction_keeps(caches[worker].eviction)) {
        dp_cache_unlink(caches, worker, slot, copies);
        dp_cache_vacate(&caches[worker], slot);
        return;
    }
    copies->holders &= ~rt_bit(worker);
    dp_cache_keep_outdated(&caches[worker], slot);
}

void dp_cache_outdate_all(dp_cache *caches, uint64_t workers, dp_copies *copies)
{
    uint32_t *link = &copies->first;
    copies->holders &= ~workers;
    while (*link != DP_NO_COPY) {
        uint32_t worker = dp_copy_worker(*link), slot = dp_copy_slot(*link);
        dp_cache *cache = &caches[worker];
        if (workers >> worker & 1 && !dp_eviction_keeps(cache->eviction)) {
            *link = cache->slots[slot].next_copy;
            dp_cache_vacate(cache, slot);
            continue;
        }
        if (workers >> worker & 1)
            dp_cache_keep_outdated(cache, slot);
        link = &cache->slots[slot].next_copy;
    }
}
