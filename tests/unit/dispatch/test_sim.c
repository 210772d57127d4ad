// What a simulation says of a run: which iterations count, what is part of their time, its traces,
// and policies told by a SPEC.
#include "dispatch/sim/dp_sim.h"
#include "runtime/config/rt_policies.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/config_case.h"
#include "tests/support/test.h"

#define WORKERS 4u
#define PER_WORKER 16u
#define BATCHES 30u
#define LAST_SAMPLES 10u // of one more batch
#define WARMUP 7u

// Synthetic samples, as many as BATCHES full batches and a short one.
static rt_config config_of(const char *const *sets)
{
    rt_config config = config_fresh();
    char samples[64];
    snprintf(samples, sizeof samples, "stream.samples_max=%u",
             WORKERS * PER_WORKER * BATCHES + LAST_SAMPLES);
    config_must_set(&config, "stream.format=synthetic");
    config_must_set(&config, samples);
    config_must_set(&config, "batch.samples_per_worker=16");
    config_must_set(&config, "cache.rows=800");
    config_must_set(&config, "links.workers=[5, 5, 0.5, 0.5]");
    config_must_set(&config, "dispatch.alpha=0.5");
    config_must_set(&config, "sim.warmup=7");
    for (; sets && *sets; sets++)
        config_must_set(&config, *sets);
    return config;
}

static rt_status run_with(const char *const *sets, uint64_t dense_bytes, FILE *trace,
                          const dp_inputs *inputs, dp_sim_result *result, rt_error *error)
{
    rt_config config = config_of(sets);
    rt_stream *stream;
    assert_int_equal(rt_stream_open(&config.stream, config.seed, &stream, NULL), RT_OK);
    rt_schema schema = *rt_stream_schema(stream);
    rt_stream_close(stream);
    const dp_sim_config sim = {.config = &config,
                               .schema = &schema,
                               .dense_bytes = dense_bytes,
                               .trace = trace,
                               .inputs = inputs};
    rt_status status = dp_sim_run(&sim, result, error);
    rt_config_fini(&config);
    return status;
}

static rt_status run_traced(const char *const *sets, uint64_t dense_bytes, FILE *trace,
                            dp_sim_result *result, rt_error *error)
{
    return run_with(sets, dense_bytes, trace, NULL, result, error);
}

static dp_sim_result run(const char *const *sets)
{
    dp_sim_result result;
    rt_error error = {0};
    if (run_traced(sets, 4000, NULL, &result, &error))
        fail_msg("%s", error.text);
    return result;
}

#define RUN(...) run((const char *const[]){__VA_ARGS__, NULL})

// The first ones are planned like the others, and counted nowhere but in the fingerprint.
static void the_warm_up_is_not_counted(void **state)
{
    (void)state;
    const dp_sim_result all = RUN("sim.warmup=0"), warm = RUN("sim.warmup=7");
    const uint64_t samples = WORKERS * PER_WORKER * BATCHES + LAST_SAMPLES;
    assert_int_equal(all.warmup_iterations, 0);
    assert_int_equal(all.account.iterations, BATCHES + 1);
    assert_int_equal(all.account.samples, samples);
    assert_int_equal(all.decisions.iterations, BATCHES + 1);
    assert_int_equal(all.decisions.samples, samples);
    assert_int_equal(warm.warmup_iterations, WARMUP);
    assert_int_equal(warm.account.iterations, BATCHES + 1 - WARMUP);
    assert_int_equal(warm.account.samples, samples - WARMUP * WORKERS * PER_WORKER);
    assert_int_equal(warm.decisions.iterations, BATCHES + 1 - WARMUP);
    assert_int_equal(warm.decisions.samples, warm.account.samples);
    assert_int_equal(warm.fingerprint, all.fingerprint);
    assert_int_equal(warm.directory_keys, all.directory_keys);
    assert_true(warm.directory_keys > 0 && warm.slot_count == 800);
}

