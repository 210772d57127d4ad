// What earlier builds have saved (tests/golden/saved): this one verifies it, reads it, plans its
// records again and goes on from it, and comes to what the build that wrote it came to.
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime/rt_base.h"
#include "tests/support/process_case.h"
#include "tests/support/records.h"
#include "tests/support/test.h"

#define ARCHIVES "tests/golden/saved/*/*.tar.xz"
#define PARTS 8u
#define PART_S 300u
#define ONE_S 120.0

// Every PARTS-th archive, from this one on.
static void check(uint32_t part)
{
    glob_t found;
    uint32_t wrong = 0;
    if (access("tests/golden/saved.py", R_OK) != 0)
        test_skip("is run from the root of the repository");
    if (access("/usr/bin/python3", X_OK) != 0 || access("/usr/bin/xz", X_OK) != 0)
        test_skip(
            "/usr/bin/python3 or /usr/bin/xz (Debian packages python3, xz-utils) is not there");
    assert_int_equal(setenv("LANYARD", process_lanyard(), 1), 0);
    assert_int_equal(glob(ARCHIVES, 0, NULL, &found), 0);
    assert_true(found.gl_pathc > PARTS);
    for (size_t i = part; i < found.gl_pathc; i += PARTS) {
        const char *const words[] = {"/usr/bin/python3", "-B", "tests/golden/saved.py", "check",
                                     found.gl_pathv[i],  NULL};
        process p;
        const int status = process_run(&p, words, ONE_S);
        printf("%s: status %d\n%s", found.gl_pathv[i], status, p.text);
        wrong += status != 0;
        process_fini(&p);
    }
    globfree(&found);
    assert_int_equal(wrong, 0);
}

int main(int argc, char **argv)
{
    return records_run(PARTS, PART_S, check, argc, argv);
}
