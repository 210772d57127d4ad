// dp_commit - from a placement to a plan: the planner column of the coherence protocol.
//
// The order matters and is the same for every policy:
//   collect    samples, look-ups and distinct rows of every worker (dp_gather.c)
//   release    rows leave their holders where others need them
//   place      slots for all rows of every worker: hits first, then evictions and fills; who sits
//              out pushes rows
//   train      what training makes of every key
//   show       the caches that the next decision sees (dp_viewed.c)
//   settle     what becomes of gradients (dp_settle.c)
// With threads (dp_threads.c) the workers' parts of a stage are worked off at once, and those of
// place and show together.
#include <math.h>
#include <string.h>

#include "dispatch/planner/dp_expire.h"
#include "dispatch/planner/dp_handover.h"
#include "dispatch/planner/dp_homes.h"
#include "dispatch/planner/dp_hot.h"
#include "dispatch/planner/dp_reduce.h"
#include "dispatch/cost/dp_ticks.h"

// Of its link's time, the share that a worker which sits out spends on pushing what only it has.
#define FLUSH_SHARE 0.5

// ---- operations ------------------------------------------------------------------------------

// Where rows travel rounded, the change of this one does, unless the PS has not got any more what
// it is a change of. stays: nor if the copy will be read again, which becomes what others get of
// it.
static rt_status push_row(dp_planner *planner, dp_plan *plan, uint32_t worker, uint32_t slot,
                          dp_record *record, dp_reason reason, bool stays)
{
    dp_op *op = dp_ops_add(&plan->slices[worker].release, DP_OP_PUSH_ROW);
    if (!op)
        return RT_NO_MEMORY;
    op->key = record->key;
    op->slot = slot;
    op->version = record->version;
    op->reason = (uint8_t)reason;
    op->flags = DP_OP_STATE;
    const bool has_ended = record->version_ps > 0 && record->version_ps < planner->swept.floor;
    if (planner->config.layout.wire != RT_CODING_FP32 && (stays || has_ended))
        op->flags |= DP_OP_WHOLE;
    else if (planner->config.layout.wire != RT_CODING_FP32)
        op->base = record->version_ps;
    if (dp_homes_are_planned(planner) &&
        dp_homes_push(planner, plan, worker, plan->slices[worker].release.count - 1, record))
        return RT_NO_MEMORY;
    record->version_ps = record->version;
    return RT_OK;
}

static rt_status add_drop(dp_plan *plan, uint32_t worker, uint32_t slot, const dp_record *record)
{
    dp_op *op = dp_ops_add(&plan->slices[worker].release, DP_OP_DROP);
    if (!op)
        return RT_NO_MEMORY;
    op->key = record->key;
    op->slot = slot;
    op->version = record->version;
    return RT_OK;
}

// ---- release ---------------------------------------------------------------------------------

// The latest version leaves its holder where others train the key: a dirty row goes to the PS if
// anybody has to pull it, or if gradients of several workers will be applied to it there. The copy
// of a worker that does not train it is outdated after this iteration and gives up its slot now.
static rt_status release_key(dp_planner *planner, uint32_t d)
{
    dp_work *work = &planner->work;
    dp_record *record = &planner->directory.records[work->distinct[d].record];
    uint64_t trainers = work->trainers[d];
    if (record->copies.holders == 0)
        return RT_OK;
    if (planner->config.hot)
        return dp_hot_release(planner, d);
    rt_assert(rt_bits_one(record->copies.holders)); // of several trainers none is a holder
    uint32_t holder = rt_lowest_bit(record->copies.holders);
    const uint32_t slot = dp_planner_slot(planner, &planner->own, d, holder);
    const bool stays = trainers >> holder & 1;
    const bool sends = dp_handover_is_better(planner, record, trainers);
    if (sends && dp_handover_send(planner, d, record))
        return RT_NO_MEMORY;
    if (!sends && record->version_ps < record->version && trainers != record->copies.holders &&
        push_row(planner, &work->plan, holder, slot, record, DP_REASON_UPDATE, stays))
        return RT_NO_MEMORY;
    if (stays)
        return RT_OK;
    if (!sends && add_drop(&work->plan, holder, slot, record))
        return RT_NO_MEMORY;
    dp_cache_outdate(planner->own.caches, holder, slot, &record->copies);
    return RT_OK;
}

