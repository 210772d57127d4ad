#include "dispatch/coordinator/dp_saved.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "runtime/files/rt_checkpoint.h"
#include "runtime/files/rt_manifest.h"
#include "runtime/rt_hash.h"
#include "dispatch/planner/dp_setup.h"
#include "runtime/stream/rt_ids.h"
#include "runtime/stream/rt_position.h"
#include "runtime/stream/rt_stream.h"

#define CHAIN_MAX 1000u // of checkpoint.full_every

typedef struct {
    uint32_t iteration, base, epoch, shard_count;
    uint64_t samples, schema, config_hash;
    rt_file_sum planner, dense;
    rt_wire_load load;
    dp_ages_kept ages;
    uint64_t lineages[RT_SHARDS_MAX]; // where it was merged
} manifest;

// ---- files -----------------------------------------------------------------------------------

static rt_status read_all(FILE *file, const char *path, uint64_t size_max, rt_bytes *bytes,
                          rt_error *error)
{
    for (size_t got = 1; got > 0;) {
        uint8_t block[65536];
        got = fread(block, 1, sizeof block, file);
        rt_bytes_put(bytes, block, got);
        if (bytes->failed)
            return rt_fail(error, RT_NO_MEMORY, "out of memory: %s", path);
        if (bytes->size > size_max)
            return rt_fail(error, RT_DATA, "%s: longer than %" PRIu64 " bytes", path, size_max);
    }
    if (ferror(file))
        return rt_fail(error, RT_IO, "cannot read %s: %s", path, strerror(errno));
    return RT_OK;
}

static rt_status read_file(const char *path, uint64_t size_max, rt_bytes *bytes, rt_error *error)
{
    FILE *file = fopen(path, "rbe");
    if (!file && errno == ENOENT)
        return rt_fail(error, RT_DATA, "cannot open %s: %s", path, strerror(errno));
    if (!file)
        return rt_fail(error, rt_status_of_errno(errno), "cannot open %s: %s", path,
                       strerror(errno));
    const rt_status status = read_all(file, path, size_max, bytes, error);
    fclose(file);
    return status;
}

// ---- manifest --------------------------------------------------------------------------------

// Parts of format 1 have no xxh3; what is checked is their hash.
static bool get_part(const cJSON *root, const char *name, rt_file_sum *sum)
{
    rt_manifest_part part;
    if (!rt_manifest_part_of(root, name, &part) || !part.has_hash)
        return false;
    *sum = part.sum;
    return true;
}

static bool take_parts(const cJSON *root, manifest *m)
{
    const cJSON *lineages = cJSON_GetObjectItemCaseSensitive(root, "lineages");
    m->load.shard_count = m->shard_count;
    for (uint32_t s = 0; s < m->shard_count; s++) {
        char name[64];
        rt_file_sum sum;
        snprintf(name, sizeof name, "rows-%03" PRIu32 "-of-%03" PRIu32 ".bin", s, m->shard_count);
        if (!get_part(root, name, &sum))
            return false;
        m->load.files[s].bytes = sum.bytes;
        m->load.files[s].hash = sum.hash;
        if (lineages && !rt_manifest_hash(lineages, name, &m->lineages[s]))
            return false;
    }
    return get_part(root, "planner.bin", &m->planner) && get_part(root, "dense.bin", &m->dense) &&
           m->dense.bytes > 0;
}

// Homes of rows were hashed where nothing is said.
static bool take_homes(const cJSON *root, manifest *m)
{
    bool planned = false;
    const cJSON *homes = cJSON_GetObjectItemCaseSensitive(root, "homes");
    if (homes && !cJSON_IsString(homes))
        return false;
    if (homes)
        planned = strcmp(homes->valuestring, "planned") == 0;
    m->load.flags = 0;
    if (planned)
        m->load.flags = RT_WIRE_LOAD_HOMES;
    return !homes || planned || strcmp(homes->valuestring, "hashed") == 0;
}

