#include "dispatch/planner/dp_snapshot.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "dispatch/planner/dp_homes.h"
#include "dispatch/planner/dp_hot.h"
#include "dispatch/planner/dp_window.h"
#include "runtime/config/rt_policies.h"
#include "runtime/rt_build.h"

#define FORMAT 5u
// Read, too: without the names of members (rt_fields.h).
#define FORMAT_UNNAMED 4u
// Likewise: without who takes part, as all did.
#define FORMAT_OF_ALL 3u
// Likewise, and all but caches and policy, whose layouts were others. Caches start empty then.
#define FORMAT_BEFORE 2u

// What must be equal for the caches of one planner to be those of another.
typedef struct {
    uint32_t format;
    uint32_t iteration;
    uint64_t input_count;
    uint32_t worker_count;
    uint32_t eviction;
    uint32_t by_bytes;
    uint32_t policy; // its number
    uint32_t waiting_count;
    uint32_t seen;               // snapshot_seen
    uint64_t key_count, key_sum; // what the shards hold if they captured this very cut
    uint64_t passed;             // 0: all batches were full
} snapshot_head;

#define HEAD(XX, PART, NONE, T) \
    XX(T, format)               \
    XX(T, iteration)            \
    XX(T, input_count)          \
    XX(T, worker_count)         \
    XX(T, eviction)             \
    XX(T, by_bytes)             \
    XX(T, policy)               \
    XX(T, waiting_count)        \
    XX(T, seen)                 \
    XX(T, key_count)            \
    XX(T, key_sum)              \
    XX(T, passed)
RT_FIELDS(head_fields, snapshot_head, HEAD,
          "format:4 iteration:4 input_count:8 worker_count:4 eviction:4 by_bytes:4 policy:4 "
          "waiting_count:4 seen:4 key_count:8 key_sum:8");

// Which copies there are: those of the workers; behind them those that decisions see; or copies of
// bounded staleness, all of them spent.
typedef enum { SEEN_WORKERS, SEEN_VIEWED, SEEN_STALE, SEEN_MASK = 0xff } snapshot_seen;
// Beside it: what stands before the workers.
#define HAS_ADMISSION 0x100u // counts of keys without a row
#define HAS_WINDOW 0x200u    // behind them: where samples of the next batches are expected
#define HAS_HOT 0x400u       // behind the sizes of the caches: the sum of the rows that all keep

typedef struct {
    double up_bytes_per_s, down_bytes_per_s, compute_s;
} snapshot_worker;

#define WORKER(XX, PART, NONE, T) \
    XX(T, up_bytes_per_s)         \
    XX(T, down_bytes_per_s)       \
    XX(T, compute_s)
RT_FIELDS(worker_fields, snapshot_worker, WORKER,
          "up_bytes_per_s:8 down_bytes_per_s:8 compute_s:8 fills:4 evictions:4");

typedef struct {
    double alpha, ps_bytes_per_s;
    uint32_t search_evaluations, tables;
    double shard_bytes_per_s[RT_SHARDS_MAX];
    uint64_t participants; // mask
    double predicted_s;    // of the last iteration in which not all trained
} snapshot_values;

#define VALUES(XX, PART, NONE, T) \
    XX(T, alpha)                  \
    XX(T, ps_bytes_per_s)         \
    XX(T, search_evaluations)     \
    XX(T, tables)                 \
    XX(T, shard_bytes_per_s)      \
    XX(T, participants)           \
    XX(T, predicted_s)
#define VALUES_OF_ALL "alpha:8 ps_bytes_per_s:8 search_evaluations:4 tables:4 shard_bytes_per_s:128"
RT_FIELDS(values_fields, snapshot_values, VALUES, VALUES_OF_ALL " participants:8 predicted_s:8");

// Keys that were trained, and a sum over keys and versions that knows no order.
static void sum_keys(const dp_directory *directory, uint64_t *count_p, uint64_t *sum_p)
{
    *count_p = *sum_p = 0;
    for (uint64_t i = 0; i <= directory->mask; i++) {
        const dp_entry *entry = &directory->entries[i];
        uint32_t version =
            entry->record ? directory->records[entry->record - 1].version : entry->version;
        *count_p += version > 0;
        if (version)
            *sum_p += rt_mix(entry->key ^ rt_mix(version));
    }
}

