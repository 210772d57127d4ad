#include "ps_lite/ps_model_file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/rt_file.h"
#include "runtime/rt_hash.h"

#define MAGIC UINT64_C(0x53574f524e594c52) // "RLYNROWS"
#define VERSION 1u
#define ROW_FLOATS_MAX (UINT32_C(1) << 16)

typedef struct {
    uint64_t magic;
    uint32_t version;
    uint32_t header_bytes;
    uint64_t schema;
    uint64_t row_count;
    uint32_t shard;
    uint32_t shard_count;
    uint32_t dim;
    uint32_t state_floats;
    uint32_t optimizer;
    uint32_t block_rows; // rows of every block but the last
    uint64_t checksum;   // XXH3 of the bytes before
} file_header;
_Static_assert(sizeof(file_header) == 64, "file layout");

// Followed by row_count keys (8 bytes), row_count versions (4), row_count rows, zeros up to a
// multiple of 8.
typedef struct {
    uint64_t checksum; // XXH3 of the rest of the block
    uint32_t row_count;
    uint32_t index; // of the block, from 0
} block_header;
_Static_assert(sizeof(block_header) == 16, "file layout");

// One block in memory; where its columns stand follows from row_count.
typedef struct {
    uint8_t *bytes;
    size_t row_bytes;
} block;

struct ps_model_writer {
    rt_file *file;
    block block;
    ps_model_info info;
    uint64_t written; // rows, those in the block included
    uint32_t block_index;
    uint32_t block_rows; // that the present block will have
    uint32_t filled;
};

struct ps_model_reader {
    FILE *file;
    char *path;
    block block;
    ps_model_info info;
    uint64_t taken; // rows given out
    uint32_t block_index;
    uint32_t block_rows;
    uint32_t next; // row of the block
};

static uint64_t *block_keys(const block *one)
{
    return (uint64_t *)(void *)(one->bytes + sizeof(block_header));
}

static uint32_t *block_versions(const block *one, uint32_t rows)
{
    return (uint32_t *)(void *)(block_keys(one) + rows);
}

static uint8_t *block_row(const block *one, uint32_t rows, uint32_t i)
{
    return (uint8_t *)(block_versions(one, rows) + rows) + i * one->row_bytes;
}

static size_t block_size(size_t row_bytes, uint32_t rows)
{
    size_t size = sizeof(block_header) + rows * (sizeof(uint64_t) + sizeof(uint32_t) + row_bytes);
    return (size + 7) / 8 * 8;
}

static uint64_t block_checksum(const block *one, uint32_t rows)
{
    const size_t from = sizeof(uint64_t);
    return rt_hash_bytes(one->bytes + from, block_size(one->row_bytes, rows) - from);
}

static rt_status block_init(block *one, const ps_model_info *info)
{
    const uint32_t rows = (uint32_t)rt_min_u64(PS_MODEL_BLOCK_ROWS, info->row_count);
    one->row_bytes = ((size_t)info->dim + info->state_floats) * sizeof(float);
    one->bytes = rt_alloc(1, block_size(one->row_bytes, rows));
    return one->bytes ? RT_OK : RT_NO_MEMORY;
}

rt_status ps_model_file_path(const char *directory, uint32_t shard, uint32_t shard_count,
                             char *path, size_t size, rt_error *error)
{
    int length = snprintf(path, size, "%s/rows-%03u-of-%03u.bin", directory, shard, shard_count);
    if (length < 0 || (size_t)length >= size)
        return rt_fail(error, RT_CONFIG, "the path %s is too long", directory);
    return RT_OK;
}

// ---- Writing

static uint32_t rows_of_next_block(const ps_model_info *info, uint64_t before)
{
    return (uint32_t)rt_min_u64(PS_MODEL_BLOCK_ROWS, info->row_count - before);
}

