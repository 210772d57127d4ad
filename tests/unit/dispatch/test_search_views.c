// dp_search on all that a view can tell (boxes, bounded staleness, who trains a row next, keys of
// more samples than it looks at): costs, loads and rows against their definitions, and caches.
#include <math.h>
#include <string.h>

#include "dispatch/policies/dp_search.h"
#include "tests/support/random_view.h"
#include "tests/support/test.h"

#define USES_MAX 255u // keys with more are trained everywhere

static random_view made; // too large for a stack

static const view_shape shapes[] = {
    {.workers = 4, .samples = 48, .fields = 3, .ids = 30, .bag_max = 1},
    {.workers = 9, .samples = 60, .fields = 3, .ids = 30, .bag_max = 2, .ps = true},
    {.workers = 5, .samples = 50, .fields = 3, .ids = 20, .bag_max = 1, .next = true},
    {.workers = 5, .samples = 50, .fields = 3, .ids = 20, .bag_max = 1, .owed = true, .ps = true},
    {.workers = 3, .samples = 50, .fields = 3, .ids = 20, .bag_max = 2, .summed = true, .ps = true},
    {.workers = 6, .samples = 60, .fields = 3, .ids = 25, .bag_max = 1, .boxes = 3},
    {.workers = 6, .samples = 60, .fields = 3, .ids = 25, .bag_max = 1, .boxes = 4, .homes = true},
    {.workers = 4, .samples = 40, .fields = 3, .ids = 25, .bag_max = 1, .boxes = 3, .summed = true},
    {.workers = 4, .samples = 40, .fields = 3, .ids = 25, .bag_max = 1, .boxes = 3, .next = true},
    {.workers = 3, .samples = 310, .fields = 2, .ids = 40, .bag_max = 1, .common = 6, .ps = true},
    {.workers = 4, .samples = 330, .fields = 2, .ids = 60, .bag_max = 2, .common = 9, .boxes = 2},
};

static void random_placement(rt_random *random, uint32_t *worker_of)
{
    for (uint32_t i = 0; i < made.view.sample_count; i++)
        worker_of[i] = rt_random_below(random, made.view.worker_count);
}

static void random_prices(rt_random *random, dp_prices *prices)
{
    *prices = (dp_prices){0};
    for (uint32_t j = 0; j < made.view.worker_count; j++) {
        prices->up[j] = 0.25 + rt_random_unit(random);
        prices->down[j] = 0.25 + rt_random_unit(random);
        prices->sample[j] = (int32_t)rt_random_below(random, 50);
    }
    for (uint32_t b = 0; b < made.ticks.box_count; b++) {
        prices->box_up[b] = 0.25 + rt_random_unit(random);
        prices->box_down[b] = 0.25 + rt_random_unit(random);
    }
}

static dp_search *make_search(void)
{
    dp_search *search;
    assert_int_equal(dp_search_create(made.view.worker_count, made.ticks.box_count,
                                      RANDOM_VIEW_SAMPLES_MAX, RANDOM_VIEW_LOOKUPS_MAX, &search),
                     RT_OK);
    return search;
}

// ---- costs -------------------------------------------------------------------------------------

static int32_t rounded(int32_t ticks, double weight)
{
    return (int32_t)rint(ticks * weight);
}

// What a row costs one worker: to have it, to bring it back, to send a gradient of it, and later.
typedef struct {
    int32_t pull, push, grad, later;
} row_prices;

static row_prices prices_on_boxes(const dp_prices *p, const dp_distinct *key, uint32_t j)
{
    const dp_ticks *t = &made.ticks;
    const uint32_t f = key->field, own = t->box_of[j], there = key->box;
    const int32_t out = rounded(t->grad[f][j], p->box_up[own]);
    if (there == own)
        return (row_prices){0};
    if (there == DP_NO_BOX) // it will be with one of its trainers
        return (row_prices){.grad = out};
    const int32_t push =
        rounded(t->push[f][j], p->box_up[own]) + rounded(t->box_down[f][there], p->box_down[there]);
    const bool stays = t->homes_move && t->shard_boxes >> own & 1;
    return (row_prices){.pull = rounded(t->pull[f][j], p->box_down[own]) +
                                rounded(t->box_up[f][there], p->box_up[there]),
                        .push = push,
                        .grad = out + rounded(t->box_grad[f][there], p->box_down[there]),
                        .later = stays ? 0 : (int32_t)(push * DP_SEARCH_LATER)};
}