// In synchronous training no version is above the iteration (dp_stale.h).
static uint32_t latest_version(const dp_directory *directory)
{
    uint32_t latest = 0;
    for (uint64_t i = 0; i <= directory->mask; i++)
        latest = (uint32_t)rt_max_u64(latest, directory->entries[i].version);
    return latest;
}

// ---- saving ----------------------------------------------------------------------------------

// Its size, free slots in their order, the key of every slot, what eviction knows.
static void save_cache(const dp_planner *planner, const dp_cache *cache, rt_bytes *bytes)
{
    rt_bytes one = {0};
    rt_bytes_put_u64(&one, cache->free_count);
    rt_bytes_put(&one, cache->free_slots, cache->free_count * sizeof *cache->free_slots);
    // A free slot still names its last record: its key is left out of account when it is read.
    uint64_t *keys = rt_bytes_extend(&one, cache->slot_count * sizeof *keys);
    for (uint32_t slot = 0; keys && slot < cache->slot_count; slot++) {
        uint32_t index = cache->slots[slot].record;
        uint64_t key =
            index < planner->directory.record_top ? planner->directory.records[index].key : 0;
        memcpy(&keys[slot], &key, sizeof key);
    }
    dp_eviction_save(cache->eviction, &one);
    rt_bytes_put_u64(bytes, one.size);
    rt_bytes_put(bytes, one.data, one.size);
    bytes->failed |= one.failed;
    rt_bytes_fini(&one);
}

static void save_worker(const dp_planner *planner, uint32_t w, rt_bytes *bytes)
{
    const dp_rates *rates = &planner->config.rates;
    const snapshot_worker head = {.up_bytes_per_s = rates->links[w].up_bytes_per_s,
                                  .down_bytes_per_s = rates->links[w].down_bytes_per_s,
                                  .compute_s = rates->compute_s_per_sample[w]};
    rt_fields_put(bytes, &worker_fields, &head, 1);
    save_cache(planner, &planner->own.caches[w], bytes);
    if (planner->viewed.caches)
        save_cache(planner, &planner->viewed.caches[w], bytes);
}

static void save_policy(const dp_planner *planner, rt_bytes *bytes)
{
    rt_bytes state = {0};
    if (planner->policy->save)
        planner->policy->save(planner->policy_state, &state);
    rt_bytes_put_u64(bytes, state.size);
    rt_bytes_put(bytes, state.data, state.size);
    bytes->failed |= state.failed;
    rt_bytes_fini(&state);
}

static void save_admission(const dp_planner *planner, rt_bytes *bytes)
{
    rt_bytes counts = {0};
    if (!planner->admission)
        return;
    dp_admission_save(planner->admission, &counts);
    rt_bytes_put_u64(bytes, counts.size);
    rt_bytes_put(bytes, counts.data, counts.size);
    bytes->failed |= counts.failed;
    rt_bytes_fini(&counts);
}

static void save_window(const dp_planner *planner, rt_bytes *bytes)
{
    rt_bytes window = {0};
    if (!planner->window)
        return;
    dp_window_save(planner->window, planner->iteration, &window);
    rt_bytes_put_u64(bytes, window.size);
    rt_bytes_put(bytes, window.data, window.size);
    bytes->failed |= window.failed;
    rt_bytes_fini(&window);
}

static uint32_t what_is_beside(const dp_planner *planner)
{
    return (planner->admission != NULL) * HAS_ADMISSION | (planner->window != NULL) * HAS_WINDOW |
           (planner->config.hot != NULL) * HAS_HOT;
}

static uint32_t seen_by(const dp_planner *planner)
{
    if (planner->stale)
        return SEEN_STALE;
    return planner->viewed.caches ? SEEN_VIEWED : SEEN_WORKERS;
}

