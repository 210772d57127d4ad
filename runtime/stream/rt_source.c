#include "runtime/stream/rt_source.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include "runtime/rt_log.h"

// Small enough that unpacked text is parsed while it is still in the cache.
#define BLOCK_BYTES ((size_t)256 << 10)
#define TEXT_BYTES (RT_LINE_MAX + 2 * BLOCK_BYTES)
#define MAGIC_BYTES 4

typedef enum { PACKING_UNKNOWN, PACKING_PLAIN, PACKING_ZSTD } packing;

struct rt_source {
    char **paths;
    uint32_t path_count;
    uint32_t file; // index of the one being read
    int descriptor;
    int stop; // descriptor that ends a wait; -1: none
    packing packing;
    bool is_waiting;      // no regular file: bytes may be long in coming
    bool is_file_end;     // no more bytes will come from this file
    bool is_skipping;     // inside a line that is too long
    bool has_more_text;   // the decoder filled all the room it had: it may hold more
    bool is_inside_frame; // the decoder awaits bytes of an unfinished frame
    ZSTD_DCtx *decoder;
    uint8_t *packed; // BLOCK_BYTES: [packed_next, packed_end) is not yet unpacked or copied
    size_t packed_next, packed_end;
    char *text;       // TEXT_BYTES and padding
    size_t next, end; // [next, end) has not been given out
    size_t scanned;   // no line end in [next, scanned)
    uint64_t line;    // lines given out of this file
    uint64_t offset;  // of text[next] in the unpacked file
    uint64_t bytes_read;
    uint64_t bytes_all;
};

const char *rt_source_path(const rt_source *source, uint32_t file)
{
    rt_assert(file < source->path_count);
    return source->paths[file];
}

uint64_t rt_source_bytes_read(const rt_source *source)
{
    return source->bytes_read;
}

uint64_t rt_source_bytes_all(const rt_source *source)
{
    return source->bytes_all;
}

static const char *current_path(const rt_source *source)
{
    const char *path = source->paths[source->file];
    return strcmp(path, "-") == 0 ? "standard input" : path;
}

static rt_status fail_here(const rt_source *source, rt_status status, const char *what,
                           rt_error *error)
{
    return rt_fail(error, status, "%s:%llu: %s", current_path(source),
                   (unsigned long long)source->line + 1, what);
}

void rt_source_set_stop(rt_source *source, int fd)
{
    source->stop = fd;
}

static bool is_stopped(const rt_source *source)
{
    struct pollfd stop = {source->stop, POLLIN, 0};
    return source->stop >= 0 && poll(&stop, 1, 0) == 1;
}

// Until there are bytes, or the end of them; RT_STOPPED.
static rt_status wait_for_bytes(const rt_source *source)
{
    struct pollfd wanted[] = {{source->descriptor, POLLIN, 0}, {source->stop, POLLIN, 0}};
    while (poll(wanted, 2, -1) < 0 && errno == EINTR) {
    }
    return wanted[1].revents ? RT_STOPPED : RT_OK;
}

// Reads what is there, at least one byte; *count_p 0: end of file.
static rt_status read_some(rt_source *source, void *bytes, size_t size, size_t *count_p,
                           rt_error *error)
{
    for (;;) {
        // A read of a file does not wait for long, and a poll of it would be one call too many.
        if (source->is_waiting && wait_for_bytes(source) == RT_STOPPED)
            return RT_STOPPED;
        ssize_t count = read(source->descriptor, bytes, size);
        if (count >= 0) {
            *count_p = (size_t)count;
            source->bytes_read += (uint64_t)count;
            return RT_OK;
        }
        // EAGAIN: a standard input that somebody made non-blocking.
        if (errno != EINTR && errno != EAGAIN)
            return fail_here(source, RT_IO, strerror(errno), error);
    }
}

// Whether the first count bytes of a file are those of magic. A frame of zstd may be preceded by
// skippable frames (RFC 8878, section 3.1.2), whose first byte has 16 values.
static bool is_zstd(const uint8_t *bytes, size_t count)
{
    static const uint8_t frame[MAGIC_BYTES] = {0x28, 0xb5, 0x2f, 0xfd};
    static const uint8_t skippable[MAGIC_BYTES - 1] = {0x2a, 0x4d, 0x18};
    if (count == 0)
        return false;
    if ((bytes[0] & 0xf0) == 0x50)
        return memcmp(bytes + 1, skippable, count - 1) == 0;
    return memcmp(bytes, frame, count) == 0;
}

