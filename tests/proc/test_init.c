// Runs that begin with a finished model: they predict what it does before anything is trained, with
// other workers, shards and caches, and with more fields; go on as it would have; and refuse by
// name what cannot fit.
#include "tests/support/test.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/rt_base.h"
#include "runtime/rt_hash.h"
#include "tests/support/process_case.h"
#include "tests/support/run_case.h"

#define ROWS_MAX 4000u

// Plans do not hang on times; one worker adds up in one order.
#define BASE                                                                               \
    "\"batch\": {\"samples_per_worker\": 64}, \"dispatch\": {\"measure_compute\": false}," \
    " \"cache\": {\"rows\": 3000}, \"timeouts\": {\"start_s\": 20},"                       \
    " \"optimizer\": {\"rows\": {\"name\": \"adagrad\", \"learning_rate\": 0.1},"          \
    "                 \"dense\": {\"name\": \"sgd\", \"learning_rate\": 0.1}},"

#define COLUMNS                                                                                    \
    "{\"name\": \"label\", \"kind\": \"label\"}, {\"name\": \"d\", \"kind\": \"dense\"},"          \
    " {\"name\": \"a\", \"kind\": \"categorical\"}, {\"name\": \"b\", \"kind\": \"categorical\"}," \
    " {\"name\": \"c\", \"kind\": \"categorical\"}"
#define TABLE(columns)                                                                          \
    " \"stream\": {\"format\": \"table\", \"table\": {\"header\": true, \"columns\": [" columns \
    "]}}"

static const char config[] = "{\"workers\": 1, " BASE TABLE(
    COLUMNS) ", \"model\": {\"embedding_dim\": 8, \"mlp\": [16, 8]}}";
// One field more, behind those that there were.
static const char wider[] = "{\"workers\": 1, " BASE TABLE(
    COLUMNS ", {\"name\": \"e\", \"kind\": \"categorical\"}, {\"name\": \"f\", \"kind\": "
            "\"categorical\"}") ", \"model\": {\"embedding_dim\": 8, \"mlp\": [16, 8]}}";

// One label more, of which some are absent.
static const char labelled[] =
    "{\"workers\": 1, " BASE TABLE(COLUMNS ", {\"name\": \"e\", \"kind\": \"label\", \"value\": "
                                           "\"e1\"}") ", \"model\": {\"embedding_dim\": 8, "
                                                      "\"mlp\": [16, 8]}}";

// Rows of a table, from a number on; every key comes again and again.
static void write_rows(const char *name, uint64_t first, uint32_t count)
{
    FILE *file = fopen(run_path(name), "w");
    assert_non_null(file);
    fputs("label,d,a,b,c,e,f\n", file);
    for (uint64_t i = first; i < first + count; i++) {
        const uint64_t a = rt_mix(i) % 50, b = rt_mix(i + 77777) % 400, c = rt_mix(i * 3) % 20;
        const uint64_t label = rt_mix(a * 31 + c) % 100 < 20 + b % 60;
        fprintf(file, "%d,%d.5,a%d,b%d,c%d,e%d,f%d\n", (int)label, (int)(rt_mix(i + 5) % 9), (int)a,
                (int)b, (int)c, (int)(a % 7), (int)(b % 5));
    }
    assert_int_equal(fclose(file), 0);
}

static const char *files_of(const char *name)
{
    static char texts[4][500];
    static unsigned next;
    char *text = texts[next++ % 4];
    snprintf(text, sizeof texts[0], "stream.files=%s", run_path(name));
    return text;
}

// lanyard up CONFIG --out OUT --init MODEL/model
static void start_with(process *p, const char *text, const char *out, const char *model,
                       const char *const *sets)
{
    char folder[500];
    snprintf(folder, sizeof folder, "%s/model", run_path(model));
    run_write("config.json", text, strlen(text));
    run_start(p,
              (const char *const[]){"up", run_path("config.json"), "--out", run_path(out), "--init",
                                    folder, NULL},
              sets);
}

