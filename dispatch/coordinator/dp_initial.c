#include "dispatch/coordinator/dp_run.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/files/rt_manifest.h"
#include "runtime/rt_log.h"

#define PATH_SIZE (RT_FOLDER_MAX + 64)

// ---- what cannot fit -------------------------------------------------------------------------

static rt_status differ(const char *folder, const char *key, const char *theirs, const char *ours,
                        rt_error *error)
{
    return rt_fail(error, RT_CONFIG, "%s: its %s is %s, this run has %s", folder, key, theirs,
                   ours);
}

static rt_status compare_numbers(const char *folder, const char *key, uint32_t theirs,
                                 uint32_t ours, rt_error *error)
{
    char a[16], b[16];
    snprintf(a, sizeof a, "%" PRIu32, theirs);
    snprintf(b, sizeof b, "%" PRIu32, ours);
    if (theirs == ours)
        return RT_OK;
    return differ(folder, key, a, b, error);
}

static rt_status compare_choices(const char *folder, const char *key, int theirs, int ours,
                                 rt_error *error)
{
    if (theirs == ours)
        return RT_OK;
    return differ(folder, key, rt_config_choice_name(key, theirs), rt_config_choice_name(key, ours),
                  error);
}

static const char *scaling_name(const rt_scale *scale)
{
    const rt_dense_scaling scaling = scale ? RT_SCALING_STANDARD : RT_SCALING_NONE;
    return rt_config_choice_name("stream.dense_scaling", (int)scaling);
}

// Numbers that must be equal, or what a key of choices is set to.
typedef struct {
    const char *key;
    bool is_choice;
    uint32_t theirs, ours;
} pair;

static rt_status compare_pairs(const char *folder, const pair *pairs, size_t count, rt_error *error)
{
    for (size_t i = 0; i < count; i++) {
        const pair *p = &pairs[i];
        rt_status status;
        if (p->is_choice)
            status = compare_choices(folder, p->key, (int)p->theirs, (int)p->ours, error);
        else
            status = compare_numbers(folder, p->key, p->theirs, p->ours, error);
        if (status)
            return status;
    }
    return RT_OK;
}

static rt_status compare_widths(const char *folder, const char *key, const uint32_t *theirs,
                                const uint32_t *ours, uint32_t count, rt_error *error)
{
    for (uint32_t i = 0; i < count; i++) {
        const rt_status status = compare_numbers(folder, key, theirs[i], ours[i], error);
        if (status)
            return status;
    }
    return RT_OK;
}

static rt_status compare_attention(const char *folder, const rt_model_config *a,
                                   const rt_model_config *b, rt_error *error)
{
    if (strcmp(a->sequence, b->sequence) != 0)
        return differ(folder, "model.sequence", a->sequence, b->sequence, error);
    if (strcmp(a->target, b->target) != 0)
        return differ(folder, "model.target", a->target, b->target, error);
    const rt_status status =
        compare_numbers(folder, "number of layers (model.attention)", a->attention_layer_count,
                        b->attention_layer_count, error);
    if (status)
        return status;
    return compare_widths(folder, "width of a layer (model.attention)", a->attention, b->attention,
                          a->attention_layer_count, error);
}

// What only models of one kind have.
static rt_status compare_kind(const char *folder, const rt_model_config *a,
                              const rt_model_config *b, rt_error *error)
{
    if (rt_model_takes(a->kind, RT_TAKES_SEQUENCE))
        return compare_attention(folder, a, b, error);
    if (rt_model_takes(a->kind, RT_TAKES_NODES))
        return compare_numbers(folder, "model.fan_out", a->fan_out, b->fan_out, error);
    return RT_OK;
}

static rt_status compare_configs(const char *folder, const rt_config *theirs, const rt_config *ours,
                                 rt_error *error)
{
    const rt_model_config *a = &theirs->model, *b = &ours->model;
    const pair pairs[] = {
        {"model.name", true, a->kind, b->kind},
        {"stream.format", true, theirs->stream.format, ours->stream.format},
        {"model.embedding_dim", false, a->embedding_dim, b->embedding_dim},
        {"optimizer.rows.name", true, theirs->optimizer_rows.kind, ours->optimizer_rows.kind},
        {"model.deep_input", true, a->deep_input, b->deep_input},
        {"model.pooling", true, a->pooling, b->pooling},
        {"number of layers (model.mlp)", false, a->mlp_layer_count, b->mlp_layer_count}};
    rt_status status = compare_pairs(folder, pairs, RT_COUNT_OF(pairs), error);
    if (status)
        return status;
    status = compare_kind(folder, a, b, error);
    if (status)
        return status;
    return compare_widths(folder, "width of a layer (model.mlp)", a->mlp, b->mlp,
                          a->mlp_layer_count, error);
}

