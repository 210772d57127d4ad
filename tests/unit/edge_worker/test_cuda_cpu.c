// What runs kernels on the CPU shows the faults that it is for.
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/devices.h"
#include "tests/support/test.h"

#if defined(__SANITIZE_ADDRESS__)
#define ADDRESS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ADDRESS 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define THREAD 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define THREAD 1
#endif
#endif

typedef float (*faulty)(int which);

static float run_here(int which)
{
    faulty function;
    test_plugin_function("cuda_cpu_faulty", &function);
    assert_non_null(function);
    return function(which);
}

// Runs a fault in a process of its own and returns what it printed; it must fail.
static const char *run_and_fail(int which)
{
    static char output[8192];
    int ends[2], status = 0;
    size_t used = 0;
    ssize_t got;
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        (void)run_here(which);
        _exit(0);
    }
    close(ends[1]);
    while (used < sizeof output - 1 &&
           (got = read(ends[0], output + used, sizeof output - 1 - used)) > 0)
        used += (size_t)got;
    output[used] = 0;
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        fail_msg("fault %d went unnoticed: %s", which, output);
    return output;
}

static void expect_in(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("expected \"%s\" in: %s", part, text);
}

static void divergent_barriers_end_with_file_and_line(void **state)
{
    (void)state;
    expect_in(run_and_fail(0), "faulty.cu:10");
    expect_in(run_and_fail(0), "has returned");
    expect_in(run_and_fail(1), "faulty.cu:17");
    expect_in(run_and_fail(1), "faulty.cu:19");
    expect_in(run_and_fail(2), "a warp of 8 threads");
}

#ifndef THREAD
// The sum holds NaN, whatever the order: the thread that comes first reads what nobody wrote.
static void missing_barrier_reads_nan(void **state)
{
    void (*seed)(uint64_t);
    (void)state;
    test_plugin_function("cuda_cpu_seed", &seed);
    for (uint64_t s = 0; s < 20; s++) {
        seed(s);
        assert_true(isnan(run_here(3)));
        assert_true(run_here(4) == 64 * 63 / 2);
    }
}
#else
static void missing_barrier_reads_nan(void **state)
{
    (void)state;
    expect_in(run_and_fail(3), "data race");
    expect_in(run_and_fail(7), "data race"); // between blocks
    assert_true(run_here(4) == 64 * 63 / 2);
}
#endif

static void memory_is_watched(void **state)
{
    (void)state;
#ifndef ADDRESS
    test_skip("only under the address sanitizer");
#else
    expect_in(run_and_fail(5), "AddressSanitizer");
    expect_in(run_and_fail(6), "AddressSanitizer");
    expect_in(run_and_fail(9), "AddressSanitizer");
#endif
}

static void host_pointers_are_refused(void **state)
{
    (void)state;
    expect_in(run_and_fail(8), "memory that is the host's");
}

static void too_large_a_block_is_an_error(void **state)
{
    (void)state;
    assert_true(run_here(10) == 9); // cudaErrorInvalidConfiguration
}

TEST_MAIN(TEST(divergent_barriers_end_with_file_and_line), TEST(missing_barrier_reads_nan),
          TEST(memory_is_watched), TEST(host_pointers_are_refused),
          TEST(too_large_a_block_is_an_error))