void dp_planner_save(const dp_planner *planner, const rt_bytes *chooser_state, rt_bytes *bytes)
{
    const dp_planner_config *config = &planner->config;
    snapshot_head head = {.format = FORMAT,
                          .iteration = planner->iteration,
                          .input_count = planner->inputs.taken,
                          .worker_count = config->worker_count,
                          .eviction = config->eviction,
                          .by_bytes = planner->by_bytes,
                          .policy = rt_policy_number(config->dispatch.policy),
                          .waiting_count = planner->inputs.waiting_count,
                          .seen = seen_by(planner) | what_is_beside(planner),
                          .passed = planner->passed};
    snapshot_values values = {config->dispatch.alpha,
                              config->rates.ps_bytes_per_s,
                              config->dispatch.search_evaluations,
                              config->dispatch.tables,
                              {0},
                              config->participants,
                              planner->predicted_s};
    memcpy(values.shard_bytes_per_s, config->rates.shards.bytes_per_s,
           sizeof values.shard_bytes_per_s);
    rt_assert(planner->unsynced.count == 0 && planner->expired.count == 0);
    sum_keys(&planner->directory, &head.key_count, &head.key_sum);
    rt_fields_put(bytes, &head_fields, &head, 1);
    rt_fields_put(bytes, &values_fields, &values, 1);
    rt_bytes_put(bytes, config->slot_count, config->worker_count * sizeof *config->slot_count);
    if (config->hot)
        rt_bytes_put_u64(bytes, config->hot->sum);
    rt_fields_put(bytes, &dp_input_fields, planner->inputs.waiting, planner->inputs.waiting_count);
    save_policy(planner, bytes);
    rt_bytes_put_u64(bytes, chooser_state->size);
    rt_bytes_put(bytes, chooser_state->data, chooser_state->size);
    bytes->failed |= chooser_state->failed;
    save_admission(planner, bytes);
    save_window(planner, bytes);
    for (uint32_t w = 0; w < config->worker_count; w++)
        save_worker(planner, w, bytes);
}

// ---- loading ---------------------------------------------------------------------------------

rt_status dp_planner_know(dp_planner *planner, uint64_t key, uint32_t version, uint32_t shard)
{
    if (version == 0) {
        planner->config.dispatch.first_touch = RT_FIRST_TOUCH_PULL;
        return RT_OK;
    }
    if (dp_directory_version(&planner->directory, key) != 0)
        return RT_DATA;
    return dp_directory_add(&planner->directory, key, version, shard);
}

static rt_status bad(rt_error *error, const char *what)
{
    return rt_fail(error, RT_DATA, "state of the planner: %s", what);
}

// Occupied slots are those that are not free; every slot must be one or the other.
static rt_status load_free_slots(dp_cache *cache, bool *is_used, rt_reader *reader, rt_error *error)
{
    const uint64_t free_count = rt_reader_u64(reader);
    if (free_count > cache->slot_count ||
        !rt_reader_get(reader, cache->free_slots, free_count, sizeof *cache->free_slots))
        return bad(error, "it ends within the free slots");
    cache->free_count = (uint32_t)free_count;
    cache->occupied = cache->slot_count - cache->free_count;
    memset(is_used, true, cache->slot_count);
    for (uint32_t i = 0; i < cache->free_count; i++) {
        uint32_t slot = cache->free_slots[i];
        if (slot >= cache->slot_count || !is_used[slot])
            return bad(error, "a slot is free twice or does not exist");
        is_used[slot] = false;
    }
    return RT_OK;
}

// keys: of all slots. Eviction tells which copies are outdated.
static rt_status load_copies(dp_planner *planner, const dp_cache_set *set, dp_cache *cache,
                             const bool *is_used, const uint8_t *keys, rt_error *error)
{
    if (dp_directory_reserve(&planner->directory, cache->slot_count))
        return rt_fail(error, RT_NO_MEMORY, "out of memory for the directory");
    for (uint32_t slot = 0; slot < cache->slot_count; slot++) {
        uint64_t key;
        memcpy(&key, keys + slot * sizeof key, sizeof key);
        if (!is_used[slot])
            continue;
        if (dp_directory_version(&planner->directory, key) == 0)
            return rt_fail(error, RT_DATA,
                           "state of the planner: worker %" PRIu32 " holds key %016" PRIx64
                           ", which no shard has",
                           cache->worker, key);
        uint32_t index = dp_directory_find(&planner->directory, key);
        dp_copies *copies = dp_planner_copies(planner, set, index);
        if (dp_cache_slot(set->caches, cache->worker, copies) != DP_NO_SLOT)
            return bad(error, "a worker has a key twice");
        dp_cache_put(cache, slot, copies, index);
        if (set == &planner->own && !planner->stale && !planner->config.hot &&
            rt_bits_many(copies->holders))
            return bad(error, "several workers hold the latest version of a key");
        cache->outdated += dp_eviction_is_outdated(cache->eviction, slot);
    }
    cache->occupied -= cache->outdated;
    return RT_OK;
}