static void nothing_but_warm_up_is_an_error(void **state)
{
    (void)state;
    dp_sim_result result;
    rt_error error = {0};
    const char *const enough[] = {"sim.warmup=30", NULL}, *const too_few[] = {"sim.warmup=31",
                                                                              NULL};
    assert_int_equal(run_traced(enough, 0, NULL, &result, &error), RT_OK);
    assert_int_equal(result.account.iterations, 1);
    assert_int_equal(run_traced(too_few, 0, NULL, &result, &error), RT_DATA);
    assert_non_null(strstr(error.text, "31 batches, not more than the warm-up of 31 (sim.warmup)"));
}

// Also with a window of batches ahead.
static void so_many_iterations(void **state)
{
    (void)state;
    static const char *const ways[] = {"cache.lookahead=0", "cache.lookahead=5"};
    for (size_t i = 0; i < RT_COUNT_OF(ways); i++) {
        const dp_sim_result some = RUN(ways[i], "sim.iterations=12"), whole = RUN(ways[i]);
        assert_int_equal(some.account.iterations, 12 - WARMUP);
        assert_int_equal(some.account.samples, (12 - WARMUP) * WORKERS * PER_WORKER);
        assert_int_equal(whole.account.iterations, BATCHES + 1 - WARMUP);
        assert_int_not_equal(some.fingerprint, whole.fingerprint);
    }
}

// The dense exchange is in the predicted time if it is to be, and never in the transfers of rows.
static void the_dense_part_is_a_choice(void **state)
{
    (void)state;
    dp_sim_result with, without, none;
    rt_error error = {0};
    const char *const yes[] = {"sim.dense=true", NULL}, *const no[] = {"sim.dense=false", NULL};
    const uint64_t dense_bytes = 10000000; // 20 ms at 4 Gbit/s
    assert_int_equal(run_traced(yes, dense_bytes, NULL, &with, &error), RT_OK);
    assert_int_equal(run_traced(no, dense_bytes, NULL, &without, &error), RT_OK);
    assert_int_equal(run_traced(yes, 0, NULL, &none, &error), RT_OK);
    assert_true(without.account.predicted_s == none.account.predicted_s);
    assert_true(with.account.predicted_s > 2 * none.account.predicted_s);
    assert_memory_equal(with.account.traffic, none.account.traffic, sizeof with.account.traffic);
}

// What greedy placements lost is known where it was asked for, and is within its bound.
static void dispatch_errors_are_a_choice(void **state)
{
    (void)state;
    const dp_sim_result yes = RUN("sim.dispatch_error=true", "dispatch.alpha=0");
    const dp_sim_result no = RUN("sim.dispatch_error=false", "dispatch.alpha=0");
    assert_int_equal(no.decisions.measured_iterations, 0);
    assert_int_equal(yes.decisions.measured_iterations, BATCHES + 1 - WARMUP);
    assert_true(yes.decisions.error_s > 0);
    assert_true(yes.decisions.error_s <= yes.decisions.error_bound_s * 1.000001);
    assert_int_equal(yes.fingerprint, no.fingerprint); // it decides nothing
}

// Times are those of the counted iterations: some, the median no more than the 99th percentile.
static void times_are_of_what_counts(void **state)
{
    (void)state;
    const dp_sim_result result = RUN("sim.warmup=0");
    assert_true(result.decision_ms_p50 > 0 && result.decision_ms_p50 <= result.decision_ms_p99);
    assert_true(result.commit_ms_p50 > 0 && result.planned_samples_per_s > 0);
    assert_true(result.directory_bytes >= 16 * result.directory_keys);
}

