// Gradients that go to a trainer of their row, which sums them (dispatch.reduce): real processes
// against the simulator, against the same run without, against one that goes on from a checkpoint;
// with a worker that is lost and comes back.
#include "tests/support/test.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/rt_base.h"
#include "tests/support/process_case.h"
#include "tests/support/run_case.h"

#define ENDLESS "stream.samples_max=100000000" // the case ends the run
#define REDUCE "dispatch.reduce=true"
#define HAND_OVER "dispatch.hand_over=true"
#define GRADIENTS "\"gradients_handed\":"

// A link of the PS that is no wider than two of the workers': some rows are summed there, some
// here.
static const char config[] =
    "{\"workers\": 4, \"batch\": {\"samples_per_worker\": 24},"
    " \"stream\": {\"format\": \"synthetic\", \"samples_max\": 4800,"
    "  \"synthetic\": {\"scale\": 0.001}},"
    " \"model\": {\"embedding_dim\": 4, \"mlp\": [8, 4]}, \"ps\": {\"shards\": 2},"
    " \"dispatch\": {\"policy\": \"makespan\", \"measure_compute\": false,"
    "  \"participants\": \"rotate\"}, \"links\": {\"ps_gbps\": 2},"
    " \"sim\": {\"warmup\": 0}, \"cache\": {\"rows\": 900},"
    " \"timeouts\": {\"start_s\": 20, \"peer_s\": 3, \"rejoin_s\": 4}, \"restarts_max\": 3,"
    " \"checkpoint\": {\"keep\": 9}}";

static void run(const char *out, const char *flag, const char *set, const char *other)
{
    run_up(config, out, flag, (const char *const[]){REDUCE, set, other, NULL});
}

// Placements do not look at the caches here, so nothing but the place of the sums differs; and
// their order is that of workers, wherever they are made.
static void the_model_is_that_of_a_run_without(void **state)
{
    static const char *const ways[] = {"dispatch.hand_over=false", HAND_OVER};
    (void)state;
    run_up(config, "without", NULL,
           (const char *const[]){"dispatch.policy=random", "dispatch.participants=all", NULL});
    for (size_t i = 0; i < RT_COUNT_OF(ways); i++) {
        const char *out = i ? "with_rows" : "with";
        run_up(config, out, NULL,
               (const char *const[]){REDUCE, ways[i], "dispatch.policy=random",
                                     "dispatch.participants=all", NULL});
        assert_true(run_sum(out, GRADIENTS) > 500);
        run_must_equal(out, "without", "model/rows-000-of-002.bin");
        run_must_equal(out, "without", "model/rows-001-of-002.bin");
        run_must_equal(out, "without", "model/dense.bin");
    }
}

// Batches that grow are parts of a step, and FTRL goes by sums of gradients: who sums knows of how
// many samples, as the shards do.
static void steps_are_those_of_the_shards(void **state)
{
    static const char *const optimizers[] = {"optimizer.rows.l2=0.01", "optimizer.rows.name=ftrl"};
    (void)state;
    for (size_t i = 0; i < RT_COUNT_OF(optimizers); i++) {
        const char *const sets[] = {optimizers[i],
                                    "batch.samples_per_worker=0",
                                    "batch.samples=96",
                                    "stream.samples_max=1600",
                                    "dispatch.policy=random",
                                    "dispatch.participants=all",
                                    REDUCE,
                                    NULL};
        run_up(config, "sums", NULL, sets);
        const char *without[RT_COUNT_OF(sets)];
        memcpy(without, sets, sizeof sets);
        without[6] = "dispatch.reduce=false";
        run_up(config, "shards", NULL, without);
        assert_true(run_sum("sums", GRADIENTS) > 100);
        run_must_equal("sums", "shards", "model/rows-000-of-002.bin");
        run_must_equal("sums", "shards", "model/rows-001-of-002.bin");
        run_must_equal("sums", "shards", "model/dense.bin");
    }
}

// What the workers report is what the plans say: every number, summed up.
static void it_is_what_the_simulator_says(void **state)
{
    (void)state;
    run("with", NULL, HAND_OVER, NULL);
    run_must_be_simulated(config, "with", (const char *const[]){REDUCE, HAND_OVER, NULL},
                          (const char *const[]){"\"rows_handed\":", GRADIENTS,
                                                "\"miss_pull\":", "\"update_push\":",
                                                "\"evict_push\":", "\"grad_push\":", NULL});
    assert_true(run_sum_as_summed_up("with", GRADIENTS) > 500);
}

static void it_goes_on_from_a_checkpoint_as_if_nothing_had_been(void **state)
{
    (void)state;
    run_must_go_on_alike(
        config, 2,
        (const char *const[]){REDUCE, HAND_OVER, "checkpoint.every_iterations=15", NULL});
}

// Who sums may wait for a gradient that does not come any more: it is the coordinator who finds
// that.
static void a_worker_is_lost_and_comes_back(void **state)
{
    (void)state;
    run_must_regain_a_worker(config, "lost",
                             (const char *const[]){REDUCE, HAND_OVER, ENDLESS,
                                                   "on_worker_loss=shrink",
                                                   "dispatch.participants=all",
                                                   "checkpoint.every_iterations=100", NULL});
}

// What cannot go with it; and its name of before.
static void what_does_not_fit_is_named(void **state)
{
    static const struct {
        const char *sets[2], *words;
        int status;
    } cases[] = {
        {{"network.transport=ucx", NULL}, "dispatch.reduce: not with network.transport \"ucx\"", 1},
        {{"network.worker_port=65533", NULL},
         "network.worker_port: 65533, and that of worker 3 is no port: at most 65532",
         1},
        {{"consistency.staleness=1", "dispatch.participants=all"},
         "dispatch.reduce: not with consistency.staleness",
         1},
        {{"network.row_wire=bf16", NULL}, "dispatch.reduce: not with network.row_wire", 1},
        {{"dispatch.full_sync=true", NULL}, "dispatch.reduce: not with dispatch.full_sync", 1},
        {{"sim.reduce=true", NULL}, "--set sim.reduce: is now called dispatch.reduce", 0},
        {{"dispatch.keeper=true", NULL},
         "dispatch.keeper is gone, and has no effect: every trainer of a row sends its gradient",
         0},
    };
    (void)state;
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
        process p;
        run_start_config(&p, "sim", config, NULL,
                         (const char *const[]){cases[i].status ? REDUCE : "sim.dense=true",
                                               cases[i].sets[0], cases[i].sets[1], NULL});
        run_must_end(&p, cases[i].status);
        run_must_say(&p, cases[i].words);
        process_fini(&p);
    }
}

TEST_MAIN(TEST_SLOW(the_model_is_that_of_a_run_without, 120),
          TEST_SLOW(steps_are_those_of_the_shards, 120),
          TEST_SLOW(it_is_what_the_simulator_says, 120),
          TEST_SLOW(it_goes_on_from_a_checkpoint_as_if_nothing_had_been, 120),
          TEST_SLOW(a_worker_is_lost_and_comes_back, 120), TEST(what_does_not_fit_is_named))
