// Every member of what dp_tally writes, against values that are worked out here. The n-th number of
// iteration t is n * t, so that no two members are equal, and a mean over three iterations is 2 n.
#define _GNU_SOURCE // posix_openpt
#include "dispatch/coordinator/dp_tally.h"

#include <cjson/cJSON.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "runtime/numbers/rt_negatives.h"
#include "tests/support/json_case.h"
#include "tests/support/said.h"
#include "tests/support/test.h"

#define WORKERS 2u
#define SAMPLES 6u // of a batch; worker 0 has the first two
#define ITERATIONS 3u
#define OUTPUTS_MAX 3u
#define COMPUTE_NS UINT64_C(1000000000000) // of worker 0, for an iteration
#define HOUR_NS UINT64_C(3600000000000)
#define ROW_BYTES (sizeof(rt_wire_row) + 4 * sizeof(float))
#define UNIT_S (ROW_BYTES / 4e6) // on the fastest link

static const uint32_t offsets[WORKERS + 1] = {0, 2, SAMPLES};

typedef struct {
    rt_config config;
    dp_slices slices, own_slices;
    bool sliced, traced, resumed, keeps, progress;
    uint32_t outputs, labels; // of a sample
    dp_tally *tally;
    dp_planned planned[ITERATIONS];
    float given[ITERATIONS][SAMPLES * OUTPUTS_MAX], weights[ITERATIONS][SAMPLES * OUTPUTS_MAX];
    float predictions[ITERATIONS][SAMPLES * OUTPUTS_MAX];
    uint64_t keys[SAMPLES], arrivals[SAMPLES];
    rt_meter *own[OUTPUTS_MAX]; // of every label, beside the tally's
} scene;

// ---- what is put in --------------------------------------------------------------------------

static void open_tally(scene *s, const char *directory)
{
    dp_tally_config config = {.config = &s->config,
                              .directory = directory,
                              .dense_count = 1,
                              .slices = s->sliced ? &s->slices : NULL,
                              .trace = s->traced,
                              .resumed = s->resumed,
                              .progress = s->progress,
                              .keeps = s->keeps};
    config.costs.worker_count = WORKERS;
    config.costs.dense_bytes = 4321;
    config.costs.layout = (dp_layout){.field_count = 1, .values = {4}};
    config.costs.rates.links[0] = (dp_link){1e6, 2e6};
    config.costs.rates.links[1] = (dp_link){4e6, 3e6};
    assert_int_equal(dp_tally_create(&config, &s->tally, NULL), RT_OK);
}

static void put_account(dp_account *account, uint64_t t)
{
    account->iterations = 1;
    account->samples = SAMPLES;
    account->predicted_s = 0.5 * (double)t;
    account->hits = (dp_hits){8 * t, 6 * t, 10 * t, 3 * t, 7 * t};
    account->clocks = (dp_clocks){21 * t, 22 * t, (uint32_t)(23 + t)};
    account->handed = (dp_handed){.rows = 24 * t, .gradients = 25 * t};
    for (uint32_t j = 0; j < WORKERS; j++) {
        const uint64_t x = t * (1 + 10 * j);
        account->workers[j] = (rt_counts){31 * x, 32 * x, 33 * x, 34 * x, 35 * x, 36 * x, 37 * x};
        account->traffic[j].up = 41 * x;
        account->traffic[j].down = 42 * x;
        account->micro_batch[j] = 43 * x;
        account->cost_s[j] = 0.25 * (double)x;
    }
}

// Before iteration t: less and less.
static uint32_t hours_ago(uint32_t t)
{
    return ITERATIONS + 1 - t;
}

