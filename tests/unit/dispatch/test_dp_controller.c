// Controllers against made-up runs: every time is the test's, no clock is read.
#include "tests/support/test.h"

#include <math.h>

#include "dispatch/planner/dp_controller.h"
#include "runtime/rt_hash.h"
#include "tests/support/config_case.h"

#define DELAY_MAX 8u

// A planner that runs ahead: a record comes into force `delay` decisions after it was made.
typedef struct {
    dp_controller controller;
    dp_decision in_force;
    dp_decision coming[DELAY_MAX + 1];
    uint32_t delay;
    uint32_t changes;
    rt_random random;
} plant;

static void plant_init(plant *p, const char *const *sets, size_t count, uint32_t delay)
{
    rt_config config = config_fresh();
    for (size_t i = 0; i < count; i++)
        config_must_set(&config, sets[i]);
    *p = (plant){.delay = delay, .random = {5}};
    dp_controller_init(&config, &p->controller);
    p->in_force = (dp_decision){.alpha = config.dispatch.alpha,
                                .search_evaluations_max = config.dispatch.search_evaluations};
    for (uint32_t i = 0; i <= DELAY_MAX; i++)
        p->coming[i] = p->in_force;
    rt_config_fini(&config);
}

static void take_records(plant *p)
{
    dp_input input;
    for (uint32_t i = 0; i < p->delay; i++)
        p->coming[i] = p->coming[i + 1];
    while (dp_controller_next(&p->controller, &input)) {
        p->changes++;
        if (input.kind == DP_INPUT_ALPHA)
            p->coming[p->delay].alpha = input.value;
        if (input.kind == DP_INPUT_SEARCH_EVALUATIONS)
            p->coming[p->delay].search_evaluations_max = (uint32_t)input.value;
        if (input.kind == DP_INPUT_TABLES)
            p->coming[p->delay].tables = (uint32_t)input.value;
    }
    p->in_force = p->coming[0];
}

// A decision takes fixed_s + alpha x slope_s, stretched by noise.
static void run_alpha(plant *p, uint32_t iterations, double fixed_s, double slope_s, double noise,
                      double iteration_s)
{
    for (uint32_t t = 0; t < iterations; t++) {
        double stretch = 1 + noise * (rt_random_below(&p->random, 1001) / 500.0 - 1);
        dp_controller_iterated(&p->controller, iteration_s);
        dp_controller_decided(&p->controller, &p->in_force,
                              (fixed_s + p->in_force.alpha * slope_s) * stretch, 0);
        take_records(p);
    }
}

// Scoring a table takes table_s, all of them beside fixed_s.
static void tables_follow_the_budget(void **state)
{
    (void)state;
    static const char *const sets[] = {"dispatch.policy=laia", "dispatch.budget_ms=2"};
    static const struct {
        double fixed_s, table_s;
        uint32_t tables;
    } cases[] = {
        {0, 0.05e-3, 26}, {0, 0.099e-3, 20}, {0, 1.5e-3, 1}, {0, 5e-3, 1}, {0.3e-3, 0.2e-3, 8}};
    for (uint32_t delay = 0; delay <= DELAY_MAX; delay += 4) {
        for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
            plant p;
            plant_init(&p, sets, 2, delay);
            for (uint32_t k = 0; k <= DELAY_MAX; k++)
                p.coming[k].table_count = p.coming[k].tables = 26;
            p.in_force = p.coming[0];
            for (uint32_t t = 0; t < 600; t++) {
                double place_s = cases[i].fixed_s + p.in_force.tables * cases[i].table_s;
                dp_controller_decided(&p.controller, &p.in_force, place_s, place_s);
                take_records(&p);
            }
            assert_int_equal(p.in_force.tables, cases[i].tables);
        }
    }
}

// Scoring a table takes 0.1 ms. tables: in the end, from all 26; plan_s: of the rest of a plan.
static void must_score(plant *p, double necessary_s, double plan_s, uint32_t tables)
{
    for (uint32_t t = 0; t < 700; t++) {
        const double place_s = p->in_force.tables * 0.1e-3;
        dp_controller_necessary(&p->controller, necessary_s, plan_s);
        dp_controller_decided(&p->controller, &p->in_force, plan_s + place_s, place_s);
        take_records(p);
    }
    assert_int_equal(p->in_force.tables, tables);
}