static bool is_gzip(const uint8_t *bytes, size_t count)
{
    return count >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b;
}

// Reads first bytes until they tell what the file is: no more than that, so that the first line of
// a slow standard input is not held back.
static rt_status find_packing(rt_source *source, rt_error *error)
{
    size_t count = 1;
    while (count > 0 && source->packed_end < MAGIC_BYTES &&
           (source->packed_end < 1 || is_zstd(source->packed, source->packed_end))) {
        rt_status status = read_some(source, source->packed + source->packed_end,
                                     BLOCK_BYTES - source->packed_end, &count, error);
        if (status)
            return status;
        source->packed_end += count;
    }
    bool is_whole = source->packed_end >= MAGIC_BYTES;
    source->packing =
        is_whole && is_zstd(source->packed, MAGIC_BYTES) ? PACKING_ZSTD : PACKING_PLAIN;
    const char *path = source->paths[source->file];
    size_t length = strlen(path);
    if (source->packing == PACKING_PLAIN && length > 4 && strcmp(path + length - 4, ".zst") == 0)
        return fail_here(source, RT_DATA, "named .zst, but its first bytes are not zstd's", error);
    if (is_gzip(source->packed, source->packed_end))
        return fail_here(source, RT_DATA, "packed with gzip; expected plain text or zstd", error);
    return RT_OK;
}

static void leave_file(rt_source *source)
{
    if (source->descriptor > STDIN_FILENO)
        close(source->descriptor);
    source->descriptor = -1;
}

static rt_status enter_file(rt_source *source, rt_error *error)
{
    const char *path = source->paths[source->file];
    bool is_stdin = strcmp(path, "-") == 0;
    // A pipe without a writer must not hold up the opening: the wait for its bytes can be ended.
    source->descriptor = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (source->descriptor < 0)
        return rt_fail(error, RT_IO, "cannot open %s: %s", path, strerror(errno));
    struct stat info;
    source->is_waiting = fstat(source->descriptor, &info) != 0 || !S_ISREG(info.st_mode);
    source->is_file_end = source->is_skipping = false;
    source->has_more_text = source->is_inside_frame = false;
    source->next = source->end = source->scanned = 0;
    source->packed_next = source->packed_end = 0;
    source->line = source->offset = 0;
    source->packing = PACKING_UNKNOWN;
    ZSTD_DCtx_reset(source->decoder, ZSTD_reset_session_only);
    return RT_OK;
}

// A typing error in the last file name must not show up hours later.
static rt_status measure_files(rt_source *source, rt_error *error)
{
    bool is_known = true;
    for (uint32_t i = 0; i < source->path_count; i++) {
        struct stat info;
        if (strcmp(source->paths[i], "-") == 0) {
            is_known = false;
            continue;
        }
        if (stat(source->paths[i], &info) != 0)
            return rt_fail(error, RT_IO, "cannot open %s: %s", source->paths[i], strerror(errno));
        if (S_ISDIR(info.st_mode))
            return rt_fail(error, RT_IO, "cannot read %s: it is a folder", source->paths[i]);
        is_known = is_known && S_ISREG(info.st_mode);
        source->bytes_all += (uint64_t)info.st_size;
    }
    if (!is_known)
        source->bytes_all = 0;
    return RT_OK;
}

static rt_status copy_paths(rt_source *source, char *const *paths, uint32_t path_count)
{
    source->paths = rt_alloc(path_count, sizeof *source->paths);
    if (!source->paths)
        return RT_NO_MEMORY;
    source->path_count = path_count;
    for (uint32_t i = 0; i < path_count; i++) {
        size_t size = strlen(paths[i]) + 1;
        source->paths[i] = rt_alloc(size, 1);
        if (!source->paths[i])
            return RT_NO_MEMORY;
        memcpy(source->paths[i], paths[i], size);
    }
    return RT_OK;
}

