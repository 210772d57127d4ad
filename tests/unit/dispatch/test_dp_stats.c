#include "dispatch/coordinator/dp_stats.h"

#include <cjson/cJSON.h>
#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/fields_case.h"
#include "tests/support/said.h"
#include "tests/support/test.h"

#define WORKERS 2u
#define SAMPLES 3u // per worker
#define ITERATIONS 4u

typedef struct {
    rt_config config;
    dp_stats *stats;
    dp_planned planned[ITERATIONS];
    float labels[ITERATIONS][WORKERS * SAMPLES];
    float predictions[ITERATIONS][WORKERS][SAMPLES];
} scene;

static void open_scene(scene *s, const char *directory, uint32_t dense_count)
{
    memset(s, 0, sizeof *s);
    assert_int_equal(rt_config_init(&s->config), RT_OK);
    s->config.worker_count = WORKERS;
    s->config.samples_per_worker = SAMPLES;
    dp_stats_config config = {
        .config = &s->config, .directory = directory, .dense_count = dense_count};
    config.costs.worker_count = WORKERS;
    config.costs.layout = (dp_layout){.field_count = 1, .values = {4}};
    for (uint32_t j = 0; j < WORKERS; j++)
        config.costs.rates.links[j] = (dp_link){1e6, 1e6};
    assert_int_equal(dp_stats_create(&config, &s->stats, NULL), RT_OK);
    for (uint32_t t = 0; t < ITERATIONS; t++) {
        dp_planned *planned = &s->planned[t];
        *planned = (dp_planned){.sequence = t + 1,
                                .iteration = t + 1,
                                .sample_count = WORKERS * SAMPLES,
                                .label_offsets = {0, SAMPLES, 2 * SAMPLES},
                                .labels = s->labels[t]};
        planned->account.iterations = 1;
        planned->account.samples = planned->sample_count;
        for (uint32_t i = 0; i < planned->sample_count; i++) {
            s->labels[t][i] = (float)((t + i) % 2);
            s->predictions[t][i / SAMPLES][i % SAMPLES] = 0.05f + 0.03f * (float)(7 * t + i);
        }
    }
}

static void close_scene(scene *s)
{
    dp_stats_destroy(s->stats);
    rt_config_fini(&s->config);
}

static void report(scene *s, uint32_t iteration, uint32_t worker)
{
    rt_wire_report one = {.sample_count = SAMPLES,
                          .times.compute_ns = 1000000 * (10 * iteration + worker)};
    dp_stats_report(s->stats, &s->planned[iteration - 1], worker, &one,
                    s->predictions[iteration - 1][worker]);
}

static void close_iteration(scene *s, uint32_t iteration)
{
    rt_stream_stats stream = {0};
    dp_stats_iteration(s->stats, &s->planned[iteration - 1], &stream);
}

static cJSON *read_json(const char *directory, const char *name, uint32_t line)
{
    static char text[1 << 16];
    char path[512];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    if (line == 0)
        text[fread(text, 1, sizeof text - 1, file)] = '\0';
    for (uint32_t i = 0; i < line; i++)
        assert_non_null(fgets(text, sizeof text, file));
    fclose(file);
    cJSON *json = cJSON_Parse(text);
    assert_non_null(json);
    return json;
}

static double number(const cJSON *json, const char *name)
{
    const cJSON *one = cJSON_GetObjectItemCaseSensitive(json, name);
    assert_true(cJSON_IsNumber(one));
    return one->valuedouble;
}

static double log_loss(const scene *s, uint32_t iteration)
{
    double sum = 0;
    for (uint32_t i = 0; i < WORKERS * SAMPLES; i++) {
        double p = s->predictions[iteration - 1][i / SAMPLES][i % SAMPLES];
        sum -= s->labels[iteration - 1][i] > 0.5f ? log(p) : log(1 - p);
    }
    return sum / (WORKERS * SAMPLES);
}

