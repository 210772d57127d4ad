// dp_preview - the planner's side of look-ahead: which rows in caches will be used, and when.
//
// dp_lookahead knows the iterations in which a key will be used; every copy in a cache carries the
// first of them (dp_eviction_expect). A key that had no known use gets one in all its copies when a
// batch is previewed; copies that are filled or used later get theirs at the commit, from next_use.
// Copies that a batch does not use go when it is committed, so no copy keeps a use that is past.
#include "dispatch/planner/dp_planner_parts.h"
#include "dispatch/planner/dp_window.h"

#define PREVIEW_BLOCK 64u // keys whose memory is fetched together

static void expect_copies(dp_cache *caches, uint32_t copy, uint32_t iteration)
{
    while (copy != DP_NO_COPY) {
        dp_cache *cache = &caches[dp_copy_worker(copy)];
        dp_eviction_expect(cache->eviction, dp_copy_slot(copy), iteration);
        copy = cache->slots[dp_copy_slot(copy)].next_copy;
    }
}

static void expect_key(dp_planner *planner, uint64_t key, uint32_t iteration)
{
    uint32_t index = dp_directory_peek(&planner->directory, key);
    if (index == DP_NO_RECORD)
        return;
    const dp_record *record = &planner->directory.records[index];
    expect_copies(planner->own.caches, record->copies.first, iteration);
    expect_copies(planner->viewed.caches, record->viewed.first, iteration);
}

rt_status dp_planner_preview(dp_planner *planner, const rt_batch *batch)
{
    const dp_planner_config *config = &planner->config;
    uint32_t iteration = (uint32_t)rt_max_u64(planner->preview.last, planner->iteration) + 1;
    rt_assert(iteration <= planner->iteration + 1 + dp_planner_ahead(config));
    rt_assert(batch->key_count <= (uint64_t)config->sample_count_max * config->keys_per_sample_max);
    planner->preview.last = iteration;
    if (planner->window)
        dp_window_add(planner->window, planner, batch, iteration);
    if (config->lookahead == 0)
        return RT_OK;
    if (dp_lookahead_reserve(&planner->preview.batches, batch->key_count))
        return RT_NO_MEMORY;
    for (uint32_t begin = 0; begin < batch->key_count; begin += PREVIEW_BLOCK) {
        uint32_t end = (uint32_t)rt_min_u64(begin + PREVIEW_BLOCK, batch->key_count);
        for (uint32_t k = begin; k < end; k++)
            dp_lookahead_prefetch(&planner->preview.batches, batch->keys[k]);
        for (uint32_t k = begin; k < end; k++) {
            if (dp_lookahead_add(&planner->preview.batches, batch->keys[k], iteration))
                expect_key(planner, batch->keys[k], iteration);
        }
    }
    return RT_OK;
}

void dp_preview_pass(dp_planner *planner)
{
    const dp_view *view = &planner->view;
    for (uint32_t begin = 0; begin < view->distinct_count; begin += PREVIEW_BLOCK) {
        uint32_t end = (uint32_t)rt_min_u64(begin + PREVIEW_BLOCK, view->distinct_count);
        for (uint32_t d = begin; d < end; d++)
            dp_lookahead_prefetch(&planner->preview.batches, view->distinct[d].key);
        for (uint32_t d = begin; d < end; d++)
            planner->preview.next_use[d] = dp_lookahead_pass(
                &planner->preview.batches, view->distinct[d].key, view->iteration);
    }
}
