// What simulations are asked for: the configuration to take, the best fixed set of workers, and
// micro-batches that need no tuning.
#include "dispatch/sim/dp_advise.h"

#include <stdio.h>
#include <string.h>

#include "dispatch/sim/dp_fixed.h"
#include "runtime/config/rt_policies.h"
#include "tests/support/config_case.h"
#include "tests/support/test.h"

#define WORKERS 4u
#define PER_WORKER_LARGE 16u // where samples have to be many
#define LARGE \
    "stream.format=synthetic", "stream.files=[]", "batch.samples_per_worker=16", "cache.rows=1800"
#define SAMPLES 3300u // of 206 batches
#define KEYS 26u
#define ITERATIONS 24u
#define DENSE_BYTES 10000u

typedef struct {
    rt_config config;
    rt_schema schema;
    dp_sim_config sim;
} asked;

static void ask(asked *a, const char *const *sets)
{
    rt_stream *stream;
    a->config = config_fresh();
    config_must_set(&a->config, "stream.format=criteo");
    config_must_set(&a->config, config_write_skewed(SAMPLES, 4));
    config_must_set(&a->config, "batch.samples_per_worker=4");
    config_must_set(&a->config, "cache.rows=450"); // of 2 boxes: 8 x 26 = 208
    config_must_set(&a->config, "links.workers=[5, 5, 0.5, 0.05]");
    config_must_set(&a->config, "sim.iterations=24");
    config_must_set(&a->config, "sim.warmup=12");
    for (; sets && *sets; sets++)
        config_must_set(&a->config, *sets);
    assert_int_equal(rt_stream_open(&a->config.stream, a->config.seed, &stream, NULL), RT_OK);
    a->schema = *rt_stream_schema(stream);
    rt_stream_close(stream);
    a->sim =
        (dp_sim_config){.config = &a->config, .schema = &a->schema, .dense_bytes = DENSE_BYTES};
}

#define ASK(a, ...) ask(a, (const char *const[]){__VA_ARGS__, NULL})

static dp_sim_result simulate(asked *a)
{
    dp_sim_result result;
    rt_error error = {0};
    if (dp_sim_run(&a->sim, &result, &error))
        fail_msg("%s", error.text);
    return result;
}

static double predicted_s(const dp_sim_result *result)
{
    return result->account.predicted_s / (double)result->account.iterations;
}

// Each combination once.
static void must_differ(const dp_advices *advices)
{
    for (uint32_t i = 0; i < advices->count; i++) {
        for (uint32_t k = 0; k < i; k++) {
            uint32_t same = 0;
            for (uint32_t l = 0; l < DP_ADVICE_LINES; l++)
                same += strcmp(advices->items[i].lines[l], advices->items[k].lines[l]) == 0;
            assert_true(same < DP_ADVICE_LINES);
        }
    }
}

// With its settings a simulation predicts the very same.
static void the_first_choice_is_what_sim_says(void **state)
{
    (void)state;
    asked a, again;
    dp_advices advices;
    ASK(&a, NULL);
    assert_int_equal(dp_advise(&a.sim, ITERATIONS, &advices, NULL), RT_OK);
    assert_true(advices.count > 20);
    must_differ(&advices);
    for (uint32_t i = 1; i < advices.count; i++)
        assert_true(advices.items[i - 1].predicted_s <= advices.items[i].predicted_s);
    const dp_advice *picks[] = {&advices.items[0], &advices.items[advices.count - 1]};
    for (uint32_t i = 0; i < 2; i++) {
        char iterations[32], warmup[32]; // stale copies move in long runs only
        const uint32_t half =
            (uint32_t)rt_max_u64(ITERATIONS / 2, picks[i]->consistency.staleness + 1);
        snprintf(iterations, sizeof iterations, "sim.iterations=%u", 2 * half);
        snprintf(warmup, sizeof warmup, "sim.warmup=%u", half);
        ASK(&again, picks[i]->lines[0], picks[i]->lines[1], picks[i]->lines[2], picks[i]->lines[3],
            picks[i]->lines[4], iterations, warmup);
        const dp_sim_result result = simulate(&again);
        assert_true(predicted_s(&result) == picks[i]->predicted_s);
        assert_int_equal(result.participants, picks[i]->participants);
        rt_config_fini(&again.config);
    }
    dp_advices_fini(&advices);
    rt_config_fini(&a.config);
}

