// dp_bound: the bound is below every placement, the optimum is reached and never undercut, and the
// true cost is that of the definition, worked out by hand and by a naive model.
#include <math.h>
#include <string.h>

#include "tests/bench/dispatch/dp_bound.h"
#include "runtime/rt_hash.h"
#include "tests/support/test.h"

#define WORKERS_MAX 12
#define SAMPLES_MAX 48
#define FIELDS 4
#define KEYS_MAX (SAMPLES_MAX * FIELDS)

typedef struct {
    dp_view view;
    dp_ticks ticks;
    dp_distinct distinct[KEYS_MAX];
    uint32_t offsets[SAMPLES_MAX + 1];
    uint32_t lookups[SAMPLES_MAX * FIELDS];
    uint32_t capacity[WORKERS_MAX];
} problem;

static problem p; // too large for a stack; every case runs in a process of its own

static void clear(uint32_t workers, uint32_t samples, uint32_t fields)
{
    memset(&p, 0, sizeof p);
    p.view = (dp_view){.worker_count = workers,
                       .sample_count = samples,
                       .lookup_count = samples * fields,
                       .uniform = true,
                       .offsets = p.offsets,
                       .lookups = p.lookups,
                       .distinct = p.distinct,
                       .capacity = p.capacity,
                       .ticks = &p.ticks};
    p.ticks.worker_count = workers;
    p.ticks.field_count = fields;
    for (uint32_t j = 0; j < workers; j++)
        p.capacity[j] = samples / workers + (j < samples % workers);
    for (uint32_t i = 0; i <= samples; i++)
        p.offsets[i] = i * fields;
}

// ids per field decide how often keys are shared.
static void make_problem(uint32_t workers, uint32_t samples, uint32_t ids, rt_random *random)
{
    clear(workers, samples, FIELDS);
    p.view.distinct_count = ids * FIELDS;
    for (uint32_t j = 0; j < workers; j++) {
        int32_t slow = 1 + (int32_t)rt_random_below(random, 10);
        for (uint32_t f = 0; f < FIELDS; f++) {
            p.ticks.pull[f][j] = slow * (100 + 50 * (int32_t)f);
            p.ticks.push[f][j] = slow * (90 + 50 * (int32_t)f);
            p.ticks.grad[f][j] = slow * (80 + 40 * (int32_t)f);
        }
    }
    for (uint32_t d = 0; d < ids * FIELDS; d++) {
        dp_distinct *key = &p.distinct[d];
        *key = (dp_distinct){.key = d, .field = (uint8_t)(d / ids)};
        if (rt_random_below(random, 3) > 0)
            key->holders = rt_bit(rt_random_below(random, workers));
        if (key->holders && rt_random_below(random, 5) == 0)
            key->holders |= rt_bit(rt_random_below(random, workers));
        key->dirty = key->holders && rt_random_below(random, 2);
    }
    for (uint32_t i = 0; i < samples; i++) {
        for (uint32_t f = 0; f < FIELDS; f++) {
            uint32_t d = f * ids + rt_random_below(random, 1 + rt_random_below(random, ids));
            p.lookups[i * FIELDS + f] = d;
            p.distinct[d].uses++;
        }
    }
    for (uint32_t d = 0; d < ids * FIELDS; d++)
        p.distinct[d].uses = p.distinct[d].uses ? p.distinct[d].uses : 1; // in no sample: harmless
}

static void random_placement(rt_random *random, uint32_t *place)
{
    uint32_t room[WORKERS_MAX];
    memcpy(room, p.capacity, sizeof room);
    for (uint32_t i = 0; i < p.view.sample_count; i++) {
        do {
            place[i] = rt_random_below(random, p.view.worker_count);
        } while (room[place[i]] == 0);
        room[place[i]]--;
    }
}

