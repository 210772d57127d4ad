// The estimate of an iteration's time against its definition, on small random cases: what a batch
// needs by reading it again and again, and the time that levels all workers by trying every one
// that any of them could take.
#include "dispatch/planner/dp_choice.h"

#include <math.h>

#include "tests/support/random_batches.h"
#include "tests/support/test.h"

#define WORKERS 5u
#define SAMPLES 40u
#define FIELDS 3u
#define APART 0.25

typedef struct {
    dp_planner_config config;
    rt_batch batch;
    double bytes[SAMPLES + 1]; // of distinct rows of so many samples
    double moved, at_hand;
    uint32_t ranks[WORKERS], count;
} problem;

static bool is_among_first(const rt_batch *batch, uint32_t at)
{
    for (uint32_t i = 0; i < at; i++)
        if (batch->keys[i] == batch->keys[at])
            return true;
    return false;
}

static void read_needs(problem *p)
{
    for (uint32_t i = 0; i < p->batch.sample_count; i++) {
        p->bytes[i + 1] = p->bytes[i];
        for (uint32_t k = p->batch.key_offsets[i]; k < p->batch.key_offsets[i + 1]; k++) {
            const uint32_t field = rt_key_field(p->batch.keys[k]);
            if (!is_among_first(&p->batch, k))
                p->bytes[i + 1] +=
                    16 + 4.0 * (p->config.layout.values[field] + p->config.layout.state[field]);
        }
    }
}

static double above_zero(rt_random *random)
{
    return 0.05 + rt_random_unit(random);
}

static void make_problem(problem *p, rt_random *random)
{
    random_batches batches;
    dp_planner_config *c = &p->config;
    *p = (problem){.moved = above_zero(random)};
    c->worker_count = 1 + rt_random_below(random, WORKERS);
    c->layout.field_count = FIELDS;
    for (uint32_t f = 0; f < FIELDS; f++) {
        c->layout.values[f] = 8 + 4 * f;
        c->layout.state[f] = f;
    }
    c->dense_bytes = rt_random_below(random, 3) * 3000;
    for (uint32_t j = 0; j < c->worker_count; j++) {
        c->rates.links[j] = (dp_link){1e6 * above_zero(random), 1e6 * above_zero(random)};
        c->rates.compute_s_per_sample[j] = rt_random_below(random, 2) * 1e-3 * above_zero(random);
        c->boxes.of_worker[j] = (uint8_t)rt_random_below(random, 2);
    }
    c->rates.ps_bytes_per_s = rt_random_below(random, 2) * 1e6 * above_zero(random);
    c->rates.shards.count = c->rates.shards.dense_count = 1 + rt_random_below(random, 4);
    for (uint32_t s = 0; s < c->rates.shards.count; s++)
        c->boxes.of_shard[s] = (uint8_t)rt_random_below(random, 3);
    c->homes = rt_random_below(random, 2) ? RT_HOMES_PLANNED : RT_HOMES_HASHED;
    c->shard_share = rt_random_below(random, 2) ? 0.3 : 0;
    random_batches_init(&batches, rt_random_u64(random), FIELDS, 30, 2, 0.7);
    rt_batch_init(&p->batch, 0);
    random_batches_fill(&batches, &p->batch, 1 + rt_random_below(random, SAMPLES));
    random_batches_fini(&batches);
    if (rt_random_below(random, 3)) {
        c->micro_batch_max = 1 + rt_random_below(random, SAMPLES + 9);
        c->micro_batch_min = rt_random_below(random, 6);
    }
    read_needs(p);
}

static void choose_workers(problem *p, uint64_t workers)
{
    const dp_planner_config *c = &p->config;
    uint32_t shards = 0;
    bool one_box = true;
    p->count = 0;
    for (uint32_t j = 0; j < c->worker_count; j++)
        if (workers >> j & 1)
            p->ranks[p->count++] = j;
    for (uint32_t j = 1; j < p->count; j++)
        one_box &= c->boxes.of_worker[p->ranks[j]] == c->boxes.of_worker[p->ranks[0]];
    for (uint32_t s = 0; s < c->rates.shards.count; s++)
        shards += c->boxes.of_shard[s] == c->boxes.of_worker[p->ranks[0]];
    p->at_hand = 0;
    if (c->homes == RT_HOMES_PLANNED && one_box && shards)
        p->at_hand = c->shard_share > 0 ? fmin(1, 0.3 * shards) : 1;
}

static double rows_of(const problem *p, uint32_t samples)
{
    const double all = p->bytes[p->batch.sample_count];
    const double together = all * samples / p->batch.sample_count;
    return p->moved * (1 - p->at_hand) * ((1 - APART) * together + APART * p->bytes[samples]);
}

