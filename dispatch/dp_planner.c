#include "dispatch/dp_planner.h"

#include <inttypes.h>
#include <string.h>

#include "dispatch/dp_ticks.h"

#define LOOK_UP_BLOCK 128u // look-ups whose memory is fetched together

struct dp_planner {
    dp_planner_config config;
    dp_ticks ticks;
    dp_directory directory;
    dp_cache *caches; // worker_count
    const dp_policy_ops *policy;
    void *policy_state;
    uint32_t iteration; // of the batch looked up last; the first is 1
    bool records_new;   // config has input records that are not in force yet

    // the batch: see dp_view
    dp_view view;
    uint32_t *lookups;
    dp_distinct *distinct;
    uint8_t *held;
    uint32_t capacity[RT_WORKERS_MAX];
    uint32_t *worker_of_sample;

    // the plan
    uint64_t *trainers; // by distinct key: workers that train it
    uint8_t *row_owner; // by distinct key: worker + 1 whose row number row_of holds
    uint32_t *row_of;
    uint32_t **row_keys; // by worker and row: distinct key
    dp_plan plan;
    dp_hits hits;
};

static uint32_t micro_batch_max(const dp_planner_config *config)
{
    return (config->sample_count_max + config->worker_count - 1) / config->worker_count;
}

static rt_status check_caches(const dp_planner_config *config, rt_error *error)
{
    uint64_t rows = (uint64_t)micro_batch_max(config) * config->keys_per_sample_max;
    for (uint32_t j = 0; j < config->worker_count; j++) {
        if (config->slot_count[j] < rows)
            return rt_fail(error, RT_CONFIG,
                           "the cache of worker %" PRIu32 " has %" PRIu32
                           " rows, but one micro-batch may need %" PRIu64 " (%" PRIu32
                           " samples x %" PRIu32 " keys): raise cache.rows or cache.ratio",
                           j, config->slot_count[j], rows, micro_batch_max(config),
                           config->keys_per_sample_max);
        if (config->slot_count[j] >= DP_SLOTS_MAX)
            return rt_fail(error, RT_CONFIG,
                           "the cache of worker %" PRIu32 " has %" PRIu32
                           " rows, at most %u are possible",
                           j, config->slot_count[j], DP_SLOTS_MAX - 1);
    }
    return RT_OK;
}

static rt_status allocate(dp_planner *planner)
{
    const dp_planner_config *config = &planner->config;
    uint64_t lookups = (uint64_t)config->sample_count_max * config->keys_per_sample_max;
    uint64_t slice_lookups = (uint64_t)micro_batch_max(config) * config->keys_per_sample_max;
    if (lookups > UINT32_MAX)
        return RT_NO_MEMORY;
    planner->caches = rt_alloc(config->worker_count, sizeof *planner->caches);
    planner->lookups = rt_alloc(lookups, sizeof *planner->lookups);
    planner->distinct = rt_alloc(lookups, sizeof *planner->distinct);
    planner->held = rt_alloc(lookups, sizeof *planner->held);
    planner->worker_of_sample = rt_alloc(config->sample_count_max, sizeof(uint32_t));
    planner->trainers = rt_alloc(lookups, sizeof *planner->trainers);
    planner->row_owner = rt_alloc(lookups, sizeof *planner->row_owner);
    planner->row_of = rt_alloc(lookups, sizeof *planner->row_of);
    planner->row_keys = rt_alloc(config->worker_count, sizeof *planner->row_keys);
    if (!planner->caches || !planner->lookups || !planner->distinct || !planner->held ||
        !planner->worker_of_sample || !planner->trainers || !planner->row_owner ||
        !planner->row_of || !planner->row_keys ||
        dp_plan_init(&planner->plan, config->worker_count) ||
        dp_directory_init(&planner->directory, config->keys_expected))
        return RT_NO_MEMORY;
    for (uint32_t j = 0; j < config->worker_count; j++) {
        planner->row_keys[j] = rt_alloc(slice_lookups, sizeof(uint32_t));
        if (!planner->row_keys[j] ||
            dp_cache_init(&planner->caches[j], j, config->slot_count[j], config->eviction) ||
            dp_slice_reserve(&planner->plan.slices[j], micro_batch_max(config),
                             (uint32_t)slice_lookups))
            return RT_NO_MEMORY;
    }
    return RT_OK;
}