// A single label needs no name that says which.
static rt_status compare_labels(const char *folder, const rt_schema *theirs, const rt_schema *ours,
                                rt_error *error)
{
    if (ours->label_count <= 1)
        return RT_OK;
    for (uint32_t l = 0; l < theirs->label_count; l++)
        if (strcmp(theirs->label_names[l], ours->label_names[l]) != 0)
            return rt_fail(error, RT_CONFIG,
                           "%s: its label %" PRIu32 " is \"%s\", this run's is \"%s\": put "
                           "additional labels after those of the model",
                           folder, l, theirs->label_names[l], ours->label_names[l]);
    return RT_OK;
}

static rt_status compare_fields(const char *folder, const rt_schema *theirs, const rt_schema *ours,
                                rt_error *error)
{
    for (uint32_t f = 0; f < theirs->field_count; f++) {
        const uint32_t a = rt_tables_of(&theirs->tables, f), b = rt_tables_of(&ours->tables, f);
        if (strcmp(theirs->field_names[f], ours->field_names[f]) != 0)
            return rt_fail(error, RT_CONFIG,
                           "%s: its field %" PRIu32 " is \"%s\", this run's is \"%s\": put "
                           "additional fields after those of the model",
                           folder, f, theirs->field_names[f], ours->field_names[f]);
        if (a != b)
            return rt_fail(error, RT_CONFIG,
                           "%s: its field \"%s\" has the rows of \"%s\", this run's those of "
                           "\"%s\" (stream.tables)",
                           folder, theirs->field_names[f], theirs->field_names[a],
                           ours->field_names[b]);
    }
    return RT_OK;
}

// The run's fields and labels begin with the model's.
static rt_status compare_columns(const char *folder, const rt_schema *theirs, const rt_schema *ours,
                                 rt_error *error)
{
    const uint32_t fields = (uint32_t)rt_max_u64(theirs->field_count, ours->field_count);
    const uint32_t labels = (uint32_t)rt_max_u64(theirs->label_count, ours->label_count);
    const pair pairs[] = {
        {"number of dense features", false, theirs->dense_count, ours->dense_count},
        {"number of fields", false, fields, ours->field_count},
        {"number of labels", false, labels, ours->label_count},
        {"number of classes", false, theirs->class_count, ours->class_count}};
    rt_status status = compare_pairs(folder, pairs, RT_COUNT_OF(pairs), error);
    if (status)
        return status;
    status = compare_labels(folder, theirs, ours, error);
    if (status)
        return status;
    return compare_fields(folder, theirs, ours, error);
}

static rt_status compare_all(const char *folder, const rt_config *theirs, const rt_config *ours,
                             rt_schema *columns, const rt_schema *schema, rt_error *error)
{
    rt_status status = compare_configs(folder, theirs, ours, error);
    if (status)
        return status;
    status = rt_stream_read_schema(&theirs->stream, theirs->seed, columns, error);
    if (status)
        return status;
    return compare_columns(folder, columns, schema, error);
}

// homes_p: where the model's rows are, by hash or not.
static rt_status compare(const char *folder, const rt_config *ours, const rt_schema *schema,
                         rt_homes *homes_p, rt_error *error)
{
    char path[PATH_SIZE];
    rt_config theirs;
    rt_schema *columns = rt_alloc(1, sizeof *columns);
    if (!columns || rt_config_init(&theirs)) {
        rt_free(columns);
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    }
    snprintf(path, sizeof path, "%s/config.json", folder);
    rt_status status = rt_config_load(&theirs, path, error);
    if (!status)
        status = compare_all(folder, &theirs, ours, columns, schema, error);
    *homes_p = theirs.ps_homes;
    rt_config_fini(&theirs);
    rt_free(columns);
    return status;
}

// ---- files -----------------------------------------------------------------------------------

static rt_status take_rows(const char *folder, const cJSON *root, rt_wire_load *load,
                           rt_error *error)
{
    if (!rt_manifest_u32(root, "shards", RT_SHARDS_MAX, &load->shard_count) ||
        load->shard_count == 0)
        return rt_fail(error, RT_DATA, "%s/" RT_MANIFEST_NAME " does not say how many shards",
                       folder);
    for (uint32_t s = 0; s < load->shard_count; s++) {
        char name[64];
        rt_manifest_part part;
        snprintf(name, sizeof name, "rows-%03" PRIu32 "-of-%03" PRIu32 ".bin", s,
                 load->shard_count);
        if (!rt_manifest_part_of(root, name, &part))
            return rt_fail(error, RT_DATA, "%s/" RT_MANIFEST_NAME " does not name %s", folder,
                           name);
        if (!part.has_xxh3)
            return rt_fail(error, RT_CONFIG,
                           "%s: a checkpoint; `lanyard export` makes a model of it", folder);
        load->files[s].bytes = part.sum.bytes;
        load->files[s].hash = part.xxh3;
    }
    load->flags = RT_WIRE_LOAD_MODEL;
    if (!rt_control_put_text(load->folder, sizeof load->folder, folder))
        return rt_fail(error, RT_CONFIG, "the path %s is too long", folder);
    return RT_OK;
}

