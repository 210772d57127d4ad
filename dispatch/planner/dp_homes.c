#include "dispatch/planner/dp_homes.h"

#include <string.h>

#define NO_SHARD UINT32_MAX
#define PLACES UINT64_C(0x706c61636573) // not the bits that other hashes of a key look at

static bool has_room(const dp_planner *planner, uint32_t shard)
{
    const uint64_t most = planner->config.shard_rows_max;
    const double share = planner->config.shard_share;
    if (share > 0)
        return (double)planner->directory.home_counts[shard] <
               share * (double)planner->directory.key_count;
    return most == 0 || planner->directory.home_counts[shard] < most;
}

// The shard of a box for a key: the one of several that the key's hash names. NO_SHARD: there is
// none with room.
static uint32_t shard_on(const dp_planner *planner, uint32_t box, uint64_t key)
{
    const dp_boxes *boxes = &planner->config.boxes;
    uint32_t shards[RT_SHARDS_MAX], count = 0;
    for (uint32_t s = 0; s < planner->config.rates.shards.count; s++)
        if (boxes->of_shard[s] == box)
            shards[count++] = s;
    if (count == 0)
        return NO_SHARD;
    const uint32_t shard = shards[rt_key_shard(key, count)];
    return has_room(planner, shard) ? shard : NO_SHARD;
}

// The emptiest shard, for a key whose trainers have none: one with room, and of those of a box that
// takes part, if there is one.
static uint32_t emptiest(const dp_planner *planner)
{
    const dp_boxes *boxes = &planner->config.boxes;
    const uint64_t *counts = planner->directory.home_counts;
    uint32_t best = 0, best_rank = 0;
    for (uint32_t s = 0; s < planner->config.rates.shards.count; s++) {
        bool takes_part = false;
        for (uint64_t rest = planner->participants; rest; rest &= rest - 1)
            takes_part |= boxes->of_worker[rt_lowest_bit(rest)] == boxes->of_shard[s];
        const uint32_t rank = 2u * has_room(planner, s) + takes_part;
        if (s == 0 || rank > best_rank || (rank == best_rank && counts[s] < counts[best])) {
            best = s;
            best_rank = rank;
        }
    }
    return best;
}

void dp_homes_assume(dp_planner *planner, dp_record *record)
{
    const dp_boxes *boxes = &planner->config.boxes;
    const uint32_t count = planner->config.rates.shards.count;
    const double share = planner->config.shard_share;
    const double place = (double)(rt_mix(record->key ^ PLACES) >> 11) * 0x1p-53; // 0 to 1
    uint32_t others[RT_SHARDS_MAX], other_count = 0, taken = 0;
    if (record->version > 0 || record->home != DP_NO_HOME)
        return;
    for (uint32_t s = 0; s < count; s++) {
        bool takes_part = false;
        for (uint32_t w = 0; w < planner->config.worker_count; w++)
            takes_part |= boxes->of_worker[w] == boxes->of_shard[s];
        if (!takes_part) {
            others[other_count++] = s;
        } else if (place < share * ++taken) {
            dp_directory_set_home(&planner->directory, record, s);
            return;
        }
    }
    uint32_t s;
    if (other_count)
        s = others[rt_key_shard(record->key, other_count)];
    else
        s = rt_key_shard(record->key, count);
    dp_directory_set_home(&planner->directory, record, s);
}

// Where a worker's push takes a row: its own box, if it takes part and has a shard there with room;
// else the row stays.
static uint32_t pushed_to(const dp_planner *planner, uint32_t worker, const dp_record *record)
{
    if (!(planner->participants >> worker & 1))
        return record->home;
    const uint32_t own = shard_on(planner, planner->config.boxes.of_worker[worker], record->key);
    return own == NO_SHARD ? record->home : own;
}

uint8_t dp_homes_box(const dp_planner *planner, const dp_record *record, bool dirty)
{
    const dp_boxes *boxes = &planner->config.boxes;
    if (!boxes->count)
        return DP_NO_BOX;
    if (!dp_homes_are_planned(planner))
        return boxes->of_shard[rt_key_shard(record->key, planner->config.rates.shards.count)];
    if (record->home == DP_NO_HOME)
        return DP_NO_BOX;
    const uint64_t holders = record->copies.holders;
    const bool moves = dirty && rt_bits_one(holders) && record->version_ps < record->version;
    if (moves)
        return boxes->of_shard[pushed_to(planner, rt_lowest_bit(holders), record)];
    return boxes->of_shard[record->home];
}

// The shard before forgets what it has up to the version that now is elsewhere.
static rt_status add_forget(dp_plan *plan, uint32_t worker, const dp_record *record,
                            uint32_t version, uint32_t shard)
{
    dp_op *op = dp_ops_add(&plan->slices[worker].after, DP_OP_FORGET);
    if (!op)
        return RT_NO_MEMORY;
    op->key = record->key;
    op->version = version;
    op->slot = DP_NO_SLOT;
    dp_op_set_shard(op, shard);
    return RT_OK;
}

