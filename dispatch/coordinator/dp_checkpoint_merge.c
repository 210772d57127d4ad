// The newest checkpoints that build on each other become one with all rows, beside cuts, versions
// and training: docs/RECOVERY.md, "The log of checkpoints".
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "dispatch/coordinator/dp_checkpoint_parts.h"
#include "runtime/files/rt_checkpoint.h"
#include "runtime/files/rt_file.h"
#include "runtime/files/rt_published.h"
#include "runtime/rt_log.h"

#define MERGE_LIMIT_S 36000.0
#define LENGTH_MAX 900u // of a chain that waits for a merge; readers take 1,000
#define PATH_SIZE (RT_FOLDER_MAX + 320)

enum { BYTES_READ, BYTES_WRITTEN, ROW_BYTES }; // values of the result

// ---- when ------------------------------------------------------------------------------------

// The newest one with all rows; past_count: there is none.
static uint32_t find_first(const dp_checkpoint *c)
{
    uint32_t i = c->past_count;
    while (i > 0 && c->past[i - 1].base)
        i--;
    return i ? i - 1 : c->past_count;
}

// A table that merges are made of.
static bool is_large(const dp_checkpoint *c, uint32_t first)
{
    return c->config.merge && first < c->past_count &&
           c->past[first].row_bytes >= c->config.merge_bytes_min;
}

// By bytes only where a merge can help: shards of other boxes would have to write all rows and send
// them over a link that has better use.
bool dp_checkpoint_is_long(const dp_checkpoint *c)
{
    const uint32_t first = find_first(c);
    uint64_t changes = 0;
    for (uint32_t i = first + 1; i < c->past_count; i++)
        changes += c->past[i].row_bytes;
    return c->past_count - first >= c->config.config->checkpoint.full_every ||
           (is_large(c, first) && !c->is_apart && changes > 0 &&
            changes >= c->past[first].row_bytes);
}

// With checkpoint.after every folder is copied once, as it is then; a standby would lack the merged
// checkpoint, and all that build on it, until it has all of its rows.
bool dp_checkpoint_can_merge(const dp_checkpoint *c)
{
    const rt_config *config = c->config.config;
    const char *after = config->checkpoint.after;
    const uint32_t first = find_first(c);
    return is_large(c, first) && !c->is_apart && !c->cannot_merge && !(after && *after) &&
           !*config->standby && config->checkpoint.full_every > 1 &&
           c->past_count - first < LENGTH_MAX && dp_checkpoint_has_all(c);
}

// ---- in the forked copy ----------------------------------------------------------------------

typedef struct {
    char folders[DP_MERGE_FILES_MAX][RT_FOLDER_MAX];
    cJSON *manifests[DP_MERGE_FILES_MAX]; // likewise, oldest first
    uint32_t count;
    char draft[RT_FOLDER_MAX];
    rt_file_sum sums[RT_SHARDS_MAX]; // of the merged files
    uint64_t lineages[RT_SHARDS_MAX];
} merging;

static void name_of(const dp_checkpoint *c, uint32_t shard, char name[64])
{
    snprintf(name, 64, "rows-%03" PRIu32 "-of-%03" PRIu32 ".bin", shard,
             c->config.config->ps_shard_count);
}

static rt_status read_manifests(const dp_checkpoint *c, merging *m, rt_error *error)
{
    uint32_t i = find_first(c);
    for (; i < c->past_count && m->count < DP_MERGE_FILES_MAX; i++) {
        char *folder = m->folders[m->count];
        rt_status status =
            rt_checkpoint_path(c->directory, c->past[i].iteration, folder, RT_FOLDER_MAX, error);
        if (!status)
            status = rt_manifest_read(folder, &m->manifests[m->count], error);
        if (status)
            return status;
        m->count++;
        if (c->past[i].iteration == c->merges_to)
            return RT_OK;
    }
    return rt_fail(error, RT_DATA, "the checkpoint of iteration %" PRIu32 " is not there",
                   c->merges_to);
}

// What shards know the merged rows by is what they knew them by before.
static uint64_t lineage_of(const merging *m, const char *name, const rt_file_sum *sums)
{
    uint64_t lineage = RT_LINEAGE_ALL_ROWS;
    const cJSON *before = cJSON_GetObjectItemCaseSensitive(m->manifests[0], "lineages");
    uint32_t i = before && rt_manifest_hash(before, name, &lineage);
    for (; i < m->count; i++)
        lineage = rt_control_lineage(lineage, sums[i].bytes, sums[i].hash);
    return lineage;
}

