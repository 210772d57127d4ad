// dp_planner_parts - the inside of a planner, for the files that are one:
//
//   dp_planner    creation, placing by the policy
//   dp_look_up    from a batch to the view of it; dp_numbers the distinct keys, dp_locate their
//                 copies
//   dp_commit     from a placement to a plan: the order of its stages, of which dp_gather has the
//                 first and dp_settle the last; dp_viewed the caches that the next decision sees
//   dp_threads    what of these is shared by several threads, and how
//   dp_active     who trains; dp_values, dp_switch: input records, and another policy
//   dp_legal      whether directory and caches agree, for tests
//
// What a planner can do without has a file and a state of its own (dp_stale, dp_window,
// dp_admission, dp_homes, dp_handover, dp_reduce, dp_hot).
#ifndef DP_PLANNER_PARTS_H
#define DP_PLANNER_PARTS_H

#include "dispatch/cache/dp_lookahead.h"
#include "dispatch/cache/dp_slot_changes.h"
#include "dispatch/planner/dp_admission.h"
#include "dispatch/planner/dp_numbers.h"
#include "dispatch/planner/dp_planner.h"
#include "dispatch/planner/dp_stale.h"

#define DP_AHEAD 12u // keys between the prefetch of a record or slot and its use

// A batch between its look-up and its plan.
typedef struct {
    dp_distinct *distinct; // keys of the batch
    uint64_t *trainers;    // by distinct key: workers that train it
    uint8_t *movers;       // by distinct key: DP_NO_WORKER, or who takes it in (dp_homes.h)
    uint8_t *senders;      // by distinct key: DP_NO_WORKER, or who sends it to its trainer
    uint8_t *summers;      // by distinct key: DP_NO_WORKER, or who sums its gradients (dp_reduce.h)
    uint8_t *homes;        // by distinct key: its shard after the training, where homes are planned
    uint32_t **row_keys;   // by worker and row: distinct key
    bool **fills;          // by worker and row: an operation of slice.fill brings it
    dp_plan plan;          // that of a flush, a sweep or a refill, too
} dp_work;

// Distinct keys by the worker that alone has the latest copy, for who releases them.
typedef struct {
    uint32_t *keys;
    uint32_t ends[RT_WORKERS_MAX + 1]; // of worker w: from ends[w] on, up to ends[w + 1]
} dp_held_rows;

// The caches of all workers. A planner has a set of the workers' own, and, where decisions see
// something else (dp_viewed.c), one of that.
typedef struct {
    dp_cache *caches;         // by worker; of viewed NULL: decisions see the workers' own
    dp_slot_changes *changes; // by worker: copies that come and leave in a commit
    uint32_t *slots; // by distinct key and worker: of its copy, outdated ones too; or DP_NO_SLOT.
                     // Where it is located
} dp_cache_set;

// A distinct key of the batch that had no record when it was looked up.
typedef struct {
    uint32_t distinct;
    dp_sought sought;
} dp_missing;

// Of plan.hits; several threads count, each a worker's.
typedef struct {
    dp_hits hits;
} __attribute__((aligned(64))) dp_worker_hits;

// What one file alone has, or has first, stands below its name.
struct dp_planner {
    dp_planner_config config;
    uint32_t iteration; // of the batch looked up last; the first is 1
    uint64_t passed;    // samples up to it, each as a share of the full batch that it was read for
    dp_directory directory;
    dp_cache_set own, viewed;
    uint32_t caches_missing; // of both, until dp_planner_add_cache
    bool by_bytes;           // rows differ in size, and eviction looks at it
    uint32_t *cached;        // by field: see dp_view; or NULL
    const dp_policy_ops *policy;
    void *policy_state;
    struct dp_window *window; // dispatch.window above 1; or NULL
    dp_stale *stale;          // consistency.staleness above 0; or NULL
    dp_admission *admission;  // rows.admit above 1; or NULL
    dp_profile *profile;      // or NULL
    rt_pool *pool;            // or NULL

    // dp_active: who trains, and what transfers take
    uint64_t participants;             // in force
    uint64_t took_part;                // in the iteration before
    uint8_t rank_of[RT_WORKERS_MAX];   // by number in the view
    uint8_t number_of[RT_WORKERS_MAX]; // by rank, of participants
    dp_ticks ticks;                    // of all workers, by rank
    dp_ticks view_ticks;               // of the participants, by number
    double predicted_s;                // of the last iteration, where not all train
    uint32_t flushed[RT_WORKERS_MAX];  // by rank: slots of who sits out that were looked at