static void put_planned(scene *s, uint32_t t)
{
    dp_planned *one = &s->planned[t - 1];
    struct timespec clock;
    clock_gettime(CLOCK_REALTIME, &clock);
    for (uint32_t i = 0; i < SAMPLES; i++) { // the last one came long ago, the second is not known
        const uint64_t hours = hours_ago(t) * (i == SAMPLES - 1 ? 4 : 1);
        s->arrivals[i] = i == 1 ? 0 : (uint64_t)clock.tv_sec * 1000000000u - hours * HOUR_NS;
        s->keys[i] = rt_key(0, i % 2);
    }
    *one = (dp_planned){.sequence = t + 100,
                        .iteration = t,
                        .keys = 101 * t,
                        .admitted = 102 * t,
                        .refused = 103 * t,
                        .sample_count = SAMPLES,
                        .arrival_count = SAMPLES,
                        .arrivals = s->arrivals,
                        .participants = t == 2 ? 2 : 3,
                        .label_offsets = {offsets[0], offsets[1], offsets[2]},
                        .labels = s->given[t - 1],
                        .weights = s->weights[t - 1],
                        .slice_keys = s->keys,
                        .dense_clipped = 104 * t,
                        .slice_bytes = 105 * t,
                        .placement_bytes = {106 * t, 107 * t},
                        .decision = {.alpha = 0.25 * t,
                                     .opt_samples = t,
                                     .heu_samples = 2,
                                     .error_measured = t != 2,
                                     .error_bound_s = 0.5 * t,
                                     .error_s = 0.125 * t,
                                     .device_s = 0.75 * t},
                        .fingerprint = 111 * t,
                        .decision_ns = 1000000u * 112 * t,
                        .choice_ns = 1000000u * 113 * t,
                        .commit_ns = 1000000u * 114 * t,
                        .read_ns = 1000000u * 115 * t,
                        .ready_ns = rt_now_ns() - 2 * HOUR_NS};
    put_account(&one->account, t);
    rt_batch batch;
    rt_batch_init(&batch, 1);
    for (uint32_t i = 0; i < 2; i++) {
        const float dense = i ? NAN : (float)t;
        assert_int_equal(rt_batch_append(&batch, (float)i, &dense, NULL, 0), RT_OK);
    }
    assert_int_equal(dp_ranges_init(&one->ranges, 1, false), RT_OK);
    dp_ranges_add(&one->ranges, &batch);
    rt_batch_fini(&batch);
}

// Of two labels every third sample lacks the second; of classes the outputs are probabilities.
static void put_samples(scene *s, uint32_t t)
{
    rt_random random = {t};
    for (uint32_t i = 0; i < SAMPLES * s->outputs; i++)
        s->predictions[t - 1][i] = (float)(0.05 + 0.3 * rt_random_unit(&random));
    for (uint32_t i = 0; i < SAMPLES * s->labels; i++) {
        const bool lacks = s->labels == 2 && i % 2 && i / 2 % 3 == 0;
        s->weights[t - 1][i] = lacks ? 0 : 1;
        s->given[t - 1][i] = lacks ? 0 : (float)((i / s->labels + t + i % s->labels) % 2);
    }
}

static rt_wire_report report_of(uint64_t t, uint32_t worker)
{
    const uint64_t x = t * (1 + 10 * worker);
    return (rt_wire_report){.sample_count = offsets[worker + 1] - offsets[worker],
                            .stale_reads = (uint32_t)(51 * x),
                            .loss_sum = t == 2 && worker == 0 ? NAN : 1,
                            .done = {61 * x, 62 * x, 63 * x, 64 * x, 65 * x, 66 * x, 67 * x},
                            .times = {worker ? 1000000u * 70 * x : COMPUTE_NS, 1000000u * 71 * x,
                                      1000000u * 72 * x, 1000000u * 73 * x, 1000000u * 74 * x},
                            .handed = (uint32_t)(81 * x),
                            .dense_early_bytes = 82 * x,
                            .gradients = (uint32_t)(83 * x)};
}

// What the tally should make of the samples, by meters of our own.
static void judge(scene *s, uint32_t t)
{
    const double keep = s->config.stream.negatives_keep;
    const float *given = s->given[t - 1], *weights = s->weights[t - 1];
    float p[SAMPLES * OUTPUTS_MAX], first[SAMPLES], l[SAMPLES], w[SAMPLES];
    rt_negatives_correct(s->predictions[t - 1], SAMPLES * s->outputs, keep, p);
    for (uint32_t i = 0; i < SAMPLES; i++) {
        first[i] = p[i * s->outputs];
        l[i] = given[i * s->labels];
        w[i] = weights[i * s->labels];
    }
    if (s->sliced)
        dp_slices_add(&s->own_slices, first, l, w, s->keys, SAMPLES);
    for (uint32_t label = 0; label < s->labels; label++) {
        uint32_t count = 0;
        float one[SAMPLES];
        for (uint32_t i = 0; i < SAMPLES; i++) {
            const uint32_t at = i * s->labels + label;
            if (weights[at] == 0)
                continue;
            one[count] = p[i * s->outputs + label];
            l[count] = given[at];
            w[count++] = weights[at];
        }
        rt_meter_begin_window(s->own[label]);
        if (s->outputs > s->labels)
            rt_meter_add_classes(s->own[label], p, given, SAMPLES);
        else if (s->labels > 1 || keep < 1)
            rt_meter_add_weighted(s->own[label], one, l, w, 1 / keep, count);
        else
            rt_meter_add(s->own[label], one, l, count);
    }
    rt_meter_roll(s->own[0], s->config.watch.window_samples);
}