rt_status dp_planner_create(const dp_planner_config *config, dp_planner **planner_p,
                            rt_error *error)
{
    rt_assert(config->worker_count >= 1 && config->worker_count <= RT_WORKERS_MAX);
    rt_status status = check_caches(config, error);
    if (status)
        return status;
    dp_planner *planner = rt_alloc(1, sizeof *planner);
    if (!planner)
        return rt_fail(error, RT_NO_MEMORY, "out of memory for the planner");
    planner->config = *config;
    status = allocate(planner);
    if (status) {
        rt_fail(error, status, "out of memory for the planner's caches and batch");
    } else {
        dp_policy_config policy = {
            .worker_count = config->worker_count,
            .sample_count_max = config->sample_count_max,
            .distinct_count_max = config->sample_count_max * config->keys_per_sample_max,
            .seed = config->seed,
            .dispatch = config->dispatch,
        };
        planner->policy = dp_policy_find(config->dispatch.policy);
        status = planner->policy->create(&policy, &planner->policy_state, error);
    }
    if (status) {
        dp_planner_destroy(planner);
        return status;
    }
    dp_ticks_compute(&config->layout, planner->config.links, config->worker_count,
                     config->keys_per_sample_max, &planner->ticks);
    *planner_p = planner;
    return RT_OK;
}

void dp_planner_destroy(dp_planner *planner)
{
    if (!planner)
        return;
    for (uint32_t j = 0; j < planner->config.worker_count; j++) {
        if (planner->caches)
            dp_cache_fini(&planner->caches[j]);
        if (planner->row_keys)
            rt_free(planner->row_keys[j]);
    }
    if (planner->policy_state)
        planner->policy->destroy(planner->policy_state);
    dp_directory_fini(&planner->directory);
    dp_plan_fini(&planner->plan);
    rt_free(planner->caches);
    rt_free(planner->lookups);
    rt_free(planner->distinct);
    rt_free(planner->held);
    rt_free(planner->worker_of_sample);
    rt_free(planner->trainers);
    rt_free(planner->row_owner);
    rt_free(planner->row_of);
    rt_free(planner->row_keys);
    rt_free(planner);
}

// ---- look-up ---------------------------------------------------------------------------------

static uint8_t held_byte(const dp_record *record)
{
    if (record->holders == 0)
        return DP_HELD_BY_NONE;
    if (record->holders & (record->holders - 1))
        return DP_HELD_BY_MANY;
    uint32_t clean = record->version == record->version_ps ? DP_HELD_CLEAN : 0;
    return (uint8_t)(rt_lowest_bit(record->holders) | clean);
}

static uint32_t distinct_of(dp_planner *planner, uint32_t record_index)
{
    dp_record *record = &planner->directory.records[record_index];
    if (RT_LIKELY(record->seen == planner->iteration)) {
        planner->distinct[record->distinct].uses++;
        return record->distinct;
    }
    uint32_t index = planner->view.distinct_count++;
    record->seen = planner->iteration;
    record->distinct = index;
    planner->distinct[index] = (dp_distinct){.key = record->key,
                                             .holders = record->holders,
                                             .record = record_index,
                                             .version = record->version,
                                             .uses = 1,
                                             .held = held_byte(record),
                                             .field = (uint8_t)rt_key_field(record->key),
                                             .dirty = record->version != record->version_ps};
    planner->held[index] = planner->distinct[index].held;
    return index;
}

// Entries and records are far apart in memory: a block of probes is fetched before it is used.
static void look_up_block(dp_planner *planner, const uint64_t *keys, uint32_t count,
                          uint32_t *lookups)
{
    dp_directory *directory = &planner->directory;
    for (uint32_t i = 0; i < count; i++)
        __builtin_prefetch(&directory->entries[dp_directory_home(directory, keys[i])], 1);
    for (uint32_t i = 0; i < count; i++) {
        lookups[i] = dp_directory_find(directory, keys[i]);
        __builtin_prefetch(&directory->records[lookups[i]], 1);
    }
    for (uint32_t i = 0; i < count; i++)
        lookups[i] = distinct_of(planner, lookups[i]);
}