// Pairs of numbers; there are none where rows do not end by time, and of versions before.
static bool take_ages(const cJSON *root, dp_ages_kept *ages)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(root, "ages"), *item;
    uint32_t count = 0;
    cJSON_ArrayForEach(item, list)
    {
        const double value = cJSON_IsNumber(item) ? item->valuedouble : -1;
        const double most = count % 2 ? 1e15 : UINT32_MAX - 1.0;
        if (count == 2 * DP_AGES_NOTES || !(value >= 0 && value <= most))
            return false;
        if (count % 2)
            ages->notes[count / 2].age_ms = (uint64_t)value;
        else
            ages->notes[count / 2].iteration = (uint32_t)value;
        count++;
    }
    ages->count = count / 2;
    return count % 2 == 0;
}

static bool take_manifest(const cJSON *root, manifest *m)
{
    return take_homes(root, m) && take_ages(root, &m->ages) &&
           rt_manifest_u32(root, "iteration", UINT32_MAX, &m->iteration) &&
           rt_manifest_u32(root, "base", UINT32_MAX, &m->base) &&
           rt_manifest_u32(root, "epoch", UINT32_MAX, &m->epoch) &&
           rt_manifest_u32(root, "shards", RT_SHARDS_MAX, &m->shard_count) && m->shard_count > 0 &&
           rt_manifest_u64(root, "samples", UINT64_C(1) << 53, &m->samples) &&
           rt_manifest_hash(root, "schema", &m->schema) &&
           rt_manifest_hash(root, "config", &m->config_hash) && take_parts(root, m);
}

// Of whatever model.
static rt_status read_any_manifest(const char *directory, uint32_t iteration, manifest *m,
                                   rt_error *error)
{
    char folder[RT_FOLDER_MAX] = "";
    cJSON *root = NULL;
    *m = (manifest){0};
    rt_status status =
        rt_checkpoint_path(directory, iteration, folder, RT_WIRE_LOAD_FOLDER_MAX, error);
    if (!status)
        status = rt_manifest_read(folder, &root, error);
    if (!status && (!take_manifest(root, m) || m->iteration != iteration || m->base >= iteration))
        status =
            rt_fail(error, RT_DATA, "%s: no manifest of iteration %" PRIu32, folder, iteration);
    cJSON_Delete(root);
    (void)rt_control_put_text(m->load.folder, sizeof m->load.folder, folder); // as long as folder
    return status;
}

static rt_status read_manifest(const char *directory, uint32_t iteration, uint64_t schema,
                               manifest *m, rt_error *error)
{
    rt_status status = read_any_manifest(directory, iteration, m, error);
    if (!status && m->schema != schema)
        status = rt_fail(error, RT_CONFIG,
                         "%s: of another model, optimizer or stream format (schema %016" PRIx64
                         ", this run has %016" PRIx64 ")",
                         m->load.folder, m->schema, schema);
    return status;
}

// ---- all of it -------------------------------------------------------------------------------

static rt_status read_own(const manifest *m, dp_saved *saved, rt_error *error)
{
    char path[RT_FOLDER_MAX + 32];
    rt_file_sum sum;
    snprintf(path, sizeof path, "%s/planner.bin", m->load.folder);
    rt_status status = rt_pack_read(path, DP_CHECKPOINT_MAGIC, &saved->state, &sum, error);
    if (!status && (sum.bytes != m->planner.bytes || sum.hash != m->planner.hash))
        status = rt_fail(error, RT_DATA, "%s is not the file that the manifest names", path);
    if (status)
        return status;
    snprintf(path, sizeof path, "%s/dense.bin", m->load.folder);
    status = read_file(path, m->dense.bytes, &saved->dense, error);
    if (!status && (saved->dense.size != m->dense.bytes ||
                    rt_hash_bytes(saved->dense.data, saved->dense.size) != m->dense.hash))
        status = rt_fail(error, RT_DATA, "%s is damaged", path);
    return status;
}

static dp_checkpoint_past past_of(const manifest *m)
{
    dp_checkpoint_past past = {.iteration = m->iteration, .base = m->base};
    for (uint32_t s = 0; s < m->shard_count; s++)
        past.row_bytes += m->load.files[s].bytes;
    return past;
}

