#include "runtime/files/rt_pack.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <zstd.h>

#include "runtime/files/rt_file.h"
#include "runtime/rt_hash.h"
#include "runtime/rt_build.h"

#define VERSION 1u
#define BLOCK_BYTES ((size_t)1 << 20) // before packing
#define LEVEL 1                       // of zstd: the fastest, most of what it can gain here

typedef struct {
    uint64_t magic;
    uint32_t version;
    uint32_t block_bytes; // of every block but the last, before packing
    uint64_t bytes;       // of all blocks, before packing
    uint64_t checksum;    // XXH3 of the bytes before
} file_header;
_Static_assert(sizeof(file_header) == 32, "file layout");

typedef struct {
    uint64_t checksum; // XXH3 of the rest of the header and the stored bytes
    uint32_t bytes;    // before packing
    uint32_t stored;   // that follow; less than bytes: packed
} block_header;
_Static_assert(sizeof(block_header) == 16, "file layout");

static uint64_t checksum_of(const block_header *header)
{
    const size_t from = sizeof header->checksum;
    return rt_hash_bytes((const uint8_t *)header + from, sizeof *header - from + header->stored);
}

// ---- writing ---------------------------------------------------------------------------------

// block: a header and room for the bytes of a block.
static rt_status write_block(rt_file *file, ZSTD_CCtx *packer, const uint8_t *from, size_t size,
                             uint8_t *block, rt_file_sum *sum, rt_error *error)
{
    block_header *header = (block_header *)(void *)block;
    uint8_t *stored = block + sizeof *header;
    size_t packed = ZSTD_compressCCtx(packer, stored, size, from, size, LEVEL);
    if (ZSTD_isError(packed) || packed >= size) {
        memcpy(stored, from, size);
        packed = size;
    }
    *header = (block_header){.bytes = (uint32_t)size, .stored = (uint32_t)packed};
    header->checksum = checksum_of(header);
    sum->bytes += sizeof *header + header->stored;
    sum->hash = rt_mix(sum->hash ^ header->checksum);
    return rt_file_write(file, block, sizeof *header + header->stored, error);
}

static rt_status write_all(rt_file *file, ZSTD_CCtx *packer, uint64_t magic, const uint8_t *bytes,
                           size_t size, uint8_t *block, rt_file_sum *sum, rt_error *error)
{
    file_header header = {magic, VERSION, (uint32_t)BLOCK_BYTES, size, 0};
    header.checksum = rt_hash_bytes(&header, offsetof(file_header, checksum));
    *sum = (rt_file_sum){sizeof header, header.checksum};
    rt_status status = rt_file_write(file, &header, sizeof header, error);
    if (status)
        return status;
    for (size_t at = 0; at < size; at += BLOCK_BYTES) {
        const size_t some = rt_min_u64(BLOCK_BYTES, size - at);
        status = write_block(file, packer, bytes + at, some, block, sum, error);
        if (status)
            return status;
    }
    return RT_OK;
}

rt_status rt_pack_write(const char *path, uint64_t magic, const void *bytes, size_t size,
                        rt_file_sum *sum, rt_error *error)
{
    rt_file *file = NULL;
    ZSTD_CCtx *packer = ZSTD_createCCtx();
    uint8_t *block = rt_alloc(sizeof(block_header) + BLOCK_BYTES, 1);
    rt_status status = RT_OK;
    if (!packer || !block)
        status = rt_fail(error, RT_NO_MEMORY, "out of memory: %s", path);
    if (!status)
        status = rt_file_create(path, &file, error);
    if (!status) {
        rt_file_hide(file); // what a planner keeps of events is in such a file
        status = write_all(file, packer, magic, bytes, size, block, sum, error);
        if (status)
            rt_file_abort(file);
        else
            status = rt_file_commit(file, error);
    }
    ZSTD_freeCCtx(packer);
    rt_free(block);
    return status;
}

// ---- reading ---------------------------------------------------------------------------------