// The record of a held key that is released soon, and its copy in the cache of the holder.
static void prefetch_held(const dp_planner *planner, uint32_t d, uint32_t holder)
{
    dp_directory_prefetch(&planner->directory, planner->work.distinct[d].record);
    if (planner->locate.is_done)
        dp_eviction_prefetch(planner->own.caches[holder].eviction,
                             dp_planner_slot(planner, &planner->own, d, holder));
}

static rt_status release_worker(dp_planner *planner, uint32_t worker)
{
    const uint32_t *keys = planner->locate.held_rows.keys,
                   end = planner->locate.held_rows.ends[worker + 1];
    for (uint32_t i = planner->locate.held_rows.ends[worker]; i < end; i++) {
        if (i + DP_AHEAD < end)
            prefetch_held(planner, keys[i + DP_AHEAD], worker);
        if (release_key(planner, keys[i]))
            return RT_NO_MEMORY;
    }
    return RT_OK;
}

// dispatch.full_sync: rows that one worker trained in the iteration before go to the PS now; the
// directory has counted them as clean since then.
static rt_status push_unsynced(dp_planner *planner, dp_plan *plan)
{
    for (uint32_t i = 0; i < planner->unsynced.count; i++) {
        dp_record *record = &planner->directory.records[planner->unsynced.records[i]];
        uint32_t worker = rt_lowest_bit(record->copies.holders);
        const uint32_t slot = dp_cache_slot(planner->own.caches, worker, &record->copies);
        if (push_row(planner, plan, worker, slot, record, DP_REASON_UPDATE, true))
            return RT_NO_MEMORY;
    }
    planner->unsynced.count = 0;
    return RT_OK;
}

rt_status dp_planner_catch_up(dp_planner *planner, dp_plan *plan, dp_reason reason)
{
    const rt_status status = push_unsynced(planner, plan);
    if (status)
        return status;
    return dp_expire(planner, plan, reason);
}

// ---- place -----------------------------------------------------------------------------------

rt_status dp_planner_give_up(dp_planner *planner, dp_plan *plan, uint32_t worker, uint32_t slot,
                             dp_record *record, dp_reason reason)
{
    if (record->version_ps < record->version) {
        const rt_status status = push_row(planner, plan, worker, slot, record, reason, false);
        if (status || reason == DP_REASON_EVICT) // which says that the copy goes
            return status;
    }
    return add_drop(plan, worker, slot, record);
}

// Who has the latest copy is alone with it, unless it trains the row with others now, and then it
// does not go. So nobody else looks at the record of a copy that is not outdated.
static rt_status evict(dp_planner *planner, dp_plan *plan, uint32_t worker)
{
    dp_cache *cache = &planner->own.caches[worker];
    dp_planner_prefetch_victims(planner, planner->own.caches, cache);
    uint32_t slot = dp_eviction_victim(cache->eviction, planner->iteration);
    rt_assert(slot != DP_NO_SLOT); // dp_planner_create made sure that a micro-batch fits
    uint32_t index = cache->slots[slot].record;
    if (!dp_eviction_is_outdated(cache->eviction, slot)) {
        dp_record *record = &planner->directory.records[index];
        rt_assert(record->copies.holders == rt_bit(worker));
        if (dp_planner_give_up(planner, plan, worker, slot, record, DP_REASON_EVICT))
            return RT_NO_MEMORY;
    }
    dp_slot_changes_leave(&planner->own.changes[worker], index, slot);
    dp_cache_vacate(cache, slot);
    return RT_OK;
}

