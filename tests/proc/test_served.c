// What a server answered with comes to a run as events, waits there for its outcomes, and is
// trained as it was served: also what was served before the run was there, and before the server
// was killed.
#include "tests/support/test.h"

#include <stdio.h>

#include "tests/support/process_case.h"

#define CHECK_S 150

static void check(const char *format)
{
    char folder[500];
    process_need_numpy();
    snprintf(folder, sizeof folder, "%s", test_directory());
    const char *const arguments[] = {
        "/usr/bin/python3", "tests/proc/check_served.py", process_lanyard(), folder, format, NULL};
    process_must_run(arguments, CHECK_S);
}

static void events_of_tables(void **state)
{
    (void)state;
    check("table");
}

static void events_of_json(void **state)
{
    (void)state;
    check("json");
}

TEST_MAIN(TEST_SLOW(events_of_tables, 180), TEST_SLOW(events_of_json, 180))
