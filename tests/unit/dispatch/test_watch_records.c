// What a run says of its columns and of the values of one of them, against plain loops over the
// same samples.
#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dispatch/coordinator/dp_columns.h"
#include "dispatch/coordinator/dp_stats.h"
#include "dispatch/coordinator/dp_quality.h"
#include "dispatch/coordinator/dp_watch.h"
#include "runtime/config/rt_sources.h"
#include "runtime/rt_hash.h"
#include "runtime/stream/rt_source.h"
#include "tests/support/config_case.h"
#include "tests/support/test.h"

#define FIELDS 3u
#define SAMPLES 200u

static char told[1 << 16];

static void take(void *context, const char *line, size_t size)
{
    (void)context;
    assert_true(size < sizeof told);
    memcpy(told, line, size);
    told[size] = '\0';
}

static rt_metrics *make_metrics(void)
{
    rt_metrics *metrics;
    assert_int_equal(rt_metrics_open(NULL, &metrics, NULL), RT_OK);
    rt_metrics_tap(metrics, take, NULL);
    told[0] = '\0';
    return metrics;
}

// Every third value of field 1 is missing.
static void fill_batch(rt_batch *batch, rt_random *random)
{
    rt_batch_init(batch, 0);
    for (uint32_t i = 0; i < SAMPLES; i++) {
        uint64_t keys[FIELDS];
        for (uint32_t f = 0; f < FIELDS; f++)
            keys[f] = rt_key(f, f == 1 && i % 3 == 0 ? RT_ID_MISSING : rt_random_below(random, 9));
        assert_int_equal(rt_batch_append(batch, 0, NULL, keys, FIELDS), RT_OK);
    }
}

static void add_fill(dp_slice *slice, dp_op_kind kind, uint64_t key, uint32_t version)
{
    dp_op *op = dp_ops_add(&slice->fill, kind);
    assert_non_null(op);
    op->key = key;
    op->version = version;
}

// Worker 0 has the odd samples, worker 1 the others.
static void fill_plan(dp_plan *plan)
{
    assert_int_equal(dp_plan_init(plan, 2), RT_OK);
    for (uint32_t w = 0; w < 2; w++) {
        dp_slice *slice = &plan->slices[w];
        assert_int_equal(dp_slice_reserve(slice, SAMPLES, SAMPLES * FIELDS), RT_OK);
        for (uint32_t i = 1 - w; i < SAMPLES; i += 2)
            slice->samples[slice->sample_count++] = i;
    }
    add_fill(&plan->slices[0], DP_OP_INIT, rt_key(0, 1), 0);
    add_fill(&plan->slices[0], DP_OP_PULL, rt_key(2, 1), 0);
    add_fill(&plan->slices[1], DP_OP_PULL, rt_key(2, 2), 0);
    add_fill(&plan->slices[1], DP_OP_PULL, rt_key(2, 3), 7); // it was trained before
}

