// The search for a set of workers in units, against every set planned at once; and the estimate
// that it begins with.
#include "dispatch/planner/dp_choice.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "dispatch/cost/dp_ticks.h"
#include "dispatch/planner/dp_account.h"
#include "runtime/config/rt_policies.h"
#include "tests/support/random_batches.h"
#include "tests/support/test.h"

#define SAMPLES 32u
#define FIELDS 4u
#define FAST 1e8
#define BATCHES DP_RECENT_MAX

typedef struct {
    dp_planner_config config;
    dp_recent recent;
    random_batches batches;
} scene;

static void open_scene(scene *s, uint64_t seed, uint32_t worker_count, uint32_t slots)
{
    rt_random random = {seed};
    *s = (scene){.config = {.worker_count = worker_count,
                            .sample_count_max = SAMPLES,
                            .keys_per_sample_max = FIELDS,
                            .layout.field_count = FIELDS,
                            .dense_bytes = 100000,
                            .participants_min = 1,
                            .dispatch = {.policy = RT_POLICY_ESD, .alpha = 1}}};
    for (uint32_t f = 0; f < FIELDS; f++)
        s->config.layout.values[f] = 64;
    for (uint32_t w = 0; w < worker_count; w++) {
        const double rate = FAST / (1u << rt_random_below(&random, 4));
        s->config.slot_count[w] = slots;
        s->config.rates.links[w] = (dp_link){rate, FAST};
    }
    for (uint32_t w = 0, us = 100 * rt_random_below(&random, 20); w < worker_count; w++)
        s->config.rates.compute_s_per_sample[w] = us * 1e-6;
    dp_recent_init(&s->recent);
    random_batches_init(&s->batches, seed, FIELDS, 200, 1, 1.0);
    for (uint32_t i = 0; i < BATCHES; i++) {
        rt_batch batch;
        rt_batch_init(&batch, 0);
        random_batches_fill(&s->batches, &batch, SAMPLES);
        assert_int_equal(dp_recent_add(&s->recent, &batch), RT_OK);
        rt_batch_fini(&batch);
    }
}

static void close_scene(scene *s)
{
    dp_recent_fini(&s->recent);
    random_batches_fini(&s->batches);
}

// Mean of the second half of the batches, by a planner that has these workers alone.
static double planned_s(const scene *s, const uint32_t *ranks, uint32_t count)
{
    dp_planner_config config = s->config;
    dp_account_config costs;
    dp_account account = {0};
    dp_planner *planner;
    config.worker_count = count;
    config.participants_min = 0;
    for (uint32_t j = 0; j < count; j++) {
        config.rates.links[j] = s->config.rates.links[ranks[j]];
        config.rates.compute_s_per_sample[j] = s->config.rates.compute_s_per_sample[ranks[j]];
    }
    assert_int_equal(dp_planner_create(&config, &planner, NULL), RT_OK);
    dp_account_init(&config, &costs);
    for (uint32_t i = 0; i < BATCHES; i++) {
        const dp_plan *plan;
        assert_int_equal(dp_planner_look_up(planner, dp_recent_at(&s->recent, i)), RT_OK);
        dp_planner_place(planner);
        assert_int_equal(dp_planner_commit(planner, &plan), RT_OK);
        if (i >= BATCHES / 2)
            dp_account_add(&costs, plan, &account);
    }
    dp_planner_destroy(planner);
    return account.predicted_s / (BATCHES - BATCHES / 2);
}

// Workers by link, the fastest first; equal ones by rank. All compute alike.
static void sort_ranks(const scene *s, uint32_t *ranks)
{
    for (uint32_t k = 0; k < s->config.worker_count; k++) {
        uint32_t at = k;
        for (; at > 0 && s->config.rates.links[ranks[at - 1]].up_bytes_per_s <
                             s->config.rates.links[k].up_bytes_per_s;
             at--)
            ranks[at] = ranks[at - 1];
        ranks[at] = k;
    }
}

