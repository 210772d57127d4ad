// dp_trial - batches planned once more, by a planner of its own that has only some of the workers:
// the same policy, from empty caches, nothing executed. What a set of workers would cost cannot be
// read off the caches of another set.
//
// In parts, so that a trial goes on beside something else; the work that a part is can be asked for
// before. Deterministic, reads no clock. One thread. Memory: that of a planner.
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

// The next part of it: a cache, until all are there; then, of a batch after the other, what
// planning it takes. *done_p: the batch is planned. counts: its plan counts below. The batch must
// stay until then. RT_NO_MEMORY: the trial must not be used further.
rt_status dp_trial_step(dp_trial *trial, const rt_batch *batch, bool counts, bool *done_p);

// About how many instructions that takes (callgrind, x86-64), by counts alone. The batch is the one
// that it will be given.
uint64_t dp_trial_work(const dp_trial *trial, const rt_batch *batch);

// All parts of a batch.
rt_status dp_trial_plan(dp_trial *trial, const rt_batch *batch, bool counts);

// The same instructions of a look-up and placement of so many keys, in a planner of this
// configuration; and of dp_trial_create.
uint64_t dp_trial_decision_work(const dp_planner_config *config, uint32_t key_count);
#define DP_TRIAL_CREATION_WORK UINT64_C(2000000)

// Of the plans that counted: predicted seconds in all (dp_predict_s), and bytes of rows, up or down
// of all workers, whichever are more. Where boxes are told, those on the links of the workers'
// boxes.
double dp_trial_seconds(const dp_trial *trial);
double dp_trial_row_bytes(const dp_trial *trial);

#endif