static void begin_with(const char *text, const char *out, const char *model,
                       const char *const *sets)
{
    process p;
    start_with(&p, text, out, model, sets);
    run_must_end(&p, 0);
    run_must_say(&p, "begins with the model");
    process_fini(&p);
}

static uint32_t predict(const char *out, const char *rows, double values[ROWS_MAX])
{
    process p;
    char folder[500];
    uint32_t count = 0;
    snprintf(folder, sizeof folder, "%s/model", run_path(out));
    run_start(&p, (const char *const[]){"predict", folder, "--out", run_path("predicted"), NULL},
              (const char *const[]){files_of(rows), NULL});
    run_must_end(&p, 0);
    process_fini(&p);
    FILE *file = fopen(run_path("predicted"), "r");
    assert_non_null(file);
    while (count < ROWS_MAX && fscanf(file, "%lf", &values[count]) == 1)
        count++;
    fclose(file);
    return count;
}

static void must_predict_alike(const char *out, const char *other, double bound)
{
    static double values[ROWS_MAX], others[ROWS_MAX];
    double low = 1, high = 0;
    const uint32_t count = predict(out, "rows", values);
    assert_int_equal(predict(other, "rows", others), count);
    assert_true(count > 500);
    for (uint32_t i = 0; i < count; i++) {
        if (!(fabs(values[i] - others[i]) <= bound))
            fail_msg("row %u: %g, expected %g", i, values[i], others[i]);
        low = fmin(low, others[i]);
        high = fmax(high, others[i]);
    }
    assert_true(high - low > 0.1); // they are not all the same
}

static void make_model(const char *text, const char *out, const char *const *sets)
{
    write_rows("first", 0, 6000);
    write_rows("second", 6000, 3000);
    write_rows("rows", 9000, 800);
    run_write("nothing", "label,d,a,b,c,e,f\n", strlen("label,d,a,b,c,e,f\n"));
    run_up(text, out, NULL, sets);
}

static double number_of(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    if (!at)
        fail_msg("no %s in: %.300s", name, text);
    return strtod(at + strlen(name), NULL);
}

// ---- what it begins with -----------------------------------------------------------------------

static void no_batches_change_nothing(void **state)
{
    (void)state;
    make_model(config, "model", (const char *const[]){files_of("first"), NULL});
    begin_with(config, "same", "model", (const char *const[]){files_of("nothing"), NULL});
    must_predict_alike("same", "model", 1e-7);
    run_must_equal("same", "model", "model/dense.bin");
    run_must_equal("same", "model", "model/scale.bin");
    begin_with(config, "other", "model",
               (const char *const[]){files_of("nothing"), "workers=3", "ps.shards=2",
                                     "cache.rows=900", NULL});
    must_predict_alike("other", "model", 1e-7);
    begin_with(config, "back", "other", (const char *const[]){files_of("nothing"), NULL});
    must_predict_alike("back", "model", 1e-7);
    run_must_equal("back", "model", "model/scale.bin");
}

// The first batch is predicted before it is trained: by the model. As dense features stay as they
// are, to the last bits.
static void the_first_batch_is_the_models(void **state)
{
    process p;
    char folder[500], head[4096];
    size_t size;
    (void)state;
    make_model(config, "model",
               (const char *const[]){files_of("first"), "stream.dense_scaling=none", NULL});
    begin_with(config, "on", "model",
               (const char *const[]){files_of("second"), "stream.dense_scaling=none", "workers=2",
                                     "ps.shards=2", NULL});
    FILE *in = fopen(run_path("second"), "r"), *out = fopen(run_path("batch"), "w");
    for (uint32_t i = 0; i <= 128; i++) // with the header
        assert_true(fgets(head, sizeof head, in) && fputs(head, out) >= 0);
    fclose(in);
    assert_int_equal(fclose(out), 0);
    snprintf(folder, sizeof folder, "%s/model", run_path("model"));
    run_start(&p, (const char *const[]){"eval", folder, "--json", NULL},
              (const char *const[]){files_of("batch"), NULL});
    run_must_end(&p, 0);
    const double want = number_of(p.text, "\"logloss\":");
    process_fini(&p);
    char *metrics = run_file("on", "metrics.jsonl", &size);
    assert_non_null(metrics);
    const double got = number_of(metrics, "\"log_loss\":");
    free(metrics);
    test_close(got, want, 1e-6, 1e-3, "log loss of the first batch");
}

