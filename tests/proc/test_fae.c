// FAE as a policy of a run: real processes against the simulator and against rows that move in other
// ways; runs that go on from a checkpoint, lose a worker, and change who takes part; a file of hot
// rows that does not fit.
#include "tests/support/test.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/rt_base.h"
#include "tests/support/process_case.h"
#include "tests/support/run_case.h"

#define FAE "dispatch.policy=fae"

static const char config[] =
    "{\"workers\": 4, \"batch\": {\"samples_per_worker\": 12},"
    " \"stream\": {\"format\": \"synthetic\", \"samples_max\": 2400,"
    "  \"synthetic\": {\"scale\": 0.001}},"
    " \"model\": {\"embedding_dim\": 4, \"mlp\": [8, 4]}, \"ps\": {\"shards\": 2},"
    " \"links\": {\"ps_gbps\": 2}, \"sim\": {\"warmup\": 0}, \"cache\": {\"rows\": 1400},"
    " \"timeouts\": {\"start_s\": 20, \"peer_s\": 3, \"rejoin_s\": 4}, \"restarts_max\": 3,"
    " \"checkpoint\": {\"keep\": 9}}";

static const char *const counts[] = {
    "\"miss_pull\":", "\"update_push\":", "\"evict_push\":", "\"grad_push\":", NULL};

// The setting that names a file of so many hot rows, which is made; static, until the fourth call.
static const char *hot(const char *rows)
{
    static char settings[4][600];
    static uint32_t next;
    char *setting = settings[next++ % 4];
    char name[32];
    process p = {0};
    snprintf(name, sizeof name, "hot-%s", rows);
    const char *path = run_path(name);
    snprintf(setting, sizeof settings[0], "dispatch.profile=%s", path);
    run_write("profiled.json", config, strlen(config));
    const char *const words[] = {
        "profile", run_path("profiled.json"), "--rows", rows, "--out", path, NULL};
    run_start(&p, words, (const char *const[]){"stream.samples_max=1000", NULL});
    run_must_end(&p, 0);
    process_fini(&p);
    return setting;
}

static void run(const char *out, const char *const *sets)
{
    run_up(config, out, NULL, sets);
}

// bagpipe gives the same samples to the same workers, and moves every row in another way: by its
// owner, or by sums of its trainers. Which rows are hot changes nothing either.
static void the_model_is_that_of_other_ways(void **state)
{
    (void)state;
    run("owned", (const char *const[]){"dispatch.policy=bagpipe", NULL});
    run("few", (const char *const[]){FAE, hot("20"), NULL});
    run("many", (const char *const[]){FAE, hot("1000"), "dispatch.first_touch=pull", NULL});
    run_must_have_one_model("few", "owned", 2);
    run_must_have_one_model("many", "owned", 2);
    assert_true(run_sum("many", "\"miss_pull\":") != run_sum("few", "\"miss_pull\":"));
    assert_true(run_sum("few", "\"grad_push\":") == run_sum("many", "\"grad_push\":"));
    assert_true(run_sum("many", "\"evict_push\":") + run_sum("many", "\"update_push\":") == 0);
}

// What the workers report is what the plans say: every number, summed up.
static void it_is_what_the_simulator_says(void **state)
{
    (void)state;
    const char *const ways[][5] = {{FAE, hot("300"), NULL},
                                   {FAE, hot("1000"), "optimizer.rows.name=adam", NULL},
                                   {FAE, hot("300"), "network.row_wire=int8", NULL}};
    for (size_t i = 0; i < RT_COUNT_OF(ways); i++) {
        run("run", ways[i]);
        run_must_be_simulated(config, "run", ways[i], counts);
    }
}

static void it_goes_on_from_a_checkpoint_as_if_nothing_had_been(void **state)
{
    (void)state;
    run_must_go_on_alike(
        config, 2, (const char *const[]){FAE, hot("1000"), "checkpoint.every_iterations=15", NULL});
}

