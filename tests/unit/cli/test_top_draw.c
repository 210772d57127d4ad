// What `lanyard top` makes of a status.
#include "cli/cli_top.h"

#include <string.h>

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

TEST_MAIN(TEST(columns_stay_apart), TEST(what_is_held_is_told))
