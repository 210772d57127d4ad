// The same problems for every solver. Tiny ones are held against all placements there are, the
// others against the certificate (itself held against all placements) and against each other.
#include "dispatch/solvers/dp_solver.h"
#include "runtime/config/rt_solvers.h"
#include "tests/support/crossed.h"
#include "tests/support/devices.h"
#include "tests/support/solver_case.h"
#include "tests/support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CANARY UINT32_C(0xdeadbeef)

// Least cost over all placements; every placement is also shown to visit, when there is one.
typedef void (*visitor)(const dp_problem *problem, const uint32_t *sink_of_row, int64_t least);

static int64_t enumerate(const dp_problem *problem, visitor visit, int64_t least)
{
    uint32_t sink_of_row[8] = {0};
    int64_t best = INT64_MAX;
    assert_true(problem->row_count <= RT_COUNT_OF(sink_of_row));
    for (;;) {
        if (solver_fits(problem, sink_of_row)) {
            int64_t cost = dp_placement_cost(problem, sink_of_row);
            best = cost < best ? cost : best;
        }
        if (visit)
            visit(problem, sink_of_row, least);
        uint32_t i = 0;
        while (i < problem->row_count && ++sink_of_row[i] == problem->sink_count)
            sink_of_row[i++] = 0;
        if (i == problem->row_count)
            return best;
    }
}

static void compare_certificate(const dp_problem *problem, const uint32_t *sink_of_row,
                                int64_t least)
{
    bool want =
        solver_fits(problem, sink_of_row) && dp_placement_cost(problem, sink_of_row) == least;
    assert_int_equal(dp_placement_optimal(problem, sink_of_row), want);
}

// The certificate accepts a placement when, and only when, no other is better.
static void test_certificate(void **unused)
{
    (void)unused;
    for (uint64_t seed = 0; seed < 300; seed++) {
        solver_case made =
            solver_case_make(seed, (uint32_t)(seed % 6), 1 + (uint32_t)(seed / 6 % 4),
                             (solver_costs)crossed(seed, 1, COST_KIND_COUNT),
                             (solver_capacities)crossed(seed, 2, CAPACITY_KIND_COUNT));
        int64_t least = enumerate(&made.problem, NULL, 0);
        enumerate(&made.problem, compare_certificate, least);
        solver_case_drop(&made);
    }
}

static void test_certificate_rejects_no_sink(void **unused)
{
    (void)unused;
    int32_t cost[] = {0, 0, 0};
    uint32_t capacity[] = {1, 1}, sink = 2;
    dp_problem problem = {1, 2, 3, cost, capacity};
    assert_false(dp_placement_optimal(&problem, &sink));
}

// Solves twice, with another problem in between, and checks all that must hold for any solver.
// Returns the cost. state fits made and other.
static int64_t check(const dp_solver_ops *ops, void *state, const solver_case *made,
                     const solver_case *other)
{
    uint32_t rows = made->problem.row_count;
    uint32_t *first = solver_allocate((size_t)rows + 1, sizeof *first);
    uint32_t *second = solver_allocate((size_t)rows + 1, sizeof *second);
    uint32_t *scratch = solver_allocate((size_t)other->problem.row_count, sizeof *scratch);
    for (uint32_t i = 0; i <= rows; i++)
        first[i] = second[i] = CANARY;
    ops->solve(state, &made->problem, first);
    ops->solve(state, &other->problem, scratch);
    ops->solve(state, &made->problem, second);
    if (!solver_fits(&made->problem, first))
        fail_msg("%s: not a placement: %s", ops->name, made->name);
    if (memcmp(first, second, rows * sizeof *first) != 0)
        fail_msg("%s: two results for one problem: %s", ops->name, made->name);
    assert_int_equal(first[rows], CANARY);
    if (ops->exact && !dp_placement_optimal(&made->problem, first))
        fail_msg("%s: not optimal: %s", ops->name, made->name);
    int64_t cost = dp_placement_cost(&made->problem, first);
    free(first);
    free(second);
    free(scratch);
    return cost;
}

#define XX(kind, name, help) RT_SOLVER_##kind,
static const rt_solver_kind kinds[] = {RT_SOLVER_MAP(XX)};
#undef XX

// All kinds of costs and capacities of one size. Solvers whose time is cubic can be left out.
static void run_size(uint32_t rows, uint32_t sinks, uint64_t seed, bool cubic, bool exhaustive)
{
    void *state[RT_COUNT_OF(kinds)] = {0};
    solver_case other = solver_case_make(seed + 1, rows, sinks, COST_RANDOM, CAPACITY_SLACK);
    for (size_t s = 0; s < RT_COUNT_OF(kinds); s++) {
        if (test_solver(kinds[s]))
            assert_int_equal(test_solver(kinds[s])->create(rows, sinks, &state[s]), RT_OK);
    }
    for (int c = 0; c < COST_KIND_COUNT * CAPACITY_KIND_COUNT; c++) {
        solver_case made =
            solver_case_make(seed, rows, sinks, (solver_costs)(c / CAPACITY_KIND_COUNT),
                             (solver_capacities)(c % CAPACITY_KIND_COUNT));
        int64_t least = exhaustive ? enumerate(&made.problem, NULL, 0) : -1;
        for (size_t s = 0; s < RT_COUNT_OF(kinds); s++) {
            const dp_solver_ops *ops = test_solver(kinds[s]);
            if (!ops || (!cubic && kinds[s] == RT_SOLVER_HUNGARIAN) ||
                !test_solver_takes(kinds[s], (uint64_t)rows * sinks))
                continue;
            int64_t cost = check(ops, state[s], &made, &other);
            least = least < 0 ? cost : least;
            if (ops->exact ? cost != least : cost < least)
                fail_msg("%s: cost %lld, least %lld: %s", ops->name, (long long)cost,
                         (long long)least, made.name);
        }
        solver_case_drop(&made);
    }
    for (size_t s = 0; s < RT_COUNT_OF(kinds); s++) {
        if (test_solver(kinds[s]))
            test_solver(kinds[s])->destroy(state[s]);
    }
    solver_case_drop(&other);
}

