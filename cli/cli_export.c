// `lanyard export`: a model out of a checkpoint, whole and with a manifest.
//
// Rows of a checkpoint and of those that it builds on are put together, one shard's in memory at a
// time; the state of the dense optimizer, which a model does not have, is left out. The model of a
// checkpoint at the end of a run is the run's own, byte for byte.
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "dispatch/coordinator/dp_checkpoint.h"
#include "ps_lite/ps_snapshot.h"
#include "runtime/files/rt_checkpoint.h"
#include "runtime/files/rt_file.h"
#include "runtime/files/rt_folder.h"
#include "runtime/files/rt_manifest.h"
#include "runtime/files/rt_tensors.h"
#include "runtime/rt_hash.h"

typedef struct {
    const ew_source *source;
    const char *draft;
    rt_json *json; // of the manifest, within its parts
} export;

// A file that a sink writes, and what the manifest is to say of it.
typedef struct {
    rt_file_place place;
    rt_sink file;
    rt_hasher *sum;
    uint64_t bytes;
} summed;

static rt_status open_summed(void *context, uint64_t total, rt_error *error)
{
    summed *s = context;
    return s->file.open(s->file.context, total, error);
}

static rt_status write_summed(void *context, const void *bytes, size_t size, rt_error *error)
{
    summed *s = context;
    rt_hasher_add(s->sum, bytes, size);
    s->bytes += size;
    return s->file.write(s->file.context, bytes, size, error);
}

static rt_status commit_summed(void *context, rt_error *error)
{
    summed *s = context;
    return s->file.commit(s->file.context, error);
}

static void abort_summed(void *context)
{
    summed *s = context;
    s->file.abort(s->file.context);
}

// The rows of a model are of no iteration and build on nothing, whatever those of a checkpoint do.
static rt_status write_summing(const export *e, uint32_t shard, const ps_table *table,
                               const ps_model_info *info, rt_hasher *sum, rt_error *error)
{
    char path[RT_PATH_MAX + 160];
    summed s = {.place.path = path, .sum = sum};
    ps_model_info own = *info;
    own.iteration = own.base = own.floor = own.left_count = 0;
    own.packed = false;
    rt_status status =
        ps_model_file_path(e->draft, shard, info->shard_count, path, sizeof path, error);
    if (status)
        return status;
    s.file = rt_file_sink(&s.place);
    const rt_sink sink = {open_summed, write_summed, commit_summed, abort_summed, &s, path};
    status = ps_snapshot_write(table, &own, &sink, NULL, NULL, NULL, error);
    if (status)
        return status;
    const rt_manifest_part part = {
        .sum.bytes = s.bytes, .xxh3 = rt_hasher_sum(sum), .has_xxh3 = true};
    rt_manifest_put_part(e->json, strrchr(path, '/') + 1, &part);
    return RT_OK;
}

static rt_status write_shard(const export *e, uint32_t shard, const ps_table *table,
                             const ps_model_info *info, rt_error *error)
{
    rt_hasher *sum = rt_hasher_create();
    if (!sum)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    const rt_status status = write_summing(e, shard, table, info, sum, error);
    rt_hasher_destroy(sum);
    return status;
}

// A version that a server copied has no optimizer state, and so has a model that is made of it.
static rt_status read_info(const export *e, uint32_t shard, ps_model_info *info, rt_error *error)
{
    char path[RT_PATH_MAX + 160];
    ps_model_reader *reader;
    rt_status status = ps_model_file_path(
        e->source->folder, shard, e->source->config->ps_shard_count, path, sizeof path, error);
    if (!status)
        status = ps_model_reader_open(path, NULL, NULL, info, &reader, error);
    if (status)
        return status;
    ps_model_reader_close(reader);
    return RT_OK;
}