static void a_budget_is_measured(void **state)
{
    (void)state;
    static const char *const sets[] = {"dispatch.policy=laia", "dispatch.budget_ms=auto",
                                       "dispatch.measure_compute=false"};
    static const struct {
        double necessary_s, plan_s;
        uint32_t tables;
    } cases[] = {
        {10e-3, 1e-3, 26}, {3e-3, 1e-3, 20}, {2e-3, 1.45e-3, 5}, {1e-3, 2e-3, 1}, {0, 1, 26}};
    plant p;
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
        plant_init(&p, sets, 2, 4);
        for (uint32_t k = 0; k <= DELAY_MAX; k++)
            p.coming[k].table_count = p.coming[k].tables = 26;
        p.in_force = p.coming[0];
        must_score(&p, cases[i].necessary_s, cases[i].plan_s, cases[i].tables);
    }
    must_score(&p, 2e-3, 1e-3, 10);
    dp_controller_set_search(&p.controller, p.controller.evaluations_max,
                             2); // a number overrides it
    must_score(&p, 2e-3, 1e-3, 20);
    dp_controller_set_search(&p.controller, p.controller.evaluations_max, RT_BUDGET_AUTO);
    must_score(&p, 2e-3, 1e-3, 10);
    plant_init(&p, sets, 3, 0); // nothing is measured
    for (uint32_t k = 0; k <= DELAY_MAX; k++)
        p.coming[k].table_count = p.coming[k].tables = 26;
    p.in_force = p.coming[0];
    must_score(&p, 2e-3, 1e-3, 26);
    assert_int_equal(p.changes, 0);
}

static const char *const automatic[] = {"dispatch.alpha=auto"};

static void alpha_is_the_largest_that_hides(void **state)
{
    (void)state;
    // Iterations take 10 ms, decisions 1 ms + alpha x slope: the limit is 5 ms.
    static const struct {
        double slope_s, alpha;
    } cases[] = {{3e-3, 1}, {3.9e-3, 1}, {8.1e-3, 0.375}, {40e-3, 0}};
    for (uint32_t delay = 0; delay <= DELAY_MAX; delay += 4) {
        for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
            plant p;
            plant_init(&p, automatic, 1, delay);
            run_alpha(&p, 450, 1e-3, cases[i].slope_s, 0, 10e-3);
            test_close(p.in_force.alpha, cases[i].alpha, 0, 1, "alpha");
            // One record per step: run ahead must not make it overshoot and come back. From 0 it
            // tries a step up, twice, and falls back.
            uint32_t tries = cases[i].alpha == 0 ? 2 : 0;
            assert_int_equal(p.changes, (1 - cases[i].alpha) * 8 + 2 * tries);
        }
    }
}

static void alpha_falls_at_once_and_rises_late(void **state)
{
    (void)state;
    plant p;
    plant_init(&p, automatic, 1, 2);
    run_alpha(&p, 300, 1e-3, 1e-3, 0, 10e-3);
    assert_true(p.in_force.alpha == 1 && p.changes == 0);
    // Iterations become ten times faster: alpha 1 takes 2 ms of 1 ms. The median needs half a
    // window to see it, every step two decisions and the delay.
    run_alpha(&p, 50 + 8 * 5 + 10, 0.2e-3, 1.8e-3, 0, 1e-3);
    test_close(p.in_force.alpha, 0.125, 0, 1, "alpha"); // 0.2 + 0.225 ms < 0.5 ms
    // And slow again: one step per window.
    run_alpha(&p, 60, 1e-3, 1e-3, 0, 10e-3);
    assert_true(p.in_force.alpha <= 0.25);
    run_alpha(&p, 8 * 110, 1e-3, 1e-3, 0, 10e-3);
    assert_true(p.in_force.alpha == 1);
}

static void rare_outliers_do_not_count(void **state)
{
    (void)state;
    plant p;
    plant_init(&p, automatic, 1, 0);
    for (uint32_t t = 0; t < 5000; t++) {
        dp_controller_iterated(&p.controller, 10e-3);
        dp_controller_decided(&p.controller, &p.in_force, t % 100 == 50 ? 1 : 1e-3, 0);
        take_records(&p);
    }
    assert_int_equal(p.changes, 0);
    for (uint32_t t = 0; t < 100; t++) { // two of a hundred do
        dp_controller_iterated(&p.controller, 10e-3);
        dp_controller_decided(&p.controller, &p.in_force, t % 50 == 25 ? 1 : 1e-3, 0);
        take_records(&p);
    }
    assert_true(p.in_force.alpha == 0.875);
}

