// The guard of what is published: against the base rate, against the last good one, both margins.
#include "tests/support/test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "dispatch/coordinator/dp_guard.h"
#include "runtime/rt_hash.h"

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

static dp_verdict judged(dp_guard *guard, const rt_publish_config *config)
{
    dp_verdict verdict;
    dp_guard_judge(guard, config, true, &verdict);
    assert_true(verdict.is_held == (verdict.why[0] != '\0'));
    assert_true(verdict.is_held || !verdict.is_early);
    if (!verdict.is_held)
        dp_guard_pass(guard, &verdict);
    return verdict;
}

static bool is_held(dp_guard *guard, const rt_publish_config *config)
{
    return judged(guard, config).is_held;
}

static void worse_than_the_base_rate(void **state)
{
    dp_guard guard = {0};
    (void)state;
    assert_true(judged(&guard, &margins).is_early); // nothing is known yet
    add(&guard, 10, 1.06, 0.2, 1);                  // 126 labels 1, that fade: chance makes a tenth
    assert_true(judged(&guard, &margins).is_early);
    add(&guard, 50, 1.2, 0.2, 1);
    assert_true(is_held(&guard, &margins));
    assert_false(judged(&guard, &margins).is_early);
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

// Both margins 1, and numbers that lose no bits: what is as far as it may be passes.
static void at_all_limits(void **state)
{
    static const rt_publish_config both = {
        .guard_log_loss = 1, .guard_calibration = 1, .guard_samples = 1000};
    static const struct {
        double entropy, calibration; // 0.5 of the labels are 1
        double good_entropy, good_calibration;
        bool is_held;
    } cases[] = {{2, 1, 0, 0, false},      {2.001, 1, 0, 0, true},   {1, 1, 0.5, 0, false},
                 {1.001, 1, 0.5, 0, true}, {1, 2, 0, 0, false},      {1, 2.001, 0, 0, true},
                 {1, 0.5, 0, 0, false},    {1, 0.499, 0, 0, true},   {1, 4, 0, 2, false},
                 {1, 4.001, 0, 2, true},   {1, 0.25, 0, 2, false},   {1, 0.249, 0, 2, true},
                 {1, 4, 0, 0.5, false},    {1, 0.249, 0, 0.5, true}, {0, 1, 0, 0, false},
                 {1, 0, 0, 0, true},       {2, 1, 2, 0, false},      {2.001, 1, 2, 0, true},
                 {1, 2, 0.5, 1, false},    {1.001, 2, 0.5, 1, true}};
    (void)state;
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
        dp_guard guard = {.samples = 64,
                          .loss = 64 * cases[i].entropy * entropy(0.5),
                          .labels = 32,
                          .predicted = 32 * cases[i].calibration,
                          .good_entropy = cases[i].good_entropy,
                          .good_calibration = cases[i].good_calibration};
        if (is_held(&guard, &both) != cases[i].is_held)
            fail_msg("case %zu", i);
    }
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
    dp_guard_judge(&guard, &margins, true, &verdict);
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
    dp_guard_judge(&guard, &margins, true, &verdict);
    test_close(verdict.normalised_entropy, 1.5 / log(7), 1e-12, 1, "log loss");
    assert_false(verdict.is_held);
}

// Labels of one class say nothing of a model, and nor does one that has learnt nothing; margins of
// 0 judge the first no more, and the second all the same.
static void not_yet(void **state)
{
    const rt_publish_config none = {.guard_samples = 1000};
    dp_guard guard = {0};
    dp_verdict verdict;
    (void)state;
    const rt_quality zeros = {.sample_count = 100, .log_loss = 0.01, .mean_prediction = 0.01};
    for (int i = 0; i < 50; i++)
        dp_guard_add(&guard, &margins, &zeros);
    assert_true(judged(&guard, &margins).is_early);
    assert_false(is_held(&guard, &none));
    const rt_quality ones = {
        .sample_count = 100, .log_loss = 0.01, .mean_label = 1, .mean_prediction = 1};
    guard = (dp_guard){0};
    dp_guard_add(&guard, &margins, &ones);
    assert_true(judged(&guard, &margins).is_early);
    add(&guard, 50, 0.8, 0.2, 1);
    assert_false(is_held(&guard, &margins));
    dp_guard_judge(&guard, &none, false, &verdict);
    assert_true(verdict.is_held && verdict.is_early &&
                strstr(verdict.why, "nothing has been learnt"));
}

// ---- against the version in force
// ----------------------------------------------------------------

static const rt_publish_config holding = {
    .guard_log_loss = 0.05, .guard_calibration = 0.25, .guard_samples = 1000, .guard_hold_s = 60};

static dp_comparison compared(double ours, double theirs)
{
    return (dp_comparison){.count = 4000,
                           .rarer = 400,
                           .ones = 400,
                           .log_loss = {ours, theirs},
                           .difference_deviation = 0.001,
                           .calibration = {1, 1}};
}

static dp_verdict compare(const dp_comparison *comparison, double held_s)
{
    dp_verdict verdict = {.is_held = true, .why = "the first look"};
    dp_guard_compare(&holding, comparison, 313, held_s, &verdict);
    return verdict;
}

