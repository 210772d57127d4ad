// The file of hot rows, and what of a configuration its keys depend on.
#include <cjson/cJSON.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dispatch/planner/dp_popularity.h"
#include "runtime/config/rt_formats.h"
#include "runtime/files/rt_file.h"
#include "runtime/files/rt_manifest.h"
#include "runtime/rt_json_read.h"
#include "runtime/rt_build.h"

#define VERSION 1u
#define KIND "profile"
#define LINE_MAX 64u         // of a row; the longest has 16 + 1 + 20 + 1 bytes
#define HEAD_MAX (64u << 10) // of the first line
#define ROWS_MAX UINT32_MAX  // that a simulation can number

// ---- what keys mean --------------------------------------------------------------------------

typedef struct {
    const char *key; // of the configuration
    char text[32];   // its word, or a hash of what counts
} meaning;

#define MEANINGS 3u

static void hash_text(rt_hasher *hasher, const char *text)
{
    rt_hasher_add(hasher, text, strlen(text) + 1);
}

static void hash_number(rt_hasher *hasher, double number)
{
    char text[32];
    hash_text(hasher, rt_json_format_double(number, text));
}

static void hash_u64(rt_hasher *hasher, uint64_t number)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRIu64, number);
    hash_text(hasher, text);
}

// Numbers of enums count as they do in rt_config_schema: enums grow at their ends.
static void hash_columns(rt_hasher *hasher, const rt_table_config *table)
{
    for (uint32_t i = 0; i < table->column_count; i++) {
        const rt_column *column = &table->columns[i];
        if (column->kind != RT_COLUMN_CATEGORICAL && column->kind != RT_COLUMN_MULTI)
            continue;
        hash_text(hasher, column->name);
        hash_u64(hasher, column->kind);
        hash_u64(hasher, column->id);
        hash_u64(hasher, column->transform);
        hash_text(hasher, column->missing);
        for (uint32_t k = 0; k < column->from_count; k++)
            hash_text(hasher, column->from[k]);
        for (uint32_t k = 0; k < column->edge_count; k++)
            hash_number(hasher, column->edges[k]);
    }
}

static const char *hash_source(rt_hasher *hasher, const rt_config *config)
{
    const rt_stream_config *stream = &config->stream;
    switch (stream->format) {
    case RT_FORMAT_TABLE:
    case RT_FORMAT_JSON:
        hash_columns(hasher, &stream->table);
        return "stream.table.columns";
    case RT_FORMAT_LIBSVM:
        hash_u64(hasher, stream->libsvm.index_first);
        hash_u64(hasher, stream->libsvm.dense_count);
        for (uint32_t f = 0; f < stream->libsvm.field_count; f++)
            hash_u64(hasher, stream->libsvm.fields[f]);
        return "stream.libsvm";
    case RT_FORMAT_SYNTHETIC: // the seed says which ids are popular
        hash_u64(hasher, config->seed);
        hash_u64(hasher, stream->synthetic_shape);
        hash_number(hasher, stream->synthetic_scale);
        hash_number(hasher, stream->synthetic_zipf);
        hash_u64(hasher, stream->synthetic_clusters);
        hash_number(hasher, stream->synthetic_drift);
        if (stream->synthetic_first)
            hash_u64(hasher, stream->synthetic_first);
        return "stream.synthetic and seed";
    default: // the format says it all
        return NULL;
    }
}

static void hash_tables(rt_hasher *hasher, const rt_schema *schema)
{
    for (uint32_t f = 0; f < schema->field_count; f++) {
        hash_text(hasher, schema->field_names[f]);
        hash_u64(hasher, rt_tables_of(&schema->tables, f));
    }
}

// Returns how many; 0: out of memory.
static uint32_t find_meanings(const rt_config *config, const rt_schema *schema,
                              meaning meanings[MEANINGS])
{
    uint32_t count = 1;
    rt_hasher *source = rt_hasher_create(), *tables = rt_hasher_create();
    if (source && tables) {
        const char *key = hash_source(source, config);
        hash_tables(tables, schema);
        meanings[0].key = "stream.format";
        snprintf(meanings[0].text, sizeof meanings[0].text, "%s",
                 rt_config_choice_name("stream.format", (int)config->stream.format));
        if (key) {
            meanings[count].key = key;
            snprintf(meanings[count++].text, sizeof meanings[0].text, "%016" PRIx64,
                     rt_hasher_sum(source));
        }
        meanings[count].key = "stream.tables";
        snprintf(meanings[count++].text, sizeof meanings[0].text, "%016" PRIx64,
                 rt_hasher_sum(tables));
    } else {
        count = 0;
    }
    rt_hasher_destroy(source);
    rt_hasher_destroy(tables);
    return count;
}