    // the batch looked up last: see dp_view
    dp_view view;
    uint32_t *lookups;
    uint8_t *held;
    uint64_t *latest;   // by distinct key: H, whatever the view shows
    dp_numbers numbers; // the distinct keys
    int32_t *changes;   // see dp_view; or NULL
    uint32_t capacity[RT_WORKERS_MAX];
    uint32_t rows_max[RT_WORKERS_MAX];
    uint32_t *worker_of_sample;
    dp_decision decision;
    dp_work work;

    struct {
        dp_input waiting[DP_INPUTS_WAITING_MAX]; // by iteration; not in force yet
        uint32_t waiting_count;
        uint64_t taken; // ever
    } inputs;           // dp_values

    struct {
        uint32_t floor;                            // versions below are at no shard any more
        uint64_t forgotten[DP_INPUTS_WAITING_MAX]; // keys that it ended by name
        uint32_t forgotten_count;
    } swept; // dp_sweep: the last one

    struct {
        uint32_t done;       // look-ups, of a look-up in steps
        dp_missing *missing; // scratch
    } look_up;

    struct {
        bool is_done; // dp_planner_locates: the slots of both sets are there
        bool runs;    // threads are at it: dp_planner_end_locating
        dp_held_rows held_rows;
    } locate;

    struct {
        dp_lookahead batches; // config.lookahead: that dp_planner_preview has seen
        uint32_t last;        // of them, by iteration
        uint32_t *next_use;   // by distinct key: iteration of its next known use, or 0
    } preview;

    struct {
        uint32_t *row_of;  // by thread and distinct key: 1 + its last row, counted over all workers
                           // that the thread collects; 0: none
        uint64_t *trained; // by thread and distinct key: those of the key's trainers that the
                           // thread collects; with a pool
        dp_worker_hits hits_of[RT_WORKERS_MAX];
    } collect; // dp_gather

    struct {
        uint32_t stage, step; // that is next
    } commit;

    struct {
        uint32_t *records; // trained by one worker whose push opens the next plan
        uint32_t count;
    } unsynced; // dispatch.full_sync: dp_commit

    struct {
        uint32_t *records; // of iteration, that no batch in sight needs
        uint32_t count, iteration;
    } expired; // dp_expire; between a commit and the plan that follows

    struct {
        uint64_t *lacking;     // bits by number: a worker that takes part may lack the row
        uint64_t participants; // whom this is about
    } hot;                     // dp_hot, with config.hot

    uint32_t served[RT_SITE_BOXES_MAX]; // dp_homes: gradients that met there in this iteration
    uint64_t *gone; // dp_viewed, by distinct key: workers whose copy there is the latest no longer
};

// The threads that may work on a commit; NULL: one does all of it. Homes, and rows that are pushed
// by full_sync, depend on the order of keys over all workers; so do the slots of evictions
// that do not keep outdated copies, and counts that all caches share.
rt_pool *dp_planner_pool(const dp_planner *planner);

// Whether a worker's slots depend on the placement alone, and chains of copies stay as they are
// from the look-up until all rows have their slots: then every key's chain is followed once.
bool dp_planner_locates(const dp_planner *planner);

// The slots of all distinct keys of the batch, and with a pool who holds which (held_rows), beside
// what follows the look-up, which changes neither chains nor records; known after end. dp_locate.c
void dp_planner_begin_locating(dp_planner *planner);
void dp_planner_end_locating(dp_planner *planner); // also where nothing was begun

// Runs part for every worker, on the threads of pool; the first failure, in the order of workers.
typedef rt_status (*dp_worker_part)(dp_planner *planner, uint32_t worker);
rt_status dp_planner_each_worker(dp_planner *planner, rt_pool *pool, dp_worker_part part);

// Copies that left or came in one set of caches, or in both: chains and holders follow.
void dp_planner_settle_slot_changes(dp_planner *planner, bool own, bool viewed);

// Records that lost their last copy in this commit are given back.
void dp_planner_release_left(dp_planner *planner);

// Input records of the iteration that begins come into force. RT_NO_MEMORY; RT_PEER: a worker that
// is lost had rows in versions that nobody else has. dp_values.c
rt_status dp_planner_enter_inputs(dp_planner *planner);

// The first stage of a commit: the work of the batch that was placed begins. dp_gather.c
void dp_planner_collect(dp_planner *planner);

// The last stage: what becomes of gradients. RT_NO_MEMORY. dp_settle.c
rt_status dp_planner_settle(dp_planner *planner);

