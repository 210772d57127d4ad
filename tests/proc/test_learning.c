// What a run learns at first, and what wild values of dense features do to it; the scale of dense
// features in models and checkpoints.
#define _GNU_SOURCE // strsep
#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/config/rt_config.h"
#include "runtime/rt_base.h"
#include "runtime/rt_hash.h"
#include "tests/support/process_case.h"
#include "tests/support/run_case.h"
#include "tests/support/test.h"

#define RUN_S RUN_CASE_S
#define SETS_MAX 16
#define BATCHES_MAX 64

// The same in all runs, so that models can be compared.
static const char config[] =
    "{\"workers\": 2, \"batch\": {\"samples_per_worker\": 128},"
    " \"stream\": {\"format\": \"synthetic\", \"samples_max\": 6144,"
    "  \"synthetic\": {\"scale\": 0.001, \"clusters\": 4}},"
    " \"model\": {\"embedding_dim\": 4, \"mlp\": [16, 8]},"
    " \"dispatch\": {\"measure_compute\": false}, \"cache\": {\"rows\": 20000},"
    " \"timeouts\": {\"start_s\": 20}}";

// "lanyard up CONFIG --out FOLDER/out --set SET..."; what it said stays in p.
static void up(process *p, const char *out, const char *flag, const char *const *sets)
{
    run_start_up(p, config, out, flag, sets);
    run_must_end(p, 0);
}

static cJSON *summary_of(const char *out)
{
    size_t size;
    char *text = run_file(out, "summary.json", &size);
    assert_non_null(text);
    cJSON *json = cJSON_Parse(text);
    assert_non_null(json);
    free(text);
    return json;
}

static double number(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    if (!cJSON_IsNumber(item))
        fail_msg("no number %s", name);
    return item->valuedouble;
}

typedef struct {
    uint32_t count;
    double loss[BATCHES_MAX], positives[BATCHES_MAX], clipped[BATCHES_MAX];
} batches;

// Of all iterations, by metrics.jsonl.
static batches batches_of(const char *out)
{
    batches b = {0};
    size_t size;
    char *text = run_file(out, "metrics.jsonl", &size), *rest = text;
    assert_non_null(text);
    for (char *line; (line = strsep(&rest, "\n")) && b.count < BATCHES_MAX;) {
        cJSON *json = cJSON_Parse(line);
        const cJSON *quality = cJSON_GetObjectItemCaseSensitive(json, "quality");
        if (quality) {
            b.loss[b.count] = number(quality, "log_loss");
            b.positives[b.count] = number(quality, "mean_label");
            b.clipped[b.count++] = number(json, "dense_clipped");
        }
        cJSON_Delete(json);
    }
    free(text);
    return b;
}

static double entropy(double rate)
{
    return -rate * log(rate) - (1 - rate) * log(1 - rate);
}

static double mean(const double *values, uint32_t first, uint32_t end)
{
    double sum = 0;
    for (uint32_t i = first; i < end; i++)
        sum += values[i];
    return sum / (end - first);
}

#define RARE 500 // samples to a positive

// Rows of Criteo's format, of which few are positive.
static const char *rare_rows(void)
{
    static char setting[RT_PATH_MAX + 32];
    rt_random random = {7};
    snprintf(setting, sizeof setting, "stream.files=%s/rare.tsv", run_folder());
    FILE *file = fopen(strchr(setting, '=') + 1, "w");
    assert_non_null(file);
    for (uint32_t i = 0; i < 20480; i++) {
        fprintf(file, "%d", rt_random_below(&random, RARE) == 0);
        for (uint32_t d = 0; d < 13; d++)
            fprintf(file, "\t%u", rt_random_below(&random, 50));
        for (uint32_t f = 0; f < 26; f++)
            fprintf(file, "\t%08x", rt_random_below(&random, 10 + 40 * f));
        fputc('\n', file);
    }
    assert_int_equal(fclose(file), 0);
    return setting;
}