static uint64_t sorted(const uint32_t *ranks, uint32_t count, uint32_t *in_order)
{
    uint64_t mask = 0;
    uint32_t k = 0;
    for (uint32_t i = 0; i < count; i++)
        mask |= rt_bit(ranks[i]);
    for (uint64_t rest = mask; rest; rest &= rest - 1)
        in_order[k++] = rt_lowest_bit(rest);
    return mask;
}

// Whether the choice is the best set, or the one in force where that is hardly worse.
static void must_be_best(const scene *s, uint64_t current, uint64_t chosen)
{
    uint32_t ranks[RT_WORKERS_MAX], in_order[RT_WORKERS_MAX];
    double best = INFINITY, now = INFINITY, of_chosen = INFINITY;
    sort_ranks(s, ranks);
    for (uint32_t count = 1; count <= s->config.worker_count; count++) {
        const uint64_t mask = sorted(ranks, count, in_order);
        const double seconds = planned_s(s, in_order, count);
        best = fmin(best, seconds);
        now = mask == current ? seconds : now;
        of_chosen = mask == chosen ? seconds : of_chosen;
    }
    const bool stays = !(best < (1 - DP_CHOICE_GAIN) * now);
    if (stays != (chosen == current) || (!stays && of_chosen != best))
        fail_msg("the set %" PRIx64 " takes %g ms, the best %g, all %g", chosen, of_chosen * 1e3,
                 best * 1e3, now * 1e3);
}

// In units the search finds the set that planning all prefixes at once finds.
static void in_units_the_same_is_found(void **state)
{
    (void)state;
    uint32_t changes = 0, early = 0;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        scene s;
        dp_choice choice = {0};
        const uint32_t n = 2 + (uint32_t)seed % 5;
        open_scene(&s, seed, n, SAMPLES * FIELDS);
        if (seed % 4 == 0) // without evaluations, of which a trial has half
            s.config.dispatch.policy = RT_POLICY_MAKESPAN;
        const uint64_t all = rt_bits_below(n);
        assert_int_equal(dp_choice_begin(&choice, &s.config, &s.recent, DP_ESTIMATE_MOVED, all),
                         RT_OK);
        while (choice.runs) {
            const uint32_t tried = choice.tried_count, done = choice.done;
            const dp_trial *trial = choice.trial;
            assert_int_equal(dp_choice_step(&choice, &s.recent, SAMPLES * FIELDS), RT_OK);
            if (choice.tried_count == tried && trial)
                assert_true(choice.done > done && choice.batch < BATCHES);
            early += choice.tried_count > tried && choice.tried[tried].moved == 0;
        }
        must_be_best(&s, all, dp_choice_result(&choice));
        changes += dp_choice_result(&choice) != all;
        dp_choice_end(&choice);
        close_scene(&s);
    }
    assert_true(changes > 10 && changes < 50);
    assert_true(early > 10);
}

// A few batches from empty caches do not prove what the estimate holds for far worse.
static void few_batches_and_the_estimate(void **state)
{
    (void)state;
    const struct {
        uint32_t batches;
        double estimate; // of worker 0 alone; of both 1
        uint64_t result;
    } cases[] = {{8, 1.5, 3}, {8, 1.2, 1}, {DP_RECENT_MAX, 1.5, 1}, {8, 0.5, 1}};
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
        dp_choice choice = {.config.worker_count = 2,
                            .ranks = {0, 1},
                            .estimates = {cases[i].estimate, 1},
                            .current = 3,
                            .batch_count = cases[i].batches,
                            .tried = {{3, 1, 0}, {1, 0.8, 0}},
                            .tried_count = 2};
        assert_int_equal(dp_choice_result(&choice), cases[i].result);
    }
}

static double trial_s(const scene *s, uint64_t workers, double part)
{
    dp_trial *trial;
    assert_int_equal(dp_trial_create(&s->config, workers, part, &trial), RT_OK);
    for (uint32_t i = 0; i < BATCHES; i++) {
        assert_int_equal(dp_trial_plan(trial, dp_recent_at(&s->recent, i), i >= BATCHES / 2),
                         RT_OK);
    }
    const double seconds = dp_trial_seconds(trial) / (BATCHES - BATCHES / 2);
    dp_trial_destroy(trial);
    return seconds;
}

