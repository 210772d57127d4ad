// libFuzzer: clang-14 -fsanitize=fuzzer,address,undefined. The first byte selects: the bytes as a
// file of their own, or packed by libzstd first. Plain text must come out as the lines that it has.
#define _GNU_SOURCE // memfd_create
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <zstd.h>

#include "runtime/stream/rt_file_kind.h"
#include "runtime/stream/rt_source.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_lines(void *source, const char *text, size_t size)
{
    rt_error error;
    rt_line line;
    for (const char *at = text, *end = text + size; at < end;) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        const char *next = stop ? stop + 1 : end;
        size_t length = (size_t)((stop ? stop : end) - at);
        length -= length > 0 && at[length - 1] == '\r';
        rt_assert(rt_source_files.line(source, 0, 0, &line, &error) == RT_OK);
        rt_assert(line.length == length && memcmp(line.text, at, length) == 0);
        at = next;
    }
    rt_assert(rt_source_files.line(source, 0, 0, &line, &error) == RT_END);
}

static rt_file_kind kind_of(const char *text, size_t size)
{
    bool may_tell_more;
    return rt_file_kind_of((const uint8_t *)text, rt_min_u64(size, RT_FILE_KIND_BYTES),
                           &may_tell_more);
}

// Neither another kind of file, nor text in two bytes a character: with a mark, or with zeros.
static bool is_plain(const char *text, size_t size)
{
    if (size > 0 && (memchr(text, 0, size) || strchr("\xfe\xff\xef", text[0])))
        return false;
    return !kind_of(text, size).name;
}

static void write_file(int file, const void *bytes, size_t size)
{
    rt_assert(ftruncate(file, 0) == 0);
    rt_assert(pwrite(file, bytes, size, 0) == (ssize_t)size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int file = -1;
    static char path[64], *paths[] = {path};
    if (size == 0 || size > 65536)
        return 0;
    if (file < 0) {
        file = memfd_create("source", 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    }
    void *source;
    rt_line line;
    rt_error error = {0};
    const char *text = (const char *)data + 1;
    bool is_packed = data[0] & 1;
    if (kind_of(text, size - 1).is_columnar)
        return 0; // a program of its own reads it
    if (is_packed) {
        static char packed[ZSTD_COMPRESSBOUND(65536)];
        size_t count = ZSTD_compress(packed, sizeof packed, text, size - 1, 1);
        rt_assert(!ZSTD_isError(count));
        write_file(file, packed, count);
    } else {
        write_file(file, text, size - 1);
    }
    const rt_stream_config config = {.files = paths, .file_count = 1};
    rt_assert(rt_source_files.open(&config, 0, &source, &error) == RT_OK);
    if (is_plain(text, size - 1)) {
        check_lines(source, text, size - 1);
    } else {
        rt_status status;
        while (!(status = rt_source_files.line(source, 0, 0, &line, &error)))
            ;
        rt_assert(status == RT_END || (status == RT_DATA && strlen(error.text) > 0));
    }
    rt_source_files.close(source);
    return 0;
}
