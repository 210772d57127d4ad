// Quantiles of latencies against sorted numbers.
#include "runtime/metrics/rt_latency.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/rt_hash.h"
#include "tests/support/test.h"

static int compare(const void *left, const void *right)
{
    const uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

static void agrees_with_sorting(void **state)
{
    (void)state;
    enum { COUNT = 5000 };
    uint64_t *all = calloc(COUNT, sizeof *all);
    rt_latency halves[2] = {0};
    rt_random random = {3};
    for (uint32_t i = 0; i < COUNT; i++) {
        all[i] = (uint64_t)1 << (10 + rt_random_below(&random, 25));
        all[i] += rt_random_u64(&random) % all[i];
        rt_latency_add(&halves[i % 2], all[i]);
    }
    rt_latency_merge(&halves[0], &halves[1]);
    qsort(all, COUNT, sizeof *all, compare);
    assert_int_equal(halves[0].count, COUNT);
    assert_int_equal(halves[0].max_ns, all[COUNT - 1]);
    static const double shares[] = {0.01, 0.5, 0.9, 0.99, 1};
    for (size_t i = 0; i < RT_COUNT_OF(shares); i++)
        test_close((double)rt_latency_quantile_ns(&halves[0], shares[i]),
                   (double)all[(size_t)(shares[i] * COUNT) - 1], 0.025, 1, "a quantile");
    free(all);
}

static void takes_arrivals(void **state)
{
    (void)state;
    struct timespec now;
    rt_latency latency = {0};
    clock_gettime(CLOCK_REALTIME, &now);
    const uint64_t ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    const uint64_t arrivals[] = {ns - 2000000000u, 0, ns + 3600000000000u, ns - 1000000000u};
    rt_latency_add_arrivals(&latency, arrivals, 4);
    assert_int_equal(latency.count, 3); // one is unknown; one comes from a clock that was set back
    assert_in_range(latency.max_ns, 2000000000u, 60000000000u);
    assert_in_range(rt_latency_quantile_ns(&latency, 0.5), 900000000u, 60000000000u);
    const rt_latency none = {0};
    assert_int_equal(rt_latency_quantile_ns(&none, 0.5), 0);
}

TEST_MAIN(TEST(agrees_with_sorting), TEST(takes_arrivals))