// The work of a unit, part by part: of a search that goes through its trials all at once.
static void add_parts(const scene *s, uint64_t workers, double *works, uint32_t *count)
{
    dp_trial *trial;
    works[(*count)++] = (double)DP_TRIAL_CREATION_WORK;
    assert_int_equal(dp_trial_create(&s->config, workers, 1, &trial), RT_OK);
    for (uint32_t i = 0; i < BATCHES; i++) {
        const rt_batch *batch = dp_recent_at(&s->recent, i);
        bool done = false;
        while (!done) {
            works[(*count)++] = (double)dp_trial_work(trial, batch);
            assert_int_equal(dp_trial_step(trial, batch, i >= BATCHES / 2, &done), RT_OK);
        }
    }
    dp_trial_destroy(trial);
}

// A unit is as many parts as are less work in all than its share of a decision, and no more: of the
// same parts, one after the other, so many that the next one would be too much; at least one.
static void units_have_a_bound(void **state)
{
    (void)state;
    static double works[8192];
    for (uint32_t kind = 0; kind < 2; kind++) {
        scene s;
        dp_choice choice = {0};
        uint32_t count = 0, at = 0, lonely = 0, units = 0;
        open_scene(&s, 12, 4, SAMPLES * FIELDS);
        s.config.dispatch.policy = kind ? RT_POLICY_MAKESPAN : RT_POLICY_LAIA;
        s.config.dispatch.search_evaluations = 100;
        const double most = (kind ? DP_CHOICE_SEARCH_SHARE : DP_CHOICE_SHARE) *
                            (double)dp_trial_decision_work(&s.config, SAMPLES * FIELDS);
        add_parts(&s, 15, works, &count);
        assert_int_equal(dp_choice_begin(&choice, &s.config, &s.recent, DP_ESTIMATE_MOVED, 15),
                         RT_OK);
        while (choice.tried_count == 0) { // of the first trial, which is that of all
            assert_int_equal(dp_choice_step(&choice, &s.recent, SAMPLES * FIELDS), RT_OK);
            const uint32_t end = choice.tried_count ? count : choice.done + 1;
            double work = 0;
            assert_true(end > at && end <= count);
            for (uint32_t i = at; i < end; i++)
                work += works[i];
            assert_true(work <= most || end == at + 1);
            assert_true(end == count || work + works[end] > most);
            lonely += work > most;
            units++;
            at = end;
        }
        printf("%u parts in %u units, %u of one that is too large\n", count, units, lonely);
        assert_true(units > BATCHES && units < count);
        dp_choice_end(&choice);
        close_scene(&s);
    }
}

// A trial is a planner with its workers alone, and with caches of a part, as far as a share fits.
static void trials_are_plans(void **state)
{
    (void)state;
    static const uint32_t ranks[] = {0, 2};
    scene s;
    open_scene(&s, 9, 3, 300);
    const double whole = planned_s(&s, ranks, 2);
    assert_true(trial_s(&s, 5, 1) == whole);
    for (uint32_t w = 0; w < 3; w++)
        s.config.slot_count[w] = 75;
    const double quarter = planned_s(&s, ranks, 2);
    assert_true(quarter > whole);
    for (uint32_t w = 0; w < 3; w++)
        s.config.slot_count[w] = 300;
    assert_true(trial_s(&s, 5, 0.25) == quarter);
    for (uint32_t w = 0; w < 3; w++)
        s.config.slot_count[w] = SAMPLES / 2 * FIELDS;
    const double least = planned_s(&s, ranks, 2);
    assert_true(trial_s(&s, 5, 0.25) == least);
    close_scene(&s);
}

