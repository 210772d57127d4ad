// rt_report: the same cells as text and as JSON.
#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/metrics/rt_report.h"
#include "tests/support/test.h"

static void fill(rt_report *report)
{
    rt_report_begin(report, "times", "Times of things");
    rt_report_text(report, "thing", "a");
    rt_report_number(report, "ms", 1.23456, 2);
    rt_report_end_row(report);
    rt_report_text(report, "thing", "a longer one");
    rt_report_number(report, "ms", (double)NAN, 2);
    rt_report_end_row(report);
    rt_report_note(report, "measured %d times", 3);
    rt_report_end(report);
    rt_report_begin(report, "none", "Nothing");
    rt_report_end(report);
}

static void json_has_rows_and_notes(void **state)
{
    (void)state;
    rt_report *report;
    assert_int_equal(rt_report_create(NULL, &report), RT_OK);
    fill(report);
    cJSON *json = cJSON_Parse(rt_report_json(report));
    assert_non_null(json);
    const cJSON *times = cJSON_GetObjectItem(json, "times");
    assert_string_equal(cJSON_GetObjectItem(times, "title")->valuestring, "Times of things");
    const cJSON *rows = cJSON_GetObjectItem(times, "rows");
    assert_int_equal(cJSON_GetArraySize(rows), 2);
    const cJSON *first = cJSON_GetArrayItem(rows, 0), *second = cJSON_GetArrayItem(rows, 1);
    assert_string_equal(cJSON_GetObjectItem(first, "thing")->valuestring, "a");
    assert_true(cJSON_GetObjectItem(first, "ms")->valuedouble == 1.23);
    assert_string_equal(cJSON_GetObjectItem(second, "thing")->valuestring, "a longer one");
    assert_true(cJSON_IsNull(cJSON_GetObjectItem(second, "ms")));
    const cJSON *notes = cJSON_GetObjectItem(times, "notes");
    assert_string_equal(cJSON_GetArrayItem(notes, 0)->valuestring, "measured 3 times");
    const cJSON *none = cJSON_GetObjectItem(json, "none");
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(none, "rows")), 0);
    cJSON_Delete(json);
    rt_report_destroy(report);
}

static void text_has_one_heading_and_all_rows(void **state)
{
    (void)state;
    rt_report *report;
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    assert_int_equal(rt_report_create(file, &report), RT_OK);
    fill(report);
    fclose(file);
    assert_string_equal(text, "== Times of things\n"
                              "    thing         ms\n"
                              "        a       1.23\n"
                              "a longer one          -\n"
                              "   measured 3 times\n"
                              "\n"
                              "== Nothing\n"
                              "\n");
    free(text);
    rt_report_destroy(report);
}

TEST_MAIN(TEST(json_has_rows_and_notes), TEST(text_has_one_heading_and_all_rows))
