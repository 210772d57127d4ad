// dp_account - what plans cost: row movements, bytes per link, predicted time; summed over a run.
//
// The simulator and the coordinator of a real run use the same object on the same plans.
#ifndef DP_ACCOUNT_H
#define DP_ACCOUNT_H

#include "dispatch/cost/dp_boxes.h"
#include "dispatch/planner/dp_planner.h"
#include "dispatch/cost/dp_ticks.h"
#include "runtime/wire/rt_fields.h"

typedef struct {
    dp_layout layout;
    uint32_t worker_count;
    dp_boxes boxes;
    dp_rates rates;
    uint64_t dense_bytes;        // of one worker, each way and iteration
    uint64_t dense_whole_bytes;  // of the first RT_CODING_WHOLE_ITERATIONS; 0: the same
    uint64_t dense_return_bytes; // weights and state that one who sat out fetches, and that one
                                 // who trained alone gives to the shards
} dp_account_config;

// One iteration, or a sum over iterations.
typedef struct {
    uint64_t iterations;
    uint64_t samples;
    rt_counts workers[RT_WORKERS_MAX];
    dp_traffic traffic[RT_WORKERS_MAX];   // rows and requests, without the dense part
    uint64_t micro_batch[RT_WORKERS_MAX]; // samples
    double cost_s[RT_WORKERS_MAX];        // dp_passing_cost_s
    double predicted_s;
    dp_hits hits;
    dp_clocks clocks;
    dp_box_traffic boxes; // where they are told: all that their links carry
    uint64_t moved;       // rows that changed their home
    dp_handed handed;     // rows from worker to worker
} dp_account;

extern const rt_fields dp_account_fields; // as checkpoints keep sums

// What builds without rt_fields_put wrote, by its size; NULL: none did.
const char *dp_account_before(uint64_t size);

// Seconds and rates that a planner starts with.
void dp_account_init(const dp_planner_config *planner, dp_account_config *config);

// An input record came into force.
void dp_account_apply(const dp_input *input, dp_account_config *config);

// Adds one plan.
void dp_account_add(const dp_account_config *config, const dp_plan *plan, dp_account *account);

// Mean dense_bytes, where several take part, of the count iterations that follow so many of a run;
// of one worker 0. count 0: of later ones.
double dp_account_dense_bytes(const dp_account_config *config, uint64_t before, uint64_t count);

rt_counts dp_account_counts(const dp_account *account, uint32_t worker_count); // all workers
double dp_account_cost_s(const dp_account *account, uint32_t worker_count);

// Seconds that one row (without state) takes on the fastest link: the unit of reported costs.
double dp_account_unit_s(const dp_account_config *config);

// Iteration time of a plan where boxes are not told (otherwise dp_boxes_predict_s):
//     max( max_j [ max(up_j / B_up_j, down_j / B_down_j) + c_j m_j ], PS(sum up), PS(sum down) )
// up_j, down_j: bytes of worker j, the dense part included where it takes part; c_j compute time
// per sample, m_j samples; PS: dp_shards_s. Down goes with it what a worker fetches that sat out
// before, up what one that trained alone gives to the shards (traffic of dp_account_add alone). The
// maximum is over those who take part: nobody waits for what the others push. handed: bytes of
// traffic, each way, that no PS has part in. iteration: its number; the dense part depends on it.
double dp_predict_s(const dp_account_config *config, uint32_t iteration, uint64_t participants,
                    const dp_traffic *traffic, uint64_t handed, const uint32_t *micro_batch);

#endif