// However much worse than its own past a model is: it passes if the one in force is no better.
static void the_same_samples_decide(void **state)
{
    (void)state;
    static const struct {
        double ours, theirs;
        bool is_held;
    } cases[] = {{0.4, 3, false},       {0.4, 0.4, false},   {0.43, 0.4, true},
                 {0.4219, 0.4, false},  {0.4221, 0.4, true}, {NAN, 0.4, true},
                 {0.4, INFINITY, false}};
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
        const dp_comparison comparison = compared(cases[i].ours, cases[i].theirs);
        const dp_verdict verdict = compare(&comparison, 0);
        if (verdict.is_held != cases[i].is_held || verdict.is_chosen || verdict.is_early)
            fail_msg("case %zu", i);
        assert_true(verdict.is_held == (strstr(verdict.why, "(iteration 313)") != NULL));
    }
    dp_comparison comparison = compared(0.4, 0.4);
    comparison.calibration[DP_OURS] = 1.5; // 1.25, and chance: a tenth of its logarithm
    assert_true(compare(&comparison, 0).is_held);
    comparison.calibration[DP_THEIRS] = 1.5;
    assert_false(compare(&comparison, 0).is_held);
    comparison.calibration[DP_THEIRS] = 1;
    comparison.calibration[DP_OURS] = 1.35;
    assert_false(compare(&comparison, 0).is_held);
    comparison.rarer = 3; // the better one may be the one that says label 0 to all
    comparison.log_loss[DP_OURS] = 0.1;
    assert_true(compare(&comparison, 59).is_held && compare(&comparison, 59).is_early);
    assert_false(compare(&comparison, 60).is_held);
    comparison.count = 0; // no sample since: nothing to say
    assert_true(compare(&comparison, 0).is_held && compare(&comparison, 0).is_early);
}

// When none has passed for long the better one is in force, whatever the margins.
static void the_better_of_the_two(void **state)
{
    (void)state;
    dp_comparison comparison = compared(0.43, 0.4);
    assert_true(compare(&comparison, 59).is_held);
    assert_null(strstr(compare(&comparison, 59).why, "still the better"));
    assert_true(compare(&comparison, 61).is_held);
    assert_non_null(strstr(compare(&comparison, 61).why, "still the better of the two"));
    comparison = compared(0.39, 0.4);
    comparison.calibration[DP_OURS] = 2;
    assert_true(compare(&comparison, 59).is_held);
    const dp_verdict verdict = compare(&comparison, 60);
    assert_true(!verdict.is_held && verdict.is_chosen);
}

// ---- the same, written down once more ----------------------------------------------------------

#define BATCHES 30u

// Batches that count, with all that came before.
typedef struct {
    uint32_t count, class_count;
    double samples[BATCHES], losses[BATCHES], labels[BATCHES], predictions[BATCHES];
    double good_entropy, good_calibration; // so far from the best as the last good one was
} model;

static void note(model *m, const rt_quality *batch)
{
    if (!batch->sample_count || !isfinite(batch->log_loss) || !isfinite(batch->mean_label))
        return;
    m->samples[m->count] = (double)batch->sample_count;
    m->losses[m->count] = batch->log_loss;
    m->labels[m->count] = batch->mean_label;
    m->predictions[m->count++] = batch->mean_prediction;
    m->class_count = batch->class_count;
}

// The mean over all batches: each counts for less with every sample that came after it.
static double faded(const model *m, const rt_publish_config *config, const double *values)
{
    double sum = 0, weight = 0, after = 0;
    for (uint32_t i = m->count; i-- > 0;) {
        const double one = m->samples[i] * exp(-after / (double)config->guard_samples);
        sum += one * values[i];
        weight += one;
        after += m->samples[i];
    }
    return sum / weight;
}

static void say_why(dp_verdict *v, const char *what, double is, double most, const char *whose,
                    bool is_early)
{
    v->is_held = true;
    v->is_early = is_early;
    snprintf(v->why, sizeof v->why, "%s is %.4f, expected at most %.4f: %s and the margin", what,
             is, most, whose);
}

// How many samples count by now, of the rarer label.
static double rarer_of(const model *m, const rt_publish_config *config)
{
    double weight = 0, after = 0, labels = 0;
    for (uint32_t i = m->count; i-- > 0;) {
        const double one = m->samples[i] * exp(-after / (double)config->guard_samples);
        labels += one * m->labels[i];
        weight += one;
        after += m->samples[i];
    }
    return m->class_count ? weight : fmin(labels, weight - labels);
}

static double times_from_1(double calibration)
{
    return fmax(calibration, 1 / calibration);
}