// Which slots are free, what is in the others, and how they are evicted.
static rt_status load_slots(dp_planner *planner, const dp_cache_set *set, dp_cache *cache,
                            bool *is_used, rt_reader *reader, rt_error *error)
{
    const rt_status status = load_free_slots(cache, is_used, reader, error);
    if (status)
        return status;
    const uint8_t *keys = rt_reader_take(reader, cache->slot_count, sizeof(uint64_t));
    if (!keys)
        return bad(error, "it ends within the keys of a cache");
    if (dp_eviction_load(cache->eviction, is_used, reader) || reader->left)
        return bad(error, "the eviction of a cache cannot be that of these slots");
    return load_copies(planner, set, cache, is_used, keys, error);
}

// A part that its size stands before; one that has failed where it is cut off.
static rt_reader take_part(rt_reader *reader)
{
    const uint64_t size = rt_reader_u64(reader);
    const void *bytes = rt_reader_take(reader, size, 1);
    if (!bytes)
        return (rt_reader){.failed = true};
    return (rt_reader){bytes, size, false};
}

// The cache of one worker, in the workers' set or in the one that decisions see. *reader stands
// behind it.
static rt_status load_cache(dp_planner *planner, const dp_cache_set *set, uint32_t worker,
                            rt_reader *reader, rt_error *error)
{
    dp_cache *cache = &set->caches[worker];
    rt_reader one = take_part(reader);
    bool *is_used = rt_alloc(cache->slot_count, sizeof *is_used);
    if (!is_used)
        return rt_fail(error, RT_NO_MEMORY, "out of memory for a cache");
    const rt_status status = load_slots(planner, set, cache, is_used, &one, error);
    rt_free(is_used);
    return status;
}

rt_status dp_planner_copy_caches(dp_planner *planner)
{
    for (uint32_t w = 0; w < planner->config.worker_count; w++) {
        rt_bytes bytes = {0};
        save_cache(planner, &planner->own.caches[w], &bytes);
        rt_reader reader = rt_bytes_reader(&bytes);
        rt_status status = RT_NO_MEMORY;
        if (!bytes.failed)
            status = load_cache(planner, &planner->viewed, w, &reader, NULL);
        rt_bytes_fini(&bytes);
        if (status)
            return status;
    }
    return RT_OK;
}

// Where decisions saw the workers' caches, the snapshots begin as these.
static rt_status load_caches(dp_planner *planner, uint32_t w, bool has_viewed, rt_reader *reader,
                             rt_error *error)
{
    rt_reader again = *reader;
    rt_status status = load_cache(planner, &planner->own, w, reader, error);
    if (status)
        return status;
    if (planner->stale)
        dp_stale_spend(planner->stale, w, planner->own.caches[w].slot_count);
    if (has_viewed) {
        again = *reader;
        if (!rt_reader_take(reader, rt_reader_u64(reader), 1))
            return bad(error, "it ends within the caches that decisions see");
    }
    if (!planner->viewed.caches)
        return RT_OK;
    return load_cache(planner, &planner->viewed, w, &again, error);
}

static bool is_rate(double value)
{
    return isfinite(value) && value >= 1;
}