// One label in 500 is 1: the first batch is predicted before anything is known of it, and the
// second one near the base rate. Where that is given, the first one, too.
static void rare_positives(void **state)
{
    (void)state;
    const char *const rows = rare_rows();
    const char *const sets[][8] = {
        {"stream.format=criteo", rows, "stream.samples_max=20480", "batch.samples_per_worker=512"},
        {"stream.format=criteo", rows, "stream.samples_max=20480", "batch.samples_per_worker=512",
         "model.base_rate=0.002"}};
    for (uint32_t given = 0; given < 2; given++) {
        process p;
        up(&p, "out", NULL, sets[given]);
        process_fini(&p);
        const batches b = batches_of("out");
        assert_int_equal(b.count, 20);
        const double least = entropy(mean(b.positives, 0, 20));
        assert_true(least > 0.005 && least < 0.03);
        if (given)
            assert_true(b.loss[0] < 2 * entropy(1.0 / RARE) + 0.01);
        else
            assert_true(fabs(b.loss[0] - log(2)) < 0.1);
        const double loss = mean(b.loss, 1, 20);
        if (loss > 1.5 * least)
            fail_msg("log loss %g over batches 2 to 20, the base rate's is %g", loss, least);
    }
}

// These rows teach nothing but the rate. Small gradients of label 0 must not take steps of the size
// of the learning rate, which lower all predictions: the log loss was 1.1 times the entropy, and is
// 1.04 times the entropy.
static void rare_positives_are_not_forgotten(void **state)
{
    (void)state;
    process p;
    const char *const sets[] = {"stream.format=criteo",
                                rare_rows(),
                                "stream.samples_max=20480",
                                "batch.samples_per_worker=0",
                                "batch.samples=256",
                                "model.mlp=[256, 256, 256]",
                                NULL};
    up(&p, "out", NULL, sets);
    process_fini(&p);
    cJSON *summary = summary_of("out");
    const double left = number(summary, "normalised_entropy");
    const double calibration = number(summary, "calibration");
    cJSON_Delete(summary);
    printf("normalised entropy %g, calibration %g\n", left, calibration);
    assert_true(left < 1.07);
}

// No batch is far above what knowing nothing but the base rate would give.
static void no_batch_overshoots(void **state)
{
    (void)state;
    static const char *const models[] = {"model.name=wdl", "model.name=dfm", "model.name=dcn",
                                         "model.name=dlrm"};
    for (size_t m = 0; m < RT_COUNT_OF(models); m++) {
        process p;
        const char *const sets[] = {models[m], NULL};
        up(&p, "out", NULL, sets);
        process_fini(&p);
        const batches b = batches_of("out");
        assert_int_equal(b.count, 24);
        for (uint32_t i = 1; i < b.count; i++)
            if (b.loss[i] > entropy(b.positives[i]) + 0.1)
                fail_msg("%s, batch %u: log loss %g, the base rate's is %g", models[m], i + 1,
                         b.loss[i], entropy(b.positives[i]));
    }
}

// Lines of a table: label, two numbers, two ids. The label follows the first number.
static char *write_table(const char *name, uint32_t wild_line, const char *wild)
{
    static char files[2][330];
    char *assignment = files[wild_line != 0];
    snprintf(assignment, sizeof files[0], "stream.files=%s/%s", run_folder(), name);
    FILE *file = fopen(strchr(assignment, '=') + 1, "w");
    assert_non_null(file);
    for (uint32_t i = 1; i <= 6144; i++) {
        const uint32_t x = i * 2654435761u >> 25, noise = i * 40503u >> 3 & 7;
        if (i == wild_line)
            fprintf(file, "1,%s,%u,u1,i1\n", wild, i % 7);
        else
            fprintf(file, "%u,%u,%u,u%u,i%u\n", x + noise > 96, x * 100, i % 7, i * 7 % 101,
                    i % 53);
    }
    assert_int_equal(fclose(file), 0);
    return assignment;
}

