// dp_look_up - a batch's keys become numbers, and everything that is known of them is at hand: the
// view that a policy decides on.
//
//   admit      keys that get no row yet are taken out
//   number     look-ups become numbers of distinct keys (dp_numbers.h)
//   find       one probe into the directory for every distinct key; records for those without
//   describe   what the policy sees of a key, and where its copies are (dp_locate.c)
#include "dispatch/planner/dp_homes.h"
#include "dispatch/planner/dp_planner_parts.h"

#define FIND_BLOCK 128u // keys whose memory is fetched together
#define LOOK_UPS_STEP 8192u

// The first keys of a batch are those that are most often used, and have most copies: with several
// parts for each thread nobody waits long for who has them.
#define PARTS_PER_THREAD 4u

// Instructions, as in dp_commit.c, of a search's units: with other values runs that choose who
// takes part make other plans.
#define PER_LOOK_UP 75u
#define PER_KEY 90u

// ---- records ---------------------------------------------------------------------------------

// Distinct keys of one of part_count parts.
typedef struct {
    dp_planner *planner;
    uint32_t part_count;
    uint32_t missing_counts[PARTS_PER_THREAD * RT_THREADS_MAX];
} key_parts;

static uint32_t key_begin(const key_parts *all, uint32_t part)
{
    return (uint32_t)((uint64_t)all->planner->numbers.count * part / all->part_count);
}

// Keys without a record are noted where those of the part are.
static uint32_t find_block(dp_planner *planner, uint32_t begin, uint32_t end, dp_missing *missing)
{
    const dp_directory *directory = &planner->directory;
    const uint64_t *keys = planner->numbers.keys;
    dp_distinct *distinct = planner->work.distinct;
    uint64_t homes[FIND_BLOCK];
    uint32_t count = 0;
    for (uint32_t d = begin; d < end; d++) {
        homes[d - begin] = dp_directory_home(directory, keys[d]);
        __builtin_prefetch(&directory->entries[homes[d - begin]], 1);
    }
    for (uint32_t d = begin; d < end; d++) {
        const dp_sought sought = dp_directory_seek(directory, keys[d], homes[d - begin]);
        distinct[d].record = sought.record;
        if (sought.record == DP_NO_RECORD)
            missing[count++] = (dp_missing){d, sought};
    }
    return count;
}

static void find_some(void *context, uint32_t part)
{
    key_parts *all = context;
    const uint32_t begin = key_begin(all, part), end = key_begin(all, part + 1);
    uint32_t count = 0;
    for (uint32_t d = begin; d < end; d += FIND_BLOCK)
        count += find_block(all->planner, d, (uint32_t)rt_min_u64(d + FIND_BLOCK, end),
                            all->planner->look_up.missing + begin + count);
    all->missing_counts[part] = count;
}

// In the order of keys, whatever the parts are.
static void reserve_records(const key_parts *all)
{
    dp_planner *planner = all->planner;
    for (uint32_t part = 0; part < all->part_count; part++) {
        dp_missing *missing = planner->look_up.missing + key_begin(all, part);
        for (uint32_t i = 0; i < all->missing_counts[part]; i++)
            dp_directory_reserve_record(&planner->directory,
                                        planner->numbers.keys[missing[i].distinct],
                                        &missing[i].sought);
    }
}

static void attach_records(const key_parts *all, uint32_t part)
{
    dp_planner *planner = all->planner;
    const dp_missing *missing = planner->look_up.missing + key_begin(all, part);
    const uint32_t count = all->missing_counts[part];
    dp_distinct *distinct = planner->work.distinct;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t d = missing[i].distinct;
        if (i + DP_AHEAD < count)
            dp_directory_prefetch(&planner->directory, missing[i + DP_AHEAD].sought.record);
        dp_directory_attach(&planner->directory, planner->numbers.keys[d], &missing[i].sought);
        distinct[d].record = missing[i].sought.record;
    }
}

// ---- what is known of a key ------------------------------------------------------------------

