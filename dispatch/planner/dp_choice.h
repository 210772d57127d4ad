// dp_choice - the search for the set of workers whose iterations are predicted shortest, in units
// of less work than a decision with all workers is, so that no iteration waits for all of it.
//
// Sets are tried on the last batches (dp_trial.c), with as large a part of the caches as there are
// of DP_RECENT_MAX batches; the second half of the batches counts. Sets that are
// worth a try are prefixes of the workers in the order of what an even share costs them: first the
// set in force, then the prefix that is estimated shortest (dp_estimate.c), those of 1, 2, 4, ...
// workers and all; then the neighbours of the best, until both are worse. Left out are sets that
// are estimated to take twice the least, or whose slowest dense exchange alone takes longer than
// the best so far, or that do not fit their caches. A trial ends early once what counts of it takes
// longer than all of the best.
//
// Deterministic, reads no clock: the same batches, rates and set in force give the same choice, in
// the same number of units. One thread.
#ifndef DP_CHOICE_H
#define DP_CHOICE_H

#include "dispatch/planner/dp_planner.h"
#include "dispatch/planner/dp_recent.h"

// ---- dp_estimate.c ----------------------------------------------------------------------------

// About how long an iteration takes with a set of workers, from one batch, without planning: so
// little work that all prefixes of the workers are estimated at once.
//
// D(m) is how many bytes the distinct rows of m samples of the batch have. A worker with m of all N
// samples needs about D(m) if they come together by chance, and D(N) m / N if no two workers need
// the same row; the estimate lies between them, nearer to the latter. Of that a worker moves the
// share `moved`, which trials measure (dp_trial.c). Times follow as in dp_predict_s. Micro-batches
// are equal, or level the times where the policy may do that. Reads no clock, and uses only
// arithmetic that is the same on all machines.

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

// ---- dp_trial.c -------------------------------------------------------------------------------

// Batches planned once more, by a planner of its own that has only some of the workers: the same
// policy, from empty caches, nothing executed. What a set of workers would cost cannot be read off
// the caches of another set.
//
// In parts, so that a trial goes on beside something else; the work that a part is can be asked for
// before. Deterministic, reads no clock. One thread. Memory: that of a planner.

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

// -----------------------------------------------------------------------------------------------

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
