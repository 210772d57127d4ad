// Labels that come later, in whole runs: what the model says against one that had all labels at
// once, a run that goes on, weights and negatives that are left out.
#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/rt_base.h"
#include "runtime/rt_hash.h"
#include "tests/support/process_case.h"
#include "tests/support/run_case.h"
#include "tests/support/test.h"

#define EVENTS 40000u

#define FEATURES                                                                                   \
    "{\"name\": \"u\", \"kind\": \"categorical\"}, {\"name\": \"i\", \"kind\": \"categorical\"}, " \
    "{\"name\": \"x\", \"kind\": \"dense\"}"
#define EVENT_COLUMNS                                                                          \
    "stream.table.columns=[{\"name\": \"id\", \"kind\": \"id\"}, {\"name\": \"t\", \"kind\": " \
    "\"time\"}, " FEATURES "]"
#define LABELLED_COLUMNS                                                                           \
    "stream.table.columns=[{\"name\": \"id\", \"kind\": \"ignore\"}, {\"name\": \"t\", \"kind\": " \
    "\"ignore\"}, " FEATURES ", {\"name\": \"y\", \"kind\": \"label\"}]"
#define WEIGHTED_COLUMNS                                                                           \
    "stream.table.columns=[{\"name\": \"id\", \"kind\": \"ignore\"}, {\"name\": \"t\", \"kind\": " \
    "\"ignore\"}, " FEATURES ", {\"name\": \"y\", \"kind\": \"label\"}, {\"name\": \"w\", "        \
    "\"kind\": \"weight\"}]"
#define JOIN                                                                                  \
    "stream.join.columns=[{\"name\": \"id\", \"kind\": \"id\"}, {\"name\": \"t\", \"kind\": " \
    "\"time\"}]"

static const char config[] =
    "{\"workers\": 2, \"batch\": {\"samples_per_worker\": 64}, \"stream\": {\"format\": \"table\"},"
    " \"model\": {\"embedding_dim\": 4, \"mlp\": [16, 8]},"
    " \"optimizer\": {\"rows\": {\"learning_rate\": 0.02}, \"dense\": {\"learning_rate\": 0.01}},"
    " \"dispatch\": {\"measure_compute\": false}, \"cache\": {\"rows\": 600},"
    " \"timeouts\": {\"start_s\": 20}}";

typedef struct {
    uint64_t time_s;
    uint32_t id;
} outcome;

static int by_time(const void *left, const void *right)
{
    const outcome *a = left, *b = right;
    return a->time_s < b->time_s ? -1 : a->time_s > b->time_s;
}

// One event a second; the label follows user and item; a label 1 comes after 300 s on average,
// exponentially distributed. What comes after the last event is not there yet: a model is judged in
// the middle of its stream.
static void write_inputs(void)
{
    static outcome outcomes[EVENTS];
    rt_random random = {21};
    uint32_t count = 0;
    FILE *events = run_create("events.csv"), *labelled = run_create("labelled.csv");
    FILE *weighted = run_create("weighted.csv"), *twice = run_create("twice.csv");
    for (uint32_t n = 0; n < EVENTS; n++) {
        const uint32_t u = rt_random_below(&random, 200), i = rt_random_below(&random, 100);
        const double z = -1.5 + 1.2 * (u % 3) + 0.8 * (i % 2);
        const bool label = rt_random_unit(&random) < 1 / (1 + exp(-z));
        const double delay_s = -300 * log(1 - rt_random_unit(&random));
        const uint32_t x = rt_random_below(&random, 10), w = rt_random_below(&random, 3);
        fprintf(events, "e%u,%u,u%u,i%u,%u\n", n, n + 1000, u, i, x);
        fprintf(labelled, "e%u,%u,u%u,i%u,%u,%d\n", n, n + 1000, u, i, x, label);
        fprintf(weighted, "e%u,%u,u%u,i%u,%u,%d,%u\n", n, n + 1000, u, i, x, label, w);
        for (uint32_t k = 0; k < w; k++)
            fprintf(twice, "e%u,%u,u%u,i%u,%u,%d\n", n, n + 1000, u, i, x, label);
        if (label && n + delay_s < EVENTS)
            outcomes[count++] = (outcome){n + 1000 + (uint64_t)delay_s, n};
    }
    qsort(outcomes, count, sizeof *outcomes, by_time);
    FILE *file = run_create("outcomes.csv");
    for (uint32_t n = 0; n < count; n++)
        fprintf(file, "e%u,%llu\n", outcomes[n].id, (unsigned long long)outcomes[n].time_s);
    FILE *all[] = {events, labelled, weighted, twice, file};
    for (size_t k = 0; k < RT_COUNT_OF(all); k++)
        assert_int_equal(fclose(all[k]), 0);
}

