// What the guard does in a whole run: a stream that becomes harder does not freeze the version in
// force, which is held against the newest one by samples that both have not seen.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge_worker/predict/ew_recall.h"
#include "runtime/rt_hash.h"
#include "runtime/stream/rt_stream.h"
#include "tests/support/process_case.h"
#include "tests/support/run_case.h"
#include "tests/support/test.h"

#define EASY 20000u
#define HARD 12000u
#define BATCH 128u

static const char config[] =
    "{\"workers\": 2, \"ps\": {\"shards\": 2}, \"batch\": {\"samples_per_worker\": 64},"
    " \"stream\": {\"format\": \"table\", \"table\": {\"columns\": ["
    "  {\"name\": \"x\", \"kind\": \"dense\"}, {\"name\": \"i\", \"kind\": \"categorical\"},"
    "  {\"name\": \"y\", \"kind\": \"label\"}]}},"
    " \"model\": {\"name\": \"wdl\", \"deep_input\": \"all\", \"embedding_dim\": 4, \"mlp\": [16]},"
    " \"dispatch\": {\"measure_compute\": false}, \"cache\": {\"rows\": 600},"
    " \"checkpoint\": {\"every_iterations\": 20, \"full_every\": 3},"
    " \"publish\": {\"every_s\": 1000, \"keep\": 100, \"guard\": {\"samples\": 2000}},"
    " \"timeouts\": {\"start_s\": 20}}";

// At first the item says it all, then it says something.
static void write_stream(const char *name, uint32_t easy, uint32_t hard)
{
    rt_random random = {9};
    FILE *file = fopen(run_path(name), "w");
    assert_non_null(file);
    for (uint32_t n = 0; n < easy + hard; n++) {
        const uint32_t item = rt_random_below(&random, 50);
        const double p = item < 10 ? 0.7 : 0.1;
        const bool label = n < easy ? item < 10 : rt_random_unit(&random) < p;
        fprintf(file, "%.4f,i%u,%d\n", rt_random_unit(&random), item, label);
    }
    assert_int_equal(fclose(file), 0);
}

static const char *files(const char *name)
{
    static char texts[4][400];
    static uint32_t next;
    char *text = texts[next++ % 4];
    snprintf(text, sizeof texts[0], "stream.files=%s/%s", run_folder(), name);
    return text;
}

static uint32_t count(const char *text, const char *part)
{
    uint32_t found = 0;
    for (const char *at = text; (at = strstr(at, part)); at++)
        found++;
    return found;
}

static void a_harder_stream_freezes_nothing(void **state)
{
    (void)state;
    char want[64];
    size_t size;
    write_stream("rows", EASY, HARD);
    run_up(config, "out", NULL, (const char *const[]){files("rows"), NULL});
    char *current = run_file("out", "published/current.json", &size);
    char *records = run_file("out", "metrics.jsonl", &size);
    assert_non_null(current);
    assert_non_null(records);
    snprintf(want, sizeof want, "{\"iteration\":%u,\"pinned\":false}", (EASY + HARD) / BATCH);
    if (strncmp(current, want, strlen(want)) != 0)
        fail_msg("%s is in force, expected %s", current, want);
    assert_true(count(records, "\"compared\":") > 0); // the first look doubted
    assert_int_equal(count(records, "\"record\":\"publish\""),
                     count(records, "\"held\":false") + count(records, "\"early\":true"));
    free(current);
    free(records);
}

// What it recalls is what the model predicts, of a version of changes with few of its rows read.
static void a_version_is_recalled(void **state)
{
    (void)state;
    enum { ROWS = 700, FIRST = 100 };
    static float recalled[ROWS];
    char folder[600], words[600];
    process p;
    rt_config own;
    rt_stream *stream;
    rt_batch batch;
    rt_error error = {0};
    write_stream("rows", 6000, 0);
    write_stream("more", ROWS / 2, ROWS / 2);
    run_up(config, "out", NULL, (const char *const[]){files("rows"), NULL});
    snprintf(folder, sizeof folder, "%s/out/published/ckpt-000000000040", run_folder());
    snprintf(words, sizeof words, "%s/config.json", folder);
    assert_int_equal(rt_config_init(&own), RT_OK);
    assert_int_equal(rt_config_load(&own, words, &error), RT_OK);
    assert_int_equal(rt_config_set(&own, files("more"), &error), RT_OK);
    if (rt_stream_open(&own.stream, own.seed, &stream, &error))
        fail_msg("%s", error.text);
    rt_batch_init(&batch, 1);
    assert_int_equal(rt_stream_read(stream, &batch, ROWS, &error), RT_OK);
    assert_int_equal(batch.sample_count, ROWS);
    if (ew_recall(folder, &batch, FIRST, 1, recalled, &error))
        fail_msg("%s", error.text);
    run_start(&p, (const char *const[]){"predict", folder, "--out", run_path("said"), NULL},
              (const char *const[]){files("more"), NULL});
    run_must_end(&p, 0);
    process_fini(&p);
    FILE *said = fopen(run_path("said"), "r");
    assert_non_null(said);
    for (uint32_t i = 0; i < ROWS; i++) {
        double one;
        assert_int_equal(fscanf(said, "%lf", &one), 1);
        if (i >= FIRST)
            test_close((double)recalled[i - FIRST], one, 1e-5, 1, "what is recalled");
    }
    fclose(said);
    assert_int_equal(ew_recall(folder, &batch, 0, 2, recalled, &error), RT_CONFIG);
    assert_int_equal(ew_recall(run_path("nowhere"), &batch, 0, 1, recalled, &error), RT_NOT_FOUND);
    assert_int_equal(ew_recall(folder, &batch, ROWS, 1, recalled, &error), RT_OK); // none
    rt_batch_fini(&batch);
    rt_stream_close(stream);
    rt_config_fini(&own);
}

TEST_MAIN(TEST_SLOW(a_harder_stream_freezes_nothing, 120), TEST_SLOW(a_version_is_recalled, 120))
