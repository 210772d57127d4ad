// Models of every schema can be asked, by whatever programs have: cells of all containers, lines in
// any order, under any locale. The scripts are check_schemas.py and check_cells.py.
#include "tests/support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/process_case.h"
#include "tests/support/run_case.h"

#define SCRIPT_S 300

// What the script says about a case that cannot be here is why it is skipped.
static void must_run(const char *const *arguments)
{
    process p = {0};
    char reason[200];
    if (process_run(&p, arguments, SCRIPT_S) != 0)
        fail_msg("%s", p.text);
    const char *skipped = strstr(p.text, "skip: ");
    snprintf(reason, sizeof reason, "%.150s", skipped ? skipped + strlen("skip: ") : "");
    reason[strcspn(reason, "\n")] = '\0';
    process_fini(&p);
    if (skipped)
        test_skip("%s", reason);
}

static void run_script(const char *script, const char *command, const char *count, const char *seed)
{
    char program[500], library[500], path[200];
    process_need_numpy();
    snprintf(library, sizeof library, "%s", process_beside("liblanyard.so"));
    if (access(library, R_OK) != 0)
        test_skip("there is no %s", library);
    snprintf(program, sizeof program, "%s", process_lanyard());
    snprintf(path, sizeof path, "tests/proc/%s", script);
    if (command)
        must_run((const char *const[]){"/usr/bin/python3", path, command, program, library,
                                       run_folder(), NULL});
    else
        must_run((const char *const[]){"/usr/bin/python3", path, program, library, run_folder(),
                                       count, seed, NULL});
}

// LANYARD_SCHEMAS says how many, LANYARD_SCHEMAS_SEED from which on; one in ten is Criteo's.
static void made_up_schemas(void **state)
{
    const char *count = getenv("LANYARD_SCHEMAS"), *seed = getenv("LANYARD_SCHEMAS_SEED");
    (void)state;
    run_script("check_schemas.py", NULL, count ? count : "8", seed ? seed : "2");
}

static void missing_cells(void **state)
{
    (void)state;
    run_script("check_cells.py", "missing", NULL, NULL);
}

static void lines_of_a_file(void **state)
{
    (void)state;
    run_script("check_cells.py", "lines", NULL, NULL);
}

static void folders_of_models(void **state)
{
    (void)state;
    run_script("check_cells.py", "folders", NULL, NULL);
}

static void locales_of_a_host(void **state)
{
    (void)state;
    run_script("check_cells.py", "locale", NULL, NULL);
}

TEST_MAIN(TEST(made_up_schemas), TEST(missing_cells), TEST(lines_of_a_file),
          TEST(folders_of_models), TEST(locales_of_a_host))
