// Bounded staleness, and rows that travel rounded, alone and together, in whole runs: they repeat,
// go on from checkpoints as if nothing had been, end rows, and say what does not go with it.
// (Simulation against run: test_up.c.)
#include "tests/support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/rt_base.h"
#include "tests/support/process_case.h"
#include "tests/support/run_case.h"

// Ids drift, so that rows become old; small caches, so that some are cached when they end.
static const char config[] =
    "{\"workers\": 3, \"batch\": {\"samples_per_worker\": 16},"
    " \"stream\": {\"format\": \"synthetic\", \"samples_max\": 4800,"
    "  \"synthetic\": {\"scale\": 0.001}},"
    " \"model\": {\"embedding_dim\": 4, \"mlp\": [8, 4]}, \"ps\": {\"shards\": 2},"
    " \"dispatch\": {\"measure_compute\": false}, \"sim\": {\"warmup\": 0},"
    " \"cache\": {\"rows\": 700}, \"timeouts\": {\"start_s\": 20}}";

// sets: may begin with a flag. out NULL: of a command that prints JSON.
static void start(process *p, const char *command, const char *out, const char *const *sets)
{
    run_start_config(p, command, config, out, sets);
}

static void run(const char *out, const char *const *sets)
{
    run_up(config, out, NULL, sets);
}

// A checkpoint that only has what changed since others: versions of pushes tell what did.
static void in_two_parts(const char *staleness, const char *more)
{
    process p;
    const char *const whole[] = {staleness, more, "checkpoint.every_iterations=15",
                                 "checkpoint.full_every=9", NULL};
    const char *const first[] = {staleness,
                                 more,
                                 "checkpoint.every_iterations=15",
                                 "checkpoint.full_every=9",
                                 "checkpoint.at_end=true",
                                 "stream.samples_max=2880",
                                 NULL};
    const char *const second[] = {
        "--resume", staleness, more, "checkpoint.every_iterations=15", "checkpoint.full_every=9",
        NULL};
    run("whole", whole);
    run("parts", first);
    start(&p, "up", "parts", second);
    run_must_end(&p, 0);
    run_must_say(&p, "going on after iteration 60, 2880 samples (caches as they were)");
    process_fini(&p);
    run_must_be_the_same("parts", "whole", 2);
}

static void in_two_parts_without_reuse(void **state)
{
    (void)state;
    in_two_parts("consistency.staleness=0", "dispatch.policy=laia");
}

static void in_two_parts_with_light_lfu(void **state)
{
    (void)state;
    in_two_parts("consistency.staleness=3", "cache.eviction=light_lfu");
}

static void in_two_parts_as_het(void **state)
{
    (void)state;
    in_two_parts("dispatch.policy=het", "cache.rows=500");
}

static void in_two_parts_with_rows_that_end(void **state)
{
    (void)state;
    in_two_parts("consistency.staleness=10", "rows.expire_iterations=16");
}

static void in_two_parts_in_8_bits(void **state)
{
    (void)state;
    in_two_parts("network.row_wire=int8", "dispatch.policy=esd");
}

static void in_two_parts_in_16_bits(void **state)
{
    (void)state;
    in_two_parts("network.row_wire=bf16", "rows.expire_iterations=16");
}

static void in_two_parts_in_8_bits_synced(void **state)
{
    (void)state;
    in_two_parts("network.row_wire=int8", "dispatch.full_sync=true");
}

static void in_two_parts_stale_in_8_bits(void **state)
{
    (void)state;
    in_two_parts("network.row_wire=int8", "consistency.staleness=4");
}

static void runs_repeat(void **state)
{
    (void)state;
    static const char *const sets[] = {"consistency.staleness=5", "cache.rows=300", NULL};
    run("one", sets);
    run("other", sets);
    run_must_be_the_same("one", "other", 2);
    run_same_line("one", "other", "auc");
}

static uint64_t planned(const char *const *sets)
{
    process p;
    start(&p, "sim", NULL, sets);
    run_must_end(&p, 0);
    const char *at = strstr(p.text, "\"plan_fingerprint\": \"");
    assert_non_null(at);
    const uint64_t fingerprint = strtoull(at + strlen("\"plan_fingerprint\": \""), NULL, 16);
    process_fini(&p);
    return fingerprint;
}