// ---- writing ---------------------------------------------------------------------------------

static size_t format_row(const dp_popular *use, char line[LINE_MAX])
{
    return (size_t)snprintf(line, LINE_MAX, "%016" PRIx64 " %" PRIu64 "\n", use->key, use->uses);
}

static rt_status hash_rows(const dp_popular *uses, uint64_t count, uint64_t *hash_p)
{
    char line[LINE_MAX];
    rt_hasher *hasher = rt_hasher_create();
    if (!hasher)
        return RT_NO_MEMORY;
    for (uint64_t i = 0; i < count; i++)
        rt_hasher_add(hasher, line, format_row(&uses[i], line));
    *hash_p = rt_hasher_sum(hasher);
    rt_hasher_destroy(hasher);
    return RT_OK;
}

// On one line.
static void write_head(rt_json *json, const dp_popularity *profile, const rt_config *config,
                       const meaning *meanings, uint32_t meaning_count, uint64_t hot_rows,
                       uint64_t hash)
{
    rt_json_begin_object(json, NULL);
    rt_json_u64(json, "version", VERSION);
    rt_json_string(json, "kind", KIND);
    rt_json_begin_object(json, "schema");
    for (uint32_t i = 0; i < meaning_count; i++)
        rt_json_string(json, meanings[i].key, meanings[i].text);
    rt_json_end_object(json);
    rt_json_u64(json, "dim", config->model.embedding_dim);
    rt_json_u64(json, "samples", profile->samples);
    rt_json_u64(json, "lookups", profile->lookups);
    rt_json_u64(json, "rows", profile->row_count);
    rt_json_string(json, "end", dp_popularity_end_name(profile->end));
    rt_json_u64(json, "hot_rows", hot_rows);
    rt_manifest_put_hash(json, "xxh3", hash);
    rt_json_end_object(json);
}

static rt_status write_lines(rt_file *file, const char *head, size_t head_size,
                             const dp_popular *uses, uint64_t count, rt_error *error)
{
    char line[LINE_MAX];
    rt_status status = rt_file_write(file, head, head_size, error);
    if (status)
        return status;
    status = rt_file_write(file, "\n", 1, error);
    if (status)
        return status;
    for (uint64_t i = 0; i < count; i++) {
        status = rt_file_write(file, line, format_row(&uses[i], line), error);
        if (status)
            return status;
    }
    return RT_OK;
}

static rt_status write_all(const rt_json *head, const dp_popular *uses, uint64_t count,
                           const char *path, rt_error *error)
{
    size_t size;
    rt_file *file;
    const char *text = rt_json_text(head, &size);
    if (!text)
        return rt_fail(error, RT_NO_MEMORY, "out of memory: %s", path);
    rt_status status = rt_file_create_named(path, &file, error);
    if (status)
        return status;
    status = write_lines(file, text, size, uses, count, error);
    if (!status)
        return rt_file_commit(file, error);
    rt_file_abort(file);
    return status;
}

rt_status dp_popularity_write(const dp_popularity *profile, const rt_config *config,
                              const rt_schema *schema, uint64_t hot_rows, const char *path,
                              rt_error *error)
{
    uint64_t hash;
    rt_json head;
    meaning meanings[MEANINGS];
    const uint64_t count = rt_min_u64(hot_rows, profile->row_count);
    const uint32_t meaning_count = find_meanings(config, schema, meanings);
    if (meaning_count == 0 || hash_rows(profile->uses, count, &hash))
        return rt_fail(error, RT_NO_MEMORY, "out of memory: %s", path);
    rt_json_init(&head, 0);
    write_head(&head, profile, config, meanings, meaning_count, count, hash);
    const rt_status status = write_all(&head, profile->uses, count, path, error);
    rt_json_fini(&head);
    return status;
}

// ---- reading ---------------------------------------------------------------------------------

typedef struct {
    const char *path;
    FILE *file;
    const rt_schema *schema;
    dp_popular *uses;
    uint64_t count, hash;
} reading;

static rt_status check_schema(const reading *r, const cJSON *root, const rt_config *config,
                              rt_error *error)
{
    meaning meanings[MEANINGS];
    const cJSON *schema = rt_json_member(root, "schema");
    const uint32_t count = find_meanings(config, r->schema, meanings);
    if (count == 0)
        return rt_fail(error, RT_NO_MEMORY, "out of memory: %s", r->path);
    for (uint32_t i = 0; i < count; i++) {
        const char *got = rt_json_text_of(schema, meanings[i].key);
        if (strcmp(got, meanings[i].text) != 0)
            return rt_fail(error, RT_DATA,
                           "%s: taken with another %s (%s), expected that of this configuration "
                           "(%s)",
                           r->path, meanings[i].key, got, meanings[i].text);
    }
    return RT_OK;
}