// In its first iterations a run may move more dense bytes than later: its plans know that, until
// then; a trial is about what comes later.
static void the_first_iterations_are_others(void **state)
{
    (void)state;
    scene s;
    dp_planner *planner;
    rt_error error = {0};
    open_scene(&s, 11, 3, SAMPLES * FIELDS);
    const double later = trial_s(&s, 7, 1);
    assert_int_equal(dp_planner_create(&s.config, &planner, &error), RT_OK);
    const int64_t up = dp_planner_ticks(planner)->dense_up[1];
    dp_planner_destroy(planner);
    s.config.dense_whole_bytes = 4 * s.config.dense_bytes;
    assert_true(trial_s(&s, 7, 1) == later);
    assert_int_equal(dp_planner_create(&s.config, &planner, &error), RT_OK);
    for (uint32_t t = 1; t <= RT_CODING_WHOLE_ITERATIONS + 2; t++) {
        const dp_plan *plan;
        assert_int_equal(dp_planner_look_up(planner, dp_recent_at(&s.recent, t)), RT_OK);
        const int64_t now = dp_planner_ticks(planner)->dense_up[1];
        const int64_t expected = t <= RT_CODING_WHOLE_ITERATIONS ? 4 * up : up;
        assert_true(now >= expected - 4 && now <= expected + 4); // rounded
        dp_planner_place(planner);
        assert_int_equal(dp_planner_commit(planner, &plan), RT_OK);
    }
    dp_planner_destroy(planner);
    close_scene(&s);
}

// A set that fits no cache is not tried, one that somebody named is.
static void caches_and_named_sets(void **state)
{
    (void)state;
    scene s;
    dp_choice choice = {0};
    open_scene(&s, 5, 4, (SAMPLES + 2) / 3 * FIELDS); // of three workers, not of two
    assert_int_equal(dp_choice_begin(&choice, &s.config, &s.recent, 0.5, 0xe), RT_OK);
    while (choice.runs)
        assert_int_equal(dp_choice_step(&choice, &s.recent, SAMPLES * FIELDS), RT_OK);
    assert_int_equal(choice.tried[0].workers, 0xe);
    for (uint32_t i = 0; i < choice.tried_count; i++)
        assert_true(rt_bit_count(choice.tried[i].workers) >= 3);
    dp_choice_end(&choice);
    assert_int_equal(dp_choice_begin(&choice, &s.config, &s.recent, 0.5, 3), RT_OK);
    while (choice.runs)
        assert_int_equal(dp_choice_step(&choice, &s.recent, SAMPLES * FIELDS), RT_OK);
    assert_true(isinf(choice.tried[0].predicted_s));
    assert_true(rt_bit_count(dp_choice_result(&choice)) >= 3);
    dp_choice_end(&choice);
    for (uint32_t w = 0; w < 4; w++)
        s.config.slot_count[w] = FIELDS; // nobody's cache holds anything
    assert_int_equal(dp_choice_begin(&choice, &s.config, &s.recent, 0.5, 15), RT_OK);
    while (choice.runs)
        assert_int_equal(dp_choice_step(&choice, &s.recent, SAMPLES * FIELDS), RT_OK);
    assert_int_equal(dp_choice_result(&choice), 15);
    close_scene(&s);
}

// ---- the estimate ----------------------------------------------------------------------------

static void what_a_batch_needs(void **state)
{
    (void)state;
    scene s;
    dp_demand demand;
    open_scene(&s, 3, 2, SAMPLES * FIELDS);
    for (uint32_t f = 0; f < FIELDS; f++)
        s.config.layout.values[f] = 8 * (f + 1);
    const rt_batch *batch = dp_recent_at(&s.recent, 0);
    assert_int_equal(dp_demand_measure(batch, &s.config.layout, &demand), RT_OK);
    for (uint32_t m = 0; m <= SAMPLES; m++) {
        uint64_t bytes = 0;
        for (uint32_t k = 0; k < batch->key_offsets[m]; k++) {
            bool seen = false;
            for (uint32_t before = 0; before < k; before++)
                seen |= batch->keys[before] == batch->keys[k];
            if (!seen)
                bytes += dp_row_bytes(&s.config.layout, rt_key_field(batch->keys[k]), true);
        }
        assert_int_equal(demand.bytes[m], bytes);
    }
    dp_demand_fini(&demand);
    close_scene(&s);
}

