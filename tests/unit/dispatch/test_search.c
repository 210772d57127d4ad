// dp_search against the definition of the true cost, and against exhaustive search.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "dispatch/policies/dp_search.h"
#include "tests/support/test.h"

#define WORKERS_MAX 12
#define SAMPLES_MAX 192
#define FIELDS 5
#define KEYS_MAX (SAMPLES_MAX * FIELDS)

typedef struct {
    dp_view view;
    dp_ticks ticks;
    dp_distinct distinct[KEYS_MAX];
    uint8_t held[KEYS_MAX];
    uint32_t offsets[SAMPLES_MAX + 1];
    uint32_t lookups[SAMPLES_MAX * FIELDS];
    uint32_t capacity[RT_WORKERS_MAX];
} problem;

static problem p; // too large for a stack; every case runs in a process of its own

// Keys with random holders: nobody, a dirty owner, a clean holder, several (clean or dirty).
static void make_problem(uint32_t workers, uint32_t samples, uint32_t ids, bool equal_rows,
                         rt_random *random)
{
    memset(&p, 0, sizeof p);
    p.view = (dp_view){.worker_count = workers,
                       .sample_count = samples,
                       .lookup_count = samples * FIELDS,
                       .distinct_count = ids * FIELDS,
                       .uniform = true,
                       .offsets = p.offsets,
                       .lookups = p.lookups,
                       .distinct = p.distinct,
                       .held = p.held,
                       .capacity = p.capacity,
                       .ticks = &p.ticks};
    p.ticks.worker_count = workers;
    p.ticks.field_count = FIELDS;
    for (uint32_t j = 0; j < workers; j++) {
        int32_t slow = 1 + (int32_t)rt_random_below(random, 10);
        p.capacity[j] = samples / workers + (j < samples % workers);
        for (uint32_t f = 0; f < FIELDS; f++) {
            int32_t size = equal_rows ? 100 : 100 + 50 * (int32_t)(f % 3);
            p.ticks.pull[f][j] = slow * size;
            p.ticks.push[f][j] = slow * size + 7 * (int32_t)j;
            p.ticks.grad[f][j] = slow * size - 11;
        }
    }
    for (uint32_t d = 0; d < ids * FIELDS; d++) {
        dp_distinct *key = &p.distinct[d];
        uint32_t kind = rt_random_below(random, 4);
        uint64_t mask = rt_random_u64(random) & UINT64_MAX >> (64 - workers);
        *key = (dp_distinct){.key = d, .field = (uint8_t)(d / ids)};
        key->holders = kind == 0 ? 0 : kind == 3 ? mask : rt_bit(rt_random_below(random, workers));
        key->dirty = key->holders && rt_random_below(random, 2);
    }
    for (uint32_t i = 0; i < samples; i++) {
        p.offsets[i] = i * FIELDS;
        for (uint32_t f = 0; f < FIELDS; f++) {
            uint32_t a = rt_random_below(random, ids), b = rt_random_below(random, ids);
            uint32_t d = f * ids + (a < b ? a : b); // small ids are popular
            p.lookups[i * FIELDS + f] = d;
            p.distinct[d].uses++;
        }
    }
    p.offsets[samples] = samples * FIELDS;
}

static void random_prices(const dp_view *view, rt_random *random, dp_prices *prices)
{
    memset(prices, 0, sizeof *prices);
    for (uint32_t j = 0; j < view->worker_count; j++) {
        prices->up[j] = 0.25 + rt_random_unit(random);
        prices->down[j] = 0.25 + rt_random_unit(random);
        prices->sample[j] = (int32_t)rt_random_below(random, 50);
    }
}

static int64_t rounded(int32_t ticks, double weight)
{
    return (int64_t)rint(ticks * weight);
}

// The definition, key by key, from the set of its trainers.
static int64_t naive_key(const dp_prices *prices, const dp_distinct *key, uint64_t users)
{
    int64_t cost = 0, cheapest = INT64_MAX;
    uint32_t f = key->field;
    for (uint32_t j = 0; j < p.view.worker_count; j++) {
        bool uses = users >> j & 1, holds = key->holders >> j & 1;
        cost += uses && !holds ? rounded(p.ticks.pull[f][j], prices->down[j]) : 0;
        if (uses && rt_bit_count(users) > 1)
            cost += rounded(p.ticks.grad[f][j], prices->up[j]);
        if (uses && rt_bit_count(users) == 1)
            cost += rounded(p.ticks.push[f][j], prices->up[j] * DP_SEARCH_LATER);
        int64_t push = rounded(p.ticks.push[f][j], prices->up[j]);
        cheapest = holds && push < cheapest ? push : cheapest;
    }
    bool stays = rt_bit_count(users) == 1 && users == key->holders;
    return cost + (key->dirty && key->holders && !stays ? cheapest : 0);
}