// A worker needs only the gradients of the others to go on: its next report may overtake theirs.
static void reports_of_two_iterations_mix(void **state)
{
    (void)state;
    static scene s;
    const char *directory = test_directory();
    double mean = 0, mean_ms[WORKERS] = {0};
    open_scene(&s, directory, 0);
    report(&s, 1, 0);
    report(&s, 2, 0);
    report(&s, 1, 1);
    close_iteration(&s, 1);
    report(&s, 2, 1);
    report(&s, 3, 1);
    close_iteration(&s, 2);
    report(&s, 3, 0);
    close_iteration(&s, 3);
    report(&s, 4, 0);
    report(&s, 4, 1);
    close_iteration(&s, 4);
    const dp_reading reading = {0};
    assert_int_equal(dp_stats_finish(s.stats, &reading, false, NULL), RT_OK);
    close_scene(&s);
    for (uint32_t t = 1; t <= ITERATIONS; t++) {
        cJSON *record = read_json(directory, "metrics.jsonl", t);
        const cJSON *quality = cJSON_GetObjectItemCaseSensitive(record, "quality");
        test_close(number(quality, "log_loss"), log_loss(&s, t), 1e-6, 0, "log loss of iteration");
        const cJSON *times = cJSON_GetObjectItemCaseSensitive(record, "times_ms");
        for (uint32_t j = 0; j < WORKERS; j++) {
            double ms = number(cJSON_GetArrayItem(times, (int)j), "compute");
            test_close(ms, 10 * t + j, 1e-9, 0, "compute of iteration");
            mean_ms[j] += ms / ITERATIONS;
        }
        mean += log_loss(&s, t) / ITERATIONS;
        cJSON_Delete(record);
    }
    cJSON *summary = read_json(directory, "summary.json", 0);
    test_close(number(summary, "logloss"), mean, 1e-6, 0, "log loss");
    const cJSON *times = cJSON_GetObjectItemCaseSensitive(summary, "times_ms");
    for (uint32_t j = 0; j < WORKERS; j++)
        test_close(number(cJSON_GetArrayItem(times, (int)j), "compute"), mean_ms[j], 1e-9, 0,
                   "compute");
    cJSON_Delete(summary);
}

// What an iteration adds to every sum that the summary shows.
static void run_iteration(scene *s, uint32_t iteration)
{
    dp_planned *planned = &s->planned[iteration - 1];
    rt_batch batch;
    const float dense = (float)iteration;
    rt_batch_init(&batch, 1);
    assert_int_equal(rt_batch_append(&batch, 1, &dense, NULL, 0), RT_OK);
    assert_int_equal(dp_ranges_init(&planned->ranges, 1, false), RT_OK);
    dp_ranges_add(&planned->ranges, &batch);
    planned->slice_bytes = 1000 * iteration;
    for (uint32_t w = 0; w < WORKERS; w++) {
        const rt_wire_report one = {
            .sample_count = SAMPLES,
            .stale_reads = 1,
            .loss_sum = iteration % 2 ? NAN : 1,
            .done = {.miss_pull = iteration, .update_push = 10 * w, .grad_push = 5}};
        dp_stats_report(s->stats, planned, w, &one, s->predictions[iteration - 1][w]);
    }
    close_iteration(s, iteration);
    dp_ranges_fini(&planned->ranges);
    rt_batch_fini(&batch);
}

// A run that is resumed ends with the summary of one that never stopped. How long it took differs.
static void a_resumed_run_has_one_summary(void **state)
{
    (void)state;
    static scene s;
    rt_bytes saved = {0};
    const dp_reading reading = {0};
    const char *directory = test_directory();
    cJSON *summaries[2];
    for (uint32_t stops = 0; stops < 2; stops++) {
        open_scene(&s, directory, 1);
        for (uint32_t t = 1; t <= ITERATIONS; t++) {
            if (stops && t == 3) {
                rt_reader reader;
                dp_stats_save(s.stats, &saved);
                assert_false(saved.failed);
                close_scene(&s);
                open_scene(&s, directory, 1);
                reader = rt_bytes_reader(&saved);
                assert_int_equal(dp_stats_load(s.stats, &reader, NULL), RT_OK);
                assert_int_equal(reader.left, 0);
            }
            run_iteration(&s, t);
        }
        assert_int_equal(dp_stats_bad_batches(s.stats), 2);
        assert_int_equal(dp_stats_finish(s.stats, &reading, false, NULL), RT_OK);
        close_scene(&s);
        summaries[stops] = read_json(directory, "summary.json", 0);
        cJSON_DeleteItemFromObject(summaries[stops], "seconds");
        cJSON_DeleteItemFromObject(summaries[stops], "samples_per_s");
    }
    assert_int_equal(number(summaries[0], "bad_batches"), 2);
    if (!cJSON_Compare(summaries[0], summaries[1], true))
        fail_msg("%s\n%s", cJSON_Print(summaries[0]), cJSON_Print(summaries[1]));
    cJSON_Delete(summaries[0]);
    cJSON_Delete(summaries[1]);
    rt_bytes_fini(&saved);
}

