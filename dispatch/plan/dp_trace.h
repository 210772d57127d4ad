// dp_trace - plans as lines, to hold a simulation against a real run, or to count it again.
#ifndef DP_TRACE_H
#define DP_TRACE_H

#include <stdio.h>

#include "dispatch/plan/dp_plan.h"
#include "runtime/stream/rt_batch.h"

// One line per worker:
// {"iteration":1,"worker":0,"samples":128,"miss_pull":0,"update_push":0,"evict_push":0,
//  "flush_push":0,"grad_push":0,"first_touch":0}
void dp_trace_plan(FILE *file, const dp_plan *plan);
void dp_trace_counts(FILE *file, uint64_t iteration, uint32_t worker, uint32_t samples,
                     const rt_counts *counts);

// One line per sample, in the order of the batch: iteration, the worker that trains it, its keys in
// hexadecimal; separated by spaces. What tools/recount.py counts from.
void dp_trace_placement(FILE *file, uint32_t iteration, const rt_batch *batch,
                        const uint32_t *worker_of_sample);

#endif