static void must_be_near(double value, double expected)
{
    if (fabs(value - expected) > 1e-6 * expected)
        fail_msg("%g, expected %g", value, expected);
}

static void times_of_sets(void **state)
{
    (void)state;
    scene s;
    dp_demand demand;
    open_scene(&s, 4, 3, SAMPLES * FIELDS);
    dp_planner_config *config = &s.config;
    for (uint32_t w = 0; w < 3; w++) {
        config->rates.links[w] = (dp_link){w == 2 ? FAST / 10 : FAST, FAST};
        config->rates.compute_s_per_sample[w] = 0.0001;
    }
    assert_int_equal(dp_demand_measure(dp_recent_at(&s.recent, 0), &config->layout, &demand),
                     RT_OK);
    const double all = (double)demand.bytes[SAMPLES], half = (double)demand.bytes[SAMPLES / 2];
    const double dense = 100000 / FAST, compute = 0.0001 * SAMPLES;
    must_be_near(dp_estimate_s(config, &demand, 0.5, 1), 0.5 * all / FAST + compute); // alone
    const double of_half = 0.5 * (0.75 * all / 2 + 0.25 * half);
    must_be_near(dp_estimate_s(config, &demand, 0.5, 3), dense + of_half / FAST + compute / 2);
    must_be_near(2 * of_half, 0.5 * dp_estimate_row_bytes(config, &demand, 3));
    const double equal = dp_estimate_s(config, &demand, 0.5, 7);
    config->micro_batch_max = SAMPLES; // the slow one gets less
    const double level = dp_estimate_s(config, &demand, 0.5, 7);
    assert_true(level < equal && level >= 10 * dense);
    config->rates.ps_bytes_per_s = FAST / 100; // the server is what all wait for
    const double server = dp_estimate_s(config, &demand, 0.5, 1);
    must_be_near(server, 0.5 * all / (FAST / 100));
    must_be_near(dp_estimate_s(config, &demand, 0.5, 3), (200000 + 2 * of_half) / (FAST / 100));
    dp_demand_fini(&demand);
    close_scene(&s);
}

// Of sets that are estimated alike the largest, and none that does not fit.
static void which_set_is_likeliest(void **state)
{
    (void)state;
    scene s;
    dp_demand demand;
    double estimates[RT_WORKERS_MAX];
    open_scene(&s, 4, 4, SAMPLES * FIELDS);
    dp_planner_config *config = &s.config;
    for (uint32_t w = 0; w < 4; w++) {
        config->rates.links[w] = (dp_link){FAST, FAST};
        config->rates.compute_s_per_sample[w] = 0;
    }
    config->dense_bytes = 10000000; // next to which rows are nothing; who trains alone has none
    assert_int_equal(dp_demand_measure(dp_recent_at(&s.recent, 0), &config->layout, &demand),
                     RT_OK);
    assert_int_equal(dp_choice_estimate(config, &demand, 0.5, estimates), 1);
    assert_true(estimates[0] < 0.01 * estimates[1]);
    config->participants_min = 2;
    assert_int_equal(dp_choice_estimate(config, &demand, 0.5, estimates), 15);
    config->rates.links[1] = (dp_link){FAST / 10, FAST};
    assert_int_equal(dp_choice_estimate(config, &demand, 0.5, estimates), 13);
    config->rates.ps_bytes_per_s = FAST / 100; // as fast with any, but alone a box shares no row
    config->dense_bytes = 0;
    config->participants_min = 1;
    assert_int_equal(dp_choice_estimate(config, &demand, 0.5, estimates), 1);
    assert_true(estimates[1] < 1.05 * estimates[0]);
    config->participants_min = 4;
    assert_int_equal(dp_choice_estimate(config, &demand, 0.5, estimates), 15);
    assert_true(isinf(estimates[2]) && isfinite(estimates[3]));
    dp_demand_fini(&demand);
    close_scene(&s);
}

