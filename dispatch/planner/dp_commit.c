// dp_commit - from a placement to a plan: the planner column of the coherence protocol.
//
// The order matters and is the same for every policy:
//   collect    samples, look-ups and distinct rows of every worker (dp_gather.c)
//   settle     the iteration before becomes final: who keeps a gradient is known now
//   release    rows leave their holders where others need them
//   place      slots for all rows of every worker: hits first, then evictions and fills; who sits
//              out pushes rows
//   train      what training makes of every key
//   show       the caches that the next decision sees (dp_shown.c)
// With threads (dp_threads.c) the workers' parts of a stage are worked off at once, and those of
// place and show together.
#include <math.h>
#include <string.h>

#include "dispatch/planner/dp_handover.h"
#include "dispatch/planner/dp_homes.h"
#include "dispatch/planner/dp_reduce.h"
#include "dispatch/cost/dp_ticks.h"

// Of its link's time, the share that a worker which sits out spends on pushing what only it has.
#define FLUSH_SHARE 0.5

// ---- operations ------------------------------------------------------------------------------

// Where rows travel rounded, the change of this one does, unless the PS has not got any more what
// it is a change of. stays: nor if the copy will be read again, which becomes what others get of it.
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
    const bool has_ended = record->version_ps > 0 && record->version_ps < planner->floor;
    if (planner->config.layout.wire != RT_CODING_FP32 && (stays || has_ended))
        op->flags |= DP_OP_WHOLE;
    else if (planner->config.layout.wire != RT_CODING_FP32)
        op->base = record->version_ps;
    if (dp_homes_are_planned(planner) &&
        dp_homes_push(planner, plan, worker, plan->slices[worker].release.count - 1, record))
        return RT_NO_MEMORY;
    dp_turnover_leave(&planner->turnover, record);
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

// Gradients go to the PS, which steps the row.
static bool is_summed(const dp_planner *planner, uint64_t trainers)
{
    return rt_bits_many(trainers) || (trainers && dp_planner_sums_all(planner));
}

// ---- settle ----------------------------------------------------------------------------------

// A key that workers a, b and c trained in iteration t. Who trains it in t + 1?
//
//     a alone        a: KEEP           b, c: PUSH_GRAD, mask {b, c}, keeper a
//                    t + 1: a pulls the sum of the others (PULL_SUM) and steps its row itself
//     anybody else,  a, b, c: PUSH_GRAD, mask {a, b, c}
//     or nobody      the PS makes the row of version t; t + 1: whoever needs it pulls it
//
// Keeping saves a gradient on its way up; the sum on its way down is no larger than the row. The
// answer is in the placement of t + 1, so with dispatch.keeper plan t is held back until then.

// KEEP: the only worker that trains the key in the next iteration was among its trainers.
static uint8_t find_keeper(const dp_planner *planner, const dp_work *work, const dp_work *next,
                           uint32_t d)
{
    const dp_record *record = &planner->directory.records[work->distinct[d].record];
    if (!next || record->seen != next->plan.iteration)
        return DP_NO_KEEPER;
    uint64_t users = next->trainers[record->distinct];
    if (!rt_bits_one(users) || !(users & work->trainers[d]))
        return DP_NO_KEEPER;
    return (uint8_t)rt_lowest_bit(users);
}

// Until here a key that several workers trained has copies, but no holder. Now the trainers' copies
// are given up (each knew only its own gradient), except the keeper's.
static void settle_key(dp_planner *planner, dp_work *work, const dp_work *next, uint32_t d)
{
    uint32_t index = work->distinct[d].record;
    dp_record *record = &planner->directory.records[index];
    if (work->summers[d] != DP_NO_KEEPER) { // its copy has all gradients
        dp_cache_outdate_all(planner->caches, work->trainers[d] & ~rt_bit(work->summers[d]),
                             &record->copies);
        return;
    }
    uint8_t keeper = find_keeper(planner, work, next, d);
    work->keepers[d] = keeper;
    const uint64_t kept = keeper == DP_NO_KEEPER ? 0 : rt_bit(keeper);
    dp_cache_outdate_all(planner->caches, work->trainers[d] & ~kept, &record->copies);
    if (keeper != DP_NO_KEEPER) {
        record->copies.holders = kept;
        record->keeper = keeper;
        record->version_ps = work->distinct[d].version;
        dp_turnover_enter(&planner->turnover, record);
    } else if (!next || record->seen != next->plan.iteration) {
        dp_planner_release(planner, index);
    }
}