static void up(const char *out, const char *flag, const char *const *sets)
{
    run_up(config, out, flag, sets);
}

static const char *input(const char *key, const char *name)
{
    static char texts[4][400];
    static uint32_t next;
    char *text = texts[next++ % 4];
    snprintf(text, sizeof texts[0], "%s=%s/%s", key, run_folder(), name);
    return text;
}

// Events wait 200 s for their outcomes, and late ones correct them for 5,000 s; and more sets.
#define SETS_MAX 12
static const char *const *with_late(const char *const *more)
{
    static const char *sets[SETS_MAX + 1];
    const char *const all[] = {input("stream.files", "events.csv"),
                               EVENT_COLUMNS,
                               input("stream.join.outcomes", "outcomes.csv"),
                               JOIN,
                               "stream.join.window_s=200",
                               "stream.join.late=train",
                               "stream.join.late_s=5000",
                               "stream.join.at_end=keep"};
    size_t count = RT_COUNT_OF(all);
    memcpy(sets, all, sizeof all);
    for (; more && *more; more++) {
        assert_true(count < SETS_MAX);
        sets[count++] = *more;
    }
    sets[count] = NULL;
    return sets;
}

typedef struct {
    double loss, calibration;
} quality;

static double number(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    if (!cJSON_IsNumber(item))
        fail_msg("no number %s", name);
    return item->valuedouble;
}

// Of a run's model on all events with their labels.
static quality evaluate(const char *out)
{
    char model[64];
    process p;
    snprintf(model, sizeof model, "%s/model", out);
    const char *const sets[] = {input("stream.files", "labelled.csv"), LABELLED_COLUMNS,
                                "stream.join.outcomes=[]", NULL};
    run_start(&p, (const char *const[]){"eval", run_path(model), "--json", NULL}, sets);
    run_must_end(&p, 0);
    cJSON *json = cJSON_Parse(strchr(p.text, '{'));
    assert_non_null(json);
    const quality found = {number(json, "logloss"), number(json, "calibration")};
    cJSON_Delete(json);
    process_fini(&p);
    return found;
}

static double summary_number(const char *out, const char *section, const char *name)
{
    size_t size;
    char *text = run_file(out, "summary.json", &size);
    assert_non_null(text);
    cJSON *json = cJSON_Parse(text);
    const cJSON *object = section ? cJSON_GetObjectItemCaseSensitive(json, section) : json;
    assert_non_null(object);
    const double found = number(object, name);
    cJSON_Delete(json);
    free(text);
    return found;
}

// Who asks a model has no outcomes to wait for: an answer for every event, at once.
static void must_predict(const char *out, uint32_t count)
{
    char model[64];
    process p;
    size_t size, lines = 0;
    snprintf(model, sizeof model, "%s/model", out);
    const char *const sets[] = {input("stream.files", "events.csv"), NULL};
    run_start(
        &p, (const char *const[]){"predict", run_path(model), "--out", run_path("predicted"), NULL},
        sets);
    run_must_end(&p, 0);
    process_fini(&p);
    char *text = run_file(".", "predicted", &size);
    assert_non_null(text);
    for (size_t i = 0; i < size; i++)
        lines += text[i] == '\n';
    free(text);
    assert_int_equal(lines, count);
}

static void near(double got, double wanted, double share, const char *what)
{
    if (!(fabs(got / wanted - 1) <= share))
        fail_msg("%s: %g, expected %g within %g%%", what, got, wanted, 100 * share);
}

// ---- cases -------------------------------------------------------------------------------------