static void test_tiny_exhaustive(void **unused)
{
    (void)unused;
    for (uint32_t rows = 0; rows <= 6; rows++) {
        for (uint32_t sinks = 1; sinks <= 4; sinks++) {
            for (uint64_t seed = 0; seed < 5; seed++)
                run_size(rows, sinks, 1000 * seed + rows * 10 + sinks, true, true);
        }
    }
}

static void test_small(void **unused)
{
    (void)unused;
    static const uint32_t sinks[] = {1, 2, 3, 8, 9, 17, 64};
    static const uint32_t rows[] = {1, 2, 17, 33, 70};
    for (size_t i = 0; i < RT_COUNT_OF(sinks); i++) {
        for (size_t k = 0; k < RT_COUNT_OF(rows); k++)
            run_size(rows[k], sinks[i], i * 100 + k, sinks[i] < 16, false);
    }
}

static void test_many_sinks_cubic(void **unused)
{
    (void)unused;
    run_size(24, 64, 5, true, false);
}

// Levels of the warm start, full blocks and chunks, and both sides of their bounds.
static void test_large(void **unused)
{
    (void)unused;
    static const uint32_t sizes[][2] = {{255, 1},  {256, 2},  {257, 3},  {1024, 8},
                                        {1500, 5}, {2047, 8}, {1100, 17}};
    for (size_t i = 0; i < RT_COUNT_OF(sizes); i++)
        run_size(sizes[i][0], sizes[i][1], 7 + i, false, false);
}

static void test_largest(void **unused)
{
    (void)unused;
    solver_case made = solver_case_make(3, 65536, 64, COST_ESD, CAPACITY_EVEN);
    solver_case other = solver_case_make(4, 20000, 8, COST_ONE_SINK, CAPACITY_UNEVEN);
    void *state;
    assert_int_equal(dp_solver_transport.create(65536, 64, &state), RT_OK);
    check(&dp_solver_transport, state, &made, &other);
    check(&dp_solver_transport, state, &other, &made);
    dp_solver_transport.destroy(state);
    solver_case_drop(&made);
    solver_case_drop(&other);
}

// The same totals under any order of the rows and of the sinks.
static void test_order_does_not_matter(void **unused)
{
    (void)unused;
    enum { ROWS = 700, SINKS = 6 };
    static const solver_costs costs[] = {COST_RANDOM, COST_FOUR_VALUES, COST_ESD};
    void *state;
    assert_int_equal(dp_solver_transport.create(ROWS, SINKS, &state), RT_OK);
    for (uint64_t seed = 0; seed < 60; seed++) {
        solver_case made = solver_case_make(seed, ROWS, SINKS, costs[seed % 3], CAPACITY_SLACK);
        solver_case turned = solver_case_make(seed, ROWS, SINKS, costs[seed % 3], CAPACITY_SLACK);
        uint32_t stride = made.problem.stride;
        for (uint32_t i = 0; i < ROWS; i++) {
            for (uint32_t j = 0; j < SINKS; j++)
                turned.cost[(ROWS - 1 - i) * stride + (j + 2) % SINKS] = made.cost[i * stride + j];
        }
        for (uint32_t j = 0; j < SINKS; j++)
            turned.capacity[(j + 2) % SINKS] = made.capacity[j];
        assert_int_equal(check(&dp_solver_transport, state, &made, &turned),
                         check(&dp_solver_transport, state, &turned, &made));
        solver_case_drop(&made);
        solver_case_drop(&turned);
    }
    dp_solver_transport.destroy(state);
}

// Ties: most room, then the lowest index; a full sink gets no more.
static void test_greedy_order(void **unused)
{
    (void)unused;
    int32_t cost[5][3] = {{5, 5, 9}, {5, 5, 9}, {5, 5, 9}, {1, 1, 1}, {1, 0, 2}};
    uint32_t capacity[] = {1, 2, 2}, sink_of_row[5];
    static const uint32_t want[] = {1, 0, 1, 2, 2};
    dp_problem problem = {5, 3, 3, &cost[0][0], capacity};
    void *state;
    const dp_solver_ops *greedy = dp_solver_find(RT_SOLVER_GREEDY);
    assert_int_equal(greedy->create(5, 3, &state), RT_OK);
    greedy->solve(state, &problem, sink_of_row);
    assert_memory_equal(sink_of_row, want, sizeof want);
    greedy->destroy(state);
}

static void test_find(void **unused)
{
    (void)unused;
    assert_ptr_equal(dp_solver_find(RT_SOLVER_TRANSPORT), &dp_solver_transport);
    assert_true(dp_solver_find(RT_SOLVER_HUNGARIAN) != dp_solver_find(RT_SOLVER_GREEDY));
    for (size_t s = 0; s < RT_COUNT_OF(kinds); s++) {
        if (dp_solver_find(kinds[s]))
            dp_solver_find(kinds[s])->destroy(NULL);
    }
}

TEST_MAIN(TEST(test_certificate), TEST(test_certificate_rejects_no_sink),
          TEST(test_tiny_exhaustive), TEST_SLOW(test_small, 180), TEST(test_many_sinks_cubic),
          TEST(test_large), TEST(test_largest), TEST(test_order_does_not_matter),
          TEST(test_greedy_order), TEST(test_find))