// The row comes into the slot of the worker's outdated copy, which place_rows renewed, or into
// another one.
static rt_status fill_row(dp_planner *planner, uint32_t worker, uint32_t row)
{
    dp_work *work = &planner->work;
    dp_cache *cache = &planner->own.caches[worker];
    dp_slice *slice = &work->plan.slices[worker];
    uint32_t d = work->row_keys[worker][row];
    const dp_distinct *key = &work->distinct[d];
    if (cache->free_count > DP_AHEAD)
        dp_cache_prefetch(planner->own.caches,
                          dp_copy(worker, cache->free_slots[cache->free_count - 1 - DP_AHEAD]));
    uint32_t slot = slice->rows[row].slot;
    if (slot == DP_NO_SLOT && cache->free_count == 0 && evict(planner, &work->plan, worker))
        return RT_NO_MEMORY;
    bool local = key->version == 0 && planner->config.dispatch.first_touch == RT_FIRST_TOUCH_LOCAL;
    dp_op *op = dp_ops_add(&slice->fill, local ? DP_OP_INIT : DP_OP_PULL);
    if (!op)
        return RT_NO_MEMORY;
    op->key = key->key;
    op->version = key->version;
    if (slot == DP_NO_SLOT) {
        slot = dp_cache_take(cache, key->record, planner->iteration);
        dp_slot_changes_take(&planner->own.changes[worker], key->record, slot);
    }
    op->slot = slot;
    if (planner->by_bytes)
        dp_eviction_weigh(cache->eviction, op->slot,
                          dp_row_bytes(&planner->config.layout, key->field, true));
    if (planner->preview.next_use)
        dp_eviction_expect(cache->eviction, op->slot, planner->preview.next_use[d]);
    // A gradient needs no optimizer state: the PS has it.
    if (!dp_planner_is_summed(planner, work->trainers[d]) || work->movers[d] == worker ||
        work->summers[d] == worker)
        op->flags = DP_OP_STATE;
    if (work->movers[d] == worker)
        op->flags |= dp_homes_whole(planner);
    if (work->senders[d] != DP_NO_WORKER)
        dp_handover_receive(planner, d, op);
    else if (!local)
        dp_homes_name(planner, planner->directory.records[key->record].home, op);
    slice->rows[row].slot = op->slot;
    return RT_OK;
}

// A row in the latest version.
static void use_row(dp_planner *planner, uint32_t worker, uint32_t row, uint32_t slot)
{
    dp_work *work = &planner->work;
    dp_slice *slice = &work->plan.slices[worker];
    const uint32_t d = work->row_keys[worker][row];
    slice->rows[row].slot = slot;
    dp_eviction_use(planner->own.caches[worker].eviction, slot, planner->iteration);
    if (planner->preview.next_use)
        dp_eviction_expect(planner->own.caches[worker].eviction, slot,
                           planner->preview.next_use[d]);
    planner->collect.hits_of[worker].hits.keys_hit++;
}

// Whether a worker that trains a key has its latest version: nobody takes that from it until then.
static bool holds(const dp_planner *planner, uint32_t d, uint32_t worker)
{
    return planner->latest[d] >> worker & 1;
}

// Slots for all rows that a worker trains. Rows that have one, latest or outdated, are marked as
// used first, so that no eviction takes one of them.
static rt_status place_rows(dp_planner *planner, uint32_t worker)
{
    dp_work *work = &planner->work;
    dp_slice *slice = &work->plan.slices[worker];
    dp_cache *cache = &planner->own.caches[worker];
    dp_slot_changes *changes = &planner->own.changes[worker];
    const uint32_t *row_keys = work->row_keys[worker];
    changes->left_count = changes->taken_count = 0;
    for (uint32_t r = 0; r < slice->row_count; r++) {
        dp_planner_prefetch_row(planner, &planner->own, worker, r);
        const uint32_t d = row_keys[r];
        const uint32_t slot = dp_planner_slot(planner, &planner->own, d, worker);
        slice->rows[r] = (dp_row){DP_NO_SLOT, work->distinct[d].version, DP_MODE_OWN};
        work->fills[worker][r] = !holds(planner, d, worker);
        if (!work->fills[worker][r]) {
            use_row(planner, worker, r, slot);
            continue;
        }
        if (slot != DP_NO_SLOT)
            dp_cache_use_anew(cache, slot, planner->iteration);
        slice->rows[r].slot = slot;
    }
    for (uint32_t r = 0; r < slice->row_count; r++) {
        if (work->fills[worker][r] && fill_row(planner, worker, r))
            return RT_NO_MEMORY;
    }
    return RT_OK;
}

// ---- who sits out ----------------------------------------------------------------------------