static void run_iteration(scene *s, uint32_t t)
{
    const rt_stream_stats stream = {
        .malformed = 121 * t, .odd_labels = 122 * t, .bytes_read = t, .bytes_all = 4};
    put_samples(s, t);
    put_planned(s, t);
    for (uint32_t j = WORKERS; j-- > 0;) {
        const rt_wire_report report = report_of(t, j);
        dp_tally_report(s->tally, &s->planned[t - 1], j, &report,
                        s->predictions[t - 1] + offsets[j] * s->outputs);
    }
    judge(s, t);
    dp_tally_iteration(s->tally, &s->planned[t - 1], &stream);
    dp_ranges_fini(&s->planned[t - 1].ranges);
}

static void open_scene(scene *s, uint32_t labels, uint32_t classes)
{
    memset(s, 0, sizeof *s);
    assert_int_equal(rt_config_init(&s->config), RT_OK);
    s->config.worker_count = WORKERS;
    s->config.samples_per_worker = SAMPLES;
    s->config.watch.window_samples = SAMPLES + 2; // two iterations at most
    s->config.dispatch.hand_over = s->config.dispatch.reduce = true;
    s->config.consistency.bounded = true;
    s->config.stream.format = RT_FORMAT_SYNTHETIC;
    s->config.stream.synthetic_labels = labels;
    s->labels = labels;
    s->outputs = classes ? classes : labels;
    s->slices = s->own_slices = (dp_slices){.column = "shop", .window_samples = 30};
    if (classes) {
        static const rt_column column = {.kind = RT_COLUMN_LABEL, .classes = OUTPUTS_MAX};
        s->config.stream.format = RT_FORMAT_TABLE;
        assert_int_equal(rt_config_copy_columns(&column, 1, &s->config.stream.table.columns),
                         RT_OK);
        s->config.stream.table.column_count = 1;
        assert_int_equal(classes, rt_config_class_count(&s->config.stream));
    }
    for (uint32_t l = 0; l < labels; l++)
        assert_int_equal(rt_meter_create(&s->own[l]), RT_OK);
}

// The meters of our own weigh where the tally's have to.
static void weigh(scene *s, uint32_t classes)
{
    for (uint32_t l = 0; l < s->labels; l++) {
        if (s->labels > 1 || s->config.stream.negatives_keep < 1)
            rt_meter_weigh(s->own[l]);
        if (classes)
            rt_meter_classify(s->own[l], classes);
    }
}

static void close_scene(scene *s)
{
    dp_tally_destroy(s->tally);
    for (uint32_t l = 0; l < s->labels; l++)
        rt_meter_destroy(s->own[l]);
    rt_config_fini(&s->config);
}

// ---- what comes out --------------------------------------------------------------------------

static char *read_file(const char *directory, const char *name)
{
    static char text[1 << 16];
    char path[512];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "r");
    if (!file)
        return NULL;
    const size_t size = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[size] = '\0';
    return text;
}

// The number-th record of this kind, from 1.
static cJSON *record_of(const char *directory, const char *kind, uint32_t number)
{
    char *rest = read_file(directory, "metrics.jsonl"), *line;
    assert_non_null(rest);
    while ((line = strsep(&rest, "\n")) && *line) {
        cJSON *json = cJSON_Parse(line);
        assert_non_null(json);
        if (strcmp(cJSON_GetObjectItem(json, "record")->valuestring, kind) == 0 && --number == 0)
            return json;
        cJSON_Delete(json);
    }
    return NULL;
}

static void take_latency(cJSON *record, double p50_h, double p99_h, double max_h)
{
    const double hour = (double)HOUR_NS * 1e-6, bin = 0.025; // of rt_latency.h
    cJSON *latency = cJSON_DetachItemFromObjectCaseSensitive(record, "latency_ms");
    assert_non_null(latency);
    test_close(cJSON_GetObjectItem(latency, "p50")->valuedouble, p50_h * hour, bin, 0, "p50");
    test_close(cJSON_GetObjectItem(latency, "p99")->valuedouble, p99_h * hour, bin, 0, "p99");
    test_close(cJSON_GetObjectItem(latency, "max")->valuedouble, max_h * hour, bin, 0, "max");
    cJSON_Delete(latency);
}

