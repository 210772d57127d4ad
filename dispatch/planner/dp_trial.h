// dp_trial - batches planned once more, by a planner of its own that has only some of the workers:
// the same policy, from empty caches, nothing executed. What a set of workers would cost cannot be
// read off the caches of another set.
//
// Deterministic, reads no clock. One thread. Memory: that of a planner.
#ifndef DP_TRIAL_H
#define DP_TRIAL_H

#include "dispatch/planner/dp_planner.h"

typedef struct dp_trial dp_trial;

// Whether the caches of these workers hold an equal share of a batch.
bool dp_trial_fits(const dp_planner_config *config, uint64_t workers);

// config: of all workers, with the rates that are meant; copied. The local search of makespan may
// judge half as many placements as there. part: of the slots that caches have there (0 to 1), so
// that they fill in the time of a short trial as theirs do in that of a long one; what evictions
// cost depends on that. RT_NO_MEMORY; RT_CONFIG: they do not fit.
rt_status dp_trial_create(const dp_planner_config *config, uint64_t workers, double part,
                          dp_trial **trial_p);
void dp_trial_destroy(dp_trial *trial);

// Plans a batch: look-up and placement; then the commit, at once or in two halves. counts: the plan
// that becomes final with it counts below. The batch must stay until the end. RT_NO_MEMORY.
rt_status dp_trial_decide(dp_trial *trial, const rt_batch *batch);
rt_status dp_trial_commit(dp_trial *trial, bool counts);
rt_status dp_trial_begin_commit(dp_trial *trial);
rt_status dp_trial_end_commit(dp_trial *trial, bool counts);

// Of the plans that counted: predicted seconds in all (dp_predict_s), and bytes of rows, up or down
// of all workers, whichever are more. Where boxes are told, those on the links of the workers'
// boxes.
double dp_trial_seconds(const dp_trial *trial);
double dp_trial_row_bytes(const dp_trial *trial);

#endif
