#include "ps_lite/ps_merge.h"

#include <inttypes.h>

#include "runtime/rt_hash.h"

typedef struct {
    const char *path;
    ps_model_reader *reader;
    ps_model_info info;
    uint64_t key; // of the row that comes next
    uint32_t version;
    const float *row;
    bool is_at_end;
} input;

typedef struct {
    input of[PS_MERGE_FILES_MAX];
    uint32_t count;
} inputs;

static void close_all(inputs *in)
{
    for (uint32_t i = 0; i < in->count; i++)
        ps_model_reader_close(in->of[i].reader);
}

static rt_status advance(input *one, bool is_first, rt_error *error)
{
    const uint64_t before = one->key;
    const rt_status status =
        ps_model_reader_next(one->reader, &one->key, &one->version, &one->row, error);
    if (status == RT_END) {
        one->is_at_end = true;
        return RT_OK;
    }
    if (!status && !is_first && one->key <= before)
        return rt_fail(error, RT_DATA, "%s: key %016" PRIx64 " stands behind key %016" PRIx64,
                       one->path, one->key, before);
    return status;
}

// Of one shard's chain, one behind the other.
static rt_status check_info(const input *one, const input *before, rt_error *error)
{
    const ps_model_info *a = &one->info;
    if (!before && a->base)
        return rt_fail(error, RT_DATA, "%s: changes since iteration %u, expected all rows",
                       one->path, a->base);
    if (!before)
        return RT_OK;
    const ps_model_info *b = &before->info;
    if (a->base != b->iteration || a->iteration <= a->base)
        return rt_fail(error, RT_DATA,
                       "%s: changes from iteration %u to %u, expected those since %u", one->path,
                       a->base, a->iteration, b->iteration);
    if (a->schema != b->schema || a->shard != b->shard || a->shard_count != b->shard_count ||
        a->dim != b->dim || a->state_floats != b->state_floats || a->optimizer != b->optimizer)
        return rt_fail(error, RT_DATA, "%s: of another shard, or rows of another kind than %s",
                       one->path, before->path);
    return RT_OK;
}

static rt_status open_all(inputs *in, const char *const *paths, uint32_t count, rt_error *error)
{
    *in = (inputs){0};
    for (uint32_t i = 0; i < count; i++) {
        input *one = &in->of[i];
        one->path = paths[i];
        rt_status status =
            ps_model_reader_open(paths[i], NULL, NULL, &one->info, &one->reader, error);
        if (status)
            return status;
        in->count++;
        status = check_info(one, i ? one - 1 : NULL, error);
        if (!status)
            status = advance(one, true, error);
        if (status)
            return status;
    }
    return RT_OK;
}

static const input *lowest(const inputs *in)
{
    const input *found = NULL;
    for (uint32_t i = 0; i < in->count; i++) {
        const input *one = &in->of[i];
        if (!one->is_at_end && (!found || one->key < found->key))
            found = one;
    }
    return found;
}

// What reading the files one after the other makes of a key. NULL: its row has ended or left.
static const input *fold(const inputs *in, uint64_t key)
{
    const input *last = NULL;
    for (uint32_t i = 0; i < in->count; i++) {
        const input *one = &in->of[i];
        if (!one->is_at_end && one->key == key)
            last = one;
        if (last == one && one->version == 0 && one->info.base)
            last = NULL;
        if (last && last->version < one->info.floor)
            last = NULL;
    }
    return last;
}

static rt_status pass_over(inputs *in, uint64_t key, rt_error *error)
{
    for (uint32_t i = 0; i < in->count; i++) {
        input *one = &in->of[i];
        if (one->is_at_end || one->key != key)
            continue;
        const rt_status status = advance(one, false, error);
        if (status)
            return status;
    }
    return RT_OK;
}

// writer: NULL: rows are counted. *count_p: in: at most so many.
static rt_status go_through(inputs *in, ps_model_writer *writer, uint64_t *count_p, rt_error *error)
{
    const input *next;
    uint64_t count = 0;
    while ((next = lowest(in))) {
        const uint64_t key = next->key;
        const input *row = fold(in, key);
        rt_status status = RT_OK;
        if (row && count++ == *count_p)
            return rt_fail(error, RT_DATA, "%s has changed while it was read", row->path);
        if (row && writer)
            status = ps_model_writer_add(writer, key, row->version, row->row, error);
        if (!status)
            status = pass_over(in, key, error);
        if (status)
            return status;
    }
    *count_p = count;
    return RT_OK;
}

static rt_status check_sums(const inputs *in, const rt_file_sum *sums, rt_error *error)
{
    for (uint32_t i = 0; i < in->count; i++) {
        const rt_file_sum sum = ps_model_reader_sum(in->of[i].reader);
        if (sum.bytes != sums[i].bytes || sum.hash != sums[i].hash)
            return rt_fail(error, RT_DATA, "%s is not the file that the manifest names",
                           in->of[i].path);
    }
    return RT_OK;
}

// The header of the result says how many rows it has.
static rt_status count_rows(const char *const *paths, const rt_file_sum *sums, uint32_t count,
                            ps_model_info *info, rt_error *error)
{
    inputs in;
    rt_status status = open_all(&in, paths, count, error);
    uint64_t rows = UINT64_MAX;
    if (!status)
        status = go_through(&in, NULL, &rows, error);
    if (!status)
        status = check_sums(&in, sums, error);
    *info = in.of[count - 1].info;
    info->base = info->floor = info->left_count = 0;
    info->row_count = rows;
    info->packed = true;
    close_all(&in);
    return status;
}

static rt_status write_rows(inputs *in, const rt_file_sum *sums, const ps_model_info *info,
                            const rt_sink *sink, rt_file_sum *sum_p, rt_error *error)
{
    ps_model_writer *writer;
    uint64_t rows = info->row_count;
    rt_status status = ps_model_writer_open(sink, info, &writer, error);
    if (status)
        return status;
    status = go_through(in, writer, &rows, error);
    if (!status)
        status = check_sums(in, sums, error);
    if (!status && rows != info->row_count)
        status = rt_fail(error, RT_DATA, "%s has changed while it was read", in->of[0].path);
    if (!status)
        return ps_model_writer_commit(writer, sum_p, error);
    ps_model_writer_abort(writer);
    return status;
}

rt_status ps_merge(const char *const *paths, const rt_file_sum *sums, uint32_t count,
                   const rt_sink *sink, rt_file_sum *sum_p, rt_error *error)
{
    inputs in;
    ps_model_info info;
    rt_assert(count > 0 && count <= PS_MERGE_FILES_MAX);
    rt_status status = count_rows(paths, sums, count, &info, error);
    if (status)
        return status;
    status = open_all(&in, paths, count, error);
    if (!status)
        status = write_rows(&in, sums, &info, sink, sum_p, error);
    close_all(&in);
    return status;
}