// Two halves, the second from the model of the first: what one run gives that goes on from its
// checkpoint. Rows have a state, which comes along.
static void goes_on_as_the_run_would(void **state)
{
    (void)state;
    make_model(config, "model",
               (const char *const[]){files_of("first"), "checkpoint.at_end=true", NULL});
    begin_with(config, "begun", "model",
               (const char *const[]){files_of("second"), "cache.rows=900", "ps.shards=2", NULL});
    char both[900];
    snprintf(both, sizeof both, "stream.files=[\"%s\",\"%s\"]", run_path("first"),
             run_path("second"));
    run_up(config, "model", "--resume", (const char *const[]){both, NULL});
    must_predict_alike("begun", "model", 1e-5);
}

// A run that began with a model goes on from its own checkpoint: what it has not touched by then is
// the model's all the same.
static void goes_on_from_a_checkpoint(void **state)
{
    char both[900];
    (void)state;
    make_model(config, "model", (const char *const[]){files_of("first"), NULL});
    write_rows("little", 6000, 128);
    snprintf(both, sizeof both, "stream.files=[\"%s\",\"%s\"]", run_path("little"),
             run_path("second"));
    begin_with(config, "whole", "model", (const char *const[]){both, NULL});
    begin_with(config, "parts", "model",
               (const char *const[]){files_of("little"), "checkpoint.at_end=true", NULL});
    run_up(config, "parts", "--resume", (const char *const[]){both, NULL});
    must_predict_alike("parts", "whole", 1e-6);
}

// Checkpoints have all that the model has: once there is one, a run that goes on after a loss does
// not look at the model's files, which may be gone by then.
static void needs_the_model_once(void **state)
{
    process p;
    char gone[500];
    (void)state;
    make_model(config, "model", (const char *const[]){files_of("first"), NULL});
    start_with(&p, config, "begun", "model",
               (const char *const[]){files_of("second"), "stream.source=follow",
                                     "on_worker_loss=restart", "checkpoint.every_iterations=5",
                                     NULL});
    run_await_checkpoint(&p, "begun");
    snprintf(gone, sizeof gone, "%s", run_path("gone"));
    assert_int_equal(rename(run_path("model"), gone), 0);
    assert_int_equal(kill(process_worker(&p, 0), SIGKILL), 0);
    process_await(&p, 0, "going on after iteration", RUN_CASE_S);
    assert_int_equal(kill(p.pid, SIGINT), 0);
    run_must_end(&p, 0);
    process_fini(&p);
}