// Means per iteration, of every worker and of all; the flush at the end is part of them.
static void the_summary_has_what_was_executed(void **state)
{
    (void)state;
    static scene s;
    const dp_reading reading = {0};
    const char *directory = test_directory();
    const rt_wire_report flushed = {.done = {.flush_push = 3 * ITERATIONS}};
    open_scene(&s, directory, 1);
    for (uint32_t t = 1; t <= ITERATIONS; t++)
        run_iteration(&s, t);
    dp_stats_flushed(s.stats, 1, &flushed);
    assert_int_equal(dp_stats_finish(s.stats, &reading, false, NULL), RT_OK);
    close_scene(&s);
    cJSON *summary = read_json(directory, "summary.json", 0);
    const cJSON *all = cJSON_GetObjectItemCaseSensitive(summary, "ops");
    const cJSON *workers = cJSON_GetObjectItemCaseSensitive(summary, "ops_by_worker");
    const double pulls = (ITERATIONS + 1) / 2.0;
    for (uint32_t w = 0; w < WORKERS; w++) {
        const cJSON *one = cJSON_GetArrayItem(workers, (int)w);
        test_close(number(one, "miss_pull"), pulls, 1e-9, 0, "pulls");
        test_close(number(one, "update_push"), 10 * w, 1e-9, 1, "update pushes");
        test_close(number(one, "grad_push"), 5, 1e-9, 0, "gradient pushes");
        test_close(number(one, "flush_push"), w == 1 ? 3 : 0, 1e-9, 1, "flush pushes");
    }
    test_close(number(all, "miss_pull"), WORKERS * pulls, 1e-9, 0, "pulls");
    test_close(number(all, "flush_push"), 3, 1e-9, 0, "flush pushes");
    test_close(number(summary, "slice_bytes"), 1000 * pulls, 1e-9, 0, "bytes of slices");
    cJSON_Delete(summary);
}

static void must_have(const cJSON *object, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!cJSON_HasObjectItem(object, names[i]))
            fail_msg("no %s", names[i]);
    }
}

// What docs/METRICS.md names, but for what some options add.
static void every_member_is_there(void **state)
{
    (void)state;
    static const char *const of_summary[] = {
        "iterations",
        "samples",
        "samples_per_s",
        "seconds",
        "logloss",
        "auc",
        "normalised_entropy",
        "calibration",
        "logloss_last_fifth",
        "auc_last_fifth",
        "normalised_entropy_last_fifth",
        "calibration_last_fifth",
        "invalid_predictions",
        "bad_batches",
        "ranges",
        "stale_reads",
        "cost",
        "ops",
        "ops_by_worker",
        "bytes_up",
        "bytes_down",
        "times_ms",
        "dense_early_bytes",
        "hit_ratio",
        "predicted_iteration_ms",
        "decision_ms",
        "alpha",
        "opt_share",
        "heu_share",
        "dispatch_error_bound",
        "dispatch_error",
        "dispatch_device_ms",
        "solver",
        "plan_fingerprint",
        "slice_bytes",
        "dense_bytes",
        "malformed_lines",
        "odd_labels",
        "duplicates",
        "input_bytes_lost",
        "input_events_lost",
        "input_breaks",
        "negatives_left_out",
        "input_error",
        "inputs",
        "dense_clipped",
        "interrupted",
    };
    static const char *const of_iteration[] = {
        "record",
        "time_s",
        "iteration",
        "samples",
        "participants",
        "keys",
        "admitted",
        "refused",
        "malformed_lines",
        "odd_labels",
        "quality",
        "window",
        "untrained",
        "bad",
        "dense_clipped",
        "ranges",
        "cost",
        "predicted_ms",
        "alpha",
        "opt_share",
        "heu_share",
        "dispatch_error_bound",
        "dispatch_error",
        "dispatch_device_ms",
        "decision_ms",
        "choice_ms",
        "commit_ms",
        "read_ms",
        "slice_bytes",
        "hit_ratio",
        "ops",
        "bytes_up",
        "bytes_down",
        "times_ms",
        "dense_early_bytes",
        "planned_before_ms",
        "reported_before_ms",
    };
    static scene s;
    const dp_reading reading = {0};
    const char *directory = test_directory();
    open_scene(&s, directory, 1);
    for (uint32_t t = 1; t <= ITERATIONS; t++)
        run_iteration(&s, t);
    assert_int_equal(dp_stats_finish(s.stats, &reading, false, NULL), RT_OK);
    close_scene(&s);
    cJSON *summary = read_json(directory, "summary.json", 0);
    cJSON *iteration = read_json(directory, "metrics.jsonl", 2);
    must_have(summary, of_summary, RT_COUNT_OF(of_summary));
    must_have(iteration, of_iteration, RT_COUNT_OF(of_iteration));
    cJSON_Delete(summary);
    cJSON_Delete(iteration);
}