rt_status rt_source_open(char *const *paths, uint32_t path_count, rt_source **source_p,
                         rt_error *error)
{
    rt_assert(path_count > 0);
    rt_source *source = rt_alloc(1, sizeof *source);
    if (!source)
        return rt_fail(error, RT_NO_MEMORY, "out of memory for an input");
    source->descriptor = source->stop = -1;
    source->text = rt_alloc(TEXT_BYTES + 1 + RT_LINE_PAD, 1);
    source->packed = rt_alloc(BLOCK_BYTES, 1);
    source->decoder = ZSTD_createDCtx();
    rt_status status = RT_OK;
    if (!source->text || !source->packed || !source->decoder ||
        copy_paths(source, paths, path_count))
        status = rt_fail(error, RT_NO_MEMORY, "out of memory for an input");
    if (!status)
        status = measure_files(source, error);
    if (!status)
        status = enter_file(source, error);
    if (status) {
        rt_source_close(source);
        return status;
    }
    *source_p = source;
    return RT_OK;
}

void rt_source_close(rt_source *source)
{
    if (!source)
        return;
    leave_file(source);
    for (uint32_t i = 0; i < source->path_count; i++)
        rt_free(source->paths[i]);
    rt_free(source->paths);
    ZSTD_freeDCtx(source->decoder);
    rt_free(source->packed);
    rt_free(source->text);
    rt_free(source);
}

static rt_status fill_plain(rt_source *source, size_t room, rt_error *error)
{
    size_t count = source->packed_end - source->packed_next;
    if (count > 0) { // what find_packing read
        rt_assert(count <= room);
        memcpy(source->text + source->end, source->packed + source->packed_next, count);
        source->packed_next = source->packed_end;
    } else {
        room = room < BLOCK_BYTES ? room : BLOCK_BYTES;
        rt_status status = read_some(source, source->text + source->end, room, &count, error);
        if (status)
            return status;
        source->is_file_end = count == 0;
    }
    source->end += count;
    return RT_OK;
}

static rt_status fill_zstd(rt_source *source, size_t room, rt_error *error)
{
    room = room < BLOCK_BYTES ? room : BLOCK_BYTES;
    for (;;) {
        if (source->packed_next == source->packed_end && !source->has_more_text) {
            size_t count;
            rt_status status = read_some(source, source->packed, BLOCK_BYTES, &count, error);
            if (status)
                return status;
            if (count == 0 && source->is_inside_frame)
                return fail_here(source, RT_DATA, "the file ends inside a zstd frame", error);
            source->packed_next = 0;
            source->packed_end = count;
            source->is_file_end = count == 0;
            if (source->is_file_end)
                return RT_OK;
        }
        ZSTD_inBuffer in = {source->packed, source->packed_end, source->packed_next};
        ZSTD_outBuffer out = {source->text + source->end, room, 0};
        size_t awaited = ZSTD_decompressStream(source->decoder, &out, &in);
        if (ZSTD_isError(awaited))
            return rt_fail(error, RT_DATA, "%s:%llu: zstd: %s", current_path(source),
                           (unsigned long long)source->line + 1, ZSTD_getErrorName(awaited));
        source->packed_next = in.pos;
        source->is_inside_frame = awaited != 0;
        source->has_more_text = out.pos == room && awaited != 0;
        if (out.pos > 0) {
            source->end += out.pos;
            return RT_OK;
        }
    }
}

// Brings at least one byte of text, or finds the end of the file.
static rt_status fill(rt_source *source, rt_error *error)
{
    if (source->packing == PACKING_UNKNOWN) {
        rt_status status = find_packing(source, error);
        if (status)
            return status;
    }
    // Moving is paid for by the bytes given out before; a long tail that grows is not moved again.
    size_t tail = source->end - source->next;
    if (tail < source->next || TEXT_BYTES - source->end < BLOCK_BYTES) {
        memmove(source->text, source->text + source->next, tail);
        source->scanned -= source->next;
        source->next = 0;
        source->end = tail;
    }
    size_t room = TEXT_BYTES - source->end;
    rt_assert(room >= BLOCK_BYTES);
    return source->packing == PACKING_ZSTD ? fill_zstd(source, room, error)
                                           : fill_plain(source, room, error);
}