static rt_status add_gradient(const dp_planner *planner, dp_work *work, uint32_t worker, uint32_t row)
{
    dp_slice *slice = &work->plan.slices[worker];
    uint32_t d = work->row_keys[worker][row];
    if (work->summers[d] != DP_NO_KEEPER)
        return dp_reduce_add(work, worker, row);
    uint8_t keeper = work->keepers[d];
    bool keeps = keeper == worker;
    dp_op *op = dp_ops_add(&slice->after, keeps ? DP_OP_KEEP : DP_OP_PUSH_GRAD);
    if (!op)
        return RT_NO_MEMORY;
    op->key = work->distinct[d].key;
    op->mask = work->trainers[d] & ~(keeper == DP_NO_KEEPER ? 0 : rt_bit(keeper));
    op->slot = slice->rows[row].slot;
    op->version = work->plan.iteration;
    op->base = work->distinct[d].version;
    op->keeper = keeper;
    dp_homes_name(planner, work->homes[d], op);
    slice->rows[row].mode = keeps ? DP_MODE_KEEP : DP_MODE_GRAD;
    if (keeps && work->row_fills[worker][row] != DP_NO_FILL) // it will step the row itself
        slice->fill.items[work->row_fills[worker][row]].flags |= DP_OP_STATE;
    return RT_OK;
}

// Records and copies are far apart in memory: both are fetched some keys before their use.
static void prefetch_copies(const dp_planner *planner, const dp_work *work, uint32_t d,
                            uint32_t count)
{
    if (d + 2 * DP_AHEAD < count && is_summed(planner, work->trainers[d + 2 * DP_AHEAD]))
        dp_directory_prefetch(&planner->directory, work->distinct[d + 2 * DP_AHEAD].record);
    if (d + DP_AHEAD < count && is_summed(planner, work->trainers[d + DP_AHEAD])) {
        uint32_t record = work->distinct[d + DP_AHEAD].record;
        dp_cache_prefetch(planner->caches, planner->directory.records[record].copies.first);
    }
}

static rt_status add_gradients(dp_planner *planner, dp_work *work, uint32_t worker)
{
    for (uint32_t r = 0; r < work->plan.slices[worker].row_count; r++) {
        if (is_summed(planner, work->trainers[work->row_keys[worker][r]]) &&
            add_gradient(planner, work, worker, r))
            return RT_NO_MEMORY;
    }
    return RT_OK;
}

// settle_key for the copies of one worker, where no gradient is kept and a copy that is given up
// stays as an outdated one: its slot is in the plan, and the record needs no change.
static rt_status settle_worker(dp_planner *planner, dp_work *work, uint32_t worker)
{
    const dp_slice *slice = &work->plan.slices[worker];
    for (uint32_t r = 0; r < slice->row_count; r++) {
        const uint32_t d = work->row_keys[worker][r];
        if (r + DP_AHEAD < slice->row_count)
            dp_eviction_prefetch(planner->caches[worker].eviction, slice->rows[r + DP_AHEAD].slot);
        if (is_summed(planner, work->trainers[d]) && work->summers[d] != worker)
            dp_cache_keep_outdated(&planner->caches[worker], slice->rows[r].slot);
    }
    return add_gradients(planner, work, worker);
}

// Makes a committed plan final. next: the work of the following iteration, collected; or NULL.
static rt_status settle(dp_planner *planner, dp_work *work, const dp_work *next)
{
    if (!work->open)
        return RT_OK;
    work->open = false;
    if (!planner->config.dispatch.keeper && dp_eviction_keeps(planner->caches[0].eviction))
        return dp_planner_each_worker(planner, dp_planner_pool(planner), work, settle_worker);
    uint32_t count = (uint32_t)work->plan.hits.distinct;
    for (uint32_t d = 0; d < count; d++) {
        prefetch_copies(planner, work, d, count);
        if (is_summed(planner, work->trainers[d]))
            settle_key(planner, work, next, d);
    }
    return dp_planner_each_worker(planner, NULL, work, add_gradients);
}

