#define _GNU_SOURCE // qsort_r
#include "ps_lite/ps_snapshot.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/rt_hash.h"

#define ROWS_AHEAD 256u           // on disk, whose reading is started before they are written
#define STEPS_PER_PROGRESS 65536u // entries of the index, or comparisons

// ---- Writing ---------------------------------------------------------------------------------

// Collecting and sorting the entries of a large table takes longer than anybody accepts silence.
typedef struct {
    ps_progress progress;
    void *context;
    rt_error *error;
    uint32_t steps;
    rt_status status; // of the progress that ended it
} pace;

static void step(pace *p)
{
    if (++p->steps % STEPS_PER_PROGRESS == 0 && p->progress && !p->status)
        p->status = p->progress(p->context, -1, p->error);
}

static int compare_keys(const void *a, const void *b, void *context)
{
    const uint64_t x = ((const ps_entry *)a)->key, y = ((const ps_entry *)b)->key;
    step(context);
    return x < y ? -1 : x > y;
}

// Most entries are of no file of changes: there is room for those that are, and no more.
static rt_status count_entries(const ps_table *table, const ps_model_info *info, pace *p,
                               uint64_t *count_p)
{
    uint64_t at = 0;
    *count_p = ps_table_count(table);
    if (info->base == 0)
        return RT_OK;
    *count_p = 0;
    for (const ps_entry *entry; !p->status && (entry = ps_table_next(table, &at));) {
        *count_p += entry->version > info->base;
        step(p);
    }
    return p->status;
}

// Copies of the entries whose rows are to be written, in the order of their keys. Keys that have
// left are entries without a row.
static rt_status collect(const ps_table *table, const ps_model_info *info, pace *p,
                         ps_entry *entries, uint64_t *count_p)
{
    uint64_t count = 0, at = 0;
    for (const ps_entry *entry; (entry = ps_table_next(table, &at));) {
        if (info->base == 0 || entry->version > info->base)
            entries[count++] = *entry;
        step(p);
        if (p->status)
            return p->status;
    }
    for (uint32_t i = 0; i < info->left_count; i++)
        entries[count++] = (ps_entry){.key = info->left[i]};
    qsort_r(entries, count, sizeof *entries, compare_keys, p);
    *count_p = count;
    return p->status;
}

static void announce(const ps_table *table, const ps_entry *entry)
{
    if (entry->row)
        ps_table_will_need(table, entry);
}

// nothing: zeros, for a key without a row.
static rt_status write_rows(const ps_table *table, const ps_entry *entries, uint64_t count,
                            const float *nothing, ps_model_writer *writer, ps_progress progress,
                            void *context, rt_error *error)
{
    for (uint64_t i = 0; i < count && i < ROWS_AHEAD; i++)
        announce(table, &entries[i]);
    for (uint64_t i = 0; i < count; i++) {
        const float *row = nothing;
        if (i + ROWS_AHEAD < count)
            announce(table, &entries[i + ROWS_AHEAD]);
        if (entries[i].row)
            row = ps_table_row(table, &entries[i]);
        rt_status status =
            ps_model_writer_add(writer, entries[i].key, entries[i].version, row, error);
        if (status)
            return status;
        if (!progress || i % PS_MODEL_BLOCK_ROWS != 0)
            continue;
        status = progress(context, -1, error);
        if (status)
            return status;
    }
    return RT_OK;
}

static rt_status write_collected(const ps_table *table, const ps_model_info *info,
                                 const rt_sink *sink, const ps_entry *entries, const float *nothing,
                                 const pace *p, rt_file_sum *sum_p, rt_error *error)
{
    ps_model_writer *writer;
    rt_status status = ps_model_writer_open(sink, info, &writer, error);
    if (status)
        return status;
    status = write_rows(table, entries, info->row_count, nothing, writer, p->progress, p->context,
                        error);
    if (status) {
        ps_model_writer_abort(writer);
        return status;
    }
    return ps_model_writer_commit(writer, sum_p, error);
}