typedef struct {
    FILE *file;
    const char *path;
    ZSTD_DCtx *unpacker;
    uint8_t *block;
    uint32_t index; // of the next block
} reader;

static rt_status take(reader *in, void *bytes, size_t size, rt_error *error)
{
    if (fread(bytes, 1, size, in->file) == size)
        return RT_OK;
    if (ferror(in->file))
        return rt_fail(error, RT_IO, "cannot read %s: %s", in->path, strerror(errno));
    return rt_fail(error, RT_DATA, "%s ends early, in block %u", in->path, in->index);
}

static rt_status damaged(const reader *in, rt_error *error)
{
    return rt_fail(error, RT_DATA, "%s: block %u is damaged", in->path, in->index);
}

static rt_status read_block(reader *in, size_t size, rt_bytes *bytes, rt_file_sum *sum,
                            rt_error *error)
{
    block_header *header = (block_header *)(void *)in->block;
    uint8_t *stored = in->block + sizeof *header;
    rt_status status = take(in, header, sizeof *header, error);
    if (status)
        return status;
    if (header->bytes != size || header->stored > size)
        return damaged(in, error);
    status = take(in, stored, header->stored, error);
    if (status)
        return status;
    if (header->checksum != checksum_of(header))
        return damaged(in, error);
    void *to = rt_bytes_extend(bytes, size);
    if (!to)
        return rt_fail(error, RT_NO_MEMORY, "out of memory: %s", in->path);
    if (header->stored == size)
        memcpy(to, stored, size);
    else if (ZSTD_decompressDCtx(in->unpacker, to, size, stored, header->stored) != size)
        return damaged(in, error);
    sum->bytes += sizeof *header + header->stored;
    sum->hash = rt_mix(sum->hash ^ header->checksum);
    in->index++;
    return RT_OK;
}

static rt_status read_all(reader *in, uint64_t magic, rt_bytes *bytes, rt_file_sum *sum,
                          rt_error *error)
{
    file_header header;
    if (fread(&header, 1, sizeof header, in->file) != sizeof header || header.magic != magic)
        return rt_fail(error, RT_DATA, "%s is not a file of its kind", in->path);
    if (header.checksum != rt_hash_bytes(&header, offsetof(file_header, checksum)))
        return rt_fail(error, RT_DATA, "%s: the header is damaged", in->path);
    if (header.version > VERSION)
        return rt_fail_format(error, in->path, header.version, VERSION, NULL);
    if (header.version != VERSION || header.block_bytes != BLOCK_BYTES)
        return rt_fail(error, RT_DATA, "%s has format version %u, expected %u", in->path,
                       header.version, VERSION);
    *sum = (rt_file_sum){sizeof header, header.checksum};
    for (uint64_t at = 0; at < header.bytes; at += BLOCK_BYTES) {
        const size_t some = rt_min_u64(BLOCK_BYTES, header.bytes - at);
        rt_status status = read_block(in, some, bytes, sum, error);
        if (status)
            return status;
    }
    if (fgetc(in->file) != EOF)
        return rt_fail(error, RT_DATA, "%s has bytes after its last block", in->path);
    return RT_OK;
}

rt_status rt_pack_read(const char *path, uint64_t magic, rt_bytes *bytes, rt_file_sum *sum,
                       rt_error *error)
{
    reader in = {.path = path, .file = fopen(path, "rbe")};
    if (!in.file)
        return rt_fail(error, rt_status_of_errno(errno), "cannot open %s: %s", path,
                       strerror(errno));
    in.unpacker = ZSTD_createDCtx();
    in.block = rt_alloc(sizeof(block_header) + BLOCK_BYTES, 1);
    rt_status status = RT_OK;
    if (!in.unpacker || !in.block)
        status = rt_fail(error, RT_NO_MEMORY, "out of memory: %s", path);
    else
        status = read_all(&in, magic, bytes, sum, error);
    ZSTD_freeDCtx(in.unpacker);
    rt_free(in.block);
    fclose(in.file);
    return status;
}
