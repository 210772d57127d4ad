#include "dispatch/planner/dp_choice.h"

#include <math.h>

#include "dispatch/planner/dp_account.h"
#include "dispatch/planner/dp_hot.h"
#include "dispatch/planner/dp_recent.h"

// Of a trial, what is next: caches once, then the others for every batch.
typedef enum {
    PART_CACHE,
    PART_ROOM,
    PART_LOOK_UP,
    PART_PLACE,
    PART_COMMIT,
    PART_ACCOUNT
} trial_part;

// Instructions, measured (callgrind, 2026-11, x86-64): what counts are their proportions.
#define PER_SLOT 34u
#define PER_LOOK_UP 100u
#define PER_PLACED 38u    // key of a sample; and as many more as there are workers
#define PER_EVALUATED 98u // likewise, and eight workers at once; and three times as many more
#define PER_LINE 40u      // of a plan, in its account

struct dp_trial {
    trial_part next;
    const dp_plan *plan; // of the batch, once it is committed
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
    config->lost = 0;              // none of these
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
    const uint64_t needed = share * config->keys_per_sample_max + (config->overshoot > 0) +
                            (config->hot ? config->hot->count : 0);
    for (uint32_t j = 0; j < config->worker_count; j++) {
        const uint32_t slots = config->slot_count[j];
        const double kept = part * (slots - config->overshoot) + config->overshoot;
        config->slot_count[j] = (uint32_t)rt_min_u64(slots, rt_max_u64(needed, (uint64_t)kept));
    }
}

rt_status dp_trial_create(const dp_planner_config *all, uint64_t workers, double part,
                          dp_trial **trial_p)
{
    const uint64_t key_count =
        (uint64_t)DP_RECENT_MAX * all->sample_count_max * all->keys_per_sample_max;
    dp_planner_config config;
    dp_trial *trial = rt_alloc(1, sizeof *trial);
    if (!trial)
        return RT_NO_MEMORY;
    config_of(all, workers, &config);
    scale_caches(&config, part);
    rt_status status = dp_planner_begin(&config, key_count, &trial->planner, NULL);
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

rt_status dp_trial_step(dp_trial *trial, const rt_batch *batch, bool counts, bool *done_p)
{
    dp_planner *planner = trial->planner;
    rt_status status = RT_OK;
    bool is_over = true; // this part
    *done_p = false;
    switch (trial->next) {
    case PART_CACHE:
        status = dp_planner_add_cache(planner);
        is_over = dp_planner_is_whole(planner);
        break;
    case PART_ROOM:
        status = dp_planner_make_room(planner, batch, &is_over);
        break;
    case PART_LOOK_UP:
        status = dp_planner_look_up_step(planner, batch, &is_over);
        break;
    case PART_PLACE:
        dp_planner_place(planner);
        break;
    case PART_COMMIT:
        status = dp_planner_commit_step(planner, &is_over, &trial->plan);
        *done_p = !status && is_over && !counts;
        break;
    case PART_ACCOUNT:
        dp_account_add(&trial->costs, trial->plan, &trial->account);
        *done_p = true;
        break;
    }
    if (*done_p)
        trial->next = PART_ROOM;
    else if (!status && is_over)
        trial->next++;
    return status;
}

rt_status dp_trial_plan(dp_trial *trial, const rt_batch *batch, bool counts)
{
    for (bool done = false; !done;) {
        const rt_status status = dp_trial_step(trial, batch, counts, &done);
        if (status)
            return status;
    }
    return RT_OK;
}

static uint64_t placing_work(const dp_planner_config *config, uint32_t key_count)
{
    const rt_dispatch_config *dispatch = &config->dispatch;
    uint64_t work = (uint64_t)key_count * (PER_PLACED + config->worker_count);
    if (dp_policy_can(dispatch->policy, DP_POLICY_TIME))
        work += (uint64_t)dispatch->search_evaluations * config->keys_per_sample_max *
                (PER_EVALUATED * ((config->worker_count + 7) / 8) + 3 * config->worker_count);
    return work;
}

uint64_t dp_trial_decision_work(const dp_planner_config *config, uint32_t key_count)
{
    return (uint64_t)key_count * PER_LOOK_UP + placing_work(config, key_count);
}

uint64_t dp_trial_work(const dp_trial *trial, const rt_batch *batch)
{
    const dp_planner_config *config = dp_planner_configuration(trial->planner);
    switch (trial->next) {
    case PART_CACHE:
        return (uint64_t)config->slot_count[0] * PER_SLOT;
    case PART_ROOM:
        return dp_planner_room_work(trial->planner, batch);
    case PART_LOOK_UP:
        return dp_planner_look_up_work(trial->planner, batch);
    case PART_PLACE:
        return placing_work(config, batch->key_count);
    case PART_COMMIT:
        return dp_planner_step_work(trial->planner);
    case PART_ACCOUNT:
        break;
    }
    return (uint64_t)batch->key_count * PER_LINE;
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
