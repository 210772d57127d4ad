// dp_locate - what a commit wants to know of a batch's keys, and a decision does not.
//
// The slots of its rows in all caches: every key's chain of copies is followed once, when the
// batch is looked up, instead of by every worker that wants to know its slot. The links of a chain
// are far apart in memory, so that many chains are followed side by side. Threads do this while one
// thread decides alone.
#include <string.h>

#include "dispatch/planner/dp_planner_parts.h"

#define BLOCK 64u // chains
#define PART 256u // keys that a thread takes at once: who waits for it waits for some microseconds

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
static void follow(const dp_planner *planner, const dp_cache_set *set, chains *all)
{
    const uint32_t n = planner->config.worker_count, count = all->count;
    all->count = 0;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t d = all->keys[i], copy = all->copies[i];
        const uint32_t worker = dp_copy_worker(copy), slot = dp_copy_slot(copy);
        set->slots[(size_t)d * n + worker] = slot;
        add(set->caches, d, set->caches[worker].slots[slot].next_copy, all);
    }
}

static void locate_block(dp_planner *planner, const dp_cache_set *set, uint32_t from,
                         uint32_t until)
{
    const uint32_t n = planner->config.worker_count;
    chains all = {.count = 0};
    memset(set->slots + (size_t)from * n, 0xff, (size_t)(until - from) * n * sizeof *set->slots);
    for (uint32_t d = from; d < until; d++)
        add(set->caches, d,
            dp_planner_copies(planner, set, planner->work.distinct[d].record)->first, &all);
    while (all.count)
        follow(planner, set, &all);
}

// Distinct keys by holder: as many lists as workers, each in the order of keys. They are for
// threads that release rows by worker.
static void list_held(dp_planner *planner)
{
    dp_held_rows *held = &planner->locate.held_rows;
    const uint32_t count = planner->view.distinct_count, n = planner->config.worker_count;
    uint32_t next[RT_WORKERS_MAX], sum = 0;
    memset(held->ends, 0, sizeof held->ends);
    for (uint32_t d = 0; d < count; d++) {
        if (planner->latest[d])
            held->ends[rt_lowest_bit(planner->latest[d]) + 1]++;
    }
    for (uint32_t w = 0; w < n; w++) {
        next[w] = sum;
        sum += held->ends[w + 1];
        held->ends[w + 1] = sum;
    }
    for (uint32_t d = 0; d < count; d++) {
        if (planner->latest[d])
            held->keys[next[rt_lowest_bit(planner->latest[d])]++] = d;
    }
}

static void locate_some(void *context, uint32_t part)
{
    dp_planner *planner = context;
    if (part == 0) {
        if (dp_planner_pool(planner))
            list_held(planner);
        return;
    }
    part--;
    const uint32_t begin = part * PART;
    const uint32_t end = (uint32_t)rt_min_u64(begin + PART, planner->view.distinct_count);
    for (uint32_t d = begin; d < end; d += BLOCK) {
        const uint32_t until = (uint32_t)rt_min_u64(d + BLOCK, end);
        locate_block(planner, &planner->own, d, until);
        if (planner->viewed.caches)
            locate_block(planner, &planner->viewed, d, until);
    }
}

void dp_planner_begin_locating(dp_planner *planner)
{
    const uint32_t parts = 1 + (planner->view.distinct_count + PART - 1) / PART;
    planner->locate.runs = planner->locate.is_done &&
                           rt_pool_begin(dp_planner_pool(planner), parts, locate_some, planner);
}

void dp_planner_end_locating(dp_planner *planner)
{
    if (planner->locate.runs)
        rt_pool_end(planner->pool);
    planner->locate.runs = false;
}