static void counts_columns(void **state)
{
    (void)state;
    static const rt_schema schema = {.field_count = FIELDS, .field_names = {"a", "b", "c"}};
    rt_random random = {1};
    rt_batch batch;
    dp_plan plan = {0};
    dp_columns once = {0}, twice = {0};
    rt_metrics *metrics = make_metrics();
    fill_batch(&batch, &random);
    fill_plan(&plan);
    dp_columns_count(&once, &batch, &plan);
    dp_columns_merge(&twice, &once, FIELDS);
    dp_columns_merge(&twice, &once, FIELDS);
    dp_columns_record(&twice, &schema, 5, metrics);
    cJSON *json = cJSON_Parse(told);
    const cJSON *columns = cJSON_GetObjectItem(json, "columns");
    static const double want[FIELDS][3] = {
        {2 * SAMPLES, 0, 2}, {2 * SAMPLES, 2 * ((SAMPLES + 2) / 3), 0}, {2 * SAMPLES, 0, 4}};
    static const char *const names[] = {"values", "empty", "new"};
    assert_int_equal(cJSON_GetArraySize(columns), FIELDS);
    assert_true(cJSON_GetObjectItem(json, "iteration")->valuedouble == 5);
    for (uint32_t f = 0; f < FIELDS; f++) {
        const cJSON *one = cJSON_GetArrayItem(columns, (int)f);
        assert_string_equal(cJSON_GetObjectItem(one, "name")->valuestring, schema.field_names[f]);
        for (uint32_t k = 0; k < 3; k++)
            assert_true(cJSON_GetObjectItem(one, names[k])->valuedouble == want[f][k]);
    }
    uint64_t keys[SAMPLES];
    dp_columns_keys(&batch, &plan, 2, keys);
    for (uint32_t i = 0; i < SAMPLES; i++) {
        const uint32_t sample = i < SAMPLES / 2 ? 2 * i + 1 : 2 * (i - SAMPLES / 2);
        assert_int_equal(keys[i], batch.keys[sample * FIELDS + 2]);
    }
    cJSON_Delete(json);
    rt_metrics_close(metrics);
    dp_plan_fini(&plan);
    rt_batch_fini(&batch);
}

// Fields that share a table are counted by themselves: field 2 has the rows of field 0, or field 1,
// whose values may be missing.
static void counts_columns_that_share_rows(void **state)
{
    (void)state;
    static const uint32_t borrowers[] = {1, 2};
    rt_random random = {1};
    dp_plan plan = {0};
    fill_plan(&plan);
    for (uint32_t b = 0; b < RT_COUNT_OF(borrowers); b++) {
        rt_tables tables = {.are_shared = true, .field_count = FIELDS, .of = {0, 1, 2}};
        uint64_t wanted[SAMPLES], keys[SAMPLES];
        dp_columns alone = {0}, shared = {0};
        rt_batch batch;
        tables.of[borrowers[b]] = 0;
        tables.borrows[borrowers[b]] = true;
        fill_batch(&batch, &random);
        dp_columns_count(&alone, &batch, &plan);
        dp_columns_keys(&batch, &plan, borrowers[b], wanted);
        assert_int_equal(rt_tables_fold(&tables, &batch), RT_OK);
        assert_non_null(batch.tables);
        dp_columns_count(&shared, &batch, &plan);
        dp_columns_keys(&batch, &plan, borrowers[b], keys);
        assert_memory_equal(&shared, &alone, sizeof alone);
        assert_memory_equal(keys, wanted, sizeof keys);
        rt_batch_fini(&batch);
    }
    dp_plan_fini(&plan);
}

// A column that is watched value by value is one of the stream's, for labels of 0 and 1.
static void which_column_is_watched(void **state)
{
    (void)state;
    static const struct {
        const char *column;
        uint32_t classes;
        const char *text; // NULL: none
    } cases[] = {
        {"", 3, NULL},
        {"c", 0, NULL},
        {"d", 0, "watch.column: expected a categorical column of the stream, found \"d\""},
        {"a", 3, "watch.column: is for labels of 0 and 1, not for one of several classes"}};
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
        const rt_schema schema = {
            .field_count = FIELDS, .field_names = {"a", "b", "c"}, .class_count = cases[i].classes};
        dp_watch *watch = rt_alloc(1, sizeof *watch);
        rt_value_names *names = NULL;
        rt_error error = {0};
        rt_config config = config_fresh();
        config.watch.window_samples = 777;
        snprintf(config.watch.column, sizeof config.watch.column, "%s", cases[i].column);
        assert_int_equal(dp_watch_note(&config, &names, watch, &error), RT_OK);
        assert_int_equal(names != NULL, *cases[i].column != 0);
        assert_int_equal(dp_watch_schema(&config, &schema, watch, &error),
                         cases[i].text ? RT_CONFIG : RT_OK);
        assert_string_equal(error.text, cases[i].text ? cases[i].text : "");
        assert_int_equal(watch->schema.field_count, FIELDS);
        assert_int_equal(watch->slices != NULL, *cases[i].column == 'c');
        if (watch->slices) {
            assert_int_equal(watch->slices->field, 2);
            assert_string_equal(watch->slices->column, "c");
            assert_true(watch->slices->window_samples == 777 && watch->slices->names == names);
        }
        dp_watch_close(watch);
        rt_free(watch);
        rt_config_fini(&config);
    }
}