static row_prices prices_of(const dp_prices *p, const dp_distinct *key, uint32_t j)
{
    const dp_ticks *t = &made.ticks;
    const uint32_t f = key->field;
    row_prices one = {.pull = rounded(t->pull[f][j], p->down[j]),
                      .push = rounded(t->push[f][j], p->up[j]),
                      .grad = rounded(t->grad[f][j], p->up[j]),
                      .later = rounded(t->push[f][j], p->up[j] * DP_SEARCH_LATER)};
    if (t->box_count)
        one = prices_on_boxes(p, key, j);
    if (made.view.owed) // every trainer pushes its copy later
        one.grad = one.later;
    if (made.view.always_summed)
        one.later = one.grad;
    return one;
}

static int64_t cost_of_key(const dp_prices *p, uint32_t d, uint64_t users)
{
    const dp_distinct *key = &made.distinct[d];
    const bool alone = rt_bit_count(users) == 1;
    int64_t cost = 0, cheapest = INT64_MAX;
    for (uint32_t j = 0; j < made.view.worker_count; j++) {
        const row_prices one = prices_of(p, key, j);
        if (key->holders >> j & 1 && one.push < cheapest)
            cheapest = one.push;
        if (!(users >> j & 1))
            continue;
        cost += key->holders >> j & 1 ? 0 : one.pull;
        cost += made.view.owed && made.owed[d] >> j & 1 ? one.push : 0;
        cost += alone ? one.later : one.grad;
        if (alone && made.view.next && made.next[d] != DP_NO_NEXT)
            cost += ((made.next[d] == j ? -one.pull : one.push) - one.later) / DP_SEARCH_EXPECTED;
    }
    if (key->dirty && !(alone && users == key->holders))
        cost += cheapest;
    return cost;
}

static int64_t cost_of(const dp_prices *p, const uint32_t *worker_of)
{
    int64_t cost = 0;
    for (uint32_t i = 0; i < made.view.sample_count; i++)
        cost += p->sample[worker_of[i]];
    for (uint32_t d = 0; d < made.view.distinct_count; d++)
        if (made.distinct[d].uses <= USES_MAX)
            cost += cost_of_key(p, d, random_view_users(&made, d, worker_of));
    return cost;
}

static void costs_are_the_definition(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 10 * RT_COUNT_OF(shapes); i++) {
        rt_random random = {i};
        uint32_t worker_of[RANDOM_VIEW_SAMPLES_MAX];
        dp_prices prices;
        random_view_fill(&shapes[i % RT_COUNT_OF(shapes)], &random, &made);
        random_prices(&random, &prices);
        random_placement(&random, worker_of);
        dp_search *search = make_search();
        assert_int_equal(dp_search_cost(search, &made.view, &prices, worker_of),
                         cost_of(&prices, worker_of));
        dp_search_destroy(search);
    }
}

// Every step is judged by what it saves: as many evaluations as there are, the cost only falls.
static void no_step_raises_the_cost(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 3 * RT_COUNT_OF(shapes); i++) {
        rt_random random = {i};
        uint32_t worker_of[RANDOM_VIEW_SAMPLES_MAX];
        dp_prices prices;
        dp_search_limits limits = {0};
        random_view_fill(&shapes[i % RT_COUNT_OF(shapes)], &random, &made);
        random_prices(&random, &prices);
        random_placement(&random, worker_of);
        memset(limits.rows_max, 0xff, sizeof limits.rows_max);
        memset(limits.max, 0xff, sizeof limits.max);
        dp_search *search = make_search();
        int64_t before = cost_of(&prices, worker_of);
        for (uint32_t most = 1; most < 400; most += most) {
            limits.evaluations_max = most;
            dp_search_run(search, &made.view, &prices, &limits, &random, worker_of);
            const int64_t after = cost_of(&prices, worker_of);
            assert_true(after <= before);
            before = after;
        }
        dp_search_destroy(search);
    }
}

// ---- ESD's matrix ------------------------------------------------------------------------------