// Noise around the limit: tries become rarer, so a long run has few changes.
static void noise_at_the_limit_does_not_swing_it(void **state)
{
    (void)state;
    plant p;
    plant_init(&p, automatic, 1, 4);
    run_alpha(&p, 100000, 0.5e-3, 6.3e-3, 0.15, 10e-3);
    uint32_t changes = p.changes;
    assert_true(p.in_force.alpha >= 0.5 && p.in_force.alpha <= 0.625);
    if (changes > 60)
        fail_msg("%u changes", changes);
}

static void fixed_alpha_is_left_alone(void **state)
{
    (void)state;
    static const char *const fixed[] = {"dispatch.alpha=0.75"};
    static const char *const laia[] = {"dispatch.alpha=auto", "dispatch.policy=laia"};
    plant p;
    plant_init(&p, fixed, 1, 0);
    run_alpha(&p, 500, 1, 1, 0, 10e-3);
    assert_int_equal(p.changes, 0);
    // Until it is reloaded as "auto": then it goes on from where it is.
    dp_controller_set_alpha(&p.controller, true, 0.7);
    run_alpha(&p, 1, 1e-3, 0, 0, 10e-3);
    assert_true(p.in_force.alpha == 0.625 && p.changes == 1);
    run_alpha(&p, 320, 1e-3, 1e-3, 0, 10e-3);
    assert_true(p.in_force.alpha == 1);
    dp_controller_set_alpha(&p.controller, false, 0.3);
    run_alpha(&p, 500, 1e-3, 1e-3, 0, 10e-3);
    assert_true(p.in_force.alpha == 0.3 && p.changes == 5);
    plant_init(&p, laia, 2, 0); // a policy without alpha
    run_alpha(&p, 500, 1, 1, 0, 10e-3);
    assert_int_equal(p.changes, 0);
}

// However long it had to wait before.
static void a_reload_forgets_what_was_tried(void **state)
{
    (void)state;
    plant p;
    plant_init(&p, automatic, 1, 0);
    run_alpha(&p, 20000, 0, 15e-3, 0, 10e-3); // 0.25 is well below, 0.375 too much: again and again
    const double before = p.in_force.alpha;
    assert_true(before > 0 && before < 1);
    dp_controller_set_alpha(&p.controller, true, before);
    run_alpha(&p, 2 * DP_CONTROLLER_WINDOW, 1e-3, 1e-3, 0, 10e-3);
    assert_true(p.in_force.alpha > before);
}

// ---- search -------------------------------------------------------------------------------------

// A placement takes fixed_s + evaluation_s for each; the search spends at most `most` of them.
static double run_search(plant *p, uint32_t iterations, double fixed_s, double evaluation_s,
                         uint32_t most)
{
    double place_s = 0;
    for (uint32_t t = 0; t < iterations; t++) {
        dp_decision decision = p->in_force;
        decision.evaluations = (uint32_t)rt_min_u64(decision.search_evaluations_max, most);
        place_s = fixed_s + decision.evaluations * evaluation_s;
        dp_controller_decided(&p->controller, &decision, place_s, place_s);
        take_records(p);
    }
    return place_s;
}

static void a_budget_is_met(void **state)
{
    (void)state;
    static const char *const sets[] = {"dispatch.budget_ms=4", "dispatch.policy=makespan"};
    static const double fixed_s[] = {0, 0.4e-3, 2e-3};
    static const double evaluation_s[] = {0.02e-6, 0.2e-6, 5e-6};
    for (size_t f = 0; f < RT_COUNT_OF(fixed_s); f++) {
        for (size_t e = 0; e < RT_COUNT_OF(evaluation_s); e++) {
            plant p;
            plant_init(&p, sets, 2, 4);
            double place_s = run_search(&p, 1000, fixed_s[f], evaluation_s[e], UINT32_MAX);
            if (place_s > 4e-3 * 1.001 || place_s < 4e-3 * 0.84)
                fail_msg("%g s with %g + %g", place_s, fixed_s[f], evaluation_s[e]);
            uint32_t changes = p.changes;
            run_search(&p, 1000, fixed_s[f], evaluation_s[e], UINT32_MAX);
            assert_int_equal(p.changes, changes); // and it stays
        }
    }
}

