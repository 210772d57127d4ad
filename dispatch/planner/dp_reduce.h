// dp_reduce - gradients of a row go to one of its trainers, which sums them (Bagpipe, section 3.4).
//
// Of a row that several workers train, one of them gets the gradients of the others, steps the row
// with the sum in the order of workers, and owns it: the PS keeps the version that it had. So a
// gradient takes two workers' links and none of the PS, and the next training of the owner needs no
// pull. Bagpipe sums every row that several use, everywhere; here each row goes the way that leaves
// the busiest link least to do, the widest rows first: a gradient to a worker is a transfer on its
// link, too, so rows of many trainers stay with the PS.
//
// What is known when a row's turn comes: what all pulls, pushes of dirty rows and rows handed over
// of the iteration take on every link, the dense exchange, and the sums chosen before. Integers.
//
// With dispatch.reduce: of synchronous training with hashed homes, without full_sync. One
// thread chooses; a thread for each worker may add (dp_threads.c).
#ifndef DP_REDUCE_H
#define DP_REDUCE_H

#include "dispatch/planner/dp_planner_parts.h"

// Of all rows of the iteration, work->summers: the worker that sums, or DP_NO_WORKER. After
// collect, before rows are released.
void dp_reduce_choose(dp_planner *planner);

// The operations behind a training of row d, which has a summer: REDUCE at each of the others, a
// SUM for each of them at the summer. RT_NO_MEMORY.
rt_status dp_reduce_add(dp_planner *planner, uint32_t worker, uint32_t row);

#endif