// Worker and shard w are on box w, and homes are planned.
static void put_on_boxes(scene *s)
{
    const uint32_t n = s->config.worker_count;
    s->config.homes = RT_HOMES_PLANNED;
    s->config.rates.shards = (dp_shards){n, n, {0}};
    s->config.boxes = (dp_boxes){.count = n, .worker_count = n};
    for (uint32_t w = 0; w < n; w++) {
        s->config.boxes.of_worker[w] = s->config.boxes.of_shard[w] = (uint8_t)w;
        s->config.boxes.given[w] = s->config.rates.links[w] = (dp_link){FAST, FAST};
        s->config.rates.compute_s_per_sample[w] = 0;
    }
}

// Adds what passes from box to box, by shard and worker that an operation names.
static void add_passing(const dp_planner_config *config, uint32_t worker, const dp_ops *ops,
                        double *up, double *down)
{
    for (uint32_t i = 0; i < ops->count; i++) {
        const dp_passing bytes = dp_op_passing(&config->layout, &ops->items[i]);
        const uint32_t shard = dp_op_shard(&ops->items[i], config->rates.shards.count);
        if (shard == worker)
            continue; // of one box
        up[worker] += (double)(bytes.up + bytes.request);
        down[shard] += (double)(bytes.up + bytes.request);
        up[shard] += (double)bytes.down;
        down[worker] += (double)bytes.down;
    }
}

// Bytes of rows on the links of the first `count` boxes, over the second half of the batches.
static double bytes_on_links(const scene *s, uint32_t count, double *largest_p)
{
    dp_planner_config config = s->config;
    dp_planner *planner;
    double up[RT_SITE_BOXES_MAX] = {0}, down[RT_SITE_BOXES_MAX] = {0}, ups = 0, downs = 0;
    config.worker_count = config.boxes.worker_count = count;
    config.participants_min = 0;
    *largest_p = 0;
    assert_int_equal(dp_planner_create(&config, &planner, NULL), RT_OK);
    for (uint32_t i = 0; i < BATCHES; i++) {
        const dp_plan *plan;
        assert_int_equal(dp_planner_look_up(planner, dp_recent_at(&s->recent, i)), RT_OK);
        dp_planner_place(planner);
        assert_int_equal(dp_planner_commit(planner, &plan), RT_OK);
        for (uint32_t w = 0; w < count && i >= BATCHES / 2; w++) {
            const dp_passing bytes = dp_slice_passing(&config.layout, &plan->slices[w]);
            *largest_p += (double)(bytes.up + bytes.request);
            add_passing(&config, w, &plan->slices[w].release, up, down);
            add_passing(&config, w, &plan->slices[w].fill, up, down);
            add_passing(&config, w, &plan->slices[w].after, up, down);
        }
    }
    dp_planner_destroy(planner);
    for (uint32_t b = 0; b < count; b++) {
        ups += up[b];
        downs += down[b];
    }
    return fmax(ups, downs);
}

static double trial_row_bytes(const scene *s, uint64_t workers)
{
    dp_trial *trial;
    assert_int_equal(dp_trial_create(&s->config, workers, 1, &trial), RT_OK);
    for (uint32_t i = 0; i < BATCHES; i++) {
        assert_int_equal(dp_trial_plan(trial, dp_recent_at(&s->recent, i), i >= BATCHES / 2),
                         RT_OK);
    }
    const double bytes = dp_trial_row_bytes(trial);
    dp_trial_destroy(trial);
    return bytes;
}

