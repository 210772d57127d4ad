// Every member of what dp_stats writes, against values that are worked out here.
#include "tests/unit/dispatch/test_stats_support.h"

#include <unistd.h>

#include "tests/support/said.h"

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
        "\"grad_push\":%.17g,\"first_touch\":%.17g}",
        first * x, (first + 1) * x, (first + 2) * x, (first + 3) * x, (first + 4) * x,
        (first + 5) * x);
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
    put(&want, "\"untrained\":false,\"bad\":%s,\"dense_clipped\":%u,", t == 2 ? "true" : "false",
        104 * t);
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
    put(to, "\"solver\":\"transport\",\"held_out\":0,");
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
            "\"input_bytes_lost\":4,\"input_events_lost\":7,\"input_breaks\":8,"
            "\"negatives_left_out\":5,\"input_error\":\"\",\"inputs\":[],"
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
                                             .events_lost = 7,
                                             .breaks = 8,
                                             .left_out = 5,
                                             .dense_clipped = 6}};

// Of 1,000 bytes, 450 are of rows and 6 of probes, which are too few to be told.
static const rt_traffic moved = {.bytes = {[RT_CAUSE_rows] = 450,
                                           [RT_CAUSE_row_state] = 50,
                                           [RT_CAUSE_dense] = 494,
                                           [RT_CAUSE_probes] = 6}};

// As it was told, and gone from the summary.
static void take_traffic(cJSON *summary)
{
    cJSON *traffic = cJSON_DetachItemFromObject(summary, "traffic");
    cJSON *want = cJSON_Parse("{\"requests\":0,\"rows\":450,\"first_rows\":0,\"row_state\":50,"
                              "\"gradients\":0,\"dense\":494,\"dense_weights\":0,\"slices\":0,"
                              "\"reports\":0,\"checkpoints\":0,\"versions\":0,\"feed\":0,"
                              "\"questions\":0,\"probes\":6,\"control\":0,\"all\":1000,"
                              "\"samples\":8,\"a_sample\":125}");
    json_must_equal(traffic, want, "traffic");
    cJSON_Delete(traffic);
    cJSON_Delete(want);
}

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
    take_traffic(summary);
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
        "look-ups, stale reads %u\n"
        "over the links 125 bytes a sample: rows 45%%, row_state 5%%, dense 49%%\n",
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
        "7 events of the input are lost: the log says where\n"
        "the input was not the one any more that had been read, 8 times: the log says where\n"
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
            dp_stats_save(s->stats, &saved);
            dp_stats_destroy(s->stats);
            s->resumed = true;
            open_tally(s, directory);
            rt_reader reader = rt_bytes_reader(&saved);
            assert_int_equal(dp_stats_load(s->stats, &reader, NULL), RT_OK);
            assert_int_equal(reader.left, 0);
        }
        if (!stops) // what is rolled is not saved
            check_iteration(s, directory, t);
    }
    assert_int_equal(dp_stats_samples(s->stats), ITERATIONS * SAMPLES);
    assert_int_equal(dp_stats_iterations(s->stats), ITERATIONS);
    assert_memory_equal(&s->slices, &s->own_slices, sizeof s->slices);
    assert_int_equal(s->slices.count, classes ? 0 : 2);
    dp_stats_traffic(s->stats, &moved, 8);
    said_begin(&out, STDOUT_FILENO);
    const rt_status status = dp_stats_finish(s->stats, &reading, true, NULL);
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
    dp_stats_swept(s.stats, &sweep, 6, 7.5);
    close_scene(&s);
    must_be_record(directory, "sweep",
                   "{\"record\":\"sweep\",\"iteration\":1,\"floor\":2,\"forgotten\":3,"
                   "\"keys_ended\":4,\"keys\":5,\"rows_ended\":6,\"pause_ms\":7.5}");
}

TEST_MAIN(TEST(a_sweep), TEST(one_label), TEST(two_labels), TEST(classes),
          TEST(half_of_the_negatives))