rt_status ps_snapshot_write(const ps_table *table, const ps_model_info *info, const rt_sink *sink,
                            ps_progress progress, void *context, rt_file_sum *sum_p,
                            rt_error *error)
{
    ps_model_info own = *info;
    pace p = {.progress = progress, .context = context, .error = error};
    uint64_t count;
    rt_status status = count_entries(table, info, &p, &count);
    if (status)
        return status;
    ps_entry *entries = rt_alloc(count + info->left_count + 1, sizeof *entries);
    float *nothing = rt_alloc((size_t)info->dim + info->state_floats, sizeof *nothing);
    if (!entries || !nothing)
        status = rt_fail(error, RT_NO_MEMORY, "out of memory: %s", sink->name);
    if (!status)
        status = collect(table, info, &p, entries, &own.row_count);
    if (!status)
        status = write_collected(table, &own, sink, entries, nothing, &p, sum_p, error);
    rt_free(entries);
    rt_free(nothing);
    return status;
}

// ---- Reading ---------------------------------------------------------------------------------

static rt_status check_info(const ps_model_info *own, const char *path, const ps_model_info *info,
                            rt_error *error)
{
    if (info->dim != own->dim || info->state_floats != own->state_floats ||
        info->optimizer != own->optimizer)
        return rt_fail(error, RT_CONFIG,
                       "%s: rows of %u values and %u floats of state of optimizer %u; this run "
                       "has %u, %u, optimizer %u",
                       path, info->dim, info->state_floats, info->optimizer, own->dim,
                       own->state_floats, own->optimizer);
    if (info->schema != own->schema)
        return rt_fail(error, RT_CONFIG, "%s: schema %016" PRIx64 ", this run has %016" PRIx64,
                       path, info->schema, own->schema);
    return RT_OK;
}

typedef struct {
    ps_table *table;
    const ps_model_info *own;
    const char *path;
    uint32_t shard; // that the file is of
    uint32_t base;  // of changes: rows are replaced, and leave
} loading;

// Where homes are planned a row stays with the shard that had it; those of shards that are gone are
// dealt out by hash.
static bool is_own(const loading *l, uint64_t key)
{
    const ps_model_info *own = l->own;
    if (own->homes == RT_HOMES_PLANNED && l->shard < own->shard_count)
        return l->shard == own->shard;
    return rt_key_shard(key, own->shard_count) == own->shard;
}

// The key's row has left the file's shard. What came with other files of these changes is later
// than base.
static void leave(const loading *l, uint64_t key)
{
    const ps_entry *entry = ps_table_find(l->table, key);
    if (entry && entry->version <= l->base)
        (void)ps_table_erase(l->table, key);
}

static rt_status load_row(const loading *l, uint64_t key, uint32_t version, const float *row,
                          rt_error *error)
{
    if (!is_own(l, key))
        return RT_OK;
    if (version == 0 && l->base) {
        leave(l, key);
        return RT_OK;
    }
    ps_entry *entry = ps_table_find(l->table, key);
    if (entry && !l->base)
        return rt_fail(error, RT_DATA, "%s: a second row of key %016" PRIx64, l->path, key);
    if (!entry) {
        const rt_status status = ps_table_reserve(l->table, 1, error);
        if (status)
            return status;
        entry = ps_table_insert(l->table, key);
    }
    entry->version = version;
    memcpy(ps_table_row(l->table, entry), row,
           ((size_t)l->own->dim + l->own->state_floats) * sizeof *row);
    return RT_OK;
}

// RT_END: all of them.
static rt_status load_rows(const loading *l, ps_model_reader *reader, rt_error *error)
{
    for (;;) {
        uint64_t key;
        uint32_t version;
        const float *row;
        rt_status status = ps_model_reader_next(reader, &key, &version, &row, error);
        if (status)
            return status;
        status = load_row(l, key, version, row, error);
        if (status)
            return status;
    }
}

rt_status ps_snapshot_read(ps_table *table, ps_model_info *info, const char *path,
                           ps_progress progress, void *context, rt_file_sum *sum_p, rt_error *error)
{
    ps_model_info found;
    ps_model_reader *reader = NULL;
    rt_status status = ps_model_reader_open(path, progress, context, &found, &reader, error);
    if (status)
        return status;
    const loading l = {table, info, path, found.shard, found.base};
    status = check_info(info, path, &found, error);
    if (!status)
        status = load_rows(&l, reader, error);
    if (sum_p)
        *sum_p = ps_model_reader_sum(reader);
    ps_model_reader_close(reader);
    if (status != RT_END)
        return status;
    info->floor = found.floor;
    for (uint64_t at = 0; found.floor && ps_table_erase_below(table, found.floor, &at);) {
        // the rows of a shard take a moment, beside the reading of their file
    }
    return RT_OK;
}