static rt_status export_shard(const export *e, uint32_t shard, rt_error *error)
{
    const rt_config *config = e->source->config;
    ps_store *store = NULL;
    ps_model_info info;
    ps_table *table = NULL;
    rt_status status = read_info(e, shard, &info, error);
    if (!status)
        status = ps_store_open(config, &store, error);
    if (status)
        return status;
    const ps_table_config bounds = {.row_floats = info.dim + info.state_floats,
                                    .memory_bytes_max = config->ps_memory_bytes_max,
                                    .is_on_disk = store != NULL,
                                    .store = store};
    if (ps_table_create(&bounds, &table))
        status = rt_fail(error, RT_NO_MEMORY, "out of memory");
    if (!status)
        status = ew_source_rows(e->source, shard, bounds.row_floats, table, &info, error);
    if (!status)
        status = write_shard(e, shard, table, &info, error);
    ps_table_destroy(table);
    ps_store_destroy(store);
    return status;
}

static rt_status encode_dense(const rt_tensors *dense, rt_bytes *bytes, rt_error *error)
{
    const rt_status status = rt_tensors_encode_values(dense, bytes);
    if (status)
        return rt_fail(error, status, "out of memory for the dense part");
    return RT_OK;
}

static rt_status export_dense(const export *e, rt_error *error)
{
    char path[RT_PATH_MAX + 160];
    rt_tensors *dense;
    rt_bytes bytes = {0};
    snprintf(path, sizeof path, "%s/dense.bin", e->source->folder);
    rt_status status = rt_tensors_open(path, &dense, error);
    if (status)
        return status;
    status = encode_dense(dense, &bytes, error);
    rt_tensors_close(dense);
    snprintf(path, sizeof path, "%s/dense.bin", e->draft);
    if (!status)
        status = rt_file_save(path, bytes.data, bytes.size, error);
    const rt_manifest_part part = {
        .sum.bytes = bytes.size, .xxh3 = rt_hash_bytes(bytes.data, bytes.size), .has_xxh3 = true};
    rt_manifest_put_part(e->json, "dense.bin", &part);
    rt_bytes_fini(&bytes);
    return status;
}

// scale.bin is of both alike; where dense features stay as they are there is none.
static rt_status export_scale(const export *e, rt_error *error)
{
    rt_tensors *scale;
    rt_bytes bytes = {0};
    rt_manifest_part part = {.has_xxh3 = true};
    rt_status status = ew_source_scale(e->source, 0, &scale, error);
    if (status || !scale)
        return status;
    status = encode_dense(scale, &bytes, error);
    rt_tensors_close(scale);
    if (!status)
        status = dp_checkpoint_write_scale(&bytes, e->draft, error);
    part.sum.bytes = bytes.size;
    part.xxh3 = rt_hash_bytes(bytes.data, bytes.size);
    rt_manifest_put_part(e->json, "scale.bin", &part);
    rt_bytes_fini(&bytes);
    return status;
}

// What the manifest of the source says, and this one is to say too.
static void put_origin(const ew_source *source, rt_json *json)
{
    cJSON *root = NULL;
    uint64_t value = 0;
    if (rt_manifest_read(source->folder, &root, NULL))
        root = NULL;
    if (rt_manifest_u64(root, "iteration", UINT64_C(1) << 53, &value))
        rt_json_u64(json, "iteration", value);
    if (rt_manifest_u64(root, "samples", UINT64_C(1) << 53, &value))
        rt_json_u64(json, "samples", value);
    if (rt_manifest_u64(root, "scale_samples", UINT64_C(1) << 53, &value))
        rt_json_u64(json, "scale_samples", value);
    rt_json_u64(json, "shards", source->config->ps_shard_count);
    rt_manifest_put_labels(json, &source->config->stream);
    rt_manifest_put_hash(json, "schema", source->schema);
    if (rt_manifest_hash(root, "config", &value))
        rt_manifest_put_hash(json, "config", value);
    cJSON_Delete(root);
}

static rt_status export_parts(const export *e, rt_error *error)
{
    const rt_config *config = e->source->config;
    rt_manifest_part part = {0};
    rt_status status = dp_checkpoint_write_config(config, e->draft, &part, error);
    if (status)
        return status;
    rt_manifest_put_part(e->json, "config.json", &part);
    status = export_scale(e, error);
    if (status)
        return status;
    status = export_dense(e, error);
    if (status)
        return status;
    for (uint32_t s = 0; s < config->ps_shard_count; s++) {
        status = export_shard(e, s, error);
        if (status)
            return status;
    }
    return RT_OK;
}