static bool batch_is_uniform(const rt_batch *batch, uint32_t field_count)
{
    // Every sample has a key in every field, so field_count keys mean one each.
    return batch->key_count == (uint64_t)batch->sample_count * field_count;
}

static void apply_records(dp_planner *planner)
{
    const dp_planner_config *config = &planner->config;
    if (!planner->records_new)
        return;
    planner->records_new = false;
    dp_ticks_compute(&config->layout, config->links, config->worker_count,
                     config->keys_per_sample_max, &planner->ticks);
    if (planner->policy->set_alpha)
        planner->policy->set_alpha(planner->policy_state, config->dispatch.alpha);
}

rt_status dp_planner_look_up(dp_planner *planner, const rt_batch *batch)
{
    const dp_planner_config *config = &planner->config;
    uint32_t n = config->worker_count;
    rt_assert(batch->sample_count >= 1 && batch->sample_count <= config->sample_count_max);
    rt_assert(batch->key_count <= (uint64_t)config->sample_count_max * config->keys_per_sample_max);
    rt_status status = dp_directory_reserve(&planner->directory, batch->key_count);
    if (status)
        return status;
    apply_records(planner);
    planner->iteration++;
    for (uint32_t j = 0; j < n; j++)
        planner->capacity[j] = batch->sample_count / n + (j < batch->sample_count % n);
    planner->view = (dp_view){
        .iteration = planner->iteration,
        .worker_count = n,
        .sample_count = batch->sample_count,
        .lookup_count = batch->key_count,
        .uniform = batch_is_uniform(batch, config->layout.field_count),
        .offsets = batch->key_offsets,
        .lookups = planner->lookups,
        .distinct = planner->distinct,
        .held = planner->held,
        .capacity = planner->capacity,
        .ticks = &planner->ticks,
    };
    for (uint32_t i = 0; i < batch->key_count; i += LOOK_UP_BLOCK) {
        uint32_t count = (uint32_t)rt_min_u64(batch->key_count - i, LOOK_UP_BLOCK);
        look_up_block(planner, batch->keys + i, count, planner->lookups + i);
    }
    return RT_OK;
}

void dp_planner_place(dp_planner *planner)
{
    planner->policy->place(planner->policy_state, &planner->view, planner->worker_of_sample);
}

// ---- commit ----------------------------------------------------------------------------------

// Samples, look-ups and distinct rows of one worker; adds it to the trainers of its keys.
static void collect_rows(dp_planner *planner, uint32_t worker)
{
    const dp_view *view = &planner->view;
    dp_slice *slice = &planner->plan.slices[worker];
    for (uint32_t k = 0; k < slice->sample_count; k++) {
        uint32_t sample = slice->samples[k];
        for (uint32_t at = view->offsets[sample]; at < view->offsets[sample + 1]; at++) {
            uint32_t d = view->lookups[at];
            if (planner->row_owner[d] != worker + 1) {
                planner->row_owner[d] = (uint8_t)(worker + 1);
                planner->row_of[d] = slice->row_count;
                planner->row_keys[worker][slice->row_count++] = d;
                planner->trainers[d] |= rt_bit(worker);
            }
            slice->lookup_rows[slice->lookup_count++] = planner->row_of[d];
            planner->hits.lookups_hit += view->distinct[d].holders >> worker & 1;
        }
    }
    planner->hits.lookups += slice->lookup_count;
    planner->hits.keys += slice->row_count;
}