// Four times the batch: what sim says with those settings, in samples per second.
static void a_larger_batch_is_what_sim_says(void **state)
{
    (void)state;
    asked a, again;
    dp_advices advices;
    dp_advice_batch batch;
    rt_error error = {0};
    ASK(&a, NULL);
    assert_int_equal(dp_advise(&a.sim, ITERATIONS, &advices, NULL), RT_OK);
    const dp_advice *last = &advices.items[advices.count - 1];
    assert_int_equal(last->consistency.staleness, 0);
    if (dp_advise_batch(&a.sim, ITERATIONS, last, &batch, &error))
        fail_msg("%s", error.text);
    assert_string_equal(batch.lines[0], "batch.samples_per_worker=16");
    ASK(&again, last->lines[0], last->lines[1], last->lines[2], last->lines[3], last->lines[4],
        batch.lines[0]);
    if (*batch.lines[1]) { // its cache was too small
        assert_string_equal(batch.lines[1], "cache.rows=416");
        config_must_set(&again.config, batch.lines[1]);
    }
    const dp_sim_result result = simulate(&again);
    assert_true(batch.rate == 4 * last->predicted_s / predicted_s(&result));
    assert_true(batch.rate > 1 && batch.rate <= 4);
    rt_config_fini(&again.config);
    config_must_set(&a.config, "stream.samples_max=300");
    assert_int_equal(dp_advise_batch(&a.sim, ITERATIONS, last, &batch, &error), RT_DATA);
    dp_advices_fini(&advices);
    rt_config_fini(&a.config);
}

static bool has_line(const dp_advice *one, const char *line)
{
    bool found = false;
    for (uint32_t l = 0; l < DP_ADVICE_LINES; l++)
        found |= strcmp(one->lines[l], line) == 0;
    return found;
}

static uint32_t policies_that_look_ahead(void)
{
    uint32_t count = 0;
    for (uint32_t p = 0; p < RT_POLICY_COUNT; p++)
        count += dp_policy_can((rt_policy_kind)p, DP_POLICY_WINDOWS);
    return count;
}

static uint32_t policies_with_stale_reads(void)
{
    uint32_t count = 0;
    for (uint32_t p = 0; p < RT_POLICY_COUNT; p++)
        count += !dp_policy_can((rt_policy_kind)p, DP_POLICY_FRESH);
    return count;
}

static bool looks_ahead(const dp_advice *one)
{
    char line[64];
    for (uint32_t p = 0; p < RT_POLICY_COUNT; p++) {
        snprintf(line, sizeof line, "dispatch.policy=%s", dp_policy_find((rt_policy_kind)p)->name);
        if (has_line(one, line))
            return dp_policy_can((rt_policy_kind)p, DP_POLICY_WINDOWS);
    }
    return false;
}

// Every policy with and without stale reads; optimizers that cannot have them leave the others.
static void staleness_is_tried(void **state)
{
    (void)state;
    asked a;
    dp_advices advices;
    for (uint32_t adam = 0; adam < 2; adam++) {
        uint32_t strict = 0, stale = 0, less = 0, windows = 0;
        ASK(&a, adam ? "optimizer.rows.name=adam" : "optimizer.rows.name=sgd");
        assert_int_equal(dp_advise(&a.sim, 6, &advices, NULL), RT_OK);
        for (uint32_t i = 0; i < advices.count; i++) {
            const dp_advice *one = &advices.items[i];
            const bool has_window = has_line(one, "dispatch.window=4");
            windows += has_window;
            assert_true(!has_window || (!one->consistency.bounded && looks_ahead(one)));
            strict += !has_window && has_line(one, "consistency.staleness=off");
            stale +=
                one->consistency.staleness == 100 && has_line(one, "consistency.staleness=100");
            less += one->consistency.staleness == 10 && has_line(one, "consistency.staleness=10");
        }
        assert_true(strict > 0);
        // het is tried with stale reads alone, and fae not without a file of hot rows
        assert_int_equal((RT_POLICY_COUNT - 2) * windows, policies_that_look_ahead() * strict);
        assert_int_equal((RT_POLICY_COUNT - 2) * stale,
                         adam ? 0 : policies_with_stale_reads() * strict);
        assert_int_equal(less, stale);
        assert_true((advices.refused > 0) == (adam == 1));
        dp_advices_fini(&advices);
        rt_config_fini(&a.config);
    }
}

