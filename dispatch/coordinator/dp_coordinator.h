// dp_coordinator - the process that owns a run: stream, plan, slices, progress, summary, model.
//
// Runs in one thread beside those of dp_feed. Ends when the input ends, after a stop request (both
// cleanly, with summary and model), or when a member fails (error names it, the others are told).
#ifndef DP_COORDINATOR_H
#define DP_COORDINATOR_H

#include "dispatch/coordinator/dp_coordinator_config.h"
#include "dispatch/coordinator/dp_running.h" // where its running.json is

// RT_OK: the run ended as it should. RT_AGAIN: workers that were missing are back, a checkpoint is
// made, and everything is to be started anew from it. Otherwise error says who or what failed.
rt_status dp_coordinator_run(const dp_coordinator_config *config, rt_error *error);

#endif
