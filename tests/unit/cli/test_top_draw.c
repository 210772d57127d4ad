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

TEST_MAIN(TEST(columns_stay_apart))
