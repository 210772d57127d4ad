// dp_state - planner.bin as it is read: by a run that goes on, and by who asks whether one can.
//
// Errors of all: RT_DATA: damaged; RT_UNSUPPORTED: of a later build; RT_CONFIG; RT_NO_MEMORY.
#ifndef DP_STATE_H
#define DP_STATE_H

#include "dispatch/coordinator/dp_tally.h"
#include "dispatch/planner/dp_snapshot.h"
#include "runtime/stream/rt_base_rate.h"
#include "runtime/stream/rt_scale.h"

// Its first part: the position in the stream, then what dp_planner_load reads; and what comes
// behind that. *position is cleared first.
rt_status dp_state_open(const rt_bytes *state, rt_bytes *position, rt_reader *planner,
                        rt_reader *rest, rt_error *error);

// What comes behind the planner's state: sums, the scale (NULL: dense features stay as they are, as
// with checkpoints of versions that knew none), events that wait, what is known of base rates,
// names. All the caller's.
typedef struct {
    rt_scale *scale;
    rt_bytes waiting, ids;
    rt_base_rate rate;
} dp_state_rest;
rt_status dp_state_take_rest(rt_reader *rest, dp_tally *tally, const rt_config *config,
                             uint32_t dense_count, dp_state_rest *out, rt_error *error);
void dp_state_rest_fini(dp_state_rest *rest);

// Whether a run of this configuration could go on from a state: begin, tell every row, check.
typedef struct {
    const rt_config *config;
    rt_schema schema;
    dp_planner_config planner_config;
    dp_planner *planner;
} dp_state_check;
rt_status dp_state_check_begin(const rt_config *config, const rt_schema *schema,
                               dp_state_check *check, rt_error *error);
rt_status dp_state_check_row(dp_state_check *check, uint64_t key, uint32_t version, uint32_t shard,
                             rt_error *error);
rt_status dp_state_check_end(dp_state_check *check, const rt_bytes *state, uint32_t iteration,
                             rt_error *error);
void dp_state_check_fini(dp_state_check *check); // also of one that was never begun, zeroed

#endif