// Every number by its name; a join only where there is one.
static void what_was_read(void **state)
{
    (void)state;
    static const char *const names[] = {"malformed_lines",   "odd_labels",        "duplicates",
                                        "input_bytes_lost",  "input_events_lost", "input_breaks",
                                        "negatives_left_out"};
    static const char *const of_join[] = {"events", "outcomes",  "waiting",  "kept",   "unanswered",
                                          "late",   "unmatched", "repeated", "crowded"};
    dp_reading reading = {.stats = {.malformed = 1,
                                    .odd_labels = 2,
                                    .duplicates = 3,
                                    .bytes_lost = 4,
                                    .events_lost = 5,
                                    .breaks = 6,
                                    .left_out = 7}};
    for (uint32_t joined = 0; joined < 3; joined++) {
        rt_json json;
        if (joined)
            reading.stats.join = (rt_join_counts){.events = joined == 1,
                                                  .outcomes = 2,
                                                  .waiting = 3,
                                                  .kept = 4,
                                                  .unanswered = 5,
                                                  .late = 6,
                                                  .unmatched = 7,
                                                  .repeated = 8,
                                                  .crowded = 9};
        if (joined)
            (void)rt_fail(&reading.failure, RT_IO, "why");
        rt_json_init(&json, 0);
        rt_json_begin_object(&json, NULL);
        dp_reading_write(&reading, &json);
        rt_json_end_object(&json);
        cJSON *object = cJSON_Parse(rt_json_text(&json, NULL));
        for (uint32_t i = 0; i < RT_COUNT_OF(names); i++)
            assert_true(cJSON_GetObjectItem(object, names[i])->valuedouble == i + 1);
        assert_string_equal(cJSON_GetObjectItem(object, "input_error")->valuestring,
                            joined ? "why" : "");
        assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(object, "inputs")), 0);
        const cJSON *join = cJSON_GetObjectItem(object, "join");
        assert_int_equal(join != NULL, joined > 0);
        for (uint32_t i = 0; join && i < RT_COUNT_OF(of_join); i++)
            assert_true(cJSON_GetObjectItem(join, of_join[i])->valuedouble ==
                        (i == 0 ? joined == 1 : i + 1));
        cJSON_Delete(object);
        rt_json_fini(&json);
    }
}

// Three events that were sent, none of them read.
static void what_was_sent(void **state)
{
    (void)state;
    static const char *const some[] = {"commits",       "commit_ms",  "commits_failed", "full",
                                       "repeated",      "lost",       "refused",        "unnamed",
                                       "journal_bytes", "connections"};
    const rt_stream_stats stats = {.duplicates = 6, .malformed = 7};
    rt_metrics *metrics = make_metrics();
    rt_config config;
    rt_live *live;
    void *source;
    char kept[8] = "";
    const uint16_t port = test_free_port();
    assert_int_equal(rt_config_init(&config), RT_OK);
    config.stream.source = RT_SOURCE_TCP;
    config.stream.take_anything = true;
    snprintf(config.stream.tcp_listen, sizeof config.stream.tcp_listen, "127.0.0.1:%u", port);
    assert_int_equal(rt_live_open(&config, test_path("journal"), &live, NULL), RT_OK);
    config.stream.live = live;
    assert_int_equal(rt_source_live.open(&config.stream, 1, &source, NULL), RT_OK);
    const int sender = test_connect(port);
    assert_int_equal(write(sender, "a\nb\nc\n", 6), 6);
    while (!strchr(kept, '3')) // numbers in lines, the last one of all three
        assert_true(read(sender, kept, sizeof kept - 1) > 0);
    dp_live_record(live, &stats, metrics);
    cJSON *json = cJSON_Parse(told);
    assert_string_equal(cJSON_GetObjectItem(json, "record")->valuestring, "stream");
    assert_true(cJSON_GetObjectItem(json, "events")->valuedouble == 3);
    assert_true(cJSON_GetObjectItem(json, "read")->valuedouble == 0);
    assert_true(cJSON_GetObjectItem(json, "journal_first")->valuedouble == 1);
    assert_true(cJSON_GetObjectItem(json, "duplicates")->valuedouble == 6);
    assert_true(cJSON_GetObjectItem(json, "malformed_lines")->valuedouble == 7);
    for (size_t i = 0; i < RT_COUNT_OF(some); i++)
        assert_true(cJSON_IsNumber(cJSON_GetObjectItem(json, some[i])));
    cJSON_Delete(json);
    close(sender);
    rt_source_live.close(source);
    rt_live_close(live);
    rt_config_fini(&config);
    rt_metrics_close(metrics);
}

