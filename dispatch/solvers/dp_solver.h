// dp_solver - places rows (samples) on sinks (workers) with capacities at least total cost.
//
// The transportation problem behind ESD's Opt (ESD, section 4.3): row i goes to
// exactly one sink j, sink j takes at most capacity[j] rows, the sum of cost[i][j] is minimal.
// Costs are integers, so all exact solvers reach the same total. Every solver is deterministic:
// the same problem gives the same placement on every machine.
//
// A solver is created for bounds and allocates then; solving allocates nothing. One thread each.
#ifndef DP_SOLVER_H
#define DP_SOLVER_H

#include "runtime/config/rt_config.h"

typedef struct {
    uint32_t row_count;
    uint32_t sink_count;
    uint32_t stride;          // elements between rows of cost, >= sink_count
    const int32_t *cost;      // row_count x stride, 0 <= cost <= DP_COST_MAX
    const uint32_t *capacity; // sink_count; their sum is at least row_count
} dp_problem;

#define DP_COST_MAX (INT32_C(1) << 28)

typedef struct dp_solver dp_solver;

typedef struct {
    const char *name;
    bool exact;
    rt_status (*create)(uint32_t row_count_max, uint32_t sink_count_max, void **state_p);
    void (*destroy)(void *state);
    // sink_of_row: row_count sinks out. The problem fits the bounds of create.
    void (*solve)(void *state, const dp_problem *problem, uint32_t *sink_of_row);
    // Seconds for which the last solve held a GPU; NULL: none. No placement depends on it.
    double (*device_s)(const void *state);
    // Whether it can be had here; NULL: anywhere. RT_UNSUPPORTED: error says why not; it may be
    // NULL.
    rt_status (*available)(rt_error *error);
} dp_solver_ops;

extern const dp_solver_ops dp_solver_transport; // the default

// The table of a kind; NULL where it is not available.
const dp_solver_ops *dp_solver_find(rt_solver_kind kind);

// The same; where there is none, dp_solver_transport, and one line in the log that says why.
const dp_solver_ops *dp_solver_choose(rt_solver_kind kind);

// Total cost of a placement.
int64_t dp_placement_cost(const dp_problem *problem, const uint32_t *sink_of_row);

// True when the placement is complete, respects all capacities, and is optimal: looks for a
// negative cycle among the sinks (O(N n + n^3)); the independent check of every exact solver.
bool dp_placement_optimal(const dp_problem *problem, const uint32_t *sink_of_row);

#endif
