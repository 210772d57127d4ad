// Who takes part in an iteration, and what the policy sees of the workers. See dp_planner_parts.h.
#include <string.h>

#include "dispatch/cost/dp_ticks.h"
#include "dispatch/planner/dp_account.h"
#include "dispatch/planner/dp_planner_parts.h"

uint64_t dp_planner_participants(const dp_planner *planner)
{
    return planner->participants;
}

uint64_t dp_planner_clean(const dp_planner *planner)
{
    uint64_t clean = 0;
    const uint64_t out = rt_bits_below(planner->config.worker_count) & ~planner->participants;
    for (uint64_t rest = out; rest; rest &= rest - 1) {
        const uint32_t w = rt_lowest_bit(rest);
        if (planner->flushed[w] == planner->own.caches[w].slot_count)
            clean |= rt_bit(w);
    }
    return clean;
}

uint64_t dp_planner_row_count(const dp_planner *planner)
{
    return planner->directory.key_count;
}

void dp_active_set(dp_planner *planner)
{
    const dp_planner_config *config = &planner->config;
    const uint64_t all = rt_bits_below(config->worker_count) & ~config->lost;
    const uint32_t fewest = dp_planner_fewest(config);
    const uint64_t left = planner->participants;
    planner->participants = config->participants & all;
    if (rt_bit_count(planner->participants) < fewest)
        planner->participants = all;
    uint32_t number = 0;
    for (uint64_t rest = planner->participants; rest; rest &= rest - 1) {
        planner->number_of[rt_lowest_bit(rest)] = (uint8_t)number;
        planner->rank_of[number++] = (uint8_t)rt_lowest_bit(rest);
    }
    for (uint64_t rest = left & ~planner->participants; rest; rest &= rest - 1)
        planner->flushed[rt_lowest_bit(rest)] = 0;
}

static void keep_columns(const dp_planner *planner, int32_t (*from)[RT_WORKERS_MAX],
                         int32_t (*to)[RT_WORKERS_MAX], uint32_t field_count)
{
    for (uint32_t f = 0; f < field_count; f++) {
        for (uint32_t j = 0; j < planner->view.worker_count; j++)
            to[f][j] = from[f][planner->rank_of[j]];
    }
}

void dp_active_ticks(dp_planner *planner)
{
    dp_ticks *all = &planner->ticks, *seen = &planner->view_ticks;
    const uint32_t count = rt_bit_count(planner->participants);
    planner->view.worker_count = count;
    *seen = *all;
    seen->worker_count = count;
    keep_columns(planner, all->pull, seen->pull, all->field_count);
    keep_columns(planner, all->push, seen->push, all->field_count);
    keep_columns(planner, all->grad, seen->grad, all->field_count);
    keep_columns(planner, &all->compute, &seen->compute, 1);
    for (uint32_t j = 0; j < count; j++) {
        seen->dense_up[j] = all->dense_up[planner->rank_of[j]];
        seen->dense_down[j] = all->dense_down[planner->rank_of[j]];
        seen->box_of[j] = all->box_of[planner->rank_of[j]];
    }
}

uint64_t dp_active_numbers(const dp_planner *planner, uint64_t ranks)
{
    uint64_t numbers = 0;
    if (dp_planner_all_train(planner))
        return ranks;
    for (uint64_t rest = ranks & planner->participants; rest; rest &= rest - 1)
        numbers |= rt_bit(planner->number_of[rt_lowest_bit(rest)]);
    return numbers;
}

void dp_active_ranks(const dp_planner *planner, uint32_t sample_count, uint32_t *worker_of_sample)
{
    if (dp_planner_all_train(planner))
        return;
    for (uint32_t i = 0; i < sample_count; i++)
        worker_of_sample[i] = planner->rank_of[worker_of_sample[i]];
}

void dp_active_predict(dp_planner *planner, const dp_plan *plan)
{
    dp_account_config costs;
    dp_account account = {0};
    if (dp_planner_all_train(planner))
        return;
    dp_account_init(&planner->config, &costs);
    dp_account_add(&costs, plan, &account);
    planner->predicted_s = account.predicted_s;
}