static int64_t naive_cost(const dp_prices *prices, const uint32_t *worker_of)
{
    int64_t cost = 0;
    uint64_t users[KEYS_MAX] = {0};
    for (uint32_t i = 0; i < p.view.sample_count; i++) {
        cost += prices->sample[worker_of[i]];
        for (uint32_t f = 0; f < FIELDS; f++)
            users[p.lookups[i * FIELDS + f]] |= rt_bit(worker_of[i]);
    }
    for (uint32_t d = 0; d < p.view.distinct_count; d++) {
        if (users[d])
            cost += naive_key(prices, &p.distinct[d], users[d]);
    }
    return cost;
}

static void fill_placement(rt_random *random, uint32_t *worker_of)
{
    uint32_t at = 0;
    for (uint32_t j = 0; j < p.view.worker_count; j++) {
        for (uint32_t k = 0; k < p.capacity[j]; k++)
            worker_of[at++] = j;
    }
    for (uint32_t i = at; i > 1; i--) {
        uint32_t other = rt_random_below(random, i), kept = worker_of[i - 1];
        worker_of[i - 1] = worker_of[other];
        worker_of[other] = kept;
    }
}

static dp_search *make_search(void)
{
    dp_search *search;
    assert_int_equal(
        dp_search_create(p.view.worker_count, p.ticks.box_count, SAMPLES_MAX, KEYS_MAX, &search),
        RT_OK);
    return search;
}

static void equal_limits(dp_search_limits *limits, uint32_t evaluations)
{
    memset(limits->rows_max, 0xff, sizeof limits->rows_max);
    limits->evaluations_max = evaluations;
    memcpy(limits->min, p.capacity, sizeof limits->min);
    memcpy(limits->max, p.capacity, sizeof limits->max);
}

static void cost_is_the_definition(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 400; seed++) {
        rt_random random = {seed};
        uint32_t worker_of[SAMPLES_MAX];
        dp_prices prices;
        make_problem(1 + rt_random_below(&random, WORKERS_MAX), 1 + rt_random_below(&random, 90),
                     2 + rt_random_below(&random, 30), seed % 2, &random);
        random_prices(&p.view, &random, &prices);
        fill_placement(&random, worker_of);
        dp_search *search = make_search();
        assert_int_equal(dp_search_cost(search, &p.view, &prices, worker_of),
                         naive_cost(&prices, worker_of));
        dp_search_destroy(search);
    }
}

// On a link that is much faster than the slowest a row of any size takes one tick.
static void rows_that_differ_on_slow_links_only(void **state)
{
    (void)state;
    rt_random random = {3};
    uint32_t worker_of[SAMPLES_MAX];
    dp_prices prices;
    make_problem(4, 60, 10, false, &random);
    for (uint32_t f = 0; f < FIELDS; f++)
        p.ticks.pull[f][0] = p.ticks.push[f][0] = p.ticks.grad[f][0] = 1;
    random_prices(&p.view, &random, &prices);
    fill_placement(&random, worker_of);
    dp_search *search = make_search();
    assert_int_equal(dp_search_cost(search, &p.view, &prices, worker_of),
                     naive_cost(&prices, worker_of));
    dp_search_destroy(search);
}

