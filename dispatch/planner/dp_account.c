#include "dispatch/planner/dp_account.h"

#include <math.h>

// ---- as checkpoints keep it ------------------------------------------------------------------

#define TRAFFIC(XX, PART, NONE, T) \
    XX(T, up)                      \
    XX(T, down)
RT_FIELDS(traffic_fields, dp_traffic, TRAFFIC, "");

#define HITS(XX, PART, NONE, T) \
    XX(T, lookups)              \
    XX(T, lookups_hit)          \
    XX(T, keys)                 \
    XX(T, keys_hit)             \
    XX(T, distinct)
RT_FIELDS(hits_fields, dp_hits, HITS, "");

#define CLOCKS(XX, PART, NONE, T) \
    XX(T, stale_keys)             \
    XX(T, clock_messages)         \
    XX(T, clock_spread)
RT_FIELDS(clocks_fields, dp_clocks, CLOCKS, "");

#define BOXES(XX, PART, NONE, T) \
    XX(T, up)                    \
    XX(T, down)                  \
    XX(T, rows_up)               \
    XX(T, rows_down)
RT_FIELDS(boxes_fields, dp_box_traffic, BOXES, "");

#define HANDED(XX, PART, NONE, T) \
    XX(T, rows)                   \
    XX(T, gradients)              \
    XX(T, bytes)                  \
    XX(T, cost_s)
RT_FIELDS(handed_fields, dp_handed, HANDED, "");

#define ACCOUNT(XX, PART, NONE, T)                                             \
    XX(T, iterations)                                                          \
    XX(T, samples)                                                             \
    PART(T, workers, &rt_counts_fields)                                        \
    PART(T, traffic, &traffic_fields) XX(T, micro_batch)                       \
    XX(T, cost_s)                                                              \
    XX(T, predicted_s)                                                         \
    PART(T, hits, &hits_fields)                                                \
    PART(T, clocks, &clocks_fields) PART(T, boxes, &boxes_fields) XX(T, moved) \
    PART(T, handed, &handed_fields)
RT_FIELDS_SHARED(dp_account_fields, dp_account, ACCOUNT, "");

#define FIRST                                                                                   \
    "iterations:8 samples:8 workers*64{miss_pull:8 update_push:8 evict_push:8 flush_push:8 "    \
    "grad_push:8 first_touch:8 pull_sum:8} traffic*64{up:8 down:8} micro_batch:512 cost_s:512 " \
    "predicted_s:8 hits*1{lookups:8 lookups_hit:8 keys:8 keys_hit:8 distinct:8}"
#define WITH_CLOCKS FIRST " clocks*1{stale_keys:8 clock_messages:8 clock_spread:8}"
#define WITH_BOXES WITH_CLOCKS " boxes*1{up:512 down:512 rows_up:512 rows_down:512} moved:8"
#define WITH_HANDED WITH_BOXES " handed*1{rows:8 bytes:8 cost_s:8}"
#define WITH_GRADIENTS WITH_BOXES " handed*1{rows:8 gradients:8 bytes:8 cost_s:8}"

const char *dp_account_before(uint64_t size)
{
    static const struct {
        uint64_t size;
        const char *text;
    } all[] = {{5696, FIRST},
               {5720, WITH_CLOCKS},
               {7776, WITH_BOXES},
               {7800, WITH_HANDED},
               {7808, WITH_GRADIENTS}};
    for (uint32_t i = 0; i < RT_COUNT_OF(all); i++) {
        if (all[i].size == size)
            return all[i].text;
    }
    return NULL;
}

// ---- counting --------------------------------------------------------------------------------

static uint64_t dense_bytes_of(const dp_account_config *config, uint32_t iteration,
                               uint64_t participants)
{
    return dp_dense_bytes(config->dense_bytes, config->dense_whole_bytes, iteration, participants);
}

double dp_predict_s(const dp_account_config *config, uint32_t iteration, uint64_t participants,
                    const dp_traffic *traffic, uint64_t handed, const uint32_t *micro_batch)
{
    double slowest = 0, rows_up = 0, rows_down = 0;
    const uint64_t dense_bytes = dense_bytes_of(config, iteration, participants);
    const double dense = (double)dense_bytes * rt_bit_count(participants);
    for (uint32_t j = 0; j < config->worker_count; j++) {
        rows_up += (double)traffic[j].up;
        rows_down += (double)traffic[j].down;
    }
    for (uint64_t rest = participants; rest; rest &= rest - 1) {
        const uint32_t j = rt_lowest_bit(rest);
        double up = (double)(traffic[j].up + dense_bytes);
        double down = (double)(traffic[j].down + dense_bytes);
        double links = fmax(up / config->rates.links[j].up_bytes_per_s,
                            down / config->rates.links[j].down_bytes_per_s);
        slowest = fmax(slowest, links + config->rates.compute_s_per_sample[j] * micro_batch[j]);
    }
    const double rows = fmax(rows_up, rows_down) - (double)handed;
    return fmax(slowest,
                dp_shards_s(config->rates.ps_bytes_per_s, &config->rates.shards, rows, dense));
}