static void take_ages(cJSON *record)
{
    const double hour = (double)HOUR_NS * 1e-6;
    cJSON *reported = cJSON_DetachItemFromObjectCaseSensitive(record, "reported_before_ms");
    assert_int_equal(cJSON_GetArraySize(reported), WORKERS);
    for (int j = 0; j < (int)WORKERS; j++) {
        const double before = cJSON_GetArrayItem(reported, j)->valuedouble;
        assert_true(before > 0 && before < hour);
    }
    cJSON_Delete(reported);
    json_take_between(record, "planned_before_ms", 2 * hour, 3 * hour);
    json_take_between(record, "time_s", 0, 3600);
}

typedef struct {
    char text[1 << 14];
    size_t size;
} writer;

static void put(writer *to, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    to->size += (size_t)vsnprintf(to->text + to->size, sizeof to->text - to->size, format, list);
    va_end(list);
    assert_true(to->size < sizeof to->text);
}

static void put_number(writer *to, const char *name, double value)
{
    put(to, isfinite(value) ? "\"%s\":%.17g," : "\"%s\":null,", name, value);
}

static void put_quality(writer *to, const char *name, const rt_quality *one)
{
    put(to, "\"%s\":{", name);
    put_number(to, "first_sample", (double)one->first_sample);
    put_number(to, "samples", (double)one->sample_count);
    put_number(to, "log_loss", one->log_loss);
    put_number(to, "auc", one->auc);
    put_number(to, "normalised_entropy", one->normalised_entropy);
    put_number(to, "calibration", one->calibration);
    put_number(to, one->class_count ? "accuracy" : "mean_label", one->mean_label);
    put(to, "\"invalid\":%u},", (unsigned)one->invalid_count);
}

static void put_qualities(writer *to, const rt_quality *all, const rt_quality *last)
{
    put_number(to, "logloss", all->log_loss);
    put_number(to, "auc", all->auc);
    put_number(to, "normalised_entropy", all->normalised_entropy);
    put_number(to, "calibration", all->calibration);
    put_number(to, "logloss_last_fifth", last->log_loss);
    put_number(to, "auc_last_fifth", last->auc);
    put_number(to, "normalised_entropy_last_fifth", last->normalised_entropy);
    put_number(to, "calibration_last_fifth", last->calibration);
    if (all->class_count) {
        put_number(to, "accuracy", all->mean_label);
        put_number(to, "accuracy_last_fifth", last->mean_label);
    }
    put_number(to, "invalid_predictions", (double)all->invalid_count);
}

static void put_counts(writer *to, double first, double x)
{
    put(to,
        "{\"miss_pull\":%.17g,\"update_push\":%.17g,\"evict_push\":%.17g,\"flush_push\":%.17g,"
        "\"grad_push\":%.17g,\"first_touch\":%.17g,\"pull_sum\":%.17g}",
        first * x, (first + 1) * x, (first + 2) * x, (first + 3) * x, (first + 4) * x,
        (first + 5) * x, (first + 6) * x);
}

// What iteration t and a mean over iterations have in common; x is t, or the mean of t.
static void put_shared(writer *to, double x, double alpha, double opt, double heu, double error)
{
    put(to, "\"cost\":%.17g,", 0.25 * x * 12 / UNIT_S);
    put(to, "\"alpha\":%.17g,\"opt_share\":%.17g,\"heu_share\":%.17g,", alpha, opt, heu);
    put(to, "\"dispatch_error_bound\":%.17g,", 0.5 * x / UNIT_S);
    put_number(to, "dispatch_error", error / UNIT_S);
    put(to, "\"dispatch_device_ms\":%.17g,\"decision_ms\":%.17g,", 750 * x, 112 * x);
    put(to, "\"slice_bytes\":%.17g,", 105 * x);
    put(to, "\"placement_bytes\":{\"coordinator\":%.17g,\"worker\":%.17g},", 106 * x, 107 * x);
    put(to, "\"hit_ratio\":{\"lookups\":0.75,\"keys\":0.3},");
    put(to, "\"bytes_up\":[%.17g,%.17g],\"bytes_down\":[%.17g,%.17g],", 41 * x, 41 * 11 * x, 42 * x,
        42 * 11 * x);
    put(to, "\"dense_early_bytes\":[%.17g,%.17g],\"times_ms\":[", 82 * x, 82 * 11 * x);
    for (uint32_t j = 0; j < WORKERS; j++) {
        const double y = x * (1 + 10 * j);
        put(to,
            "{\"compute\":%.17g,\"dense\":%.17g,\"push\":%.17g,\"pull\":%.17g,\"plan\":%.17g}%s",
            j ? 70 * y : (double)COMPUTE_NS * 1e-6, 71 * y, 72 * y, 73 * y, 74 * y, j ? "]," : ",");
    }
}

