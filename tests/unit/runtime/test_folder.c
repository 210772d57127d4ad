// A folder that takes another's place: what is there at every moment, whatever ended before.
#define _GNU_SOURCE // O_DIRECTORY
#include "runtime/files/rt_folder.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/test.h"

static void put(const char *folder, const char *name, const char *text)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void must_hold(const char *folder, const char *name, const char *text)
{
    char path[600], got[100] = "";
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "r");
    if (!file && !text)
        return;
    if (!file || !text || !fgets(got, sizeof got, file) || strcmp(got, text) != 0)
        fail_msg("%s holds \"%s\", expected \"%s\"", path, got, text ? text : "(nothing)");
    fclose(file);
}

static bool is_there(const char *path, const char *end)
{
    char with[600];
    snprintf(with, sizeof with, "%s%s", path, end);
    return access(with, F_OK) == 0;
}

static void write_new(const char *path, bool commits)
{
    rt_folder folder;
    rt_error error = {0};
    if (rt_folder_begin(&folder, path, &error))
        fail_msg("%s", error.text);
    put(folder.draft, "dense.bin", "new");
    if (commits)
        assert_int_equal(rt_folder_commit(&folder, &error), RT_OK);
    else
        rt_folder_abort(&folder);
}

static void the_new_takes_the_place_of_the_old(void **state)
{
    (void)state;
    char path[300];
    snprintf(path, sizeof path, "%s/model", test_directory());
    write_new(path, true); // none was there
    must_hold(path, "dense.bin", "new");
    put(path, "dense.bin", "old");
    put(path, "rows-000-of-002.bin", "old");
    write_new(path, false);
    must_hold(path, "dense.bin", "old");
    write_new(path, true);
    must_hold(path, "dense.bin", "new");
    must_hold(path, "rows-000-of-002.bin", NULL);
    assert_false(is_there(path, ".tmp") || is_there(path, ".old"));
}

// Every state that the end of a process can leave.
static void what_an_end_left_is_tidied_up(void **state)
{
    (void)state;
    char path[300], draft[310], old[310];
    snprintf(path, sizeof path, "%s/model", test_directory());
    snprintf(draft, sizeof draft, "%s.tmp", path);
    snprintf(old, sizeof old, "%s.old", path);

    assert_int_equal(mkdir(path, 0777), 0); // while files came, or after the exchange
    assert_int_equal(mkdir(draft, 0777), 0);
    put(path, "dense.bin", "old");
    put(draft, "dense.bin.tmp", "half");
    put(draft, "rows-000-of-001.bin", "other");
    write_new(path, true);
    must_hold(path, "dense.bin", "new");
    must_hold(path, "rows-000-of-001.bin", NULL);
    assert_false(is_there(path, ".tmp"));

    put(path, "dense.bin", "old"); // between two renames: no folder of that name
    assert_int_equal(rename(path, old), 0);
    assert_int_equal(mkdir(draft, 0777), 0);
    write_new(path, false);
    must_hold(path, "dense.bin", "old");
    assert_false(is_there(path, ".tmp") || is_there(path, ".old"));

    assert_int_equal(mkdir(old, 0777), 0); // after them
    put(old, "dense.bin", "older");
    write_new(path, false);
    must_hold(path, "dense.bin", "old");
    assert_false(is_there(path, ".old"));
}

static void nothing_but_models_is_removed(void **state)
{
    (void)state;
    char path[300];
    rt_folder folder;
    rt_error error = {0};
    snprintf(path, sizeof path, "%s/mine", test_directory());
    assert_int_equal(mkdir(path, 0777), 0);
    put(path, "letter.txt", "dear");
    assert_int_equal(rt_folder_begin(&folder, path, &error), RT_CONFIG);
    assert_non_null(strstr(error.text, "letter.txt"));
    must_hold(path, "letter.txt", "dear");
    assert_false(is_there(path, ".tmp"));
    snprintf(path + strlen(path), sizeof path - strlen(path), "/letter.txt");
    assert_int_equal(rt_folder_check(path, &error), RT_CONFIG);
    strcat(path, "-absent");
    assert_int_equal(rt_folder_check(path, &error), RT_OK);
}

static void two_do_not_write_one_folder(void **state)
{
    (void)state;
    char path[300];
    rt_folder one, other;
    rt_error error = {0};
    snprintf(path, sizeof path, "%s/model", test_directory());
    assert_int_equal(rt_folder_begin(&one, path, &error), RT_OK);
    put(one.draft, "dense.bin", "one");
    assert_int_equal(rt_folder_begin(&other, path, &error), RT_IO);
    assert_non_null(strstr(error.text, "another process"));
    must_hold(one.draft, "dense.bin", "one");
    assert_int_equal(rt_folder_commit(&one, &error), RT_OK);
    must_hold(path, "dense.bin", "one");
}

TEST_MAIN(TEST(the_new_takes_the_place_of_the_old), TEST(what_an_end_left_is_tidied_up),
          TEST(nothing_but_models_is_removed), TEST(two_do_not_write_one_folder))
