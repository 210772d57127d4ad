// A trial of a set of workers against a planner that was told of these workers alone: the same
// seconds, and the bytes of rows that its plans move over the links, operation by operation.
#include "dispatch/planner/dp_choice.h"

#include <math.h>
#include <string.h>

#include "dispatch/planner/dp_account.h"
#include "runtime/config/rt_policies.h"
#include "tests/support/random_batches.h"
#include "tests/support/test.h"

#define WORKERS 5u
#define SAMPLES 30u
#define FIELDS 3u
#define BATCHES 8u
#define DENSE 1200u
#define ROW 16u
#define STATE 4u

typedef struct {
    dp_planner_config all, some;
    uint64_t workers;
    double part;
    rt_batch batches[BATCHES];
    dp_account account;
} problem;

static void fill_all(dp_planner_config *c, bool boxes, rt_random *random)
{
    static const rt_policy_kind policies[] = {RT_POLICY_LAIA, RT_POLICY_ESD, RT_POLICY_MAKESPAN};
    *c = (dp_planner_config){.worker_count = WORKERS,
                             .sample_count_max = SAMPLES,
                             .keys_per_sample_max = FIELDS,
                             .layout.field_count = FIELDS,
                             .participants_min = 1,
                             .participants = 3,
                             .lost = 1u << 4,
                             .dense_bytes = DENSE,
                             .dense_whole_bytes = 4 * DENSE,
                             .dense_return_bytes = 5 * DENSE,
                             .seed = 3,
                             .dispatch = {.policy = policies[rt_random_below(random, 3)],
                                          .alpha = 1,
                                          .search_evaluations = 100 + rt_random_below(random, 50)}};
    c->rates.shards.count = c->rates.shards.dense_count = 3;
    if (c->dispatch.policy == RT_POLICY_MAKESPAN && rt_random_below(random, 2))
        c->micro_batch_max = SAMPLES;
    for (uint32_t f = 0; f < FIELDS; f++) {
        c->layout.values[f] = ROW;
        c->layout.state[f] = STATE;
    }
    for (uint32_t b = 0; b < 3; b++) {
        c->boxes.given[b] = (dp_link){1e6 * (1 + b), 2e6 * (1 + b)};
        c->boxes.of_shard[b] = (uint8_t)((b + 1) % 3);
    }
    if (boxes) {
        c->boxes.count = 3;
        c->boxes.worker_count = WORKERS;
        c->homes = rt_random_below(random, 2) ? RT_HOMES_PLANNED : RT_HOMES_HASHED;
        if (c->homes == RT_HOMES_PLANNED && rt_random_below(random, 2))
            c->shard_share = 0.4;
    }
    if (!boxes && rt_random_below(random, 2)) {
        c->consistency = (rt_consistency_config){.bounded = true, .staleness = 2};
        c->overshoot = SAMPLES * FIELDS;
    }
    for (uint32_t j = 0; j < WORKERS; j++) {
        c->boxes.of_worker[j] = (uint8_t)rt_random_below(random, 3);
        c->slot_count[j] = SAMPLES * FIELDS / (1 + rt_random_below(random, 2)) +
                           20 * rt_random_below(random, 5) + c->overshoot;
        c->rates.links[j] =
            (dp_link){1e6 * (1 + rt_random_unit(random)), 1e6 * (1 + rt_random_unit(random))};
        c->rates.compute_s_per_sample[j] = 1e-5 * rt_random_below(random, 4);
    }
}

// The same of these workers alone, with a part of their caches.
static void fill_some(problem *p)
{
    uint32_t count = 0;
    dp_planner_config *c = &p->some;
    *c = p->all;
    c->participants = c->lost = 0;
    c->participants_min = 0;
    c->dense_whole_bytes = 0;
    for (uint32_t j = 0; j < WORKERS; j++) {
        if (!(p->workers >> j & 1))
            continue;
        c->rates.links[count] = p->all.rates.links[j];
        c->rates.compute_s_per_sample[count] = p->all.rates.compute_s_per_sample[j];
        c->boxes.of_worker[count] = p->all.boxes.of_worker[j];
        c->slot_count[count++] = p->all.slot_count[j];
    }
    const uint32_t needed = (SAMPLES + count - 1) / count * FIELDS + (c->overshoot ? 1 : 0);
    c->worker_count = count;
    c->boxes.worker_count = c->boxes.count ? count : 0;
    for (uint32_t j = 0; j < count; j++) {
        const uint32_t kept =
            (uint32_t)(p->part * (c->slot_count[j] - c->overshoot) + c->overshoot);
        c->slot_count[j] = c->slot_count[j] < needed ? c->slot_count[j]
                           : kept < needed           ? needed
                                                     : kept;
    }
    c->dispatch.search_evaluations = (c->dispatch.search_evaluations + 1) / 2;
    if (c->shard_share > 0)
        c->dispatch.first_touch = RT_FIRST_TOUCH_PULL;
}