// Gives out the line that ends before line_end, where a '\n' is or was put.
static void take_line(rt_source *source, size_t line_end, rt_line *line)
{
    size_t length = line_end - source->next;
    line->text = source->text + source->next;
    line->file = source->file;
    line->number = ++source->line;
    line->is_too_long = source->is_skipping || length > RT_LINE_MAX;
    source->is_skipping = false;
    if (line->is_too_long) {
        line->text = source->text + line_end;
        length = 0;
    } else if (length > 0 && line->text[length - 1] == '\r') {
        length--;
    }
    line->length = (uint32_t)length;
    size_t next = line_end < source->end ? line_end + 1 : line_end;
    source->offset += next - source->next;
    source->next = source->scanned = next;
}

rt_status rt_source_line(rt_source *source, rt_line *line, rt_error *error)
{
    while (source->file < source->path_count) {
        const char *unseen = source->text + source->scanned;
        const char *newline = memchr(unseen, '\n', source->end - source->scanned);
        if (RT_LIKELY(newline != NULL)) {
            take_line(source, (size_t)(newline - source->text), line);
            return RT_OK;
        }
        source->scanned = source->end;
        if (source->end - source->next > RT_LINE_MAX) {
            source->is_skipping = true;
            source->offset += source->end - source->next;
            source->next = source->end;
        }
        if (!source->is_file_end) {
            rt_status status = fill(source, error);
            if (status)
                return status;
        } else if (source->end > source->next || source->is_skipping) {
            source->text[source->end] = '\n'; // the file's last line has none
            take_line(source, source->end, line);
            return RT_OK;
        } else {
            leave_file(source);
            if (++source->file == source->path_count)
                break;
            rt_status status = enter_file(source, error);
            if (status)
                return status;
        }
    }
    return RT_END;
}

// ---- positions -------------------------------------------------------------------------------

rt_source_position rt_source_tell(const rt_source *source)
{
    return (rt_source_position){source->file, source->offset, source->line};
}

static rt_status too_short(const rt_source *source, uint64_t offset, rt_error *error)
{
    return rt_fail(error, RT_DATA, "%s ends before byte %llu, where reading is to go on",
                   current_path(source), (unsigned long long)offset);
}

static rt_status seek_plain(rt_source *source, uint64_t offset, rt_error *error)
{
    struct stat info;
    if (fstat(source->descriptor, &info) != 0 ||
        lseek(source->descriptor, (off_t)offset, SEEK_SET) < 0)
        return fail_here(source, RT_IO, strerror(errno), error);
    source->bytes_read += offset - source->packed_end;
    source->packed_next = source->packed_end = 0;
    return (uint64_t)info.st_size < offset ? too_short(source, offset, error) : RT_OK;
}

static rt_status skip_packed(rt_source *source, uint64_t offset, rt_error *error)
{
    while (source->offset < offset && !source->is_file_end) {
        rt_status status = is_stopped(source) ? RT_STOPPED : fill(source, error);
        if (status)
            return status;
        size_t step = rt_min_u64(source->end - source->next, offset - source->offset);
        source->next += step;
        source->offset += step;
        source->scanned = source->next;
    }
    return source->offset < offset ? too_short(source, offset, error) : RT_OK;
}

rt_status rt_source_seek(rt_source *source, const rt_source_position *position, rt_error *error)
{
    rt_assert(source->file == 0 && source->offset == 0 && source->end == 0);
    if (position->file > source->path_count)
        return rt_fail(error, RT_DATA, "reading is to go on in file %u of %u", position->file + 1,
                       source->path_count);
    while (source->file < position->file) {
        struct stat info;
        if (stat(source->paths[source->file], &info) == 0)
            source->bytes_read += (uint64_t)info.st_size;
        leave_file(source);
        source->file++;
    }
    if (source->file == source->path_count)
        return RT_OK;
    rt_status status = position->file > 0 ? enter_file(source, error) : RT_OK;
    if (status || position->offset == 0)
        return status;
    if (source->is_waiting) {
        rt_info("%s goes on with what comes", current_path(source));
    } else {
        status = find_packing(source, error);
        if (!status && source->packing == PACKING_PLAIN)
            status = seek_plain(source, position->offset, error);
        else if (!status)
            status = skip_packed(source, position->offset, error);
    }
    source->offset = position->offset;
    source->line = position->line;
    return status;
}