// A free slot still names its last record, which then has no copy in it.
dp_record *dp_planner_dirty_in(const dp_planner *planner, uint32_t worker, uint32_t slot)
{
    const uint32_t index = planner->own.caches[worker].slots[slot].record;
    if (index >= planner->directory.record_top)
        return NULL;
    dp_record *record = &planner->directory.records[index];
    bool is_dirty = record->version_ps < record->version;
    if (planner->stale)
        is_dirty = dp_stale_is_dirty(planner->stale, worker, slot);
    if (!is_dirty || !(record->copies.holders >> worker & 1))
        return NULL;
    return dp_cache_slot(planner->own.caches, worker, &record->copies) == slot ? record : NULL;
}

static rt_status flush_slot(dp_planner *planner, dp_plan *plan, uint32_t worker, uint32_t slot,
                            dp_record *record)
{
    if (planner->stale)
        return dp_stale_flush(planner, plan, worker, slot);
    return push_row(planner, plan, worker, slot, record, DP_REASON_FLUSH, true);
}

// Rows that its link moves in its share of the last iteration's time; at least one.
static uint32_t rows_at_once(const dp_planner *planner, uint32_t worker)
{
    const double bytes = dp_whole_row_bytes(&planner->config.layout, 0, true);
    const double rows = FLUSH_SHARE * planner->predicted_s *
                        planner->config.rates.links[worker].up_bytes_per_s / bytes;
    return (uint32_t)fmin(fmax(rows, 1), planner->own.caches[worker].slot_count);
}

static rt_status flush_some(dp_planner *planner, dp_plan *plan, uint32_t worker)
{
    const dp_cache *cache = &planner->own.caches[worker];
    uint32_t *slot = &planner->flushed[worker];
    for (uint32_t left = rows_at_once(planner, worker); left && *slot < cache->slot_count;
         ++*slot) {
        dp_record *record = dp_planner_dirty_in(planner, worker, *slot);
        if (!record)
            continue;
        if (flush_slot(planner, plan, worker, *slot, record))
            return RT_NO_MEMORY;
        left--;
    }
    return RT_OK;
}

// Dirty rows of workers that sit out go to the PS, as many as their links move beside an iteration,
// so that who needs one later need not wait for it.
static rt_status flush_who_sits_out(dp_planner *planner, dp_plan *plan)
{
    const uint64_t out = rt_bits_below(planner->config.worker_count) & ~planner->participants;
    for (uint64_t rest = out; rest; rest &= rest - 1) {
        if (flush_some(planner, plan, rt_lowest_bit(rest)))
            return RT_NO_MEMORY;
    }
    return RT_OK;
}

// ---- train -----------------------------------------------------------------------------------

// One trainer becomes the dirty owner. After several, the PS has the sum; see settle_key.
static rt_status train_key(dp_planner *planner, uint32_t d)
{
    dp_work *work = &planner->work;
    uint32_t index = work->distinct[d].record;
    dp_record *record = &planner->directory.records[index];
    uint64_t trainers = work->trainers[d];
    rt_assert(!(record->copies.holders & ~trainers));
    record->copies.holders = trainers; // all have their slots
    if (dp_homes_are_planned(planner) && dp_homes_train(planner, d))
        return RT_NO_MEMORY;
    record->version = planner->iteration;
    if (work->summers[d] != DP_NO_WORKER) {
        record->copies.holders = rt_bit(work->summers[d]);
    } else if (dp_planner_is_summed(planner, trainers)) {
        rt_assert(record->version_ps == work->distinct[d].version);
        record->version_ps = planner->iteration;
        record->copies.holders = 0;
    } else if (planner->config.dispatch.full_sync) {
        record->version_ps = planner->iteration;
        planner->unsynced.records[planner->unsynced.count++] = index;
    }
    return RT_OK;
}

// ---- the parts of a stage ------------------------------------------------------------------

// Who has which row before training: rows leave their holders.
static rt_status begin_release(dp_planner *planner)
{
    dp_planner_end_locating(planner);
    dp_homes_begin(planner);
    if (planner->config.dispatch.reduce)
        dp_reduce_choose(planner);
    if (dp_planner_pool(planner))
        return RT_OK;
    return dp_planner_catch_up(planner, &planner->work.plan, DP_REASON_EVICT);
}