// Sums that end early, wherever, leave a stats as it was created.
static void sums_cut_short_leave_nothing(void **state)
{
    (void)state;
    static scene s;
    rt_bytes whole = {0}, fresh = {0}, after = {0};
    const char *directory = test_directory();
    open_scene(&s, directory, 1);
    dp_stats_save(s.stats, &fresh);
    run_iteration(&s, 1);
    run_iteration(&s, 2);
    dp_stats_save(s.stats, &whole);
    close_scene(&s);
    for (size_t size = 0; size < whole.size; size += 1 + whole.size / 50) {
        rt_error error = {0};
        open_scene(&s, directory, 1);
        rt_reader reader = {whole.data, size, false};
        assert_int_equal(dp_stats_load(s.stats, &reader, &error), RT_DATA);
        assert_non_null(strstr(error.text, "totals of the run"));
        after.size = 0;
        dp_stats_save(s.stats, &after);
        assert_int_equal(after.size, fresh.size);
        assert_memory_equal(after.data, fresh.data, fresh.size);
        close_scene(&s);
    }
    rt_bytes_fini(&whole);
    rt_bytes_fini(&fresh);
    rt_bytes_fini(&after);
}

// Counts of every worker, which had a seventh number then.
static const uint8_t *put_counts(rt_bytes *older, const uint8_t *at)
{
    for (uint32_t w = 0; w < RT_WORKERS_MAX; w++, at += sizeof(rt_counts)) {
        rt_bytes_put(older, at, sizeof(rt_counts));
        rt_bytes_put_u64(older, 1000 + w);
    }
    return at;
}

// Sums as a version of before saved them, with the first `size` bytes of those of plans: without
// names, their size first, and two of their numbers behind the decisions.
static void make_older(const rt_bytes *newest, size_t size, rt_bytes *older)
{
    enum { SEVENTH = RT_WORKERS_MAX * 8, COUNTS = RT_WORKERS_MAX * sizeof(rt_counts) + SEVENTH };
    enum { LOADS = RT_WORKERS_MAX * 6 * 8, SUMS = 32, LAST = 16 };
    enum { DECISIONS = 72, FLAG = 4 };
    rt_bytes plain = {0};
    fields_plain(newest, &plain);
    const uint8_t *at = plain.data + sizeof(dp_account);
    rt_bytes_clear(older);
    rt_bytes_put_u64(older, size + SEVENTH + COUNTS + LOADS + 16);
    rt_bytes_put(older, plain.data, offsetof(dp_account, workers));
    const uint8_t *rest = put_counts(older, plain.data + offsetof(dp_account, workers));
    rt_bytes_put(older, rest, size - (size_t)(rest - plain.data));
    at = put_counts(older, at);
    rt_bytes_put(older, at, LOADS);
    at += LOADS;
    rt_bytes_put(older, (const uint8_t[16]){0}, 16); // placement_bytes, which they had
    rt_bytes_put(older, at, SUMS);
    at += SUMS;
    rt_bytes_put(older, at + LAST, DECISIONS);
    rt_bytes_put(older, at, LAST);
    at += LAST + DECISIONS;
    const size_t ranges = 4 + 8 + 8 + 8 + 4 + 4 + 2 * sizeof(float), meter = 8 + 8 + 4;
    rt_bytes_put(older, at, ranges + meter);
    at += ranges + meter + FLAG; // which says whether there are weights: none here
    rt_bytes_put(older, at, (size_t)(plain.data + plain.size - at));
    rt_bytes_fini(&plain);
}