// A label behind the model's: its own is predicted as before, of the other nothing is known. And a
// run of two labels that was interrupted is as one that was not.
static void more_labels(void **state)
{
    static double values[ROWS_MAX], others[ROWS_MAX];
    char both[900];
    process p;
    size_t size;
    (void)state;
    make_model(config, "model", (const char *const[]){files_of("first"), NULL});
    begin_with(labelled, "two", "model", (const char *const[]){files_of("nothing"), NULL});
    const uint32_t count = predict("model", "rows", values);
    assert_int_equal(predict("two", "rows", others), 2 * count);
    for (uint32_t i = 0; i < count; i++) {
        test_close(others[2 * i], values[i], 1e-7, 1, "the label of the model");
        assert_true(others[2 * i + 1] == 0.5);
    }
    write_rows("little", 6000, 128); // two batches
    snprintf(both, sizeof both, "stream.files=[\"%s\",\"%s\"]", run_path("little"),
             run_path("second"));
    begin_with(labelled, "whole", "two", (const char *const[]){both, NULL});
    begin_with(labelled, "parts", "two",
               (const char *const[]){files_of("little"), "checkpoint.at_end=true", NULL});
    run_up(labelled, "parts", "--resume", (const char *const[]){both, NULL});
    run_must_be_the_same("parts", "whole", 1);
    char *manifest = run_file("parts", "model/manifest.json", &size);
    assert_non_null(strstr(manifest, "\"labels\": [\n    \"label\",\n    \"e\"\n  ]"));
    free(manifest);
    char *whole = run_file("whole", "summary.json", &size), *parts;
    parts = run_file("parts", "summary.json", &size);
    assert_non_null(strstr(whole, "\"e\": {"));
    for (uint32_t i = 0; i < 2; i++) {
        static const char *const names[] = {"\"label\": {", "\"e\": {"};
        const char *ours = strstr(parts, names[i]), *theirs = strstr(whole, names[i]);
        assert_true(number_of(ours, "\"samples\":") == number_of(theirs, "\"samples\":"));
        assert_true(number_of(ours, "\"logloss\":") == number_of(theirs, "\"logloss\":"));
        assert_true(number_of(ours, "\"auc\":") > 0.5);
    }
    free(whole);
    free(parts);
    start_with(&p, config, "less", "whole", (const char *const[]){files_of("nothing"), NULL});
    run_must_end(&p, 1);
    run_must_say(&p, "its number of labels is 2, this run has 1");
    process_fini(&p);
}

static void bounded_staleness_too(void **state)
{
    (void)state;
    make_model(config, "model", (const char *const[]){files_of("first"), NULL});
    begin_with(
        config, "nothing-yet", "model",
        (const char *const[]){files_of("nothing"), "consistency.staleness=4", "workers=2", NULL});
    must_predict_alike("nothing-yet", "model", 1e-7);
    begin_with(config, "strict", "model", (const char *const[]){files_of("second"), NULL});
    begin_with(config, "stale", "model",
               (const char *const[]){files_of("second"), "consistency.staleness=1", NULL});
    must_predict_alike("stale", "strict", 0.02); // one worker: only sums of changes are rounded
}

// ---- more fields -------------------------------------------------------------------------------

// The model does not know the new columns' ids, and its new weights are 0.
static void widen(const char *model, double bound)
{
    char name[100];
    const char *const sets[] = {files_of("first"), model, NULL};
    snprintf(name, sizeof name, "%.90s", model);
    make_model(config, "narrow", sets);
    begin_with(wider, "wide", "narrow", (const char *const[]){files_of("nothing"), name, NULL});
    must_predict_alike("wide", "narrow", bound);
    begin_with(wider, "trained", "narrow",
               (const char *const[]){files_of("second"), name, "workers=2", NULL});
}

static void more_fields_wdl(void **state)
{
    (void)state;
    widen("model.deep_input=all", 1e-6);
}

static void more_fields_wdl_dense(void **state)
{
    (void)state;
    widen("model.deep_input=dense", 1e-6);
}

static void more_fields_dcn(void **state)
{
    (void)state;
    widen("model={\"name\": \"dcn\", \"cross\": \"vector\"}", 1e-6);
}

static void more_fields_dcn_matrix(void **state)
{
    (void)state;
    widen("model={\"name\": \"dcn\", \"cross\": \"matrix\"}", 1e-6);
}

static void more_fields_dlrm(void **state)
{
    (void)state;
    widen("model={\"name\": \"dlrm\", \"mlp_bottom\": [12], \"init_scale\": 0.3}", 1e-6);
}