// Ticks of a row between a worker and where it is: the slower of both links, where boxes are told.
static int64_t passing(const dp_distinct *key, uint32_t j, bool up)
{
    const dp_ticks *t = &made.ticks;
    const uint32_t f = key->field;
    const int32_t own = up ? t->push[f][j] : t->pull[f][j];
    if (!t->box_count)
        return own;
    if (key->box == DP_NO_BOX || key->box == t->box_of[j])
        return 0;
    const int32_t there = up ? t->box_down[f][key->box] : t->box_up[f][key->box];
    return there > own ? there : own;
}

static int64_t matrix_cost(uint32_t d, uint32_t j)
{
    const dp_distinct *key = &made.distinct[d];
    const uint32_t next = made.view.next ? made.next[d] : DP_NO_NEXT;
    int64_t cost = 0;
    if (!(key->holders >> j & 1))
        cost += passing(key, j, false);
    for (uint32_t o = 0; o < made.view.worker_count && key->dirty; o++)
        if (key->holders >> o & 1 && !(key->holders >> j & 1))
            cost += passing(key, o, true);
    if (made.view.owed && made.owed[d] >> j & 1)
        cost += passing(key, j, true);
    if (next != DP_NO_NEXT && next != j)
        cost += made.ticks.push[key->field][j] + made.ticks.pull[key->field][next];
    return cost;
}

static void the_matrix_is_the_definition(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 6 * RT_COUNT_OF(shapes); i++) {
        static int32_t cost[RANDOM_VIEW_SAMPLES_MAX * RT_WORKERS_MAX];
        view_shape shape = shapes[i % RT_COUNT_OF(shapes)];
        rt_random random = {i};
        shape.changes = i / 2 % 2;
        random_view_fill(&shape, &random, &made);
        dp_cost_matrix(&made.view, cost, shape.workers);
        for (uint32_t k = 0; k < shape.samples; k++) {
            for (uint32_t j = 0; j < shape.workers; j++) {
                int64_t want = 0;
                for (uint32_t at = made.offsets[k]; at < made.offsets[k + 1]; at++)
                    want += matrix_cost(made.lookups[at], j);
                assert_int_equal(cost[k * shape.workers + j], want);
            }
        }
    }
}

// ---- loads -------------------------------------------------------------------------------------

// One transfer of a worker: to where the row is, or from there. row: one with state.
static void pass(dp_loads *loads, const dp_distinct *key, uint32_t box, uint32_t j, bool up,
                 bool row)
{
    const dp_ticks *t = &made.ticks;
    const uint32_t f = key->field, own = t->box_of[j];
    const int32_t ticks = up ? (row ? t->push[f][j] : t->grad[f][j]) : t->pull[f][j];
    if (t->box_count && (box == own || box == DP_NO_BOX))
        return;
    *(up ? &loads->up[j] : &loads->down[j]) += ticks;
    if (!t->box_count) {
        *(up ? &loads->ps_up : &loads->ps_down) += row ? t->ps_row[f] : t->ps_grad[f];
    } else if (up) {
        loads->box_up[own] += ticks;
        loads->box_down[box] += row ? t->box_down[f][box] : t->box_grad[f][box];
    } else {
        loads->box_down[own] += ticks;
        loads->box_up[box] += t->box_up[f][box];
    }
}

static void add_key(dp_loads *loads, uint32_t d, uint64_t users)
{
    const dp_distinct *key = &made.distinct[d];
    const uint32_t first = rt_lowest_bit(users);
    const uint32_t home = key->box == DP_NO_BOX ? made.ticks.box_of[first] : key->box;
    if (key->dirty && users != key->holders)
        pass(loads, key, key->box, rt_lowest_bit(key->holders), true, true);
    for (uint32_t j = 0; j < made.view.worker_count; j++) {
        if (!(users >> j & 1))
            continue;
        if (!(key->holders >> j & 1))
            pass(loads, key, key->box, j, false, true);
        if (made.view.owed && made.owed[d] >> j & 1)
            pass(loads, key, key->box, j, true, true);
        if (!made.view.owed && (rt_bit_count(users) > 1 || made.view.always_summed))
            pass(loads, key, home, j, true, false);
    }
}

static dp_loads loads_of(const uint32_t *worker_of)
{
    dp_loads loads = {0};
    uint64_t busy = 0;
    for (uint32_t i = 0; i < made.view.sample_count; i++) {
        loads.samples[worker_of[i]]++;
        busy |= rt_bit(worker_of[i]);
    }
    for (uint32_t d = 0; d < made.view.distinct_count; d++) {
        const bool everywhere = made.distinct[d].uses > USES_MAX;
        const uint64_t users = random_view_users(&made, d, worker_of);
        add_key(&loads, d, everywhere ? busy : users);
        for (uint32_t j = 0; j < made.view.worker_count; j++)
            loads.rows[j] += everywhere || users >> j & 1;
    }
    return loads;
}