// ---- release ---------------------------------------------------------------------------------

// The latest version leaves its holder where others train the key: a dirty row goes to the PS if
// anybody has to pull it, or if gradients of several workers will be applied to it there. The copy
// of a worker that does not train it is outdated after this iteration and gives up its slot now.
static rt_status release_key(dp_planner *planner, dp_work *work, uint32_t d)
{
    dp_record *record = &planner->directory.records[work->distinct[d].record];
    uint64_t trainers = work->trainers[d];
    if (record->copies.holders == 0)
        return RT_OK;
    rt_assert(rt_bits_one(record->copies.holders)); // of several trainers none is a holder
    uint32_t holder = rt_lowest_bit(record->copies.holders);
    const uint32_t slot = dp_cache_slot(planner->caches, holder, &record->copies);
    const bool stays = trainers >> holder & 1;
    const bool sends = dp_handover_is_better(planner, record, trainers);
    if (sends && dp_handover_send(planner, work, d, record))
        return RT_NO_MEMORY;
    if (!sends && record->version_ps < record->version && trainers != record->copies.holders &&
        push_row(planner, &work->plan, holder, slot, record, DP_REASON_UPDATE, stays))
        return RT_NO_MEMORY;
    if (stays)
        return RT_OK;
    if (!sends && add_drop(&work->plan, holder, slot, record))
        return RT_NO_MEMORY;
    dp_turnover_leave(&planner->turnover, record);
    dp_cache_outdate(planner->caches, holder, &record->copies);
    dp_turnover_enter(&planner->turnover, record);
    return RT_OK;
}

// Distinct keys by holder: as many lists as workers, each in the order of keys.
static void list_held(dp_planner *planner)
{
    dp_held_rows *held = &planner->held_rows;
    const uint32_t count = planner->view.distinct_count, n = planner->config.worker_count;
    uint32_t next[RT_WORKERS_MAX], sum = 0;
    memset(held->ends, 0, sizeof held->ends);
    for (uint32_t d = 0; d < count; d++) {
        if (planner->latest[d])
            held->ends[rt_lowest_bit(planner->latest[d]) + 1]++;
    }
    for (uint32_t w = 0; w < n; w++) {
        next[w] = sum;
        sum += held->ends[w + 1];
        held->ends[w + 1] = sum;
    }
    for (uint32_t d = 0; d < count; d++) {
        if (planner->latest[d])
            held->keys[next[rt_lowest_bit(planner->latest[d])]++] = d;
    }
}

static rt_status release_worker(dp_planner *planner, dp_work *work, uint32_t worker)
{
    const uint32_t *keys = planner->held_rows.keys, end = planner->held_rows.ends[worker + 1];
    for (uint32_t i = planner->held_rows.ends[worker]; i < end; i++) {
        if (i + DP_AHEAD < end)
            dp_directory_prefetch(&planner->directory, work->distinct[keys[i + DP_AHEAD]].record);
        if (release_key(planner, work, keys[i]))
            return RT_NO_MEMORY;
    }
    return RT_OK;
}

// dispatch.full_sync: rows that one worker trained in the iteration before go to the PS now; the
// directory has counted them as clean since then.
static rt_status push_unsynced(dp_planner *planner, dp_plan *plan)
{
    for (uint32_t i = 0; i < planner->unsynced_count; i++) {
        dp_record *record = &planner->directory.records[planner->unsynced[i]];
        uint32_t worker = rt_lowest_bit(record->copies.holders);
        const uint32_t slot = dp_cache_slot(planner->caches, worker, &record->copies);
        if (push_row(planner, plan, worker, slot, record, DP_REASON_UPDATE, true))
            return RT_NO_MEMORY;
    }
    planner->unsynced_count = 0;
    return RT_OK;
}

// ---- place -----------------------------------------------------------------------------------