// Sizes within the limits, cost never above the start, the evaluations counted and bounded.
static void search_improves_within_its_limits(void **state)
{
    (void)state;
    double start_sum = 0, end_sum = 0;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        rt_random random = {seed};
        uint32_t worker_of[SAMPLES_MAX], loads[WORKERS_MAX] = {0};
        dp_prices prices;
        dp_search_limits limits;
        make_problem(1 + rt_random_below(&random, WORKERS_MAX), 20 + rt_random_below(&random, 70),
                     2 + rt_random_below(&random, 30), seed % 2, &random);
        random_prices(&p.view, &random, &prices);
        fill_placement(&random, worker_of);
        equal_limits(&limits, rt_random_below(&random, 3000));
        for (uint32_t j = 0; j < p.view.worker_count && seed % 3 == 0; j++) {
            limits.min[j] -= (uint32_t)rt_min_u64(limits.min[j], rt_random_below(&random, 5));
            limits.max[j] += rt_random_below(&random, 5);
        }
        int64_t before = naive_cost(&prices, worker_of);
        dp_search *search = make_search();
        uint32_t spent = dp_search_run(search, &p.view, &prices, &limits, &random, worker_of);
        int64_t after = naive_cost(&prices, worker_of);
        assert_true(after <= before);
        assert_true(spent <= limits.evaluations_max + 3); // the swap in progress is finished
        for (uint32_t i = 0; i < p.view.sample_count; i++)
            loads[worker_of[i]]++;
        for (uint32_t j = 0; j < p.view.worker_count; j++)
            assert_in_range(loads[j], limits.min[j], limits.max[j]);
        start_sum += (double)before;
        end_sum += (double)after;
        dp_search_destroy(search);
    }
    assert_true(end_sum < 0.95 * start_sum); // random starts: there is much to gain
}

// Prices beyond all links, as of a parameter server said to have next to none.
static void absurd_prices_are_bounded(void **state)
{
    (void)state;
    rt_random random = {1};
    uint32_t worker_of[SAMPLES_MAX];
    dp_prices prices;
    dp_search_limits limits;
    make_problem(4, 80, 20, false, &random);
    random_prices(&p.view, &random, &prices);
    for (uint32_t j = 0; j < p.view.worker_count; j++)
        prices.up[j] = prices.down[j] = 1e12;
    fill_placement(&random, worker_of);
    equal_limits(&limits, 1000);
    dp_search *search = make_search();
    const int64_t before = dp_search_cost(search, &p.view, &prices, worker_of);
    assert_true(before > 0);
    dp_search_run(search, &p.view, &prices, &limits, &random, worker_of);
    const int64_t after = dp_search_cost(search, &p.view, &prices, worker_of);
    assert_true(after > 0 && after <= before);
    dp_search_destroy(search);
}

// Rows that all of 64 workers train, and a parameter server whose link is as slow as up to 16 of
// theirs: what a sample's rows cost on all workers together is judged as at a sixteenth of the
// prices.
static void many_workers_and_a_slow_ps(void **state)
{
    (void)state;
    for (uint32_t factor = 1; factor <= 16; factor++) {
        rt_random random = {factor};
        uint32_t found[2][SAMPLES_MAX];
        dp_prices prices = {0};
        dp_search_limits limits = {.evaluations_max = 3000};
        make_problem(RT_WORKERS_MAX, SAMPLES_MAX, 2, true, &random);
        for (uint32_t d = 0; d < p.view.distinct_count; d++)
            p.distinct[d].holders = p.distinct[d].dirty = 0;
        for (uint32_t j = 0; j < RT_WORKERS_MAX; j++) {
            prices.up[j] = prices.down[j] = (1 - rt_random_unit(&random) / 8) / 16;
            for (uint32_t f = 0; f < FIELDS; f++)
                p.ticks.pull[f][j] = p.ticks.push[f][j] = p.ticks.grad[f][j] = 1 << 18;
            limits.max[j] = 2 * p.capacity[j];
        }
        fill_placement(&random, found[0]);
        memcpy(found[1], found[0], sizeof found[0]);
        for (uint32_t i = 0; i < 2; i++) {
            rt_random own = random;
            dp_search *search = make_search();
            dp_search_run(search, &p.view, &prices, &limits, &own, found[i]);
            dp_search_destroy(search);
            for (uint32_t j = 0; j < RT_WORKERS_MAX && i == 0; j++) {
                prices.up[j] *= 16 * factor;
                prices.down[j] *= 16 * factor;
            }
        }
        const double low = (double)naive_cost(&prices, found[0]);
        test_close((double)naive_cost(&prices, found[1]), low, 1e-3, 0, "cost found");
    }
}