static void loads_are_the_definition(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 6 * RT_COUNT_OF(shapes); i++) {
        rt_random random = {i};
        uint32_t worker_of[RANDOM_VIEW_SAMPLES_MAX];
        dp_prices prices;
        dp_search_limits limits = {.evaluations_max = i % 3 * 100};
        dp_loads got;
        random_view_fill(&shapes[i % RT_COUNT_OF(shapes)], &random, &made);
        random_prices(&random, &prices);
        random_placement(&random, worker_of);
        for (uint32_t k = 0; k < made.view.sample_count && i % 2; k++) // one has no sample
            worker_of[k] = worker_of[k] == 1 ? 0 : worker_of[k];
        memset(limits.rows_max, 0xff, sizeof limits.rows_max);
        for (uint32_t j = 0; j < made.view.worker_count; j++)
            limits.max[j] = i % 2 && j == 1 ? 0 : made.view.sample_count;
        dp_search *search = make_search();
        dp_search_run(search, &made.view, &prices, &limits, &random, worker_of);
        dp_search_loads(search, &got);
        dp_search_destroy(search);
        const dp_loads want = loads_of(worker_of);
        assert_true(i % 2 == 0 || want.samples[1] == 0);
        assert_memory_equal(&got, &want, sizeof got);
    }
}

// ---- caches ------------------------------------------------------------------------------------

// Of a worker: keys of its samples.
static uint32_t rows_of(const uint32_t *worker_of, uint32_t worker)
{
    uint32_t rows = 0;
    for (uint32_t d = 0; d < made.view.distinct_count; d++)
        rows += (uint32_t)(random_view_users(&made, d, worker_of) >> worker & 1);
    return rows;
}

static uint32_t most_keys(void)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < made.view.sample_count; i++)
        most = (uint32_t)rt_max_u64(most, made.offsets[i + 1] - made.offsets[i]);
    return most;
}

// Rows gather where they are cheap until a cache is full; from a cache with too many they go. Keys
// that nearly all samples have take room in it, too.
static void rows_fit_into_caches(void **state)
{
    (void)state;
    uint32_t full = 0, moved = 0;
    for (uint32_t i = 0; i < 40; i++) {
        const view_shape shape = {.workers = 3,
                                  .samples = 300,
                                  .fields = 2,
                                  .ids = 80,
                                  .bag_max = 1 + i % 2,
                                  .common = 20 * (i / 2 % 2)};
        rt_random random = {i};
        uint32_t worker_of[RANDOM_VIEW_SAMPLES_MAX];
        dp_prices prices;
        dp_search_limits limits = {.evaluations_max = 2000};
        random_view_fill(&shape, &random, &made);
        random_prices(&random, &prices);
        random_placement(&random, worker_of);
        for (uint32_t j = 0; j < 3; j++) {
            limits.max[j] = shape.samples;
            limits.rows_max[j] = rows_of(worker_of, j) + most_keys() + rt_random_below(&random, 9);
        }
        if (i % 5 == 0) { // worker 1 has more than fits, the others room for all
            limits.rows_max[1] = shape.common + 60;
            limits.rows_max[0] = limits.rows_max[2] = made.view.distinct_count + most_keys();
            limits.evaluations_max = 0;
            moved++;
        }
        dp_search *search = make_search();
        dp_search_run(search, &made.view, &prices, &limits, &random, worker_of);
        dp_search_destroy(search);
        for (uint32_t j = 0; j < 3; j++) {
            const uint32_t rows = rows_of(worker_of, j);
            const bool is_full = rows + most_keys() > limits.rows_max[j];
            assert_true(rows <= limits.rows_max[j]);
            assert_true(is_full || i % 5 || j != 1); // no more go than have to
            full += is_full;
        }
    }
    assert_true(full > 15 && moved > 5);
}

TEST_MAIN(TEST(the_matrix_is_the_definition), TEST(costs_are_the_definition),
          TEST(no_step_raises_the_cost), TEST(loads_are_the_definition), TEST(rows_fit_into_caches))
