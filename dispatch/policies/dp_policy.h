// dp_policy - decides which worker trains which sample; the planner does everything else.
//
// A policy sees one batch (dp_view) and fills in a worker per sample, within the capacities. It
// reads no clock and no random device: equal views and equal state give equal placements.
// One thread; created for bounds, deciding allocates nothing.
#ifndef DP_POLICY_H
#define DP_POLICY_H

#include "dispatch/cost/dp_view.h"
#include "runtime/rt_hash.h"
#include "runtime/wire/rt_fields.h"
#include "runtime/config/rt_config.h"

typedef struct {
    uint32_t worker_count;
    uint32_t sample_count_max;
    uint32_t distinct_count_max;
    uint32_t box_count; // 0: boxes are not told
    uint64_t seed;
    rt_dispatch_config dispatch;
    bool measure_error; // esd: dp_policy_report.error, at the price of a second solution
} dp_policy_config;

// How the last batch was placed; see dp_decision. Costs in ticks.
typedef struct {
    uint32_t opt_samples, heu_samples;
    uint32_t evaluations;
    int64_t error_bound, error; // error: -1 where it was not measured
    double device_s;            // for which a GPU was held; no plan depends on it
} dp_policy_report;

// What others need to know of a policy, so that none of them knows it by name.
typedef enum {
    DP_POLICY_ALPHA = 1,      // alpha means something: the controller of "auto" may turn it
    DP_POLICY_UNEQUAL = 2,    // micro-batches may differ: dispatch.micro_batch_min and _max
    DP_POLICY_TABLES = 4,     // can score some tables only: dispatch.tables
    DP_POLICY_TIME = 8,       // lowers the time of an iteration; the others lower its cost
    DP_POLICY_REFERENCE = 16, // published results are given relative to it
    DP_POLICY_SNAPSHOTS = 32, // dispatch.view "auto": it sees the caches of dp_viewed
    DP_POLICY_WINDOWS = 64,   // dispatch.window means something: it looks at dp_view.next
    DP_POLICY_FRESH = 128,    // not with consistency.staleness
    DP_POLICY_HOT = 256       // every worker keeps the rows of dispatch.profile (dp_hot.h)
} dp_policy_trait;

typedef struct dp_policy_ops {
    const char *name;
    uint32_t traits; // of dp_policy_trait
    rt_status (*create)(const dp_policy_config *config, void **state_p, rt_error *error);
    void (*destroy)(void *state);
    // worker_of_sample: sample_count workers out.
    void (*place)(void *state, const dp_view *view, uint32_t *worker_of_sample);
    // New values of alpha, search_evaluations and tables take effect with the next batch; NULL
    // where none of them means anything.
    void (*configure)(void *state, const rt_dispatch_config *dispatch);
    // Adds to a zeroed report (error: -1) what the policy has to say; may be NULL.
    void (*report)(const void *state, dp_policy_report *report);
    // What later placements depend on beside their views, between two batches; NULL: nothing. load
    // takes what save wrote with the same config, into a state just created; false: it cannot be
    // that.
    void (*save)(const void *state, rt_bytes *bytes);
    bool (*load)(void *state, rt_reader *reader);
} dp_policy_ops;

const dp_policy_ops *dp_policy_find(rt_policy_kind kind);
bool dp_policy_is_named(const char *name);

// Whether it has all of these traits.
bool dp_policy_can(rt_policy_kind kind, uint32_t traits);

// Name of the solver that places samples, as it is after a fall-back to transport; NULL: the policy
// has none.
const char *dp_policy_solver(const rt_dispatch_config *dispatch);

// Whether it chooses tables to score, for which caches count what they hold of each.
bool dp_policy_chooses_tables(const rt_dispatch_config *dispatch);

extern const rt_fields dp_policy_random_fields; // of a rt_random, as checkpoints keep it

#endif