// A name for three values, each of which may be another one.
static void het_is_a_name(void **state)
{
    (void)state;
    static const char *const random = "dispatch.policy=random", *const het = "dispatch.policy=het";
    static const char *const same[][2][5] = {
        {{"cache.rows=300", het},
         {"cache.rows=300", random, "consistency.staleness=100", "cache.eviction=light_lfu"}},
        {{"cache.rows=300", "consistency.staleness=2", het},
         {"cache.rows=300", random, "consistency.staleness=2", "cache.eviction=light_lfu"}},
        {{"cache.rows=300", het, "cache.eviction=lru"},
         {"cache.rows=300", "consistency.staleness=100", random, "cache.eviction=lru"}}};
    uint64_t fingerprints[RT_COUNT_OF(same)];
    for (size_t i = 0; i < RT_COUNT_OF(same); i++) {
        fingerprints[i] = planned(same[i][0]);
        assert_true(fingerprints[i] == planned(same[i][1]));
        for (size_t k = 0; k < i; k++)
            assert_true(fingerprints[i] != fingerprints[k]);
    }
}

static void must_be_refused(const char *command, const char *out, const char *const *sets,
                            const char *words)
{
    process p;
    start(&p, command, out, sets);
    const int status = process_end(&p, RUN_CASE_S);
    assert_true(status != 0);
    run_must_say(&p, words);
    process_fini(&p);
}

static void what_does_not_go_with_it(void **state)
{
    (void)state;
    static const struct {
        const char *sets[4], *words;
    } cases[] = {
        {{"consistency.staleness=7", "optimizer.rows.name=adam", NULL},
         "optimizer.rows.name: adam cannot add up"},
        {{"consistency.staleness=1", "optimizer.rows.name=ftrl", NULL},
         "optimizer.rows.name: ftrl cannot add up"},
        {{"consistency.staleness=0", "dispatch.full_sync=true", NULL},
         "dispatch.full_sync: not with"},
        {{"consistency.staleness=9", "cache.lookahead=2", NULL}, "cache.lookahead: not with"},
        {{"consistency.staleness=9", "dispatch.view=strict", NULL}, "dispatch.view: not with"},
        {{"dispatch.window=2", "consistency.staleness=0", NULL},
         "dispatch.window: above 1 not with consistency.staleness"},
        {{"dispatch.window=2", "rows.admit=2", NULL},
         "dispatch.window: above 1 not with rows.admit"},
        {{"dispatch.hand_over=true", "consistency.staleness=1", NULL},
         "dispatch.hand_over: not with"},
        {{"dispatch.hand_over=true", "network.row_wire=int8", NULL},
         "network.row_wire: \"int8\" not with dispatch.hand_over"},
        {{"dispatch.policy=het", "consistency.staleness=off", NULL},
         "consistency.staleness: \"off\" not with dispatch.policy \"het\""},
        {{"dispatch.policy=het", "cache.eviction=emark", NULL},
         "cache.eviction: \"emark\" not with dispatch.policy \"het\""},
        {{"dispatch.policy=het", "cache.eviction=ttl", NULL},
         "cache.eviction: \"ttl\" not with dispatch.policy \"het\""},
        {{"dispatch.policy=het", "dispatch.window=2", NULL},
         "above 1 not with consistency.staleness (of dispatch.policy \"het\")"},
        {{"dispatch.policy=bagpipe", "dispatch.window=2", NULL},
         "above 1 not with dispatch.policy \"bagpipe\""},
        {{"dispatch.policy=bagpipe", "cache.lookahead=64", "dispatch.window=2", NULL},
         "above 1 not with cache.lookahead above 32"},
        {{"dispatch.policy=het", "cache.lookahead=1", NULL},
         "cache.lookahead: not with consistency.staleness (of dispatch.policy \"het\")"},
        {{"dispatch.policy=het", "optimizer.rows.name=adam", NULL},
         "as consistency.staleness (of dispatch.policy \"het\") above 0 needs"},
        {{"consistency.staleness=-1", NULL}, "consistency.staleness"},
        {{"consistency.staleness=often", NULL}, "expected \"auto\", \"off\", \"inf\", or a number"},
    };
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++)
        must_be_refused("sim", NULL, cases[i].sets, cases[i].words);
}

// Its versions run ahead of iterations: synchronous training would take new rows for old ones.
static void no_way_back(void **state)
{
    (void)state;
    static const char *const stale[] = {"consistency.staleness=2", "checkpoint.at_end=true",
                                        "stream.samples_max=2880", NULL};
    static const char *const strict[] = {"--resume", "checkpoint.at_end=true", NULL};
    run("out", stale);
    must_be_refused("up", "out", strict, "written with consistency.staleness above 0");
}

TEST_MAIN(TEST(in_two_parts_without_reuse), TEST(in_two_parts_with_light_lfu),
          TEST(in_two_parts_as_het), TEST(in_two_parts_in_8_bits), TEST(in_two_parts_in_16_bits),
          TEST(in_two_parts_in_8_bits_synced), TEST(in_two_parts_stale_in_8_bits),
          TEST(in_two_parts_with_rows_that_end), TEST(runs_repeat), TEST(het_is_a_name),
          TEST(what_does_not_go_with_it), TEST(no_way_back))
