// `lanyard_bench device`, the quick one: everything is measured, and nothing is left out.
#include <cjson/cJSON.h>
#include <math.h>
#include <string.h>

#include "runtime/config/rt_models.h"
#include "tests/bench/device/ew_bench.h"
#include "tests/support/test.h"

static double number(const cJSON *row, const char *name)
{
    const cJSON *cell = cJSON_GetObjectItemCaseSensitive(row, name);
    if (!cJSON_IsNumber(cell))
        fail_msg("no number \"%s\" in %s", name, cJSON_PrintUnformatted(row));
    return cell->valuedouble;
}

static const cJSON *rows_of(const cJSON *report, const char *section, int count)
{
    const cJSON *one = cJSON_GetObjectItemCaseSensitive(report, section);
    const cJSON *rows = cJSON_GetObjectItemCaseSensitive(one, "rows");
    assert_int_equal(cJSON_GetArraySize(rows), count);
    return rows;
}

static const cJSON *row_of(const cJSON *rows, const char *operation)
{
    const cJSON *row;
    cJSON_ArrayForEach(row, rows)
    {
        const cJSON *name = cJSON_GetObjectItemCaseSensitive(row, "operation");
        if (strcmp(name->valuestring, operation) == 0)
            return row;
    }
    fail_msg("no row \"%s\"", operation);
    return NULL;
}

static void everything_is_measured(void **state)
{
    (void)state;
    rt_error error = {0};
    ew_bench bench = {.device = "cpu", .quick = true};
    assert_int_equal(rt_report_create(NULL, &bench.report), RT_OK);
    if (ew_bench_device(&bench, &error))
        fail_msg("%s", error.text);
    cJSON *report = cJSON_Parse(rt_report_json(bench.report));
    assert_non_null(report);
    const cJSON *row, *device = rows_of(report, "device", 1);
    assert_true(number(device->child, "copy GB/s") > 0);
    assert_true(number(device->child, "gemm Gflop/s") > 0);
    const cJSON *operations = rows_of(report, "operations", 26);
    cJSON_ArrayForEach(row, operations)
        assert_true(number(row, "us") >= 0 && number(row, "MB") > 0);
    // 128 x 256 outputs of 26 x 16 + 13 inputs.
    test_close(number(row_of(operations, "gemm_forward"), "Mflop"), 2 * 128 * 256 * 429e-6, 1e-3, 1,
               "Mflop");
    const cJSON *models = rows_of(report, "models", RT_MODEL_COUNT);
    cJSON_ArrayForEach(row, models)
    {
        assert_true(number(row, "samples/s") > 0 && number(row, "gemm us") > 0);
        assert_true(number(row, "ratio") > 0 && number(row, "Mflop") > 100);
    }
    cJSON_Delete(report);
    rt_report_destroy(bench.report);
}

static void a_device_that_is_not_there(void **state)
{
    (void)state;
    rt_error error = {0};
    ew_bench bench = {.device = "abacus"};
    assert_int_equal(rt_report_create(NULL, &bench.report), RT_OK);
    assert_int_equal(ew_bench_device(&bench, &error), RT_UNSUPPORTED);
    assert_non_null(strstr(error.text, "abacus"));
    rt_report_destroy(bench.report);
}

TEST_MAIN(TEST(everything_is_measured), TEST(a_device_that_is_not_there))