static rt_status collect(dp_planner *planner)
{
    const dp_view *view = &planner->view;
    dp_plan *plan = &planner->plan;
    dp_plan_clear(plan);
    plan->iteration = planner->iteration;
    plan->sample_count = view->sample_count;
    planner->hits = (dp_hits){.distinct = view->distinct_count};
    memset(planner->trainers, 0, view->distinct_count * sizeof *planner->trainers);
    memset(planner->row_owner, 0, view->distinct_count * sizeof *planner->row_owner);
    for (uint32_t i = 0; i < view->sample_count; i++) {
        uint32_t worker = planner->worker_of_sample[i];
        rt_assert(worker < plan->worker_count);
        dp_slice *slice = &plan->slices[worker];
        rt_assert(slice->sample_count < planner->capacity[worker]);
        rt_assert(view->offsets[i + 1] - view->offsets[i] <= planner->config.keys_per_sample_max);
        slice->samples[slice->sample_count++] = i;
    }
    for (uint32_t w = 0; w < plan->worker_count; w++)
        collect_rows(planner, w);
    return RT_OK;
}

static rt_status push_row(dp_planner *planner, uint32_t worker, dp_record *record, dp_reason reason)
{
    dp_op *op = dp_ops_add(&planner->plan.slices[worker].release, DP_OP_PUSH_ROW);
    if (!op)
        return RT_NO_MEMORY;
    op->key = record->key;
    op->slot = dp_cache_slot(planner->caches, worker, record);
    op->version = record->version;
    op->reason = (uint8_t)reason;
    op->flags = DP_OP_STATE;
    record->version_ps = record->version;
    return RT_OK;
}

static rt_status drop_copy(dp_planner *planner, uint32_t worker, dp_record *record)
{
    dp_op *op = dp_ops_add(&planner->plan.slices[worker].release, DP_OP_DROP);
    if (!op)
        return RT_NO_MEMORY;
    op->key = record->key;
    op->slot = dp_cache_slot(planner->caches, worker, record);
    op->version = record->version;
    dp_cache_drop(planner->caches, worker, record);
    return RT_OK;
}

static uint32_t cheapest_holder(const dp_planner *planner, const dp_record *record)
{
    const int32_t *push = planner->ticks.push[rt_key_field(record->key)];
    uint32_t best = rt_lowest_bit(record->holders);
    for (uint64_t rest = record->holders; rest; rest &= rest - 1) {
        uint32_t j = rt_lowest_bit(rest);
        best = push[j] < push[best] ? j : best;
    }
    return best;
}

static bool published(const dp_planner *planner)
{
    return planner->config.dispatch.accounting == RT_ACCOUNTING_PUBLISHED;
}

// The latest version leaves its holders where others train the key: a dirty row goes to the PS if
// anybody has to pull it, or if gradients of several workers will be applied to it there. Copies of
// workers that do not train it are outdated after this iteration and give up their slots now.
static rt_status release_key(dp_planner *planner, uint32_t d)
{
    dp_record *record = &planner->directory.records[planner->distinct[d].record];
    uint64_t trainers = planner->trainers[d];
    if (record->holders == 0)
        return RT_OK;
    bool summed = rt_bit_count(trainers) >= 2 && !published(planner);
    if (record->version_ps < record->version && (trainers & ~record->holders || summed)) {
        rt_status status =
            push_row(planner, cheapest_holder(planner, record), record, DP_REASON_UPDATE);
        if (status)
            return status;
    }
    for (uint64_t rest = record->holders & ~trainers; rest; rest &= rest - 1) {
        rt_status status = drop_copy(planner, rt_lowest_bit(rest), record);
        if (status)
            return status;
    }
    return RT_OK;
}

static rt_status evict(dp_planner *planner, uint32_t worker)
{
    dp_cache *cache = &planner->caches[worker];
    uint32_t slot = dp_eviction_victim(cache->eviction, planner->iteration);
    rt_assert(slot != DP_NO_SLOT); // dp_planner_create made sure that a micro-batch fits
    uint32_t index = cache->slots[slot].record;
    dp_record *record = &planner->directory.records[index];
    rt_status status = RT_OK;
    if (record->version_ps < record->version && record->holders == rt_bit(worker)) {
        status = push_row(planner, worker, record, DP_REASON_EVICT);
        dp_cache_drop(planner->caches, worker, record);
    } else {
        status = drop_copy(planner, worker, record);
    }
    if (record->holders == 0)
        dp_directory_release(&planner->directory, index);
    return status;
}

