// dp_hot - rows that every worker keeps: FAE's hot rows, under dispatch.policy "fae".
//
// A set of popular rows, fixed before the run. Every row's gradients, hot or not, are summed by the
// parameter servers, those of one trainer, too; no copy of a cold row outlives its iteration. A hot
// row's does: it is the latest until somebody trains the row. Then all copies end, and who trains it
// next pulls it, as any row. What is hot and rests for an iteration, so that its sum had an iteration
// to be made, is brought back to every worker that takes part, for later iterations: by pulls that
// this iteration trains no row of.
//
// Why nobody gets a later version than the plan names: such a pull of iteration t is of a row that
// nobody trains in t, and a worker begins to train t once all that t pulls is there. Who trains the
// row later has had the dense gradients of t from every worker that takes part.
//
// A cache has room for all hot rows and a micro-batch beside them: nothing is ever evicted.
#ifndef DP_HOT_H
#define DP_HOT_H

#include "dispatch/planner/dp_planner.h"
#include "runtime/stream/rt_stream.h"

// A set of rows. Several planners may share one, which outlives them.
typedef struct dp_hot {
    uint64_t *keys; // count, the most popular first
    uint32_t *table;
    uint32_t count, mask;
    uint64_t sum; // that no other set has
} dp_hot;

// keys: distinct, as many as a cache may have at most. RT_NO_MEMORY; RT_DATA: one is there twice.
rt_status dp_hot_create(const uint64_t *keys, uint32_t count, dp_hot **hot_p);
void dp_hot_destroy(dp_hot *hot);

// Those of dispatch.profile, a file of `lanyard profile` (dp_popularity.h), whose errors it has.
// RT_CONFIG: more rows than a cache may have.
rt_status dp_hot_read(const rt_config *config, const rt_schema *schema, dp_hot **hot_p,
                      rt_error *error);

// ---- a planner's, where it has hot rows --------------------------------------------------------

// The copies of a row end that workers have who do not train it in this iteration. RT_NO_MEMORY.
rt_status dp_hot_release(dp_planner *planner, uint32_t d);

// Behind the training, before copies of trained rows end: what rests is brought back. RT_NO_MEMORY.
rt_status dp_hot_fill(dp_planner *planner);

#endif
