// Runs that pause to measure their links.
#include "tests/support/test.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/rt_base.h"
#include "tests/support/run_case.h"

// One pause after the other until a run may make no more, beside checkpoints.
#define PROBES "links.pin=false", "links.probe_s=0.05"
#define MEASURED "\"record\":\"probe\""

static const char config[] =
    "{\"workers\": 3, \"batch\": {\"samples_per_worker\": 16}, \"ps\": {\"shards\": 2},"
    " \"stream\": {\"format\": \"synthetic\", \"samples_max\": 48000,"
    "  \"synthetic\": {\"scale\": 0.01, \"clusters\": 4}},"
    " \"model\": {\"embedding_dim\": 8, \"mlp\": [8, 4]}, \"cache\": {\"rows\": 2000},"
    " \"dispatch\": {\"policy\": \"random\", \"measure_compute\": false},"
    " \"checkpoint\": {\"every_iterations\": 40}}";

static void start(process *p, const char *out, const char *const *sets, size_t set_count)
{
    char file_name[300], folder[300];
    const char *arguments[32] = {process_lanyard(), "up", file_name, "--out", folder};
    snprintf(file_name, sizeof file_name, "%s/config.json", run_folder());
    snprintf(folder, sizeof folder, "%s/%s", run_folder(), out);
    FILE *file = fopen(file_name, "w");
    assert_non_null(file);
    assert_true(fputs(config, file) >= 0);
    assert_int_equal(fclose(file), 0);
    for (size_t i = 0, at = 5; i < set_count; i++) {
        arguments[at++] = "--set";
        arguments[at++] = sets[i];
    }
    *p = (process){0};
    process_start(p, arguments);
}

// Probes so far: all, and those that were made while training waited.
static uint32_t probes(const char *out, uint32_t *in_pauses)
{
    size_t size;
    uint32_t count = 0;
    char *metrics = run_file(out, "metrics.jsonl", &size), *rest = metrics;
    *in_pauses = 0;
    for (char *line; metrics && (line = strsep(&rest, "\n"));) {
        const bool is_probe = strstr(line, MEASURED) != NULL;
        count += is_probe;
        *in_pauses += is_probe && !strstr(line, "\"iteration\":0}");
    }
    free(metrics);
    return count;
}

// Placement is random, so the links change no plan: the model is that of a run without pauses.
static void pauses_change_nothing(void **state)
{
    (void)state;
    static const char *const sets[] = {PROBES};
    uint32_t in_pauses;
    process p;
    start(&p, "pinned", NULL, 0);
    run_must_end(&p, 0);
    process_fini(&p);
    start(&p, "measured", sets, 2);
    run_must_end(&p, 0);
    process_fini(&p);
    probes("measured", &in_pauses);
    assert_in_range(in_pauses, 3, 1000);
    assert_int_equal(probes("pinned", &in_pauses), 0);
    run_must_equal("pinned", "measured", "model/dense.bin");
    run_must_equal("pinned", "measured", "model/rows-000-of-002.bin");
    run_must_equal("pinned", "measured", "model/rows-001-of-002.bin");
    run_same_line("pinned", "measured", "\"stale_reads\": 0");
}

// Who is lost in a pause is noticed as ever, and the run goes on from its checkpoint; a stop ends
// the pause.
static void pauses_can_be_interrupted(void **state)
{
    (void)state;
    static const char *const victims[] = {"ps", "--rank 2", "coordinator"}; // 2: a worker
    static const char *const sets[] = {PROBES, "stream.samples_max=4800000",
                                       "on_worker_loss=restart"};
    uint32_t in_pauses;
    process p;
    start(&p, "lost", sets, RT_COUNT_OF(sets));
    run_await_records(&p, "lost", MEASURED, 5); // three workers join, then in pauses
    for (size_t i = 0; i < RT_COUNT_OF(victims); i++) {
        run_await_checkpoint(&p, "lost");
        assert_int_equal(kill(process_child(&p, victims[i]), SIGKILL), 0);
        run_await_records(&p, "lost", MEASURED, probes("lost", &in_pauses) + 5);
    }
    assert_int_equal(kill(p.pid, SIGINT), 0);
    run_must_end(&p, 0);
    process_fini(&p);
}

TEST_MAIN(TEST_SLOW(pauses_change_nothing, 120), TEST_SLOW(pauses_can_be_interrupted, 180))
