// A server with a small cache that fetches rows from another one says what the whole model says,
// and never takes a trained row for an untrained one: also while versions change, and with nobody
// to ask.
#include "tests/support/test.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/support/process_case.h"

#define RUN_S 200
#define SCRIPT "tests/proc/check_fetched.py"

static const char config[] =
    "{\"workers\": 2, \"batch\": {\"samples_per_worker\": 64}, \"stream\": {\"format\": "
    "\"criteo\"},"
    " \"model\": {\"deep_input\": \"all\", \"embedding_dim\": 32, \"mlp\": [16, 8]},"
    " \"optimizer\": {\"rows\": {\"learning_rate\": 0.1}}, \"cache\": {\"rows\": 20000},"
    " \"checkpoint\": {\"every_iterations\": 10, \"full_every\": 3},"
    " \"publish\": {\"every_s\": 1000, \"keep\": 9,"
    "  \"guard\": {\"log_loss\": 0, \"calibration\": 0}}}";

// A run that has published some versions; rows: of Criteo's format, others than it was trained on.
static void run_once(char run[500], char rows[500])
{
    char training[500], path[500], files[600];
    process_need_numpy();
    snprintf(run, 500, "%s", test_path("run"));
    snprintf(rows, 500, "%s", test_path("rows"));
    snprintf(training, sizeof training, "%s", test_path("train"));
    snprintf(path, sizeof path, "%s", test_path("config.json"));
    snprintf(files, sizeof files, "stream.files=%s", training);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(config, file) >= 0);
    assert_int_equal(fclose(file), 0);
    const char *const make[2][8] = {{"/usr/bin/python3", "tests/proc/check_answers.py", "make",
                                     "criteo", training, "6000", "0", NULL},
                                    {"/usr/bin/python3", "tests/proc/check_answers.py", "make",
                                     "criteo", rows, "1500", "4000", NULL}};
    process_must_run(make[0], RUN_S);
    process_must_run(make[1], RUN_S);
    const char *const up[] = {process_lanyard(), "up", path, "--out", run, "--set", files, NULL};
    process_must_run(up, RUN_S);
}

static void script(const char *command, const char *a, const char *b, const char *c)
{
    const char *const arguments[] = {"/usr/bin/python3", SCRIPT, command, a, b, c, NULL};
    process_must_run(arguments, RUN_S);
}

static void a_cache_of_a_tenth_says_the_same(void **state)
{
    char run[500], rows[500], program[500];
    (void)state;
    run_once(run, rows);
    snprintf(program, sizeof program, "%s", process_lanyard());
    script("same", program, run, rows);
}

static void with_library(const char *command)
{
    char run[500], rows[500], program[500], library[500];
    run_once(run, rows);
    snprintf(program, sizeof program, "%s", process_lanyard());
    snprintf(library, sizeof library, "%s", process_beside("liblanyard.so"));
    struct stat info;
    if (stat(library, &info) != 0)
        test_skip("there is no %s", library);
    script(command, program, library, run);
}

static void what_has_the_rows_goes_and_comes(void **state)
{
    (void)state;
    with_library("away");
}

static void versions_change_while_it_is_asked(void **state)
{
    (void)state;
    with_library("change");
}

static void keys_are_needed_for_rows(void **state)
{
    char run[500], rows[500], program[500], folder[500];
    (void)state;
    run_once(run, rows);
    snprintf(program, sizeof program, "%s", process_lanyard());
    snprintf(folder, sizeof folder, "%s", test_path("boxes"));
    assert_int_equal(mkdir(folder, 0700), 0);
    script("keys", program, run, folder);
}

TEST_MAIN(TEST_SLOW(a_cache_of_a_tenth_says_the_same, 240),
          TEST_SLOW(what_has_the_rows_goes_and_comes, 240),
          TEST_SLOW(versions_change_while_it_is_asked, 240),
          TEST_SLOW(keys_are_needed_for_rows, 240))