static rt_status release(dp_planner *planner, uint32_t from, uint32_t until)
{
    const bool are_planned = dp_homes_are_planned(planner);
    rt_pool *pool = dp_planner_pool(planner);
    if (from == 0) {
        const rt_status status = begin_release(planner);
        if (status)
            return status;
    }
    if (pool)
        return dp_planner_each_worker(planner, pool, release_worker);
    for (uint32_t d = from; d < until; d++) {
        if (d + DP_AHEAD < until && planner->latest[d + DP_AHEAD])
            prefetch_held(planner, d + DP_AHEAD, rt_lowest_bit(planner->latest[d + DP_AHEAD]));
        const rt_status status = release_key(planner, d);
        if (status)
            return status;
        if (are_planned)
            dp_homes_choose_mover(planner, d);
    }
    return RT_OK;
}

typedef struct {
    dp_planner *planner;
    rt_status status[RT_WORKERS_MAX];
} placing;

// The workers' rows, and behind them those of the caches that decisions see.
static void place_some(void *context, uint32_t part)
{
    placing *all = context;
    const uint32_t n = all->planner->config.worker_count;
    if (part < n)
        all->status[part] = place_rows(all->planner, part);
    else
        dp_viewed_place(all->planner, part - n);
}

static void end_placing(dp_planner *planner, bool viewed)
{
    dp_planner_settle_slot_changes(planner, true, viewed);
    for (uint32_t w = 0; w < planner->config.worker_count; w++)
        planner->work.plan.hits.keys_hit += planner->collect.hits_of[w].hits.keys_hit;
}

static rt_status place_all(dp_planner *planner, rt_pool *pool)
{
    const uint32_t n = planner->config.worker_count;
    const bool viewed = planner->viewed.caches != NULL;
    placing all = {.planner = planner};
    if (viewed)
        dp_viewed_outdate(planner, 0, planner->view.distinct_count);
    rt_pool_run(pool, viewed ? 2 * n : n, place_some, &all);
    end_placing(planner, viewed);
    for (uint32_t w = 0; w < n; w++) {
        if (all.status[w])
            return all.status[w];
    }
    return RT_OK;
}

// A worker's rows; after the last worker, the chains.
static rt_status place(dp_planner *planner, uint32_t worker, uint32_t until)
{
    rt_pool *pool = dp_planner_pool(planner);
    (void)until;
    if (pool)
        return place_all(planner, pool);
    if (worker < planner->config.worker_count)
        return place_rows(planner, worker);
    end_placing(planner, false);
    return RT_OK;
}

// Whose part a key's training is: of the worker that owns the row after it, if one does.
static uint32_t trainer_of(const dp_work *work, uint32_t d)
{
    return work->summers[d] != DP_NO_WORKER ? work->summers[d] : rt_lowest_bit(work->trainers[d]);
}

static rt_status train_worker(dp_planner *planner, uint32_t worker)
{
    dp_work *work = &planner->work;
    const uint32_t *keys = work->row_keys[worker], count = work->plan.slices[worker].row_count;
    for (uint32_t r = 0; r < count; r++) {
        if (r + DP_AHEAD < count)
            dp_directory_prefetch(&planner->directory, work->distinct[keys[r + DP_AHEAD]].record);
        if (trainer_of(work, keys[r]) == worker && train_key(planner, keys[r]))
            return RT_NO_MEMORY;
    }
    return RT_OK;
}

static rt_status train(dp_planner *planner, uint32_t from, uint32_t until)
{
    rt_pool *pool = dp_planner_pool(planner);
    if (pool)
        return dp_planner_each_worker(planner, pool, train_worker);
    for (uint32_t d = from; d < until; d++) {
        dp_planner_prefetch_record(planner, d);
        const rt_status status = train_key(planner, d);
        if (status)
            return status;
    }
    return RT_OK;
}

static rt_status outdate(dp_planner *planner, uint32_t from, uint32_t until)
{
    dp_viewed_outdate(planner, from, until);
    return RT_OK;
}

static rt_status show(dp_planner *planner, uint32_t worker, uint32_t until)
{
    (void)until;
    if (worker < planner->config.worker_count)
        dp_viewed_place(planner, worker);
    else
        dp_planner_settle_slot_changes(planner, false, true);
    return RT_OK;
}

// ---- stages that are one step ----------------------------------------------------------------

static rt_status collect(dp_planner *planner, uint32_t from, uint32_t until)
{
    (void)from, (void)until;
    if (planner->preview.next_use)
        dp_preview_pass(planner);
    dp_planner_collect(planner);
    return RT_OK;
}