// Near the optimum a step that was judged wrongly shows: the exact cost would rise.
static void no_step_raises_the_cost(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        rt_random random = {seed};
        uint32_t worker_of[SAMPLES_MAX];
        dp_prices prices;
        dp_search_limits limits;
        make_problem(2 + rt_random_below(&random, WORKERS_MAX - 1), 60, 10, seed % 2, &random);
        fill_placement(&random, worker_of);
        equal_limits(&limits, 0);
        for (uint32_t j = 0; j < p.view.worker_count; j++)
            limits.max[j] += 2;
        dp_search *search = make_search();
        for (uint32_t run = 0; run < 40; run++) {
            random_prices(&p.view, &random, &prices); // what was best is so no more
            for (uint32_t step = 0; step < 12; step++) {
                limits.evaluations_max = 1 + step * step; // few: the runs are short
                int64_t before = naive_cost(&prices, worker_of);
                dp_search_run(search, &p.view, &prices, &limits, &random, worker_of);
                assert_true(naive_cost(&prices, worker_of) <= before);
            }
            limits.evaluations_max = 4000;
            dp_search_run(search, &p.view, &prices, &limits, &random, worker_of);
        }
        dp_search_destroy(search);
    }
}

static void same_seed_same_placement(void **state)
{
    (void)state;
    rt_random random = {7};
    uint32_t start[SAMPLES_MAX], first[SAMPLES_MAX], second[SAMPLES_MAX];
    dp_prices prices;
    dp_search_limits limits;
    make_problem(8, 90, 20, true, &random);
    random_prices(&p.view, &random, &prices);
    fill_placement(&random, start);
    equal_limits(&limits, 100000);
    memcpy(first, start, sizeof start);
    memcpy(second, start, sizeof start);
    dp_search *a = make_search(), *b = make_search();
    rt_random once = random, again = random;
    dp_search_run(a, &p.view, &prices, &limits, &once, first);
    dp_search_run(a, &p.view, &prices, &limits, &random, second); // used before: no trace of it
    assert_memory_equal(first, second, p.view.sample_count * sizeof *first);
    memcpy(second, start, sizeof start);
    dp_search_run(b, &p.view, &prices, &limits, &again, second);
    assert_memory_equal(first, second, p.view.sample_count * sizeof *first);
    dp_search_destroy(a);
    dp_search_destroy(b);
}

// The best placement of 9 samples on 3 workers, 3 each.
static int64_t exhaustive(const dp_prices *prices, uint32_t *worker_of, uint32_t at, uint32_t *room)
{
    int64_t best = INT64_MAX;
    if (at == p.view.sample_count)
        return naive_cost(prices, worker_of);
    for (uint32_t j = 0; j < p.view.worker_count; j++) {
        if (!room[j])
            continue;
        room[j]--;
        worker_of[at] = j;
        int64_t cost = exhaustive(prices, worker_of, at + 1, room);
        best = cost < best ? cost : best;
        room[j]++;
    }
    return best;
}

// Local search from a random start: a single move or swap away from nothing better, which on such
// instances is within a few percent of the optimum. The bound is ten times what was seen.
static void close_to_the_optimum(void **state)
{
    (void)state;
    double found_sum = 0, best_sum = 0;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        rt_random random = {seed};
        uint32_t worker_of[SAMPLES_MAX], scratch[SAMPLES_MAX], room[WORKERS_MAX];
        dp_prices prices;
        dp_search_limits limits;
        make_problem(3, 9, 6, true, &random);
        random_prices(&p.view, &random, &prices);
        fill_placement(&random, worker_of);
        equal_limits(&limits, 100000);
        dp_search *search = make_search();
        dp_search_run(search, &p.view, &prices, &limits, &random, worker_of);
        memcpy(room, p.capacity, sizeof room);
        int64_t best = exhaustive(&prices, scratch, 0, room),
                found = naive_cost(&prices, worker_of);
        assert_true(found >= best);
        found_sum += (double)found;
        best_sum += (double)best;
        dp_search_destroy(search);
    }
    printf("%.4f of the optimum\n", found_sum / best_sum);
    assert_true(found_sum < 1.1 * best_sum);
}