// A line for every iteration, warm-up included, and worker; their sum is what is counted.
static void traces_have_every_iteration(void **state)
{
    (void)state;
    dp_sim_result result;
    rt_error error = {0};
    char line[512];
    uint32_t lines = 0;
    uint64_t samples = 0, pulls = 0;
    const char *const sets[] = {"sim.warmup=0", NULL};
    FILE *trace = tmpfile();
    assert_non_null(trace);
    assert_int_equal(run_traced(sets, 0, trace, &result, &error), RT_OK);
    rewind(trace);
    for (; fgets(line, sizeof line, trace); lines++) {
        char start[64];
        snprintf(start, sizeof start, "{\"iteration\":%u,\"worker\":%u,", lines / WORKERS + 1,
                 lines % WORKERS);
        assert_memory_equal(line, start, strlen(start));
        samples += strtoull(strstr(line, "\"samples\":") + 10, NULL, 10);
        pulls += strtoull(strstr(line, "\"miss_pull\":") + 12, NULL, 10);
    }
    fclose(trace);
    assert_int_equal(lines, (BATCHES + 1) * WORKERS);
    assert_int_equal(samples, result.account.samples);
    assert_true(pulls > 0);
    assert_int_equal(pulls, dp_account_counts(&result.account, WORKERS).miss_pull);
}

static void a_spec_is_a_policy_and_its_keys(void **state)
{
    (void)state;
    static const char *const bad[] = {"",       ":alpha=1",    "esd:",     "esd::alpha=1",
                                      "nobody", "esd:alpha=2", "esd:alpha"};
    rt_config config = config_of(NULL);
    rt_error error = {0};
    assert_int_equal(dp_sim_apply_spec(&config, "laia", &error), RT_OK);
    assert_int_equal(config.dispatch.policy, RT_POLICY_LAIA);
    assert_int_equal(dp_sim_apply_spec(&config, "esd:alpha=0.25:full_sync=true", &error), RT_OK);
    assert_int_equal(config.dispatch.policy, RT_POLICY_ESD);
    assert_true(config.dispatch.alpha == 0.25 && config.dispatch.full_sync);
    for (size_t i = 0; i < RT_COUNT_OF(bad); i++) {
        error = (rt_error){0};
        assert_int_equal(dp_sim_apply_spec(&config, bad[i], &error), RT_CONFIG);
        assert_non_null(strstr(error.text, bad[i]));
    }
    char long_spec[RT_PATH_MAX + 100] = "esd:alpha=0.";
    memset(long_spec + strlen(long_spec), '1', RT_PATH_MAX);
    assert_int_equal(dp_sim_apply_spec(&config, long_spec, &error), RT_CONFIG);
    rt_config_fini(&config);
}

// ---- who takes part ----

// Slow links make a large dense exchange slow, whatever moves of rows: no set of workers does
// better than the one that is found, of all that there are.
static void no_set_is_better_than_the_chosen_one(void **state)
{
    (void)state;
    rt_error error = {0};
    dp_sim_result result;
    char set[64];
    double best = INFINITY;
    static const char *const common[] = {"dispatch.policy=esd", "cache.rows=2000", "sim.warmup=15"};
    for (uint32_t mask = 1; mask < 16; mask++) {
        size_t length = (size_t)snprintf(set, sizeof set, "dispatch.participants=[");
        for (uint32_t w = 0; w < WORKERS; w++)
            if (mask >> w & 1)
                length += (size_t)snprintf(set + length, sizeof set - length, "%u,", w);
        set[length - 1] = ']';
        const char *const sets[] = {common[0], common[1], common[2], set, NULL};
        assert_int_equal(run_traced(sets, 400000, NULL, &result, &error), RT_OK);
        assert_int_equal(result.participants, mask);
        best = fmin(best, result.account.predicted_s);
    }
    const char *const sets[] = {common[0], common[1], common[2], "dispatch.participants=auto",
                                NULL};
    assert_int_equal(run_traced(sets, 400000, NULL, &result, &error), RT_OK);
    assert_int_equal(result.participants & 12, 0); // nobody with a slow link
    assert_true(result.account.predicted_s <= 1.1 * best);
}

// Computing that takes longer than everything on the links: all hands are needed.
static void all_take_part_where_computing_is_slow(void **state)
{
    (void)state;
    rt_error error = {0};
    dp_sim_result result;
    const char *const sets[] = {"dispatch.policy=laia", "cache.rows=2000",
                                "sim.compute_us_per_sample=5000", "dispatch.participants=auto",
                                NULL};
    assert_int_equal(run_traced(sets, 4000, NULL, &result, &error), RT_OK);
    assert_int_equal(result.participants, 15);
}