static double slower_way(const problem *p, uint32_t rank)
{
    const dp_link *link = &p->config.rates.links[rank];
    return link->up_bytes_per_s < link->down_bytes_per_s ? link->up_bytes_per_s
                                                         : link->down_bytes_per_s;
}

static double time_of(const problem *p, uint32_t j, uint32_t samples)
{
    const uint32_t rank = p->ranks[j];
    const double dense = p->count > 1 ? (double)p->config.dense_bytes : 0;
    return (dense + rows_of(p, samples)) / slower_way(p, rank) +
           p->config.rates.compute_s_per_sample[rank] * samples;
}

// What every worker does in a time, at least the least; their sum.
static uint32_t done_in(const problem *p, double seconds, uint32_t least, uint32_t most,
                        uint32_t *samples)
{
    uint32_t sum = 0;
    for (uint32_t j = 0; j < p->count; j++) {
        samples[j] = least;
        for (uint32_t m = least + 1; m <= most && time_of(p, j, m) <= seconds * (1 + 1e-12); m++)
            samples[j] = m;
        sum += samples[j];
    }
    return sum;
}

static void level(const problem *p, uint32_t least, uint32_t most, uint32_t *samples)
{
    double best = INFINITY;
    uint32_t tried[WORKERS];
    if (done_in(p, 0, least, most, samples) >= p->batch.sample_count)
        return;
    for (uint32_t j = 0; j < p->count; j++)
        for (uint32_t m = least; m <= most; m++)
            if (time_of(p, j, m) < best &&
                done_in(p, time_of(p, j, m), least, most, tried) >= p->batch.sample_count)
                best = time_of(p, j, m);
    assert_true(isfinite(best));
    done_in(p, best, least, most, samples);
}

static double seconds_of(const problem *p)
{
    const dp_planner_config *c = &p->config;
    const uint32_t all = p->batch.sample_count, share = (all + p->count - 1) / p->count;
    uint32_t least = share, most = share, samples[WORKERS], sum = 0;
    double slowest = 0, rows = 0;
    if (c->micro_batch_max) {
        least = c->micro_batch_min < share ? c->micro_batch_min : share;
        most = c->micro_batch_max < share ? share : c->micro_batch_max;
        most = most < all ? most : all;
    }
    level(p, least, most, samples);
    for (uint32_t j = 0; j < p->count; j++) {
        slowest = fmax(slowest, time_of(p, j, samples[j]));
        rows += rows_of(p, samples[j]);
        sum += samples[j];
    }
    const double dense = p->count > 1 ? (double)c->dense_bytes * p->count : 0;
    const double served = rows * all / sum + dense;
    return c->rates.ps_bytes_per_s > 0 ? fmax(slowest, served / c->rates.ps_bytes_per_s) : slowest;
}

static void check_demand(const problem *p, const dp_demand *demand)
{
    assert_int_equal(demand->sample_count, p->batch.sample_count);
    for (uint32_t i = 0; i <= demand->sample_count; i++)
        assert_true((double)demand->bytes[i] == p->bytes[i]);
}

static void every_set_of_workers(void **state)
{
    (void)state;
    uint32_t at_hand = 0;
    for (uint64_t seed = 1; seed <= 500; seed++) {
        rt_random random = {seed};
        problem p;
        dp_demand demand;
        make_problem(&p, &random);
        assert_int_equal(dp_demand_measure(&p.batch, &p.config.layout, &demand), RT_OK);
        check_demand(&p, &demand);
        for (uint64_t workers = 1; workers < rt_bit(p.config.worker_count); workers++) {
            choose_workers(&p, workers);
            at_hand += p.at_hand > 0;
            test_close(dp_estimate_s(&p.config, &demand, p.moved, workers), seconds_of(&p), 1e-9,
                       1e-9, "seconds");
            const double moved = p.moved;
            p.moved = 1;
            test_close(dp_estimate_row_bytes(&p.config, &demand, workers),
                       p.count * rows_of(&p, (demand.sample_count + p.count - 1) / p.count), 1e-9,
                       1, "bytes");
            p.moved = moved;
        }
        for (uint32_t j = 0; j < p.config.worker_count; j++)
            test_close(dp_estimate_dense_s(&p.config, j),
                       (double)p.config.dense_bytes / slower_way(&p, j), 1e-12, 1, "dense");
        dp_demand_fini(&demand);
        rt_batch_fini(&p.batch);
    }
    assert_true(at_hand > 100);
}

TEST_MAIN(TEST(every_set_of_workers))
