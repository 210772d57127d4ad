// dp_planner - turns batches into plans; the one place that decides where rows and samples go.
//
// Deterministic and pure: no clock, no random device, no I/O. Equal configurations, batches and
// input records give bit-identical plans, on any machine. One thread, which may be lent others
// (dp_planner_set_pool): plans do not depend on how many. Memory is bounded by the
// caches, one batch, and 16 to 32 bytes per key (config.rows bounds their number).
//
// One iteration is three calls, so that a caller can time them apart:
//     dp_planner_look_up(planner, batch)   one directory probe per distinct key
//     dp_planner_place(planner)            the policy decides
//     dp_planner_commit(planner, &plan)    cache update, row operations, plan
#ifndef DP_PLANNER_H
#define DP_PLANNER_H

#include "dispatch/cache/dp_cache.h"
#include "dispatch/cache/dp_lookahead.h"
#include "dispatch/plan/dp_decision.h"
#include "dispatch/plan/dp_input.h"
#include "dispatch/cost/dp_site.h"
#include "dispatch/plan/dp_plan.h"
#include "dispatch/policies/dp_policy.h"
#include "runtime/rt_pool.h"
#include "runtime/stream/rt_batch.h"

// Iterations of a run: they are versions of rows, and have 32 bits. (Look-ahead counts beyond.)
#define DP_ITERATIONS_MAX (UINT32_MAX - 2 * DP_LOOKAHEAD_MAX)

// When rows end: see dp_sweep.h; and begin: dp_admission.h.
typedef struct {
    uint32_t expire_iterations; // 0: not by age
    uint64_t max;               // 0: no bound
    uint32_t admit;             // times that a key is seen; 0 or 1: every key has a row
    uint64_t admit_bytes;       // of the counts
    double admit_share;         // above 0 and below 1: by chance, in place of admit
} dp_rows;

typedef struct {
    uint32_t worker_count;
    uint32_t sample_count_max; // of a batch, N
    uint32_t keys_per_sample_max;
    uint64_t participants;     // workers that train in the first iteration; 0: all
    uint32_t participants_min; // the fewest that may ever train; 0: all of them must
    uint64_t lost;             // workers that never train again (DP_INPUT_LOST)
    uint32_t micro_batch_min, micro_batch_max; // samples per worker; equal: N / n, see dp_view
    uint32_t slot_count[RT_WORKERS_MAX];       // at least the rows of one micro-batch
    rt_consistency_config consistency;
    uint32_t overshoot; // staleness above 0: of the slots, those that are free between iterations,
                        // as many as the rows of a micro-batch (dp_stale.h); else 0
    rt_eviction_kind eviction;
    const struct dp_hot *hot; // rows that every worker keeps (dp_hot.h), the caller's; or NULL
    uint32_t lookahead; // batches that dp_planner_preview may be ahead, at most DP_LOOKAHEAD_MAX
    dp_layout layout;
    dp_boxes boxes;
    rt_homes homes;          // which shard a row is on; planned: boxes are told
    uint64_t shard_rows_max; // homes planned: rows that a shard takes; 0: any number
    double shard_share; // or, in a trial: the part of all rows that it takes; 0: shard_rows_max
    dp_rates rates;
    rt_coding dense_wire;
    uint64_t dense_bytes;        // of one worker, each way and iteration
    uint64_t dense_whole_bytes;  // of the first RT_CODING_WHOLE_ITERATIONS; 0: the same
    uint64_t dense_return_bytes; // weights and state that one who sat out fetches
    rt_dispatch_config dispatch;
    bool measure_error;     // see dp_decision
    uint64_t keys_expected; // the directory starts with room for so many
    dp_rows rows;
    uint64_t seed;
} dp_planner_config;

typedef struct dp_planner dp_planner;

// Batches that the planner is shown before the one that it plans: for look-ahead, or a window.
static inline uint32_t dp_planner_ahead(const dp_planner_config *config)
{
    const uint32_t window = config->dispatch.window;
    if (window > config->lookahead + 1)
        return window - 1;
    return config->lookahead;
}

// So many workers train at least.
static inline uint32_t dp_planner_fewest(const dp_planner_config *config)
{
    if (config->participants_min)
        return config->participants_min;
    return config->worker_count;
}

// The most samples that a worker can get in one iteration.
uint32_t dp_planner_micro_batch_max(const dp_planner_config *config);

// RT_CONFIG: a cache cannot hold a micro-batch (error says how many rows it needs).
rt_status dp_planner_check(const dp_planner_config *config, rt_error *error);

// RT_CONFIG as above, RT_NO_MEMORY.
rt_status dp_planner_create(const dp_planner_config *config, dp_planner **planner_p,
                            rt_error *error);
void dp_planner_destroy(dp_planner *planner);

// The same in parts: at first it has no caches, and can only be destroyed; then, until it is whole,
// add_cache gives it the next. key_count: it will see at most so many, and has room for their
// records and operations at once; 0: as it needs it. RT_NO_MEMORY: it must not be used further.
rt_status dp_planner_begin(const dp_planner_config *config, uint64_t key_count,
                           dp_planner **planner_p, rt_error *error);
rt_status dp_planner_add_cache(dp_planner *planner);
bool dp_planner_is_whole(const dp_planner *planner);

// Whether decisions see caches of their own, which follow the placements (dp_viewed.c).
bool dp_planner_decides_on_snapshots(const dp_planner_config *config);

// Shows the planner a batch before its turn, at most dp_planner_ahead ahead of the one looked up
// next; in order, none left out. With `lookahead` a row that it needs is not evicted while there is
// another one. The batch stays the caller's. The same batches must come to the look-up. Without a
// window it is optional for every batch. RT_NO_MEMORY: the planner must not be used further.
rt_status dp_planner_preview(dp_planner *planner, const rt_batch *batch);