// Who has the latest copy is alone with it, unless it trains the row with others now, and then it
// does not go. So nobody else looks at the record of a copy that is not outdated.
static rt_status evict(dp_planner *planner, dp_plan *plan, uint32_t worker)
{
    dp_cache *cache = &planner->caches[worker];
    dp_planner_prefetch_victims(planner, planner->caches, cache);
    uint32_t slot = dp_eviction_victim(cache->eviction, planner->iteration);
    rt_assert(slot != DP_NO_SLOT); // dp_planner_create made sure that a micro-batch fits
    uint32_t index = cache->slots[slot].record;
    if (!dp_eviction_is_outdated(cache->eviction, slot)) {
        dp_record *record = &planner->directory.records[index];
        rt_assert(record->copies.holders == rt_bit(worker));
        planner->turnover.evictions[worker]++;
        bool dirty = record->version_ps < record->version;
        if (dirty ? push_row(planner, plan, worker, slot, record, DP_REASON_EVICT, false)
                  : add_drop(plan, worker, slot, record))
            return RT_NO_MEMORY;
    }
    dp_seats_leave(&planner->seats[worker], index, slot);
    dp_cache_vacate(cache, slot);
    return RT_OK;
}

// The row comes into the slot of the worker's outdated copy, which place_rows renewed, or into
// another one.
static rt_status fill_row(dp_planner *planner, dp_work *work, uint32_t worker, uint32_t row)
{
    dp_cache *cache = &planner->caches[worker];
    dp_slice *slice = &work->plan.slices[worker];
    uint32_t d = work->row_keys[worker][row];
    const dp_distinct *key = &work->distinct[d];
    if (cache->free_count > DP_AHEAD)
        dp_cache_prefetch(planner->caches,
                          dp_copy(worker, cache->free_slots[cache->free_count - 1 - DP_AHEAD]));
    uint32_t slot = slice->rows[row].slot;
    if (slot == DP_NO_SLOT && cache->free_count == 0 && evict(planner, &work->plan, worker))
        return RT_NO_MEMORY;
    bool local =
        key->version == 0 && planner->config.dispatch.first_touch == RT_FIRST_TOUCH_LOCAL;
    work->row_fills[worker][row] = slice->fill.count;
    dp_op *op = dp_ops_add(&slice->fill, local ? DP_OP_INIT : DP_OP_PULL);
    if (!op)
        return RT_NO_MEMORY;
    op->key = key->key;
    op->version = key->version;
    if (slot == DP_NO_SLOT) {
        slot = dp_cache_take(cache, key->record, planner->iteration);
        dp_seats_take(&planner->seats[worker], key->record, slot);
    }
    op->slot = slot;
    planner->turnover.fills[worker]++;
    if (planner->by_bytes)
        dp_eviction_weigh(cache->eviction, op->slot,
                          dp_row_bytes(&planner->config.layout, key->field, true));
    if (planner->next_use)
        dp_eviction_expect(cache->eviction, op->slot, planner->next_use[d]);
    // A gradient needs no optimizer state: the PS has it.
    if (!is_summed(planner, work->trainers[d]) || work->movers[d] == worker ||
        work->summers[d] == worker)
        op->flags = DP_OP_STATE;
    if (work->movers[d] == worker)
        op->flags |= dp_homes_whole(planner);
    if (work->senders[d] != DP_NO_KEEPER)
        dp_handover_receive(planner, work, d, op);
    else if (!local)
        dp_homes_name(planner, planner->directory.records[key->record].home, op);
    slice->rows[row].slot = op->slot;
    return RT_OK;
}

static rt_status use_row(dp_planner *planner, dp_work *work, uint32_t worker, uint32_t row,
                         dp_record *record)
{
    dp_slice *slice = &work->plan.slices[worker];
    uint32_t slot = dp_cache_slot(planner->caches, worker, &record->copies);
    slice->rows[row].slot = slot;
    dp_eviction_use(planner->caches[worker].eviction, slot, planner->iteration);
    if (planner->next_use)
        dp_eviction_expect(planner->caches[worker].eviction, slot,
                           planner->next_use[work->row_keys[worker][row]]);
    if (record->keeper != worker) {
        planner->parts[worker].keys_hit++;
        return RT_OK;
    }
    dp_op *op = dp_ops_add(&slice->fill, DP_OP_PULL_SUM);
    if (!op)
        return RT_NO_MEMORY;
    op->key = record->key;
    op->slot = slot;
    op->version = record->version;
    record->keeper = DP_NO_KEEPER;
    return RT_OK;
}

