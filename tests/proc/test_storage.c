// Rows on disk, in whole runs: the same model bit for bit as with rows in memory, while checkpoints
// are written, rows end, and after a shard was killed.
#include "tests/support/test.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/process_case.h"
#include "tests/support/run_case.h"

// Ids drift, so rows are made and end all the time; a checkpoint every few iterations.
static const char config[] =
    "{\"workers\": 3, \"batch\": {\"samples_per_worker\": 16},"
    " \"stream\": {\"format\": \"synthetic\", \"samples_max\": 9600,"
    "  \"synthetic\": {\"scale\": 0.001, \"drift\": 0.05}},"
    " \"model\": {\"embedding_dim\": 4, \"mlp\": [8, 4]}, \"ps\": {\"shards\": 2},"
    " \"dispatch\": {\"measure_compute\": false}, \"cache\": {\"rows\": 700},"
    " \"checkpoint\": {\"every_iterations\": 9, \"full_every\": 3}, \"timeouts\": {\"start_s\": "
    "20}}";

static char folder_set[512]; // "ps.folder=..."

static void in_memory_and_on_disk(const char *more)
{
    snprintf(folder_set, sizeof folder_set, "ps.folder=%s", run_folder());
    const char *const memory[] = {"ps.storage=memory", more, NULL};
    const char *const disk[] = {"ps.storage=disk", folder_set, more, NULL};
    run_up(config, "memory", NULL, memory);
    run_up(config, "disk", NULL, disk);
    run_must_be_the_same("memory", "disk", 2);
}

static void the_model_is_the_same(void **state)
{
    (void)state;
    in_memory_and_on_disk(NULL);
}

static void rows_end_there_too(void **state)
{
    (void)state;
    in_memory_and_on_disk("rows.expire_iterations=30");
}

// Changes are added in place, and each row has its number of pulls behind it.
static void stale_copies(void **state)
{
    (void)state;
    in_memory_and_on_disk("consistency.staleness=5");
}

// A run that is killed goes on from its checkpoint, from memory to disk and back.
static void goes_on_from_a_checkpoint(void **state)
{
    (void)state;
    snprintf(folder_set, sizeof folder_set, "ps.folder=%s", run_folder());
    const char *const memory[] = {"ps.storage=memory", NULL};
    const char *const disk[] = {"ps.storage=disk", folder_set, NULL};
    run_up(config, "whole", NULL, memory);
    process p;
    run_start_up(&p, config, "killed", NULL, disk);
    run_await_checkpoint(&p, "killed");
    assert_int_equal(kill(process_child(&p, "ps"), SIGKILL), 0); // the run ends with it
    process_end(&p, RUN_CASE_S);
    process_fini(&p);
    run_up(config, "killed", "--resume", disk);
    run_must_be_the_same("whole", "killed", 2);
}

static void a_folder_that_is_not_there(void **state)
{
    (void)state;
    const char *const sets[] = {"ps.storage=disk", "ps.folder=/nowhere/at/all", NULL};
    process p;
    run_start_up(&p, config, "out", NULL, sets);
    run_must_end(&p, 1);
    run_must_say(&p, "ps.folder: /nowhere/at/all: cannot make a file for rows: No such file or "
                     "directory");
    process_fini(&p);
}

TEST_MAIN(TEST(the_model_is_the_same), TEST(rows_end_there_too), TEST(stale_copies),
          TEST(goes_on_from_a_checkpoint), TEST(a_folder_that_is_not_there))