static rt_status plan_stale(dp_planner *planner, uint32_t from, uint32_t until)
{
    (void)from, (void)until;
    return dp_stale_plan(planner);
}

static rt_status leave(dp_planner *planner, uint32_t from, uint32_t until)
{
    (void)from, (void)until;
    dp_planner_release_left(planner);
    return RT_OK;
}

static rt_status finish(dp_planner *planner, uint32_t from, uint32_t until)
{
    (void)from, (void)until;
    rt_status status = flush_who_sits_out(planner, &planner->work.plan);
    if (!status && planner->config.hot)
        status = dp_hot_fill(planner);
    if (status)
        return status;
    dp_active_predict(planner, &planner->work.plan);
    if (planner->stale) // which leaves nothing to be settled
        return RT_OK;
    dp_expire_note(planner);
    return dp_planner_settle(planner);
}

// ---- what a step takes -----------------------------------------------------------------------

// Instructions beside those per key or row (see stages): of a row that takes the place of another,
// and of a copy's place in the chain of its record.
#define EVICTION 300u
#define CHAIN 30u

static uint64_t placing_work(const dp_planner *planner, const dp_cache *caches, uint32_t worker,
                             uint32_t instructions)
{
    if (worker == planner->config.worker_count)
        return (uint64_t)planner->work.plan.hits.keys * CHAIN;
    const uint32_t rows = planner->work.plan.slices[worker].row_count;
    const uint32_t free = caches[worker].free_count;
    return (uint64_t)rows * instructions + (rows > free ? (uint64_t)(rows - free) * EVICTION : 0);
}

static uint64_t work_of_place(const dp_planner *planner, uint32_t worker, uint32_t instructions)
{
    return placing_work(planner, planner->own.caches, worker, instructions);
}

static uint64_t work_of_show(const dp_planner *planner, uint32_t worker, uint32_t instructions)
{
    return placing_work(planner, planner->viewed.caches, worker, instructions);
}

static uint64_t work_of_look_ups(const dp_planner *planner, uint32_t from, uint32_t instructions)
{
    (void)from;
    return (uint64_t)planner->view.lookup_count * instructions;
}

static uint64_t work_of_rows(const dp_planner *planner, uint32_t from, uint32_t instructions)
{
    (void)from;
    return planner->work.plan.hits.keys * instructions;
}

#define KEYS_BLOCK 2048u

static uint64_t work_of_keys(const dp_planner *planner, uint32_t from, uint32_t instructions)
{
    return rt_min_u64(planner->view.distinct_count - from, KEYS_BLOCK) * instructions;
}

// Copies that were evicted, in both sets of caches.
static uint64_t work_of_left(const dp_planner *planner, uint32_t from, uint32_t instructions)
{
    uint64_t count = 0;
    (void)from;
    for (uint32_t w = 0; w < planner->config.worker_count; w++)
        count += planner->own.changes[w].left_count +
                 (planner->viewed.caches ? planner->viewed.changes[w].left_count : 0);
    return count * instructions;
}

// ---- stages ----------------------------------------------------------------------------------

static bool always(const dp_planner *planner)
{
    (void)planner;
    return true;
}

static bool is_exact(const dp_planner *planner)
{
    return planner->stale == NULL;
}

static bool is_stale(const dp_planner *planner)
{
    return planner->stale != NULL;
}

// With threads the caches that decisions see are done beside the workers'.
static bool shows_alone(const dp_planner *planner)
{
    return planner->viewed.caches != NULL && dp_planner_pool(planner) == NULL;
}

// What the steps of a stage go over where one thread does all of a commit: keys of the batch, a
// block at a time, or workers and then the chains. With threads every stage is one step.
typedef enum { OVER_ALL, OVER_KEYS, OVER_WORKERS } stage_shape;

// Instructions are per key or row, measured with caches that are full (callgrind, 2026-11, x86-64):
// what counts are their proportions. from: the first key, or the worker.
typedef struct {
    bool (*is_there)(const dp_planner *planner);
    stage_shape shape;
    rt_status (*step)(dp_planner *planner, uint32_t from, uint32_t until);
    uint64_t (*work)(const dp_planner *planner, uint32_t from, uint32_t instructions);
    uint32_t instructions;
    dp_stage measured_as;
} stage;

