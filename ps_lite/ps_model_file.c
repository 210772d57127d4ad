#include "ps_lite/ps_model_file.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <zstd.h>

#include "runtime/files/rt_ahead.h"
#include "runtime/rt_hash.h"
#include "runtime/rt_build.h"

#define MAGIC UINT64_C(0x53574f524e594c52) // "RLYNROWS"
#define VERSION 2u
#define VERSION_FLOOR 3u // the same, and what a file of changes says of older ones
#define LEVEL 1          // of zstd
// Packing takes longer than all the rest of writing. Where a block gets less than an eighth
// smaller, as trained values do, so many after it are stored as they are, untried.
#define UNTRIED_BLOCKS 15u
#define PACKED 1u
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
    uint32_t iteration;
    uint32_t base;
} file_header;
_Static_assert(sizeof(file_header) == 64, "file layout");

// What follows it, where one of them is not 0 (VERSION_FLOOR).
typedef struct {
    uint32_t floor;      // rows whose version is below have ended
    uint32_t left_count; // rows of version 0, which are at other shards now
} file_floor;
_Static_assert(sizeof(file_floor) == 8, "file layout");
#define HEADER_BYTES (sizeof(file_header) + sizeof(uint64_t)) // with the checksum of all before
#define HEADER_BYTES_FLOOR (HEADER_BYTES + sizeof(file_floor))
#define HEADER_BYTES_MAX 4096u // of any version

// Followed by stored_bytes: row_count keys (8 bytes), row_count versions (4), row_count rows, zeros
// up to a multiple of 8; or, with the flag PACKED, a frame of zstd that holds these.
typedef struct {
    uint64_t checksum; // XXH3 of the rest of the block
    uint32_t row_count;
    uint32_t index; // of the block, from 0
    uint32_t stored_bytes;
    uint32_t flags;
} block_header;
_Static_assert(sizeof(block_header) == 24, "file layout");

// One block in memory; where its columns stand follows from row_count.
typedef struct {
    uint8_t *bytes;  // header and columns
    uint8_t *packed; // header and frame; NULL where nothing is packed
    size_t row_bytes;
} block;

struct ps_model_writer {
    rt_sink sink;
    bool is_open; // the sink
    block block;
    ZSTD_CCtx *packer; // NULL: not packed
    uint32_t untried;  // so many blocks are not packed
    rt_file_sum sum;
    ps_model_info info;
    uint64_t written; // rows, those in the block included
    uint32_t block_index;
    uint32_t block_rows; // that the present block will have
    uint32_t filled;
};

