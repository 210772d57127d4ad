// stream.patience: training ends when the held-out samples say so, and the best model is saved,
// also by a run that goes on.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "runtime/rt_hash.h"
#include "tests/support/process_case.h"
#include "tests/support/run_case.h"
#include "tests/support/test.h"

#define ROWS 4000u
#define EPOCHS 12

// Every checkpoint has all rows and only the newest stays, but for the best one.
static const char config[] =
    "{\"workers\": 2, \"ps\": {\"shards\": 2}, \"batch\": {\"samples_per_worker\": 32},"
    " \"stream\": {\"format\": \"table\", \"holdout\": 0.2, \"epochs\": 12, \"table\": {"
    "  \"columns\": [{\"name\": \"u\", \"kind\": \"categorical\"},"
    "  {\"name\": \"i\", \"kind\": \"categorical\"}, {\"name\": \"y\", \"kind\": \"label\"}]}},"
    " \"model\": {\"embedding_dim\": 8, \"mlp\": [32]}, \"cache\": {\"rows\": 4000},"
    " \"optimizer\": {\"rows\": {\"learning_rate\": 0.2}, \"dense\": {\"learning_rate\": 0.05}},"
    " \"dispatch\": {\"measure_compute\": false}, \"checkpoint\": {\"keep\": 1, \"full_every\": 1},"
    " \"timeouts\": {\"start_s\": 20}}";

// The item says something; the user, who comes once or twice, says nothing: a model that learns
// users by heart is a worse one.
static const char *write_rows(void)
{
    static char set[400];
    rt_random random = {3};
    FILE *file = fopen(run_path("rows"), "w");
    assert_non_null(file);
    for (uint32_t n = 0; n < ROWS; n++) {
        const uint32_t item = rt_random_below(&random, 20),
                       user = rt_random_below(&random, ROWS / 2);
        const double p = item < 6 ? 0.7 : 0.15;
        fprintf(file, "u%u,i%u,%d\n", user, item, rt_random_unit(&random) < p);
    }
    assert_int_equal(fclose(file), 0);
    snprintf(set, sizeof set, "stream.files=%s", run_path("rows"));
    return set;
}

typedef struct {
    uint32_t count;      // judgements in the metrics of this process
    double best, newest; // log loss
    uint32_t since;      // the last record says
} judged;

static double number(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItem(object, name);
    if (!cJSON_IsNumber(item))
        fail_msg("no %s", name);
    return item->valuedouble;
}

static judged read_judged(const char *out)
{
    size_t size;
    judged j = {.best = NAN};
    char *text = run_file(out, "metrics.jsonl", &size), *rest = NULL;
    assert_non_null(text);
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        if (!strstr(line, "\"record\":\"holdout\""))
            continue;
        cJSON *record = cJSON_Parse(line);
        j.count++;
        j.newest = number(record, "logloss");
        j.best = number(record, "best_logloss");
        j.since = (uint32_t)number(record, "since_best");
        cJSON_Delete(record);
    }
    free(text);
    return j;
}

// What `lanyard up` found of the model that it saved.
static void saved_must_be(const char *out, double loss)
{
    size_t size;
    char *text = run_file(out, "summary.json", &size);
    cJSON *root = cJSON_Parse(text);
    const double saved = number(cJSON_GetObjectItem(root, "holdout"), "logloss");
    if (!(fabs(saved - loss) < 1e-6))
        fail_msg("the saved model has %.6f, the best judgement is %.6f", saved, loss);
    cJSON_Delete(root);
    free(text);
}

static void a_model_that_gets_worse_is_not_trained_on(void **state)
{
    (void)state;
    run_up(config, "out", NULL, (const char *const[]){write_rows(), "stream.patience=2", NULL});
    const judged j = read_judged("out");
    assert_true(j.count < EPOCHS);
    assert_int_equal(j.since, 2);
    assert_true(j.newest > j.best);
    saved_must_be("out", j.best);
}

static void a_model_that_gets_better_is(void **state)
{
    (void)state;
    run_up(config, "out", NULL,
           (const char *const[]){write_rows(), "stream.patience=1", "stream.epochs=4",
                                 "optimizer.rows.learning_rate=0.0005",
                                 "optimizer.dense.learning_rate=0.0005", NULL});
    const judged j = read_judged("out");
    assert_int_equal(j.count, 4);
    assert_int_equal(j.since, 0);
    saved_must_be("out", j.newest);
}

// It ends in the middle of an epoch. The judgements before count on.
static void a_run_that_goes_on_counts_on(void **state)
{
    (void)state;
    const char *rows = write_rows();
    run_up(config, "whole", NULL, (const char *const[]){rows, "stream.patience=3", NULL});
    const judged whole = read_judged("whole");
    run_up(config, "out", NULL,
           (const char *const[]){rows, "stream.patience=3", "sim.iterations=130", "sim.warmup=2",
                                 "checkpoint.at_end=true", NULL});
    const judged first = read_judged("out");
    assert_true(first.best == whole.best && first.since > 0 && first.count < whole.count);
    run_up(config, "out", "--resume", (const char *const[]){rows, "stream.patience=3", NULL});
    const judged both = read_judged("out");
    // The cut in the middle changes the order of sums.
    if (both.since != whole.since || fabs(both.best - whole.best) > 1e-4 ||
        fabs(both.newest - whole.newest) > 1e-3)
        fail_msg("%u judgements, then best %.6f, newest %.6f, %u since; in one run %.6f, %.6f, %u",
                 first.count, both.best, both.newest, both.since, whole.best, whole.newest,
                 whole.since);
    saved_must_be("out", both.best);
}

TEST_MAIN(TEST(a_model_that_gets_worse_is_not_trained_on), TEST(a_model_that_gets_better_is),
          TEST(a_run_that_goes_on_counts_on))
