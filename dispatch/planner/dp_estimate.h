// dp_estimate - about how long an iteration takes with a set of workers, from one batch, without
// planning: so little work that all prefixes of the workers are estimated at once.
//
// A worker with m samples moves a share of their rows: of D(m), the bytes of the distinct rows that
// m samples of the batch have, or of an m-th of D of all, whichever placement brings together; the
// truth is nearer to the latter. How large a share: `moved`, which trials measure (dp_trial.h).
// Times are then those of dp_predict_s. Micro-batches are equal, or level the times where the
// policy may do that. Reads no clock, and uses only arithmetic that is the same on all machines.
#ifndef DP_ESTIMATE_H
#define DP_ESTIMATE_H

#include "dispatch/planner/dp_planner.h"

#define DP_ESTIMATE_MOVED 0.55 // before anything is measured: of real rows 0.48 to 0.75

// What a batch needs.
typedef struct {
    uint32_t sample_count;
    uint64_t *bytes; // sample_count + 1: of the distinct rows that the first m samples have
} dp_demand;

// On RT_OK *demand is the caller's, for dp_demand_fini. RT_NO_MEMORY: it is empty.
rt_status dp_demand_measure(const rt_batch *batch, const dp_layout *layout, dp_demand *demand);
void dp_demand_fini(dp_demand *demand);

// Seconds per iteration. config: of all workers, with the rates that are meant.
double dp_estimate_s(const dp_planner_config *config, const dp_demand *demand, double moved,
                     uint64_t workers);

// Bytes of rows that these workers move in an iteration, one way, with equal shares, if all moved
// that are not at home on their box (as only a box that trains alone has them).
double dp_estimate_row_bytes(const dp_planner_config *config, const dp_demand *demand,
                             uint64_t workers);

// Seconds that the dense exchange alone keeps a worker, if it does not train alone.
double dp_estimate_dense_s(const dp_planner_config *config, uint32_t rank);

#endif