// Half of the outcomes come after the window. Trained late, the model is that of all labels.
static void late_labels_are_as_good_as_labels(void **state)
{
    (void)state;
    write_inputs();
    up("oracle", NULL,
       (const char *const[]){input("stream.files", "labelled.csv"), LABELLED_COLUMNS, NULL});
    up("late", NULL, with_late(NULL));
    const quality oracle = evaluate("oracle"), late = evaluate("late");
    near(late.calibration, oracle.calibration, 0.02, "calibration of late labels");
    near(late.loss, oracle.loss, 0.02, "log loss of late labels");
    const double corrected = summary_number("late", "join", "late");
    assert_true(corrected > 6000 && corrected < 14000);
    assert_true(summary_number("late", NULL, "samples") ==
                EVENTS - summary_number("late", "join", "waiting") + corrected);
    // The metrics of the run count what was taken back.
    near(summary_number("late", NULL, "logloss"), summary_number("oracle", NULL, "logloss"), 0.05,
         "log loss while training");
    must_predict("late", EVENTS);
    up("drop", NULL, with_late((const char *const[]){"stream.join.late=drop", NULL}));
    assert_true(evaluate("drop").calibration < 0.7); // that is what it is about
}

static void negatives_left_out_are_made_up_for(void **state)
{
    (void)state;
    write_inputs();
    up("oracle", NULL,
       (const char *const[]){input("stream.files", "labelled.csv"), LABELLED_COLUMNS, NULL});
    up("some", NULL,
       (const char *const[]){input("stream.files", "labelled.csv"), LABELLED_COLUMNS,
                             "stream.negatives_keep=0.25", NULL});
    const quality oracle = evaluate("oracle"), some = evaluate("some");
    near(some.calibration, oracle.calibration, 0.03, "calibration");
    near(some.loss, oracle.loss, 0.05, "log loss"); // of a model that saw fewer samples
    assert_true(summary_number("some", NULL, "negatives_left_out") > 10000);
    near(summary_number("some", NULL, "logloss"), summary_number("oracle", NULL, "logloss"), 0.06,
         "log loss while training"); // likewise
    // Late labels as well, of events that were trained as 0 or left out.
    up("both", NULL, with_late((const char *const[]){"stream.negatives_keep=0.5", NULL}));
    near(evaluate("both").calibration, oracle.calibration, 0.03, "calibration of both");
}

// Weights of 0, 1 and 2 against samples that stand there so often.
static void weights_are_repetitions(void **state)
{
    (void)state;
    write_inputs();
    up("weighted", NULL,
       (const char *const[]){input("stream.files", "weighted.csv"), WEIGHTED_COLUMNS, NULL});
    up("twice", NULL,
       (const char *const[]){input("stream.files", "twice.csv"), LABELLED_COLUMNS, NULL});
    const quality weighted = evaluate("weighted"), twice = evaluate("twice");
    near(weighted.loss, twice.loss, 0.02, "log loss");
    near(weighted.calibration, twice.calibration, 0.02, "calibration");
    near(summary_number("weighted", NULL, "logloss"), summary_number("twice", NULL, "logloss"),
         0.02, "log loss while training");
}

// The reader is ahead of the checkpoint that the run goes on from.
static void a_run_goes_on_with_what_waits(void **state)
{
    (void)state;
    write_inputs();
    const char *sets[] = {"checkpoint.every_iterations=50", NULL, NULL};
    up("calm", NULL, with_late(sets));
    sets[1] = "stream.samples_max=14720"; // 115 batches: the checkpoint is of iteration 100
    up("again", NULL, with_late(sets));
    sets[1] = NULL;
    up("again", "--resume", with_late(sets));
    run_must_be_the_same("calm", "again", 1);
    run_same_line("calm", "again", "samples");
    assert_true(summary_number("calm", "join", "late") == summary_number("again", "join", "late"));
}

TEST_MAIN(TEST_SLOW(late_labels_are_as_good_as_labels, 120),
          TEST_SLOW(negatives_left_out_are_made_up_for, 120),
          TEST_SLOW(weights_are_repetitions, 120), TEST_SLOW(a_run_goes_on_with_what_waits, 120))