static void check_iteration(const scene *s, const char *directory, uint32_t t)
{
    static writer want;
    want.size = 0;
    const rt_quality window = rt_meter_rolled(s->own[0]);
    put(&want, "{\"record\":\"iteration\",\"iteration\":%u,\"samples\":%u,\"participants\":%s,", t,
        SAMPLES, t == 2 ? "[1]" : "[0,1]");
    put(&want, "\"keys\":%u,\"admitted\":%u,\"refused\":%u,", 101 * t, 102 * t, 103 * t);
    put(&want, "\"malformed_lines\":%u,\"odd_labels\":%u,", 121 * t, 122 * t);
    for (uint32_t l = 0; l < s->labels; l++) {
        const rt_quality one = rt_meter_window(s->own[l]);
        if (l == 0)
            put_quality(&want, "quality", &one);
        if (s->labels > 1 && l == 0)
            put(&want, "\"labels\":{");
        if (s->labels > 1)
            put_quality(&want, l ? "label2" : "label", &one);
        want.size -= l == s->labels - 1 && l > 0; // the comma
        put(&want, l == s->labels - 1 && l > 0 ? "}," : "");
    }
    put_quality(&want, "window", &window);
    put(&want, "\"bad\":%s,\"dense_clipped\":%u,", t == 2 ? "true" : "false", 104 * t);
    put(&want,
        "\"ranges\":{\"label_min\":0,\"label_max\":1,\"label_mean\":0.5,\"dense_min\":[%u],"
        "\"dense_max\":[%u],\"dense_not_finite\":1},",
        t, t);
    put(&want, "\"predicted_ms\":%u,\"choice_ms\":%u,\"commit_ms\":%u,\"read_ms\":%u,", 500 * t,
        113 * t, 114 * t, 115 * t);
    put(&want, "\"staleness\":{\"stale_keys\":%u,\"clock_messages\":%u,\"clock_spread\":%u},",
        21 * t, 22 * t, 23 + t);
    put(&want, "\"rows_handed\":%u,\"gradients_handed\":%u,", 81 * 12 * t, 83 * 12 * t);
    put_shared(&want, t, 0.25 * t, t / 6.0, 2 / 6.0, t == 2 ? (double)NAN : 0.125 * t);
    put(&want, "\"ops\":");
    put_counts(&want, 31, 12 * t);
    put(&want, "}");
    cJSON *record = record_of(directory, "iteration", t), *json = cJSON_Parse(want.text);
    assert_non_null(record);
    assert_non_null(json);
    take_ages(record);
    take_latency(record, hours_ago(t), 4 * hours_ago(t), 4 * hours_ago(t));
    json_must_equal(record, json, "iteration");
    cJSON_Delete(record);
    cJSON_Delete(json);
}

static uint64_t fingerprint_of_all(void)
{
    uint64_t all = 0;
    for (uint32_t t = 1; t <= ITERATIONS; t++)
        all = dp_fingerprint_add(all, 111 * t);
    return all;
}

static void put_summary(scene *s, writer *to)
{
    const double x = 2;
    const rt_quality all = rt_meter_total(s->own[0]), last = rt_meter_last_fifth(s->own[0]);
    put(to, "{\"iterations\":%u,\"samples\":%u,", ITERATIONS, ITERATIONS * SAMPLES);
    put_qualities(to, &all, &last);
    for (uint32_t l = 0; s->labels > 1 && l < s->labels; l++) {
        const rt_quality one = rt_meter_total(s->own[l]), fifth = rt_meter_last_fifth(s->own[l]);
        put(to, l ? "\"label2\":{" : "\"labels\":{\"label\":{");
        put_qualities(to, &one, &fifth);
        put(to, "\"samples\":%u}%s,", (unsigned)one.sample_count, l ? "}" : "");
    }
    put(to, "\"bad_batches\":1,\"stale_reads\":%u,", 51 * 12 * 6);
    put(to,
        "\"ranges\":{\"label_min\":0,\"label_max\":1,\"dense_min\":[1],\"dense_max\":[3],"
        "\"dense_not_finite\":3,\"label_mean\":%s},",
        s->outputs > s->labels ? "null" : "0.5");
    put(to, "\"rows_handed\":%g,\"gradients_handed\":%g,", 24 * x, 25 * x);
    put(to, "\"staleness\":{\"stale_keys\":%g,\"clock_messages\":%g,\"clock_spread\":26},", 21 * x,
        22 * x);
    put(to, "\"predicted_iteration_ms\":%g,", 500 * x);
    put_shared(to, x, 0.5, 6 / 18.0, 6 / 18.0, 0.25);
    put(to, "\"plan_fingerprint\":\"%016llx\",", (unsigned long long)fingerprint_of_all());
    put(to, "\"dense_bytes\":4321,\"malformed_lines\":1,\"odd_labels\":2,\"duplicates\":3,"
            "\"input_bytes_lost\":4,\"negatives_left_out\":5,\"input_error\":\"\",\"inputs\":[],"
            "\"dense_clipped\":6,\"interrupted\":true,\"ops_by_worker\":[");
    put_counts(to, 61, x);
    put(to, ",");
    put_counts(to, 61, 11 * x);
    put(to, "],\"ops\":");
    put_counts(to, 61, 12 * x);
    put(to, "}");
}