static rt_status fill_row(dp_planner *planner, uint32_t worker, uint32_t d, uint32_t *slot_p)
{
    dp_cache *cache = &planner->caches[worker];
    uint32_t index = planner->distinct[d].record;
    if (cache->free_count == 0) {
        rt_status status = evict(planner, worker);
        if (status)
            return status;
    }
    dp_record *record = &planner->directory.records[index];
    bool local =
        record->version == 0 && planner->config.dispatch.first_touch == RT_FIRST_TOUCH_LOCAL;
    dp_op *op = dp_ops_add(&planner->plan.slices[worker].fill, local ? DP_OP_INIT : DP_OP_PULL);
    if (!op)
        return RT_NO_MEMORY;
    op->key = record->key;
    op->version = record->version;
    op->slot = dp_cache_fill(cache, record, index, planner->iteration);
    // A gradient needs no optimizer state: the PS has it.
    bool owned = rt_bit_count(planner->trainers[d]) == 1 || published(planner);
    op->flags = owned ? DP_OP_STATE : 0;
    *slot_p = op->slot;
    return RT_OK;
}

// Slots for all rows that a worker trains. Rows that it holds are marked as used first, so that no
// eviction takes one of them.
static rt_status place_rows(dp_planner *planner, uint32_t worker)
{
    dp_slice *slice = &planner->plan.slices[worker];
    const uint32_t *row_keys = planner->row_keys[worker];
    for (uint32_t r = 0; r < slice->row_count; r++) {
        const dp_distinct *key = &planner->distinct[row_keys[r]];
        const dp_record *record = &planner->directory.records[key->record];
        slice->rows[r] = (dp_row){DP_NO_SLOT, key->version, DP_MODE_OWN};
        if (!(record->holders >> worker & 1))
            continue;
        slice->rows[r].slot = dp_cache_slot(planner->caches, worker, record);
        dp_eviction_use(planner->caches[worker].eviction, slice->rows[r].slot, planner->iteration);
        planner->hits.keys_hit++;
    }
    for (uint32_t r = 0; r < slice->row_count; r++) {
        if (slice->rows[r].slot != DP_NO_SLOT)
            continue;
        rt_status status = fill_row(planner, worker, row_keys[r], &slice->rows[r].slot);
        if (status)
            return status;
    }
    return RT_OK;
}

static rt_status add_gradients(dp_planner *planner, uint32_t worker)
{
    dp_slice *slice = &planner->plan.slices[worker];
    for (uint32_t r = 0; r < slice->row_count; r++) {
        uint32_t d = planner->row_keys[worker][r];
        uint64_t trainers = planner->trainers[d];
        if (rt_bit_count(trainers) < 2)
            continue;
        dp_op *op = dp_ops_add(&slice->after, DP_OP_PUSH_GRAD);
        if (!op)
            return RT_NO_MEMORY;
        slice->rows[r].mode = DP_MODE_GRAD;
        op->key = planner->distinct[d].key;
        op->mask = trainers;
        op->slot = slice->rows[r].slot;
        op->version = planner->iteration;
        op->base = planner->distinct[d].version;
    }
    return RT_OK;
}

// What training makes of a key. One trainer becomes its dirty owner. After several, the PS has the
// sum and nobody has the row: each trainer knows only its own gradient.
static void train_key(dp_planner *planner, uint32_t d)
{
    uint32_t index = planner->distinct[d].record;
    dp_record *record = &planner->directory.records[index];
    uint64_t trainers = planner->trainers[d];
    rt_assert(record->holders == trainers);
    record->version = planner->iteration;
    if (rt_bit_count(trainers) < 2 || published(planner))
        return;
    rt_assert(record->version_ps == planner->distinct[d].version);
    record->version_ps = planner->iteration;
    for (uint64_t rest = trainers; rest; rest &= rest - 1)
        dp_cache_drop(planner->caches, rt_lowest_bit(rest), record);
    dp_directory_release(&planner->directory, index);
}