static rt_status merge_shard(const dp_checkpoint *c, merging *m, uint32_t shard,
                             rt_child_result *result)
{
    char name[64], paths[DP_MERGE_FILES_MAX][PATH_SIZE], to[PATH_SIZE];
    const char *list[DP_MERGE_FILES_MAX];
    rt_file_sum sums[DP_MERGE_FILES_MAX];
    rt_file_place place = {.path = to};
    const rt_sink sink = rt_file_sink(&place);
    name_of(c, shard, name);
    for (uint32_t i = 0; i < m->count; i++) {
        rt_manifest_part part;
        if (!rt_manifest_part_of(m->manifests[i], name, &part) || !part.has_hash)
            return rt_fail(&result->error, RT_DATA, "%s: its manifest names no %s", m->folders[i],
                           name);
        snprintf(paths[i], sizeof paths[i], "%s/%s", m->folders[i], name);
        list[i] = paths[i];
        sums[i] = part.sum;
        result->values[BYTES_READ] += part.sum.bytes;
    }
    snprintf(to, sizeof to, "%s/%s", m->draft, name);
    m->lineages[shard] = lineage_of(m, name, sums);
    const rt_status status =
        c->config.merge(list, sums, m->count, &sink, &m->sums[shard], &result->error);
    result->values[BYTES_WRITTEN] += m->sums[shard].bytes;
    return status;
}

static bool is_rows(const char *name)
{
    return strncmp(name, "rows-", 5) == 0;
}

static rt_status link_file(const char *from, const char *to, const char *name, rt_error *error)
{
    char old[PATH_SIZE], new[PATH_SIZE];
    snprintf(old, sizeof old, "%s/%s", from, name);
    snprintf(new, sizeof new, "%s/%s", to, name);
    if (link(old, new) != 0)
        return rt_fail(error, rt_status_of_errno(errno), "cannot link %s to %s: %s", old, new,
                       strerror(errno));
    return RT_OK;
}

// All but rows and manifest; config.json is in no manifest.
static rt_status link_others(const cJSON *manifest, const char *from, const char *to,
                             rt_error *error)
{
    const cJSON *part;
    rt_status status = link_file(from, to, "config.json", error);
    cJSON_ArrayForEach(part, cJSON_GetObjectItemCaseSensitive(manifest, "parts"))
    {
        const cJSON *name = cJSON_GetObjectItemCaseSensitive(part, "name");
        if (!status && cJSON_IsString(name) && !is_rows(name->valuestring))
            status = link_file(from, to, name->valuestring, error);
    }
    return status;
}

// The manifest as it was, with all rows.
static rt_status write_manifest(const dp_checkpoint *c, const merging *m, cJSON *manifest,
                                rt_error *error)
{
    char name[64];
    cJSON *base = cJSON_GetObjectItemCaseSensitive(manifest, "base");
    cJSON_DeleteItemFromObjectCaseSensitive(manifest, "lineages");
    cJSON *lineages = cJSON_AddObjectToObject(manifest, "lineages");
    bool is_whole = base && lineages;
    if (base)
        cJSON_SetNumberValue(base, 0);
    for (uint32_t s = 0; s < c->config.config->ps_shard_count && is_whole; s++) {
        name_of(c, s, name);
        is_whole = rt_manifest_set_hash(lineages, name, m->lineages[s]) &&
                   rt_manifest_set_sum(manifest, name, &m->sums[s]);
    }
    if (!is_whole)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    rt_status status = rt_manifest_save(manifest, m->draft, error);
    if (status)
        return status;
    // A folder that nobody can read must not take the place of one that can be read.
    cJSON *root = NULL;
    status = rt_manifest_read(m->draft, &root, error);
    if (!status)
        status = rt_manifest_check(m->draft, root, error);
    cJSON_Delete(root);
    return status;
}

// Its rows are those of the checkpoint, so that the merged ones can take their place.
static bool is_same(const dp_checkpoint *c, const cJSON *version, const cJSON *checkpoint)
{
    char name[64];
    for (uint32_t s = 0; s < c->config.config->ps_shard_count; s++) {
        rt_manifest_part a = {0}, b = {0};
        name_of(c, s, name);
        if (!rt_manifest_part_of(version, name, &a) || !rt_manifest_part_of(checkpoint, name, &b) ||
            a.sum.bytes != b.sum.bytes || a.sum.hash != b.sum.hash)
            return false;
    }
    return true;
}

static rt_status put_version(const dp_checkpoint *c, merging *m, const char *merged,
                             const char *version, cJSON *manifest, rt_error *error)
{
    rt_status status = rt_checkpoint_begin_draft(c->published, m->draft, sizeof m->draft, error);
    if (!status)
        status = link_others(manifest, version, m->draft, error);
    for (uint32_t s = 0; s < c->config.config->ps_shard_count && !status; s++) {
        char name[64];
        name_of(c, s, name);
        status = link_file(merged, m->draft, name, error);
    }
    if (!status)
        status = write_manifest(c, m, manifest, error);
    if (!status)
        status = rt_checkpoint_put_draft(c->published, c->merges_to, error);
    if (status)
        rt_checkpoint_remove_draft(c->published);
    return status;
}