// Takes keys that get no row yet out of a batch (dp_admission.h), before its look-up; nothing may
// have changed the batch since its preview. Without rows.admit it stays as it is. *refused_p:
// look-ups that were taken out. RT_NO_MEMORY: the planner must not be used further.
rt_status dp_planner_admit(dp_planner *planner, rt_batch *batch, uint32_t *refused_p);

// Makes room for the keys of a batch in steps; otherwise the look-up makes it at once. *done_p:
// this step was the last. RT_NO_MEMORY, as there. room_work: about how many instructions the next
// step takes.
rt_status dp_planner_make_room(dp_planner *planner, const rt_batch *batch, bool *done_p);
uint64_t dp_planner_room_work(const dp_planner *planner, const rt_batch *batch);

// At least one sample, at most sample_count_max; at most DP_ITERATIONS_MAX times. The batch must
// stay until the commit. An incomplete batch is spread evenly. RT_NO_MEMORY, and RT_PEER: a worker
// that is lost (DP_INPUT_LOST) had rows in versions that nobody else has: the planner must not be
// used further.
rt_status dp_planner_look_up(dp_planner *planner, const rt_batch *batch);
// The same in steps: *done_p: it was the last. look_up_work: about how many instructions the next
// one takes, by counts alone.
rt_status dp_planner_look_up_step(dp_planner *planner, const rt_batch *batch, bool *done_p);
uint64_t dp_planner_look_up_work(const dp_planner *planner, const rt_batch *batch);

void dp_planner_place(dp_planner *planner);
rt_status dp_planner_commit(dp_planner *planner, const dp_plan **plan_p);

// The same in steps, for who has other things to do in between: each call does the next. *done_p:
// it was the last, and *plan_p is as above. Until then nothing else may be asked of the planner.
rt_status dp_planner_commit_step(dp_planner *planner, bool *done_p, const dp_plan **plan_p);

// About how many instructions the next one takes, by counts alone.
uint64_t dp_planner_step_work(const dp_planner *planner);

// The view of the batch that was looked up last, and its placement after dp_planner_place.
const dp_view *dp_planner_view(const dp_planner *planner);
// The view numbers the participants from 0, in the order of their ranks; the placement names ranks.
const uint32_t *dp_planner_placement(const dp_planner *planner);

// Every dirty row is pushed (reason flush) and stays as a clean copy. The plan has iteration 0.
// Batches may follow: a cut is a flush between two of them, after which the PS has the latest
// version of every key.
rt_status dp_planner_flush(dp_planner *planner, const dp_plan **plan_p);

// How the last placed batch was decided.
const dp_decision *dp_planner_decision(const dp_planner *planner);

// Takes an input record. It is in force from the look-up of input->iteration on, or from the next
// look-up on if that batch was looked up already or the iteration is 0. number and iteration are
// set to what happens, for the journal. Records of one iteration take effect in the
// order in which they were taken. RT_CONFIG: worker or value out of range. RT_AGAIN:
// DP_INPUTS_WAITING_MAX records wait for their iteration.
rt_status dp_planner_apply(dp_planner *planner, dp_input *input, rt_error *error);

// With the values in force.
const dp_planner_config *dp_planner_configuration(const dp_planner *planner);

// The workers that train the batch looked up last. Never empty, and never fewer than
// participants_min: where input records ask for that, all workers train.
uint64_t dp_planner_participants(const dp_planner *planner);

// Those that sit out, and have no row in a version that the PS lacks once the plans so far are
// carried out.
uint64_t dp_planner_clean(const dp_planner *planner);

// Keys that were ever trained, and of which the shards have rows.
uint64_t dp_planner_row_count(const dp_planner *planner);

// The value in force for the batch looked up last. worker: 0 for kinds that are about none.
double dp_planner_value(const dp_planner *planner, dp_input_kind kind, uint32_t worker);
const dp_rates *dp_planner_rates(const dp_planner *planner); // those of them that are rates
// The same, once the records that wait are in force, too: what a chooser was told (dp_participants.h).
dp_rates dp_planner_rates_told(const dp_planner *planner);

// Records for the next look-up, in short.
void dp_planner_set_alpha(dp_planner *planner, double alpha);
void dp_planner_set_link(dp_planner *planner, uint32_t worker, dp_link link);

// Lends the planner threads, or takes them back (NULL, as after create); the pool outlives that.
// Plans do not depend on it. RT_NO_MEMORY: nothing changes; never where threads are taken back.
rt_status dp_planner_set_pool(dp_planner *planner, rt_pool *pool);

// Where the time of a commit goes, for benchmarks: the planner reads no clock, it is lent one. The
// stages are those of dp_commit.c.
typedef enum {
    DP_STAGE_COLLECT,
    DP_STAGE_SETTLE,
    DP_STAGE_RELEASE,
    DP_STAGE_PLACE,
    DP_STAGE_TRAIN,
    DP_STAGE_SHOWN,
    DP_STAGE_COUNT
} dp_stage;
typedef struct {
    uint64_t (*clock_ns)(void);
    uint64_t ns[DP_STAGE_COUNT]; // of the last commit
} dp_profile;

// NULL: none, as after create. The profile stays the caller's and outlives its use.
void dp_planner_set_profile(dp_planner *planner, dp_profile *profile);

const dp_ticks *dp_planner_ticks(const dp_planner *planner);
const dp_directory *dp_planner_directory(const dp_planner *planner);

// Directory and caches agree and every key is in a legal state. For tests: walks everything.
bool dp_planner_legal(const dp_planner *planner, rt_error *error);

#endif
