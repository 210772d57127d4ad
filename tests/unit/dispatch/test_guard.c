// The guard of what is published: against the base rate, against the last good one, both margins.
#include "tests/support/test.h"

#include <math.h>

#include "dispatch/coordinator/dp_guard.h"

static const rt_publish_config margins = {
    .guard_log_loss = 0.05, .guard_calibration = 0.25, .guard_samples = 1000};

static double entropy(double p)
{
    return -p * log(p) - (1 - p) * log(1 - p);
}

// So many batches of 100 samples whose log loss is a share of the base rate's.
static void add(dp_guard *guard, int batches, double share, double mean_label, double calibration)
{
    const rt_quality batch = {.sample_count = 100,
                              .log_loss = share * entropy(mean_label),
                              .mean_label = mean_label,
                              .mean_prediction = calibration * mean_label};
    for (int i = 0; i < batches; i++)
        dp_guard_add(guard, &margins, &batch);
}

static bool is_held(dp_guard *guard, const rt_publish_config *config)
{
    dp_verdict verdict;
    dp_guard_judge(guard, config, &verdict);
    assert_true(verdict.is_held == (verdict.why[0] != '\0'));
    return verdict.is_held;
}

static void worse_than_the_base_rate(void **state)
{
    dp_guard guard = {0};
    (void)state;
    assert_false(is_held(&guard, &margins)); // nothing is known yet
    add(&guard, 10, 1.06, 0.2, 1);
    assert_true(is_held(&guard, &margins));
    add(&guard, 100, 1.04, 0.2, 1);
    assert_false(is_held(&guard, &margins));
}

// Exactly as bad as it may be: 64 samples, and halves, lose no bits.
static void at_the_limit(void **state)
{
    const rt_publish_config twice = {.guard_log_loss = 1, .guard_samples = 1000};
    const rt_quality batch = {.sample_count = 64,
                              .log_loss = 2 * entropy(0.5),
                              .mean_label = 0.5,
                              .mean_prediction = 0.5};
    dp_guard guard = {0};
    (void)state;
    dp_guard_add(&guard, &twice, &batch);
    assert_false(is_held(&guard, &twice));
}

static void worse_than_the_last_good_one(void **state)
{
    dp_guard guard = {0};
    (void)state;
    add(&guard, 100, 0.8, 0.2, 1);
    assert_false(is_held(&guard, &margins));
    add(&guard, 100, 0.83, 0.2, 1); // within the margin: the last good one from now on
    assert_false(is_held(&guard, &margins));
    add(&guard, 100, 0.88, 0.2, 1); // 0.83 x 1.05 is 0.8715
    assert_true(is_held(&guard, &margins));
    add(&guard, 100, 0.86, 0.2, 1); // one that was held is not the last good one
    assert_false(is_held(&guard, &margins));
}

// More clicks make every log loss larger, and no model worse.
static void another_base_rate(void **state)
{
    dp_guard guard = {0};
    (void)state;
    add(&guard, 100, 0.8, 0.02, 1);
    assert_false(is_held(&guard, &margins));
    add(&guard, 100, 0.8, 0.3, 1);
    assert_false(is_held(&guard, &margins));
}

static void calibration(void **state)
{
    dp_guard guard = {0};
    (void)state;
    add(&guard, 100, 0.8, 0.2, 1.1);
    assert_false(is_held(&guard, &margins));
    add(&guard, 100, 0.8, 0.2, 1.4); // 1.1 x 1.25 is 1.375
    assert_true(is_held(&guard, &margins));
    add(&guard, 100, 0.8, 0.2, 1 / 1.4); // too low is as bad as too high
    assert_true(is_held(&guard, &margins));
    add(&guard, 100, 0.8, 0.2, 1 / 1.3);
    assert_false(is_held(&guard, &margins));
}

static void margins_of_nothing(void **state)
{
    const rt_publish_config none = {.guard_samples = 1000};
    dp_guard guard = {0};
    (void)state;
    add(&guard, 10, 3, 0.2, 5);
    assert_true(is_held(&guard, &margins));
    assert_false(is_held(&guard, &none));
}

// After guard_samples samples a batch counts for a factor of e less.
static void old_samples_fade(void **state)
{
    dp_guard guard = {0};
    dp_verdict verdict;
    (void)state;
    add(&guard, 1, 0.5, 0.2, 1);
    add(&guard, 10, 1.0, 0.2, 1);
    double weight = 0, sum = 0;
    for (int i = 0; i < 11; i++) {
        weight += exp(-i / 10.0);
        sum += exp(-i / 10.0) * (i == 10 ? 0.5 : 1);
    }
    dp_guard_judge(&guard, &margins, &verdict);
    test_close(verdict.normalised_entropy, sum / weight, 1e-12, 1, "the fading mean");
}

// Whatever the accuracy, the base is a model that gives all classes the same probability.
static void several_classes(void **state)
{
    dp_guard guard = {0};
    dp_verdict verdict;
    (void)state;
    const rt_quality batch = {.sample_count = 100,
                              .log_loss = 1.5,
                              .mean_label = 0.9,
                              .mean_prediction = 0.9,
                              .class_count = 7};
    dp_guard_add(&guard, &margins, &batch);
    dp_guard_judge(&guard, &margins, &verdict);
    test_close(verdict.normalised_entropy, 1.5 / log(7), 1e-12, 1, "log loss");
    assert_false(verdict.is_held);
}

TEST_MAIN(TEST(worse_than_the_base_rate), TEST(at_the_limit), TEST(worse_than_the_last_good_one),
          TEST(another_base_rate), TEST(calibration), TEST(margins_of_nothing),
          TEST(old_samples_fade), TEST(several_classes))
