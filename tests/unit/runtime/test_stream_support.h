// test_stream_support - input files in a case's own directory, and whole streams in one batch.
#ifndef TEST_STREAM_SUPPORT_H
#define TEST_STREAM_SUPPORT_H

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <zstd.h>

#include "runtime/rt_hash.h"
#include "runtime/stream/rt_stream.h"
#include "tests/support/test.h"

#define UNUSED __attribute__((unused))

// A path in the case's directory; free it.
static UNUSED char *path_of(const char *name)
{
    static const char *directory;
    if (!directory)
        directory = test_directory();
    char *path = malloc(strlen(directory) + strlen(name) + 2);
    assert_non_null(path);
    sprintf(path, "%s/%s", directory, name);
    return path;
}

static UNUSED char *put_bytes(const char *name, const void *bytes, size_t size)
{
    char *path = path_of(name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
    return path;
}

static UNUSED char *put_text(const char *name, const char *text)
{
    return put_bytes(name, text, strlen(text));
}

// Packed into frames of at most frame_size bytes, with checksums; free the result.
static UNUSED uint8_t *pack(const void *bytes, size_t size, size_t frame_size, size_t *packed_p)
{
    size_t frames = size / frame_size + 1;
    size_t room = ZSTD_compressBound(frame_size) * frames, used = 0;
    uint8_t *packed = malloc(room);
    ZSTD_CCtx *context = ZSTD_createCCtx();
    assert_true(packed && context);
    ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
    for (size_t at = 0; at < size; at += frame_size) {
        size_t count = size - at < frame_size ? size - at : frame_size;
        size_t made =
            ZSTD_compress2(context, packed + used, room - used, (const uint8_t *)bytes + at, count);
        assert_false(ZSTD_isError(made));
        used += made;
    }
    ZSTD_freeCCtx(context);
    *packed_p = used;
    return packed;
}

static UNUSED char *put_packed(const char *name, const void *bytes, size_t size, size_t frame_size)
{
    size_t packed_size;
    uint8_t *packed = pack(bytes, size, frame_size, &packed_size);
    char *path = put_bytes(name, packed, packed_size);
    free(packed);
    return path;
}

// The whole file, unpacked if it is zstd, with a zero behind it; by zstd's one-shot interface.
static UNUSED char *slurp(const char *path, size_t *size_p)
{
    char command[1200], *text = NULL;
    size_t size = 0, room = 0;
    size_t length = strlen(path);
    bool is_packed = length > 4 && strcmp(path + length - 4, ".zst") == 0;
    snprintf(command, sizeof command, "%s '%s'", is_packed ? "zstd -dcq" : "cat", path);
    FILE *pipe_in = popen(command, "r");
    assert_non_null(pipe_in);
    for (;;) {
        if (room - size < 65536) {
            room = room * 2 + (1 << 20);
            text = realloc(text, room);
            assert_non_null(text);
        }
        size_t count = fread(text + size, 1, room - size - 1, pipe_in);
        if (count == 0)
            break;
        size += count;
    }
    if (pclose(pipe_in) != 0)
        test_skip("%s cannot be unpacked: the command zstd is needed", path);
    text[size] = '\0';
    *size_p = size;
    return text;
}

// Reads in batches of batch_size into one batch (init by the callee, fini by the caller). The
// status that ended reading; stats may be NULL.
static UNUSED rt_status read_all(const rt_stream_config *config, uint64_t seed, uint32_t batch_size,
                                 rt_batch *all, rt_stream_stats *stats, rt_error *error)
{
    rt_stream *stream;
    rt_batch batch;
    rt_status status = rt_stream_open(config, seed, &stream, error);
    if (status) {
        rt_batch_init(all, 0);
        return status;
    }
    rt_batch_init(all, rt_stream_schema(stream)->dense_count);
    rt_batch_init(&batch, rt_stream_schema(stream)->dense_count);
    while (!(status = rt_stream_read(stream, &batch, batch_size, error))) {
        for (uint32_t i = 0; i < batch.sample_count; i++)
            assert_int_equal(rt_batch_append(all, batch.labels[i],
                                             batch.dense + i * batch.dense_count,
                                             batch.keys + batch.key_offsets[i],
                                             batch.key_offsets[i + 1] - batch.key_offsets[i]),
                             RT_OK);
    }
    assert_int_equal(batch.sample_count, status == RT_END ? 0 : batch.sample_count);
    if (stats)
        *stats = rt_stream_statistics(stream);
    rt_batch_fini(&batch);
    rt_stream_close(stream);
    return status;
}

static UNUSED void assert_same(const rt_batch *got, const rt_batch *want)
{
    assert_int_equal(got->sample_count, want->sample_count);
    assert_int_equal(got->key_count, want->key_count);
    assert_int_equal(got->dense_count, want->dense_count);
    if (got->sample_count == 0)
        return;
    assert_memory_equal(got->labels, want->labels, got->sample_count * sizeof(float));
    assert_memory_equal(got->key_offsets, want->key_offsets,
                        (got->sample_count + 1) * sizeof(uint32_t));
    assert_memory_equal(got->keys, want->keys, got->key_count * sizeof(uint64_t));
    if (got->dense_count)
        assert_memory_equal(got->dense, want->dense,
                            (size_t)got->sample_count * got->dense_count * sizeof(float));
}

static UNUSED int compare_keys(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

// Distinct keys of a batch, by sorting.
static UNUSED uint64_t distinct_of(const rt_batch *batch)
{
    uint64_t *sorted = malloc((batch->key_count + 1) * sizeof *sorted), count = 0;
    assert_non_null(sorted);
    memcpy(sorted, batch->keys, batch->key_count * sizeof *sorted);
    qsort(sorted, batch->key_count, sizeof *sorted, compare_keys);
    for (uint32_t i = 0; i < batch->key_count; i++)
        count += i == 0 || sorted[i] != sorted[i - 1];
    free(sorted);
    return count;
}

#endif
