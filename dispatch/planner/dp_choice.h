// dp_choice - the search for the set of workers whose iterations are predicted shortest, in units
// of less work than a decision with all workers is, so that no iteration waits for all of it.
//
// Sets are tried on the last batches (dp_trial.h), with as large a part of the caches as there are
// of DP_RECENT_MAX batches; the second half of the batches counts. Sets that are
// worth a try are prefixes of the workers in the order of what an even share costs them: first the
// set in force, then the prefix that is estimated shortest (dp_estimate.h), those of 1, 2, 4, ...
// workers and all; then the neighbours of the best, until both are worse. Left out are sets that
// are estimated to take twice the least, or whose slowest dense exchange alone takes longer than
// the best so far, or that do not fit their caches. A trial ends early once what counts of it takes
// longer than all of the best.
//
// Deterministic, reads no clock: the same batches, rates and set in force give the same choice, in
// the same number of units. One thread.
#ifndef DP_CHOICE_H
#define DP_CHOICE_H

#include "dispatch/planner/dp_estimate.h"
#include "dispatch/planner/dp_recent.h"
#include "dispatch/planner/dp_trial.h"

#define DP_CHOICE_GAIN 0.05 // share of the time that another set must save
#define DP_CHOICE_SHARE 0.8
#define DP_CHOICE_SEARCH_SHARE 0.55

// A set and its predicted seconds per iteration.
typedef struct {
    uint64_t workers;   // mask
    double predicted_s; // of a trial that ended early: it takes longer. INFINITY: it does not fit
    double moved;       // see dp_estimate_s; 0: not measured
} dp_candidate;

typedef struct {
    bool runs;
    dp_planner_config config; // with the rates when it began
    uint64_t current;         // the set in force then
    double moved;             // of the estimates
    uint32_t batch_count;     // that it judges by, the oldest that there are
    dp_demand demand;         // of the oldest
    uint32_t ranks[RT_WORKERS_MAX];
    double estimates[RT_WORKERS_MAX]; // of the prefix of k + 1; INFINITY: it does not fit
    uint32_t likeliest;               // k + 1 of the least
    dp_candidate tried[RT_WORKERS_MAX + 1];
    uint32_t tried_count;
    dp_trial *trial; // in progress, or NULL
    uint64_t workers;
    uint32_t done;  // parts of it (dp_trial_step)
    uint32_t batch; // that it is at
} dp_choice;

// All ranks, in the order in which sets are made of them.
void dp_choice_order(const dp_planner_config *config, uint32_t *ranks);

// Estimates of all prefixes (by k, of k + 1 workers; INFINITY where they do not fit or are fewer
// than may train), and the mask of the one to take: of those within DP_CHOICE_GAIN of the least the
// largest, as more boxes have more cache; but one box where that is the least, as it shares no row.
uint64_t dp_choice_estimate(const dp_planner_config *config, const dp_demand *demand, double moved,
                            double *estimates);

// Begins one over the batches that are there, at least two; less work than a unit. They must stay
// the oldest until it is done; others may come behind them. RT_NO_MEMORY.
rt_status dp_choice_begin(dp_choice *choice, const dp_planner_config *config,
                          const dp_recent *recent, double moved, uint64_t current);

// One unit: as many parts of trials as are less work in all than DP_CHOICE_SHARE of a decision on
// key_count keys with all workers (of a policy that searches, DP_CHOICE_SEARCH_SHARE, which is one
// placement of a trial); at least one part. Work is counted, not timed: dp_trial_work. runs is
// false once the search is done. RT_NO_MEMORY.
rt_status dp_choice_step(dp_choice *choice, const dp_recent *recent, uint32_t key_count);

// Gives it up. It can be begun again, and is zero before that.
void dp_choice_end(dp_choice *choice);

// Once it is done: the set to go on with, which is the one in force unless another saves
// DP_CHOICE_GAIN. One that is estimated to be far slower is taken only after DP_RECENT_MAX batches.
uint64_t dp_choice_result(const dp_choice *choice);

// The best that was tried; NULL: none fits.
const dp_candidate *dp_choice_best(const dp_choice *choice);

void dp_choice_save(const dp_choice *choice, rt_bytes *bytes);

// Into one that does not run. What the trial in progress had planned is planned again: at most
// DP_RECENT_MAX batches. config and recent: as they are. RT_DATA: not such a state; RT_NO_MEMORY.
rt_status dp_choice_load(dp_choice *choice, const dp_planner_config *config,
                         const dp_recent *recent, rt_reader *reader);

#endif
