// Rows that end, in whole runs: the simulator makes the same plans, a run goes on from checkpoints
// as if nothing had been, and a table that does not fit its memory no longer ends a run.
#include "tests/support/test.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ps_lite/ps_model_file.h"
#include "tests/support/process_case.h"
#include "tests/support/run_case.h"

// Ids drift, so that rows become old; small caches, so that some are cached when they end.
static const char config[] =
    "{\"workers\": 3, \"batch\": {\"samples_per_worker\": 16},"
    " \"stream\": {\"format\": \"synthetic\", \"samples_max\": 4800,"
    "  \"synthetic\": {\"scale\": 0.001, \"drift\": 0.05}},"
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

static uint32_t count_sweeps(const char *out)
{
    size_t size;
    uint32_t count = 0;
    char *metrics = run_file(out, "metrics.jsonl", &size);
    assert_non_null(metrics);
    for (const char *at = metrics; (at = strstr(at, "\"record\":\"sweep\"")); at++)
        count++;
    free(metrics);
    return count;
}

static void the_simulator_ends_the_same_rows(void **state)
{
    (void)state;
    static const char *const sets[][4] = {
        {"rows.expire_iterations=24", NULL},
        {"rows.max=2500", "dispatch.policy=laia", NULL},
        {"rows.max=2500", "rows.expire_iterations=30", NULL},
    };
    for (size_t i = 0; i < RT_COUNT_OF(sets); i++) {
        run("out", sets[i]);
        assert_true(count_sweeps("out") > 3);
        run_must_be_simulated(config, "out", sets[i], (const char *const[]){NULL});
    }
}

// From a checkpoint that only has what changed since others, with sweeps between them: what ended
// in between must not come back with an older file, or the keys would not be those of the planner.
static void a_run_in_two_parts(void **state)
{
    (void)state;
    process p;
    static const char *const whole[] = {"rows.expire_iterations=16", // a cut is part of the plans
                                        "checkpoint.every_iterations=15", "checkpoint.full_every=9",
                                        NULL};
    static const char *const first[] = {
        "rows.expire_iterations=16", "checkpoint.every_iterations=15", "checkpoint.full_every=9",
        "checkpoint.at_end=true",    "stream.samples_max=2880",        NULL};
    static const char *const second[] = {"--resume", "rows.expire_iterations=16",
                                         "checkpoint.every_iterations=15",
                                         "checkpoint.full_every=9", NULL};
    run("whole", whole);
    run("parts", first);
    start(&p, "up", "parts", second);
    run_must_end(&p, 0);
    run_must_say(&p, "going on after iteration 60, 2880 samples (caches as they were)");
    process_fini(&p);
    run_must_be_the_same("parts", "whole", 2);
    assert_true(count_sweeps("whole") > 20);
}

static uint64_t rows_in_model(const char *out)
{
    uint64_t rows = 0;
    for (uint32_t s = 0; s < 2; s++) {
        char path[600];
        ps_model_info info;
        ps_model_reader *reader;
        snprintf(path, sizeof path, "%s/%s/model/rows-%03u-of-002.bin", run_folder(), out, s);
        assert_int_equal(ps_model_reader_open(path, NULL, NULL, &info, &reader, NULL), RT_OK);
        rows += info.row_count;
        ps_model_reader_close(reader);
    }
    return rows;
}

static void memory_does_not_end_a_run(void **state)
{
    (void)state;
    // 32 values a row: two shards of a megabyte hold less than a third of the rows.
    static const char *const sets[] = {
        "ps.memory_bytes_max=1048576", "model.embedding_dim=16", "stream.synthetic.scale=0.01",
        "stream.samples_max=24000",    "cache.rows=1500",        NULL};
    static const char *const free_sets[] = {"model.embedding_dim=16", "stream.synthetic.scale=0.01",
                                            "stream.samples_max=24000", "cache.rows=1500", NULL};
    run("tight", sets);
    run("free", free_sets);
    assert_true(count_sweeps("tight") > 0 && count_sweeps("free") == 0);
    assert_true(3 * rows_in_model("tight") < rows_in_model("free"));
    assert_true(rows_in_model("tight") > 4000);
}

static void time_ends_rows(void **state)
{
    (void)state;
    process p;
    static const char *const sets[] = {"rows.expire_s=0.2", "stream.samples_max=60000", NULL};
    run("out", sets);
    assert_true(count_sweeps("out") > 0);
    const char *const words[] = {"sim",       run_path("config.json"),       "--json",
                                 "--records", run_path("out/records.jsonl"), NULL};
    run_start(&p, words, sets + 1); // what ends when is in the records
    run_must_end(&p, 0);
    run_must_have_planned("out", p.text);
    process_fini(&p);
}

TEST_MAIN(TEST(the_simulator_ends_the_same_rows), TEST(a_run_in_two_parts),
          TEST(memory_does_not_end_a_run), TEST(time_ends_rows))
