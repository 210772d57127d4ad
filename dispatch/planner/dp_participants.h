// dp_participants - which workers should train: the set whose iterations are predicted shortest.
//
// Every participant moves its part of the dense exchange each way in every iteration, whatever it
// trains; so a slow link can cost more than its worker brings. Two things say which set to take:
//
// - an estimate from one batch (dp_estimate.c), before the first iteration and soon after a rate
//   or computing time has changed much: quick and rough, so another set must save
//   DP_PARTICIPANTS_MUCH;
// - a search (dp_choice.h) on the last batches, less work than a decision per iteration: after
//   DP_PARTICIPANTS_FIRST batches, then whenever three times as many came, and after changes.
//
// Deterministic, reads no clock: equal batches and rates give the same sets. One thread. Memory:
// DP_RECENT_MAX batches, and one planner while it searches.
#ifndef DP_PARTICIPANTS_H
#define DP_PARTICIPANTS_H

#include "dispatch/planner/dp_planner.h"
#include "runtime/wire/rt_bytes.h"

#define DP_PARTICIPANTS_FIRST 8u // batches before the first search
#define DP_PARTICIPANTS_GAP 8u   // iterations between an estimate and what follows it
#define DP_PARTICIPANTS_MUCH 0.1 // share of the time that a set must save by an estimate

// dispatch.participants "rotate" has another set every DP_PARTICIPANTS_TURN iterations, whatever it
// costs: what a run must withstand is tried with it.
#define DP_PARTICIPANTS_TURN 3u

typedef struct dp_participants dp_participants;

// config: of the planner whose participants are chosen; its own set is not looked at.
// RT_NO_MEMORY.
rt_status dp_participants_create(const dp_planner_config *config, dp_participants **chooser_p);

// The same, where config says that participants are chosen; otherwise *chooser_p is NULL. chooser_state:
// NULL or empty, or dp_participants_save of the run that goes on; rates: those in force there.
rt_status dp_participants_open(const dp_planner_config *config, const rt_bytes *chooser_state,
                               const dp_rates *rates, dp_participants **chooser_p, rt_error *error);
void dp_participants_destroy(dp_participants *chooser);

// An input record came into force.
void dp_participants_apply(dp_participants *chooser, const dp_input *input);

// The records that change the set for the look-up of this batch, which is the next: *count_p of
// RT_WORKERS_MAX, none where the set stays. current: the set in force. Each batch once, in order;
// it is copied. rows: that all shards have. Less work than a decision. RT_NO_MEMORY.
rt_status dp_participants_next(dp_participants *chooser, const rt_batch *batch, uint64_t current,
                               uint64_t rows, dp_input *records, uint32_t *count_p);

// Whether a search is on its way: dp_participants_next plans.
bool dp_participants_searches(const dp_participants *chooser);

// Its state as bytes: the batches that it judges by, when it did so last, and how far a search is.
// bytes->failed: out of memory.
void dp_participants_save(const dp_participants *chooser, rt_bytes *bytes);

// Into one that has seen nothing, of the same configuration. rates: those in force now. A search
// goes on where it was: what its trial had planned is planned again. RT_DATA: not such a state (it
// has seen nothing then), RT_NO_MEMORY.
rt_status dp_participants_load(dp_participants *chooser, const dp_rates *rates, rt_reader *reader,
                               rt_error *error);

#endif