rt_status dp_homes_push(dp_planner *planner, dp_plan *plan, uint32_t worker, uint32_t at,
                        dp_record *record)
{
    const uint32_t before = record->home;
    const dp_boxes *boxes = &planner->config.boxes;
    const uint32_t shard = pushed_to(planner, worker, record);
    dp_op *op = &plan->slices[worker].release.items[at];
    dp_op_set_shard(op, shard);
    if (boxes->of_shard[shard] == boxes->of_worker[worker] && dp_homes_whole(planner)) {
        op->flags |= DP_OP_WHOLE;
        op->base = 0;
    }
    if (shard == before)
        return RT_OK;
    dp_directory_set_home(&planner->directory, record, shard);
    plan->moves++;
    // Not up to the version that is pushed: with that one the row may come back. (Where all is
    // pushed after every training, the record has that one already.)
    const uint32_t version = (uint32_t)rt_min_u64(record->version_ps, record->version - 1);
    if (!version)
        return RT_OK;
    return add_forget(plan, worker, record, version, before);
}

// Of several trainers, the one on the box that has served others the shortest; RT_WORKERS_MAX: no
// box of theirs has a shard with room.
static uint32_t least_busy(const dp_planner *planner, uint64_t trainers, uint64_t key)
{
    const dp_boxes *boxes = &planner->config.boxes;
    uint32_t best = RT_WORKERS_MAX;
    uint64_t best_ticks = 0;
    for (uint64_t rest = trainers; rest; rest &= rest - 1) {
        const uint32_t worker = rt_lowest_bit(rest), box = boxes->of_worker[worker];
        const uint64_t ticks =
            (uint64_t)planner->served[box] * (uint64_t)planner->ticks.box_down[0][box];
        if (shard_on(planner, box, key) == NO_SHARD ||
            (best != RT_WORKERS_MAX && ticks >= best_ticks))
            continue;
        best = worker;
        best_ticks = ticks;
    }
    return best;
}

static bool is_at_home_with(const dp_planner *planner, uint64_t trainers, uint32_t shard)
{
    const dp_boxes *boxes = &planner->config.boxes;
    for (uint64_t rest = trainers; rest; rest &= rest - 1)
        if (boxes->of_worker[rt_lowest_bit(rest)] == boxes->of_shard[shard])
            return true;
    return false;
}

void dp_homes_choose_mover(dp_planner *planner, uint32_t d)
{
    dp_work *work = &planner->work;
    const dp_record *record = &planner->directory.records[work->distinct[d].record];
    const uint64_t trainers = work->trainers[d];
    if (!rt_bits_many(trainers) || record->home == DP_NO_HOME ||
        is_at_home_with(planner, trainers, record->home))
        return;
    const uint32_t mover = least_busy(planner, trainers, record->key);
    // A copy that it holds may be rounded: that would be all that is left of the row.
    const bool has_rounded =
        mover != RT_WORKERS_MAX && dp_homes_whole(planner) && record->copies.holders >> mover & 1;
    if (mover != RT_WORKERS_MAX && !has_rounded)
        work->movers[d] = (uint8_t)mover;
}

// Others have filled the shard since the mover was chosen: it pulls the row as they do.
static void stay(dp_planner *planner, uint32_t mover, uint64_t key)
{
    const dp_ops *fill = &planner->work.plan.slices[mover].fill;
    for (uint32_t i = 0; i < fill->count && dp_homes_whole(planner); i++)
        if (fill->items[i].key == key)
            fill->items[i].flags &= (uint8_t)~DP_OP_WHOLE;
}

// Takes a row in: the mover's copy, of the version before this training, goes to its own box.
static rt_status take_in(dp_planner *planner, uint32_t d, dp_record *record)
{
    dp_work *work = &planner->work;
    const uint32_t mover = work->movers[d], before = record->home;
    const uint32_t shard = shard_on(planner, planner->config.boxes.of_worker[mover], record->key);
    if (shard == NO_SHARD) {
        stay(planner, mover, record->key);
        return RT_OK;
    }
    dp_op *op = dp_ops_add(&work->plan.slices[mover].after, DP_OP_PUSH_ROW);
    if (!op)
        return RT_NO_MEMORY;
    op->key = record->key;
    op->slot = dp_cache_slot(planner->own.caches, mover, &record->copies);
    op->version = work->distinct[d].version;
    op->reason = DP_REASON_UPDATE;
    op->flags = DP_OP_STATE | dp_homes_whole(planner);
    dp_op_set_shard(op, shard);
    dp_directory_set_home(&planner->directory, record, shard);
    work->plan.moves++;
    return add_forget(&work->plan, mover, record, op->version, before);
}

static void first_home(dp_planner *planner, uint64_t trainers, dp_record *record)
{
    const uint32_t worker = least_busy(planner, trainers, record->key);
    uint32_t shard;
    if (worker == RT_WORKERS_MAX)
        shard = emptiest(planner);
    else
        shard = shard_on(planner, planner->config.boxes.of_worker[worker], record->key);
    dp_directory_set_home(&planner->directory, record, shard);
}

rt_status dp_homes_train(dp_planner *planner, uint32_t d)
{
    dp_work *work = &planner->work;
    const uint64_t trainers = work->trainers[d];
    dp_record *record = &planner->directory.records[work->distinct[d].record];
    if (record->home == DP_NO_HOME)
        first_home(planner, trainers, record);
    else if (work->movers[d] != DP_NO_WORKER && take_in(planner, d, record))
        return RT_NO_MEMORY;
    work->homes[d] = record->home;
    if (rt_bits_many(trainers))
        planner->served[planner->config.boxes.of_shard[record->home]] += rt_bit_count(trainers);
    return RT_OK;
}

void dp_homes_begin(dp_planner *planner)
{
    memset(planner->served, 0, sizeof planner->served);
}