// ---- slices ----------------------------------------------------------------------------------

typedef struct {
    float predictions[SAMPLES], labels[SAMPLES], weights[SAMPLES];
    uint64_t keys[SAMPLES];
} judged;

static void fill_judged(judged *all, rt_random *random)
{
    for (uint32_t i = 0; i < SAMPLES; i++) {
        const double u = rt_random_unit(random);
        all->predictions[i] = (float)(0.05 + 0.9 * rt_random_unit(random));
        all->weights[i] = i % 4 ? 1 : 0.5f;
        all->labels[i] = rt_random_unit(random) < 0.4 ? all->weights[i] : 0;
        all->keys[i] = rt_key(1, (uint64_t)(u * u * 5)); // 0 comes most
    }
}

static const cJSON *value_named(const cJSON *json, const char *name)
{
    const cJSON *one;
    cJSON_ArrayForEach(one, cJSON_GetObjectItem(json, "values"))
    {
        if (strcmp(cJSON_GetObjectItem(one, "value")->valuestring, name) == 0)
            return one;
    }
    fail_msg("no \"%s\" in %s", name, told);
    return NULL;
}

// With a window that nothing fades in: the plain mean over the samples of a value.
static void judges_slices(void **state)
{
    (void)state;
    enum { ROUNDS = 5 };
    rt_random random = {3};
    judged all[ROUNDS];
    rt_value_names *names;
    rt_metrics *metrics = make_metrics();
    assert_int_equal(rt_value_names_create("shop", &names), RT_OK);
    rt_value_names_note(names, rt_key(1, 0), "north shore", 5);
    rt_value_names_note(names, rt_key(1, 0), "south", 5); // it has a name
    rt_value_names_note(names, rt_key(1, 1), "", 0);
    dp_slices slices = {.column = "shop", .field = 1, .window_samples = 1e12, .names = names};
    dp_slices_record(&slices, 1, metrics);
    assert_string_equal(told, ""); // there is nothing to tell
    double weight = 0, loss = 0, predicted = 0, positive = 0;
    for (uint32_t r = 0; r < ROUNDS; r++) {
        fill_judged(&all[r], &random);
        dp_slices_add(&slices, all[r].predictions, all[r].labels, all[r].weights, all[r].keys,
                      SAMPLES);
        for (uint32_t i = 0; i < SAMPLES; i++) {
            if (all[r].keys[i] != rt_key(1, 0))
                continue;
            const double p = (double)all[r].predictions[i], w = (double)all[r].weights[i];
            loss -= w * log(all[r].labels[i] > 0 ? p : 1 - p);
            weight += w;
            predicted += w * p;
            positive += (double)all[r].labels[i];
        }
    }
    dp_slices_record(&slices, 7, metrics);
    cJSON *json = cJSON_Parse(told);
    const cJSON *one = value_named(json, "north");
    assert_ptr_equal(one, cJSON_GetArrayItem(cJSON_GetObjectItem(json, "values"), 0));
    test_close(cJSON_GetObjectItem(one, "samples")->valuedouble, weight, 1e-6, 0, "samples");
    test_close(cJSON_GetObjectItem(one, "log_loss")->valuedouble, loss / weight, 1e-6, 0, "loss");
    test_close(cJSON_GetObjectItem(one, "calibration")->valuedouble, predicted / positive, 1e-6, 0,
               "calibration");
    test_close(cJSON_GetObjectItem(one, "mean_label")->valuedouble, positive / weight, 1e-6, 0,
               "label");
    (void)value_named(json, "00000001"); // without a name its id
    cJSON_Delete(json);
    rt_value_names_destroy(names);
    rt_metrics_close(metrics);
}