// Rows and sums from worker to worker are tried, both together, where the PS has the narrow link;
// there they are of use.
static void a_narrow_ps_is_got_round(void **state)
{
    (void)state;
    asked a, again;
    dp_advices advices;
    uint32_t with = 0, first = UINT32_MAX;
    ASK(&a, "links.workers=[5, 5, 5, 5]", "links.ps_gbps=0.5");
    assert_int_equal(dp_advise(&a.sim, ITERATIONS, &advices, NULL), RT_OK);
    for (uint32_t i = 0; i < advices.count; i++) {
        const dp_advice *one = &advices.items[i];
        const bool has = has_line(one, "dispatch.hand_over=true");
        assert_int_equal(has, has_line(one, "dispatch.reduce=true"));
        assert_false(has && one->consistency.bounded);
        with += has;
        if (!one->consistency.bounded && has_line(one, "dispatch.participants=all") && i < first)
            first = i;
    }
    assert_true(with > 0 && first < advices.count);
    const dp_advice *best = &advices.items[first];
    assert_true(has_line(best, "dispatch.reduce=true"));
    ASK(&again, best->lines[0], best->lines[1], best->lines[2], best->lines[3], best->lines[4],
        best->lines[5], best->lines[6], "links.workers=[5, 5, 5, 5]", "links.ps_gbps=0.5");
    const dp_sim_result result = simulate(&again);
    assert_true(predicted_s(&result) == best->predicted_s);
    rt_config_fini(&again.config);
    dp_advices_fini(&advices);
    rt_config_fini(&a.config);
    ASK(&a, "links.ps_gbps=20"); // wider than 10.55
    assert_int_equal(dp_advise(&a.sim, 6, &advices, NULL), RT_OK);
    for (uint32_t i = 0; i < advices.count; i++)
        assert_true(!*advices.items[i].lines[5] && !*advices.items[i].lines[6]);
    dp_advices_fini(&advices);
    rt_config_fini(&a.config);
}

// Copies that may lack 100 updates move nothing for as long: what does not see them move is no
// prediction.
static void stale_copies_are_seen_to_move(void **state)
{
    (void)state;
    asked a;
    dp_advices advices;
    uint32_t moving = 0;
    ASK(&a, "stream.samples_max=1500"); // 93 batches
    assert_int_equal(dp_advise(&a.sim, 6, &advices, NULL), RT_OK);
    assert_true(advices.too_short > 0);
    for (uint32_t i = 0; i < advices.count; i++)
        assert_true(advices.items[i].consistency.staleness < 100);
    dp_advices_fini(&advices);
    rt_config_fini(&a.config);
    ASK(&a, "cache.rows=5000");
    assert_int_equal(dp_advise(&a.sim, 6, &advices, NULL), RT_OK);
    assert_int_equal(advices.too_short, 0);
    for (uint32_t i = 0; i < advices.count; i++)
        moving += advices.items[i].consistency.staleness == 100 && advices.items[i].bytes > 0;
    assert_true(moving >= 15);
    dp_advices_fini(&advices);
    rt_config_fini(&a.config);
}

// However long the stream is, which a simulation reads to its end unless it is told.
static void the_work_is_bounded(void **state)
{
    (void)state;
    asked a;
    dp_advices advices;
    uint64_t iterations = 0;
    ASK(&a, "sim.iterations=0");
    assert_int_equal(dp_advise(&a.sim, 6, &advices, NULL), RT_OK);
    for (uint32_t i = 0; i < advices.count; i++)
        iterations += rt_max_u64(6, 2 * (advices.items[i].consistency.staleness + 1));
    assert_int_equal(advices.iterations, iterations);
    dp_advices_fini(&advices);
    rt_config_fini(&a.config);
}

