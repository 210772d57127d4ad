// solver_case - problems for solvers: kinds of costs and capacities, made from a seed.
#ifndef SOLVER_CASE_H
#define SOLVER_CASE_H

#include "dispatch/solvers/dp_solver.h"

typedef enum {
    COST_RANDOM,
    COST_TWO_VALUES,
    COST_FOUR_VALUES,
    COST_ESD,
    COST_ONE_SINK, // all rows prefer the first
    COST_EXTREME,  // 0 and the highest allowed
    COST_CHAIN,    // places are reached only through all other sinks, at the highest prices
    COST_SAME,
    COST_PERIODIC, // the rows of a sample tell nothing about the others
    COST_KIND_COUNT
} solver_costs;

typedef enum {
    CAPACITY_EVEN,
    CAPACITY_UNEVEN,
    CAPACITY_ZEROS,
    CAPACITY_SLACK,
    CAPACITY_LAST,
    CAPACITY_UNLIMITED,
    CAPACITY_KIND_COUNT
} solver_capacities;

typedef struct {
    dp_problem problem;
    int32_t *cost;
    uint32_t *capacity;
    char name[96];
} solver_case;

// Never NULL. The bounds are exact under the address sanitizer.
void *solver_allocate(size_t count, size_t size);

solver_case solver_case_make(uint64_t seed, uint32_t rows, uint32_t sinks, solver_costs costs,
                             solver_capacities capacities);
void solver_case_drop(solver_case *made);

// Every row has a sink, and no sink more rows than its capacity.
bool solver_fits(const dp_problem *problem, const uint32_t *sink_of_row);

#endif
