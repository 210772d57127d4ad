// Boxes with worker and shard, and rows whose homes are planned: real processes against the
// simulator, against a run that goes on from a checkpoint, with other numbers of shards, and with
// homes that are hashed again.
#include "tests/support/test.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/rt_base.h"
#include "tests/support/process_case.h"
#include "tests/support/run_case.h"

#define CONFIG(first, third)                                                 \
    "{\"boxes\": [{\"name\": \"a\", \"gbps\": 0.5, \"shards\": " first "},"  \
    " {\"name\": \"b\", \"gbps\": 0.5, \"shards\": 1},"                      \
    " {\"name\": \"c\", \"gbps\": 0.5, \"shards\": " third "}],"             \
    " \"batch\": {\"samples_per_worker\": 32},"                              \
    " \"stream\": {\"format\": \"synthetic\", \"samples_max\": 5760,"        \
    "  \"synthetic\": {\"scale\": 0.001}},"                                  \
    " \"model\": {\"embedding_dim\": 4, \"mlp\": [8, 4]},"                   \
    " \"ps\": {\"homes\": \"planned\"}, \"sim\": {\"warmup\": 0},"           \
    " \"dispatch\": {\"policy\": \"makespan\", \"measure_compute\": false}," \
    " \"cache\": {\"rows\": 1200}, \"timeouts\": {\"start_s\": 20},"         \
    " \"checkpoint\": {\"every_iterations\": 10, \"keep\": 9}}"

static const char config[] = CONFIG("1", "1");

static void run(const char *text, const char *out, const char *flag, const char *set)
{
    run_up(text, out, flag, (const char *const[]){set, NULL});
}

static void plans_are_those_of_the_simulator(void **state)
{
    (void)state;
    const char *const none[] = {NULL};
    run(config, "out", NULL, "checkpoint.every_iterations=0"); // whose flushes change plans
    run_must_be_simulated(config, "out", none, none);
}

static void a_run_goes_on_as_if_nothing_had_been(void **state)
{
    (void)state;
    run_must_go_on_alike(config, 3, (const char *const[]){NULL});
}

// Of a file of changes: keys that have left its shard.
static uint32_t left_in(const char *out, const char *name)
{
    size_t size;
    uint32_t words[3]; // base, floor, keys that have left
    char *bytes = run_file(out, name, &size);
    assert_true(size > 72);
    memcpy(words, bytes + 60, sizeof words);
    free(bytes);
    return words[0] ? words[2] : 0;
}

// Changes build on each other; who reads them finds a row where it is now, and nowhere else.
static void changes_name_what_has_left(void **state)
{
    process p;
    (void)state;
    run(config, "at_end", NULL, "checkpoint.at_end=true");
    run_start(
        &p,
        (const char *const[]){"export", run_path("at_end"), "--out", run_path("exported"), NULL},
        NULL);
    run_must_end(&p, 0);
    process_fini(&p);
    for (uint32_t s = 0; s < 3; s++) {
        char rows[64], model[64];
        size_t size, model_size;
        snprintf(rows, sizeof rows, "checkpoints/ckpt-000000000060/rows-%03" PRIu32 "-of-003.bin",
                 s);
        assert_true(left_in("at_end", rows) > 0);
        snprintf(rows, sizeof rows, "rows-%03" PRIu32 "-of-003.bin", s);
        snprintf(model, sizeof model, "model/%s", rows);
        char *one = run_file("exported", rows, &size);
        char *other = run_file("at_end", model, &model_size);
        assert_int_equal(size, model_size);
        assert_memory_equal(one, other, size);
        free(one);
        free(other);
    }
}

// No row is lost, whoever holds it: the model knows every key of what it was trained on.
static void other_shards_and_hashed_homes(void **state)
{
    (void)state;
    const struct {
        const char *text, *set;
    } others[] = {{CONFIG("1", "0"), NULL}, {CONFIG("2", "1"), NULL}, {config, "ps.homes=hashed"}};
    run(config, "out", NULL, NULL);
    for (uint32_t i = 0; i < RT_COUNT_OF(others); i++) {
        process p;
        run_lose_the_end("out");
        run(others[i].text, "out", "--resume", others[i].set);
        run_start(&p, (const char *const[]){"eval", run_path("out/model"), NULL}, NULL);
        run_must_end(&p, 0);
        run_must_say(&p, "0.0% of look-ups are unknown keys");
        process_fini(&p);
    }
}

// One box with worker and shard takes part: the dense part is that of a run of one worker. Who is
// asked for it at a cut and at the end gets it of the shards.
static void one_trains_alone(void **state)
{
    (void)state;
    static const char one[] = "{\"workers\": 1, \"batch\": {\"samples_per_worker\": 96},"
                              " \"stream\": {\"format\": \"synthetic\", \"samples_max\": 5760,"
                              "  \"synthetic\": {\"scale\": 0.001}},"
                              " \"model\": {\"embedding_dim\": 4, \"mlp\": [8, 4]},"
                              " \"cache\": {\"rows\": 3000}, \"timeouts\": {\"start_s\": 20}}";
    const char *const alone[] = {"dispatch.participants=[1]", "cache.rows=3000", NULL};
    run_up(one, "one", NULL, (const char *const[]){NULL});
    run_up(config, "alone", NULL, alone);
    run_must_equal("one", "alone", "model/dense.bin");
    run_up(config, "again", NULL, alone);
    run_lose_the_end("again");
    run_up(config, "again", "--resume", alone);
    run_must_be_the_same("alone", "again", 3);
    const char *const short_wire[] = {alone[0], alone[1], "network.dense_wire=bf16",
                                      "checkpoint.every_iterations=0", NULL};
    run_up(config, "bf16", NULL, short_wire); // nothing is on the wire
    run_must_equal("one", "bf16", "model/dense.bin");
    run_must_be_simulated(config, "bf16", short_wire, (const char *const[]){NULL});
}

TEST_MAIN(TEST_SLOW(plans_are_those_of_the_simulator, 120),
          TEST_SLOW(a_run_goes_on_as_if_nothing_had_been, 180),
          TEST_SLOW(changes_name_what_has_left, 120), TEST_SLOW(one_trains_alone, 180),
          TEST_SLOW(other_shards_and_hashed_homes, 240))