static rt_status read_head(reading *r, const rt_config *config, char *text, rt_error *error)
{
    size_t byte;
    uint32_t version;
    rt_status status = RT_OK;
    if (!fgets(text, HEAD_MAX, r->file) && ferror(r->file))
        return rt_fail(error, RT_IO, "cannot read %s: %s", r->path, strerror(errno));
    cJSON *root = rt_json_parse(text, strlen(text), &byte);
    if (strcmp(rt_json_text_of(root, "kind"), KIND) != 0 ||
        !rt_manifest_u32(root, "version", UINT32_MAX, &version))
        status = rt_fail(error, RT_DATA, "%s:1: not a file of `lanyard profile`", r->path);
    else if (version != VERSION)
        status = rt_fail_format(error, r->path, version, VERSION, NULL);
    else if (!rt_manifest_u64(root, "hot_rows", ROWS_MAX, &r->count) ||
             !rt_manifest_hash(root, "xxh3", &r->hash))
        status = rt_fail(error, RT_DATA, "%s:1: expected \"hot_rows\" and \"xxh3\"", r->path);
    else
        status = check_schema(r, root, config, error);
    cJSON_Delete(root);
    return status;
}

// As format_row writes it, and of a table of the stream.
static bool parse_row(const rt_schema *schema, const char *line, dp_popular *use)
{
    char again[LINE_MAX];
    if (sscanf(line, "%16" SCNx64 " %20" SCNu64, &use->key, &use->uses) != 2)
        return false;
    format_row(use, again);
    const uint32_t field = rt_key_field(use->key);
    return strcmp(line, again) == 0 && field < schema->field_count &&
           rt_tables_of(&schema->tables, field) == field;
}

// The array grows with what was read, not with what the head promises.
static rt_status read_rows(reading *r, rt_hasher *hasher, rt_error *error)
{
    char line[LINE_MAX];
    uint32_t capacity = 0;
    uint64_t count = 0;
    while (fgets(line, sizeof line, r->file)) {
        if (count == r->count)
            return rt_fail(error, RT_DATA,
                           "%s:%" PRIu64 ": expected the end after %" PRIu64 " rows", r->path,
                           count + 2, count);
        if (rt_grow(&r->uses, &capacity, count + 1, sizeof *r->uses))
            return rt_fail(error, RT_NO_MEMORY, "out of memory: %s", r->path);
        if (!parse_row(r->schema, line, &r->uses[count]))
            return rt_fail(error, RT_DATA,
                           "%s:%" PRIu64 ": expected 16 digits of a row's key, a space, its uses",
                           r->path, count + 2);
        rt_hasher_add(hasher, line, strlen(line));
        count++;
    }
    if (ferror(r->file))
        return rt_fail(error, RT_IO, "cannot read %s: %s", r->path, strerror(errno));
    if (count != r->count)
        return rt_fail(error, RT_DATA, "%s: %" PRIu64 " rows, expected %" PRIu64, r->path, count,
                       r->count);
    if (rt_hasher_sum(hasher) != r->hash)
        return rt_fail(error, RT_DATA, "%s: damaged: the sum of its rows is not \"xxh3\"", r->path);
    return RT_OK;
}

// text, hasher: room for the head, and for the sum of the rows; NULL: there was no memory.
static rt_status read_all(reading *r, const rt_config *config, char *text, rt_hasher *hasher,
                          rt_error *error)
{
    if (!text || !hasher)
        return rt_fail(error, RT_NO_MEMORY, "out of memory: %s", r->path);
    const rt_status status = read_head(r, config, text, error);
    if (status)
        return status;
    return read_rows(r, hasher, error);
}

rt_status dp_popularity_read(const char *path, const rt_config *config, const rt_schema *schema,
                             dp_popular **uses_p, uint64_t *count_p, rt_error *error)
{
    reading r = {.path = path, .schema = schema, .file = fopen(path, "rbe")};
    if (!r.file && errno == ENOENT)
        return rt_fail(error, RT_DATA, "cannot open %s: %s", path, strerror(errno));
    if (!r.file)
        return rt_fail(error, rt_status_of_errno(errno), "cannot open %s: %s", path,
                       strerror(errno));
    char *text = rt_alloc(HEAD_MAX, 1);
    rt_hasher *hasher = rt_hasher_create();
    const rt_status status = read_all(&r, config, text, hasher, error);
    rt_hasher_destroy(hasher);
    rt_free(text);
    fclose(r.file);
    if (status) {
        rt_free(r.uses);
        return status;
    }
    *uses_p = r.uses;
    *count_p = r.count;
    return RT_OK;
}