static rt_status load_values(dp_planner *planner, const snapshot_values *values, rt_error *error)
{
    dp_planner_config *config = &planner->config;
    if (!(values->alpha >= 0 && values->alpha <= 1) || !(values->ps_bytes_per_s >= 0) ||
        !isfinite(values->ps_bytes_per_s) || !(values->predicted_s >= 0))
        return bad(error, "a value in force is out of range");
    for (uint32_t s = 0; s < RT_SHARDS_MAX; s++) {
        if (!(values->shard_bytes_per_s[s] >= 0) || !isfinite(values->shard_bytes_per_s[s]))
            return bad(error, "a value in force is out of range");
    }
    memcpy(config->rates.shards.bytes_per_s, values->shard_bytes_per_s,
           sizeof config->rates.shards.bytes_per_s);
    config->participants = values->participants & rt_bits_below(config->worker_count);
    planner->predicted_s = values->predicted_s;
    config->dispatch.alpha = values->alpha;
    config->dispatch.search_evaluations = values->search_evaluations;
    dp_planner_set_tables(&config->dispatch, values->tables);
    config->rates.ps_bytes_per_s = values->ps_bytes_per_s;
    return RT_OK;
}

// Of the same configuration, another policy is one that an input record set.
static rt_status load_policy_kind(dp_planner *planner, uint32_t number, rt_error *error)
{
    const uint32_t policy = rt_policy_of_number(number);
    if (policy == planner->config.dispatch.policy)
        return RT_OK;
    if (policy >= RT_POLICY_COUNT || dp_planner_can_switch(planner, (rt_policy_kind)policy, error))
        return bad(error, "a policy that cannot be");
    planner->config.dispatch.policy = (rt_policy_kind)policy;
    return dp_planner_switch(planner, error);
}

static rt_status load_waiting(dp_planner *planner, const snapshot_head *head, bool take,
                              rt_reader *reader, rt_error *error)
{
    dp_input waiting[DP_INPUTS_WAITING_MAX] = {0};
    if (head->waiting_count > DP_INPUTS_WAITING_MAX ||
        !rt_fields_get(reader, &dp_input_fields, waiting, head->waiting_count))
        return bad(error, "it ends within the input records");
    for (uint32_t i = 0; i < head->waiting_count && take; i++) {
        if (waiting[i].kind >= DP_INPUT_KINDS ||
            dp_input_check(&waiting[i], planner->config.worker_count, error))
            return bad(error, "an input record is out of range");
        planner->inputs.waiting[planner->inputs.waiting_count++] = waiting[i];
    }
    return RT_OK;
}

// A state that does not fit is passed over; one of the same configuration does.
static rt_status load_policy(dp_planner *planner, bool take, bool same_config, rt_reader *reader,
                             bool *taken_p, rt_error *error)
{
    uint64_t size = rt_reader_u64(reader);
    const void *bytes = rt_reader_take(reader, size, 1);
    if (!bytes)
        return bad(error, "it ends within the policy");
    if (!take || !planner->policy->load)
        return RT_OK;
    rt_reader state = {bytes, size, false};
    *taken_p = planner->policy->load(planner->policy_state, &state) && !state.left;
    if (*taken_p)
        return RT_OK;
    if (same_config)
        return bad(error, "it is not that of this policy");
    planner->policy->destroy(planner->policy_state);
    planner->policy_state = NULL;
    return dp_planner_create_policy(planner, error);
}

static rt_status load_worker(dp_planner *planner, uint32_t w, bool has_viewed, bool same_config,
                             rt_reader *reader, rt_error *error)
{
    snapshot_worker worker;
    if (!rt_fields_get(reader, &worker_fields, &worker, 1))
        return bad(error, "it ends within the workers");
    if (!is_rate(worker.up_bytes_per_s) || !is_rate(worker.down_bytes_per_s) ||
        !(worker.compute_s >= 0) || !isfinite(worker.compute_s))
        return bad(error, "a value in force is out of range");
    if (same_config) {
        planner->config.rates.links[w] = (dp_link){worker.up_bytes_per_s, worker.down_bytes_per_s};
        planner->config.rates.compute_s_per_sample[w] = worker.compute_s;
    }
    return load_caches(planner, w, has_viewed, reader, error);
}

