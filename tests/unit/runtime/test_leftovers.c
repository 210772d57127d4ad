// What a case starts ends with it, also in a session of its own, also when the case fails; and all
// cases end when their program is told to.
#include "tests/support/test.h"

#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static struct {
    volatile pid_t starter, helper;
} * shared; // with the cases

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

static void all_ends_when_told(void **state)
{
    (void)state;
    assert_int_equal(run_one(leave_one_and_wait, true), EXIT_FAILURE);
}

int main(int argc, char **argv)
{
    static const test_case cases[] = {TEST(what_is_left_ends), TEST(what_a_failure_leaves_ends),
                                      TEST(all_ends_when_told)};
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return EXIT_FAILURE;
    return test_run(cases, sizeof cases / sizeof cases[0], argc, argv);
}
