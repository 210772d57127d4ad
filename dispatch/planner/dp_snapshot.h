// dp_snapshot - a planner's state at a cut, as bytes, and a planner made from it again.
//
// The state is taken after dp_planner_flush: every key is at the PS in its
// latest version, so the directory is what the shards hold, and is taken from them. Here are only
// the iteration, the caches (which key sits in which slot, which slots are free in which order,
// what eviction knows; those that decisions see likewise), the policy's state, values in force, who
// chooses the participants, and records that wait.
//
//     dp_planner_save(planner, &chooser_state, &bytes)              after a flush
//
//     dp_planner_create(config, &planner)                    the planner that goes on
//     dp_planner_know(planner, key, version, shard)          for every row of every shard
//     dp_planner_load(planner, &reader, &restored)
//     while (dp_planner_refill(planner, ..., &plan)) ...     rows that go back into the caches
#ifndef DP_SNAPSHOT_H
#define DP_SNAPSHOT_H

#include "dispatch/planner/dp_planner.h"

// What of a state fits the planner that takes it.
typedef struct {
    uint32_t iteration;     // the last one that was planned
    uint64_t input_count;   // records taken until then
    bool caches;            // workers, slots and eviction are the same: the caches are as they were
    bool policy;            // so is the policy's state
    rt_bytes chooser_state; // dp_participants_save; empty: there was none, or it does not fit
} dp_restored;

// chooser_state: dp_participants_save of who chooses the participants; empty where nobody does.
// bytes->failed: out of memory.
void dp_planner_save(const dp_planner *planner, const rt_bytes *chooser_state, rt_bytes *bytes);

// The PS holds key in this version; 0: of a model that the run began with, and that it has not
// trained, so that rows are pulled when they are touched first. Before dp_planner_load.
// RT_NO_MEMORY; RT_DATA: it was told before.
rt_status dp_planner_know(dp_planner *planner, uint64_t key, uint32_t version, uint32_t shard);

// Into a planner that has planned nothing. same_config: values that input records changed are in
// force again; otherwise the planner's configuration has them. Where workers, slots or eviction
// differ, the caches are empty. RT_DATA (error says what cannot be, among it: the rows that it was
// told of are not those of the cut), RT_NO_MEMORY: the planner is of no use then. restored->chooser_state
// is the caller's on RT_OK, and empty otherwise.
rt_status dp_planner_load(dp_planner *planner, rt_reader *reader, bool same_config,
                          dp_restored *restored, rt_error *error);

// Plans of iteration 0 with a PULL of every row that a cache holds, at most pull_count_max per
// worker and plan. *slot_p: 0 before the first call, moves on. RT_END: there is no further plan.
rt_status dp_planner_refill(dp_planner *planner, uint32_t pull_count_max, uint32_t *slot_p,
                            const dp_plan **plan_p);

#endif