void dp_account_init(const dp_planner_config *planner, dp_account_config *config)
{
    *config = (dp_account_config){.layout = planner->layout,
                                  .worker_count = planner->worker_count,
                                  .boxes = planner->boxes,
                                  .rates = planner->rates,
                                  .dense_bytes = planner->dense_bytes,
                                  .dense_whole_bytes = planner->dense_whole_bytes,
                                  .dense_return_bytes = planner->dense_return_bytes};
}

void dp_account_apply(const dp_input *input, dp_account_config *config)
{
    double *rate = dp_rates_at(&config->rates, (dp_input_kind)input->kind, input->worker);
    if (rate)
        *rate = input->value;
}

// What a plan takes where boxes are told; returns its predicted time.
static double add_boxes(const dp_account_config *config, const dp_plan *plan,
                        const uint32_t *micro_batch, dp_account *account)
{
    const dp_boxes *boxes = &config->boxes;
    const dp_shards *shards = &config->rates.shards;
    dp_box_traffic traffic = {0};
    for (uint32_t j = 0; j < config->worker_count; j++) {
        dp_boxes_add_slice(boxes, &config->layout, shards->count, j, &plan->slices[j], &traffic);
        account->cost_s[j] +=
            dp_boxes_slice_cost_s(boxes, &config->layout, &config->rates, j, &plan->slices[j]);
    }
    dp_boxes_add_dense(boxes, shards, plan->participants,
                       dense_bytes_of(config, plan->iteration, plan->participants), &traffic);
    dp_boxes_add_return(boxes, shards, plan->returning, plan->sharing, config->dense_return_bytes,
                        &traffic);
    dp_box_traffic_add(&traffic, boxes->count, &account->boxes);
    account->moved += plan->moves;
    return dp_boxes_predict_s(boxes, &config->rates, plan->participants, &traffic, micro_batch);
}

// Where boxes are told, between their links.
static dp_handed slice_handed(const dp_account_config *config, uint32_t worker,
                              const dp_slice *slice)
{
    dp_link links[RT_SITE_BOXES_MAX];
    if (!config->boxes.count)
        return dp_slice_handed(&config->layout, config->rates.links, NULL, worker, slice);
    dp_box_links(&config->boxes, &config->rates, links);
    return dp_slice_handed(&config->layout, links, config->boxes.of_worker, worker, slice);
}

void dp_account_add(const dp_account_config *config, const dp_plan *plan, dp_account *account)
{
    dp_traffic traffic[RT_WORKERS_MAX];
    uint32_t micro_batch[RT_WORKERS_MAX];
    dp_handed handed = {0};
    for (uint32_t j = 0; j < config->worker_count; j++) {
        const dp_slice *slice = &plan->slices[j];
        const dp_passing passing = dp_slice_passing(&config->layout, slice);
        traffic[j] = dp_passing_traffic(&passing);
        micro_batch[j] = slice->sample_count;
        dp_counts_add_slice(&account->workers[j], slice);
        account->traffic[j].up += traffic[j].up;
        account->traffic[j].down += traffic[j].down;
        account->micro_batch[j] += micro_batch[j];
        if (plan->returning >> j & 1)
            traffic[j].down += config->dense_return_bytes;
        if (plan->sharing >> j & 1)
            traffic[j].up += config->dense_return_bytes;
        if (!config->boxes.count)
            account->cost_s[j] += dp_passing_cost_s(&passing, &config->rates.links[j]);
        if (passing.received == 0)
            continue;
        const dp_handed taken = slice_handed(config, j, slice);
        account->cost_s[j] += taken.cost_s;
        dp_handed_add(&handed, &taken);
    }
    account->iterations++;
    account->samples += plan->sample_count;
    if (config->boxes.count)
        account->predicted_s += add_boxes(config, plan, micro_batch, account);
    else
        account->predicted_s += dp_predict_s(config, plan->iteration, plan->participants, traffic,
                                             handed.bytes, micro_batch);
    dp_handed_add(&account->handed, &handed);
    account->hits.lookups += plan->hits.lookups;
    account->hits.lookups_hit += plan->hits.lookups_hit;
    account->hits.keys += plan->hits.keys;
    account->hits.keys_hit += plan->hits.keys_hit;
    account->hits.distinct += plan->hits.distinct;
    dp_clocks_add(&account->clocks, &plan->clocks);
}

double dp_account_dense_bytes(const dp_account_config *config, uint64_t before, uint64_t count)
{
    const uint64_t first = RT_CODING_WHOLE_ITERATIONS; // of a run
    uint64_t whole = 0;
    if (before < first)
        whole = rt_min_u64(first - before, count);
    const double usual = (double)config->dense_bytes;
    if (config->worker_count == 1)
        return 0;
    if (config->dense_whole_bytes == 0 || whole == 0)
        return usual;
    return usual + ((double)config->dense_whole_bytes - usual) * (double)whole / (double)count;
}

rt_counts dp_account_counts(const dp_account *account, uint32_t worker_count)
{
    rt_counts sum = {0};
    for (uint32_t j = 0; j < worker_count; j++)
        rt_counts_add(&sum, &account->workers[j]);
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
        fastest = fmax(fastest, config->rates.links[j].up_bytes_per_s);
        fastest = fmax(fastest, config->rates.links[j].down_bytes_per_s);
    }
    return bytes / fastest;
}
