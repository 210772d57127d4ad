// dp_fixed - what the best fixed set of workers would take, to compare a choice with.
#ifndef DP_FIXED_H
#define DP_FIXED_H

#include "dispatch/sim/dp_sim.h"

typedef struct {
    uint64_t workers;   // mask; 0: no set fits its caches
    double predicted_s; // per iteration, after the warm-up
    uint32_t tried;     // simulations
} dp_fixed_set;

// Simulates sim->config with fixed sets of workers instead of its dispatch.participants: the first
// k in the order of what an even share costs them (dp_choice_order), up to the first whose
// dense exchange alone takes longer than the best set so far. At most worker_count simulations of
// the length of one; with progress each says who trains. Errors as dp_sim_run.
rt_status dp_fixed_best(const dp_sim_config *sim, dp_fixed_set *best, rt_error *error);

#endif
