#include "dispatch/solvers/dp_moves.h"
#include "runtime/rt_hash.h"
#include "tests/support/test.h"

#include <string.h>

#define ROWS 21u

typedef struct {
    int32_t costs[ROWS * (DP_LANES_MAX + 3)];
    int32_t prices[DP_LANES_MAX];
    size_t stride;
    uint32_t lane_count;
} sample;

// Few values, so that several lanes tie; now and then the extremes of what the solver passes.
static sample make(uint64_t seed)
{
    rt_random random = {seed};
    sample made = {.lane_count = DP_LANES * (1 + (uint32_t)(seed % 8))};
    made.stride = made.lane_count + seed % 4;
    uint32_t spread = seed % 3 ? 4 : (1u << 28) + 1;
    for (size_t i = 0; i < RT_COUNT_OF(made.costs); i++)
        made.costs[i] = (int32_t)rt_random_below(&random, spread);
    for (uint32_t l = 0; l < DP_LANES_MAX; l++)
        made.prices[l] = (int32_t)rt_random_below(&random, spread + 1);
    return made;
}

static void check_lowest(const dp_lanes_ops *lanes, const sample *made)
{
    uint64_t tied[ROWS];
    lanes->lowest(made->costs, ROWS, made->stride, made->prices, made->lane_count, tied);
    for (uint32_t r = 0; r < ROWS; r++) {
        const int32_t *costs = made->costs + r * made->stride;
        int32_t low = INT32_MAX;
        for (uint32_t l = 0; l < made->lane_count; l++)
            low = costs[l] + made->prices[l] < low ? costs[l] + made->prices[l] : low;
        for (uint32_t bit = 0; bit < 64; bit++) {
            uint32_t l = dp_lanes_of_bit(bit);
            bool want = l < made->lane_count && costs[l] + made->prices[l] == low;
            assert_int_equal(tied[r] >> bit & 1, want);
        }
    }
}

static void check_minima(const dp_lanes_ops *lanes, const sample *made)
{
    int32_t least[DP_LANES_MAX];
    for (uint32_t count = 1; count <= ROWS; count++) {
        lanes->minima(made->costs, count, made->lane_count, least);
        for (uint32_t l = 0; l < made->lane_count; l++) {
            int32_t low = made->costs[l];
            for (uint32_t r = 1; r < count; r++)
                low = made->costs[r * made->lane_count + l] < low
                          ? made->costs[r * made->lane_count + l]
                          : low;
            assert_int_equal(least[l], low);
        }
    }
}

// One step from a random state, against a loop over single values.
static void check_settle(const dp_lanes_ops *lanes, const sample *made, uint64_t seed)
{
    rt_random random = {seed};
    dp_lanes_search search = {0};
    uint32_t sink = rt_random_below(&random, made->lane_count);
    for (uint32_t l = 0; l < made->lane_count; l++) {
        // Prices below 2^33 and distances above: no arc leads below 0, as in the solver.
        search.price[l] = (int64_t)rt_random_below(&random, 1u << 31) * 4 * 128 + l;
        search.key[l] = (((INT64_C(1) << 33) + rt_random_below(&random, 1u << 31) * 4ll) << 7) + l;
        search.closed[l] = rt_random_below(&random, 3) ? 0 : INT64_MAX;
        search.parent[l] = -1;
    }
    search.key[sink] |= DP_LANES_KEY_FULL;
    int32_t weight_max = seed % 2 ? INT32_MAX : 2;
    dp_lanes_search want = search;
    int64_t want_low = INT64_MAX;
    want.closed[sink] = INT64_MAX;
    for (uint32_t l = 0; l < made->lane_count; l++) {
        int64_t weight = made->prices[l] < weight_max ? made->prices[l] : weight_max;
        int64_t distance =
            (search.key[sink] >> 7) - (search.price[sink] >> 7) + weight + (search.price[l] >> 7);
        if (distance * 128 + l < search.key[l]) {
            want.key[l] = distance * 128 + l;
            want.parent[l] = sink;
        }
        if (want.closed[l] == 0 && want.key[l] < want_low)
            want_low = want.key[l];
    }
    int64_t low = lanes->settle(&search, sink, made->prices, weight_max, made->lane_count);
    assert_true(low == want_low);
    assert_memory_equal(&search, &want, sizeof search);
}

static void test_variants(void **unused)
{
    (void)unused;
    const dp_lanes_ops *variants[] = {&dp_lanes_plain, dp_lanes_best()};
    for (uint64_t seed = 0; seed < 400; seed++) {
        sample made = make(seed);
        for (size_t v = 0; v < RT_COUNT_OF(variants); v++) {
            check_lowest(variants[v], &made);
            check_minima(variants[v], &made);
            check_settle(variants[v], &made, seed);
        }
    }
}

static void test_order_of_bits(void **unused)
{
    (void)unused;
    uint64_t seen = 0;
    for (uint32_t bit = 0; bit < 64; bit++)
        seen |= rt_bit(dp_lanes_of_bit(bit));
    assert_true(seen == UINT64_MAX);
    assert_int_equal(dp_lanes_count(1), 8);
    assert_int_equal(dp_lanes_count(8), 8);
    assert_int_equal(dp_lanes_count(9), 16);
    assert_int_equal(dp_lanes_count(64), 64);
}

TEST_MAIN(TEST(test_variants), TEST(test_order_of_bits))
