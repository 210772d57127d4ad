#include "edge_worker/predict/ew_finished.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "runtime/files/rt_manifest.h"
#include "runtime/rt_json_read.h"
#include "runtime/stream/rt_parser.h"

static uint64_t next_generation(void)
{
    static atomic_uint_fast64_t last;
    return atomic_fetch_add(&last, 1) + 1;
}

static rt_status open_scale(const ew_source *source, uint32_t dense_count, rt_scale **scale_p,
                            rt_error *error)
{
    rt_tensors *tensors;
    *scale_p = NULL;
    rt_status status = ew_source_scale(source, dense_count, &tensors, error);
    if (status || !tensors)
        return status;
    status = rt_scale_open(tensors, dense_count, scale_p, error);
    if (status)
        rt_fail_in(error, "%s/scale.bin", source->folder);
    rt_tensors_close(tensors);
    return status;
}

// Dense part and scale take the place of those before.
static rt_status open_dense(ew_finished *weights, const ew_source *source, rt_error *error)
{
    char path[RT_PATH_MAX + 64];
    rt_tensors *dense;
    rt_scale *scale;
    snprintf(path, sizeof path, "%s/dense.bin", source->folder);
    rt_status status = rt_tensors_open(path, &dense, error);
    if (status)
        return status;
    status = open_scale(source, weights->schema.dense_count, &scale, error);
    if (status) {
        rt_tensors_close(dense);
        return status;
    }
    if (weights->dense)
        rt_tensors_close(weights->dense);
    rt_scale_destroy(weights->scale);
    weights->dense = dense;
    memcpy(weights->dense_path, path, sizeof path);
    weights->scale = scale;
    weights->generation = next_generation();
    return RT_OK;
}

// What every answer says of the model, whoever gives it.
static void read_origin(ew_finished *weights, const ew_source *source)
{
    char path[RT_PATH_MAX + 64];
    struct stat info = {0};
    cJSON *root = NULL;
    snprintf(path, sizeof path, "%s/" RT_MANIFEST_NAME, source->folder);
    (void)stat(path, &info);
    if (rt_manifest_read(source->folder, &root, NULL))
        root = NULL;
    if (!rt_manifest_u64(root, "iteration", UINT64_C(1) << 53, &weights->iteration))
        weights->iteration = 0;
    if (!rt_manifest_u64(root, "samples", UINT64_C(1) << 53, &weights->samples))
        weights->samples = 0;
    weights->trained_s = rt_json_number(root, "trained_s");
    if (isnan(weights->trained_s))
        weights->trained_s = (double)info.st_mtim.tv_sec;
    cJSON_Delete(root);
}

// The bound is that of one shard, for rows with their optimizer's state: all of them fit.
static uint64_t of_all_shards(const rt_config *config, uint64_t bytes)
{
    const uint64_t shards = config->ps_shard_count;
    if (bytes > UINT64_MAX / shards)
        return UINT64_MAX;
    return bytes * shards;
}

static rt_status create_rows(ew_finished *weights, rt_error *error)
{
    const rt_config *config = weights->config;
    const bool is_on_disk = config->ps_storage == RT_STORAGE_DISK;
    if (is_on_disk) {
        const char *folder = *config->ps_folder ? config->ps_folder : "/var/tmp";
        const rt_status status = ps_store_create(
            folder, of_all_shards(config, config->ps_disk_bytes_max), &weights->store, error);
        if (status)
            return status;
    }
    const ps_table_config bounds = {.row_floats = config->model.embedding_dim,
                                    .memory_bytes_max =
                                        of_all_shards(config, config->ps_memory_bytes_max),
                                    .is_on_disk = is_on_disk,
                                    .store = weights->store};
    if (ps_table_create(&bounds, &weights->rows))
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    return RT_OK;
}

static rt_status read_all(ew_finished *weights, const ew_source *source, rt_error *error)
{
    const rt_config *config = source->config;
    rt_status status =
        rt_parser_read_schema(&config->stream, config->seed, &weights->schema, error);
    if (status)
        return status;
    status = ew_source_check(source, error);
    if (status)
        return status;
    status = open_dense(weights, source, error);
    if (status || source->without_rows)
        return status;
    status = create_rows(weights, error);
    if (status)
        return status;
    return ew_source_rows(source, EW_ALL_SHARDS, config->model.embedding_dim, weights->rows, NULL,
                          error);
}

rt_status ew_finished_open(const ew_source *source, ew_finished *weights, rt_error *error)
{
    *weights = (ew_finished){.config = source->config};
    const rt_status status = read_all(weights, source, error);
    if (status) {
        ew_finished_close(weights);
        return status;
    }
    read_origin(weights, source);
    return RT_OK;
}

void ew_finished_close(ew_finished *weights)
{
    ps_table_destroy(weights->rows);
    ps_store_destroy(weights->store);
    if (weights->dense)
        rt_tensors_close(weights->dense);
    rt_scale_destroy(weights->scale);
    *weights = (ew_finished){0};
}

rt_status ew_finished_update(ew_finished *weights, const ew_source *source, rt_error *error)
{
    rt_status status = ew_source_check(source, error);
    if (status)
        return status;
    status = open_dense(weights, source, error);
    if (status)
        return status;
    status = ew_source_changes(source, weights->config->model.embedding_dim,
                               (uint32_t)weights->iteration, weights->rows, error);
    if (status)
        return status;
    read_origin(weights, source);
    return RT_OK;
}

#define ROWS_AHEAD 4096u // that are on their way from the disk

static void announce(const ps_table *rows, uint64_t row)
{
    if (ps_table_is_on_disk(rows) && row < ps_table_count(rows))
        ps_table_will_need(rows, ps_table_find(rows, ps_table_key(rows, row)));
}

// In their order, so that rows on disk are read and written from front to back.
static rt_status copy_rows(const ps_table *from, ps_table *to, uint32_t row_floats, rt_error *error)
{
    const uint64_t count = ps_table_count(from);
    for (uint64_t row = 0; row < count; row++) {
        const rt_status status = ps_table_reserve(to, 1, error);
        if (status)
            return status;
        announce(from, row + ROWS_AHEAD);
        const ps_entry *entry = ps_table_find(from, ps_table_key(from, row));
        ps_entry *copy = ps_table_insert(to, entry->key);
        copy->version = entry->version;
        memcpy(ps_table_row(to, copy), ps_table_row(from, entry), row_floats * sizeof(float));
    }
    return RT_OK;
}

static rt_status copy_all(const ew_finished *from, const ew_source *source, ew_finished *weights,
                          rt_error *error)
{
    const rt_config *config = source->config;
    rt_status status =
        rt_parser_read_schema(&config->stream, config->seed, &weights->schema, error);
    if (status)
        return status;
    status = create_rows(weights, error);
    if (status)
        return status;
    status = copy_rows(from->rows, weights->rows, config->model.embedding_dim, error);
    if (status)
        return status;
    return ew_finished_update(weights, source, error);
}

rt_status ew_finished_copy(const ew_finished *from, const ew_source *source, ew_finished *weights,
                           rt_error *error)
{
    *weights = (ew_finished){.config = source->config, .iteration = from->iteration};
    if (source->schema != rt_config_schema(from->config))
        return rt_fail(error, RT_CONFIG,
                       "%s: of another model or stream format than the one before", source->folder);
    const rt_status status = copy_all(from, source, weights, error);
    if (status)
        ew_finished_close(weights);
    return status;
}