// Workers that hold a row, as the policy sees them.
static uint64_t holders_of(dp_planner *planner, uint32_t record_index, uint32_t index)
{
    const dp_record *record = &planner->directory.records[record_index];
    uint64_t holders = planner->viewed.caches ? record->viewed.holders : record->copies.holders,
             owed;
    if (planner->stale) {
        holders = dp_stale_holders(planner, record_index, &owed);
        planner->stale->owed[index] = dp_active_numbers(planner, owed);
    }
    return dp_active_numbers(planner, holders);
}

// What the policy sees of a distinct key, and what was known of it before the batch.
static void describe(dp_planner *planner, uint32_t index)
{
    dp_distinct *distinct = &planner->work.distinct[index];
    const uint32_t record_index = distinct->record;
    dp_record *record = &planner->directory.records[record_index];
    record->seen = planner->iteration;
    if (planner->config.shard_share > 0)
        dp_homes_assume(planner, record);
    uint64_t holders = holders_of(planner, record_index, index);
    bool dirty =
        !planner->stale && (record->version != record->version_ps || rt_bits_many(holders));
    if (dp_homes_at_hand(planner, record))
        holders = rt_bits_below(planner->view.worker_count);
    *distinct = (dp_distinct){.key = record->key,
                              .holders = holders,
                              .record = record_index,
                              .version = record->version,
                              .uses = planner->numbers.uses[index],
                              .held = dp_planner_held_byte(holders, dirty),
                              .field = (uint8_t)rt_key_field(record->key),
                              .dirty = dirty,
                              .box = dp_homes_box(planner, record, dirty)};
    planner->latest[index] = planner->stale ? 0 : record->copies.holders; // dp_stale.c counts
    planner->held[index] = distinct->held;
}

static void describe_some(void *context, uint32_t part)
{
    const key_parts *all = context;
    dp_planner *planner = all->planner;
    const uint32_t begin = key_begin(all, part), end = key_begin(all, part + 1);
    const dp_distinct *distinct = planner->view.distinct;
    attach_records(all, part);
    for (uint32_t d = begin; d < end; d++) {
        if (d + DP_AHEAD < end)
            dp_directory_prefetch(&planner->directory, distinct[d + DP_AHEAD].record);
        describe(planner, d);
    }
}

static void describe_keys(dp_planner *planner)
{
    rt_pool *pool = dp_planner_pool(planner);
    const uint32_t part_count = pool ? PARTS_PER_THREAD * rt_pool_threads(pool) : 1;
    key_parts all = {.planner = planner, .part_count = part_count};
    planner->view.distinct_count = planner->numbers.count;
    rt_pool_run(pool, all.part_count, find_some, &all);
    reserve_records(&all);
    rt_pool_run(pool, all.part_count, describe_some, &all);
    dp_planner_begin_locating(planner);
}

// ---- the look-up -----------------------------------------------------------------------------

// What is taken out is no use that is ahead, either.
rt_status dp_planner_admit(dp_planner *planner, rt_batch *batch, uint32_t *refused_p)
{
    dp_admission *admission = planner->admission;
    *refused_p = 0;
    if (!admission)
        return RT_OK;
    admission->draw = planner->iteration + 1;
    rt_status status = dp_admission_filter(admission, &planner->directory, batch, refused_p);
    for (uint32_t i = 0; i < *refused_p && planner->preview.next_use; i++)
        (void)dp_lookahead_pass(&planner->preview.batches, admission->refused[i],
                                planner->iteration + 1);
    return status;
}

rt_status dp_planner_make_room(dp_planner *planner, const rt_batch *batch, bool *done_p)
{
    return dp_directory_reserve_step(&planner->directory, batch->key_count, done_p);
}

uint64_t dp_planner_room_work(const dp_planner *planner, const rt_batch *batch)
{
    return dp_directory_step_work(&planner->directory, batch->key_count);
}