// One sample of a value, and half of one: a mean of them is one; without a label 1 no calibration
// is.
static void judges_single_samples(void **state)
{
    (void)state;
    static const float predictions[] = {0.25f, 0.125f, 0.5f}, labels[] = {1, 0.5f, 0},
                       weights[] = {1, 0.5f, 1};
    static const uint64_t ids[] = {7, 8, 9};
    uint64_t keys[3];
    rt_metrics *metrics = make_metrics();
    dp_slices slices = {.column = "shop", .field = 1, .window_samples = 1e12};
    for (int i = 0; i < 3; i++)
        keys[i] = rt_key(1, ids[i]);
    dp_slices_add(&slices, predictions, labels, weights, keys, 3);
    dp_slices_record(&slices, 1, metrics);
    cJSON *json = cJSON_Parse(told);
    const cJSON *whole = value_named(json, "00000007"), *half = value_named(json, "00000008");
    const cJSON *none = value_named(json, "00000009");
    const double calibration = cJSON_GetObjectItem(whole, "calibration")->valuedouble;
    test_close(calibration, 0.25, 1e-6, 0, "calibration");
    test_close(cJSON_GetObjectItem(whole, "log_loss")->valuedouble, log(4), 1e-6, 0, "loss");
    test_close(cJSON_GetObjectItem(half, "calibration")->valuedouble, 0.125, 1e-6, 0, "of half");
    test_close(cJSON_GetObjectItem(half, "mean_label")->valuedouble, 1, 1e-6, 0, "label");
    test_close(cJSON_GetObjectItem(half, "log_loss")->valuedouble, log(8), 1e-6, 0, "of half");
    assert_true(cJSON_IsNull(cJSON_GetObjectItem(none, "calibration")));
    test_close(cJSON_GetObjectItem(none, "mean_label")->valuedouble, 0, 1e-6, 1, "label");
    cJSON_Delete(json);
    rt_metrics_close(metrics);
}

// More values than places: those that come most stay, what went before fades.
static void keeps_what_comes_most(void **state)
{
    (void)state;
    enum { ROUNDS = 400 };
    rt_random random = {5};
    judged all;
    dp_slices slices = {.column = "shop", .field = 1, .window_samples = 10 * SAMPLES};
    for (uint32_t r = 0; r < ROUNDS; r++) {
        fill_judged(&all, &random);
        for (uint32_t i = 0; i < SAMPLES; i++) {
            all.weights[i] = 1;
            all.labels[i] = r < ROUNDS / 2; // the other half has no label 1
            all.keys[i] = rt_key(1, i % 2 ? rt_random_u64(&random) & RT_ID_MASK : i % 16);
        }
        dp_slices_add(&slices, all.predictions, all.labels, all.weights, all.keys, SAMPLES);
        assert_true(slices.count <= DP_SLICES_MAX);
    }
    uint32_t kept = 0;
    for (uint32_t i = 0; i < slices.count; i++) {
        const dp_slice_sums *one = &slices.sums[i];
        if ((one->key & RT_ID_MASK) >= 16)
            continue;
        kept++;
        test_close(one->samples, 10.0 * SAMPLES / 16, 0.1, 0, "fading sum");
        assert_true(one->positives < 1e-6 * one->samples);
    }
    assert_int_equal(kept, 8);
}

