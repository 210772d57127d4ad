// dp_hybrid - HybridDis: an exact solver for the rows where it pays, the greedy rule for the others.
//
// Source: ESD (arXiv 2512.21615), section 4.3, Algorithm 2. A row of the matrix is a sample, a sink
// is a worker that takes m_j rows, and alpha is the share of rows that the exact solver (Opt) places.
//
// RT_HYBRID_PAPER, as printed: rows in falling order of min2 - min, the difference between their
// smallest costs; the first of them are solved on floor(alpha m_j) seats of each sink, the others go
// one by one to their cheapest sink with room (Heu). Opt has to deal its rows out equally, so it parts
// rows that all want the same sink, and these are the rows with most to lose.
//
// RT_HYBRID_REFINE turns it round: Heu places all rows, in the same order, and Opt places some of them
// again on the seats that they hold. Which ones: a row that pays more than its smallest cost, the
// largest excess first, and with each the row at its cheapest sink that loses least by leaving.
//     costs  sink 0   1   2    Heu, one seat a sink      taken up again: b, which pays 20 too much,
//        a        0   4   9    c (9 to lose): sink 1     and a, whose seat it wants
//        b        0   3  20    a (4): sink 0             b: sink 0, a: sink 2
//        c        9   0  10    b (3): sink 2, for 20     9 in place of 20
// The order does not depend on alpha, so that a larger alpha takes up a superset: the cost of a matrix
// never rises with alpha, and is never above the greedy's.
//
// Created for bounds; solving allocates nothing. Deterministic. One thread.
#ifndef DP_HYBRID_H
#define DP_HYBRID_H

#include "dispatch/solvers/dp_solver.h"

typedef struct dp_hybrid dp_hybrid;

typedef struct {
    uint32_t opt_rows, heu_rows; // placed by Opt; by Heu alone
    // What the placement costs at most above the optimum, in the matrix's unit. 0: it is optimal.
    int64_t error_bound;
} dp_hybrid_result;

// solver: Opt. RT_NO_MEMORY.
rt_status dp_hybrid_create(rt_hybrid_kind kind, const dp_solver_ops *solver, uint32_t row_count_max,
                           uint32_t sink_count_max, dp_hybrid **hybrid_p);
void dp_hybrid_destroy(dp_hybrid *hybrid);

// alpha: 0 (Heu alone) to 1 (Opt alone). sink_of_row: row_count sinks out.
dp_hybrid_result dp_hybrid_solve(dp_hybrid *hybrid, const dp_problem *problem, double alpha,
                                 uint32_t *sink_of_row);

// Seconds for which the last solve held a GPU.
double dp_hybrid_device_s(const dp_hybrid *hybrid);

#endif