rt_status dp_planner_commit(dp_planner *planner, const dp_plan **plan_p)
{
    rt_status status = collect(planner);
    uint32_t worker_count = planner->config.worker_count;
    for (uint32_t d = 0; d < planner->view.distinct_count && !status; d++)
        status = release_key(planner, d);
    for (uint32_t w = 0; w < worker_count && !status; w++)
        status = place_rows(planner, w);
    for (uint32_t w = 0; w < worker_count && !status && !published(planner); w++)
        status = add_gradients(planner, w);
    if (status)
        return status;
    for (uint32_t d = 0; d < planner->view.distinct_count; d++)
        train_key(planner, d);
    *plan_p = &planner->plan;
    return RT_OK;
}

rt_status dp_planner_flush(dp_planner *planner, const dp_plan **plan_p)
{
    dp_plan_clear(&planner->plan);
    for (uint32_t w = 0; w < planner->config.worker_count; w++) {
        const dp_cache *cache = &planner->caches[w];
        for (uint32_t slot = 0; slot < cache->slot_count; slot++) {
            uint32_t index = cache->slots[slot].record;
            if (index >= planner->directory.record_top)
                continue;
            dp_record *record = &planner->directory.records[index];
            if (record->version_ps == record->version ||
                dp_cache_slot(planner->caches, w, record) != slot)
                continue;
            rt_status status = push_row(planner, w, record, DP_REASON_FLUSH);
            if (status)
                return status;
        }
    }
    *plan_p = &planner->plan;
    return RT_OK;
}

// ---- records, views --------------------------------------------------------------------------

void dp_planner_set_alpha(dp_planner *planner, double alpha)
{
    planner->config.dispatch.alpha = alpha;
    planner->records_new = true;
}

void dp_planner_set_link(dp_planner *planner, uint32_t worker, dp_link link)
{
    rt_assert(worker < planner->config.worker_count);
    planner->config.links[worker] = link;
    planner->records_new = true;
}

const dp_view *dp_planner_view(const dp_planner *planner)
{
    return &planner->view;
}

const uint32_t *dp_planner_placement(const dp_planner *planner)
{
    return planner->worker_of_sample;
}

const dp_ticks *dp_planner_ticks(const dp_planner *planner)
{
    return &planner->ticks;
}

const dp_directory *dp_planner_directory(const dp_planner *planner)
{
    return &planner->directory;
}

dp_hits dp_planner_hits(const dp_planner *planner)
{
    return planner->hits;
}

bool dp_planner_legal(const dp_planner *planner, rt_error *error)
{
    uint64_t copies = 0, occupied = 0;
    if (!dp_directory_legal(&planner->directory, error))
        return false;
    for (uint64_t i = 0; i <= planner->directory.mask; i++) {
        const dp_entry *entry = &planner->directory.entries[i];
        if (!entry->record)
            continue;
        const dp_record *record = &planner->directory.records[entry->record - 1];
        for (uint64_t rest = record->holders; rest; rest &= rest - 1) {
            uint32_t worker = rt_lowest_bit(rest);
            uint32_t slot = dp_cache_slot(planner->caches, worker, record);
            if (slot == DP_NO_SLOT ||
                planner->caches[worker].slots[slot].record != entry->record - 1) {
                rt_fail(error, RT_CONFIG, "key %" PRIx64 ": worker %" PRIu32 " holds it in no slot",
                        record->key, worker);
                return false;
            }
            copies++;
        }
    }
    for (uint32_t w = 0; w < planner->config.worker_count; w++) {
        const dp_cache *cache = &planner->caches[w];
        occupied += cache->occupied;
        if (cache->occupied + cache->free_count != cache->slot_count) {
            rt_fail(error, RT_CONFIG, "worker %" PRIu32 ": slots are lost", w);
            return false;
        }
    }
    if (copies != occupied)
        rt_fail(error, RT_CONFIG, "%" PRIu64 " copies, %" PRIu64 " occupied slots", copies,
                occupied);
    return copies == occupied;
}