// Whether workers, slots, eviction, and the rows that all keep are those of the state.
static rt_status compare_caches(const dp_planner *planner, const snapshot_head *head,
                                rt_reader *reader, bool *same_p, rt_error *error)
{
    const dp_planner_config *config = &planner->config;
    uint32_t slot_count[RT_WORKERS_MAX];
    if (!rt_reader_get(reader, slot_count, head->worker_count, sizeof *slot_count))
        return bad(error, "it ends within the sizes of the caches");
    const uint64_t hot = head->seen & HAS_HOT ? rt_reader_u64(reader) : 0;
    if (reader->failed)
        return bad(error, "it ends within the sum of the hot rows");
    *same_p = head->worker_count == config->worker_count && head->eviction == config->eviction &&
              head->by_bytes == planner->by_bytes && hot == (config->hot ? config->hot->sum : 0) &&
              ((head->seen & SEEN_MASK) == SEEN_STALE) == (planner->stale != NULL);
    for (uint32_t w = 0; w < config->worker_count && *same_p; w++)
        *same_p = slot_count[w] == config->slot_count[w];
    return RT_OK;
}

static rt_status load_chooser(bool take, rt_reader *reader, rt_bytes *chooser_state,
                              rt_error *error)
{
    const uint64_t size = rt_reader_u64(reader);
    const void *bytes = rt_reader_take(reader, size, 1);
    if (!bytes)
        return bad(error, "it ends within who takes part");
    if (take)
        rt_bytes_put(chooser_state, bytes, size);
    if (chooser_state->failed)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    return RT_OK;
}

// Counts of another rows.admit begin anew: they say what to store, not what is true.
static rt_status load_admission(dp_planner *planner, const snapshot_head *head, rt_reader *reader,
                                rt_error *error)
{
    if (!(head->seen & HAS_ADMISSION))
        return RT_OK;
    rt_reader counts = take_part(reader);
    if (counts.failed)
        return bad(error, "it ends within the counts of keys");
    if (!planner->admission || !dp_admission_fits(planner->admission, counts))
        return RT_OK;
    if (dp_admission_load(planner->admission, &counts) || counts.left)
        return bad(error, "counts of keys that cannot be");
    return RT_OK;
}

// What another configuration expected is passed over.
static rt_status load_window(dp_planner *planner, const snapshot_head *head, bool take,
                             rt_reader *reader, rt_error *error)
{
    if (!(head->seen & HAS_WINDOW))
        return RT_OK;
    rt_reader window = take_part(reader);
    if (window.failed)
        return bad(error, "it ends within the window");
    if (!take || !planner->window)
        return RT_OK;
    if (!dp_window_load(planner->window, &window) || window.left)
        return bad(error, "a window that cannot be");
    return RT_OK;
}

static rt_status load_workers(dp_planner *planner, const snapshot_head *head, bool same_config,
                              rt_reader *reader, rt_error *error)
{
    const bool has_viewed = (head->seen & SEEN_MASK) == SEEN_VIEWED;
    for (uint32_t w = 0; w < head->worker_count; w++) {
        const rt_status status = load_worker(planner, w, has_viewed, same_config, reader, error);
        if (status)
            return status;
    }
    if (reader->left)
        return bad(error, "bytes behind its end");
    return RT_OK;
}

static rt_status load_rest(dp_planner *planner, const snapshot_head *head, bool same_config,
                           rt_reader *reader, dp_restored *restored, rt_error *error)
{
    const bool is_before = head->format == FORMAT_BEFORE;
    const bool fits_policy = !is_before && head->worker_count == planner->config.worker_count &&
                             rt_policy_of_number(head->policy) == planner->config.dispatch.policy;
    rt_status status = compare_caches(planner, head, reader, &restored->caches, error);
    restored->caches &= !is_before;
    if (status)
        return status;
    status = load_waiting(planner, head, same_config, reader, error);
    if (status)
        return status;
    status = load_policy(planner, fits_policy, same_config, reader, &restored->policy, error);
    if (status)
        return status;
    if (head->format >= FORMAT_UNNAMED)
        status = load_chooser(same_config, reader, &restored->chooser_state, error);
    if (status)
        return status;
    status = load_admission(planner, head, reader, error);
    if (status)
        return status;
    status = load_window(planner, head, same_config && restored->caches, reader, error);
    if (status || !restored->caches)
        return status;
    return load_workers(planner, head, same_config, reader, error);
}

// What was in force, for a run of the same configuration.
static rt_status load_config(dp_planner *planner, const snapshot_head *head,
                             const snapshot_values *values, rt_error *error)
{
    const rt_status status = load_values(planner, values, error);
    if (status || head->format < FORMAT_UNNAMED)
        return status;
    return load_policy_kind(planner, head->policy, error);
}

