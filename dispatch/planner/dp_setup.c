#include "dispatch/planner/dp_setup.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "dispatch/planner/dp_hot.h"
#include "runtime/numbers/rt_coding.h"
#include "runtime/numbers/rt_optimizer.h"
#include "runtime/numbers/rt_stripes.h"
#include "runtime/rt_thread.h"

#define THREADS_MAX 4u                  // of a planner, unless more are asked for
#define DEFAULT_CACHE_BYTES (64u << 20) // of a worker, where the input does not tell

static bool has_size(const rt_config *config)
{
    return config->cache.rows > 0 || config->cache.distinct_keys > 0;
}

bool dp_setup_needs_keys(const rt_config *config)
{
    return !has_size(config) && rt_stream_is_countable(&config->stream);
}

rt_status dp_setup_count_keys(const rt_config *config, uint64_t *keys_p, rt_error *error)
{
    *keys_p = 0;
    if (!dp_setup_needs_keys(config)) {
        if (!has_size(config))
            rt_info("the keys of this input cannot be counted: each worker's cache takes %u MiB "
                    "(cache.rows says how many rows it has instead)",
                    DEFAULT_CACHE_BYTES >> 20);
        return RT_OK;
    }
    rt_info("counting the distinct keys of the input for cache.ratio "
            "(set cache.rows or cache.distinct_keys to skip this)");
    rt_status status = rt_stream_count_keys(&config->stream, config->seed, keys_p, error);
    if (!status && *keys_p == 0)
        return rt_fail(error, RT_DATA, "stream.files: no sample is in the input (%s%s)",
                       config->stream.files[0], config->stream.file_count > 1 ? ", ..." : "");
    return status;
}

_Static_assert(RT_CACHE_ROWS_MAX == DP_SLOTS_MAX - 1, "the error names the key");

// What is free has an end, because every buffer of a slice has room for it.
#define FREE_SHARES 8u

uint32_t dp_setup_micro_batch_max(const rt_config *config)
{
    const rt_dispatch_config *dispatch = &config->dispatch;
    if (!dp_policy_can(dispatch->policy, DP_POLICY_UNEQUAL))
        return 0;
    if (dispatch->micro_batch_max || dispatch->micro_batches == RT_MICRO_BATCH_EQUAL)
        return dispatch->micro_batch_max;
    return (uint32_t)rt_min_u64(config->worker_count, FREE_SHARES) * rt_config_share(config);
}

rt_status dp_setup_share_rows(const rt_config *config, const rt_schema *schema, uint64_t *rows_p,
                              rt_error *error)
{
    const uint32_t share = rt_config_share(config), keys = schema->keys_per_sample_max;
    *rows_p = (uint64_t)share * keys;
    if (*rows_p <= RT_CACHE_ROWS_MAX)
        return RT_OK;
    return rt_fail(error, RT_CONFIG,
                   "%s: a worker's share of a batch, %" PRIu32 " samples of up to %" PRIu32
                   " keys, may need %" PRIu64 " rows, and a cache has at most %u: take smaller "
                   "batches%s",
                   config->samples_per_worker ? "batch.samples_per_worker" : "batch.samples", share,
                   keys, *rows_p, RT_CACHE_ROWS_MAX,
                   config->samples_per_worker ? "" : ", or more workers");
}

// As many rows as fit DEFAULT_CACHE_BYTES, and not fewer than two batches may need.
static uint64_t default_rows(const rt_config *config, const rt_schema *schema)
{
    const rt_dispatch_config *dispatch = &config->dispatch;
    const uint32_t dim = config->model.embedding_dim; // the largest
    const uint64_t floats = dim + rt_optimizer_state_floats(&config->optimizer_rows, dim);
    uint64_t samples = rt_config_share(config);
    if (dp_policy_can(dispatch->policy, DP_POLICY_UNEQUAL))
        samples = rt_max_u64(samples, dispatch->micro_batch_max);
    const uint64_t rows = DEFAULT_CACHE_BYTES / (floats * sizeof(float));
    return rt_min_u64(rt_max_u64(rows, 2 * samples * schema->keys_per_sample_max),
                      RT_CACHE_ROWS_MAX);
}