// The version of the same iteration, if it is there: of another one nothing is merged.
static rt_status merge_version(const dp_checkpoint *c, merging *m, const cJSON *before,
                               rt_error *error)
{
    char version[RT_FOLDER_MAX];
    cJSON *manifest = NULL;
    int lock;
    rt_status status =
        rt_checkpoint_path(c->published, c->merges_to, version, sizeof version, error);
    if (!status)
        status = rt_published_lock(c->published, &lock, error);
    if (status)
        return status;
    if (rt_manifest_read(version, &manifest, NULL) == RT_OK && is_same(c, manifest, before))
        status = put_version(c, m, m->folders[m->count - 1], version, manifest, error);
    cJSON_Delete(manifest);
    close(lock);
    return status;
}

static rt_status merge_all(const dp_checkpoint *c, merging *m, rt_child_result *result)
{
    rt_error *error = &result->error;
    rt_status status = read_manifests(c, m, error);
    if (!status)
        status = rt_checkpoint_begin_draft(c->directory, m->draft, sizeof m->draft, error);
    for (uint32_t s = 0; s < c->config.config->ps_shard_count && !status; s++)
        status = merge_shard(c, m, s, result);
    if (status)
        return status;
    const cJSON *last = m->manifests[m->count - 1];
    cJSON *manifest = cJSON_Duplicate(last, true);
    if (!manifest)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    status = link_others(manifest, m->folders[m->count - 1], m->draft, error);
    if (!status)
        status = write_manifest(c, m, manifest, error);
    cJSON_Delete(manifest);
    if (!status)
        status = rt_checkpoint_put_draft(c->directory, c->merges_to, error);
    if (status)
        return status;
    result->values[ROW_BYTES] = result->values[BYTES_WRITTEN]; // from here on it is there
    return *c->published ? merge_version(c, m, last, error) : RT_OK;
}

static void merge_chain(void *context, rt_child_result *result)
{
    dp_checkpoint *c = context;
    merging *m = rt_alloc(1, sizeof *m);
    if (!m) {
        rt_fail(&result->error, RT_NO_MEMORY, "out of memory");
        return;
    }
    if (merge_all(c, m, result))
        rt_checkpoint_remove_draft(c->directory);
    for (uint32_t i = 0; i < m->count; i++)
        cJSON_Delete(m->manifests[i]);
    rt_free(m);
}

// ---- in the process itself -------------------------------------------------------------------

int dp_checkpoint_merge_fd(const dp_checkpoint *c)
{
    return c->merger.fd;
}

static void fail(dp_checkpoint *c, const rt_error *error)
{
    c->cannot_merge = true;
    rt_warn("the checkpoints up to iteration %" PRIu32 " could not be merged, so shards write all "
            "rows for the next one: %s",
            c->merges_to, error->text);
}

void dp_checkpoint_merge(dp_checkpoint *c)
{
    rt_error error = {0};
    if (c->merger.fd >= 0 || !dp_checkpoint_is_long(c) || !dp_checkpoint_can_merge(c))
        return;
    const uint32_t first = find_first(c);
    const uint32_t last = (uint32_t)rt_min_u64(first + DP_MERGE_FILES_MAX - 1u, c->past_count - 1u);
    if (first == last)
        return;
    c->merges_to = c->past[last].iteration;
    if (rt_child_start(&c->merger, merge_chain, c, MERGE_LIMIT_S, &error))
        fail(c, &error);
}

static void report(const dp_checkpoint *c, const rt_child_result *result)
{
    rt_json *json = rt_metrics_begin(c->config.metrics, "merge");
    rt_json_u64(json, "iteration", c->merges_to);
    rt_json_bool(json, "complete", result->values[ROW_BYTES] > 0);
    rt_json_u64(json, "bytes_read", result->values[BYTES_READ]);
    rt_json_u64(json, "bytes", result->values[BYTES_WRITTEN]);
    rt_json_double(json, "write_s", (double)result->ns * 1e-9);
    rt_metrics_end(c->config.metrics);
}

void dp_checkpoint_merge_step(dp_checkpoint *c)
{
    rt_child_result result = {0};
    if (c->merger.fd < 0 || rt_child_poll(&c->merger, &result) == RT_AGAIN)
        return;
    report(c, &result);
    if (result.error.status)
        fail(c, &result.error);
    for (uint32_t i = 0; i < c->past_count && result.values[ROW_BYTES]; i++) {
        if (c->past[i].iteration != c->merges_to)
            continue;
        c->past[i].base = 0;
        c->past[i].row_bytes = result.values[ROW_BYTES];
    }
}

void dp_checkpoint_merge_end(dp_checkpoint *c)
{
    if (c->merger.fd < 0)
        return;
    rt_child_end(&c->merger);
    rt_checkpoint_remove_draft(c->directory);
}
