// One minute of tests/torture/torture, with a fixed seed: what it prints is shown when it fails.
#include "tests/support/test.h"

#include <stdlib.h>
#include <unistd.h>

#include "tests/support/process_case.h"

#define TORTURE "tests/torture/torture"
#define LIMIT_S 240.0 // a minute, and the round that was under way at its end

static void a_minute(void **state)
{
    (void)state;
    process p = {0};
    const char *const arguments[] = {
        TORTURE, "--program", process_lanyard(), "--seed", "1", "--minutes", "1", NULL};
    if (system("command -v python3 >/dev/null") != 0)
        test_skip("python3 is not installed");
    if (access(TORTURE, X_OK) != 0)
        test_skip(TORTURE " is not there: this runs in the repository's root");
    process_start(&p, arguments);
    const int status = process_end(&p, LIMIT_S);
    if (status != 0)
        fail_msg("exit status %d; it said:\n%s", status, p.text);
    process_fini(&p);
}

TEST_MAIN(TEST_SLOW(a_minute, 270))