static rt_status write_header(ps_model_writer *writer, rt_error *error)
{
    const ps_model_info *info = &writer->info;
    file_header header = {.magic = MAGIC,
                          .version = VERSION,
                          .header_bytes = sizeof header,
                          .schema = info->schema,
                          .row_count = info->row_count,
                          .shard = info->shard,
                          .shard_count = info->shard_count,
                          .dim = info->dim,
                          .state_floats = info->state_floats,
                          .optimizer = info->optimizer,
                          .block_rows = PS_MODEL_BLOCK_ROWS};
    header.checksum = rt_hash_bytes(&header, offsetof(file_header, checksum));
    return rt_file_write(writer->file, &header, sizeof header, error);
}

rt_status ps_model_writer_open(const char *path, const ps_model_info *info,
                               ps_model_writer **writer_p, rt_error *error)
{
    ps_model_writer *writer = rt_alloc(1, sizeof *writer);
    if (!writer || block_init(&writer->block, info) != RT_OK) {
        rt_free(writer);
        return rt_fail(error, RT_NO_MEMORY, "out of memory: %s", path);
    }
    writer->info = *info;
    writer->block_rows = rows_of_next_block(info, 0);
    rt_status status = rt_file_create(path, &writer->file, error);
    if (status == RT_OK)
        status = write_header(writer, error);
    if (status != RT_OK) {
        ps_model_writer_abort(writer);
        return status;
    }
    *writer_p = writer;
    return RT_OK;
}

void ps_model_writer_abort(ps_model_writer *writer)
{
    if (!writer)
        return;
    rt_file_abort(writer->file);
    rt_free(writer->block.bytes);
    rt_free(writer);
}

static rt_status write_block(ps_model_writer *writer, rt_error *error)
{
    const size_t size = block_size(writer->block.row_bytes, writer->block_rows);
    block_header *header = (block_header *)(void *)writer->block.bytes;
    header->row_count = writer->block_rows;
    header->index = writer->block_index++;
    uint8_t *end = block_row(&writer->block, writer->block_rows, writer->block_rows);
    memset(end, 0, size - (size_t)(end - writer->block.bytes));
    header->checksum = block_checksum(&writer->block, writer->block_rows);
    writer->block_rows = rows_of_next_block(&writer->info, writer->written);
    writer->filled = 0;
    return rt_file_write(writer->file, writer->block.bytes, size, error);
}

rt_status ps_model_writer_add(ps_model_writer *writer, uint64_t key, uint32_t version,
                              const float *row, rt_error *error)
{
    rt_assert(writer->written < writer->info.row_count);
    const uint32_t rows = writer->block_rows, i = writer->filled++;
    block_keys(&writer->block)[i] = key;
    block_versions(&writer->block, rows)[i] = version;
    memcpy(block_row(&writer->block, rows, i), row, writer->block.row_bytes);
    writer->written++;
    return writer->filled == rows ? write_block(writer, error) : RT_OK;
}

rt_status ps_model_writer_commit(ps_model_writer *writer, rt_error *error)
{
    rt_assert(writer->written == writer->info.row_count && writer->filled == 0);
    rt_status status = rt_file_commit(writer->file, error);
    rt_free(writer->block.bytes);
    rt_free(writer);
    return status;
}

// ---- Reading

static rt_status read_bytes(ps_model_reader *reader, void *bytes, size_t size, rt_error *error)
{
    if (fread(bytes, 1, size, reader->file) == size)
        return RT_OK;
    if (ferror(reader->file))
        return rt_fail(error, RT_IO, "cannot read %s: %s", reader->path, strerror(errno));
    return rt_fail(error, RT_DATA, "%s ends early, after %llu of %llu rows", reader->path,
                   (unsigned long long)reader->taken, (unsigned long long)reader->info.row_count);
}

