// The slots of a batch's rows in all caches: every key's chain of copies is followed once, when the
// batch is looked up, instead of by every worker that wants to know its slot. The links of a chain
// are far apart in memory, so that many chains are followed side by side.
#include <string.h>

#include "dispatch/planner/dp_planner_parts.h"

#define BLOCK 64u // chains

// Copies whose next is looked for: of which key, and which copy.
typedef struct {
    uint32_t keys[BLOCK], copies[BLOCK];
    uint32_t count;
} chains;

static void add(const dp_cache *caches, uint32_t d, uint32_t copy, chains *all)
{
    if (copy == DP_NO_COPY)
        return;
    __builtin_prefetch(&caches[dp_copy_worker(copy)].slots[dp_copy_slot(copy)]);
    all->keys[all->count] = d;
    all->copies[all->count++] = copy;
}

// Notes all copies of a round, and begins the next one with those behind them.
static void follow(const dp_planner *planner, const dp_cache *caches, uint32_t *slots, chains *all)
{
    const uint32_t n = planner->config.worker_count, count = all->count;
    all->count = 0;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t d = all->keys[i], copy = all->copies[i];
        const uint32_t worker = dp_copy_worker(copy), slot = dp_copy_slot(copy);
        slots[(size_t)d * n + worker] = slot;
        add(caches, d, caches[worker].slots[slot].next_copy, all);
    }
}

static void locate_block(dp_planner *planner, const dp_cache *caches, uint32_t *slots,
                         uint32_t from, uint32_t until)
{
    const dp_work *work = dp_work_of(planner, planner->iteration);
    const uint32_t n = planner->config.worker_count;
    chains all = {.count = 0};
    memset(slots + (size_t)from * n, 0xff, (size_t)(until - from) * n * sizeof *slots);
    for (uint32_t d = from; d < until; d++)
        add(caches, d, dp_planner_copies(planner, caches, work->distinct[d].record)->first, &all);
    while (all.count)
        follow(planner, caches, slots, &all);
}

void dp_planner_locate(dp_planner *planner, uint32_t from, uint32_t until)
{
    for (uint32_t d = from; d < until; d += BLOCK) {
        const uint32_t end = (uint32_t)rt_min_u64(d + BLOCK, until);
        locate_block(planner, planner->caches, planner->slots, d, end);
        if (planner->shown)
            locate_block(planner, planner->shown, planner->shown_slots, d, end);
    }
}
