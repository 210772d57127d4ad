// dp_bound - how little can a placement of a batch cost: the true cost, a lower bound for batches
// of any size, and the optimum of tiny ones by exhaustive search.
//
// Written from the definition (each function says which), without code of dp_search, so that one
// can be held against the other. For benchmarks and tests: slow, and it allocates.
//
// The true cost in ticks of training key x on the workers U, o its dirty owner:
//     f_x(U) = pull_j of every j in U without the latest copy
//            + push_o                       if there is an o and not U = {o}
//            + DP_SEARCH_LATER push_j       if U = {j}: it owns the row and may have to push it
//            later
//            + grad_j of every j in U       if |U| >= 2
#ifndef DP_BOUND_H
#define DP_BOUND_H

#include "dispatch/cost/dp_view.h"

#define DP_BOUND_WORKERS_MAX 6u // exhaustive search
#define DP_BOUND_SAMPLES_MAX 16u

// Sum of f_x(U) over the keys of the batch. RT_NO_MEMORY.
rt_status dp_bound_cost(const dp_view *view, const uint32_t *worker_of_sample, int64_t *cost_p);

// No placement that gives worker j at most view->capacity[j] samples costs less. RT_NO_MEMORY.
rt_status dp_bound_lower(const dp_view *view, int64_t *bound_p);

// The least cost of all placements that respect view->capacity. Tiny batches only.
rt_status dp_bound_optimum(const dp_view *view, int64_t *cost_p);

#endif