#define TABLE                                                                             \
    "stream.format=table", "stream.samples_max=0", "optimizer.dense.learning_rate=0.05",  \
        "stream.table.columns=[{\"name\": \"y\", \"kind\": \"label\"},"                   \
        "{\"name\": \"x\", \"kind\": \"dense\"}, {\"name\": \"z\", \"kind\": \"dense\"}," \
        "{\"name\": \"u\", \"kind\": \"categorical\"}, {\"name\": \"i\", \"kind\": "      \
        "\"categorical\"}]"

// In the first batch and later: clipped, counted, and forgotten.
static void one_wild_value(void **state)
{
    (void)state;
    static const uint32_t lines[] = {5, 300, 1500};
    process p;
    up(&p, "calm", NULL, (const char *const[]){TABLE, write_table("calm.csv", 0, NULL), NULL});
    process_fini(&p);
    cJSON *json = summary_of("calm");
    const double calm = number(json, "logloss_last_fifth");
    assert_true(number(json, "dense_clipped") == 0);
    if (calm > 0.35)
        fail_msg("log loss %g: nothing was learnt", calm);
    cJSON_Delete(json);
    for (size_t i = 0; i < RT_COUNT_OF(lines); i++) {
        const char *sets[] = {TABLE, write_table("wild.csv", lines[i], "1e38"), NULL};
        up(&p, "wild", NULL, sets);
        run_must_say(&p, "1 dense values lay beyond 10 deviations and were clipped to that");
        process_fini(&p);
        json = summary_of("wild");
        assert_true(number(json, "dense_clipped") == 1 && number(json, "bad_batches") == 0);
        const double loss = number(json, "logloss_last_fifth");
        if (!(loss < calm + 0.05))
            fail_msg("line %u is wild: log loss %g, without it %g", lines[i], loss, calm);
        cJSON_Delete(json);
        const batches b = batches_of("wild");
        for (uint32_t k = 0; k < b.count; k++)
            assert_true(b.clipped[k] == (k == (lines[i] - 1) / 256 ? 1 : 0));
    }
}

static double loss_of(const char *out)
{
    cJSON *json = summary_of(out);
    const double loss = number(json, "logloss_last_fifth");
    cJSON_Delete(json);
    return loss;
}

