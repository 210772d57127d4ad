// dp_saved - a checkpoint on disk, as the coordinator reads it: manifest, own parts, what it builds
// on.
//
// Everything is validated: sizes, checksums, hashes of the parts, the schema. The shards' rows are
// theirs to read and judge. One thread.
#ifndef DP_SAVED_H
#define DP_SAVED_H

#include "dispatch/coordinator/dp_checkpoint.h"
#include "dispatch/coordinator/dp_stats.h"
#include "dispatch/planner/dp_snapshot.h"
#include "runtime/stream/rt_base_rate.h"
#include "runtime/stream/rt_scale.h"

typedef struct {
    uint32_t iteration, epoch;
    uint64_t samples;
    uint64_t config_hash; // of the run that wrote it
    dp_ages_kept ages;
    rt_bytes state, dense;
    // This one and all that it builds on, ascending: the first has all rows.
    dp_checkpoint_past *past;
    rt_wire_load *loads; // likewise: what shards are to be told, without `first`
    uint32_t count;
    // By what shards know the first, where it was merged (rt_control_lineage); 0: by its files.
    uint64_t lineages[RT_SHARDS_MAX];
} dp_saved;

// RT_NOT_FOUND: it was never completed. RT_IO, RT_DATA: damaged, or a part is missing. RT_CONFIG:
// of another schema. RT_NO_MEMORY. error names the file; *saved is empty then.
rt_status dp_saved_read(const char *directory, uint32_t iteration, uint64_t schema, dp_saved *saved,
                        rt_error *error);
void dp_saved_fini(dp_saved *saved);

// All that are complete up to this one, ascending, with what they build on, for the caller
// (rt_free): what stays is counted over starts. Older ones that cannot be read are not among them.
// RT_IO, RT_NO_MEMORY.
rt_status dp_saved_past(const char *directory, const dp_saved *saved, dp_checkpoint_past **past_p,
                        uint32_t *count_p, rt_error *error);

// ---- the state of the planner, and beside it -------------------------------------------------
//
// Planner.bin as it is read: by a run that goes on, and by who asks whether one can.
//
// Errors of all: RT_DATA: damaged; RT_UNSUPPORTED: of a later build; RT_CONFIG; RT_NO_MEMORY.

// Its first part: the position in the stream, then what dp_planner_load reads; and what comes
// behind that. *position is cleared first.
rt_status dp_state_open(const rt_bytes *state, rt_bytes *position, rt_reader *planner,
                        rt_reader *rest, rt_error *error);

// What comes behind the planner's state: sums, the scale (NULL: dense features stay as they are, as
// with checkpoints of versions that knew none), events that wait, what is known of base rates,
// the times that keys came, names. All the caller's.
typedef struct {
    rt_scale *scale;
    rt_bytes waiting, ids;
    rt_bytes repeats; // rt_repeats_save
    rt_base_rate rate;
} dp_state_rest;
rt_status dp_state_take_rest(rt_reader *rest, dp_stats *stats, const rt_config *config,
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