// Slots for all rows that a worker trains. Rows that have one, latest or outdated, are marked as
// used first, so that no eviction takes one of them.
static rt_status place_rows(dp_planner *planner, dp_work *work, uint32_t worker)
{
    dp_slice *slice = &work->plan.slices[worker];
    dp_cache *cache = &planner->caches[worker];
    dp_seats *seats = &planner->seats[worker];
    const uint32_t *row_keys = work->row_keys[worker];
    seats->left_count = seats->taken_count = 0;
    for (uint32_t r = 0; r < slice->row_count; r++) {
        dp_planner_prefetch_row(planner, planner->caches, work, worker, r);
        const dp_distinct *key = &work->distinct[row_keys[r]];
        dp_record *record = &planner->directory.records[key->record];
        slice->rows[r] = (dp_row){DP_NO_SLOT, key->version, DP_MODE_OWN};
        work->row_fills[worker][r] = DP_NO_FILL;
        if (record->copies.holders >> worker & 1) {
            if (use_row(planner, work, worker, r, record))
                return RT_NO_MEMORY;
            continue;
        }
        const uint32_t slot = dp_cache_slot(planner->caches, worker, &record->copies);
        if (slot != DP_NO_SLOT)
            dp_cache_use_anew(cache, slot, planner->iteration);
        slice->rows[r].slot = slot;
        work->row_fills[worker][r] = DP_FILL_FOLLOWS;
    }
    for (uint32_t r = 0; r < slice->row_count; r++) {
        if (work->row_fills[worker][r] == DP_FILL_FOLLOWS && fill_row(planner, work, worker, r))
            return RT_NO_MEMORY;
    }
    return RT_OK;
}

// ---- who sits out ----------------------------------------------------------------------------

// A free slot still names its last record, which then has no copy in it.
dp_record *dp_planner_dirty_in(const dp_planner *planner, uint32_t worker, uint32_t slot)
{
    const uint32_t index = planner->caches[worker].slots[slot].record;
    if (index >= planner->directory.record_top)
        return NULL;
    dp_record *record = &planner->directory.records[index];
    const bool is_dirty = planner->stale ? dp_stale_is_dirty(planner->stale, worker, slot)
                                         : record->version_ps < record->version;
    if (!is_dirty || !(record->copies.holders >> worker & 1))
        return NULL;
    return dp_cache_slot(planner->caches, worker, &record->copies) == slot ? record : NULL;
}

static rt_status flush_slot(dp_planner *planner, dp_plan *plan, uint32_t worker, uint32_t slot,
                            dp_record *record)
{
    return planner->stale ? dp_stale_flush(planner, plan, worker, slot)
                          : push_row(planner, plan, worker, slot, record, DP_REASON_FLUSH, true);
}

// Rows that its link moves in its share of the last iteration's time; at least one.
static uint32_t rows_at_once(const dp_planner *planner, uint32_t worker)
{
    const double bytes = dp_whole_row_bytes(&planner->config.layout, 0, true);
    const double rows = FLUSH_SHARE * planner->predicted_s *
                        planner->config.rates.links[worker].up_bytes_per_s / bytes;
    return (uint32_t)fmin(fmax(rows, 1), planner->caches[worker].slot_count);
}

