// dp_policy - decides which worker trains which sample; the planner does everything else.
//
// A policy sees one batch (dp_view) and fills in a worker per sample, within the capacities. It
// reads no clock and no random device: equal views and equal state give equal placements.
// One thread; created for bounds, deciding allocates nothing.
#ifndef DP_POLICY_H
#define DP_POLICY_H

#include "dispatch/dp_view.h"
#include "runtime/rt_config.h"

typedef struct {
    uint32_t worker_count;
    uint32_t sample_count_max;
    uint32_t distinct_count_max;
    uint64_t seed;
    rt_dispatch_config dispatch;
} dp_policy_config;

typedef struct dp_policy_ops {
    const char *name;
    rt_status (*create)(const dp_policy_config *config, void **state_p, rt_error *error);
    void (*destroy)(void *state);
    // worker_of_sample: sample_count workers out.
    void (*place)(void *state, const dp_view *view, uint32_t *worker_of_sample);
    // A new value of alpha takes effect with the next batch; NULL where alpha means nothing.
    void (*set_alpha)(void *state, double alpha);
} dp_policy_ops;

extern const dp_policy_ops dp_policy_random; // a uniformly random placement
extern const dp_policy_ops dp_policy_laia;   // Herald (NSDI'24), Algorithm 1
extern const dp_policy_ops dp_policy_esd;    // ESD, Algorithms 1 and 2

extern const dp_policy_ops dp_policy_makespan; // SOLVER: true cost, local search

const dp_policy_ops *dp_policy_find(rt_policy_kind kind);

#endif
