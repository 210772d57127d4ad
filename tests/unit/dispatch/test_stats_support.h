// test_stats_support - iterations that a dp_stats is told of, and what it has written. The n-th
// number of iteration t is n * t, so that no two members are equal, and a mean over three
// iterations is 2 n.
#ifndef TEST_STATS_SUPPORT_H
#define TEST_STATS_SUPPORT_H

#include "dispatch/coordinator/dp_stats.h"
#include "runtime/config/rt_formats.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/numbers/rt_negatives.h"
#include "tests/support/json_case.h"
#include "tests/support/test.h"

#define UNUSED __attribute__((unused))

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
    uint64_t left_out;        // workers that get no slice
    dp_stats *stats;
    dp_planned planned[ITERATIONS];
    float given[ITERATIONS][SAMPLES * OUTPUTS_MAX], weights[ITERATIONS][SAMPLES * OUTPUTS_MAX];
    float predictions[ITERATIONS][SAMPLES * OUTPUTS_MAX];
    uint64_t keys[SAMPLES], arrivals[SAMPLES];
    rt_meter *own[OUTPUTS_MAX]; // of every label, beside the stats's
} scene;

// ---- what is put in --------------------------------------------------------------------------

static UNUSED void open_tally(scene *s, const char *directory)
{
    dp_stats_config config = {.config = &s->config,
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
    assert_int_equal(dp_stats_create(&config, &s->stats, NULL), RT_OK);
}

static UNUSED void put_account(dp_account *account, uint64_t t)
{
    account->iterations = 1;
    account->samples = SAMPLES;
    account->predicted_s = 0.5 * (double)t;
    account->hits = (dp_hits){8 * t, 6 * t, 10 * t, 3 * t, 7 * t};
    account->clocks = (dp_clocks){21 * t, 22 * t, (uint32_t)(23 + t)};
    account->handed = (dp_handed){.rows = 24 * t, .gradients = 25 * t};
    for (uint32_t j = 0; j < WORKERS; j++) {
        const uint64_t x = t * (1 + 10 * j);
        account->workers[j] = (rt_counts){31 * x, 32 * x, 33 * x, 34 * x, 35 * x, 36 * x};
        account->traffic[j].up = 41 * x;
        account->traffic[j].down = 42 * x;
        account->micro_batch[j] = 43 * x;
        account->cost_s[j] = 0.25 * (double)x;
    }
}

// Before iteration t: less and less.
static UNUSED uint32_t hours_ago(uint32_t t)
{
    return ITERATIONS + 1 - t;
}

static UNUSED void put_planned(scene *s, uint32_t t)
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
                        .idle = s->left_out,
                        .label_offsets = {offsets[0], offsets[1], offsets[2]},
                        .labels = s->given[t - 1],
                        .weights = s->weights[t - 1],
                        .slice_keys = s->keys,
                        .dense_clipped = 104 * t,
                        .slice_bytes = 105 * t,
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
static UNUSED void put_samples(scene *s, uint32_t t)
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

static UNUSED rt_wire_report report_of(uint64_t t, uint32_t worker)
{
    const uint64_t x = t * (1 + 10 * worker);
    return (rt_wire_report){.sample_count = offsets[worker + 1] - offsets[worker],
                            .stale_reads = (uint32_t)(51 * x),
                            .loss_sum = t == 2 && worker == 0 ? NAN : 1,
                            .done = {61 * x, 62 * x, 63 * x, 64 * x, 65 * x, 66 * x},
                            .times = {worker ? 1000000u * 70 * x : COMPUTE_NS, 1000000u * 71 * x,
                                      1000000u * 72 * x, 1000000u * 73 * x, 1000000u * 74 * x},
                            .handed = (uint32_t)(81 * x),
                            .dense_early_bytes = 82 * x,
                            .gradients = (uint32_t)(83 * x)};
}

// What the stats should make of the samples, by meters of our own.
static UNUSED void judge(scene *s, uint32_t t)
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

static UNUSED void run_iteration(scene *s, uint32_t t)
{
    const rt_stream_stats stream = {
        .malformed = 121 * t, .odd_labels = 122 * t, .bytes_read = t, .bytes_all = 4};
    put_samples(s, t);
    put_planned(s, t);
    for (uint32_t j = WORKERS; j-- > 0;) {
        if (s->left_out >> j & 1)
            continue;
        const rt_wire_report report = report_of(t, j);
        dp_stats_report(s->stats, &s->planned[t - 1], j, &report,
                        s->predictions[t - 1] + offsets[j] * s->outputs);
    }
    judge(s, t);
    dp_stats_iteration(s->stats, &s->planned[t - 1], &stream);
    dp_ranges_fini(&s->planned[t - 1].ranges);
}

static UNUSED void open_scene(scene *s, uint32_t labels, uint32_t classes)
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

// The meters of our own weigh where the stats's have to.
static UNUSED void weigh(scene *s, uint32_t classes)
{
    for (uint32_t l = 0; l < s->labels; l++) {
        if (s->labels > 1 || s->config.stream.negatives_keep < 1)
            rt_meter_weigh(s->own[l]);
        if (classes)
            rt_meter_classify(s->own[l], classes);
    }
}

static UNUSED void close_scene(scene *s)
{
    dp_stats_destroy(s->stats);
    for (uint32_t l = 0; l < s->labels; l++)
        rt_meter_destroy(s->own[l]);
    rt_config_fini(&s->config);
}

// ---- what comes out --------------------------------------------------------------------------

static UNUSED char *read_file(const char *directory, const char *name)
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
static UNUSED cJSON *record_of(const char *directory, const char *kind, uint32_t number)
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

// The first record of this kind, but for its time.
static UNUSED void must_be_record(const char *directory, const char *kind, const char *text)
{
    cJSON *record = record_of(directory, kind, 1), *want = cJSON_Parse(text);
    assert_non_null(record);
    json_take_between(record, "time_s", 0, 3600);
    json_must_equal(record, want, kind);
    cJSON_Delete(record);
    cJSON_Delete(want);
}

#endif
