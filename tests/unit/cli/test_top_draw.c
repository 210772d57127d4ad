// What `lanyard top` makes of a status.
#include "cli/cli_top.h"

#include <stdio.h>
#include <string.h>

#include "runtime/watch/rt_metric.h"
#include "tests/support/test.h"

// The line that begins so; up to the next one.
static const char *line_of(char *text, const char *begin)
{
    char *at = strstr(text, begin);
    if (!at)
        fail_msg("no line \"%s\" in %s", begin, text);
    at[strcspn(at, "\n")] = '\0';
    return at;
}

// Means that fade go down to what has more digits than a column has letters.
static void columns_stay_apart(void **state)
{
    (void)state;
    rt_page text = {0};
    cJSON *status = cJSON_Parse("{\"workers\": [{\"rank\": 0, \"times_ms\": {\"compute\": 33.25, "
                                "\"dense\": 5.51e-05, \"push\": 0, \"pull\": 3e-7, \"plan\": "
                                "0.00123}}]}");
    assert_non_null(status);
    cli_top_draw(status, "run1", UINT32_MAX, &text);
    assert_string_equal(line_of(text.text, " 0  "),
                        " 0   33.25 0.0001      0      0 0.0012       -    -       -    -  -");
    rt_page_fini(&text);
    cJSON_Delete(status);
}

// What the guard holds back stands in the line of what is published, with its reason.
static void what_is_held_is_told(void **state)
{
    (void)state;
    static const struct {
        const char *status, *line;
    } cases[] = {{"{\"published\":{\"in_force\":40,\"held\":0}}", "published: iteration 40"},
                 {"{\"published\":{\"in_force\":40,\"held\":2,\"held_iteration\":80,\"held_s\":8,"
                  "\"why\":\"it is worse\"}}",
                  "published: iteration 40; 2 since HELD BACK, for 8 s: it is worse"}};
    for (size_t i = 0; i < RT_COUNT_OF(cases); i++) {
        rt_page text = {0};
        cJSON *status = cJSON_Parse(cases[i].status);
        assert_non_null(status);
        cli_top_draw(status, "run1", UINT32_MAX, &text);
        assert_string_equal(line_of(text.text, "published"), cases[i].line);
        rt_page_fini(&text);
        cJSON_Delete(status);
    }
}

// Every metric of the table that has a place in top, by what /status says.
static void metrics_have_their_places(void **state)
{
    (void)state;
    uint32_t count = 0;
    for (uint32_t i = 0; i < RT_RUN_METRICS; i++) {
        const rt_metric *metric = rt_metric_of_run(i);
        char group[32], number[32], want[128];
        const double value = 0.4375 + i;
        if (!metric->top.place)
            continue;
        rt_page text = {0};
        cJSON *status = cJSON_CreateObject(), *at = status;
        const char *name = rt_metric_status_name(metric, group, sizeof group);
        if (*group)
            at = cJSON_AddObjectToObject(status, group);
        assert_non_null(cJSON_AddNumberToObject(at, name, value));
        cli_top_draw(status, "run1", UINT32_MAX, &text);
        const char *gap = strstr(metric->top.text, "%s");
        assert_non_null(gap);
        snprintf(want, sizeof want, "%.*s%s%s", (int)(gap - metric->top.text), metric->top.text,
                 rt_form_text(metric->top.form, value, number), gap + 2);
        if (!strstr(text.text, want))
            fail_msg("%s: \"%s\" is not in %s", metric->name, want, text.text);
        rt_page_fini(&text);
        cJSON_Delete(status);
        count++;
    }
    assert_true(count > 10);
}

TEST_MAIN(TEST(metrics_have_their_places), TEST(columns_stay_apart), TEST(what_is_held_is_told))