static rt_status begin_look_up(dp_planner *planner, const rt_batch *batch)
{
    const dp_planner_config *config = &planner->config;
    rt_assert(planner->iteration < DP_ITERATIONS_MAX && dp_planner_is_whole(planner));
    rt_assert(batch->sample_count >= 1 && batch->sample_count <= config->sample_count_max);
    rt_assert(batch->key_count <= (uint64_t)config->sample_count_max * config->keys_per_sample_max);
    dp_planner_end_locating(planner); // of a batch that was not committed
    if (dp_directory_reserve(&planner->directory, batch->key_count))
        return RT_NO_MEMORY;
    planner->iteration++;
    planner->passed +=
        rt_max_u64(batch->sample_count * DP_PASSED_WHOLE / config->sample_count_max, 1);
    rt_status status = dp_planner_enter_inputs(planner);
    if (status)
        return status;
    planner->locate.is_done = dp_planner_locates(planner);
    if (config->dense_whole_bytes > 0 && planner->iteration == RT_CODING_WHOLE_ITERATIONS + 1)
        dp_planner_compute_ticks(planner);
    const uint32_t n = planner->view_ticks.worker_count;
    for (uint32_t j = 0; j < n; j++)
        planner->capacity[j] = batch->sample_count / n + (j < batch->sample_count % n);
    for (uint32_t j = 0; j < n; j++)
        planner->rows_max[j] = config->slot_count[planner->rank_of[j]];
    planner->view = (dp_view){
        .iteration = planner->iteration,
        .worker_count = n,
        .sample_count = batch->sample_count,
        .lookup_count = batch->key_count,
        .uniform = dp_planner_is_uniform(planner, batch),
        .offsets = batch->key_offsets,
        .lookups = planner->lookups,
        .distinct = planner->work.distinct,
        .held = planner->held,
        .capacity = planner->capacity,
        .micro_batch_min = config->micro_batch_min,
        .micro_batch_max = config->micro_batch_max,
        .rows_max = planner->rows_max,
        .ranks = planner->rank_of,
        .ticks = &planner->view_ticks,
        .cached = planner->cached,
        .owed = planner->stale ? planner->stale->owed : NULL,
        .always_summed = dp_planner_sums_all(planner),
        .changes = planner->changes,
        .pool = planner->pool,
    };
    dp_numbers_begin(&planner->numbers);
    return RT_OK;
}

static uint32_t look_ups_of_step(const dp_planner *planner, const rt_batch *batch)
{
    const uint32_t left = batch->key_count - planner->look_up.done;
    return planner->pool ? left : (uint32_t)rt_min_u64(left, LOOK_UPS_STEP);
}

// Numbers depend on nothing but the batch: threads always share that.
static rt_status number_keys(dp_planner *planner, const rt_batch *batch, uint32_t count)
{
    const uint32_t from = planner->look_up.done;
    planner->look_up.done += count;
    if (planner->pool)
        return dp_numbers_add_all(&planner->numbers, planner->pool, batch->keys, count,
                                  planner->lookups);
    return dp_numbers_add(&planner->numbers, batch->keys + from, count, planner->lookups + from);
}

rt_status dp_planner_look_up_step(dp_planner *planner, const rt_batch *batch, bool *done_p)
{
    const uint32_t count = look_ups_of_step(planner, batch);
    *done_p = false;
    if (planner->look_up.done == 0) {
        const rt_status status = begin_look_up(planner, batch);
        if (status)
            return status;
    }
    if (count > 0)
        return number_keys(planner, batch, count);
    describe_keys(planner);
    planner->look_up.done = 0;
    *done_p = true;
    return RT_OK;
}

uint64_t dp_planner_look_up_work(const dp_planner *planner, const rt_batch *batch)
{
    const uint64_t count = look_ups_of_step(planner, batch);
    if (count)
        return count * PER_LOOK_UP;
    return (uint64_t)planner->numbers.count * PER_KEY;
}

rt_status dp_planner_look_up(dp_planner *planner, const rt_batch *batch)
{
    for (bool done = false; !done;) {
        const rt_status status = dp_planner_look_up_step(planner, batch, &done);
        if (status)
            return status;
    }
    return RT_OK;
}
