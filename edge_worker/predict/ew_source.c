#include "edge_worker/predict/ew_source.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/files/rt_checkpoint.h"
#include "runtime/files/rt_manifest.h"
#include "runtime/files/rt_published.h"
#include "runtime/rt_build.h"
#include "runtime/rt_json_read.h"
#include "runtime/rt_log.h"

#define PATH_SIZE (RT_PATH_MAX + 160)

// ---- whole or torn ---------------------------------------------------------------------------

static bool is_there(const char *folder, const char *name)
{
    char path[PATH_SIZE];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

// What config.json says, sets over it. config is not initialised on failure.
static rt_status load_config(const char *path, const char *const *sets, uint32_t set_count,
                             bool reads_input, rt_config *config, rt_error *error)
{
    rt_status status = rt_config_open(path, sets, set_count, config, error);
    if (status)
        return status;
    if (reads_input)
        status = rt_config_check(config, error);
    else
        status = rt_config_check_model(config, error);
    if (status)
        rt_config_fini(config);
    return status;
}

static const char expected[] = "expected the folder model/ of a run, or a checkpoint";

static rt_status count_entries(const char *folder, uint32_t *count_p, rt_error *error)
{
    DIR *directory = opendir(folder);
    if (!directory)
        return rt_fail(error, RT_IO, "cannot read %s: %s", folder, strerror(errno));
    *count_p = 0;
    while (readdir(directory))
        ++*count_p;
    closedir(directory);
    return RT_OK;
}

static rt_status fail_without_folder(const char *folder, int reason, bool *may_come,
                                     rt_error *error)
{
    char old[PATH_SIZE], above[PATH_SIZE];
    struct stat info;
    snprintf(old, sizeof old, "%s.old", folder);
    if (reason == ENOENT && stat(old, &info) == 0)
        return rt_fail(error, RT_NOT_FOUND,
                       "%s is not there, but %s is: the process that put a new model in its place "
                       "ended between two renames; the whole one is %s",
                       folder, old, old);
    snprintf(above, sizeof above, "%s", folder);
    *may_come = reason == ENOENT && stat(dirname(above), &info) == 0;
    return rt_fail(error, RT_NOT_FOUND, "%s: %s: %s", folder, strerror(reason), expected);
}

// Says what the folder seems to be instead. *may_come: a place where a model may yet come.
static rt_status fail_without_model(const char *folder, bool *may_come, rt_error *error)
{
    struct stat info;
    uint32_t entries = 0;
    *may_come = false;
    if (stat(folder, &info) != 0)
        return fail_without_folder(folder, errno, may_come, error);
    if (is_there(folder, "model/config.json"))
        return rt_fail(error, RT_NOT_FOUND, "%s is the folder of a run: its model is %s/model",
                       folder, folder);
    const rt_status status = count_entries(folder, &entries, error);
    *may_come = entries == 2 || is_there(folder, RT_PUBLISHED_LOCK); // 2: itself and the one above
    if (!status && *may_come)
        return rt_fail(error, RT_NOT_FOUND,
                       "%s: no model yet: the run has published none, or its guard held them back "
                       "(publish.guard)",
                       folder);
    if (status)
        return status;
    return rt_fail(error, RT_NOT_FOUND, "%s: no config.json: %s", folder, expected);
}

rt_status ew_source_find(const char *folder, rt_error *error)
{
    if (is_there(folder, "config.json") || is_there(folder, RT_PUBLISHED_CURRENT))
        return RT_OK;
    bool may_come;
    const rt_status status = fail_without_model(folder, &may_come, error);
    if (may_come)
        return RT_AGAIN;
    return status;
}

// A configuration that cannot be read may be that of a build with other keys: then who wrote it is
// said, too.
static rt_status tell_writer(const char *folder, const char *path, rt_status status,
                             rt_error *error)
{
    rt_error other = {0};
    cJSON *root = NULL;
    if (status != RT_CONFIG || !error || strncmp(error->text, path, strlen(path)) != 0)
        return status;
    const rt_status read = rt_manifest_read(folder, &root, &other);
    if (read == RT_UNSUPPORTED)
        return rt_fail(error, read, "%s", other.text);
    const char *build = rt_json_text_of(root, "build");
    if (!read && *build && strcmp(build, rt_build()) != 0) {
        snprintf(other.text, sizeof other.text, "%.320s", error->text);
        (void)rt_fail(error, status, "%s (written by lanyard %.64s; this is lanyard %s)",
                      other.text, build, rt_build());
    }
    cJSON_Delete(root);
    return status;
}

rt_status ew_source_open(const char *folder, const char *const *sets, uint32_t set_count,
                         bool reads_input, rt_config *config, ew_source *source, rt_error *error)
{
    char path[PATH_SIZE];
    bool may_come;
    if (!is_there(folder, "config.json"))
        return fail_without_model(folder, &may_come, error);
    snprintf(path, sizeof path, "%s/config.json", folder);
    const rt_status status = load_config(path, sets, set_count, reads_input, config, error);
    if (status)
        return tell_writer(folder, path, status, error);
    *source = (ew_source){.folder = folder, .config = config, .schema = rt_config_schema(config)};
    return RT_OK;
}

static rt_status check_without_manifest(const ew_source *source, rt_error *error)
{
    ps_model_info info = {0};
    ps_model_reader *reader;
    char path[PATH_SIZE];
    rt_status status = ps_model_file_path(source->folder, 0, source->config->ps_shard_count, path,
                                          sizeof path, error);
    if (status)
        return status;
    status = ps_model_reader_open(path, NULL, NULL, &info, &reader, error);
    if (status)
        return status;
    ps_model_reader_close(reader);
    if (info.iteration)
        return rt_fail(error, RT_DATA,
                       "%s: there is no " RT_MANIFEST_NAME
                       ": this checkpoint was never completed, or has lost it",
                       source->folder);
    rt_warn("%s has no " RT_MANIFEST_NAME " (lanyard 0.1.0 wrote none): each file is checked, but "
            "not whether they are of one run",
            source->folder);
    return RT_OK;
}

// All else is there, and as it was written.
static bool lacks_rows_alone(const char *folder, const cJSON *root)
{
    const cJSON *one, *parts = cJSON_GetObjectItemCaseSensitive(root, "parts");
    cJSON_ArrayForEach(one, parts)
    {
        const char *name = rt_json_text_of(one, "name");
        if (strncmp(name, "rows-", 5) == 0 && is_there(folder, name))
            return false;
    }
    return rt_manifest_check_without_rows(folder, root, NULL) == RT_OK;
}

static rt_status check_files(const ew_source *source, const cJSON *manifest, rt_error *error)
{
    if (source->without_rows || source->only)
        return rt_manifest_check_without_rows(source->folder, manifest, error);
    const rt_status status = rt_manifest_check(source->folder, manifest, error);
    if (status && lacks_rows_alone(source->folder, manifest))
        return rt_fail(error, RT_DATA,
                       "%s: a version without its rows, as a server with serve.rows \"fetched\" "
                       "keeps it: only such a server can use it (lanyard serve with --run "
                       "HOST:PORT)",
                       source->folder);
    return status;
}

static rt_status check_with_manifest(const ew_source *source, const cJSON *manifest,
                                     rt_error *error)
{
    uint64_t schema = 0;
    const rt_status status = check_files(source, manifest, error);
    if (status)
        return status;
    if (rt_manifest_hash(manifest, "schema", &schema) && schema != source->schema)
        return rt_fail(error, RT_CONFIG, "%s: of another model or stream format than %s says",
                       source->folder, "its config.json");
    return RT_OK;
}

rt_status ew_source_check(const ew_source *source, rt_error *error)
{
    cJSON *root = NULL;
    rt_status status = rt_manifest_read(source->folder, &root, error);
    if (status == RT_NOT_FOUND)
        return check_without_manifest(source, error);
    if (status)
        return status;
    status = check_with_manifest(source, root, error);
    cJSON_Delete(root);
    return status;
}

// ---- scale -----------------------------------------------------------------------------------

// The version before scale.bin does not name the key either.
static bool config_says_scaled(const char *folder)
{
    char path[PATH_SIZE];
    rt_config config;
    rt_error error = {0};
    if (rt_config_init(&config))
        return false;
    config.stream.dense_scaling = RT_SCALING_NONE;
    snprintf(path, sizeof path, "%s/config.json", folder);
    const rt_status status = rt_config_load(&config, path, &error);
    const bool is_scaled = !status && config.stream.dense_scaling == RT_SCALING_STANDARD;
    rt_config_fini(&config);
    return is_scaled;
}

rt_status ew_source_scale(const ew_source *source, uint32_t dense_count, rt_tensors **scale_p,
                          rt_error *error)
{
    char path[PATH_SIZE];
    *scale_p = NULL;
    if (is_there(source->folder, "scale.bin")) {
        snprintf(path, sizeof path, "%s/scale.bin", source->folder);
        return rt_tensors_open(path, scale_p, error);
    }
    if (dense_count == 0 || is_there(source->folder, RT_MANIFEST_NAME) || // which names all files
        !config_says_scaled(source->folder))
        return RT_OK;
    return rt_fail(error, RT_DATA,
                   "%s: there is neither " RT_MANIFEST_NAME " nor scale.bin, by which dense "
                   "features are scaled as its config.json says",
                   source->folder);
}

// ---- rows ------------------------------------------------------------------------------------

typedef struct {
    const ew_source *source;
    uint32_t shard, row_floats;
    uint32_t have; // iteration of the rows that are in the table already; 0: none are
    ps_table *table;
    ps_model_info info;
    char parent[PATH_SIZE]; // where all are that build on each other
} loading;

// replaces: a checkpoint's changes of rows that one before it holds.
// base: of a file of changes; in them a row of version 0 has left its shard, for another one, whose
// file has it as it is now.
static rt_status add_row(const loading *l, uint64_t key, uint32_t version, const float *row,
                         uint32_t base, rt_error *error)
{
    const bool replaces = base > 0 || l->have > 0;
    if (l->source->only && !rt_keyset_has(l->source->only, key))
        return RT_OK;
    if (base && version == 0) {
        const ps_entry *before = ps_table_find(l->table, key);
        if (before && before->version <= base)
            (void)ps_table_erase(l->table, key);
        return RT_OK;
    }
    rt_status status = ps_table_reserve(l->table, 1, error);
    if (status)
        return status;
    ps_entry *entry = ps_table_find(l->table, key);
    if (entry && !replaces)
        return rt_fail(error, RT_DATA, "key %" PRIx64 " stands twice in the model", key);
    if (!entry)
        entry = ps_table_insert(l->table, key);
    entry->version = version;
    memcpy(ps_table_row(l->table, entry), row, l->row_floats * sizeof *row);
    return RT_OK;
}

// Rows on disk that a block of changes goes over: they are read side by side, not one by one.
static uint32_t announce(const loading *l, const ps_model_reader *reader)
{
    const uint64_t *keys;
    const uint32_t count = ps_model_reader_ahead(reader, &keys);
    for (uint32_t i = 0; i < count && ps_table_is_on_disk(l->table); i++) {
        const ps_entry *entry = ps_table_find(l->table, keys[i]);
        if (entry)
            ps_table_will_need(l->table, entry);
    }
    return count;
}

static rt_status load_folder(loading *l, const char *folder, uint32_t before, rt_error *error);

// A file of changes needs the checkpoint that they are changes of.
static rt_status load_base(loading *l, const char *folder, uint32_t base, uint32_t before,
                           rt_error *error)
{
    char path[PATH_SIZE + 64];
    if (base >= before)
        return rt_fail(error, RT_DATA,
                       "%s: builds on iteration %" PRIu32 ", expected one below %" PRIu32, folder,
                       base, before);
    const rt_status status = rt_checkpoint_path(l->parent, base, path, sizeof path, error);
    if (status)
        return status;
    return load_folder(l, path, base, error);
}

// That the file is the one that the folder's manifest names; without one there is nothing to say.
static rt_status check_sum(const char *folder, const char *path, rt_file_sum sum, rt_error *error)
{
    cJSON *root = NULL;
    rt_manifest_part part = {0};
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    const rt_status status = rt_manifest_read(folder, &root, error);
    if (status == RT_NOT_FOUND)
        return RT_OK;
    if (status)
        return status;
    const bool is_other = rt_manifest_part_of(root, name, &part) && part.has_hash &&
                          (part.sum.bytes != sum.bytes || part.sum.hash != sum.hash);
    cJSON_Delete(root);
    if (is_other)
        return rt_fail(error, RT_DATA, "%s is not the file that the manifest names", path);
    return RT_OK;
}

static rt_status add_rows(const loading *l, ps_model_reader *reader, uint32_t base, rt_error *error)
{
    uint64_t key;
    uint32_t version, ahead = 0; // of those announced: how many are still to come
    const float *row;
    for (;;) {
        rt_status status = ps_model_reader_next(reader, &key, &version, &row, error);
        if (status == RT_END)
            return RT_OK;
        if (status)
            return status;
        if (ahead == 0)
            ahead = announce(l, reader) + 1;
        ahead--;
        status = add_row(l, key, version, row, base, error);
        if (status)
            return status;
    }
}

// info: of the file that reader reads. What it builds on is loaded first, by whoever comes first.
static rt_status load_opened(loading *l, const char *folder, const char *path, uint32_t before,
                             ps_model_reader *reader, const ps_model_info *info, rt_error *error)
{
    rt_status status = RT_OK;
    if (info->dim != l->source->config->model.embedding_dim || info->schema != l->source->schema ||
        l->row_floats > info->dim + info->state_floats)
        return rt_fail(error, RT_CONFIG, "%s: rows of another model or stream format", path);
    if (info->base > l->have && (l->shard != EW_ALL_SHARDS || info->shard == 0))
        status = load_base(l, folder, info->base, before, error);
    if (status)
        return status;
    status = add_rows(l, reader, info->base, error);
    if (status)
        return status;
    for (uint64_t at = 0; info->floor && ps_table_erase_below(l->table, info->floor, &at);) {
        // rows of the files before that have ended
    }
    return check_sum(folder, path, ps_model_reader_sum(reader), error);
}

static rt_status load_file(loading *l, const char *folder, const char *path, uint32_t before,
                           rt_error *error)
{
    ps_model_info info = {0};
    ps_model_reader *reader;
    rt_status status = ps_model_reader_open(path, NULL, NULL, &info, &reader, error);
    if (status)
        return status;
    status = load_opened(l, folder, path, before, reader, &info, error);
    ps_model_reader_close(reader);
    l->info = info; // after those of the files that it builds on
    return status;
}

// before: iteration of the checkpoint that builds on it.
static rt_status load_folder(loading *l, const char *folder, uint32_t before, rt_error *error)
{
    char path[PATH_SIZE + 160];
    const uint32_t shards = l->source->config->ps_shard_count;
    for (uint32_t s = 0; s < shards; s++) {
        if (l->shard != EW_ALL_SHARDS && l->shard != s)
            continue;
        rt_status status = ps_model_file_path(folder, s, shards, path, sizeof path, error);
        if (status)
            return status;
        status = load_file(l, folder, path, before, error);
        if (status)
            return status;
    }
    return RT_OK;
}

static rt_status load_newest(loading *l, rt_error *error)
{
    const char *folder = l->source->folder;
    snprintf(l->parent, sizeof l->parent, "%s/..", folder);
    return load_folder(l, folder, UINT32_MAX, error);
}

rt_status ew_source_rows(const ew_source *source, uint32_t shard, uint32_t row_floats,
                         ps_table *table, ps_model_info *info_p, rt_error *error)
{
    loading l = {.source = source, .shard = shard, .row_floats = row_floats, .table = table};
    const rt_status status = load_newest(&l, error);
    if (info_p)
        *info_p = l.info;
    return status;
}

rt_status ew_source_changes(const ew_source *source, uint32_t row_floats, uint32_t have,
                            ps_table *table, rt_error *error)
{
    loading l = {.source = source,
                 .shard = EW_ALL_SHARDS,
                 .row_floats = row_floats,
                 .have = have,
                 .table = table};
    return load_newest(&l, error);
}