rt_status dp_planner_load(dp_planner *planner, rt_reader *reader, bool same_config,
                          dp_restored *restored, rt_error *error)
{
    snapshot_head head;
    snapshot_values values;
    rt_assert(planner->iteration == 0);
    if (!rt_fields_get(reader, &head_fields, &head, 1) || head.format < FORMAT_BEFORE ||
        head.worker_count == 0 || head.worker_count > RT_WORKERS_MAX)
        return bad(error, "its head cannot be");
    if (head.format > FORMAT)
        return rt_fail_format(error, "state of the planner", head.format, FORMAT, NULL);
    const bool is_of_all = head.format < FORMAT_UNNAMED;
    const bool has_values =
        is_of_all ? rt_fields_get_as(reader, &values_fields, VALUES_OF_ALL, &values, 1)
                  : rt_fields_get(reader, &values_fields, &values, 1);
    if (!has_values)
        return bad(error, "it ends early");
    if (is_of_all)
        values.participants = planner->config.participants;
    if (head.iteration > DP_ITERATIONS_MAX)
        return bad(error, "an iteration beyond the last that can be");
    uint64_t key_count, key_sum;
    sum_keys(&planner->directory, &key_count, &key_sum);
    if (key_count != head.key_count || key_sum != head.key_sum)
        return rt_fail(error, RT_DATA,
                       "state of the planner: the shards hold %" PRIu64
                       " trained rows, the cut has %" PRIu64 " (or other versions)",
                       key_count, head.key_count);
    if (!planner->stale && latest_version(&planner->directory) > head.iteration)
        return rt_fail(
            error, RT_CONFIG,
            "the checkpoint was written with consistency.staleness above 0, whose versions "
            "of rows run ahead of the iterations: keep it above 0");
    if (head.passed > head.iteration * DP_PASSED_WHOLE)
        return bad(error, "its head cannot be"); // more samples than so many batches have
    *restored = (dp_restored){.iteration = head.iteration, .input_count = head.input_count};
    planner->iteration = planner->preview.last = head.iteration;
    planner->inputs.taken = head.input_count;
    planner->passed = head.passed ? head.passed : head.iteration * DP_PASSED_WHOLE;
    rt_status status = RT_OK;
    if (same_config)
        status = load_config(planner, &head, &values, error);
    if (!status)
        status = load_rest(planner, &head, same_config, reader, restored, error);
    if (status)
        rt_bytes_fini(&restored->chooser_state);
    else
        dp_planner_recompute(planner);
    return status;
}

rt_status dp_planner_refill(dp_planner *planner, uint32_t pull_count_max, uint32_t *slot_p,
                            const dp_plan **plan_p)
{
    dp_plan *plan = &planner->work.plan;
    const uint32_t first = *slot_p;
    bool more = false;
    if (planner->stale)
        return RT_END; // copies are spent: they are pulled when they are read
    dp_plan_clear(plan);
    for (uint32_t w = 0; w < planner->config.worker_count; w++) {
        const dp_cache *cache = &planner->own.caches[w];
        uint32_t end = (uint32_t)rt_min_u64((uint64_t)first + pull_count_max, cache->slot_count);
        more |= first < cache->slot_count;
        for (uint32_t slot = first; slot < end; slot++) {
            uint32_t index = cache->slots[slot].record;
            if (index >= planner->directory.record_top)
                continue;
            const dp_record *record = &planner->directory.records[index];
            if (!(record->copies.holders >> w & 1) ||
                dp_cache_slot(planner->own.caches, w, &record->copies) != slot)
                continue;
            dp_op *op = dp_ops_add(&plan->slices[w].fill, DP_OP_PULL);
            if (!op)
                return RT_NO_MEMORY;
            op->key = record->key;
            op->slot = slot;
            op->version = record->version;
            op->flags = DP_OP_STATE;
            dp_homes_name(planner, record->home, op);
        }
    }
    *slot_p = first + pull_count_max;
    *plan_p = plan;
    if (!more)
        return RT_END;
    return RT_OK;
}
