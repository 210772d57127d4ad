// dp_participants - which workers should train: the set whose iterations are predicted shortest.
//
// Every participant moves its part of the dense exchange each way in every iteration, whatever it
// trains; so a slow link can cost more than its worker brings. What a set would cost cannot be read
// off the caches of another set. So the last batches are kept and planned once more, from empty
// caches, by a planner of its own for every set that is worth a try: the same policy, the rates and
// computing times in force, nothing executed. The prediction (dp_predict_s) of the second half of
// them counts.
//
// Sets are the prefixes of the workers in the order of what an even share costs them. A set is not
// tried where the dense exchange of its slowest member alone takes longer than the best set so far,
// or where a cache cannot hold the largest micro-batch (dp_planner_check). Deterministic, reads no
// clock: equal batches and rates give the same set. One thread. Memory: DP_PARTICIPANTS_BATCHES
// batches, and one planner while it chooses.
#ifndef DP_PARTICIPANTS_H
#define DP_PARTICIPANTS_H

#include "dispatch/planner/dp_planner.h"
#include "runtime/wire/rt_bytes.h"

#define DP_PARTICIPANTS_BATCHES 48u // that a set is judged by
#define DP_PARTICIPANTS_FIRST 8u    // iterations before the first choice
#define DP_PARTICIPANTS_GAP 8u      // iterations between a choice and the next
#define DP_PARTICIPANTS_GAIN 0.05   // share of the time that another set must save

// dispatch.participants "rotate" has another set every DP_PARTICIPANTS_TURN iterations, whatever it
// costs: what a run must withstand is tried with it.
#define DP_PARTICIPANTS_TURN 3u

typedef struct dp_participants dp_participants;

// A set and its predicted seconds per iteration.
typedef struct {
    uint64_t workers; // mask
    double predicted_s;
} dp_candidate;

// config: of the planner whose participants are chosen; its own set is not looked at.
// RT_NO_MEMORY.
rt_status dp_participants_create(const dp_planner_config *config, dp_participants **chooser_p);

// The same, where config says that participants are chosen; otherwise *chooser_p is NULL. lineup:
// NULL or empty, or dp_participants_save of the run that goes on; rates: those in force there.
rt_status dp_participants_open(const dp_planner_config *config, const rt_bytes *lineup,
                               const dp_rates *rates, dp_participants **chooser_p, rt_error *error);
void dp_participants_destroy(dp_participants *chooser);

// A batch was looked up: it is copied. RT_NO_MEMORY.
rt_status dp_participants_see(dp_participants *chooser, const rt_batch *batch);

// An input record came into force.
void dp_participants_apply(dp_participants *chooser, const dp_input *input);

// Whether it is time to choose: after the first batches, then whenever three times as many came,
// and soon after a rate or a computing time changed by more than a tenth since the last choice.
bool dp_participants_due(const dp_participants *chooser);

// The set to go on with: current, unless another one is better by DP_PARTICIPANTS_GAIN.
// candidates: NULL, or RT_WORKERS_MAX that receive all that were tried, *count_p of them.
// RT_NO_MEMORY.
rt_status dp_participants_choose(dp_participants *chooser, uint64_t current, uint64_t *workers_p,
                                 dp_candidate *candidates, uint32_t *count_p);

// The records that change the set for the next look-up; *count_p of RT_WORKERS_MAX. None where it is
// not time to choose, or where the set stays. RT_NO_MEMORY.
rt_status dp_participants_records(dp_participants *chooser, uint64_t current, dp_input *records,
                                  uint32_t *count_p);

// Its state as bytes: the batches that it judges by, and when it chose last. bytes->failed: out of
// memory.
void dp_participants_save(const dp_participants *chooser, rt_bytes *bytes);

// Into one that has seen nothing, of the same configuration. rates: those in force now. RT_DATA: not
// such a state (it has seen nothing then), RT_NO_MEMORY.
rt_status dp_participants_load(dp_participants *chooser, const dp_rates *rates, rt_reader *reader,
                               rt_error *error);

#endif