static rt_status flush_some(dp_planner *planner, dp_plan *plan, uint32_t worker)
{
    const dp_cache *cache = &planner->caches[worker];
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
static rt_status train_key(dp_planner *planner, dp_work *work, uint32_t d)
{
    uint32_t index = work->distinct[d].record;
    dp_record *record = &planner->directory.records[index];
    uint64_t trainers = work->trainers[d];
    rt_assert(!(record->copies.holders & ~trainers) && record->keeper == DP_NO_KEEPER);
    record->copies.holders = trainers; // all have their slots
    if (dp_homes_are_planned(planner) && dp_homes_train(planner, work, d))
        return RT_NO_MEMORY;
    dp_turnover_leave(&planner->turnover, record);
    record->version = planner->iteration;
    if (work->summers[d] != DP_NO_KEEPER) {
        record->copies.holders = rt_bit(work->summers[d]);
    } else if (is_summed(planner, trainers)) {
        rt_assert(record->version_ps == work->distinct[d].version);
        record->version_ps = planner->iteration;
        record->copies.holders = 0;
    } else if (planner->config.dispatch.full_sync) {
        record->version_ps = planner->iteration;
        planner->unsynced[planner->unsynced_count++] = index;
    }
    dp_turnover_enter(&planner->turnover, record);
    return RT_OK;
}

// Ends a stage that began at since; returns when. Without a profile nothing is measured.
static uint64_t stamp(const dp_planner *planner, dp_stage stage, uint64_t since)
{
    dp_profile *profile = planner->profile;
    if (!profile)
        return 0;
    uint64_t now = profile->clock_ns();
    profile->ns[stage] += now - since;
    return now;
}

static uint64_t clock_now(const dp_planner *planner)
{
    return planner->profile ? planner->profile->clock_ns() : 0;
}

// Who has which row before training: rows leave their holders.
static rt_status release(dp_planner *planner, dp_work *work)
{
    const bool are_planned = dp_homes_are_planned(planner);
    rt_pool *pool = dp_planner_pool(planner);
    if (pool) {
        list_held(planner);
        return dp_planner_each_worker(planner, pool, work, release_worker);
    }
    rt_status status = push_unsynced(planner, &work->plan);
    for (uint32_t d = 0; d < planner->view.distinct_count && !status; d++) {
        dp_planner_prefetch_record(planner, work, d);
        status = release_key(planner, work, d);
        if (are_planned)
            dp_homes_choose_mover(planner, work, d);
    }
    return status;
}

typedef struct {
    dp_planner *planner;
    dp_work *work;
    rt_status status[RT_WORKERS_MAX];
} placing;

// The workers' rows, and behind them those of the caches that decisions see.
static void place_some(void *context, uint32_t part)
{
    placing *all = context;
    const uint32_t n = all->planner->config.worker_count;
    if (part < n)
        all->status[part] = place_rows(all->planner, all->work, part);
    else
        dp_shown_place(all->planner, all->work, part - n);
}

static rt_status place_all(dp_planner *planner, dp_work *work, bool shown)
{
    const uint32_t n = planner->config.worker_count;
    placing all = {.planner = planner, .work = work};
    if (shown)
        dp_shown_outdate(planner, work);
    rt_pool_run(dp_planner_pool(planner), shown ? 2 * n : n, place_some, &all);
    dp_planner_settle_seats(planner, true, shown);
    for (uint32_t w = 0; w < n; w++) {
        work->plan.hits.keys_hit += planner->parts[w].keys_hit;
        if (all.status[w])
            return all.status[w];
    }
    return RT_OK;
}

// *at: when the stage began.
static rt_status place_strictly(dp_planner *planner, dp_work *work, uint64_t *at)
{
    dp_homes_begin(planner);
    if (planner->config.dispatch.reduce)
        dp_reduce_choose(planner, work);
    rt_status status = release(planner, work);
    *at = stamp(planner, DP_STAGE_RELEASE, *at);
    if (!status)
        status = place_all(planner, work, planner->shown && dp_planner_pool(planner));
    *at = stamp(planner, DP_STAGE_PLACE, *at);
    return status;
}

// Whose part a key's training is: of the worker that owns the row after it, if one does.
static uint32_t trainer_of(const dp_work *work, uint32_t d)
{
    return work->summers[d] != DP_NO_KEEPER ? work->summers[d] : rt_lowest_bit(work->trainers[d]);
}

static rt_status train_worker(dp_planner *planner, dp_work *work, uint32_t worker)
{
    const uint32_t *keys = work->row_keys[worker], count = work->plan.slices[worker].row_count;
    for (uint32_t r = 0; r < count; r++) {
        if (r + DP_AHEAD < count)
            dp_directory_prefetch(&planner->directory, work->distinct[keys[r + DP_AHEAD]].record);
        if (trainer_of(work, keys[r]) == worker && train_key(planner, work, keys[r]))
            return RT_NO_MEMORY;
    }
    return RT_OK;
}

static rt_status train_strictly(dp_planner *planner, dp_work *work)
{
    rt_pool *pool = dp_planner_pool(planner);
    rt_status status = RT_OK;
    if (pool)
        return dp_planner_each_worker(planner, pool, work, train_worker);
    for (uint32_t d = 0; d < planner->view.distinct_count && !status; d++) {
        dp_planner_prefetch_record(planner, work, d);
        status = train_key(planner, work, d);
    }
    return status;
}

static void show(dp_planner *planner, dp_work *work)
{
    dp_shown_outdate(planner, work);
    for (uint32_t w = 0; w < planner->config.worker_count; w++)
        dp_shown_place(planner, work, w);
    dp_planner_settle_seats(planner, false, true);
}

rt_status dp_planner_begin_commit(dp_planner *planner)
{
    dp_work *work = dp_work_of(planner, planner->iteration);
    dp_work *before = dp_work_of(planner, planner->iteration - 1);
    if (planner->profile)
        memset(planner->profile->ns, 0, sizeof planner->profile->ns);
    uint64_t at = clock_now(planner);
    planner->held_back = before->open;
    dp_turnover_begin(&planner->turnover);
    if (planner->next_use)
        dp_preview_pass(planner);
    dp_planner_collect(planner, work);
    at = stamp(planner, DP_STAGE_COLLECT, at);
    rt_status status = settle(planner, before, work);
    at = stamp(planner, DP_STAGE_SETTLE, at);
    if (!status && !planner->stale)
        status = place_strictly(planner, work, &at);
    return status;
}

rt_status dp_planner_end_commit(dp_planner *planner, const dp_plan **plan_p)
{
    dp_work *work = dp_work_of(planner, planner->iteration);
    dp_work *before = dp_work_of(planner, planner->iteration - 1);
    uint64_t at = clock_now(planner);
    rt_status status = planner->stale ? dp_stale_plan(planner, planner->iteration)
                                      : train_strictly(planner, work);
    if (!status)
        status = flush_who_sits_out(planner, &work->plan);
    at = stamp(planner, DP_STAGE_TRAIN, at);
    if (!status && planner->shown && !dp_planner_pool(planner))
        show(planner, work);
    if (!status && !planner->stale)
        dp_planner_release_left(planner);
    at = stamp(planner, DP_STAGE_SHOWN, at);
    work->open = !planner->stale; // which leaves nothing to be settled
    if (!status)
        dp_lineup_predict(planner, &work->plan);
    if (!status && !planner->config.dispatch.keeper) {
        status = settle(planner, work, NULL);
        *plan_p = &work->plan;
    } else {
        *plan_p = planner->held_back ? &before->plan : NULL;
    }
    stamp(planner, DP_STAGE_SETTLE, at);
    return status;
}

rt_status dp_planner_commit(dp_planner *planner, const dp_plan **plan_p)
{
    rt_status status = dp_planner_begin_commit(planner);
    return status ? status : dp_planner_end_commit(planner, plan_p);
}

rt_status dp_planner_finish(dp_planner *planner, const dp_plan **plan_p)
{
    dp_work *last = dp_work_of(planner, planner->iteration);
    *plan_p = last->open ? &last->plan : NULL;
    return settle(planner, last, NULL);
}

rt_status dp_planner_flush(dp_planner *planner, const dp_plan **plan_p)
{
    dp_plan *plan = &dp_work_of(planner, planner->iteration + 1)->plan;
    rt_assert(!planner->works[0].open && !planner->works[1].open);
    dp_plan_clear(plan);
    plan->participants = planner->participants;
    if (push_unsynced(planner, plan))
        return RT_NO_MEMORY;
    for (uint32_t w = 0; w < planner->config.worker_count; w++) {
        const dp_cache *cache = &planner->caches[w];
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