// The chain from the checkpoint down to one with all rows, then turned round.
static rt_status read_chain(const char *directory, const manifest *newest, uint64_t schema,
                            dp_saved *saved, rt_error *error)
{
    uint32_t past_capacity = 0, load_capacity = 0;
    manifest m = *newest;
    for (;;) {
        if (saved->count == CHAIN_MAX)
            return rt_fail(error, RT_DATA, "more than %u checkpoints build on each other",
                           CHAIN_MAX);
        if (rt_grow(&saved->past, &past_capacity, saved->count + 1u, sizeof *saved->past) ||
            rt_grow(&saved->loads, &load_capacity, saved->count + 1u, sizeof *saved->loads))
            return rt_fail(error, RT_NO_MEMORY, "out of memory");
        saved->past[saved->count] = past_of(&m);
        saved->loads[saved->count++] = m.load;
        if (m.base == 0) {
            memcpy(saved->lineages, m.lineages, sizeof saved->lineages);
            break;
        }
        const uint32_t base = m.base;
        rt_status status = read_manifest(directory, base, schema, &m, error);
        if (status == RT_NOT_FOUND) // not of the one that is to be read
            return rt_fail(
                error, RT_DATA,
                "it builds on the one of iteration %" PRIu32 ", which is not complete here", base);
        if (status)
            return status;
    }
    for (uint32_t i = 0, j = saved->count - 1; i < j; i++, j--) {
        const dp_checkpoint_past past = saved->past[i];
        const rt_wire_load load = saved->loads[i];
        saved->past[i] = saved->past[j];
        saved->loads[i] = saved->loads[j];
        saved->past[j] = past;
        saved->loads[j] = load;
    }
    return RT_OK;
}

rt_status dp_saved_read(const char *directory, uint32_t iteration, uint64_t schema, dp_saved *saved,
                        rt_error *error)
{
    manifest m;
    *saved = (dp_saved){0};
    rt_status status = read_manifest(directory, iteration, schema, &m, error);
    if (status)
        return status; // without a manifest: RT_NOT_FOUND
    saved->iteration = iteration;
    saved->epoch = m.epoch;
    saved->samples = m.samples;
    saved->config_hash = m.config_hash;
    saved->ages = m.ages;
    status = read_own(&m, saved, error);
    if (!status)
        status = read_chain(directory, &m, schema, saved, error);
    if (status)
        dp_saved_fini(saved);
    return status;
}

void dp_saved_fini(dp_saved *saved)
{
    rt_bytes_fini(&saved->state);
    rt_bytes_fini(&saved->dense);
    rt_free(saved->past);
    rt_free(saved->loads);
    *saved = (dp_saved){0};
}

// ---- those before ----------------------------------------------------------------------------

rt_status dp_saved_past(const char *directory, const dp_saved *saved, dp_checkpoint_past **past_p,
                        uint32_t *count_p, rt_error *error)
{
    uint32_t *iterations, count, used = 0;
    manifest m;
    rt_status status = rt_checkpoint_list(directory, &iterations, &count, error);
    if (status)
        return status;
    dp_checkpoint_past *past = rt_alloc((size_t)count + saved->count, sizeof *past);
    if (!past) {
        rt_free(iterations);
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    }
    for (uint32_t i = 0; i < count && iterations[i] < saved->past[0].iteration; i++) {
        if (read_any_manifest(directory, iterations[i], &m, NULL))
            continue;
        if (m.base == 0 || (used && m.base == past[used - 1].iteration))
            past[used++] = past_of(&m);
    }
    rt_free(iterations);
    memcpy(past + used, saved->past, saved->count * sizeof *past);
    *past_p = past;
    *count_p = used + saved->count;
    return RT_OK;
}

// ---- the state of the planner, and beside it -------------------------------------------------

#define KEYS_MIN 1024u // that a cache is a share of, where nobody counts the input

rt_status dp_state_open(const rt_bytes *state, rt_bytes *position, rt_reader *planner,
                        rt_reader *rest, rt_error *error)
{
    *rest = rt_bytes_reader(state);
    const uint64_t size = rt_reader_u64(rest);
    const void *bytes = rt_reader_take(rest, size, 1);
    *planner = (rt_reader){.failed = true};
    if (bytes)
        *planner = (rt_reader){bytes, size, false};
    if (rt_position_take(planner, position))
        return rt_position_check(position, error);
    if (position->failed)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    return rt_fail(error, RT_DATA, "the position in the stream is missing");
}

