// Bagpipe as a policy of a run, and rows that leave after their last use in sight (cache.eviction
// "ttl"): real processes against the simulator, against runs whose rows stay, against one that goes
// on from a checkpoint.
#include "tests/support/test.h"

#include <stdio.h>

#include "runtime/rt_base.h"
#include "tests/support/process_case.h"
#include "tests/support/run_case.h"

#define BAGPIPE "dispatch.policy=bagpipe"
#define RANDOM "dispatch.policy=random"

static const char config[] =
    "{\"workers\": 4, \"batch\": {\"samples_per_worker\": 24},"
    " \"stream\": {\"format\": \"synthetic\", \"samples_max\": 4800,"
    "  \"synthetic\": {\"scale\": 0.001}},"
    " \"model\": {\"embedding_dim\": 4, \"mlp\": [8, 4]}, \"ps\": {\"shards\": 2},"
    " \"links\": {\"ps_gbps\": 2}, \"sim\": {\"warmup\": 0}, \"cache\": {\"rows\": 900},"
    " \"timeouts\": {\"start_s\": 20, \"peer_s\": 3, \"rejoin_s\": 4}, \"restarts_max\": 3,"
    " \"checkpoint\": {\"keep\": 9}}";

static void run(const char *out, const char *const *sets)
{
    run_up(config, out, NULL, sets);
}

// Random placements do not look at caches, and those of bagpipe do not either: with one placement
// the model is one, whenever rows leave, however far the planner sees, and whoever sums.
static void the_model_is_that_of_rows_that_stay(void **state)
{
    (void)state;
    run("stay", (const char *const[]){RANDOM, NULL});
    run("leave", (const char *const[]){RANDOM, "cache.eviction=ttl", "cache.lookahead=60", NULL});
    run_must_have_one_model("leave", "stay", 2);
    assert_true(run_sum("leave", "\"evict_push\":") > 0);

    run("near", (const char *const[]){BAGPIPE, "cache.lookahead=1", NULL});
    run("far", (const char *const[]){BAGPIPE, NULL});
    run("sums", (const char *const[]){BAGPIPE, "dispatch.reduce=true", NULL});
    run_must_have_one_model("near", "far", 2);
    run_must_have_one_model("sums", "far", 2);
    assert_true(run_sum("near", "\"miss_pull\":") > run_sum("far", "\"miss_pull\":"));
    assert_true(run_sum("sums", "\"gradients_handed\":") > 100);
}

// What the workers report is what the plans say: every number, summed up.
static void it_is_what_the_simulator_says(void **state)
{
    static const char *const counts[] = {
        "\"miss_pull\":", "\"update_push\":", "\"evict_push\":", "\"grad_push\":", NULL};
    static const char *const ways[][3] = {{BAGPIPE, NULL},
                                          {BAGPIPE, "dispatch.reduce=true", NULL},
                                          {BAGPIPE, "cache.lookahead=3", NULL}};
    (void)state;
    for (size_t i = 0; i < RT_COUNT_OF(ways); i++) {
        run("run", ways[i]);
        run_must_be_simulated(config, "run", ways[i], counts);
    }
}

static void it_goes_on_from_a_checkpoint_as_if_nothing_had_been(void **state)
{
    (void)state;
    run_must_go_on_alike(config, 2,
                         (const char *const[]){BAGPIPE, "cache.lookahead=40",
                                               "checkpoint.every_iterations=15", NULL});
}

static void a_worker_is_lost_and_comes_back(void **state)
{
    (void)state;
    run_must_regain_a_worker(
        config, "lost",
        (const char *const[]){BAGPIPE, "cache.lookahead=40", "stream.samples_max=100000000",
                              "on_worker_loss=shrink", "checkpoint.every_iterations=100", NULL});
}

static void what_does_not_fit_is_named(void **state)
{
    static const struct {
        const char *sets[2], *words;
    } cases[] = {
        {{BAGPIPE, "consistency.staleness=1"},
         "dispatch.policy: \"bagpipe\": not with consistency.staleness"},
        {{RANDOM, "cache.eviction=ttl"}, "expected cache.lookahead above 0"},
        {{"dispatch.window=2", "cache.lookahead=33"},
         "dispatch.window: above 1 not with cache.lookahead above 32"},
        {{BAGPIPE, "cache.lookahead=1024"}, "cache.lookahead"},
    };
    (void)state;
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
        process p;
        run_start_config(&p, "sim", config, NULL,
                         (const char *const[]){cases[i].sets[0], cases[i].sets[1], NULL});
        run_must_end(&p, 1);
        run_must_say(&p, cases[i].words);
        process_fini(&p);
    }
}

TEST_MAIN(TEST_SLOW(the_model_is_that_of_rows_that_stay, 120),
          TEST_SLOW(it_is_what_the_simulator_says, 120),
          TEST_SLOW(it_goes_on_from_a_checkpoint_as_if_nothing_had_been, 120),
          TEST_SLOW(a_worker_is_lost_and_comes_back, 120), TEST(what_does_not_fit_is_named))
