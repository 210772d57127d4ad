// dp_bench: what the measurements of `lanyard_bench dispatch` rest on, and a section that can be
// checked: no placement undercuts the optimum or the bound.
#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/bench/dispatch/dp_bench.h"
#include "dispatch/solvers/dp_solver.h"
#include "runtime/config/rt_policies.h"
#include "tests/support/test.h"

static void percentiles_of_times(void **state)
{
    (void)state;
    static dp_bench_times times;
    assert_true(isnan(dp_bench_ms(&times, 0.5)));
    assert_true(isnan(dp_bench_noise(&times)));
    for (uint64_t k = 101; k > 0; k--) // 100 ms ... 0 ms
        dp_bench_add(&times, (k - 1) * 1000000);
    assert_true(dp_bench_ms(&times, 0.5) == 50);
    assert_true(dp_bench_ms(&times, 0.99) == 99);
    assert_true(dp_bench_ms(&times, 0) == 0);
    assert_true(dp_bench_noise(&times) == 50); // half of 75 - 25, of 50
    for (uint32_t k = 0; k < 2 * DP_BENCH_TIMES_MAX; k++)
        dp_bench_add(&times, 1);
    assert_int_equal(times.count, DP_BENCH_TIMES_MAX); // full: what comes later is left out
}

static rt_status touch_memory(const void *argument, void *result)
{
    size_t size = *(const size_t *)argument;
    volatile char *block = rt_alloc(size, 1);
    if (!block)
        return RT_NO_MEMORY;
    for (size_t at = 0; at < size; at += 1024)
        block[at] = 1;
    *(uint32_t *)result = 42;
    return RT_OK;
}

static rt_status fail_at_once(const void *argument, void *result)
{
    (void)argument;
    (void)result;
    return RT_IO;
}

static void work_in_a_process_of_its_own(void **state)
{
    (void)state;
    rt_error error = {0};
    const size_t small = 1 << 20, large = 64 << 20;
    uint32_t result = 0;
    uint64_t small_bytes = 0, large_bytes = 0;
    assert_int_equal(
        dp_bench_apart(touch_memory, &small, &result, sizeof result, &small_bytes, &error), RT_OK);
    assert_int_equal(result, 42);
    assert_int_equal(
        dp_bench_apart(touch_memory, &large, &result, sizeof result, &large_bytes, &error), RT_OK);
    assert_true(large_bytes - small_bytes > (large - small) / 10 * 9);
    assert_int_equal(
        dp_bench_apart(fail_at_once, NULL, &result, sizeof result, &small_bytes, &error),
        RT_NO_MEMORY);
    assert_true(strlen(error.text) > 0);
}

// Views come from a planner with state: after some batches a part of the keys is held.
static void cases_plan_real_batches(void **state)
{
    (void)state;
    rt_error error = {0};
    dp_bench_case one;
    dp_bench_shape shape = {.worker_count = 3,
                            .samples_per_worker = 16,
                            .scale = 0.001,
                            .policy = "esd:alpha=0.5",
                            .cache_rows = 3000};
    assert_int_equal(dp_bench_open(&shape, &one, &error), RT_OK);
    assert_int_equal(dp_bench_advance(&one, 20, &error), RT_OK);
    assert_int_equal(dp_bench_look_up(&one, &error), RT_OK);
    const dp_view *view = dp_planner_view(one.planner);
    uint32_t held = 0;
    assert_int_equal(view->iteration, 21);
    assert_int_equal(view->sample_count, 48);
    assert_int_equal(view->worker_count, 3);
    for (uint32_t d = 0; d < view->distinct_count; d++)
        held += view->distinct[d].holders != 0;
    assert_true(held > 0 && held < view->distinct_count);
    // Two fast links and a slow one.
    assert_true(view->ticks->pull[0][0] == view->ticks->pull[0][1]);
    assert_true(view->ticks->pull[0][2] > 9 * view->ticks->pull[0][0]);
    dp_bench_close(&one);
    shape.policy = "nonsense";
    assert_int_equal(dp_bench_open(&shape, &one, &error), RT_CONFIG);
}

static void files_start_again_at_their_end(void **state)
{
    (void)state;
    rt_error error = {0};
    dp_bench_case one;
    char path[512];
    snprintf(path, sizeof path, "%s/rows.tsv", test_directory());
    FILE *file = fopen(path, "w");
    for (int i = 0; i < 20; i++) {
        fprintf(file, "%d", i % 2);
        for (int k = 0; k < 13; k++)
            fprintf(file, "\t%d", k);
        for (int k = 0; k < 26; k++)
            fprintf(file, "\t%08x", i * 100 + k);
        fputc('\n', file);
    }
    fclose(file);
    dp_bench_shape shape = {.worker_count = 2,
                            .samples_per_worker = 4,
                            .policy = "esd",
                            .file = path,
                            .cache_rows = 200};
    assert_int_equal(dp_bench_open(&shape, &one, &error), RT_OK);
    assert_int_equal(one.distinct_keys, 20 * 26);
    assert_int_equal(dp_bench_advance(&one, 7, &error), RT_OK); // 2 batches a round, 4 rows left
    assert_int_equal(one.batch.sample_count, 8);
    dp_bench_close(&one);
    shape.samples_per_worker = 11; // 22 rows, there are 20
    assert_int_equal(dp_bench_open(&shape, &one, &error), RT_OK);
    assert_int_equal(dp_bench_advance(&one, 1, &error), RT_DATA);
    dp_bench_close(&one);
}