// Initial rows meet the others in pairs: they are small.
static void more_fields_dfm(void **state)
{
    (void)state;
    widen("model={\"name\": \"dfm\"}", 0.02);
}

// ---- what cannot fit ---------------------------------------------------------------------------

static void must_refuse(const char *text, const char *set, const char *what)
{
    process p;
    start_with(&p, text, "refused", "model",
               (const char *const[]){files_of("second"), set, "timeouts.start_s=20", NULL});
    run_must_end(&p, 1);
    run_must_say(&p, what);
    process_fini(&p);
}

static void what_cannot_fit_is_refused(void **state)
{
    process p;
    char other[2000];
    (void)state;
    make_model(config, "model", (const char *const[]){files_of("first"), NULL});
    must_refuse(config, "model.embedding_dim=4", "its model.embedding_dim is 8, this run has 4");
    must_refuse(config, "model.name=dcn", "its model.name is wdl, this run has dcn");
    must_refuse(config, "model.mlp=[16, 9]", "is 8, this run has 9");
    must_refuse(config, "model.mlp=[16]", "number of layers (model.mlp) is 2, this run has 1");
    must_refuse(config, "optimizer.rows.name=sgd", "is adagrad, this run has sgd");
    must_refuse(config, "stream.dense_scaling=none",
                "its stream.dense_scaling is standard, this run has none");
    must_refuse(config, "stream.format=json", "its stream.format is table, this run has json");
    must_refuse(config, "rows.admit=2", "--init needs rows.admit 1");
    must_refuse(config, "rows.admit_share=0.5", "--init needs rows.admit 1");
    snprintf(other, sizeof other, "%s", config);
    char *name = strstr(other, "\"name\": \"b\"");
    assert_non_null(name);
    name[strlen("\"name\": \"")] = 'e';
    must_refuse(other, "workers=1", "its field 1 is \"b\", this run's is \"e\"");

    run_start(&p,
              (const char *const[]){"up", run_path("config.json"), "--out", run_path("out"),
                                    "--init", run_path("nowhere"), NULL},
              (const char *const[]){files_of("second"), NULL});
    run_must_end(&p, 1);
    run_must_say(&p, "nowhere: No such file or directory");
    process_fini(&p);
    run_start(&p,
              (const char *const[]){"up", run_path("config.json"), "--out", run_path("out"),
                                    "--resume", "--init", run_path("model"), NULL},
              NULL);
    run_must_end(&p, 2);
    run_must_say(&p, "give one of them");
    process_fini(&p);
}

// A file of the model that is another one, whole as it is by itself.
static void torn_models_are_refused(void **state)
{
    size_t size;
    (void)state;
    make_model(config, "model", (const char *const[]){files_of("first"), NULL});
    begin_with(config, "other", "model", (const char *const[]){files_of("second"), NULL});
    char *dense = run_file("other", "model/dense.bin", &size);
    assert_non_null(dense);
    run_write("model/model/dense.bin", dense, size);
    free(dense);
    must_refuse(config, "workers=1", "dense.bin has the sum");
}

TEST_MAIN(TEST_SLOW(more_labels, 120), TEST_SLOW(no_batches_change_nothing, 120),
          TEST_SLOW(the_first_batch_is_the_models, 120), TEST_SLOW(goes_on_as_the_run_would, 120),
          TEST_SLOW(goes_on_from_a_checkpoint, 120), TEST_SLOW(needs_the_model_once, 120),
          TEST_SLOW(bounded_staleness_too, 120), TEST_SLOW(more_fields_wdl, 120),
          TEST_SLOW(more_fields_wdl_dense, 120), TEST_SLOW(more_fields_dcn, 120),
          TEST_SLOW(more_fields_dcn_matrix, 120), TEST_SLOW(more_fields_dlrm, 120),
          TEST_SLOW(more_fields_dfm, 120), TEST_SLOW(what_cannot_fit_is_refused, 180),
          TEST_SLOW(torn_models_are_refused, 120))