// Half of a cache that just holds a micro-batch does not; too small from the start is an error.
static void caches_that_are_too_small(void **state)
{
    (void)state;
    asked a;
    dp_advices advices;
    rt_error error = {0};
    ASK(&a, "cache.rows=125");
    assert_int_equal(dp_advise(&a.sim, 6, &advices, &error), RT_OK);
    assert_true(advices.too_small > 0);
    dp_advices_fini(&advices);
    rt_config_fini(&a.config);
    ASK(&a, "cache.rows=25", "optimizer.rows.name=adam"); // nor are there stale reads, for which
                                                          // caches have some rows more
    assert_int_equal(dp_advise(&a.sim, 6, &advices, &error), RT_CONFIG);
    assert_non_null(strstr(error.text, "cache.rows"));
    dp_advices_fini(&advices);
    rt_config_fini(&a.config);
}

// Against every prefix, each simulated by its own configuration.
static void the_best_fixed_set(void **state)
{
    (void)state;
    static const char *const sets[] = {"dispatch.participants=[0]", "dispatch.participants=[0, 1]",
                                       "dispatch.participants=[0, 1, 2]",
                                       "dispatch.participants=[0, 1, 2, 3]"};
    asked a;
    dp_fixed_set best;
    double least = 0;
    uint64_t workers = 0;
    for (uint32_t i = 0; i < RT_COUNT_OF(sets); i++) {
        ASK(&a, sets[i]);
        const dp_sim_result result = simulate(&a);
        if (i == 0 || predicted_s(&result) < least) {
            least = predicted_s(&result);
            workers = result.participants;
        }
        rt_config_fini(&a.config);
    }
    ASK(&a, "dispatch.participants=auto");
    assert_int_equal(dp_fixed_best(&a.sim, &best, NULL), RT_OK);
    assert_int_equal(best.workers, workers);
    assert_true(best.predicted_s == least);
    assert_true(best.tried < RT_COUNT_OF(sets)); // the slow one's dense exchange alone takes longer
    rt_config_fini(&a.config);
}

// Nobody has to know the bounds: free is as good as equal where links are equal, and better where
// they are not.
static void free_micro_batches_need_no_bounds(void **state)
{
    (void)state;
    static const char *const links[] = {"links.workers=[1, 1, 1, 1]", "links.workers=[5, 5, 1, 1]"};
    for (uint32_t i = 0; i < 2; i++) {
        asked a;
        ASK(&a, "dispatch.policy=makespan", links[i], LARGE);
        const dp_sim_result free = simulate(&a);
        rt_config_fini(&a.config);
        ASK(&a, "dispatch.policy=makespan", links[i], LARGE, "dispatch.micro_batches=equal");
        const dp_sim_result equal = simulate(&a);
        rt_config_fini(&a.config);
        assert_true(predicted_s(&free) < (i ? 0.9 : 1.02) * predicted_s(&equal));
    }
}

// A cache that holds an equal share at its worst and hardly more: a fast worker takes more samples
// than that as long as their rows fit. (The planner asserts that there is a slot for each.)
static void rows_bound_what_a_worker_gets(void **state)
{
    (void)state;
    asked a;
    ASK(&a, "dispatch.policy=makespan", "links.workers=[5, 0.5, 0.5, 0.5]", LARGE,
        "cache.rows=416");
    const dp_sim_result result = simulate(&a);
    assert_int_equal(result.slot_count, PER_WORKER_LARGE * KEYS);
    assert_true(result.account.micro_batch[0] > PER_WORKER_LARGE * result.account.iterations);
    rt_config_fini(&a.config);
}

TEST_MAIN(TEST(the_first_choice_is_what_sim_says), TEST(a_larger_batch_is_what_sim_says),
          TEST(staleness_is_tried), TEST_SLOW(a_narrow_ps_is_got_round, 120),
          TEST(stale_copies_are_seen_to_move), TEST(the_work_is_bounded),
          TEST(caches_that_are_too_small), TEST(the_best_fixed_set),
          TEST(free_micro_batches_need_no_bounds), TEST(rows_bound_what_a_worker_gets))