static void matrices_are_written_as_problems(void **state)
{
    (void)state;
    rt_error error = {0};
    char path[512];
    dp_bench bench = {.dump_dir = test_directory()};
    assert_int_equal(dp_bench_dump(&bench, &error), RT_OK);
    static const uint32_t rows[] = {1024, 8192};
    for (size_t k = 0; k < RT_COUNT_OF(rows); k++) {
        uint32_t head[2], capacity[8], sum = 0;
        static int32_t cost[8192 * 8];
        snprintf(path, sizeof path, "%s/esd_%ux8.matrix", bench.dump_dir, rows[k]);
        FILE *file = fopen(path, "rb");
        assert_non_null(file);
        assert_int_equal(fread(head, sizeof head, 1, file), 1);
        assert_int_equal(head[0], rows[k]);
        assert_int_equal(head[1], 8);
        assert_int_equal(fread(capacity, sizeof capacity, 1, file), 1);
        for (uint32_t j = 0; j < 8; j++)
            sum += capacity[j];
        assert_int_equal(sum, rows[k]);
        assert_int_equal(fread(cost, 8 * sizeof *cost, rows[k], file), rows[k]);
        for (size_t i = 0; i < (size_t)rows[k] * 8; i++)
            assert_in_range(cost[i], 0, DP_COST_MAX);
        assert_int_equal(fgetc(file), EOF);
        fclose(file);
    }
    bench.dump_dir = "/nonexistent";
    assert_int_equal(dp_bench_dump(&bench, &error), RT_IO);
    assert_non_null(strstr(error.text, "/nonexistent"));
}

static void no_policy_undercuts_the_references(void **state)
{
    (void)state;
    rt_error error = {0};
    dp_bench bench = {.quick = true};
    assert_int_equal(rt_report_create(NULL, &bench.report), RT_OK);
    assert_int_equal(dp_bench_gap(&bench, &error), RT_OK);
    cJSON *json = cJSON_Parse(rt_report_json(bench.report)), *row;
    cJSON *rows = cJSON_GetObjectItem(cJSON_GetObjectItem(json, "gap"), "rows");
    assert_int_equal(cJSON_GetArraySize(rows), 2 * RT_POLICY_COUNT); // tiny and large
    cJSON_ArrayForEach(row, rows)
    {
        assert_true(cJSON_GetObjectItem(row, "above_%")->valuedouble >= 0);
        assert_true(cJSON_GetObjectItem(row, "worst_%")->valuedouble >=
                    cJSON_GetObjectItem(row, "above_%")->valuedouble);
    }
    cJSON_Delete(json);
    rt_report_destroy(bench.report);
}

static double number_of(const cJSON *row, const char *name)
{
    const cJSON *item = cJSON_GetObjectItem(row, name);
    return cJSON_IsNumber(item) ? item->valuedouble : NAN;
}

// What a search may spend is what it spends at most, and esd and a search without a bound are the
// ends of what is gained. A swap that was begun goes to its end: three evaluations more.
static void a_search_keeps_to_its_evaluations(void **state)
{
    (void)state;
    rt_error error = {0};
    dp_bench bench = {.quick = true};
    assert_int_equal(rt_report_create(NULL, &bench.report), RT_OK);
    assert_int_equal(dp_bench_demand(&bench, &error), RT_OK);
    cJSON *json = cJSON_Parse(rt_report_json(bench.report)), *row;
    cJSON *rows = cJSON_GetObjectItem(cJSON_GetObjectItem(json, "demand"), "rows");
    static const double bounds[] = {0, 8, 4, 2, 1, 0.5, 0.25, 0}; // per sample; the first is esd
    assert_int_equal(cJSON_GetArraySize(rows), 8 + 5);
    uint32_t at = 0;
    cJSON_ArrayForEach(row, rows)
    {
        const double batch_size = number_of(row, "N"), asked = number_of(row, "asked/s");
        assert_int_equal((int)batch_size, 8 * 16);
        assert_true(number_of(row, "predicted_ms") > 0);
        if (at < 8)
            assert_true(number_of(row, "evaluations") <= bounds[at] * batch_size + 3);
        assert_true(at < 8 ? isnan(asked) : asked > 0 && number_of(row, "budget_ms") > 0);
        at++;
    }
    assert_true(number_of(cJSON_GetArrayItem(rows, 0), "gain_%") == 0);
    assert_true(number_of(cJSON_GetArrayItem(rows, 1), "gain_%") == 100);
    cJSON_Delete(json);
    rt_report_destroy(bench.report);
}

TEST_MAIN(TEST(percentiles_of_times), TEST(work_in_a_process_of_its_own),
          TEST(cases_plan_real_batches), TEST(files_start_again_at_their_end),
          TEST_SLOW(matrices_are_written_as_problems, 120),
          TEST_SLOW(no_policy_undercuts_the_references, 300),
          TEST_SLOW(a_search_keeps_to_its_evaluations, 300))