// Records of a run in which somebody chose: nobody chooses beside them, here those on slow links.
static void who_took_part_is_not_chosen_again(void **state)
{
    (void)state;
    rt_error error = {0};
    dp_sim_result result;
    dp_input out[] = {{.kind = DP_INPUT_PARTICIPATES, .iteration = 2, .worker = 0},
                      {.kind = DP_INPUT_PARTICIPATES, .iteration = 2, .worker = 1}};
    const dp_inputs inputs = {.items = out, .count = 2};
    const char *const sets[] = {"dispatch.policy=esd", "cache.rows=2000",
                                "dispatch.participants=auto", NULL};
    assert_int_equal(run_with(sets, 400000, NULL, &inputs, &result, &error), RT_OK);
    assert_int_equal(result.participants, 12);
}

// Whatever ended was there once: rows that were touched first, less those that ended, are left.
static void rows_that_end_are_counted(void **state)
{
    (void)state;
    // Who touches first is one.
    const char *const one = "workers=1", *const link = "links.workers=[5]";
    const dp_sim_result none = RUN("sim.warmup=0", link, one);
    const dp_sim_result some = RUN("sim.warmup=0", link, one, "rows.expire_iterations=5");
    assert_int_equal(none.sweeps, 0);
    assert_int_equal(none.rows_ended, 0);
    assert_int_equal(dp_account_counts(&none.account, 1).first_touch, none.directory_keys);
    assert_in_range(some.sweeps, 2, WORKERS * BATCHES);
    assert_true(some.rows_ended > some.sweeps);
    assert_int_equal(dp_account_counts(&some.account, 1).first_touch - some.rows_ended,
                     some.directory_keys);
}

// A line that is written over, a few times a second, and stays as it is at the end.
static void progress_is_one_line(void **state)
{
    (void)state;
    char text[4096];
    rt_config config = config_of(NULL);
    rt_stream *stream;
    dp_sim_result result;
    assert_int_equal(rt_stream_open(&config.stream, config.seed, &stream, NULL), RT_OK);
    rt_schema schema = *rt_stream_schema(stream);
    rt_stream_close(stream);
    const dp_sim_config sim = {.config = &config, .schema = &schema, .progress = true};
    const char *path = test_path("progress");
    assert_non_null(freopen(path, "w+", stderr));
    assert_int_equal(dp_sim_run(&sim, &result, NULL), RT_OK);
    rewind(stderr);
    const size_t size = fread(text, 1, sizeof text - 1, stderr);
    text[size] = '\0';
    assert_true(size > 0 && text[size - 1] == '\n');
    assert_ptr_equal(strchr(text, '\n'), text + size - 1);
    assert_non_null(strstr(text, "31 iterations, 1930 samples, "));
    rt_config_fini(&config);
}

// Half a stream would give half a result, without a word.
static void bad_data_is_an_error(void **state)
{
    (void)state;
    rt_error error = {0};
    dp_sim_result result;
    const char *const sets[] = {"stream.format=criteo", "stream.samples_max=0",
                                config_write_criteo(10 * WORKERS * PER_WORKER, 1200), NULL};
    assert_int_equal(run_traced(sets, 0, NULL, &result, &error), RT_DATA);
    assert_non_null(strstr(error.text, "are malformed"));
}

TEST_MAIN(TEST(the_warm_up_is_not_counted), TEST(nothing_but_warm_up_is_an_error),
          TEST(so_many_iterations), TEST(the_dense_part_is_a_choice),
          TEST(dispatch_errors_are_a_choice), TEST(times_are_of_what_counts),
          TEST(traces_have_every_iteration), TEST(a_spec_is_a_policy_and_its_keys),
          TEST(no_set_is_better_than_the_chosen_one), TEST(all_take_part_where_computing_is_slow),
          TEST(who_took_part_is_not_chosen_again), TEST(progress_is_one_line),
          TEST(rows_that_end_are_counted), TEST(bad_data_is_an_error))