static dp_verdict judge(model *m, const rt_publish_config *config)
{
    static const char ratio[] = "log loss / base rate's", good[] = "the last good model's";
    dp_verdict v = {.log_loss = NAN, .normalised_entropy = NAN, .calibration = NAN};
    const double by = 1 + config->guard_log_loss;
    if (m->count) {
        const double label = faded(m, config, m->labels);
        v.log_loss = faded(m, config, m->losses);
        v.normalised_entropy = v.log_loss / (m->class_count ? log(m->class_count) : entropy(label));
        if (label > 0)
            v.calibration = faded(m, config, m->predictions) / label;
    }
    const double rarer = rarer_of(m, config), noise = 1 / sqrt(fmax(rarer, 1));
    if (config->guard_log_loss <= 0 && config->guard_calibration <= 0)
        return v;
    if (isnan(v.normalised_entropy)) {
        v.is_held = v.is_early = true;
        strcpy(v.why, "it cannot be judged yet: labels of both classes have to come first");
        return v;
    }
    const double factor = times_from_1(v.calibration);
    const double most = m->good_calibration * (1 + config->guard_calibration);
    if (config->guard_log_loss > 0 && v.normalised_entropy > by)
        say_why(&v, ratio, v.normalised_entropy, by, "the base rate's",
                v.normalised_entropy <= by + noise);
    else if (config->guard_log_loss > 0 && v.normalised_entropy > m->good_entropy * by)
        say_why(&v, ratio, v.normalised_entropy, m->good_entropy * by, good, false);
    else if (config->guard_calibration > 0 && factor > most)
        say_why(&v, "calibration's factor from 1", factor, most, good,
                log(factor) <= log(most) + noise);
    if (v.is_held)
        return v;
    m->good_entropy = v.normalised_entropy > 0 ? v.normalised_entropy : INFINITY;
    m->good_calibration = v.calibration > 0 ? times_from_1(v.calibration) : 1;
    return v;
}

// always: of all of a history; NAN: of some.
static rt_quality some_batch(rt_random *random, double always, uint32_t class_count)
{
    static const double some[] = {0.02, 0.3, 0.5};
    double label = isnan(always) ? some[rt_random_below(random, 3)] : always;
    double loss = rt_random_unit(random);
    if (!rt_random_below(random, 9))
        *(rt_random_below(random, 2) ? &label : &loss) =
            rt_random_below(random, 2) ? NAN : INFINITY;
    return (rt_quality){.sample_count = rt_random_below(random, 8) * 40,
                        .log_loss = loss,
                        .mean_label = label,
                        .mean_prediction =
                            (isfinite(label) ? label : 0) * (0.6 + rt_random_unit(random)) +
                            (label == 0),
                        .class_count = class_count};
}

static void check_verdict(const dp_verdict *got, const dp_verdict *want, uint64_t seed)
{
    const double pairs[][2] = {{got->log_loss, want->log_loss},
                               {got->normalised_entropy, want->normalised_entropy},
                               {got->calibration, want->calibration}};
    for (size_t i = 0; i < RT_COUNT_OF(pairs); i++) {
        assert_int_equal(isnan(pairs[i][0]), isnan(pairs[i][1]));
        if (!isnan(pairs[i][0]))
            test_close(pairs[i][0], pairs[i][1], 1e-9, 1, "a number of a verdict");
    }
    if (got->is_held != want->is_held || got->is_early != want->is_early ||
        strcmp(got->why, want->why) != 0)
        fail_msg("seed %u: \"%s\", expected \"%s\"", (unsigned)seed, got->why, want->why);
}

// Many histories: labels that are all 0, losses that are no numbers, margins of nothing.
static void as_it_is_written(void **state)
{
    static const double margins_of[] = {0, 0.05, 0.4}, labels[] = {0, 1, NAN, NAN};
    uint32_t held = 0, passed = 0;
    (void)state;
    for (uint64_t seed = 0; seed < 600; seed++) {
        rt_random random = {seed};
        const rt_publish_config config = {.guard_log_loss = margins_of[rt_random_below(&random, 3)],
                                          .guard_calibration =
                                              margins_of[rt_random_below(&random, 3)],
                                          .guard_samples = 100 + rt_random_below(&random, 3000)};
        const double always = labels[rt_random_below(&random, 4)];
        const uint32_t classes = rt_random_below(&random, 2) * 5;
        dp_guard guard = {0};
        model m = {.good_entropy = INFINITY, .good_calibration = 1};
        for (uint32_t i = 0; i < BATCHES; i++) {
            const rt_quality batch = some_batch(&random, always, classes);
            dp_guard_add(&guard, &config, &batch);
            note(&m, &batch);
            if (i && rt_random_below(&random, 3))
                continue;
            dp_verdict got;
            dp_guard_judge(&guard, &config, true, &got);
            if (!got.is_held)
                dp_guard_pass(&guard, &got);
            const dp_verdict want = judge(&m, &config);
            check_verdict(&got, &want, seed);
            held += want.is_held;
            passed += !want.is_held;
        }
    }
    assert_true(held > 500 && passed > 500);
}

TEST_MAIN(TEST(worse_than_the_base_rate), TEST(at_the_limit), TEST(at_all_limits),
          TEST(worse_than_the_last_good_one), TEST(another_base_rate), TEST(calibration),
          TEST(margins_of_nothing), TEST(old_samples_fade), TEST(several_classes), TEST(not_yet),
          TEST(the_same_samples_decide), TEST(the_better_of_the_two), TEST(as_it_is_written))
