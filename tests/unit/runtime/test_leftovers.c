// What a case starts ends with it, also in a session of its own, also when the case fails; what it
// writes goes with it; and all cases end when their program is told to.
#include "tests/support/test.h"

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct {
    volatile pid_t starter, helper;
    char directory[64];
} * shared; // with the cases

#define DEEP 40 // folders in each other, with names of 200 bytes: longer than PATH_MAX

// A case: starts a process in a session of its own, as a shell does that starts a service again and
// again, and fails, or waits for its end.
static void leave_one(void **state)
{
    (void)state;
    shared->starter = getpid();
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        setsid();
        if (fork() == 0) {
            setsid();
            shared->helper = getpid();
            for (;;)
                pause();
        }
        for (;;)
            pause();
    }
    while (!shared->helper)
        usleep(1000);
}

static void leave_one_and_fail(void **state)
{
    leave_one(state);
    fail();
}

static void leave_one_and_wait(void **state)
{
    leave_one(state);
    for (;;)
        pause();
}

// A case: folders in each other, and a file at the end.
static void write_deep(void **state)
{
    (void)state;
    char name[201];
    memset(name, 'x', 200);
    name[200] = '\0';
    snprintf(shared->directory, sizeof shared->directory, "%s", test_directory());
    int folder = open(shared->directory, O_RDONLY | O_DIRECTORY);
    for (int i = 0; i < DEEP; i++) {
        const int outer = folder;
        assert_int_equal(mkdirat(outer, name, 0700), 0);
        folder = openat(outer, name, O_RDONLY | O_DIRECTORY);
        assert_true(folder >= 0);
        close(outer);
    }
    const int file = openat(folder, "file", O_WRONLY | O_CREAT, 0600);
    assert_true(file >= 0);
    close(file);
    close(folder);
}

// Runs the case in a program of its own; told: that is ended by SIGTERM while the case waits.
static int run_one(void (*run)(void **state), bool told)
{
    const test_case one = {"left", run, 30};
    char *arguments[] = {"test", NULL};
    int status, adopts;
    if (prctl(PR_GET_CHILD_SUBREAPER, &adopts) != 0)
        test_skip("no process adopts what its children leave here (qemu-user does not know how)");
    shared->helper = 0;
    pid_t program = fork();
    assert_true(program >= 0);
    if (program == 0)
        exit(test_run(&one, 1, 1, arguments));
    while (told && !shared->helper)
        usleep(1000);
    if (told)
        assert_int_equal(kill(program, SIGTERM), 0);
    assert_int_equal(waitpid(program, &status, 0), program);
    assert_true(WIFEXITED(status));
    assert_true(shared->helper > 0);
    assert_int_equal(kill(shared->starter, 0), -1);
    assert_int_equal(kill(shared->helper, 0), -1);
    return WEXITSTATUS(status);
}

static void what_is_left_ends(void **state)
{
    (void)state;
    assert_int_equal(run_one(leave_one, false), EXIT_SUCCESS);
}

static void what_a_failure_leaves_ends(void **state)
{
    (void)state;
    assert_int_equal(run_one(leave_one_and_fail, false), EXIT_FAILURE);
}

static void what_is_written_goes(void **state)
{
    (void)state;
    const test_case one = {"written", write_deep, 30};
    char *arguments[] = {"test", NULL};
    int status;
    pid_t program = fork();
    assert_true(program >= 0);
    if (program == 0)
        exit(test_run(&one, 1, 1, arguments));
    assert_int_equal(waitpid(program, &status, 0), program);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SUCCESS);
    assert_string_not_equal(shared->directory, "");
    assert_int_equal(access(shared->directory, F_OK), -1);
}

static void all_ends_when_told(void **state)
{
    (void)state;
    assert_int_equal(run_one(leave_one_and_wait, true), EXIT_FAILURE);
}

int main(int argc, char **argv)
{
    static const test_case cases[] = {TEST(what_is_left_ends), TEST(what_a_failure_leaves_ends),
                                      TEST(what_is_written_goes), TEST(all_ends_when_told)};
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return EXIT_FAILURE;
    return test_run(cases, sizeof cases / sizeof cases[0], argc, argv);
}
