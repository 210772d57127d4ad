// A solver on a GPU that fails in the middle of a run: transport takes over, with the same total
// cost. The plug-in is the one with the kernels on the CPU, which the program finds as it finds the
// real one: so a case runs itself again, in a process that has it on the loader's path.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dispatch/solvers/dp_solver.h"
#include "runtime/config/rt_solvers.h"
#include "tests/support/devices.h"
#include "tests/support/solver_case.h"
#include "tests/support/test.h"

#define ROWS 24u
#define SINKS 3u
#define PROBLEMS 3u
#define AGAIN "TEST_CUDA_SOLVER_AGAIN"

typedef struct {
    void (*fail_call)(uint64_t);
    uint64_t (*failures)(void), (*alive)(void);
} control;

static control controls(const char *fail_name)
{
    control c;
    test_plugin_function(fail_name, &c.fail_call);
    test_plugin_function("cuda_cpu_failures", &c.failures);
    test_plugin_function("cuda_cpu_alive", &c.alive);
    assert_true(c.fail_call && c.failures && c.alive);
    return c;
}

// The device is there for the first problem, and one of its calls fails in the second or third.
// Returns whether one did.
static bool fail_in_the_middle(const control *c, rt_solver_kind kind, uint64_t call)
{
    const dp_solver_ops *ops = dp_solver_find(kind);
    const uint64_t failed_before = c->failures(), alive_before = c->alive();
    uint32_t sink_of_row[ROWS], want[ROWS];
    void *solver, *transport;
    assert_non_null(ops);
    assert_int_equal(ops->create(ROWS, SINKS, &solver), RT_OK);
    assert_int_equal(dp_solver_transport.create(ROWS, SINKS, &transport), RT_OK);
    for (uint32_t i = 0; i < PROBLEMS; i++) {
        solver_case made = solver_case_make(i + 1, ROWS, SINKS, COST_RANDOM, CAPACITY_EVEN);
        if (i == 1)
            c->fail_call(call);
        ops->solve(solver, &made.problem, sink_of_row);
        const bool failed = c->failures() != failed_before;
        dp_solver_transport.solve(transport, &made.problem, want);
        assert_true(solver_fits(&made.problem, sink_of_row));
        assert_int_equal(dp_placement_cost(&made.problem, sink_of_row),
                         dp_placement_cost(&made.problem, want));
        assert_true(failed || ops->device_s(solver) > 0);
        solver_case_drop(&made);
    }
    c->fail_call(0);
    ops->destroy(solver);
    dp_solver_transport.destroy(transport);
    assert_int_equal(c->alive(), alive_before);
    return c->failures() != failed_before;
}

static void sweep(const char *fail_name)
{
    const control c = controls(fail_name);
    uint64_t call = 1;
    while (fail_in_the_middle(&c, RT_SOLVER_HUNGARIAN_CUDA, call))
        call++;
    assert_true(call > 8); // of two solves: copies, kernels, events, waits
}

// The same case with what passes for a driver and its plug-in, both the stand-in's very file.
static void run_again(const char *name)
{
    char program[4096], command[16384];
    const char *folder = test_directory();
    const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    assert_true(length > 0);
    program[length] = '\0';
    snprintf(command, sizeof command,
             "ln -s \"$(readlink -f %s)\" %s/libcuda.so.1 && "
             "ln -s \"$(readlink -f %s)\" %s/liblanyard_cuda.so && " AGAIN
             "=1 LD_LIBRARY_PATH=%s:$LD_LIBRARY_PATH %s %s",
             test_plugin_path(), folder, test_plugin_path(), folder, folder, program, name);
    if (system(command) != 0)
        fail_msg("failed: %s", command);
}

static void transport_takes_over_from_a_solver_that_fails(void **state)
{
    (void)state;
    if (!getenv(AGAIN))
        run_again("transport_takes_over_from_a_solver_that_fails");
    else
        sweep("cuda_cpu_fail_after");
}

static void transport_takes_over_after_one_failure(void **state)
{
    (void)state;
    if (!getenv(AGAIN))
        run_again("transport_takes_over_after_one_failure");
    else
        sweep("cuda_cpu_fail_once");
}

TEST_MAIN(TEST_SLOW(transport_takes_over_from_a_solver_that_fails, 120),
          TEST_SLOW(transport_takes_over_after_one_failure, 120))