// Who comes back lacks what has been trained meanwhile, and has it before long.
static void workers_sit_out_and_come_back(void **state)
{
    (void)state;
    const char *const all[] = {FAE, hot("1000"), NULL};
    const char *const some[] = {FAE, all[1], "dispatch.participants=rotate", "cache.rows=2600",
                                NULL};
    run("all", all);
    run("some", some);
    run_must_be_simulated(config, "some", some, counts);
    assert_true(run_sum("some", "\"miss_pull\":") > 0);
}

static void a_worker_is_lost_and_comes_back(void **state)
{
    (void)state;
    run_must_regain_a_worker(
        config, "lost",
        (const char *const[]){FAE, hot("300"), "cache.rows=1800", "stream.samples_max=100000000",
                              "on_worker_loss=shrink", "checkpoint.every_iterations=100", NULL});
}

// All processes begin again from the newest checkpoint: the model is that of a run in peace.
static void a_worker_is_killed_and_nothing_changes(void **state)
{
    (void)state;
    const char *const sets[] = {FAE,
                                hot("300"),
                                "stream.samples_max=12000",
                                "on_worker_loss=restart",
                                "checkpoint.every_iterations=20",
                                NULL};
    process p = {0};
    run("peace", sets);
    run_start_up(&p, config, "struck", NULL, sets);
    run_await_checkpoint(&p, "struck");
    assert_int_equal(kill(process_child(&p, "--rank 2"), SIGKILL), 0);
    process_await(&p, 0, "4 workers go on from the newest checkpoint", RUN_CASE_S);
    run_must_end(&p, 0);
    process_fini(&p);
    run_must_have_one_model("peace", "struck", 2);
}

// One sentence, from `up` as from `sim`: the key, the file, what was expected.
static void what_does_not_fit_is_named(void **state)
{
    const char *const file = hot("1000");
    const struct {
        const char *sets[3], *words;
    } cases[] = {
        {{FAE}, "dispatch.profile: empty, but dispatch.policy is \"fae\": expected a file of"},
        {{FAE, "dispatch.profile=/nowhere/hot"},
         "dispatch.profile, a file of `lanyard profile`: cannot open /nowhere/hot: No such file"},
        {{FAE, "dispatch.profile=/proc/version"},
         "dispatch.profile, a file of `lanyard profile`: /proc/version:1: not a file of"},
        {{FAE, file, "stream.synthetic.scale=0.002"}, "taken with another stream.synthetic"},
        {{FAE, file, "cache.rows=1311"},
         "has 1311 rows, expected at least 1312: 1000 hot rows (dispatch.profile), and 312 that one"},
        {{FAE, file, "consistency.staleness=0"}, "consistency.staleness: not with dispatch.policy"},
        {{FAE, file, "dispatch.reduce=true"}, "dispatch.reduce: not with dispatch.policy \"fae\""},
        {{FAE, file, "dispatch.hand_over=true"}, "dispatch.hand_over: not with dispatch.policy"},
        {{FAE, file, "dispatch.full_sync=true"}, "dispatch.full_sync: not with dispatch.policy"},
        {{FAE, file, "cache.eviction=emark"}, "expected \"auto\" or \"lru\""},
    };
    (void)state;
    for (size_t i = 0; i < 2 * RT_COUNT_OF(cases); i++) {
        process p;
        const char *const *s = cases[i / 2].sets;
        const char *const sets[] = {s[0], s[1] ? s[1] : s[0], s[2] ? s[2] : s[0], NULL};
        if (i % 2)
            run_start_up(&p, config, "never", NULL, sets);
        else
            run_start_config(&p, "sim", config, NULL, sets);
        run_must_end(&p, 1);
        run_must_say(&p, cases[i / 2].words);
        process_fini(&p);
    }
}

TEST_MAIN(TEST_SLOW(the_model_is_that_of_other_ways, 120),
          TEST_SLOW(it_is_what_the_simulator_says, 120),
          TEST_SLOW(it_goes_on_from_a_checkpoint_as_if_nothing_had_been, 120),
          TEST_SLOW(workers_sit_out_and_come_back, 120),
          TEST_SLOW(a_worker_is_lost_and_comes_back, 120),
          TEST_SLOW(a_worker_is_killed_and_nothing_changes, 120), TEST(what_does_not_fit_is_named))