static rt_status cache_rows(const rt_config *config, const rt_schema *schema,
                            uint64_t distinct_keys, uint32_t *rows_p, rt_error *error)
{
    uint64_t keys = config->cache.distinct_keys ? config->cache.distinct_keys : distinct_keys;
    double rows = (double)config->cache.rows;
    uint64_t least;
    rt_status status = dp_setup_share_rows(config, schema, &least, error);
    if (status)
        return status;
    if (!config->cache.rows)
        rows = ceil(config->cache.ratio * (double)keys);
    if (rows < 1)
        rows = (double)default_rows(config, schema);
    // A share of a small input: at least what any training needs.
    if (!config->cache.rows && rows < (double)least) {
        rt_info("cache.ratio of %" PRIu64 " keys is %.0f rows: caches have %" PRIu64
                " instead, which a worker's batch may need",
                keys, rows, least);
        rows = (double)least;
    }
    if (rows >= DP_SLOTS_MAX)
        return rt_fail(error, RT_CONFIG, "a cache of %.0f rows per worker, at most %u are possible",
                       rows, DP_SLOTS_MAX - 1);
    *rows_p = (uint32_t)rows;
    return RT_OK;
}

// What all shards hold, with a tenth left for keys that spread unevenly. A row takes its floats, in
// memory or on disk, and in memory its key and at most 16 / (5/16) bytes of an index that has just
// doubled.
uint64_t dp_setup_rows_that_fit(const rt_config *config)
{
    const uint32_t dim = config->model.embedding_dim; // the largest
    const double floats = dim + rt_optimizer_state_floats(&config->optimizer_rows, dim);
    const double row = floats * sizeof(float) * 9 / 8;
    const double found_by = sizeof(uint64_t) + 16 * 16.0 / 5;
    const double memory = (double)config->ps_memory_bytes_max;
    double rows = memory / (found_by + row);
    if (config->ps_storage == RT_STORAGE_DISK)
        rows = fmin(memory / found_by, (double)config->ps_disk_bytes_max / row);
    return (uint64_t)(0.9 * rows) * config->ps_shard_count;
}

static dp_rows rows_of(const rt_config *config)
{
    dp_rows rows = {.admit = config->rows.admit,
                    .admit_bytes = config->rows.admit_bytes,
                    .admit_share = config->rows.admit_share};
    rows.expire_iterations = config->rows.expire_iterations;
    rows.max = config->rows.max;
    if (rows.max == 0)
        rows.max = rt_max_u64(1, dp_setup_rows_that_fit(config));
    return rows;
}

// The fewest workers whose caches hold the largest micro-batch of an equal share.
static uint32_t fewest_workers(const dp_planner_config *planner)
{
    uint32_t slots = planner->slot_count[0];
    for (uint32_t j = 1; j < planner->worker_count; j++)
        slots = (uint32_t)rt_min_u64(slots, planner->slot_count[j]);
    if (planner->hot)
        slots -= (uint32_t)rt_min_u64(slots, planner->hot->count);
    const uint32_t samples = slots / planner->keys_per_sample_max;
    if (samples == 0)
        return planner->worker_count;
    const uint32_t fewest = (planner->sample_count_max + samples - 1) / samples;
    return (uint32_t)rt_min_u64(fewest, planner->worker_count);
}

static void set_boxes(const rt_config *config, dp_planner_config *planner)
{
    dp_boxes *boxes = &planner->boxes;
    boxes->count = config->box_count;
    if (!boxes->count)
        return;
    boxes->worker_count = config->worker_count;
    planner->homes = config->ps_homes;
    planner->shard_rows_max =
        rt_max_u64(1, dp_setup_rows_that_fit(config) / config->ps_shard_count);
    for (uint32_t j = 0; j < config->worker_count; j++)
        boxes->of_worker[j] = (uint8_t)rt_config_box_of_worker(config, j);
    for (uint32_t s = 0; s < config->ps_shard_count; s++)
        boxes->of_shard[s] = (uint8_t)rt_config_box_of_shard(config, s);
    for (uint32_t b = 0; b < boxes->count; b++)
        boxes->given[b] = (dp_link){config->boxes[b].link.gbps_up * 1e9 / 8,
                                    config->boxes[b].link.gbps_down * 1e9 / 8};
}