static rt_status take_scale(rt_reader *rest, uint32_t dense_count, rt_scale **scale_p,
                            rt_error *error)
{
    if (rest->left == 0 || rt_ids_are_next(rest) || rt_stream_waiting_is_next(rest) ||
        rt_base_rate_is_next(rest) || rt_repeats_are_next(rest))
        return RT_OK;
    if (rt_scale_create(dense_count, 0, scale_p))
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    const rt_status status = rt_scale_load(*scale_p, rest, error);
    if (status) {
        rt_scale_destroy(*scale_p);
        *scale_p = NULL;
    }
    return status;
}

rt_status dp_state_take_rest(rt_reader *rest, dp_stats *stats, const rt_config *config,
                             uint32_t dense_count, dp_state_rest *out, rt_error *error)
{
    rt_bytes_clear(&out->waiting);
    rt_bytes_clear(&out->ids);
    rt_bytes_clear(&out->repeats);
    rt_status status = dp_stats_load(stats, rest, error);
    if (status)
        return status;
    status = take_scale(rest, dense_count, &out->scale, error);
    if (status)
        return status;
    if (!rt_stream_take_waiting(rest, &out->waiting))
        return rt_fail(error, RT_DATA, "the events that wait (stream.join) are cut off");
    rt_base_rate_init(&out->rate, config, false);
    status = rt_base_rate_load(&out->rate, rest, error);
    if (status)
        return status;
    if (!rt_repeats_take(rest, &out->repeats))
        return rt_fail(error, RT_DATA, "the times that keys came before are cut off");
    rt_bytes_put(&out->ids, rest->next, rest->left);
    return RT_OK;
}

void dp_state_rest_fini(dp_state_rest *rest)
{
    rt_scale_destroy(rest->scale);
    rt_bytes_fini(&rest->waiting);
    rt_bytes_fini(&rest->ids);
    rt_bytes_fini(&rest->repeats);
    *rest = (dp_state_rest){0};
}

// ---- whether a run could go on ---------------------------------------------------------------

rt_status dp_state_check_begin(const rt_config *config, const rt_schema *schema,
                               dp_state_check *check, rt_error *error)
{
    const uint64_t keys = rt_max_u64(config->cache.distinct_keys, KEYS_MIN);
    *check = (dp_state_check){.config = config, .schema = *schema};
    rt_status status = dp_setup(config, schema, keys, &check->planner_config, error);
    if (!status)
        status = dp_setup_hot(config, schema, &check->planner_config, error);
    if (status)
        return status;
    return dp_planner_create(&check->planner_config, &check->planner, error);
}

rt_status dp_state_check_row(dp_state_check *check, uint64_t key, uint32_t version, uint32_t shard,
                             rt_error *error)
{
    const rt_status status = dp_planner_know(check->planner, key, version, shard);
    if (status)
        return rt_fail(error, status, "key %016" PRIx64 ": %s", key, rt_status_text(status));
    return RT_OK;
}

static rt_status check_rest(const dp_state_check *check, rt_reader *rest, rt_error *error)
{
    dp_stats_config config = {.config = check->config, .dense_count = check->schema.dense_count};
    dp_state_rest beside = {0};
    dp_stats *stats;
    dp_account_init(&check->planner_config, &config.costs);
    rt_status status = dp_stats_create(&config, &stats, error);
    if (status)
        return status;
    status =
        dp_state_take_rest(rest, stats, check->config, check->schema.dense_count, &beside, error);
    dp_state_rest_fini(&beside);
    dp_stats_destroy(stats);
    return status;
}

rt_status dp_state_check_end(dp_state_check *check, const rt_bytes *state, uint32_t iteration,
                             rt_error *error)
{
    rt_bytes position = {0};
    rt_reader planner, rest;
    dp_restored restored = {0};
    rt_status status = dp_state_open(state, &position, &planner, &rest, error);
    rt_bytes_fini(&position);
    if (!status)
        status = dp_planner_load(check->planner, &planner, true, &restored, error);
    rt_bytes_fini(&restored.chooser_state);
    if (!status && restored.iteration != iteration)
        status = rt_fail(error, RT_DATA, "state of the planner: of another iteration");
    if (!status)
        status = check_rest(check, &rest, error);
    return status;
}

void dp_state_check_fini(dp_state_check *check)
{
    if (check->planner)
        dp_planner_destroy(check->planner);
    dp_setup_fini(&check->planner_config);
    *check = (dp_state_check){0};
}