// Two samples share key 0, which worker 0 owns dirty; key 1 is new, key 2 clean on worker 1.
static void cost_by_hand(void **state)
{
    (void)state;
    clear(2, 2, 2);
    p.view.distinct_count = 3;
    for (uint32_t j = 0; j < 2; j++) {
        for (uint32_t f = 0; f < 2; f++) {
            p.ticks.pull[f][j] = j ? 1000 : 10;
            p.ticks.push[f][j] = j ? 2000 : 20;
            p.ticks.grad[f][j] = j ? 3000 : 30;
        }
    }
    p.distinct[0] = (dp_distinct){.holders = 1, .dirty = true, .uses = 2};
    p.distinct[1] = (dp_distinct){.field = 1, .uses = 1};
    p.distinct[2] = (dp_distinct){.field = 1, .holders = 2, .uses = 1};
    uint32_t lookups[] = {0, 1, 0, 2};
    memcpy(p.lookups, lookups, sizeof lookups);
    static const struct {
        uint32_t place[2];
        int64_t cost;
    } cases[] = {
        // key 0: push 20, pull 1000, gradients 30 + 3000; key 1: 10 + 14; key 2: 0 + 1400
        {{0, 1}, 20 + 1000 + 30 + 3000 + 10 + 14 + 1400},
        // key 1: 1000 + 1400; key 2 pulled by 0: 10 + 14
        {{1, 0}, 20 + 1000 + 30 + 3000 + 1000 + 1400 + 10 + 14},
        // both on 0, which owns key 0: only its later push, 14
        {{0, 0}, 14 + 10 + 14 + 10 + 14},
        {{1, 1}, 20 + 1000 + 1400 + 1000 + 1400 + 1400},
    };
    for (size_t k = 0; k < RT_COUNT_OF(cases); k++) {
        int64_t cost = 0;
        assert_int_equal(dp_bound_cost(&p.view, cases[k].place, &cost), RT_OK);
        assert_int_equal(cost, cases[k].cost);
    }
    int64_t best = 0;
    assert_int_equal(dp_bound_optimum(&p.view, &best), RT_OK); // capacities 1 and 1
    assert_int_equal(best, cases[0].cost);
}

static void bound_is_below_the_optimum(void **state)
{
    (void)state;
    rt_random random = {7};
    double tightest = 0;
    for (uint32_t round = 0; round < 150; round++) {
        uint32_t workers = 1 + rt_random_below(&random, 4);
        make_problem(workers, 2 + rt_random_below(&random, 7), 1 + rt_random_below(&random, 12),
                     &random);
        int64_t bound = 0, optimum = 0;
        assert_int_equal(dp_bound_lower(&p.view, &bound), RT_OK);
        assert_int_equal(dp_bound_optimum(&p.view, &optimum), RT_OK);
        assert_true(bound <= optimum);
        tightest = fmax(tightest, (double)bound / (double)optimum);
    }
    assert_true(tightest > 0.99); // it is not a bound of nothing
}

// Capacities that force a key onto several workers count.
static void bound_knows_capacities(void **state)
{
    (void)state;
    clear(4, 8, 1);
    p.view.distinct_count = 1;
    p.distinct[0].uses = 8;
    for (uint32_t j = 0; j < 4; j++)
        p.ticks.pull[0][j] = p.ticks.push[0][j] = p.ticks.grad[0][j] = 100;
    int64_t bound = 0, optimum = 0;
    assert_int_equal(dp_bound_lower(&p.view, &bound), RT_OK);
    assert_int_equal(dp_bound_optimum(&p.view, &optimum), RT_OK);
    assert_int_equal(optimum, 4 * 200);
    assert_in_range(bound, 4 * 200 - 8, 4 * 200); // rounding: a tick per sample
}

static void optimum_is_the_least_of_many(void **state)
{
    (void)state;
    rt_random random = {3};
    uint32_t place[SAMPLES_MAX];
    for (uint32_t round = 0; round < 40; round++) {
        make_problem(3, 5, 4, &random);
        int64_t optimum = 0, least = INT64_MAX;
        assert_int_equal(dp_bound_optimum(&p.view, &optimum), RT_OK);
        for (uint32_t k = 0; k < 2000; k++) { // 30 placements in all
            int64_t cost = 0;
            random_placement(&random, place);
            assert_int_equal(dp_bound_cost(&p.view, place, &cost), RT_OK);
            least = cost < least ? cost : least;
        }
        assert_int_equal(optimum, least);
    }
}

static void bound_is_below_large_placements(void **state)
{
    (void)state;
    rt_random random = {11};
    uint32_t place[SAMPLES_MAX];
    for (uint32_t round = 0; round < 60; round++) {
        make_problem(2 + rt_random_below(&random, 11), SAMPLES_MAX, 1 + round % 40, &random);
        int64_t bound = 0, cost = 0;
        assert_int_equal(dp_bound_lower(&p.view, &bound), RT_OK);
        for (uint32_t k = 0; k < 20; k++) {
            random_placement(&random, place);
            assert_int_equal(dp_bound_cost(&p.view, place, &cost), RT_OK);
            assert_true(bound <= cost);
        }
    }
}

TEST_MAIN(TEST(cost_by_hand), TEST(bound_is_below_the_optimum), TEST(bound_knows_capacities),
          TEST(optimum_is_the_least_of_many), TEST(bound_is_below_large_placements))
