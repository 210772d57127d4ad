// Every solver against `transport`, on many problems of one shape after another: uneven capacities,
// room to spare, and more rows than a block has threads among them; few of the large ones, as
// kernels on the CPU are slow. And `transport` against scipy's totals
// (tests/golden/make_solvers.py); test_solvers holds it against all placements there are.
#include "dispatch/solvers/dp_solver.h"
#include "runtime/config/rt_solvers.h"
#include "runtime/rt_hash.h"
#include "tests/support/devices.h"
#include "tests/support/solver_case.h"
#include "tests/support/test.h"

#include <stdio.h>
#include <stdlib.h>

static const rt_solver_kind rivals[] = {RT_SOLVER_HUNGARIAN_CUDA, RT_SOLVER_HUNGARIAN,
                                        RT_SOLVER_GREEDY};

// Solvers, and their state for one shape; index 0 of both is transport.
typedef struct {
    const dp_solver_ops *ops[1 + RT_COUNT_OF(rivals)];
    void *state[1 + RT_COUNT_OF(rivals)];
    uint32_t count;
} field;

static field open_field(uint32_t rows, uint32_t sinks)
{
    field f = {.ops = {&dp_solver_transport}, .count = 1};
    for (size_t s = 0; s < RT_COUNT_OF(rivals); s++)
        if (test_solver(rivals[s]))
            f.ops[f.count++] = test_solver(rivals[s]);
    for (uint32_t s = 0; s < f.count; s++)
        assert_int_equal(f.ops[s]->create(rows, sinks, &f.state[s]), RT_OK);
    return f;
}

static void close_field(field *f)
{
    for (uint32_t s = 0; s < f->count; s++)
        f->ops[s]->destroy(f->state[s]);
}

// Solver number s on the problem. Returns the cost.
static int64_t solve(const field *f, uint32_t s, const dp_problem *problem, uint32_t *sink_of_row,
                     const char *name)
{
    f->ops[s]->solve(f->state[s], problem, sink_of_row);
    if (!solver_fits(problem, sink_of_row))
        fail_msg("%s: not a placement: %s", f->ops[s]->name, name);
    return dp_placement_cost(problem, sink_of_row);
}

static void compare(const field *f, const dp_problem *problem, uint32_t *sink_of_row,
                    const char *name, uint32_t solver_count)
{
    int64_t least = solve(f, 0, problem, sink_of_row, name);
    if (!dp_placement_optimal(problem, sink_of_row))
        fail_msg("transport: not optimal: %s", name);
    for (uint32_t s = 1; s < solver_count; s++) {
        int64_t cost = solve(f, s, problem, sink_of_row, name);
        if (f->ops[s]->exact ? cost != least : cost < least)
            fail_msg("%s: cost %lld, transport %lld: %s", f->ops[s]->name, (long long)cost,
                     (long long)least, name);
    }
}

static void run_shape(uint32_t rows, uint32_t sinks, uint32_t instances)
{
    field f = open_field(rows, sinks);
    uint32_t *sink_of_row = solver_allocate(rows, sizeof *sink_of_row);
    instances = (uint32_t)rt_max_u64(instances / test_device_slowness(), 1);
    for (uint32_t i = 0; i < instances; i++) {
        // Kinds of costs change fastest, and all pairs of kinds come.
        solver_case made = solver_case_make(
            rt_mix(rows * 1000003u + sinks) + i, rows, sinks, (solver_costs)(i % COST_KIND_COUNT),
            (solver_capacities)(i / COST_KIND_COUNT % CAPACITY_KIND_COUNT));
        compare(&f, &made.problem, sink_of_row, made.name, f.count);
        solver_case_drop(&made);
    }
    free(sink_of_row);
    close_field(&f);
}

static void test_6x4(void **unused)
{
    (void)unused;
    run_shape(6, 4, 1000);
}

static void test_17x3(void **unused)
{
    (void)unused;
    run_shape(17, 3, 1000);
}

static void test_40x8(void **unused)
{
    (void)unused;
    run_shape(40, 8, 100);
}

static void test_96x6(void **unused)
{
    (void)unused;
    run_shape(96, 6, 40);
}

// More rows than a block has threads: with room to spare, blanks too.
static void test_1100x5(void **unused)
{
    (void)unused;
    run_shape(1100, 5, 3);
}

// Costs of all kinds of the published experiments' batch, uneven and even.
static void test_1024x8(void **unused)
{
    (void)unused;
    static const solver_capacities capacities[] = {CAPACITY_EVEN, CAPACITY_UNEVEN};
    field f = open_field(1024, 8);
    uint32_t *sink_of_row = solver_allocate(1024, sizeof *sink_of_row);
    for (uint32_t i = 0; i < (test_device_slowness() > 1 ? 1 : 3); i++) {
        solver_case made = solver_case_make(i, 1024, 8, i < 2 ? COST_RANDOM : COST_ESD,
                                            capacities[i % RT_COUNT_OF(capacities)]);
        compare(&f, &made.problem, sink_of_row, made.name, f.count);
        solver_case_drop(&made);
    }
    free(sink_of_row);
    close_field(&f);
}

// Numbers of the file, one after another; false at its end.
static bool read_number(FILE *file, long long *number)
{
    return fscanf(file, "%lld", number) == 1;
}

static void test_scipy(void **unused)
{
    (void)unused;
    long long head[3], number;
    uint32_t problems = 0;
    FILE *file = fopen("tests/golden/solvers.golden", "r");
    assert_non_null(file);
    while (read_number(file, &head[0])) {
        assert_true(read_number(file, &head[1]) && read_number(file, &head[2]));
        uint32_t rows = (uint32_t)head[0], sinks = (uint32_t)head[1], capacity[RT_WORKERS_MAX];
        assert_true(sinks <= RT_WORKERS_MAX);
        int32_t *cost = solver_allocate((size_t)rows * sinks, sizeof *cost);
        uint32_t *sink_of_row = solver_allocate(rows, sizeof *sink_of_row);
        for (uint32_t j = 0; j < sinks && read_number(file, &number); j++)
            capacity[j] = (uint32_t)number;
        for (size_t k = 0; k < (size_t)rows * sinks && read_number(file, &number); k++)
            cost[k] = (int32_t)number;
        dp_problem problem = {rows, sinks, sinks, cost, capacity};
        field f = open_field(rows, sinks);
        char name[64];
        snprintf(name, sizeof name, "problem %u of solvers.golden", problems);
        assert_int_equal(solve(&f, 0, &problem, sink_of_row, name), head[2]);
        compare(&f, &problem, sink_of_row, name, f.count);
        close_field(&f);
        free(sink_of_row);
        free(cost);
        problems++;
    }
    (void)fclose(file);
    assert_int_equal(problems, 71);
}

TEST_MAIN(TEST(test_6x4), TEST_SLOW(test_17x3, 120), TEST_SLOW(test_40x8, 240),
          TEST_SLOW(test_96x6, 120), TEST_SLOW(test_1100x5, 120), TEST_SLOW(test_1024x8, 120),
          TEST(test_scipy))