static rt_status export_to(const ew_source *source, const char *draft, rt_error *error)
{
    rt_json json;
    const export e = {.source = source, .draft = draft, .json = &json};
    rt_manifest_begin(&json, "model", RT_MANIFEST_FORMAT);
    put_origin(source, &json);
    rt_json_begin_array(&json, "parts");
    const rt_status status = export_parts(&e, error);
    rt_json_end_array(&json);
    if (!status)
        return rt_manifest_write(&json, draft, error);
    rt_json_fini(&json);
    return status;
}

// The newest of `count` checkpoints in a folder that has a manifest.
static bool find_whole(const char *folder, const uint32_t *iterations, uint32_t count, char *path,
                       size_t size)
{
    for (uint32_t k = count; k > 0; k--) {
        cJSON *root;
        if (rt_checkpoint_path(folder, iterations[k - 1], path, size, NULL))
            continue;
        const rt_status status = rt_manifest_read(path, &root, NULL);
        if (status == RT_UNSUPPORTED) // of a later build: whoever reads it says so
            return true;
        if (status)
            continue;
        cJSON_Delete(root);
        return true;
    }
    return false;
}

// The newest checkpoint in a folder that was completed, where the folder is that of a run or of its
// checkpoints; else the folder itself. A run that goes on meanwhile may remove it: the error says
// so.
static rt_status find_source(const char *given, char *path, size_t size, rt_error *error)
{
    static const char *const inside[] = {"/checkpoints", ""};
    char folder[RT_PATH_MAX + 16];
    snprintf(path, size, "%s", given);
    for (size_t i = 0; i < RT_COUNT_OF(inside); i++) {
        uint32_t *iterations, count;
        snprintf(folder, sizeof folder, "%s%s", given, inside[i]);
        rt_status status = rt_checkpoint_list(folder, &iterations, &count, error);
        if (status && i == 0)
            continue;
        if (status)
            return status;
        const bool found = find_whole(folder, iterations, count, path, size);
        rt_free(iterations);
        if (found)
            return RT_OK;
        if (count > 0)
            return rt_fail(error, RT_NOT_FOUND, "%s: no checkpoint was completed yet", folder);
    }
    return RT_OK;
}

static rt_status export_as(const ew_source *source, const char *out, rt_error *error)
{
    rt_folder folder = {.lock_fd = -1};
    rt_status status = ew_source_check(source, error);
    if (status)
        return status;
    status = rt_folder_begin(&folder, out, error);
    if (!status)
        status = export_to(source, folder.draft, error);
    if (!status)
        return rt_folder_commit(&folder, error);
    rt_folder_abort(&folder);
    return status;
}

rt_status cli_extract(const char *checkpoint, const char *folder, rt_error *error)
{
    rt_config config;
    ew_source source;
    rt_status status = ew_source_open(checkpoint, NULL, 0, true, &config, &source, error);
    if (status)
        return status;
    status = export_as(&source, folder, error);
    rt_config_fini(&config);
    return status;
}

int cli_export(int argc, char **argv)
{
    const char *given = NULL, *out = NULL, *sets[CLI_SETS_MAX];
    char source[RT_PATH_MAX + 64];
    uint32_t set_count;
    rt_config config;
    rt_error error = {0};
    ew_source origin;
    const cli_option options[] = {{"out", &out, NULL}};
    rt_log_setup(RT_LOG_INFO, "lanyard");
    if (!cli_parse(argc, argv, options, RT_COUNT_OF(options), &given, sets, &set_count))
        return CLI_USAGE;
    if (!given || !out || set_count) {
        fprintf(stderr, "lanyard export: expected SOURCE --out DIR; SOURCE is a checkpoint, or the "
                        "folder of a run that makes some\n");
        return CLI_USAGE;
    }
    if (find_source(given, source, sizeof source, &error))
        return cli_fail(&error);
    int code = cli_open_source(source, NULL, 0, true, &config, &origin);
    if (code != CLI_OK)
        return code;
    const rt_status status = export_as(&origin, out, &error);
    rt_config_fini(&config);
    if (status)
        return cli_fail(&error);
    printf("%s: the model of %s\n", out, source);
    return CLI_OK;
}
