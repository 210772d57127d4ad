#include "dispatch/planner/dp_choice.h"

#include <math.h>

#include "dispatch/cost/dp_ticks.h"
#include "runtime/rt_hash.h"

#define APART 0.25   // of rows that placement does not bring together
#define HALVINGS 24u // of the interval that the time is in

// ---- what a batch needs ----------------------------------------------------------------------

typedef struct {
    uint64_t *keys; // plus one; 0: free
    uint64_t mask;
} key_set;

// Whether it is new.
static bool add_key(key_set *set, uint64_t key)
{
    uint64_t at = rt_mix(key) & set->mask;
    while (set->keys[at] != 0 && set->keys[at] != key + 1)
        at = (at + 1) & set->mask;
    const bool is_new = set->keys[at] == 0;
    set->keys[at] = key + 1;
    return is_new;
}

rt_status dp_demand_measure(const rt_batch *batch, const dp_layout *layout, dp_demand *demand)
{
    key_set set = {.mask = 1};
    while (set.mask < 2 * (uint64_t)batch->key_count)
        set.mask *= 2;
    *demand = (dp_demand){.sample_count = batch->sample_count};
    set.keys = rt_alloc(set.mask--, sizeof *set.keys);
    demand->bytes = rt_alloc((size_t)batch->sample_count + 1, sizeof *demand->bytes);
    if (!set.keys || !demand->bytes) {
        rt_free(set.keys);
        dp_demand_fini(demand);
        return RT_NO_MEMORY;
    }
    for (uint32_t i = 0; i < batch->sample_count; i++) {
        uint64_t bytes = demand->bytes[i];
        for (uint32_t k = batch->key_offsets[i]; k < batch->key_offsets[i + 1]; k++) {
            if (add_key(&set, batch->keys[k]))
                bytes += dp_row_bytes(layout, rt_key_field(batch->keys[k]), true);
        }
        demand->bytes[i + 1] = bytes;
    }
    rt_free(set.keys);
    return RT_OK;
}

void dp_demand_fini(dp_demand *demand)
{
    rt_free(demand->bytes);
    *demand = (dp_demand){0};
}

// ---- times -----------------------------------------------------------------------------------

typedef struct {
    const dp_planner_config *config;
    const dp_demand *demand;
    double moved;
    double at_hand; // part of the rows that are at home on the one box that takes part
    uint32_t count; // of workers
    uint32_t ranks[RT_WORKERS_MAX];
} question;

static double slower_way(const dp_link *link)
{
    return fmin(link->up_bytes_per_s, link->down_bytes_per_s);
}

double dp_estimate_dense_s(const dp_planner_config *config, uint32_t rank)
{
    return (double)config->dense_bytes / slower_way(&config->rates.links[rank]);
}

static double row_bytes(const question *q, uint32_t samples)
{
    const dp_demand *d = q->demand;
    const double together = (double)d->bytes[d->sample_count] * samples / d->sample_count;
    return (1 - q->at_hand) * q->moved *
           ((1 - APART) * together + APART * (double)d->bytes[samples]);
}

static double worker_s(const question *q, uint32_t rank, uint32_t samples)
{
    const dp_rates *rates = &q->config->rates;
    const double dense_s = q->count > 1 ? dp_estimate_dense_s(q->config, rank) : 0;
    return dense_s + row_bytes(q, samples) / slower_way(&rates->links[rank]) +
           rates->compute_s_per_sample[rank] * samples;
}

// Where homes are planned a box that trains alone has all rows, if it has shards with room for
// them; several boxes share rows, and move about as many as without.
static double part_at_hand(const dp_planner_config *config, uint64_t workers)
{
    const dp_boxes *boxes = &config->boxes;
    const uint32_t box = boxes->of_worker[rt_lowest_bit(workers)];
    uint32_t shards = 0;
    if (config->homes != RT_HOMES_PLANNED)
        return 0;
    for (uint64_t rest = workers; rest; rest &= rest - 1)
        if (boxes->of_worker[rt_lowest_bit(rest)] != box)
            return 0;
    for (uint32_t s = 0; s < config->rates.shards.count; s++)
        shards += boxes->of_shard[s] == box;
    if (config->shard_share > 0)
        return fmin(1, shards * config->shard_share);
    return shards > 0;
}

// The most samples, of least to most, with which a worker is done in time; at least the least.
static uint32_t samples_in(const question *q, uint32_t rank, double seconds, uint32_t least,
                           uint32_t most)
{
    while (least < most) {
        const uint32_t middle = most - (most - least) / 2;
        if (worker_s(q, rank, middle) <= seconds)
            least = middle;
        else
            most = middle - 1;
    }
    return least;
}

// Samples of each worker, in all at least those of the batch, so that all are done early.
static void level(const question *q, uint32_t least, uint32_t most, uint32_t *samples)
{
    const uint32_t all = q->demand->sample_count, share = (all + q->count - 1) / q->count;
    double low = 0, high = 0;
    for (uint32_t j = 0; j < q->count; j++)
        high = fmax(high, worker_s(q, q->ranks[j], share));
    for (uint32_t i = 0; i <= HALVINGS; i++) {
        const double middle = i < HALVINGS ? (low + high) / 2 : high;
        uint64_t sum = 0;
        for (uint32_t j = 0; j < q->count; j++) {
            samples[j] = samples_in(q, q->ranks[j], middle, least, most);
            sum += samples[j];
        }
        if (sum < all)
            low = middle;
        else
            high = middle;
    }
}

double dp_estimate_row_bytes(const dp_planner_config *config, const dp_demand *demand,
                             uint64_t workers)
{
    const question q = {
        .config = config, .demand = demand, .moved = 1, .at_hand = part_at_hand(config, workers)};
    const uint32_t count = rt_bit_count(workers);
    return count * row_bytes(&q, (demand->sample_count + count - 1) / count);
}

double dp_estimate_s(const dp_planner_config *config, const dp_demand *demand, double moved,
                     uint64_t workers)
{
    question q = {.config = config,
                  .demand = demand,
                  .moved = moved,
                  .at_hand = part_at_hand(config, workers)};
    uint32_t samples[RT_WORKERS_MAX];
    double slowest = 0, rows = 0, sum = 0;
    for (uint64_t rest = workers; rest; rest &= rest - 1)
        q.ranks[q.count++] = rt_lowest_bit(rest);
    const uint32_t all = demand->sample_count, share = (all + q.count - 1) / q.count;
    const bool equal = config->micro_batch_max == 0;
    uint32_t least = share, most = share;
    if (!equal) {
        least = (uint32_t)rt_min_u64(config->micro_batch_min, share);
        most = (uint32_t)rt_min_u64(rt_max_u64(config->micro_batch_max, share), all);
    }
    level(&q, least, most, samples);
    for (uint32_t j = 0; j < q.count; j++) {
        slowest = fmax(slowest, worker_s(&q, q.ranks[j], samples[j]));
        rows += row_bytes(&q, samples[j]);
        sum += samples[j];
    }
    const double dense = q.count > 1 ? (double)config->dense_bytes * q.count : 0;
    return fmax(slowest, dp_shards_s(config->rates.ps_bytes_per_s, &config->rates.shards,
                                     rows * all / sum, dense));
}