// The uses of the batch that is committed are not ahead any longer: makes next_use. dp_preview.c
void dp_preview_pass(dp_planner *planner);

// The caches that decisions see follow a placement, after collect. In three steps: copies that are
// the latest no longer, of some keys of the batch (of all, where there is a pool); the slots of
// every worker, which workers may do at once; and the chains (dp_planner_settle_slot_changes). dp_viewed.c
void dp_viewed_outdate(dp_planner *planner, uint32_t from, uint32_t until);
void dp_viewed_place(dp_planner *planner, uint32_t worker);

// A record's copies in one of the planner's two sets of caches.
static inline dp_copies *dp_planner_copies(const dp_planner *planner, const dp_cache_set *set,
                                           uint32_t record)
{
    dp_record *of = &planner->directory.records[record];
    return set == &planner->own ? &of->copies : &of->viewed;
}

// Where the slot of worker's copy of a distinct key is noted.
static inline const uint32_t *dp_planner_noted(const dp_planner *planner, const dp_cache_set *set,
                                               uint32_t d, uint32_t worker)
{
    return &set->slots[(size_t)d * planner->config.worker_count + worker];
}

// That slot, in one of the two sets of caches.
static inline uint32_t dp_planner_slot(const dp_planner *planner, const dp_cache_set *set,
                                       uint32_t d, uint32_t worker)
{
    if (planner->locate.is_done)
        return *dp_planner_noted(planner, set, d, worker);
    return dp_cache_slot(set->caches, worker,
                         dp_planner_copies(planner, set, planner->work.distinct[d].record));
}

// Gives the record back if no cache of either kind has a copy.
static inline void dp_planner_release(dp_planner *planner, uint32_t index)
{
    const dp_record *record = &planner->directory.records[index];
    if (record->copies.first == DP_NO_COPY && record->viewed.first == DP_NO_COPY)
        dp_directory_release(&planner->directory, index);
}

// dp_view.uniform. Where nothing was taken out every sample has a key in every field, so as many
// keys as fields mean one each.
static inline bool dp_planner_is_uniform(const dp_planner *planner, const rt_batch *batch)
{
    return !batch->has_gaps && !batch->tables &&
           batch->key_count == (uint64_t)batch->sample_count * planner->config.layout.field_count;
}

// dp_distinct.held.
static inline uint8_t dp_planner_held_byte(uint64_t holders, bool dirty)
{
    if (holders == 0)
        return DP_HELD_BY_NONE;
    if (rt_bits_many(holders))
        return DP_HELD_BY_MANY;
    return (uint8_t)(rt_lowest_bit(holders) | (dirty ? 0 : DP_HELD_CLEAN));
}

// The latest copy goes, and is pushed if the PS lacks what it has. RT_NO_MEMORY. dp_commit.c
rt_status dp_planner_give_up(dp_planner *planner, dp_plan *plan, uint32_t worker, uint32_t slot,
                             dp_record *record, dp_reason reason);

// What a plan, a sweep or a flush begins with: pushes that the directory counts as done, and rows whose
// last use in sight is over (dp_expire). RT_NO_MEMORY. dp_commit.c
rt_status dp_planner_catch_up(dp_planner *planner, dp_plan *plan, dp_reason reason);

// The record of the copy in a slot, if the PS lacks what it has; or NULL. dp_commit.c
dp_record *dp_planner_dirty_in(const dp_planner *planner, uint32_t worker, uint32_t slot);

// What is to be known of the copy of a row that is placed soon, in one of the two sets.
static inline void dp_planner_prefetch_row(const dp_planner *planner, const dp_cache_set *set,
                                           uint32_t worker, uint32_t row)
{
    const dp_work *work = &planner->work;
    const uint32_t count = work->plan.slices[worker].row_count;
    const uint32_t *keys = work->row_keys[worker];
    if (planner->locate.is_done && row + 2 * DP_AHEAD < count)
        __builtin_prefetch(dp_planner_noted(planner, set, keys[row + 2 * DP_AHEAD], worker));
    if (row + DP_AHEAD >= count)
        return;
    const uint32_t d = keys[row + DP_AHEAD];
    if (planner->locate.is_done) {
        const uint32_t slot = dp_planner_slot(planner, set, d, worker);
        if (slot != DP_NO_SLOT)
            dp_eviction_prefetch(set->caches[worker].eviction, slot);
        return;
    }
    const uint32_t first = dp_planner_copies(planner, set, work->distinct[d].record)->first;
    if (first != DP_NO_COPY)
        dp_cache_prefetch(set->caches, first);
}

