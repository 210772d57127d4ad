#include "tests/support/solver_case.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/rt_hash.h"
#include "tests/support/test.h"

void *solver_allocate(size_t count, size_t size)
{
    void *block = malloc(count * size + 1); // malloc: exact bounds under the address sanitizer
    assert_non_null(block);
    return block;
}

static void fill_esd(rt_random *random, int32_t *cost, uint32_t sinks)
{
    enum { FIELDS = 26 };
    int32_t owned[RT_WORKERS_MAX] = {0}, sum = 0;
    uint32_t home = rt_random_below(random, sinks);
    for (int f = 0; f < FIELDS; f++)
        owned[rt_random_below(random, 2) ? home : rt_random_below(random, sinks)]++;
    for (uint32_t j = 0; j < sinks; j++)
        sum += owned[j] * (j % 2 ? 100 : 10);
    for (uint32_t j = 0; j < sinks; j++)
        cost[j] = FIELDS * 100 + sum + (FIELDS - 2 * owned[j]) * (j % 2 ? 100 : 10);
}

static int32_t one_cost(rt_random *random, solver_costs kind, uint32_t i, uint32_t j,
                        uint32_t sinks)
{
    switch (kind) {
    case COST_RANDOM:
        return (int32_t)rt_random_below(random, 1000000);
    case COST_TWO_VALUES:
        return (int32_t)rt_random_below(random, 2);
    case COST_FOUR_VALUES:
        return (int32_t)rt_random_below(random, 4) * 250;
    case COST_ONE_SINK:
        return j == 0 ? 0 : 1 + (int32_t)rt_random_below(random, 10);
    case COST_EXTREME:
        return rt_random_below(random, 2) ? DP_COST_MAX : 0;
    case COST_CHAIN:
        return j == i % sinks || j == (i + 1) % sinks ? (int32_t)rt_random_below(random, 2)
                                                      : DP_COST_MAX;
    case COST_PERIODIC:
        return j == (i % 4 == 0 ? 0 : sinks - 1) ? 0 : 10 + (int32_t)rt_random_below(random, 5);
    default:
        return 7;
    }
}

static void fill_capacity(rt_random *random, solver_case *made, solver_capacities kind)
{
    uint32_t rows = made->problem.row_count, sinks = made->problem.sink_count;
    uint32_t usable = sinks; // the first ones
    memset(made->capacity, 0, sinks * sizeof *made->capacity);
    if (kind == CAPACITY_UNLIMITED) {
        memset(made->capacity, 0xff, sinks * sizeof *made->capacity);
        return;
    }
    if (kind == CAPACITY_LAST) {
        made->capacity[sinks - 1] = rows;
        return;
    }
    if (kind == CAPACITY_ZEROS)
        usable = (sinks + 1) / 2;
    uint32_t places = kind == CAPACITY_SLACK ? rows + 1 + rt_random_below(random, rows + 1) : rows;
    for (uint32_t p = 0; p < places; p++) {
        uint32_t j = kind == CAPACITY_EVEN ? p % sinks : rt_random_below(random, usable);
        if (kind == CAPACITY_UNEVEN || kind == CAPACITY_SLACK)
            j = rt_random_below(random, j + 1); // the first ones get most
        made->capacity[j]++;
    }
}

solver_case solver_case_make(uint64_t seed, uint32_t rows, uint32_t sinks, solver_costs costs,
                             solver_capacities capacities)
{
    rt_random random = {seed};
    uint32_t stride = sinks + rt_random_below(&random, 4);
    solver_case made = {.cost = solver_allocate((size_t)rows * stride, sizeof(int32_t)),
                        .capacity = solver_allocate(sinks, sizeof(uint32_t))};
    made.problem = (dp_problem){rows, sinks, stride, made.cost, made.capacity};
    for (uint32_t i = 0; i < rows; i++) {
        int32_t *cost = made.cost + (size_t)i * stride;
        if (costs == COST_ESD)
            fill_esd(&random, cost, sinks);
        for (uint32_t j = 0; j < sinks && costs != COST_ESD; j++)
            cost[j] = one_cost(&random, costs, i, j, sinks);
        for (uint32_t j = sinks; j < stride; j++)
            cost[j] = INT32_MIN; // between the rows: not to be used
    }
    fill_capacity(&random, &made, capacities);
    snprintf(made.name, sizeof made.name,
             "rows %u, sinks %u, costs %d, capacities %d, seed %" PRIu64, rows, sinks, (int)costs,
             (int)capacities, seed);
    return made;
}

void solver_case_drop(solver_case *made)
{
    free(made->cost);
    free(made->capacity);
}

bool solver_fits(const dp_problem *problem, const uint32_t *sink_of_row)
{
    uint32_t load[RT_WORKERS_MAX] = {0};
    for (uint32_t i = 0; i < problem->row_count; i++) {
        if (sink_of_row[i] >= problem->sink_count ||
            ++load[sink_of_row[i]] > problem->capacity[sink_of_row[i]])
            return false;
    }
    return true;
}
