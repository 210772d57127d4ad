// rows.admit in whole runs: the simulator and workers that plan make the same plans, a run goes on
// from a checkpoint with its counts, and whoever predicts gives keys without a row the same.
#include "tests/support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/rt_base.h"
#include "runtime/rt_hash.h"
#include "tests/support/process_case.h"
#include "tests/support/run_case.h"

static const char config[] =
    "{\"workers\": 3, \"batch\": {\"samples_per_worker\": 16},"
    " \"stream\": {\"format\": \"synthetic\", \"samples_max\": 4800,"
    "  \"synthetic\": {\"scale\": 0.001, \"drift\": 0.05}}, \"rows\": {\"admit\": 3},"
    " \"model\": {\"embedding_dim\": 4, \"mlp\": [8, 4]}, \"ps\": {\"shards\": 2},"
    " \"dispatch\": {\"measure_compute\": false}, \"sim\": {\"warmup\": 0},"
    " \"cache\": {\"rows\": 700}, \"timeouts\": {\"start_s\": 20}}";

static void the_simulator_stores_the_same_rows(void **state)
{
    (void)state;
    static const char *const sets[][5] = {
        {"dispatch.policy=esd", NULL},
        {"dispatch.policy=laia", "cache.lookahead=4", "rows.expire_iterations=24", NULL},
        {"dispatch.policy=esd", "rows.admit=2", NULL},
        {"dispatch.policy=makespan", NULL},
        {"consistency.staleness=3", "rows.expire_iterations=30", "rows.admit_bytes=4096", NULL},
        {"rows.admit=255", NULL}, // no key has a row at first
        {"rows.admit=1", "rows.admit_share=0.25", "dispatch.policy=laia", NULL},
    };
    for (size_t i = 0; i < RT_COUNT_OF(sets); i++) {
        run_up(config, "out", NULL, sets[i]);
        run_must_be_simulated(config, "out", sets[i], (const char *const[]){NULL});
    }
}

static void counts_are_part_of_a_checkpoint(void **state)
{
    (void)state;
    static const char *const whole[] = {"checkpoint.every_iterations=15", NULL};
    static const char *const first[] = {"checkpoint.every_iterations=15", "checkpoint.at_end=true",
                                        "stream.samples_max=2880", NULL};
    run_up(config, "whole", NULL, whole);
    run_up(config, "parts", NULL, first);
    run_up(config, "parts", "--resume", whole);
    run_must_be_the_same("parts", "whole", 2);
}

// Lines of Criteo's form, a good part of whose ids come once.
static void write_rows(const char *name, uint32_t count, uint32_t seed)
{
    rt_random random = {seed};
    FILE *file = fopen(run_path(name), "w");
    assert_non_null(file);
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t favourite = rt_random_below(&random, 5);
        fprintf(file, "%u", favourite + rt_random_below(&random, 3) > 3);
        for (uint32_t k = 0; k < 13; k++)
            fprintf(file, "\t%u", rt_random_below(&random, 40));
        fprintf(file, "\t%08x", favourite);
        for (uint32_t k = 1; k < 26; k++)
            fprintf(file, "\t%08x", rt_random_below(&random, k % 5 ? 7 : 3000));
        fputc('\n', file);
    }
    assert_int_equal(fclose(file), 0);
}

static const char criteo[] =
    "{\"workers\": 2, \"batch\": {\"samples_per_worker\": 32}, \"rows\": {\"admit\": 3},"
    " \"stream\": {\"format\": \"criteo\"}, \"model\": {\"embedding_dim\": 4, \"mlp\": [8]},"
    " \"cache\": {\"rows\": 3000}, \"timeouts\": {\"start_s\": 20}}";

static void predictions_agree(void **state)
{
    (void)state;
    static const char *const models[] = {"model.name=wdl", "model.name=dfm", "model.name=dcn",
                                         "model.name=dlrm"};
    char files[400], rows[300], out[300], model[300];
    process_need_numpy();
    write_rows("train.tsv", 3000, 1);
    write_rows("rows.tsv", 500, 2);
    snprintf(files, sizeof files, "stream.files=%s", run_path("train.tsv"));
    snprintf(rows, sizeof rows, "%s", run_path("rows.tsv"));
    snprintf(out, sizeof out, "%s", run_path("predictions.txt"));
    snprintf(model, sizeof model, "%s", run_path("out/model"));
    for (size_t m = 0; m < RT_COUNT_OF(models); m++) {
        const char *const sets[] = {files, models[m], "optimizer.rows.learning_rate=0.1",
                                    strstr(models[m], "dlrm") ? "model.mlp_bottom=[8]" : NULL,
                                    NULL};
        process p = {0};
        char test[400];
        run_up(criteo, "out", NULL, sets);
        snprintf(test, sizeof test, "stream.files=%s", rows);
        const char *const eval[] = {"eval", model, "--predictions", out, NULL};
        run_start(&p, eval, (const char *const[]){test, NULL});
        run_must_end(&p, 0);
        process_fini(&p);
        const char *const check[] = {
            "/usr/bin/python3", "tests/proc/check_predictions.py", model, rows, out, NULL};
        p = (process){0};
        if (process_run(&p, check, RUN_CASE_S) != 0)
            fail_msg("%s: %s", models[m], p.text);
        printf("%s", p.text);
        process_fini(&p);
    }
}

TEST_MAIN(TEST_SLOW(the_simulator_stores_the_same_rows, 120),
          TEST_SLOW(counts_are_part_of_a_checkpoint, 60), TEST_SLOW(predictions_agree, 120))