static const dp_reading reading = {.stats = {.malformed = 1,
                                             .lines = 7,
                                             .odd_labels = 2,
                                             .duplicates = 3,
                                             .bytes_lost = 4,
                                             .left_out = 5,
                                             .dense_clipped = 6}};

static void check_summary(scene *s, const char *directory, double computed_s)
{
    static writer want;
    want.size = 0;
    put_summary(s, &want);
    cJSON *summary = cJSON_Parse(read_file(directory, "summary.json"));
    cJSON *json = cJSON_Parse(want.text);
    assert_non_null(summary);
    assert_non_null(json);
    const double seconds = cJSON_GetObjectItem(summary, "seconds")->valuedouble;
    json_take_between(summary, "seconds", computed_s, computed_s + 900);
    json_take_between(summary, "samples_per_s", ITERATIONS * SAMPLES / seconds * (1 - 1e-9),
                      ITERATIONS * SAMPLES / seconds * (1 + 1e-9));
    if (s->resumed) // of this process alone: the last iteration
        take_latency(summary, 1, 4, 4);
    else // 1, 2, 3 hours, four times each, and 4, 8, 12
        take_latency(summary, 2, 12, 12);
    json_must_equal(summary, json, "summary");
    cJSON_Delete(summary);
    cJSON_Delete(json);
}

// Line by line. Rates and times depend on the clock.
static void check_told(scene *s, const char *told)
{
    static writer want;
    const rt_quality all = rt_meter_total(s->own[0]), last = rt_meter_last_fifth(s->own[0]);
    const char *rest = strchr(told, '\n');
    want.size = 0;
    assert_ptr_equal(strstr(told, "3 iterations, 18 samples, "), told);
    assert_non_null(strstr(told, " samples/s (interrupted)\n"));
    put(&want, "\nlog loss %.4f, AUC %.4f; over the last fifth %.4f, %.4f\n", all.log_loss, all.auc,
        last.log_loss, last.auc);
    if (s->outputs > s->labels)
        put(&want, "accuracy %.4f; over the last fifth %.4f\n", all.mean_label, last.mean_label);
    for (uint32_t l = 0; s->labels > 1 && l < s->labels; l++) {
        const rt_quality one = rt_meter_total(s->own[l]);
        put(&want, "%s: log loss %.4f, AUC %.4f, calibration %.3f\n", l ? "label2" : "label",
            one.log_loss, one.auc, one.calibration);
    }
    put(&want,
        "transmission cost per iteration %.0f rows on the fastest link, hits 75.0%% of "
        "look-ups, stale reads %u\n",
        0.25 * 2 * 12 / UNIT_S, 51 * 12 * 6);
    if (!rest || strncmp(rest, want.text, want.size) != 0)
        fail_msg("%s\nwithout\n%s", told, want.text);
    double half, most;
    rest = strstr(told, "from arrival");
    assert_int_equal(
        sscanf(rest, "from arrival to trained rows %lf ms (half of the samples), %lf ms (99%%)\n",
               &half, &most),
        2);
    test_close(half, s->resumed ? 3.6e6 : 2 * 3.6e6, 0.025, 0, "half of the samples");
    test_close(most, s->resumed ? 4 * 3.6e6 : 12 * 3.6e6, 0.025, 0, "all of them");
    assert_string_equal(
        strchr(rest, '\n'),
        "\n3 events had come before (stream.id) and were dropped\n"
        "1 batches had a loss that is not finite; nothing of them was applied\n"
        "1 of 7 lines were malformed and left out\n"
        "2 labels were neither 0 nor 1\n"
        "5 samples with label 0 were left out (stream.negatives_keep)\n"
        "4 bytes that pipes gave were not trained: restarts lost them, or they were left when the "
        "run ended\n"
        "6 dense values lay beyond 10 deviations and were clipped to that\n");
}