// Rows of one sample each, equally dear everywhere: no placement is better than another.
static void what_costs_the_same_stays(void **state)
{
    (void)state;
    rt_random random = {5};
    uint32_t worker_of[SAMPLES_MAX], before[SAMPLES_MAX];
    dp_prices prices = {0};
    dp_search_limits limits;
    make_problem(3, 30, 30, true, &random);
    for (uint32_t j = 0; j < 3; j++) {
        prices.up[j] = prices.down[j] = 1;
        for (uint32_t f = 0; f < FIELDS; f++)
            p.ticks.pull[f][j] = p.ticks.push[f][j] = p.ticks.grad[f][j] = 100;
    }
    for (uint32_t d = 0; d < p.view.distinct_count; d++) {
        p.distinct[d].holders = p.distinct[d].dirty = 0;
        p.distinct[d].uses = 1;
        p.lookups[d % 30 * FIELDS + d / 30] = d;
    }
    fill_placement(&random, worker_of);
    memcpy(before, worker_of, sizeof before);
    equal_limits(&limits, 100000);
    for (uint32_t j = 0; j < 3; j++) {
        limits.min[j] = 0;
        limits.max[j] = 30;
    }
    dp_search *search = make_search();
    dp_search_run(search, &p.view, &prices, &limits, &random, worker_of);
    assert_memory_equal(worker_of, before, 30 * sizeof *before);
    dp_search_destroy(search);
}

// Where it finds nothing to change, no sample costs less on another worker.
static void nothing_is_left_to_move(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        rt_random random = {seed};
        uint32_t worker_of[SAMPLES_MAX], before[SAMPLES_MAX], runs = 0;
        dp_prices prices;
        dp_search_limits limits;
        make_problem(2 + (uint32_t)seed % 3, 30, 6, seed % 2, &random);
        random_prices(&p.view, &random, &prices);
        fill_placement(&random, worker_of);
        equal_limits(&limits, 100000);
        for (uint32_t j = 0; j < p.view.worker_count; j++) {
            limits.min[j] = 0;
            limits.max[j] = p.view.sample_count;
        }
        dp_search *search = make_search();
        do {
            memcpy(before, worker_of, sizeof before);
            dp_search_run(search, &p.view, &prices, &limits, &random, worker_of);
        } while (memcmp(before, worker_of, 30 * sizeof *before) != 0 && ++runs < 1000);
        const int64_t found = naive_cost(&prices, worker_of);
        for (uint32_t i = 0; i < p.view.sample_count; i++) {
            const uint32_t own = worker_of[i];
            for (uint32_t j = 0; j < p.view.worker_count; j++) {
                worker_of[i] = j;
                assert_true(naive_cost(&prices, worker_of) >= found);
            }
            worker_of[i] = own;
        }
        dp_search_destroy(search);
    }
}

static void loads_are_what_moves(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 100; seed++) {
        rt_random random = {seed};
        uint32_t worker_of[SAMPLES_MAX];
        dp_prices ones = {0};
        dp_search_limits limits;
        dp_loads loads;
        int64_t sum = 0, later = 0;
        make_problem(1 + rt_random_below(&random, WORKERS_MAX), 60, 12, true, &random);
        for (uint32_t j = 0; j < p.view.worker_count; j++)
            ones.up[j] = ones.down[j] = 1;
        for (uint32_t d = 0; d < p.view.distinct_count; d++) // any holder may push: make it unique
            p.distinct[d].dirty &= rt_bit_count(p.distinct[d].holders) == 1;
        fill_placement(&random, worker_of);
        equal_limits(&limits, 0);
        dp_search *search = make_search();
        dp_search_run(search, &p.view, &ones, &limits, &random, worker_of);
        dp_search_loads(search, &loads);
        uint64_t users[KEYS_MAX] = {0};
        for (uint32_t i = 0; i < p.view.lookup_count; i++)
            users[p.lookups[i]] |= rt_bit(worker_of[i / FIELDS]);
        for (uint32_t d = 0; d < p.view.distinct_count; d++) {
            if (rt_bit_count(users[d]) == 1)
                later += rounded(p.ticks.push[p.distinct[d].field][rt_lowest_bit(users[d])],
                                 DP_SEARCH_LATER);
        }
        for (uint32_t j = 0; j < p.view.worker_count; j++) {
            assert_int_equal(loads.samples[j], p.capacity[j]);
            sum += loads.up[j] + loads.down[j];
        }
        assert_int_equal(sum, naive_cost(&ones, worker_of) - later);
        dp_search_destroy(search);
    }
}

TEST_MAIN(TEST(cost_is_the_definition), TEST(rows_that_differ_on_slow_links_only),
          TEST(search_improves_within_its_limits), TEST(no_step_raises_the_cost),
          TEST(same_seed_same_placement), TEST(close_to_the_optimum), TEST(nothing_is_left_to_move),
          TEST(what_costs_the_same_stays), TEST(loads_are_what_moves),
          TEST(absurd_prices_are_bounded), TEST(many_workers_and_a_slow_ps))