// Records are far apart in memory: each is fetched some keys before its use.
static inline void dp_planner_prefetch_record(const dp_planner *planner, uint32_t d)
{
    if (d + DP_AHEAD < planner->view.distinct_count)
        dp_directory_prefetch(&planner->directory, planner->work.distinct[d + DP_AHEAD].record);
}

// Victims lead to a slot, the slot to a record: each step is fetched before its turn comes.
static inline void dp_planner_prefetch_victims(const dp_planner *planner, const dp_cache *caches,
                                               const dp_cache *cache)
{
    const uint32_t far = dp_eviction_peek(cache->eviction, 2 * DP_AHEAD);
    const uint32_t near = dp_eviction_peek(cache->eviction, DP_AHEAD);
    if (far != DP_NO_SLOT)
        dp_cache_prefetch(caches, dp_copy(cache->worker, far));
    if (near != DP_NO_SLOT && cache->slots[near].record < planner->directory.record_top)
        dp_directory_prefetch(&planner->directory, cache->slots[near].record);
}

// ---- dp_values.c -----------------------------------------------------------------------------

// dispatch.tables as a record has it; 0: all. Of no effect where a run does not choose tables.
void dp_planner_set_tables(rt_dispatch_config *dispatch, uint32_t tables);

// ---- dp_switch.c: another policy while a planner plans ---------------------------------------

// RT_CONFIG: this planner cannot go over to that policy.
rt_status dp_planner_can_switch(const dp_planner *planner, rt_policy_kind policy, rt_error *error);

// planner->config.dispatch.policy has changed, or not: the policy and the caches that it sees
// follow. Before the next look-up's view is made. RT_NO_MEMORY, or what the policy says of its
// options.
rt_status dp_planner_switch(dp_planner *planner, rt_error *error);

// ---- dp_planner.c, for dp_switch.c -----------------------------------------------------------
rt_status dp_planner_create_caches(const dp_planner *planner, dp_cache **caches_p);
rt_status dp_planner_create_slot_changes(const dp_planner *planner, dp_slot_changes **changes_p);
void dp_planner_destroy_caches(dp_cache *caches, uint32_t worker_count);
rt_status dp_planner_create_policy(dp_planner *planner, rt_error *error);

// The caches that decisions see begin as those of the workers; they are there, and empty.
// dp_snapshot.c. RT_NO_MEMORY.
rt_status dp_planner_copy_caches(dp_planner *planner);

// Who trains and what transfers cost, with the values in force. dp_planner.c
void dp_planner_compute_ticks(dp_planner *planner);

// After a change of planner->config by anything but an input record. dp_planner.c
void dp_planner_recompute(dp_planner *planner);

// ---- dp_active.c: the workers that train, and what the policy sees of them -------------------

// Values in force changed: participants, rank_of and number_of follow. Before the ticks.
void dp_active_set(dp_planner *planner);

// view_ticks: the columns of the participants, by their numbers.
void dp_active_ticks(dp_planner *planner);

// A set of ranks as the policy sees it: participants only, by number. And its answer, back to
// ranks.
uint64_t dp_active_numbers(const dp_planner *planner, uint64_t ranks);
void dp_active_ranks(const dp_planner *planner, uint32_t sample_count, uint32_t *worker_of_sample);

// How long the iteration is predicted to take: who sits out pushes rows beside the next.
void dp_active_predict(dp_planner *planner, const dp_plan *plan);

static inline bool dp_planner_all_train(const dp_planner *planner)
{
    return planner->participants == rt_bits_below(planner->config.worker_count);
}

// The PS sums every row's gradients, even where one worker alone trains the row: with staleness 0,
// where no copy is used twice, and where workers keep hot rows, which none of them owns.
static inline bool dp_planner_sums_all(const dp_planner *planner)
{
    const dp_planner_config *config = &planner->config;
    return config->hot || (config->consistency.bounded && config->consistency.staleness == 0);
}

// Gradients go to the PS, which steps the row.
static inline bool dp_planner_is_summed(const dp_planner *planner, uint64_t trainers)
{
    return rt_bits_many(trainers) || (trainers && dp_planner_sums_all(planner));
}

// planner->passed counts in these parts of a full batch.
#define DP_PASSED_WHOLE (UINT64_C(1) << 20)
static inline uint32_t dp_planner_step_of(uint64_t passed)
{
    return (uint32_t)((passed + DP_PASSED_WHOLE - 1) / DP_PASSED_WHOLE);
}

#endif