// Of many values those keep their names that came first.
static void bounds_names(void **state)
{
    (void)state;
    char text[RT_VALUE_NAME_BYTES], name[32];
    rt_value_names *names;
    assert_int_equal(rt_value_names_create("c", &names), RT_OK);
    assert_true(rt_value_names_are_of(names, "c") && !rt_value_names_are_of(names, "cc"));
    assert_false(rt_value_names_are_of(NULL, "c"));
    for (uint32_t i = 0; i < 3 * RT_VALUE_NAMES_MAX; i++) {
        snprintf(name, sizeof name, "value %u", i);
        rt_value_names_note(names, rt_key(2, i), name, strlen(name));
    }
    assert_string_equal(rt_value_names_find(names, rt_key(2, 5), text), "value 5");
    assert_string_equal(rt_value_names_find(names, rt_key(2, RT_VALUE_NAMES_MAX - 1), text),
                        "value 1023");
    assert_string_equal(rt_value_names_find(names, rt_key(2, RT_VALUE_NAMES_MAX), text),
                        "00000400");
    assert_string_equal(rt_value_names_find(names, rt_key(2, RT_ID_MISSING), text), "(empty)");
    assert_string_equal(rt_value_names_find(NULL, rt_key(2, 255), text), "000000ff");
    rt_value_names_destroy(names);
}

// What values hold is shown, and steers nothing; those that differ have names that differ.
static void names_print(void **state)
{
    static const struct {
        const char *value, *name;
    } all[] = {
        {"tea", "tea"},
        {"caf\xc3\xa9", "caf\xc3\xa9"},
        {"caf\xe9", "caf\\xe9"},
        {"caf\xe8", "caf\\xe8"},
        {"\x1b[31m", "\\x1b[31m"},
        {"\xc2\x9b"
         "31m",
         "\\xc2\\x9b31m"},
        {"a\nb", "a\\x0ab"},
        {"a\rb", "a\\x0db"},
        {"\x7f", "\\x7f"},
        {"a\xe2\x80\xa8"
         "b",
         "a\\xe2\\x80\\xa8b"},
        {"a\xe2\x80\xae"
         "b",
         "a\\xe2\\x80\\xaeb"},
        {"C:\\new", "C:\\new"},
        {"\\x1b[31m", "\\x5cx1b[31m"},
        {"\xc0\xaf", "\\xc0\\xaf"},
        {"0123456789012345678901234567890123456789012345678", NULL},
        {"012345678901234567890123456789012345678901234567X", NULL},
        {"0123456789012345678901234567890123456789\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9", NULL},
    };
    char texts[RT_COUNT_OF(all)][RT_VALUE_NAME_BYTES];
    rt_value_names *names;
    (void)state;
    assert_int_equal(rt_value_names_create("c", &names), RT_OK);
    for (uint32_t i = 0; i < RT_COUNT_OF(all); i++) {
        rt_value_names_note(names, rt_key(2, i), all[i].value, strlen(all[i].value));
        rt_value_names_find(names, rt_key(2, i), texts[i]);
        if (all[i].name && strcmp(texts[i], all[i].name) != 0)
            fail_msg("%u: got \"%s\", want \"%s\"", i, texts[i], all[i].name);
        assert_true(rt_json_is_utf8(texts[i], strlen(texts[i])));
        for (uint32_t other = 0; other < i; other++)
            assert_string_not_equal(texts[other], texts[i]);
    }
    rt_value_names_destroy(names);
}

TEST_MAIN(TEST(counts_columns), TEST(counts_columns_that_share_rows), TEST(which_column_is_watched),
          TEST(what_was_read), TEST(what_was_sent), TEST(judges_slices),
          TEST(judges_single_samples), TEST(keeps_what_comes_most), TEST(bounds_names),
          TEST(names_print))