struct ps_model_reader {
    rt_ahead *file;
    char *path;
    ps_progress progress;
    void *context;
    block block;
    ZSTD_DCtx *unpacker;
    rt_file_sum sum;
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

static size_t columns_size(size_t row_bytes, uint32_t rows)
{
    return block_size(row_bytes, rows) - sizeof(block_header);
}

// bytes: a header, and what it says is stored.
static uint64_t block_checksum(const uint8_t *bytes)
{
    const size_t from = sizeof(uint64_t);
    const block_header *header = (const block_header *)(const void *)bytes;
    return rt_hash_bytes(bytes + from, sizeof *header - from + header->stored_bytes);
}

static void add_to_sum(rt_file_sum *sum, size_t bytes, uint64_t checksum)
{
    sum->bytes += bytes;
    sum->hash = rt_mix(sum->hash ^ checksum);
}

static rt_status block_init(block *one, const ps_model_info *info, bool packs)
{
    const uint32_t rows = (uint32_t)rt_min_u64(PS_MODEL_BLOCK_ROWS, info->row_count);
    one->row_bytes = ((size_t)info->dim + info->state_floats) * sizeof(float);
    one->bytes = rt_alloc(1, block_size(one->row_bytes, rows));
    if (packs)
        one->packed = rt_alloc(1, block_size(one->row_bytes, rows));
    if (!one->bytes || (packs && !one->packed))
        return RT_NO_MEMORY;
    return RT_OK;
}

static void block_fini(block *one)
{
    rt_free(one->bytes);
    rt_free(one->packed);
}

rt_status ps_model_file_path(const char *directory, uint32_t shard, uint32_t shard_count,
                             char *path, size_t size, rt_error *error)
{
    int length = snprintf(path, size, "%s/rows-%03u-of-%03u.bin", directory, shard, shard_count);
    if (length < 0 || (size_t)length >= size)
        return rt_fail(error, RT_CONFIG, "the path %s is too long", directory);
    return RT_OK;
}

// ---- Writing ---------------------------------------------------------------------------------

static uint32_t rows_of_next_block(const ps_model_info *info, uint64_t before)
{
    return (uint32_t)rt_min_u64(PS_MODEL_BLOCK_ROWS, info->row_count - before);
}

static bool has_floor(const ps_model_info *info)
{
    return info->floor || info->left_count;
}

static uint32_t header_bytes(const ps_model_info *info)
{
    return has_floor(info) ? HEADER_BYTES_FLOOR : HEADER_BYTES;
}

// bytes: of the header, whose checksum is the last of them.
static uint64_t header_checksum(const uint8_t *bytes, size_t size)
{
    uint64_t checksum;
    memcpy(&checksum, bytes + size - sizeof checksum, sizeof checksum);
    return checksum;
}

static uint32_t encode_header(const ps_model_info *info, uint8_t bytes[HEADER_BYTES_MAX])
{
    const file_floor floor = {info->floor, info->left_count};
    const uint32_t size = header_bytes(info);
    const size_t before = size - sizeof(uint64_t);
    file_header header = {.magic = MAGIC,
                          .version = has_floor(info) ? VERSION_FLOOR : VERSION,
                          .header_bytes = size,
                          .schema = info->schema,
                          .row_count = info->row_count,
                          .shard = info->shard,
                          .shard_count = info->shard_count,
                          .dim = info->dim,
                          .state_floats = info->state_floats,
                          .optimizer = info->optimizer,
                          .block_rows = PS_MODEL_BLOCK_ROWS,
                          .iteration = info->iteration,
                          .base = info->base};
    memcpy(bytes, &header, sizeof header);
    memcpy(bytes + sizeof header, &floor, before - sizeof header);
    const uint64_t checksum = rt_hash_bytes(bytes, before);
    memcpy(bytes + before, &checksum, sizeof checksum);
    return size;
}

static rt_status write_header(ps_model_writer *writer, rt_error *error)
{
    uint8_t bytes[HEADER_BYTES_MAX];
    const uint32_t size = encode_header(&writer->info, bytes);
    add_to_sum(&writer->sum, size, header_checksum(bytes, size));
    return writer->sink.write(writer->sink.context, bytes, size, error);
}

uint64_t ps_model_file_bytes(const ps_model_info *info)
{
    const size_t row_bytes = ((size_t)info->dim + info->state_floats) * sizeof(float);
    const uint64_t full = info->row_count / PS_MODEL_BLOCK_ROWS;
    const uint32_t rest = (uint32_t)(info->row_count % PS_MODEL_BLOCK_ROWS);
    uint64_t bytes = header_bytes(info) + full * block_size(row_bytes, PS_MODEL_BLOCK_ROWS);
    if (rest > 0)
        bytes += block_size(row_bytes, rest);
    return bytes;
}

static rt_status open_sink(ps_model_writer *writer, rt_error *error)
{
    const ps_model_info *info = &writer->info;
    uint64_t total = 0; // of a packed file nobody knows it before
    if (!info->packed)
        total = ps_model_file_bytes(info);
    const rt_status status = writer->sink.open(writer->sink.context, total, error);
    if (status)
        return status;
    writer->is_open = true;
    return write_header(writer, error);
}

rt_status ps_model_writer_open(const rt_sink *sink, const ps_model_info *info,
                               ps_model_writer **writer_p, rt_error *error)
{
    ps_model_writer *writer = rt_alloc(1, sizeof *writer);
    if (writer && info->packed)
        writer->packer = ZSTD_createCCtx();
    if (!writer || (info->packed && !writer->packer) ||
        block_init(&writer->block, info, info->packed)) {
        ps_model_writer_abort(writer);
        return rt_fail(error, RT_NO_MEMORY, "out of memory: %s", sink->name);
    }
    writer->sink = *sink;
    writer->info = *info;
    writer->block_rows = rows_of_next_block(info, 0);
    rt_status status = open_sink(writer, error);
    if (status) {
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
    if (writer->is_open)
        writer->sink.abort(writer->sink.context);
    block_fini(&writer->block);
    ZSTD_freeCCtx(writer->packer);
    rt_free(writer);
}

// packed: bytes, of zstd, of so many.
static bool is_worth_it(size_t packed, size_t size)
{
    return !ZSTD_isError(packed) && packed <= size - size / 8;
}

// The block as it is stored: packed if that makes it smaller.
static uint8_t *pack_block(ps_model_writer *writer)
{
    const block *one = &writer->block;
    block_header *header = (block_header *)(void *)one->bytes;
    const size_t size = columns_size(one->row_bytes, writer->block_rows);
    header->stored_bytes = (uint32_t)size;
    header->flags = 0;
    if (!writer->packer || writer->untried) {
        writer->untried -= writer->untried > 0;
        return one->bytes;
    }
    size_t packed = ZSTD_compressCCtx(writer->packer, one->packed + sizeof *header, size,
                                      one->bytes + sizeof *header, size, LEVEL);
    if (!is_worth_it(packed, size)) {
        writer->untried = UNTRIED_BLOCKS;
        return one->bytes;
    }
    header->stored_bytes = (uint32_t)packed;
    header->flags = PACKED;
    memcpy(one->packed, header, sizeof *header);
    return one->packed;
}

static rt_status write_block(ps_model_writer *writer, rt_error *error)
{
    const size_t size = block_size(writer->block.row_bytes, writer->block_rows);
    block_header *header = (block_header *)(void *)writer->block.bytes;
    header->row_count = writer->block_rows;
    header->index = writer->block_index++;
    uint8_t *end = block_row(&writer->block, writer->block_rows, writer->block_rows);
    memset(end, 0, size - (size_t)(end - writer->block.bytes));
    uint8_t *stored = pack_block(writer);
    header = (block_header *)(void *)stored;
    header->checksum = block_checksum(stored);
    writer->block_rows = rows_of_next_block(&writer->info, writer->written);
    writer->filled = 0;
    add_to_sum(&writer->sum, sizeof *header + header->stored_bytes, header->checksum);
    return writer->sink.write(writer->sink.context, stored, sizeof *header + header->stored_bytes,
                              error);
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
    if (writer->filled < rows)
        return RT_OK;
    return write_block(writer, error);
}

rt_status ps_model_writer_commit(ps_model_writer *writer, rt_file_sum *sum_p, rt_error *error)
{
    rt_assert(writer->written == writer->info.row_count && writer->filled == 0);
    rt_status status = writer->sink.commit(writer->sink.context, error);
    if (sum_p)
        *sum_p = writer->sum;
    writer->is_open = false;
    ps_model_writer_abort(writer);
    return status;
}

// ---- Reading ---------------------------------------------------------------------------------

// wait_fd: until it is readable; -1: not at all.
static rt_status make_progress(const ps_model_reader *reader, int wait_fd, rt_error *error)
{
    struct pollfd one = {.fd = wait_fd, .events = POLLIN};
    if (reader->progress)
        return reader->progress(reader->context, wait_fd, error);
    if (wait_fd >= 0)
        (void)poll(&one, 1, -1);
    return RT_OK;
}

// RT_END: the file ends before.
static rt_status read_some(ps_model_reader *reader, void *bytes, size_t size, rt_error *error)
{
    uint8_t *next = bytes;
    while (size > 0) {
        size_t got = 0;
        rt_status status = rt_ahead_take(reader->file, next, size, &got, error);
        if (status != RT_OK && status != RT_AGAIN)
            return status;
        next += got;
        size -= got;
        const int wait_fd = status == RT_AGAIN ? rt_ahead_fd(reader->file) : -1;
        status = make_progress(reader, wait_fd, error);
        if (status)
            return status;
    }
    return RT_OK;
}

static rt_status read_bytes(ps_model_reader *reader, void *bytes, size_t size, rt_error *error)
{
    rt_status status = read_some(reader, bytes, size, error);
    if (status != RT_END)
        return status;
    return rt_fail(error, RT_DATA, "%s ends early, after %" PRIu64 " of %" PRIu64 " rows",
                   reader->path, reader->taken, reader->info.row_count);
}

// Whether `got` bytes from the start of a file hold its header, whole and of a version that is
// known. Its size and, at its end, the checksum stand where they are in any version.
static rt_status check_header(const char *path, const uint8_t *bytes, size_t got, rt_error *error)
{
    file_header header = {0};
    if (got >= HEADER_BYTES)
        memcpy(&header, bytes, sizeof header);
    if (header.magic != MAGIC)
        return rt_fail(error, RT_DATA, "%s is not a file of rows", path);
    const size_t size = header.header_bytes;
    if (size < HEADER_BYTES || size > HEADER_BYTES_MAX || got < size ||
        header_checksum(bytes, size) != rt_hash_bytes(bytes, size - sizeof(uint64_t)))
        return rt_fail(error, RT_DATA, "%s: the header is damaged", path);
    if (header.version > VERSION_FLOOR)
        return rt_fail_format(error, path, header.version, VERSION_FLOOR, NULL);
    if (header.version < VERSION ||
        size != (header.version == VERSION ? HEADER_BYTES : HEADER_BYTES_FLOOR))
        return rt_fail(error, RT_DATA, "%s has format version %u, expected %u or %u", path,
                       header.version, VERSION, VERSION_FLOOR);
    return RT_OK;
}

// got: bytes from the start of the file, HEADER_BYTES_MAX where it has so many.
static rt_status decode_header(const char *path, const uint8_t *bytes, size_t got,
                               ps_model_info *info, rt_error *error)
{
    file_header header;
    file_floor floor = {0};
    rt_status status = check_header(path, bytes, got, error);
    if (status)
        return status;
    memcpy(&header, bytes, sizeof header);
    if (header.version == VERSION_FLOOR)
        memcpy(&floor, bytes + sizeof header, sizeof floor);
    if (header.block_rows != PS_MODEL_BLOCK_ROWS || header.dim == 0 ||
        header.dim > ROW_FLOATS_MAX || header.state_floats > ROW_FLOATS_MAX ||
        header.shard >= header.shard_count || floor.left_count > header.row_count ||
        (floor.left_count && !header.base))
        return rt_fail(error, RT_DATA,
                       "%s: dimension %u, state %u, shard %u of %u, blocks of %u are impossible",
                       path, header.dim, header.state_floats, header.shard, header.shard_count,
                       header.block_rows);
    *info = (ps_model_info){.schema = header.schema,
                            .row_count = header.row_count,
                            .shard = header.shard,
                            .shard_count = header.shard_count,
                            .dim = header.dim,
                            .state_floats = header.state_floats,
                            .optimizer = header.optimizer,
                            .iteration = header.iteration,
                            .base = header.base,
                            .floor = floor.floor,
                            .left_count = floor.left_count};
    return RT_OK;
}

static rt_status read_header(ps_model_reader *reader, rt_error *error)
{
    file_header header;
    uint8_t bytes[HEADER_BYTES_MAX];
    size_t got = 0;
    rt_status status = read_some(reader, bytes, HEADER_BYTES, error);
    if (!status) {
        got = HEADER_BYTES;
        memcpy(&header, bytes, sizeof header);
    }
    if (got && header.header_bytes > got && header.header_bytes <= HEADER_BYTES_MAX) {
        status = read_some(reader, bytes + got, header.header_bytes - got, error);
        got = status ? got : header.header_bytes;
    }
    if (status && status != RT_END)
        return status;
    status = decode_header(reader->path, bytes, got, &reader->info, error);
    if (status)
        return status;
    add_to_sum(&reader->sum, got, header_checksum(bytes, got));
    return RT_OK;
}

static rt_status open_file(ps_model_reader *reader, rt_error *error)
{
    rt_status status = rt_ahead_open(reader->path, &reader->file, error);
    if (status)
        return status;
    status = read_header(reader, error);
    if (status)
        return status;
    reader->unpacker = ZSTD_createDCtx();
    if (!reader->unpacker || block_init(&reader->block, &reader->info, true))
        return rt_fail(error, RT_NO_MEMORY, "out of memory: %s", reader->path);
    return RT_OK;
}

rt_status ps_model_reader_open(const char *path, ps_progress progress, void *context,
                               ps_model_info *info, ps_model_reader **reader_p, rt_error *error)
{
    ps_model_reader *reader = rt_alloc(1, sizeof *reader);
    if (reader)
        reader->path = rt_alloc(strlen(path) + 1, 1);
    if (!reader || !reader->path) {
        ps_model_reader_close(reader);
        return rt_fail(error, RT_NO_MEMORY, "out of memory: %s", path);
    }
    strcpy(reader->path, path);
    reader->progress = progress;
    reader->context = context;
    const rt_status status = open_file(reader, error);
    if (status) {
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
    rt_ahead_close(reader->file);
    rt_free(reader->path);
    block_fini(&reader->block);
    ZSTD_freeDCtx(reader->unpacker);
    rt_free(reader);
}

static rt_status damaged(const ps_model_reader *reader, rt_error *error)
{
    return rt_fail(error, RT_DATA, "%s: block %u (rows from %" PRIu64 " on) is damaged",
                   reader->path, reader->block_index, reader->taken);
}

// Whether a block of `size` bytes in memory may be stored so: packed ones are smaller.
static bool is_stored_size(const block_header *header, size_t size)
{
    if (header->flags & PACKED)
        return header->stored_bytes < size;
    return header->stored_bytes == size;
}

// The columns of a block that is in one->packed as it is stored; they have `size` bytes.
static bool unpack(ZSTD_DCtx *unpacker, block *one, size_t size)
{
    const block_header *header = (const block_header *)(const void *)one->packed;
    uint8_t *columns = one->bytes + sizeof *header;
    if (header->flags & PACKED)
        return ZSTD_decompressDCtx(unpacker, columns, size, header + 1, header->stored_bytes) ==
               size;
    memcpy(columns, header + 1, size);
    return true;
}

// One that is not packed goes where it belongs at once: whoever merges has a block of many files in
// memory.
static rt_status read_block(ps_model_reader *reader, rt_error *error)
{
    const uint32_t rows = rows_of_next_block(&reader->info, reader->taken);
    const size_t size = columns_size(reader->block.row_bytes, rows);
    block_header header;
    rt_status status = read_bytes(reader, &header, sizeof header, error);
    if (status)
        return status;
    if (header.flags & ~PACKED || header.row_count != rows || header.index != reader->block_index ||
        !is_stored_size(&header, size))
        return damaged(reader, error);
    const bool is_packed = header.flags & PACKED;
    uint8_t *stored = is_packed ? reader->block.packed : reader->block.bytes;
    memcpy(stored, &header, sizeof header);
    status = read_bytes(reader, stored + sizeof header, header.stored_bytes, error);
    if (status)
        return status;
    if (header.checksum != block_checksum(stored))
        return damaged(reader, error);
    if (is_packed && !unpack(reader->unpacker, &reader->block, size))
        return damaged(reader, error);
    add_to_sum(&reader->sum, sizeof header + header.stored_bytes, header.checksum);
    reader->block_index++;
    reader->block_rows = rows;
    reader->next = 0;
    return RT_OK;
}

rt_file_sum ps_model_reader_sum(const ps_model_reader *reader)
{
    return reader->sum;
}

rt_status ps_model_reader_next(ps_model_reader *reader, uint64_t *key_p, uint32_t *version_p,
                               const float **row_p, rt_error *error)
{
    if (reader->taken == reader->info.row_count) {
        uint8_t more;
        rt_status status = read_some(reader, &more, 1, error);
        if (status)
            return status;
        return rt_fail(error, RT_DATA, "%s goes on after its %" PRIu64 " rows", reader->path,
                       reader->info.row_count);
    }
    if (reader->next == reader->block_rows) {
        rt_status status = read_block(reader, error);
        if (status)
            return status;
    }
    const uint32_t i = reader->next++;
    *key_p = block_keys(&reader->block)[i];
    *version_p = block_versions(&reader->block, reader->block_rows)[i];
    *row_p = (const float *)(void *)block_row(&reader->block, reader->block_rows, i);
    reader->taken++;
    return RT_OK;
}

uint32_t ps_model_reader_ahead(const ps_model_reader *reader, const uint64_t **keys_p)
{
    *keys_p = block_keys(&reader->block) + reader->next;
    return reader->block_rows - reader->next;
}

// ---- Without state ---------------------------------------------------------------------------

// RT_DATA: the file ends before.
static rt_status read_at(int file, const char *name, uint64_t offset, void *to, size_t size,
                         rt_error *error)
{
    uint8_t *next = to;
    while (size > 0) {
        const ssize_t got = pread(file, next, size, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return rt_fail(error, RT_IO, "cannot read %s: %s", name, strerror(errno));
        if (got == 0)
            return rt_fail(error, RT_DATA, "%s ends early", name);
        next += got;
        offset += (uint64_t)got;
        size -= (size_t)got;
    }
    return RT_OK;
}

// bytes: HEADER_BYTES_MAX, or the whole file where it has fewer. *size_p: of the header.
static rt_status read_header_at(int file, const char *name, uint8_t bytes[HEADER_BYTES_MAX],
                                uint32_t *size_p, ps_model_info *info, rt_error *error)
{
    file_header header;
    const ssize_t got = pread(file, bytes, HEADER_BYTES_MAX, 0);
    if (got < 0)
        return rt_fail(error, RT_IO, "cannot read %s: %s", name, strerror(errno));
    const rt_status status = decode_header(name, bytes, (size_t)got, info, error);
    if (status)
        return status;
    memcpy(&header, bytes, sizeof header);
    *size_p = header.header_bytes;
    return RT_OK;
}

// A block of a file as it is stored, in one->packed, and its columns, in one->bytes. info: of the
// file.
static rt_status read_block_at(int file, const char *name, uint64_t offset,
                               const ps_model_info *info, ZSTD_DCtx *unpacker, block *one,
                               rt_error *error)
{
    block_header *header = (block_header *)(void *)one->packed;
    rt_status status = read_at(file, name, offset, header, sizeof *header, error);
    if (status)
        return status;
    const uint64_t before = (uint64_t)header->index * PS_MODEL_BLOCK_ROWS;
    const size_t size = columns_size(one->row_bytes, header->row_count);
    if (header->flags & ~PACKED || before >= info->row_count ||
        header->row_count != rows_of_next_block(info, before) || !is_stored_size(header, size))
        return rt_fail(error, RT_DATA, "%s: no block begins at byte %" PRIu64, name, offset);
    status = read_at(file, name, offset + sizeof *header, header + 1, header->stored_bytes, error);
    if (status)
        return status;
    if (header->checksum != block_checksum(one->packed) || !unpack(unpacker, one, size))
        return rt_fail(error, RT_DATA, "%s: block %" PRIu32 " is damaged", name, header->index);
    return RT_OK;
}

// The columns of `from` without state. Packed where that block is, and it is worth it.
static void strip_block(const block *from, block *to)
{
    const block_header *stored = (const block_header *)(const void *)from->packed;
    block_header *header = (block_header *)(void *)to->bytes;
    const uint32_t rows = stored->row_count;
    const size_t size = columns_size(to->row_bytes, rows);
    *header =
        (block_header){.row_count = rows, .index = stored->index, .stored_bytes = (uint32_t)size};
    memset(header + 1, 0, size);
    memcpy(block_keys(to), block_keys(from), rows * (sizeof(uint64_t) + sizeof(uint32_t)));
    for (uint32_t i = 0; i < rows; i++)
        memcpy(block_row(to, rows, i), block_row(from, rows, i), to->row_bytes);
    if (!(stored->flags & PACKED))
        return;
    const size_t packed =
        ZSTD_compress(to->packed + sizeof *header, size, to->bytes + sizeof *header, size, LEVEL);
    if (!is_worth_it(packed, size))
        return;
    header->stored_bytes = (uint32_t)packed;
    header->flags = PACKED;
    memcpy(header + 1, to->packed + sizeof *header, packed);
}

static rt_status put_block(int file, const char *name, uint64_t offset, const ps_model_info *info,
                           block *from, block *to, rt_bytes *part, rt_error *error)
{
    ZSTD_DCtx *unpacker = ZSTD_createDCtx();
    rt_status status = RT_NO_MEMORY;
    if (!unpacker)
        rt_fail(error, status, "out of memory: %s", name);
    else
        status = read_block_at(file, name, offset, info, unpacker, from, error);
    ZSTD_freeDCtx(unpacker);
    if (status)
        return status;
    uint8_t *stored = from->packed;
    if (info->state_floats) {
        strip_block(from, to);
        stored = to->bytes;
    }
    block_header *header = (block_header *)(void *)stored;
    header->checksum = block_checksum(stored);
    rt_bytes_put(part, stored, sizeof *header + header->stored_bytes);
    return RT_OK;
}

rt_status ps_model_values(int file, const char *name, uint64_t offset, rt_bytes *part,
                          uint64_t *next_p, uint64_t *checksum_p, rt_error *error)
{
    uint8_t bytes[HEADER_BYTES_MAX];
    uint32_t size = 0;
    ps_model_info info;
    rt_status status = read_header_at(file, name, bytes, &size, &info, error);
    if (status)
        return status;
    ps_model_info values = info;
    values.state_floats = 0;
    if (offset == 0) {
        *next_p = size;
        *checksum_p = header_checksum(bytes, size);
        if (info.state_floats)
            size = encode_header(&values, bytes);
        rt_bytes_put(part, bytes, size);
    } else {
        block from = {0}, to = {0};
        if (block_init(&from, &info, true) || block_init(&to, &values, true))
            status = rt_fail(error, RT_NO_MEMORY, "out of memory: %s", name);
        else
            status = put_block(file, name, offset, &info, &from, &to, part, error);
        if (!status) {
            const block_header *header = (const block_header *)(const void *)from.packed;
            *next_p = offset + sizeof *header + header->stored_bytes;
            *checksum_p = header->checksum;
        }
        block_fini(&from);
        block_fini(&to);
    }
    if (!status && part->failed)
        status = rt_fail(error, RT_NO_MEMORY, "out of memory: %s", name);
    return status;
}

bool ps_model_part_sum(uint64_t offset, const uint8_t *bytes, size_t size, uint64_t *checksum_p)
{
    block_header header;
    if (offset == 0) {
        if (check_header("", bytes, size, NULL))
            return false;
        *checksum_p = header_checksum(bytes, size);
        return true;
    }
    if (size < sizeof header)
        return false;
    memcpy(&header, bytes, sizeof header);
    *checksum_p = header.checksum;
    return header.stored_bytes == size - sizeof header &&
           header.checksum ==
               rt_hash_bytes(bytes + sizeof header.checksum, size - sizeof header.checksum);
}
