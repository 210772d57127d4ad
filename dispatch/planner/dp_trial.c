#include "dispatch/planner/dp_trial.h"

#include <math.h>

#include "dispatch/planner/dp_account.h"

struct dp_trial {
    dp_planner *planner;
    dp_account_config costs;
    dp_account account;
};

// The configuration of a planner that has these workers and no others.
static void config_of(const dp_planner_config *all, uint64_t workers, dp_planner_config *config)
{
    *config = *all;
    config->worker_count = 0;
    config->participants = 0;
    config->participants_min = 0;
    config->dense_whole_bytes = 0; // a choice is for longer than the first iterations
    config->dispatch.search_evaluations = (all->dispatch.search_evaluations + 1) / 2;
    for (uint64_t rest = workers; rest; rest &= rest - 1) {
        const uint32_t rank = rt_lowest_bit(rest), j = config->worker_count++;
        config->rates.links[j] = all->rates.links[rank];
        config->boxes.of_worker[j] = all->boxes.of_worker[rank];
        config->slot_count[j] = all->slot_count[rank];
        config->rates.compute_s_per_sample[j] = all->rates.compute_s_per_sample[rank];
    }
    if (config->shard_share > 0)
        config->dispatch.first_touch = RT_FIRST_TOUCH_PULL; // rows are there, most of them
    if (config->boxes.count)
        config->boxes.worker_count = config->worker_count;
}

bool dp_trial_fits(const dp_planner_config *all, uint64_t workers)
{
    dp_planner_config config;
    config_of(all, workers, &config);
    return dp_planner_check(&config, NULL) == RT_OK;
}

// Caches of a part of their size, at least what a micro-batch may need.
static void scale_caches(dp_planner_config *config, double part)
{
    const uint64_t share =
        (config->sample_count_max + config->worker_count - 1) / config->worker_count;
    const uint64_t needed = share * config->keys_per_sample_max + (config->overshoot > 0);
    for (uint32_t j = 0; j < config->worker_count; j++) {
        const uint32_t slots = config->slot_count[j];
        const double kept = part * (slots - config->overshoot) + config->overshoot;
        config->slot_count[j] =
            (uint32_t)rt_min_u64(slots, rt_max_u64(needed, (uint64_t)kept));
    }
}

rt_status dp_trial_create(const dp_planner_config *all, uint64_t workers, double part,
                          dp_trial **trial_p)
{
    dp_planner_config config;
    dp_trial *trial = rt_alloc(1, sizeof *trial);
    if (!trial)
        return RT_NO_MEMORY;
    config_of(all, workers, &config);
    scale_caches(&config, part);
    rt_status status = dp_planner_create(&config, &trial->planner, NULL);
    if (status) {
        rt_free(trial);
        return status;
    }
    dp_account_init(&config, &trial->costs);
    *trial_p = trial;
    return RT_OK;
}

void dp_trial_destroy(dp_trial *trial)
{
    if (!trial)
        return;
    dp_planner_destroy(trial->planner);
    rt_free(trial);
}

rt_status dp_trial_decide(dp_trial *trial, const rt_batch *batch)
{
    rt_status status = dp_planner_look_up(trial->planner, batch);
    if (!status)
        dp_planner_place(trial->planner);
    return status;
}

rt_status dp_trial_commit(dp_trial *trial, bool counts)
{
    rt_status status = dp_trial_begin_commit(trial);
    return status ? status : dp_trial_end_commit(trial, counts);
}

rt_status dp_trial_begin_commit(dp_trial *trial)
{
    return dp_planner_begin_commit(trial->planner);
}

rt_status dp_trial_end_commit(dp_trial *trial, bool counts)
{
    const dp_plan *plan;
    rt_status status = dp_planner_end_commit(trial->planner, &plan);
    if (!status && counts && plan)
        dp_account_add(&trial->costs, plan, &trial->account);
    return status;
}

double dp_trial_seconds(const dp_trial *trial)
{
    return trial->account.predicted_s;
}

// What stays on a box takes no link. Of the boxes of those who train: what passes between two of
// them is on the way up of one and on the way down of the other.
static double bytes_between_boxes(const dp_trial *trial)
{
    const dp_account_config *costs = &trial->costs;
    const dp_account *account = &trial->account;
    const double iterations = (double)account->iterations;
    dp_box_traffic dense = {0};
    bool is_counted[RT_SITE_BOXES_MAX] = {false};
    double up = 0, down = 0;
    const uint64_t all = rt_bits_below(costs->worker_count);
    dp_boxes_add_dense(&costs->boxes, &costs->rates.shards, all,
                       dp_dense_bytes(costs->dense_bytes, 0, 0, all), &dense);
    for (uint32_t j = 0; j < costs->worker_count; j++) {
        const uint32_t b = costs->boxes.of_worker[j];
        if (is_counted[b])
            continue;
        is_counted[b] = true;
        up += (double)account->boxes.up[b] - iterations * (double)dense.up[b];
        down += (double)account->boxes.down[b] - iterations * (double)dense.down[b];
    }
    return fmax(up, down);
}

double dp_trial_row_bytes(const dp_trial *trial)
{
    double up = 0, down = 0;
    if (trial->costs.boxes.count)
        return bytes_between_boxes(trial);
    for (uint32_t j = 0; j < trial->costs.worker_count; j++) {
        up += (double)trial->account.traffic[j].up;
        down += (double)trial->account.traffic[j].down;
    }
    return fmax(up, down);
}
