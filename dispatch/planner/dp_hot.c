#include "dispatch/planner/dp_hot.h"

#include <inttypes.h>

#include "dispatch/planner/dp_planner_parts.h"
#include "dispatch/planner/dp_popularity.h"

// ---- the set ---------------------------------------------------------------------------------

// Where the key stands, or would: 1 + its number, or 0.
static uint32_t *place_of(const dp_hot *hot, uint64_t key)
{
    uint64_t at = rt_mix(key) & hot->mask;
    while (hot->table[at] && hot->keys[hot->table[at] - 1] != key)
        at = (at + 1) & hot->mask;
    return &hot->table[at];
}

static rt_status add_keys(dp_hot *hot, const uint64_t *keys, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t *place = place_of(hot, keys[i]);
        if (*place)
            return RT_DATA;
        hot->keys[hot->count++] = keys[i];
        *place = hot->count;
        hot->sum = rt_mix(hot->sum ^ rt_mix(keys[i] + hot->count));
    }
    return RT_OK;
}

rt_status dp_hot_create(const uint64_t *keys, uint32_t count, dp_hot **hot_p)
{
    uint64_t size = 4;
    rt_assert(count < DP_SLOTS_MAX);
    while (size < 2 * (uint64_t)count)
        size *= 2;
    dp_hot *hot = rt_alloc(1, sizeof *hot);
    if (!hot)
        return RT_NO_MEMORY;
    hot->mask = (uint32_t)(size - 1);
    hot->keys = rt_alloc_unset(rt_max_u64(count, 1), sizeof *hot->keys);
    hot->table = rt_alloc(size, sizeof *hot->table);
    rt_status status = RT_NO_MEMORY;
    if (hot->keys && hot->table)
        status = add_keys(hot, keys, count);
    if (status) {
        dp_hot_destroy(hot);
        return status;
    }
    *hot_p = hot;
    return RT_OK;
}

void dp_hot_destroy(dp_hot *hot)
{
    if (!hot)
        return;
    rt_free(hot->keys);
    rt_free(hot->table);
    rt_free(hot);
}

static rt_status take_rows(const char *path, const dp_popular *rows, uint64_t count, dp_hot **hot_p,
                           rt_error *error)
{
    if (count >= DP_SLOTS_MAX)
        return rt_fail(error, RT_CONFIG,
                       "%s has %" PRIu64 " rows, expected at most %u, as a cache may have", path,
                       count, DP_SLOTS_MAX - 1);
    uint64_t *keys = rt_alloc_unset(rt_max_u64(count, 1), sizeof *keys);
    rt_status status = RT_NO_MEMORY;
    for (uint64_t i = 0; keys && i < count; i++)
        keys[i] = rows[i].key;
    if (keys)
        status = dp_hot_create(keys, (uint32_t)count, hot_p);
    rt_free(keys);
    if (status == RT_DATA)
        return rt_fail(error, status, "%s: a row is in it twice, expected every row once", path);
    if (status)
        return rt_fail(error, status, "out of memory: the rows of %s", path);
    return RT_OK;
}

rt_status dp_hot_read(const rt_config *config, const rt_schema *schema, dp_hot **hot_p,
                      rt_error *error)
{
    dp_popular *rows = NULL;
    uint64_t count = 0;
    const char *path = config->dispatch_profile;
    if (*path == '\0') // not before it is read: `lanyard profile` makes it for this configuration
        return rt_fail(
            error, RT_CONFIG,
            "dispatch.profile: empty, but dispatch.policy is \"fae\": expected a file of "
            "`lanyard profile --out`, whose rows every worker keeps");
    rt_status status = dp_popularity_read(path, config, schema, &rows, &count, error);
    if (!status)
        status = take_rows(path, rows, count, hot_p, error);
    rt_free(rows);
    if (status && error)
        return rt_fail_in(error, "dispatch.profile, a file of `lanyard profile`");
    return status;
}

// ---- copies ----------------------------------------------------------------------------------

// The row is at the parameter servers in its latest version: nothing is pushed.
rt_status dp_hot_release(dp_planner *planner, uint32_t d)
{
    dp_work *work = &planner->work;
    dp_record *record = &planner->directory.records[work->distinct[d].record];
    uint64_t rest = record->copies.holders & ~work->trainers[d];
    rt_assert(record->copies.holders == 0 || record->version_ps == record->version);
    for (; rest; rest &= rest - 1) {
        const uint32_t worker = rt_lowest_bit(rest);
        const uint32_t slot = dp_planner_slot(planner, &planner->own, d, worker);
        if (dp_planner_give_up(planner, &work->plan, worker, slot, record, DP_REASON_UPDATE))
            return RT_NO_MEMORY;
        dp_cache_outdate(planner->own.caches, worker, slot, &record->copies);
    }
    return RT_OK;
}

// ---- rows that come back ---------------------------------------------------------------------

static void lacks(dp_planner *planner, uint32_t number)
{
    planner->hot.lacking[number / 64] |= rt_bit(number % 64);
}

// What this iteration trains, all workers lack from now on; who takes part anew lacks anything.
static void note(dp_planner *planner)
{
    const dp_hot *hot = planner->config.hot;
    for (uint32_t d = 0; d < planner->view.distinct_count; d++) {
        const uint32_t place = *place_of(hot, planner->work.distinct[d].key);
        if (place)
            lacks(planner, place - 1);
    }
    if (planner->hot.participants == planner->participants)
        return;
    planner->hot.participants = planner->participants;
    for (uint32_t i = 0; i < hot->count; i++)
        lacks(planner, i);
}

static rt_status bring(dp_planner *planner, uint32_t worker, uint32_t index)
{
    dp_record *record = &planner->directory.records[index];
    dp_op *op = dp_ops_add(&planner->work.plan.slices[worker].fill, DP_OP_PULL);
    if (!op)
        return RT_NO_MEMORY;
    op->key = record->key;
    op->version = record->version;
    op->slot =
        dp_cache_fill(&planner->own.caches[worker], &record->copies, index, planner->iteration);
    return RT_OK;
}

// Of a row that nobody ever trained there is nothing to bring.
static rt_status bring_to_all(dp_planner *planner, uint32_t number, bool *is_there_p)
{
    dp_directory *directory = &planner->directory;
    const uint64_t key = planner->config.hot->keys[number];
    const uint32_t version = dp_directory_version(directory, key);
    *is_there_p = version == 0 || version + 1 < planner->iteration;
    if (version == 0 || !*is_there_p)
        return RT_OK;
    if (dp_directory_reserve(directory, 1))
        return RT_NO_MEMORY;
    const uint32_t index = dp_directory_find(directory, key);
    uint64_t rest = planner->participants & ~directory->records[index].copies.holders;
    for (; rest; rest &= rest - 1) {
        if (bring(planner, rt_lowest_bit(rest), index))
            return RT_NO_MEMORY;
    }
    return RT_OK;
}

// In the order of popularity, whatever was trained when: a planner that goes on from a checkpoint
// knows no more than what is where.
rt_status dp_hot_fill(dp_planner *planner)
{
    const uint32_t words = (planner->config.hot->count + 63) / 64;
    note(planner);
    for (uint32_t w = 0; w < words; w++) {
        for (uint64_t rest = planner->hot.lacking[w]; rest; rest &= rest - 1) {
            const uint32_t bit = rt_lowest_bit(rest);
            bool is_there;
            if (bring_to_all(planner, 64 * w + bit, &is_there))
                return RT_NO_MEMORY;
            if (is_there)
                planner->hot.lacking[w] &= ~rt_bit(bit);
        }
    }
    return RT_OK;
}