// What they did not know yet begins at zero; all else is there.
static void sums_of_older_versions_are_read(void **state)
{
    (void)state;
    static const size_t sizes[] = {offsetof(dp_account, clocks),
                                   offsetof(dp_account, clocks) + sizeof(dp_clocks),
                                   sizeof(dp_account)};
    static scene s;
    rt_bytes newest = {0}, older = {0}, again = {0}, plain = {0}, want = {0};
    const char *directory = test_directory();
    open_scene(&s, directory, 1);
    for (uint32_t t = 1; t <= 2; t++) {
        dp_account *account = &s.planned[t - 1].account;
        account->clocks = (dp_clocks){5 * t, 6 * t, 7};
        account->handed.rows = 8 * t;
        account->samples = 9 * t;
        run_iteration(&s, t);
    }
    dp_stats_save(s.stats, &newest);
    close_scene(&s);
    fields_plain(&newest, &want);
    for (size_t i = 0; i < RT_COUNT_OF(sizes); i++) {
        rt_error error = {0};
        for (int by = -4; by <= 4; by += 4) {
            make_older(&newest, sizes[i] + (size_t)by, &older);
            rt_reader reader = rt_bytes_reader(&older);
            open_scene(&s, directory, 1);
            const rt_status status = dp_stats_load(s.stats, &reader, &error);
            assert_int_equal(status, by ? RT_DATA : RT_OK);
            assert_int_equal(by ? 0 : reader.left, 0);
            rt_bytes_clear(&again);
            dp_stats_save(s.stats, &again);
            close_scene(&s);
            if (by)
                continue;
            fields_plain(&again, &plain);
            assert_int_equal(plain.size, want.size);
            assert_memory_equal(plain.data, want.data, sizes[i]);
            for (size_t k = sizes[i]; k < sizeof(dp_account); k++)
                assert_int_equal(plain.data[k], 0);
            assert_memory_equal(plain.data + sizeof(dp_account), want.data + sizeof(dp_account),
                                want.size - sizeof(dp_account));
        }
    }
    rt_bytes_fini(&newest);
    rt_bytes_fini(&older);
    rt_bytes_fini(&again);
    rt_bytes_fini(&plain);
    rt_bytes_fini(&want);
}

// The heap does not grow with the number of checkpoints, whatever is taken between them and given
// back in another order.
static void checkpoints_leave_no_holes(void **state)
{
    (void)state;
    enum { ROUNDS = 200, KEPT = 64 };
    static scene s;
    void *kept[KEPT] = {0};
    rt_random random = {3};
    size_t heap = 0;
    rt_keep_freed_memory(); // as the program does
    open_scene(&s, test_directory(), 1);
    const size_t before = mallinfo2().arena;
    for (uint32_t n = 1; n <= 2 * ROUNDS; n++) {
        rt_bytes part = {0}, all = {0};
        const size_t more = rt_random_below(&random, 1u << 20);
        for (uint32_t i = 0; i < 8; i++) {
            void **one = &kept[rt_random_below(&random, KEPT)];
            rt_free(*one);
            *one = rt_alloc(1 + rt_random_below(&random, 4000), 1);
        }
        assert_non_null(rt_bytes_extend(&part, more)); // the planner's
        dp_stats_save(s.stats, &all);
        rt_bytes_put(&all, part.data, part.size);
        assert_false(all.failed);
        rt_bytes_fini(&part);
        rt_bytes_fini(&all);
        if (n == ROUNDS)
            heap = mallinfo2().arena;
    }
    assert_int_equal(mallinfo2().arena, heap);
    assert_in_range(heap - before, 0, 1u << 20);
    for (uint32_t i = 0; i < KEPT; i++)
        rt_free(kept[i]);
    close_scene(&s);
}

// What a run says at its end, on standard output.
static const char *said_at_the_end(scene *s, bool interrupted)
{
    said_output out;
    const dp_reading reading = {0};
    said_begin(&out, STDOUT_FILENO);
    const rt_status status = dp_stats_finish(s->stats, &reading, interrupted, NULL);
    const char *text = said_end(&out);
    assert_int_equal(status, RT_OK);
    return text;
}

static void people_are_told(void **state)
{
    (void)state;
    static scene s;
    open_scene(&s, NULL, 0);
    const char *said = said_at_the_end(&s, true);
    assert_ptr_equal(strstr(said, "0 iterations, 0 samples, 0 samples/s (interrupted)\n"), said);
    assert_null(strstr(said, "log loss")); // of nothing
    assert_null(strstr(said, "all labels"));
    close_scene(&s);
    open_scene(&s, NULL, 0);
    for (uint32_t w = 0; w < WORKERS; w++)
        report(&s, 1, w);
    close_iteration(&s, 1);
    said = said_at_the_end(&s, false);
    assert_non_null(strstr(said, "1 iterations, "));
    assert_null(strstr(said, "interrupted"));
    assert_non_null(strstr(said, "\nlog loss "));
    assert_null(strstr(said, "batches had a loss"));
    close_scene(&s);
}

TEST_MAIN(TEST(people_are_told), TEST(the_summary_has_what_was_executed),
          TEST(every_member_is_there), TEST(sums_of_older_versions_are_read),
          TEST(checkpoints_leave_no_holes), TEST(sums_cut_short_leave_nothing),
          TEST(reports_of_two_iterations_mix), TEST(a_resumed_run_has_one_summary))