static rt_status read_file(const char *folder, const char *name, rt_bytes *bytes, rt_error *error)
{
    char path[PATH_SIZE];
    uint8_t block[65536];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rbe");
    if (!file)
        return rt_fail(error, rt_status_of_errno(errno), "cannot open %s: %s", path,
                       strerror(errno));
    for (size_t got = 1; got > 0;) {
        got = fread(block, 1, sizeof block, file);
        rt_bytes_put(bytes, block, got);
    }
    const bool is_read = !ferror(file);
    fclose(file);
    if (!is_read)
        return rt_fail(error, RT_IO, "cannot read %s", path);
    if (bytes->failed)
        return rt_fail(error, RT_NO_MEMORY, "out of memory: %s", path);
    return RT_OK;
}

static rt_status read_scale(const char *folder, const cJSON *root, uint32_t dense_count,
                            dp_initial *initial, rt_error *error)
{
    char path[PATH_SIZE];
    rt_manifest_part part;
    rt_tensors *tensors;
    uint64_t samples = initial->saved.samples; // of models of before
    (void)rt_manifest_u64(root, "scale_samples", UINT64_C(1) << 53, &samples);
    if (!rt_manifest_part_of(root, "scale.bin", &part))
        return RT_OK;
    snprintf(path, sizeof path, "%s/scale.bin", folder);
    rt_status status = rt_tensors_open(path, &tensors, error);
    if (status)
        return status;
    status = rt_scale_open(tensors, dense_count, &initial->scale, error);
    if (status)
        rt_fail_in(error, "%s", path);
    else
        rt_scale_go_on(initial->scale, samples);
    rt_tensors_close(tensors);
    return status;
}

static rt_status read_all(const char *folder, const cJSON *root, const rt_config *config,
                          const rt_schema *schema, dp_initial *initial, rt_error *error)
{
    dp_saved *saved = &initial->saved;
    uint32_t iterations = 0;
    saved->past = rt_alloc(1, sizeof *saved->past);
    saved->loads = rt_alloc(1, sizeof *saved->loads);
    if (!saved->past || !saved->loads)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    saved->count = 1;
    (void)rt_manifest_u32(root, "iteration", UINT32_MAX, &iterations);
    (void)rt_manifest_u64(root, "samples", UINT64_C(1) << 53, &saved->samples);
    rt_status status = take_rows(folder, root, saved->loads, error);
    if (status)
        return status;
    status = rt_manifest_check(folder, root, error);
    if (status)
        return status;
    status = read_file(folder, "dense.bin", &saved->dense, error);
    if (status)
        return status;
    status = read_scale(folder, root, schema->dense_count, initial, error);
    if (status)
        return status;
    const bool is_scaled =
        schema->dense_count && config->stream.dense_scaling == RT_SCALING_STANDARD;
    if (is_scaled != (initial->scale != NULL))
        return differ(folder, "stream.dense_scaling", scaling_name(initial->scale),
                      rt_config_choice_name("stream.dense_scaling", config->stream.dense_scaling),
                      error);
    rt_info("begins with the model %s, of %" PRIu32 " iterations and %" PRIu64 " samples", folder,
            iterations, saved->samples);
    return RT_OK;
}

static rt_status compare_and_read(const char *folder, const cJSON *root, const rt_config *config,
                                  const rt_schema *schema, dp_initial *initial, rt_error *error)
{
    rt_homes homes;
    rt_status status = compare(folder, config, schema, &homes, error);
    if (status)
        return status;
    status = read_all(folder, root, config, schema, initial, error);
    if (status)
        return status;
    if (homes == RT_HOMES_PLANNED)
        initial->saved.loads[0].flags |= RT_WIRE_LOAD_HOMES;
    return RT_OK;
}

rt_status dp_initial_read(const char *folder, const rt_config *config, const rt_schema *schema,
                          dp_initial *initial, rt_error *error)
{
    char path[PATH_MAX];
    cJSON *root = NULL;
    *initial = (dp_initial){0};
    if (!realpath(folder, path))
        return rt_fail(error, RT_NOT_FOUND, "--init %s: %s", folder, strerror(errno));
    if (strlen(path) >= RT_FOLDER_MAX)
        return rt_fail(error, RT_CONFIG, "--init: the path has more than %d bytes",
                       RT_FOLDER_MAX - 1);
    rt_status status = rt_manifest_read(path, &root, error);
    if (status == RT_NOT_FOUND)
        rt_fail(error, status, "%s: no " RT_MANIFEST_NAME ": expected the folder model/ of a run",
                path);
    else if (!status)
        status = compare_and_read(path, root, config, schema, initial, error);
    cJSON_Delete(root);
    if (status) {
        dp_initial_fini(initial);
        rt_fail_in(error, "--init");
    }
    return status;
}

void dp_initial_fini(dp_initial *initial)
{
    dp_saved_fini(&initial->saved);
    rt_scale_destroy(initial->scale);
    initial->scale = NULL;
}