static void plan_all(problem *p)
{
    dp_planner *planner;
    dp_account_config costs;
    rt_error error = {0};
    if (dp_planner_create(&p->some, &planner, &error))
        fail_msg("%s", error.text);
    dp_account_init(&p->some, &costs);
    for (uint32_t t = 0; t < BATCHES; t++) {
        const dp_plan *plan;
        assert_int_equal(dp_planner_look_up(planner, &p->batches[t]), RT_OK);
        dp_planner_place(planner);
        assert_int_equal(dp_planner_commit(planner, &plan), RT_OK);
        if (t >= BATCHES / 2)
            dp_account_add(&costs, plan, &p->account);
    }
    dp_planner_destroy(planner);
}

// What the boxes of these workers send and receive, less what of it is the dense exchange.
static double bytes_of_boxes(const problem *p)
{
    const dp_planner_config *c = &p->some;
    double dense_up[3] = {0}, dense_down[3] = {0}, up = 0, down = 0;
    bool has_worker[3] = {false};
    for (uint32_t j = 0; j < c->worker_count; j++) {
        has_worker[c->boxes.of_worker[j]] = true;
        for (uint32_t s = 0; s < 3 && c->worker_count > 1; s++) {
            const uint32_t here = c->boxes.of_worker[j], there = c->boxes.of_shard[s];
            for (uint32_t way = 0; way < 2 && here != there; way++) {
                dense_up[way ? here : there] += DENSE / 3.0 * (BATCHES - BATCHES / 2);
                dense_down[way ? there : here] += DENSE / 3.0 * (BATCHES - BATCHES / 2);
            }
        }
    }
    for (uint32_t b = 0; b < 3; b++) {
        up += has_worker[b] ? (double)p->account.boxes.up[b] - dense_up[b] : 0;
        down += has_worker[b] ? (double)p->account.boxes.down[b] - dense_down[b] : 0;
    }
    return fmax(up, down);
}

static double bytes_of_links(const problem *p)
{
    double up = 0, down = 0;
    for (uint32_t j = 0; j < p->some.worker_count; j++) {
        up += (double)p->account.traffic[j].up;
        down += (double)p->account.traffic[j].down;
    }
    return fmax(up, down);
}

static void check(problem *p)
{
    dp_trial *trial;
    fill_some(p);
    const bool fits = dp_planner_check(&p->some, NULL) == RT_OK;
    assert_int_equal(dp_trial_fits(&p->all, p->workers), fits);
    if (!fits) {
        assert_int_equal(dp_trial_create(&p->all, p->workers, p->part, &trial), RT_CONFIG);
        return;
    }
    p->account = (dp_account){0};
    plan_all(p);
    assert_int_equal(dp_trial_create(&p->all, p->workers, p->part, &trial), RT_OK);
    for (uint32_t t = 0; t < BATCHES; t++) {
        bool done = true; // told anew by every part
        assert_int_equal(dp_trial_step(trial, &p->batches[t], t >= BATCHES / 2, &done), RT_OK);
        assert_false(done);
        assert_int_equal(dp_trial_plan(trial, &p->batches[t], t >= BATCHES / 2), RT_OK);
    }
    test_close(dp_trial_seconds(trial), p->account.predicted_s, 1e-12, 0, "seconds");
    test_close(dp_trial_row_bytes(trial),
               p->some.boxes.count ? bytes_of_boxes(p) : bytes_of_links(p), 1e-9, 1, "bytes");
    dp_trial_destroy(trial);
}

static void try_sets(bool boxes)
{
    static problem p;
    random_batches batches;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        rt_random random = {seed};
        random_batches_init(&batches, seed, FIELDS, 60, 1, 0.8);
        for (uint32_t t = 0; t < BATCHES; t++) {
            rt_batch_init(&p.batches[t], 0);
            random_batches_fill(&batches, &p.batches[t], SAMPLES);
        }
        fill_all(&p.all, boxes, &random);
        for (p.workers = 1; p.workers < rt_bit(WORKERS);
             p.workers += 1 + rt_random_below(&random, 3)) {
            p.part = rt_random_below(&random, 3) ? rt_random_unit(&random) : 1;
            check(&p);
        }
        for (uint32_t t = 0; t < BATCHES; t++)
            rt_batch_fini(&p.batches[t]);
        random_batches_fini(&batches);
    }
}

static void sets_of_workers(void **state)
{
    (void)state;
    try_sets(false);
}

static void sets_of_workers_on_boxes(void **state)
{
    (void)state;
    try_sets(true);
}

TEST_MAIN(TEST(sets_of_workers), TEST(sets_of_workers_on_boxes))
