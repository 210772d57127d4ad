#include "dispatch/planner/dp_account.h"

#include <math.h>
#include <string.h>

double dp_predict_s(const dp_account_config *config, uint64_t participants,
                    const dp_traffic *traffic, const uint32_t *micro_batch)
{
    double slowest = 0, rows_up = 0, rows_down = 0;
    const double dense = (double)config->dense_bytes * __builtin_popcountll(participants);
    for (uint32_t j = 0; j < config->worker_count; j++) {
        rows_up += (double)traffic[j].up;
        rows_down += (double)traffic[j].down;
    }
    for (uint64_t rest = participants; rest; rest &= rest - 1) {
        const uint32_t j = rt_lowest_bit(rest);
        double up = (double)(traffic[j].up + config->dense_bytes);
        double down = (double)(traffic[j].down + config->dense_bytes);
        double links =
            fmax(up / config->links[j].up_bytes_per_s, down / config->links[j].down_bytes_per_s);
        slowest = fmax(slowest, links + config->compute_s_per_sample[j] * micro_batch[j]);
    }
    return fmax(slowest, dp_shards_s(config->ps_bytes_per_s, &config->shards,
                                     fmax(rows_up, rows_down), dense));
}

void dp_account_init(const dp_planner_config *planner, dp_account_config *config)
{
    *config = (dp_account_config){.layout = planner->layout,
                                  .worker_count = planner->worker_count,
                                  .ps_bytes_per_s = planner->ps_bytes_per_s,
                                  .shards = planner->shards,
                                  .dense_bytes = planner->dense_bytes};
    memcpy(config->links, planner->links, sizeof config->links);
    memcpy(config->compute_s_per_sample, planner->compute_s_per_sample,
           sizeof config->compute_s_per_sample);
}

void dp_account_apply(const dp_input *input, dp_account_config *config)
{
    switch ((dp_input_kind)input->kind) {
    case DP_INPUT_LINK_UP:
        config->links[input->worker].up_bytes_per_s = input->value;
        break;
    case DP_INPUT_LINK_DOWN:
        config->links[input->worker].down_bytes_per_s = input->value;
        break;
    case DP_INPUT_COMPUTE:
        config->compute_s_per_sample[input->worker] = input->value;
        break;
    case DP_INPUT_PS_LINK:
        config->ps_bytes_per_s = input->value;
        break;
    case DP_INPUT_SHARD_LINK:
        config->shards.bytes_per_s[input->worker] = input->value;
        break;
    case DP_INPUT_ALPHA:
    case DP_INPUT_SEARCH_EVALUATIONS:
    case DP_INPUT_TABLES:
    case DP_INPUT_PARTICIPATES:
    case DP_INPUT_KINDS:
        break;
    }
}

void dp_account_add(const dp_account_config *config, const dp_plan *plan, dp_account *account)
{
    dp_traffic traffic[RT_WORKERS_MAX];
    uint32_t micro_batch[RT_WORKERS_MAX];
    for (uint32_t j = 0; j < config->worker_count; j++) {
        const dp_slice *slice = &plan->slices[j];
        traffic[j] = dp_slice_traffic(&config->layout, slice);
        micro_batch[j] = slice->sample_count;
        dp_counts_add_slice(&account->workers[j], slice);
        account->traffic[j].up += traffic[j].up;
        account->traffic[j].down += traffic[j].down;
        account->micro_batch[j] += micro_batch[j];
        account->cost_s[j] += dp_slice_cost_s(&config->layout, &config->links[j], slice);
    }
    account->iterations++;
    account->samples += plan->sample_count;
    account->predicted_s += dp_predict_s(config, plan->participants, traffic, micro_batch);
    account->hits.lookups += plan->hits.lookups;
    account->hits.lookups_hit += plan->hits.lookups_hit;
    account->hits.keys += plan->hits.keys;
    account->hits.keys_hit += plan->hits.keys_hit;
    account->hits.distinct += plan->hits.distinct;
}

dp_counts dp_account_counts(const dp_account *account, uint32_t worker_count)
{
    dp_counts sum = {0};
    for (uint32_t j = 0; j < worker_count; j++)
        dp_counts_add(&sum, &account->workers[j]);
    return sum;
}

double dp_account_cost_s(const dp_account *account, uint32_t worker_count)
{
    double sum = 0;
    for (uint32_t j = 0; j < worker_count; j++)
        sum += account->cost_s[j];
    return sum;
}

double dp_account_unit_s(const dp_account_config *config)
{
    double fastest = 0;
    uint32_t bytes = 0;
    for (uint32_t f = 0; f < config->layout.field_count; f++)
        bytes = (uint32_t)rt_max_u64(bytes, dp_row_bytes(&config->layout, f, false));
    for (uint32_t j = 0; j < config->worker_count; j++) {
        fastest = fmax(fastest, config->links[j].up_bytes_per_s);
        fastest = fmax(fastest, config->links[j].down_bytes_per_s);
    }
    return bytes / fastest;
}