// Of one commit, in this order; the first one is always there.
static const stage stages[] = {
    {always, OVER_ALL, collect, work_of_look_ups, 30, DP_STAGE_COLLECT},
    {is_exact, OVER_KEYS, release, work_of_keys, 90, DP_STAGE_RELEASE},
    {is_exact, OVER_WORKERS, place, work_of_place, 230, DP_STAGE_PLACE},
    {is_stale, OVER_ALL, plan_stale, work_of_rows, 600, DP_STAGE_TRAIN},
    {is_exact, OVER_KEYS, train, work_of_keys, 85, DP_STAGE_TRAIN},
    {shows_alone, OVER_KEYS, outdate, work_of_keys, 42, DP_STAGE_SHOWN},
    {shows_alone, OVER_WORKERS, show, work_of_show, 110, DP_STAGE_SHOWN},
    {is_exact, OVER_ALL, leave, work_of_left, 60, DP_STAGE_SHOWN},
    {always, OVER_ALL, finish, work_of_rows, 100, DP_STAGE_SETTLE},
};

// A batch without keys has a block.
static uint32_t steps_of(const dp_planner *planner, const stage *one)
{
    if (!one->is_there(planner))
        return 0;
    if (one->shape == OVER_ALL || dp_planner_pool(planner))
        return 1;
    if (one->shape == OVER_WORKERS)
        return planner->config.worker_count + 1;
    return planner->view.distinct_count / KEYS_BLOCK + 1;
}

static uint32_t first_of(const dp_planner *planner)
{
    return planner->commit.step *
           (stages[planner->commit.stage].shape == OVER_KEYS ? KEYS_BLOCK : 1);
}

uint64_t dp_planner_step_work(const dp_planner *planner)
{
    const stage *one = &stages[planner->commit.stage];
    return one->work(planner, first_of(planner), one->instructions);
}

static rt_status do_step(dp_planner *planner)
{
    const uint32_t from = first_of(planner);
    const uint32_t until = (uint32_t)rt_min_u64(from + KEYS_BLOCK, planner->view.distinct_count);
    return stages[planner->commit.stage].step(planner, from, until);
}

rt_status dp_planner_commit_step(dp_planner *planner, bool *done_p, const dp_plan **plan_p)
{
    dp_profile *profile = planner->profile;
    if (profile && planner->commit.stage == 0)
        memset(profile->ns, 0, sizeof profile->ns);
    const uint64_t since = profile ? profile->clock_ns() : 0;
    const rt_status status = do_step(planner);
    if (profile)
        profile->ns[stages[planner->commit.stage].measured_as] += profile->clock_ns() - since;
    planner->commit.step++;
    while (planner->commit.stage < RT_COUNT_OF(stages) &&
           planner->commit.step >= steps_of(planner, &stages[planner->commit.stage])) {
        planner->commit.stage++;
        planner->commit.step = 0;
    }
    *done_p = planner->commit.stage == RT_COUNT_OF(stages);
    if (*done_p) {
        planner->commit.stage = 0;
        *plan_p = &planner->work.plan;
    }
    return status;
}

rt_status dp_planner_commit(dp_planner *planner, const dp_plan **plan_p)
{
    for (bool done = false; !done;) {
        const rt_status status = dp_planner_commit_step(planner, &done, plan_p);
        if (status)
            return status;
    }
    return RT_OK;
}

rt_status dp_planner_flush(dp_planner *planner, const dp_plan **plan_p)
{
    dp_plan *plan = &planner->work.plan;
    dp_plan_clear(plan);
    plan->participants = planner->participants;
    if (dp_planner_catch_up(planner, plan, DP_REASON_FLUSH))
        return RT_NO_MEMORY;
    for (uint32_t w = 0; w < planner->config.worker_count; w++) {
        const dp_cache *cache = &planner->own.caches[w];
        for (uint32_t slot = 0; slot < cache->slot_count; slot++) {
            dp_record *record = dp_planner_dirty_in(planner, w, slot);
            if (!record)
                continue;
            if (flush_slot(planner, plan, w, slot, record))
                return RT_NO_MEMORY;
        }
    }
    *plan_p = plan;
    return RT_OK;
}