// The label follows the first number, a time; the second is the same in all lines.
static void write_times(const char *name, uint64_t from)
{
    char path[400];
    snprintf(path, sizeof path, "%s/%s", run_folder(), name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (uint32_t i = 1; i <= 6144; i++) {
        const uint32_t x = i * 2654435761u >> 25, noise = i * 40503u >> 3 & 7;
        fprintf(file, "%u,%.1f,%.1f,u%u,i%u\n", x + noise > 96, (double)(from + x) + 0.5,
                (double)from, i * 7 % 101, i % 53);
    }
    assert_int_equal(fclose(file), 0);
}

// 128 s, all that 32 bits tell apart of a time of today; and a feature that tells nothing is named.
static void a_time_of_two_minutes(void **state)
{
    (void)state;
    process p;
    char files[400];
    write_times("near.csv", 0);
    snprintf(files, sizeof files, "stream.files=%s/near.csv", run_folder());
    up(&p, "near", NULL, (const char *const[]){TABLE, files, NULL});
    process_fini(&p);
    write_times("far.csv", 1764000000);
    snprintf(files, sizeof files, "stream.files=%s/far.csv", run_folder());
    up(&p, "far", NULL, (const char *const[]){TABLE, files, NULL});
    run_must_say(&p, "dense feature z was 1764000000 in all of the first 1024 samples");
    assert_null(strstr(p.text, "dense feature x"));
    process_fini(&p);
    if (!(fabs(loss_of("far") - loss_of("near")) < 1e-3 && loss_of("far") < 0.35))
        fail_msg("log loss %g far from zero, %g near it", loss_of("far"), loss_of("near"));
    up(&p, "none", NULL, (const char *const[]){TABLE, files, "stream.dense_scaling=none", NULL});
    run_must_say(&p, "dense feature x has values up to 1.764e+09");
    process_fini(&p);
}

static void eval(process *p, const char *model, const char *const *sets, int want)
{
    run_start(p, (const char *const[]){"eval", run_path(model), "--json", NULL}, sets);
    run_must_end(p, want);
}

static double evaluated(const char *model)
{
    process p;
    eval(&p, model, (const char *const[]){"stream.samples_max=2000", NULL}, 0);
    cJSON *json = cJSON_Parse(strchr(p.text, '{'));
    assert_non_null(json);
    const double loss = number(json, "logloss");
    cJSON_Delete(json);
    process_fini(&p);
    return loss;
}

// One member of an object is not there any more.
static void leave_out(const char *name, const char *member)
{
    size_t size;
    char word[64], *text = run_file("out", name, &size);
    assert_non_null(text);
    snprintf(word, sizeof word, "\"%s\"", member);
    char *from = strstr(text, word), *to = from ? strchr(from, ',') : NULL;
    assert_non_null(to);
    memmove(from, to + 1, strlen(to + 1) + 1);
    snprintf(word, sizeof word, "out/%s", name);
    run_write(word, text, strlen(text));
    free(text);
}

// A model scales what it predicts as its last batch was scaled; one that was trained on features as
// they are does not, nor is one spoilt by a file that is damaged.
static void the_scale_is_part_of_the_model(void **state)
{
    (void)state;
    process p;
    size_t size;
    up(&p, "out", NULL, (const char *const[]){"checkpoint.at_end=true", NULL});
    process_fini(&p);
    const double loss = evaluated("out/model");
    assert_true(evaluated("out/checkpoints/ckpt-000000000024") == loss);
    char *bytes = run_file("out", "model/scale.bin", &size);
    assert_non_null(bytes);
    bytes[320 + 2] ^= 1; // of the first mean, behind 32 + 2 x 128 bytes and zeros
    run_write("out/model/scale.bin", bytes, size);
    eval(&p, "out/model", NULL, 1);
    run_must_say(&p, "scale.bin");
    process_fini(&p);
    char path[300];
    snprintf(path, sizeof path, "%s/out/model/scale.bin", run_folder());
    assert_int_equal(unlink(path), 0);
    eval(&p, "out/model", NULL, 1);
    run_must_say(&p, "scale.bin");
    process_fini(&p);
    // Nor without a manifest, unless it is of versions before: their config.json has no such key.
    snprintf(path, sizeof path, "%s/out/model/manifest.json", run_folder());
    assert_int_equal(unlink(path), 0);
    eval(&p, "out/model", NULL, 1);
    run_must_say(&p, "neither manifest.json nor scale.bin");
    process_fini(&p);
    leave_out("model/config.json", "dense_scaling");
    assert_true(evaluated("out/model") > loss + 0.01);
    free(bytes);
    up(&p, "none", NULL, (const char *const[]){"stream.dense_scaling=none", NULL});
    process_fini(&p);
    assert_null(run_file("none", "model/scale.bin", &size));
    assert_true(evaluated("none/model") < 0.7);
}

// Rows as Criteo's: some cells are empty, ids repeat, the label follows two of them.
static void write_criteo(const char *name, uint32_t rows, uint32_t seed)
{
    char path[400];
    snprintf(path, sizeof path, "%s/%s", run_folder(), name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (uint32_t i = 0; i < rows; i++) {
        rt_random random = {rt_mix(seed + i)};
        const uint32_t x = rt_random_below(&random, 1000), kind = rt_random_below(&random, 8);
        fprintf(file, "%u", x + 100 * kind > 900);
        for (uint32_t k = 0; k < 13; k++)
            if (rt_random_below(&random, 5) == 0)
                fputs("\t", file);
            else
                fprintf(file, "\t%d", (int)(k ? rt_random_below(&random, 40 << k) : x) - 1);
        for (uint32_t f = 0; f < 26; f++)
            if (f && rt_random_below(&random, 9) == 0)
                fputs("\t", file);
            else
                fprintf(file, "\t%08x", f ? rt_random_below(&random, 50) * 77777u : kind);
        fputs("\n", file);
    }
    assert_int_equal(fclose(file), 0);
}

static void write_ratings(const char *name, uint32_t rows, uint32_t seed)
{
    char path[400];
    snprintf(path, sizeof path, "%s/%s", run_folder(), name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (uint32_t i = 0; i < rows; i++) {
        rt_random random = {rt_mix(seed + i)};
        const uint32_t user = rt_random_below(&random, 40), item = rt_random_below(&random, 60);
        fprintf(file, "%u\t%u\t%u\t0\n", user, item, 1 + (user % 5 + item % 5) / 2);
    }
    assert_int_equal(fclose(file), 0);
}

// MODEL_FORMAT.md's recipe, by another program: rows that were trained and rows that were not.
static void another_program_predicts_the_same(void **state)
{
    (void)state;
    static const char *const models[][4] = {{"model.name=wdl"},
                                            {"model.name=wdl", "model.deep_input=dense"},
                                            {"model.name=dfm"},
                                            {"model.name=dcn", "model.cross=vector"},
                                            {"model.name=dcn", "model.cross=matrix"},
                                            {"model.name=dlrm", "model.mlp_bottom=[10]"},
                                            {"model.name=wdl", "stream.dense_scaling=none"},
                                            {"model.name=ncf"}};
    process_need_numpy();
    char model[400], rows[400], files[420], tests[420], out[400];
    snprintf(model, sizeof model, "%s/out/model", run_folder());
    snprintf(out, sizeof out, "%s/predictions", run_folder());
    snprintf(rows, sizeof rows, "%s/test.tsv", run_folder());
    snprintf(files, sizeof files, "stream.files=%s/train.tsv", run_folder());
    snprintf(tests, sizeof tests, "stream.files=%s", rows);
    for (size_t m = 0; m < RT_COUNT_OF(models); m++) {
        const bool is_ncf = m == RT_COUNT_OF(models) - 1;
        process p;
        (is_ncf ? write_ratings : write_criteo)("train.tsv", 5000, 1);
        (is_ncf ? write_ratings : write_criteo)("test.tsv", 500, 100000);
        const char *sets[SETS_MAX] = {files, "stream.samples_max=0",
                                      "optimizer.rows.learning_rate=0.1"};
        uint32_t count = 3;
        sets[count++] = is_ncf ? "stream.format=table" : "stream.format=criteo";
        if (is_ncf)
            sets[count++] = "stream.table={\"delimiter\": \"\\t\", \"columns\": ["
                            "{\"name\": \"u\", \"kind\": \"categorical\", \"id\": \"number\"},"
                            "{\"name\": \"i\", \"kind\": \"categorical\", \"id\": \"number\"},"
                            "{\"name\": \"y\", \"kind\": \"label\", \"rule\": \"at_least\", "
                            "\"value\": \"3\"}, {\"name\": \"t\", \"kind\": \"ignore\"}]}";
        for (uint32_t i = 0; i < 4 && models[m][i]; i++)
            sets[count++] = models[m][i];
        up(&p, "out", NULL, sets);
        process_fini(&p);
        const char *const words[] = {"eval", model, "--predictions", out, NULL};
        run_start(&p, words, (const char *const[]){tests, NULL});
        run_must_end(&p, 0);
        process_fini(&p);
        const char *const check[] = {
            "/usr/bin/python3", "tests/proc/check_predictions.py", model, rows, out, NULL};
        p = (process){0};
        if (process_run(&p, check, RUN_S) != 0)
            fail_msg("%s: %s", models[m][0], p.text);
        printf("%s", p.text);
        process_fini(&p);
    }
}

// The total of a batch is the setting: what is learnt does not depend on how many share it.
static void more_workers_learn_the_same(void **state)
{
    (void)state;
    static const char *const workers[] = {"workers=1", "workers=3", "workers=4"};
    double first = 0;
    for (size_t i = 0; i < RT_COUNT_OF(workers); i++) {
        process p;
        const char *const sets[] = {workers[i], "batch.samples_per_worker=0", "batch.samples=256",
                                    NULL};
        up(&p, "out", NULL, sets);
        process_fini(&p);
        cJSON *summary = summary_of("out");
        const double iterations = number(summary, "iterations"), loss = number(summary, "logloss");
        cJSON_Delete(summary);
        assert_int_equal(iterations, 228); // 6,144 samples in batches that grow to a 64th of them
        if (i == 0)
            first = loss;
        else if (!(fabs(loss - first) < 1e-3))
            fail_msg("%s: log loss %g, with one worker %g", workers[i], loss, first);
    }
}

// Visits of 3 to 40 rows of 400 users, who mostly have one label.
static const char *write_visits(char files[400])
{
    rt_random random = {11};
    snprintf(files, 400, "stream.files=%s/visits.csv", run_folder());
    FILE *file = run_create("visits.csv");
    for (uint32_t i = 0, left = 0, user = 0; i < 6000; i++, left--) {
        if (left == 0) {
            user = rt_random_below(&random, 400);
            left = 3 + rt_random_below(&random, 38);
        }
        const uint32_t item = rt_random_below(&random, 60);
        const uint32_t noise = rt_random_below(&random, 6) == 0;
        fprintf(file, "%u,u%u,i%u\n", (user & 1) ^ noise, user, item);
    }
    assert_int_equal(fclose(file), 0);
    return files;
}

// A run, one that goes on, the simulator, and the simulator with the run's records end batches of
// visits alike.
static void visits_end_batches(void **state)
{
    (void)state;
    char files[400], records[400], path[400];
    snprintf(path, sizeof path, "%s/config.json", run_folder());
    snprintf(records, sizeof records, "%s/plain/records.jsonl", run_folder());
    const char *sets[] = {"sim.warmup=0",
                          "stream.format=table",
                          "stream.samples_max=0",
                          "stream.table.columns=[{\"name\": \"y\", \"kind\": \"label\"},"
                          "{\"name\": \"u\", \"kind\": \"categorical\"},"
                          "{\"name\": \"i\", \"kind\": \"categorical\"}]",
                          write_visits(files),
                          "batch.samples=256",
                          "batch.samples_per_worker=0",
                          "checkpoint.every_iterations=0",
                          NULL};
    process p;
    run_up(config, "plain", NULL, sets);
    run_must_be_simulated(config, "plain", sets, (const char *const[]){NULL});
    const char *const words[] = {"sim", path, "--json", "--records", records, NULL};
    run_start(&p, words, sets);
    run_must_end(&p, 0);
    run_must_have_planned("plain", p.text);
    process_fini(&p);
    cJSON *json = summary_of("plain");
    assert_in_range(number(json, "iterations"), 600, 1200); // 225 of samples alone
    cJSON_Delete(json);
    sets[RT_COUNT_OF(sets) - 2] = "checkpoint.every_iterations=300";
    run_must_go_on_alike(config, 1, sets);
}

TEST_MAIN(TEST_SLOW(another_program_predicts_the_same, 240), TEST(rare_positives),
          TEST(rare_positives_are_not_forgotten), TEST_SLOW(no_batch_overshoots, 120),
          TEST(one_wild_value), TEST(a_time_of_two_minutes), TEST(the_scale_is_part_of_the_model),
          TEST(more_workers_learn_the_same), TEST(visits_end_batches))