// Stopped behind iteration 2 and resumed, a run has the same records and the same summary.
static void run_to_end(scene *s, const char *directory, uint32_t labels, uint32_t classes,
                       double keep, bool stops)
{
    said_output out;
    rt_bytes saved = {0};
    open_scene(s, labels, classes);
    s->config.stream.negatives_keep = keep;
    s->sliced = classes == 0;
    weigh(s, classes);
    open_tally(s, directory);
    for (uint32_t t = 1; t <= ITERATIONS; t++) {
        run_iteration(s, t);
        if (stops && t == 2) {
            dp_tally_save(s->tally, &saved);
            dp_tally_destroy(s->tally);
            s->resumed = true;
            open_tally(s, directory);
            rt_reader reader = rt_bytes_reader(&saved);
            assert_int_equal(dp_tally_load(s->tally, &reader, NULL), RT_OK);
            assert_int_equal(reader.left, 0);
        }
        if (!stops) // what is rolled is not saved
            check_iteration(s, directory, t);
    }
    assert_int_equal(dp_tally_samples(s->tally), ITERATIONS * SAMPLES);
    assert_int_equal(dp_tally_iterations(s->tally), ITERATIONS);
    assert_memory_equal(&s->slices, &s->own_slices, sizeof s->slices);
    assert_int_equal(s->slices.count, classes ? 0 : 2);
    said_begin(&out, STDOUT_FILENO);
    const rt_status status = dp_tally_finish(s->tally, &reading, true, NULL);
    const char *told = said_end(&out);
    assert_int_equal(status, RT_OK);
    check_told(s, told);
    check_summary(s, directory, (stops ? 2 : 1) * (double)COMPUTE_NS * 1e-9);
    close_scene(s);
    rt_bytes_fini(&saved);
}

static void run(uint32_t labels, uint32_t classes, double keep)
{
    static scene s;
    const char *directory = test_directory();
    run_to_end(&s, directory, labels, classes, keep, false);
    run_to_end(&s, directory, labels, classes, keep, true);
}

static void one_label(void **state)
{
    (void)state;
    run(1, 0, 1);
}

static void two_labels(void **state)
{
    (void)state;
    run(2, 0, 1);
}

static void classes(void **state)
{
    (void)state;
    run(1, OUTPUTS_MAX, 1);
}

static void half_of_the_negatives(void **state)
{
    (void)state;
    run(1, 0, 0.5);
}

// The first record of this kind, but for its time.
static void must_be_record(const char *directory, const char *kind, const char *text)
{
    cJSON *record = record_of(directory, kind, 1), *want = cJSON_Parse(text);
    assert_non_null(record);
    json_take_between(record, "time_s", 0, 3600);
    json_must_equal(record, want, kind);
    cJSON_Delete(record);
    cJSON_Delete(want);
}

static void a_sweep(void **state)
{
    (void)state;
    static scene s;
    const dp_sweep_record sweep = {
        .iteration = 1, .floor = 2, .forgotten = 3, .keys_ended = 4, .keys = 5};
    const char *directory = test_directory();
    open_scene(&s, 1, 0);
    open_tally(&s, directory);
    run_iteration(&s, 1); // the file has its name from then on
    dp_tally_swept(s.tally, &sweep, 6, 7.5);
    close_scene(&s);
    must_be_record(directory, "sweep",
                   "{\"record\":\"sweep\",\"iteration\":1,\"floor\":2,\"forgotten\":3,"
                   "\"keys_ended\":4,\"keys\":5,\"rows_ended\":6,\"pause_ms\":7.5}");
}

// ---- files of an earlier run -----------------------------------------------------------------

