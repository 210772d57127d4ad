// dp_gather - the first stage of a commit: samples, look-ups and distinct rows of every worker.
#include <math.h>
#include <string.h>

#include "dispatch/planner/dp_planner_parts.h"
#include "dispatch/cost/dp_ticks.h"

// Samples, look-ups and distinct rows of one worker; adds it to the trainers of its keys. rows:
// those of the workers before it that row_of was used for.
static void collect_rows(dp_planner *planner, uint32_t worker, uint32_t rows, uint32_t *row_of,
                         uint64_t *trainers)
{
    dp_work *work = &planner->work;
    const dp_view *view = &planner->view;
    const uint64_t *latest = planner->latest;
    const uint32_t *lookups = view->lookups, *offsets = view->offsets;
    dp_slice *slice = &work->plan.slices[worker];
    uint32_t *row_keys = work->row_keys[worker];
    uint32_t *lookup_rows = slice->lookup_rows;
    uint32_t row_count = 0;
    uint64_t hits = 0;
    for (uint32_t k = 0; k < slice->sample_count; k++) {
        const uint32_t sample = slice->samples[k];
        const uint32_t *end = lookups + offsets[sample + 1];
        for (const uint32_t *at = lookups + offsets[sample]; at < end; at++) {
            const uint32_t d = *at;
            if (row_of[d] <= rows) {
                row_keys[row_count++] = d;
                row_of[d] = rows + row_count;
                trainers[d] |= rt_bit(worker);
            }
            *lookup_rows++ = row_of[d] - rows - 1;
            hits += latest[d] >> worker & 1;
        }
    }
    slice->row_count = row_count;
    slice->lookup_count = (uint32_t)(lookup_rows - slice->lookup_rows);
    planner->collect.hits_of[worker].hits =
        (dp_hits){.lookups_hit = hits, .lookups = slice->lookup_count, .keys = row_count};
}

typedef struct {
    dp_planner *planner;
    uint64_t lookups_max;
    uint64_t *trainers; // by thread and distinct key
    uint32_t part_count;
    uint32_t next; // worker that nobody has collected yet
} collecting;

// A thread collects workers until none is left. What it knows of trainers stays with it until all
// are done: keys that all workers train would go from one processor's cache to the other's.
static void collect_some(void *context, uint32_t thread)
{
    collecting *all = context;
    dp_planner *planner = all->planner;
    uint32_t *row_of = planner->collect.row_of + thread * all->lookups_max;
    uint64_t *trainers = all->trainers + thread * all->lookups_max;
    uint32_t worker, rows = 0;
    memset(trainers, 0, planner->view.distinct_count * sizeof *trainers);
    memset(row_of, 0, planner->view.distinct_count * sizeof *row_of);
    while ((worker = __atomic_fetch_add(&all->next, 1, __ATOMIC_RELAXED)) <
           planner->config.worker_count) {
        collect_rows(planner, worker, rows, row_of, trainers);
        rows += planner->work.plan.slices[worker].row_count;
    }
}

static void add_trainers(void *context, uint32_t part)
{
    const collecting *all = context;
    const uint64_t count = all->planner->view.distinct_count;
    const uint32_t end = (uint32_t)(count * (part + 1) / all->part_count);
    for (uint32_t d = (uint32_t)(count * part / all->part_count); d < end; d++) {
        uint64_t trainers = 0;
        for (uint32_t thread = 0; thread < all->part_count; thread++)
            trainers |= all->trainers[thread * all->lookups_max + d];
        all->planner->work.trainers[d] = trainers;
    }
}

// What every worker has part of: hits. keys_hit is known once rows have their slots.
static void add_hits(dp_planner *planner, dp_plan *plan)
{
    for (uint32_t w = 0; w < plan->worker_count; w++) {
        plan->hits.lookups_hit += planner->collect.hits_of[w].hits.lookups_hit;
        plan->hits.lookups += planner->collect.hits_of[w].hits.lookups;
        plan->hits.keys += planner->collect.hits_of[w].hits.keys;
    }
}

// All who take part send chunks of one size: one that suits the slowest of their links.
static uint32_t dense_chunk_floats(const dp_planner *planner)
{
    const dp_planner_config *config = &planner->config;
    const uint32_t count = planner->view.worker_count;
    const dp_shards *shards = &config->rates.shards;
    double slowest = config->rates.links[planner->rank_of[0]].up_bytes_per_s;
    if (config->rates.ps_bytes_per_s > 0)
        slowest = fmin(slowest, config->rates.ps_bytes_per_s / count);
    for (uint32_t s = 0; s < shards->dense_count; s++) {
        if (shards->bytes_per_s[s] > 0)
            slowest = fmin(slowest, shards->bytes_per_s[s] / count);
    }
    for (uint32_t j = 0; j < count; j++) {
        const dp_link *link = &config->rates.links[planner->rank_of[j]];
        slowest = fmin(slowest, fmin(link->up_bytes_per_s, link->down_bytes_per_s));
    }
    return dp_dense_chunk_floats(slowest, config->dense_wire);
}

void dp_planner_collect(dp_planner *planner)
{
    dp_work *work = &planner->work;
    const dp_view *view = &planner->view;
    dp_plan *plan = &work->plan;
    dp_plan_clear(plan);
    plan->iteration = planner->iteration;
    plan->step = dp_planner_step_of(planner->passed);
    plan->sample_count = view->sample_count;
    plan->participants = planner->participants;
    plan->returning = planner->participants & ~planner->took_part;
    if (planner->participants != planner->took_part && rt_bit_count(planner->took_part) == 1)
        plan->sharing = planner->took_part;
    planner->took_part = planner->participants;
    plan->dense_chunk_floats = dense_chunk_floats(planner);
    plan->hits.distinct = view->distinct_count;
    memset(work->movers, DP_NO_WORKER, view->distinct_count * sizeof *work->movers);
    memset(work->senders, DP_NO_WORKER, view->distinct_count * sizeof *work->senders);
    memset(work->summers, DP_NO_WORKER, view->distinct_count * sizeof *work->summers);
    for (uint32_t i = 0; i < view->sample_count; i++) {
        uint32_t worker = planner->worker_of_sample[i];
        rt_assert(worker < plan->worker_count);
        dp_slice *slice = &plan->slices[worker];
        rt_assert(slice->sample_count < dp_planner_micro_batch_max(&planner->config));
        rt_assert(view->offsets[i + 1] - view->offsets[i] <= planner->config.keys_per_sample_max);
        slice->samples[slice->sample_count++] = i;
    }
    rt_pool *pool = dp_planner_pool(planner);
    collecting all = {.planner = planner,
                      .lookups_max = (uint64_t)planner->config.sample_count_max *
                                     planner->config.keys_per_sample_max,
                      .trainers = pool ? planner->collect.trained : work->trainers,
                      .part_count = rt_pool_threads(pool)};
    rt_pool_run(pool, all.part_count, collect_some, &all);
    if (pool)
        rt_pool_run(pool, all.part_count, add_trainers, &all);
    add_hits(planner, plan);
}