static rt_status read_header(ps_model_reader *reader, rt_error *error)
{
    file_header header;
    size_t got = fread(&header, 1, sizeof header, reader->file);
    if (got != sizeof header || header.magic != MAGIC)
        return rt_fail(error, RT_DATA, "%s is not a file of rows", reader->path);
    if (header.version != VERSION)
        return rt_fail(error, RT_DATA, "%s has format version %u, expected %u", reader->path,
                       header.version, VERSION);
    if (header.checksum != rt_hash_bytes(&header, offsetof(file_header, checksum)))
        return rt_fail(error, RT_DATA, "%s: the header is damaged", reader->path);
    if (header.header_bytes != sizeof header || header.block_rows != PS_MODEL_BLOCK_ROWS ||
        header.dim == 0 || header.dim > ROW_FLOATS_MAX || header.state_floats > ROW_FLOATS_MAX ||
        header.shard >= header.shard_count)
        return rt_fail(error, RT_DATA,
                       "%s: dimension %u, state %u, shard %u of %u, blocks of %u are impossible",
                       reader->path, header.dim, header.state_floats, header.shard,
                       header.shard_count, header.block_rows);
    reader->info = (ps_model_info){.schema = header.schema,
                                   .row_count = header.row_count,
                                   .shard = header.shard,
                                   .shard_count = header.shard_count,
                                   .dim = header.dim,
                                   .state_floats = header.state_floats,
                                   .optimizer = header.optimizer};
    return RT_OK;
}

rt_status ps_model_reader_open(const char *path, ps_model_info *info, ps_model_reader **reader_p,
                               rt_error *error)
{
    ps_model_reader *reader = rt_alloc(1, sizeof *reader);
    if (reader)
        reader->path = rt_alloc(strlen(path) + 1, 1);
    if (!reader || !reader->path) {
        ps_model_reader_close(reader);
        return rt_fail(error, RT_NO_MEMORY, "out of memory: %s", path);
    }
    strcpy(reader->path, path);
    reader->file = fopen(path, "rbe");
    rt_status status = RT_OK;
    if (!reader->file)
        status = rt_fail(error, RT_IO, "cannot open %s: %s", path, strerror(errno));
    if (status == RT_OK)
        status = read_header(reader, error);
    if (status == RT_OK && block_init(&reader->block, &reader->info) != RT_OK)
        status = rt_fail(error, RT_NO_MEMORY, "out of memory: %s", path);
    if (status != RT_OK) {
        ps_model_reader_close(reader);
        return status;
    }
    *info = reader->info;
    *reader_p = reader;
    return RT_OK;
}

void ps_model_reader_close(ps_model_reader *reader)
{
    if (!reader)
        return;
    if (reader->file)
        fclose(reader->file);
    rt_free(reader->path);
    rt_free(reader->block.bytes);
    rt_free(reader);
}

static rt_status read_block(ps_model_reader *reader, rt_error *error)
{
    const uint32_t rows = rows_of_next_block(&reader->info, reader->taken);
    const block_header *header = (const block_header *)(void *)reader->block.bytes;
    const size_t size = block_size(reader->block.row_bytes, rows);
    rt_status status = read_bytes(reader, reader->block.bytes, size, error);
    if (status != RT_OK)
        return status;
    if (header->checksum != block_checksum(&reader->block, rows) || header->row_count != rows ||
        header->index != reader->block_index)
        return rt_fail(error, RT_DATA, "%s: block %u (rows from %llu on) is damaged", reader->path,
                       reader->block_index, (unsigned long long)reader->taken);
    reader->block_index++;
    reader->block_rows = rows;
    reader->next = 0;
    return RT_OK;
}

rt_status ps_model_reader_next(ps_model_reader *reader, uint64_t *key_p, uint32_t *version_p,
                               const float **row_p, rt_error *error)
{
    if (reader->taken == reader->info.row_count) {
        if (fgetc(reader->file) == EOF)
            return RT_END;
        return rt_fail(error, RT_DATA, "%s goes on after its %llu rows", reader->path,
                       (unsigned long long)reader->info.row_count);
    }
    if (reader->next == reader->block_rows) {
        rt_status status = read_block(reader, error);
        if (status != RT_OK)
            return status;
    }
    const uint32_t i = reader->next++;
    *key_p = block_keys(&reader->block)[i];
    *version_p = block_versions(&reader->block, reader->block_rows)[i];
    *row_p = (const float *)(void *)block_row(&reader->block, reader->block_rows, i);
    reader->taken++;
    return RT_OK;
}