static void write_file(const char *directory, const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static bool has_file(const char *directory, const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return access(path, F_OK) == 0;
}

static uint32_t lines_of(const char *directory, const char *name)
{
    uint32_t count = 0;
    for (const char *at = read_file(directory, name); at && *at; at++)
        count += *at == '\n';
    return count;
}

// They are there until the first iteration, and are replaced then.
static void a_fresh_run_replaces_files(void **state)
{
    (void)state;
    static scene s;
    static const char line[] = "{\"iteration\":1,\"worker\":1,\"samples\":4,\"miss_pull\":671,"
                               "\"update_push\":682,\"evict_push\":693,\"flush_push\":704,"
                               "\"grad_push\":715,\"first_touch\":726,\"pull_sum\":737}\n";
    const char *directory = test_directory();
    write_file(directory, "trace.jsonl", "old\n");
    for (uint32_t iterations = 0; iterations < 2; iterations++) {
        open_scene(&s, 1, 0);
        s.traced = true;
        open_tally(&s, directory);
        assert_string_equal(read_file(directory, "trace.jsonl"), "old\n");
        assert_true(has_file(directory, "trace.jsonl.new"));
        if (iterations)
            run_iteration(&s, 1);
        close_scene(&s);
        assert_false(has_file(directory, "trace.jsonl.new"));
    }
    assert_non_null(strstr(read_file(directory, "trace.jsonl"), line));
    assert_int_equal(lines_of(directory, "trace.jsonl"), WORKERS);
    open_scene(&s, 1, 0); // without a trace
    open_tally(&s, directory);
    assert_false(has_file(directory, "trace.jsonl.new"));
    close_scene(&s);
}

// Of a start that goes on with the files, but not with the history, readers are told.
static void a_later_start_keeps_files(void **state)
{
    (void)state;
    static scene s;
    const char *directory = test_directory();
    for (uint32_t start = 0; start < 4; start++) { // 1, 3: resumed
        open_scene(&s, 1, 0);
        s.traced = s.keeps = true;
        s.resumed = start % 2;
        open_tally(&s, directory);
        assert_false(has_file(directory, "trace.jsonl.new"));
        run_iteration(&s, 1);
        close_scene(&s);
    }
    assert_int_equal(lines_of(directory, "trace.jsonl"), 4 * WORKERS);
    assert_int_equal(lines_of(directory, "metrics.jsonl"), 4 + 1);
    must_be_record(directory, "resumed",
                   "{\"record\":\"resumed\",\"iteration\":0,\"caches\":false}");
    assert_null(record_of(directory, "resumed", 2)); // not of the first start: there was nothing
}

static void a_trace_that_cannot_be_written(void **state)
{
    (void)state;
    static scene s;
    rt_error error = {0};
    char path[512];
    const char *directory = test_directory();
    snprintf(path, sizeof path, "%s/trace.jsonl.new", directory);
    assert_int_equal(mkdir(path, 0700), 0);
    open_scene(&s, 1, 0);
    const dp_tally_config config = {
        .config = &s.config, .directory = directory, .trace = true, .costs.worker_count = WORKERS};
    assert_int_equal(dp_tally_create(&config, &s.tally, &error), RT_IO);
    assert_non_null(strstr(error.text, "trace.jsonl.new: cannot write"));
    assert_null(s.tally);
    close_scene(&s);
}

// ---- the line of progress --------------------------------------------------------------------

// To a terminal four times a second at most, with a rate and the time that is left from the second
// line on.
static void progress(void **state)
{
    (void)state;
    static scene s;
    static char text[4096];
    double rate = 0, left = 0, loss;
    const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
    assert_true(terminal >= 0 && grantpt(terminal) == 0 && unlockpt(terminal) == 0);
    const int end = open(ptsname(terminal), O_RDWR | O_NOCTTY), own = dup(STDERR_FILENO);
    open_scene(&s, 1, 0);
    s.progress = true;
    dup2(end, STDERR_FILENO);
    open_tally(&s, NULL);
    run_iteration(&s, 1);
    run_iteration(&s, 2); // it is too soon
    usleep(300000);
    run_iteration(&s, 3);
    dup2(own, STDERR_FILENO);
    for (size_t size = 0; !strstr(text, " s left"); size = strlen(text))
        assert_true(read(terminal, text + size, sizeof text - 1 - size) > 0);
    char *second = strstr(text, "\r\033[Kiteration 3: ");
    assert_ptr_equal(strstr(text, "\r\033[Kiteration 1: log loss "), text);
    assert_null(strstr(text, "iteration 2"));
    assert_non_null(second);
    assert_null(strchr(text, '\n'));
    assert_int_equal(sscanf(second + 4, "iteration 3: %lf samples/s, log loss %lf", &rate, &loss),
                     2);
    assert_true(rate > 0 && rate <= 2 * SAMPLES / 0.3 + 1);
    char want[128];
    snprintf(want, sizeof want, ", cost %.0f, hits 75.0%%, ", 0.25 * 3 * 12 / UNIT_S);
    const char *cost = strstr(second, want);
    assert_non_null(cost);
    assert_int_equal(sscanf(cost + strlen(want), "%lf s left", &left), 1);
    test_close(left, 1000.0 / 3, 0.1, 0, "seconds left"); // three quarters took a thousand
    *second = '\0';
    assert_null(strstr(text, "left"));
    assert_null(strstr(text, "samples/s"));
    close_scene(&s);
    close(end);
    close(own);
    close(terminal);
}

TEST_MAIN(TEST(a_sweep), TEST(a_fresh_run_replaces_files), TEST(a_later_start_keeps_files),
          TEST(a_trace_that_cannot_be_written), TEST(progress), TEST(one_label), TEST(two_labels),
          TEST(classes), TEST(half_of_the_negatives))