rt_status dp_setup(const rt_config *config, const rt_schema *schema, uint64_t distinct_keys,
                   dp_planner_config *planner, rt_error *error)
{
    uint32_t rows = 0;
    rt_status status = cache_rows(config, schema, distinct_keys, &rows, error);
    if (status)
        return status;
    memset(planner, 0, sizeof *planner);
    planner->worker_count = config->worker_count;
    planner->sample_count_max = rt_config_batch(config, config->worker_count);
    planner->keys_per_sample_max = schema->keys_per_sample_max;
    if (dp_policy_can(config->dispatch.policy, DP_POLICY_UNEQUAL))
        planner->micro_batch_min = config->dispatch.micro_batch_min;
    planner->micro_batch_max = dp_setup_micro_batch_max(config);
    planner->eviction = config->cache.eviction;
    planner->lookahead = rt_config_lookahead(config);
    planner->dispatch = config->dispatch;
    if (config->dispatch.budget_ms > 0 && config->dispatch.tables == 0)
        planner->dispatch.tables = RT_FIELDS_MAX; // all, to begin with
    planner->consistency = config->consistency;
    planner->rates.ps_bytes_per_s = config->links.ps_gbps * 1e9 / 8;
    planner->rates.shards.count = config->ps_shard_count;
    planner->rates.shards.dense_count = rt_stripes_shards(config, config->ps_shard_count);
    planner->dense_wire = config->dense_wire;
    planner->seed = config->seed;
    planner->keys_expected = config->cache.distinct_keys;
    planner->rows = rows_of(config);
    planner->layout.field_count = schema->field_count;
    planner->layout.wire = config->row_wire;
    const rt_model_config *model = &config->model;
    if (model->embedding_dim_count && model->embedding_dim_count != schema->field_count)
        return rt_fail(error, RT_CONFIG,
                       "model.embedding_dim: a list of %u, but the input has %u fields",
                       model->embedding_dim_count, schema->field_count);
    for (uint32_t f = 0; f < schema->field_count; f++) {
        uint32_t dim = model->embedding_dim;
        if (model->embedding_dim_count)
            dim = model->embedding_dims[f];
        if (dim != planner->layout.values[rt_tables_of(&schema->tables, f)] &&
            rt_tables_of(&schema->tables, f) != f)
            return rt_fail(error, RT_CONFIG,
                           "model.embedding_dim: %" PRIu32 " floats for field %" PRIu32
                           ", which shares rows of %" PRIu32 " (stream.tables)",
                           dim, f, planner->layout.values[rt_tables_of(&schema->tables, f)]);
        planner->layout.values[f] = dim;
        planner->layout.state[f] = rt_optimizer_state_floats(&config->optimizer_rows, dim);
    }
    for (uint32_t j = 0; j < config->worker_count; j++) {
        planner->slot_count[j] = rows;
        planner->rates.compute_s_per_sample[j] = config->compute_us_per_sample * 1e-6;
        planner->rates.links[j] = (dp_link){config->links.workers[j].gbps_up * 1e9 / 8,
                                            config->links.workers[j].gbps_down * 1e9 / 8};
    }
    set_boxes(config, planner);
    if (config->dispatch.participants == RT_PARTICIPANTS_LIST)
        planner->participants = config->dispatch.participant_mask;
    if (config->dispatch.participants != RT_PARTICIPANTS_ALL)
        planner->participants_min = fewest_workers(planner);
    if (config->consistency.staleness > 0)
        planner->overshoot = dp_planner_micro_batch_max(planner) * planner->keys_per_sample_max;
    for (uint32_t j = 0; j < config->worker_count; j++)
        planner->slot_count[j] += planner->overshoot;
    return RT_OK;
}

rt_status dp_setup_hot(const rt_config *config, const rt_schema *schema, dp_planner_config *planner,
                       rt_error *error)
{
    dp_hot *hot = NULL;
    if (!dp_policy_can(config->dispatch.policy, DP_POLICY_HOT))
        return RT_OK;
    const rt_status status = dp_hot_read(config, schema, &hot, error);
    if (status)
        return status;
    planner->hot = hot;
    if (planner->participants_min)
        planner->participants_min = fewest_workers(planner);
    return RT_OK;
}

void dp_setup_fini(dp_planner_config *planner)
{
    dp_hot_destroy((dp_hot *)planner->hot); // which dp_setup_hot made
    planner->hot = NULL;
}

// Weights and state travel as they are, gradients may be shorter.
void dp_setup_dense(const rt_config *config, uint64_t dense_bytes, dp_planner_config *planner)
{
    const rt_optimizer_size state = rt_optimizer_find(config->optimizer_dense.kind)->about->state;
    const uint64_t floats = rt_coding_dense_floats(config->dense_wire, dense_bytes);
    planner->dense_bytes = dense_bytes;
    planner->dense_whole_bytes = 0;
    if (config->dense_wire == RT_CODING_INT8)
        planner->dense_whole_bytes = rt_coding_dense_bytes(RT_CODING_FP32, floats);
    planner->dense_return_bytes = floats * (1 + state.per_value) * sizeof(float);
}

rt_status dp_setup_threads(const rt_config *config, rt_pool **pool_p, rt_error *error)
{
    const uint32_t half = (uint32_t)rt_max_u64(rt_thread_cores() / 2, 1);
    uint32_t count = config->planner_threads;
    if (count == 0)
        count = (uint32_t)rt_min_u64(half, THREADS_MAX);
    *pool_p = NULL;
    if (count <= 1)
        return RT_OK;
    return rt_pool_create(count, pool_p, error);
}