// What worker and shard of one box exchange is no row that moved, and neither is the dense
// exchange.
static void rows_that_stay_on_a_box(void **state)
{
    (void)state;
    scene s;
    dp_demand demand;
    double all;
    open_scene(&s, 6, 4, SAMPLES * FIELDS);
    put_on_boxes(&s);
    for (uint32_t count = 1; count <= 4; count++) {
        const double expected = bytes_on_links(&s, count, &all);
        const double bytes = trial_row_bytes(&s, rt_bits_below(count));
        printf("%u boxes: %.0f of %.0f bytes pass a link\n", count, expected, all);
        assert_true(bytes == expected && bytes < all);
        assert_true(count == 1 ? bytes == 0 : bytes > 0);
    }
    assert_int_equal(dp_demand_measure(dp_recent_at(&s.recent, 0), &s.config.layout, &demand),
                     RT_OK);
    const double two = dp_estimate_row_bytes(&s.config, &demand, 3);
    assert_true(dp_estimate_row_bytes(&s.config, &demand, 1) == 0); // all are at home there
    s.config.shard_share = 0.25;
    must_be_near(dp_estimate_row_bytes(&s.config, &demand, 1),
                 0.75 * (double)demand.bytes[demand.sample_count]);
    assert_true(dp_estimate_row_bytes(&s.config, &demand, 3) == two);
    dp_demand_fini(&demand);
    close_scene(&s);
}

// A trial computes as fast as its own workers, whatever the ranks before them do.
static void computing_is_of_its_workers(void **state)
{
    (void)state;
    scene s;
    open_scene(&s, 5, 3, SAMPLES * FIELDS);
    for (uint32_t w = 0; w < 3; w++)
        s.config.rates.compute_s_per_sample[w] = w == 1; // a second, or nothing
    assert_true(trial_s(&s, rt_bit(1), 1) >= SAMPLES);
    assert_true(trial_s(&s, rt_bit(0) | rt_bit(2), 1) < SAMPLES / 4);
    close_scene(&s);
}

// Bytes of rows that a box alone moves in its first batch, if its shard has so large a part of all.
static double first_batch_bytes(const scene *s, double share)
{
    dp_planner_config config = s->config;
    dp_trial *trial;
    config.shard_share = share;
    assert_int_equal(dp_trial_create(&config, 1, 1, &trial), RT_OK);
    assert_int_equal(dp_trial_plan(trial, dp_recent_at(&s->recent, 0), true), RT_OK);
    const double bytes = dp_trial_seconds(trial) * FAST; // of its link
    dp_trial_destroy(trial);
    return bytes;
}

// Where a shard has a part of all rows, a trial finds that part of its batches' rows there, and
// pulls the others.
static void rows_that_others_have(void **state)
{
    (void)state;
    scene s;
    dp_demand demand;
    open_scene(&s, 3, 4, SAMPLES * FIELDS);
    put_on_boxes(&s);
    s.config.shard_rows_max = 200;
    s.config.dense_bytes = 0;
    assert_int_equal(dp_demand_measure(dp_recent_at(&s.recent, 0), &s.config.layout, &demand),
                     RT_OK);
    const double all = (double)demand.bytes[demand.sample_count];
    assert_true(first_batch_bytes(&s, 0) == 0);
    assert_true(first_batch_bytes(&s, 1) == 0);
    for (double share = 0.25; share < 1; share += 0.25) {
        const double part = first_batch_bytes(&s, share) / all;
        printf("%.2f of the rows here: %.2f of a batch is pulled\n", share, part);
        assert_true(fabs(part - (1 - share)) < 0.2); // of some 80 rows: four deviations
    }
    dp_demand_fini(&demand);
    close_scene(&s);
}

TEST_MAIN(TEST(few_batches_and_the_estimate), TEST(rows_that_others_have),
          TEST(rows_that_stay_on_a_box), TEST(computing_is_of_its_workers),
          TEST(in_units_the_same_is_found), TEST(units_have_a_bound), TEST(trials_are_plans),
          TEST(caches_and_named_sets), TEST(the_first_iterations_are_others),
          TEST(what_a_batch_needs), TEST(times_of_sets), TEST(which_set_is_likeliest))
