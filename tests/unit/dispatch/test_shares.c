// Sizes of micro-batches: the level against all ways to share out few samples.
#include "dispatch/policies/dp_shares.h"

#include <math.h>

#include "runtime/rt_hash.h"
#include "tests/support/test.h"

#define WORKERS 3u
#define SAMPLES 14u
#define CASES 300u

static double longest(const dp_share *shares, const uint32_t *sizes)
{
    double most = 0;
    for (uint32_t j = 0; j < WORKERS; j++) {
        if (sizes[j] > shares[j].min)
            most = fmax(most, shares[j].fixed + shares[j].per_sample * sizes[j]);
    }
    return most;
}

// The least longest time over all splits within the bounds; who has the minimum does not count.
static double best_of_all(const dp_share *shares)
{
    double best = INFINITY;
    for (uint32_t a = shares[0].min; a <= shares[0].max; a++) {
        for (uint32_t b = shares[1].min; b <= shares[1].max && a + b <= SAMPLES; b++) {
            const uint32_t sizes[WORKERS] = {a, b, SAMPLES - a - b};
            if (sizes[2] >= shares[2].min && sizes[2] <= shares[2].max)
                best = fmin(best, longest(shares, sizes));
        }
    }
    return best;
}

static void draw(rt_random *random, dp_share *shares, double *step)
{
    *step = 0;
    for (uint32_t j = 0; j < WORKERS; j++) {
        shares[j] = (dp_share){rt_random_below(random, 40), 1 + rt_random_below(random, 20),
                               rt_random_below(random, 3), 5 + rt_random_below(random, SAMPLES)};
        *step = fmax(*step, shares[j].per_sample);
    }
}

// Whole samples cost at most one sample's time against the best split.
static void the_level_is_the_least_longest_time(void **state)
{
    (void)state;
    rt_random random = {7};
    for (uint32_t i = 0; i < CASES; i++) {
        dp_share shares[WORKERS];
        uint32_t sizes[WORKERS], sum = 0;
        double step;
        draw(&random, shares, &step);
        dp_shares_level(shares, WORKERS, SAMPLES, sizes);
        for (uint32_t j = 0; j < WORKERS; j++) {
            assert_in_range(sizes[j], shares[j].min, shares[j].max);
            sum += sizes[j];
        }
        assert_int_equal(sum, SAMPLES);
        assert_true(longest(shares, sizes) <= best_of_all(shares) + step);
    }
}

static void part_of_the_way(void **state)
{
    (void)state;
    const dp_share shares[] = {{0, 1, 0, 100}, {0, 1, 0, 100}};
    uint32_t sizes[] = {80, 20};
    dp_shares_approach(shares, 2, 100, 0.5, sizes); // the level is 50, 50
    assert_int_equal(sizes[0], 65);
    assert_int_equal(sizes[1], 35);
    dp_shares_approach(shares, 2, 50, 0, sizes); // another batch, the same proportion
    assert_int_equal(sizes[0] + sizes[1], 50);
    assert_in_range(sizes[0], 32, 33);
    sizes[0] = 1; // all of a batch of one sample
    sizes[1] = 0;
    dp_shares_approach(shares, 2, 80, 0, sizes);
    assert_int_equal(sizes[0], 80);
}

// Nobody had any: there is no proportion to keep.
static void from_nothing(void **state)
{
    (void)state;
    const dp_share shares[] = {{0, 1, 0, 100}, {0, 1, 0, 100}};
    for (uint32_t part = 0; part < 3; part++) {
        uint32_t sizes[] = {0, 0};
        dp_shares_approach(shares, 2, 100, part / 2.0, sizes);
        assert_int_equal(sizes[0], 50);
        assert_int_equal(sizes[1], 50);
    }
}

static void must_be(const dp_share *shares, uint32_t count, uint32_t samples, const uint32_t *want)
{
    uint32_t sizes[WORKERS];
    dp_shares_level(shares, count, samples, sizes);
    for (uint32_t j = 0; j < count; j++)
        assert_int_equal(sizes[j], want[j]);
}

// Bounds of all together that cannot hold the batch give way in turn, from worker 0 on; nothing is
// lost, and nobody has less than none.
static void bounds_that_cannot_be_kept(void **state)
{
    (void)state;
    const dp_share most[] = {{0, 1, 0, 3}, {0, 1, 0, 3}, {0, 1, 0, 3}};
    const dp_share least[] = {{0, 1, 4, 9}, {0, 1, 4, 9}},
                   one_has_none[] = {{0, 1, 0, 9}, {0, 1, 4, 9}, {0, 1, 4, 9}};
    must_be(most, 2, 10, (const uint32_t[]){5, 5});
    must_be(most, 2, 9, (const uint32_t[]){5, 4});
    must_be(most, 3, 10, (const uint32_t[]){4, 3, 3});
    must_be(least, 2, 5, (const uint32_t[]){2, 3});
    must_be(least, 2, 0, (const uint32_t[]){0, 0});
    must_be(one_has_none, 3, 1, (const uint32_t[]){0, 0, 1});
    must_be(one_has_none, 3, 6, (const uint32_t[]){0, 3, 3});
}

TEST_MAIN(TEST(the_level_is_the_least_longest_time), TEST(part_of_the_way), TEST(from_nothing),
          TEST(bounds_that_cannot_be_kept))