static void budgets_that_cannot_be_met(void **state)
{
    (void)state;
    static const char *const sets[] = {"dispatch.budget_ms=1", "dispatch.policy=makespan"};
    plant p;
    plant_init(&p, sets, 2, 1);
    run_search(&p, 2000, 2e-3, 1e-6, UINT32_MAX);
    assert_int_equal(p.in_force.search_evaluations_max, DP_CONTROLLER_EVALUATIONS);
    run_search(&p, 2000, 0.1e-3, 1e-6, UINT32_MAX); // it recovers
    assert_true(p.in_force.search_evaluations_max > 700);
    // A search that ends by itself within the budget needs no more.
    plant_init(&p, sets, 2, 1);
    run_search(&p, 2000, 0, 1e-7, 5000);
    assert_int_equal(p.changes, 0);
    // Off again: the configured number returns.
    run_search(&p, 200, 0, 1e-6, UINT32_MAX);
    assert_true(p.in_force.search_evaluations_max < 1100);
    dp_controller_set_search(&p.controller, 20000, 0);
    run_search(&p, 500, 0, 1e-6, UINT32_MAX);
    assert_int_equal(p.in_force.search_evaluations_max, 20000);
}

// ---- computing time -----------------------------------------------------------------------------

static uint32_t compute(dp_controller *c, uint32_t reports, double sample_s, uint32_t samples,
                        double *value)
{
    uint32_t count = 0;
    dp_input input;
    for (uint32_t t = 0; t < reports; t++) {
        dp_controller_computed(c, 2, sample_s * samples, samples);
        while (dp_controller_next(c, &input)) {
            assert_int_equal(input.kind, DP_INPUT_COMPUTE);
            assert_int_equal(input.worker, 2);
            *value = input.value;
            count++;
        }
    }
    return count;
}

static void computing_times_are_told_when_they_last(void **state)
{
    (void)state;
    static const char *const sets[] = {"sim.compute_us_per_sample=10"};
    plant p;
    double value = 0;
    plant_init(&p, sets, 1, 0);
    dp_controller *c = &p.controller;
    assert_int_equal(compute(c, 500, 11e-6, 64, &value), 0); // 10%
    assert_int_equal(compute(c, 10, 30e-6, 64, &value), 0);  // too short
    assert_int_equal(compute(c, 200, 11e-6, 64, &value), 0); // and forgotten
    assert_int_equal(compute(c, 500, 0, 0, &value), 0);      // sat out
    assert_int_equal(compute(c, 15, 20e-6, 16, &value), 0);
    uint32_t count = compute(c, 500, 20e-6, 16, &value); // lasts
    assert_in_range(count, 1, 2);
    test_close(value, 20e-6, 0.15, 0, "compute");
    assert_int_equal(compute(c, 500, 20e-6, 500, &value), 0);
    count = compute(c, 500, 12e-6, 64, &value); // faster again
    assert_in_range(count, 1, 2);
    test_close(value, 12e-6, 0.15, 0, "compute");
}

static void unknown_computing_times_are_learned(void **state)
{
    (void)state;
    static const char *const off[] = {"dispatch.measure_compute=false"};
    plant p;
    double value = 0;
    plant_init(&p, NULL, 0, 0);
    assert_int_equal(compute(&p.controller, 15, 7e-6, 64, &value), 0);
    assert_int_equal(compute(&p.controller, 1, 7e-6, 64, &value), 1);
    test_close(value, 7e-6, 1e-12, 0, "compute");
    assert_int_equal(compute(&p.controller, 500, 7e-6, 64, &value), 0);
    plant_init(&p, off, 1, 0);
    assert_int_equal(compute(&p.controller, 500, 7e-6, 64, &value), 0);
}

TEST_MAIN(TEST(tables_follow_the_budget), TEST(a_budget_is_measured),
          TEST(alpha_is_the_largest_that_hides), TEST(alpha_falls_at_once_and_rises_late),
          TEST(rare_outliers_do_not_count), TEST(noise_at_the_limit_does_not_swing_it),
          TEST(fixed_alpha_is_left_alone), TEST(a_reload_forgets_what_was_tried),
          TEST(a_budget_is_met), TEST(budgets_that_cannot_be_met),
          TEST(computing_times_are_told_when_they_last), TEST(unknown_computing_times_are_learned))
