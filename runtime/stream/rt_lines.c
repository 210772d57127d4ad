#include "runtime/stream/rt_lines.h"

#include <errno.h>
#include <inttypes.h>
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

struct rt_lines {
    int descriptor;
    const char *name;
    uint32_t file;
    rt_source_watch watch;
    packing packing;
    bool waits;           // no regular file: bytes may be long in coming
    bool is_file_end;     // no more bytes will come from this file
    bool is_skipping;     // inside a line that is too long
    bool is_inside;       // the line given out last had no end
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
    size_t last_size; // bytes and line ends of the line given out last
    uint32_t last_lines;
    uint64_t bytes_read;
    uint64_t taken;
};

uint64_t rt_lines_offset(const rt_lines *lines)
{
    return lines->offset;
}

uint64_t rt_lines_number(const rt_lines *lines)
{
    return lines->line;
}

bool rt_lines_is_inside(const rt_lines *lines)
{
    return lines->is_inside;
}

uint64_t rt_lines_bytes_read(const rt_lines *lines)
{
    return lines->bytes_read;
}

void rt_lines_add_read(rt_lines *lines, uint64_t bytes)
{
    lines->bytes_read += bytes;
}

uint64_t rt_lines_taken(const rt_lines *lines)
{
    return lines->taken;
}

static void write_ledger(const rt_lines *lines)
{
    if (lines->watch.ledger >= 0 &&
        pwrite(lines->watch.ledger, &lines->taken, sizeof lines->taken, 0) < 0) {
        // what a restart lost is told less exactly; reading goes on
    }
}

void rt_lines_set_taken(rt_lines *lines, uint64_t bytes)
{
    lines->taken = bytes;
    write_ledger(lines);
}

static rt_status fail_here(const rt_lines *lines, rt_status status, const char *what,
                           rt_error *error)
{
    return rt_fail(error, status, "%s:%" PRIu64 ": %s", lines->name, lines->line + 1, what);
}

void rt_lines_watch(rt_lines *lines, const rt_source_watch *watch)
{
    lines->watch = *watch;
}

static bool is_stopped(const rt_lines *lines)
{
    struct pollfd stop = {lines->watch.stop, POLLIN, 0};
    return lines->watch.stop >= 0 && poll(&stop, 1, 0) == 1;
}

// Until there are bytes, or the end of them; RT_STOPPED, RT_AGAIN.
static rt_status wait_for_bytes(const rt_lines *lines, uint64_t deadline_ns)
{
    struct pollfd wanted[] = {{lines->descriptor, POLLIN, 0}, {lines->watch.stop, POLLIN, 0}};
    int count;
    do
        count = poll(wanted, 2, rt_wait_ms(deadline_ns));
    while (count < 0 && errno == EINTR);
    if (wanted[1].revents)
        return RT_STOPPED;
    if (count == 0)
        return RT_AGAIN;
    return RT_OK;
}

// Reads what is there, at least one byte; *count_p 0: end of file.
static rt_status read_some(rt_lines *lines, void *bytes, size_t size, uint64_t deadline_ns,
                           size_t *count_p, rt_error *error)
{
    for (;;) {
        // A read of a file does not wait for long, and a poll of it would be one call too many.
        rt_status status = RT_OK;
        if (lines->waits)
            status = wait_for_bytes(lines, deadline_ns);
        if (status)
            return status;
        ssize_t count = read(lines->descriptor, bytes, size);
        if (count >= 0) {
            *count_p = (size_t)count;
            lines->bytes_read += (uint64_t)count;
            return RT_OK;
        }
        // EAGAIN: a standard input that somebody made non-blocking.
        if (errno != EINTR && errno != EAGAIN)
            return fail_here(lines, RT_IO, strerror(errno), error);
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
static rt_status find_packing(rt_lines *lines, uint64_t deadline_ns, rt_error *error)
{
    size_t count = 1;
    while (count > 0 && lines->packed_end < MAGIC_BYTES &&
           (lines->packed_end < 1 || is_zstd(lines->packed, lines->packed_end))) {
        rt_status status = read_some(lines, lines->packed + lines->packed_end,
                                     BLOCK_BYTES - lines->packed_end, deadline_ns, &count, error);
        if (status)
            return status;
        lines->packed_end += count;
    }
    lines->packing = PACKING_PLAIN;
    if (lines->packed_end >= MAGIC_BYTES && is_zstd(lines->packed, MAGIC_BYTES))
        lines->packing = PACKING_ZSTD;
    size_t length = strlen(lines->name);
    if (lines->packing == PACKING_PLAIN && length > 4 &&
        strcmp(lines->name + length - 4, ".zst") == 0)
        return fail_here(lines, RT_DATA, "named .zst, but its first bytes are not zstd's", error);
    if (is_gzip(lines->packed, lines->packed_end))
        return fail_here(lines, RT_DATA, "packed with gzip; expected plain text or zstd", error);
    return RT_OK;
}

rt_status rt_lines_create(rt_lines **lines_p, rt_error *error)
{
    rt_lines *lines = rt_alloc(1, sizeof *lines);
    if (!lines)
        return rt_fail(error, RT_NO_MEMORY, "out of memory for an input");
    lines->watch = (rt_source_watch){-1, -1};
    lines->text = rt_alloc(TEXT_BYTES + 1 + RT_LINE_PAD, 1);
    lines->packed = rt_alloc(BLOCK_BYTES, 1);
    lines->decoder = ZSTD_createDCtx();
    if (!lines->text || !lines->packed || !lines->decoder) {
        rt_lines_destroy(lines);
        return rt_fail(error, RT_NO_MEMORY, "out of memory for an input");
    }
    *lines_p = lines;
    return RT_OK;
}

void rt_lines_destroy(rt_lines *lines)
{
    if (!lines)
        return;
    ZSTD_freeDCtx(lines->decoder);
    rt_free(lines->packed);
    rt_free(lines->text);
    rt_free(lines);
}

void rt_lines_begin(rt_lines *lines, int descriptor, const char *name, uint32_t file, bool waits)
{
    lines->descriptor = descriptor;
    lines->name = name;
    lines->file = file;
    lines->waits = waits;
    lines->is_file_end = lines->is_skipping = lines->is_inside = false;
    lines->has_more_text = lines->is_inside_frame = false;
    lines->next = lines->end = lines->scanned = 0;
    lines->packed_next = lines->packed_end = 0;
    lines->line = lines->offset = 0;
    lines->last_size = lines->last_lines = 0;
    lines->packing = PACKING_UNKNOWN;
    ZSTD_DCtx_reset(lines->decoder, ZSTD_reset_session_only);
}

static rt_status fill_plain(rt_lines *lines, size_t room, uint64_t deadline_ns, rt_error *error)
{
    size_t count = lines->packed_end - lines->packed_next;
    if (count > 0) { // what find_packing read
        rt_assert(count <= room);
        memcpy(lines->text + lines->end, lines->packed + lines->packed_next, count);
        lines->packed_next = lines->packed_end;
    } else {
        room = rt_min_u64(room, BLOCK_BYTES);
        rt_status status =
            read_some(lines, lines->text + lines->end, room, deadline_ns, &count, error);
        if (status)
            return status;
        lines->is_file_end = count == 0;
    }
    lines->end += count;
    return RT_OK;
}

static rt_status fill_zstd(rt_lines *lines, size_t room, uint64_t deadline_ns, rt_error *error)
{
    room = rt_min_u64(room, BLOCK_BYTES);
    for (;;) {
        if (lines->packed_next == lines->packed_end && !lines->has_more_text) {
            size_t count;
            rt_status status =
                read_some(lines, lines->packed, BLOCK_BYTES, deadline_ns, &count, error);
            if (status)
                return status;
            if (count == 0 && lines->is_inside_frame)
                return fail_here(lines, RT_DATA, "the file ends inside a zstd frame", error);
            lines->packed_next = 0;
            lines->packed_end = count;
            lines->is_file_end = count == 0;
            if (lines->is_file_end)
                return RT_OK;
        }
        ZSTD_inBuffer in = {lines->packed, lines->packed_end, lines->packed_next};
        ZSTD_outBuffer out = {lines->text + lines->end, room, 0};
        size_t awaited = ZSTD_decompressStream(lines->decoder, &out, &in);
        if (ZSTD_isError(awaited))
            return rt_fail(error, RT_DATA, "%s:%" PRIu64 ": zstd: %s", lines->name, lines->line + 1,
                           ZSTD_getErrorName(awaited));
        lines->packed_next = in.pos;
        lines->is_inside_frame = awaited != 0;
        lines->has_more_text = out.pos == room && awaited != 0;
        if (out.pos > 0) {
            lines->end += out.pos;
            return RT_OK;
        }
    }
}

// Brings at least one byte of text, or finds the end of the file.
static rt_status fill(rt_lines *lines, uint64_t deadline_ns, rt_error *error)
{
    if (lines->packing == PACKING_UNKNOWN) {
        rt_status status = find_packing(lines, deadline_ns, error);
        if (status)
            return status;
    }
    // Moving is paid for by the bytes given out before; a long tail that grows is not moved again.
    size_t tail = lines->end - lines->next;
    if (tail < lines->next || TEXT_BYTES - lines->end < BLOCK_BYTES) {
        memmove(lines->text, lines->text + lines->next, tail);
        lines->scanned -= lines->next;
        lines->next = 0;
        lines->end = tail;
    }
    size_t room = TEXT_BYTES - lines->end;
    rt_assert(room >= BLOCK_BYTES);
    const size_t before = lines->end;
    rt_status status;
    if (lines->packing == PACKING_ZSTD)
        status = fill_zstd(lines, room, deadline_ns, error);
    else
        status = fill_plain(lines, room, deadline_ns, error);
    if (lines->waits && lines->end > before)
        rt_lines_set_taken(lines, lines->taken + lines->end - before);
    return status;
}

// ---- lines -----------------------------------------------------------------------------------

// Gives out the line that ends before line_end, where a '\n' is or was put.
static void take_line(rt_lines *lines, size_t line_end, uint32_t line_feeds, rt_line *line)
{
    size_t length = line_end - lines->next;
    line->text = lines->text + lines->next;
    line->file = lines->file;
    line->arrival_ns = line->origin = 0;
    line->clock = RT_CLOCK_READER;
    line->number = lines->line + 1;
    lines->line += 1 + line_feeds;
    line->is_too_long = lines->is_skipping || length > RT_LINE_MAX;
    lines->is_skipping = false;
    if (line->is_too_long) {
        line->text = lines->text + line_end;
        length = 0;
    } else if (length > 0 && line->text[length - 1] == '\r') {
        length--;
    }
    line->length = (uint32_t)length;
    lines->is_inside = line_end == lines->end;
    size_t next = line_end < lines->end ? line_end + 1 : line_end;
    lines->last_size = next - lines->next;
    lines->last_lines = 1 + line_feeds;
    lines->offset += next - lines->next;
    lines->next = lines->scanned = next;
}

void rt_lines_back(rt_lines *lines)
{
    rt_assert(lines->last_size <= lines->next);
    lines->next -= lines->last_size;
    lines->scanned = lines->next;
    lines->offset -= lines->last_size;
    lines->line -= lines->last_lines;
    lines->is_inside = false;
    lines->last_size = lines->last_lines = 0;
}

// The line end behind so many others, among the bytes that are there; NULL: it is not. *begin_p:
// behind the last one that was found.
static const char *find_end(rt_lines *lines, uint32_t line_feeds, const char **begin_p)
{
    const char *from = lines->text + (line_feeds ? lines->next : lines->scanned);
    const char *end = lines->text + lines->end, *found;
    while ((found = memchr(from, '\n', (size_t)(end - from))) && line_feeds > 0) {
        line_feeds--;
        from = found + 1;
    }
    *begin_p = line_feeds ? end : from;
    return found;
}

rt_status rt_lines_next(rt_lines *lines, uint64_t deadline_ns, uint32_t line_feeds, rt_line *line,
                        rt_error *error)
{
    for (;;) {
        const char *rest, *newline = find_end(lines, line_feeds, &rest);
        if (RT_LIKELY(newline != NULL)) {
            take_line(lines, (size_t)(newline - lines->text), line_feeds, line);
            return RT_OK;
        }
        const bool is_long = lines->end - lines->next > RT_LINE_MAX;
        if (is_long && line_feeds > 0)
            return RT_LIMIT;
        if (line_feeds == 0)
            lines->scanned = lines->end;
        if (is_long) {
            lines->is_skipping = true;
            lines->offset += lines->end - lines->next;
            lines->next = lines->end;
        }
        if (!lines->is_file_end) {
            rt_status status = fill(lines, deadline_ns, error);
            if (status)
                return status;
            continue;
        }
        if (rest == lines->text + lines->end && (line_feeds > 0 || lines->next == lines->end) &&
            !lines->is_skipping)
            return RT_END;
        lines->text[lines->end] = '\n'; // the file's last line has none
        take_line(lines, lines->end, line_feeds, line);
        return RT_OK;
    }
}

// ---- positions -------------------------------------------------------------------------------

static rt_status too_short(const rt_lines *lines, uint64_t offset, rt_error *error)
{
    return rt_fail(error, RT_DATA, "%s ends before byte %" PRIu64 ", where reading is to go on",
                   lines->name, offset);
}

static rt_status seek_plain(rt_lines *lines, uint64_t offset, rt_error *error)
{
    struct stat info;
    if (fstat(lines->descriptor, &info) != 0 ||
        lseek(lines->descriptor, (off_t)offset, SEEK_SET) < 0)
        return fail_here(lines, RT_IO, strerror(errno), error);
    lines->bytes_read += offset - lines->packed_end;
    lines->packed_next = lines->packed_end = 0;
    lines->is_file_end = false;
    if ((uint64_t)info.st_size < offset)
        return too_short(lines, offset, error);
    return RT_OK;
}

static rt_status skip_packed(rt_lines *lines, uint64_t offset, rt_error *error)
{
    while (lines->offset < offset && !lines->is_file_end) {
        if (is_stopped(lines))
            return RT_STOPPED;
        rt_status status = fill(lines, 0, error);
        if (status)
            return status;
        size_t step = rt_min_u64(lines->end - lines->next, offset - lines->offset);
        lines->next += step;
        lines->offset += step;
        lines->scanned = lines->next;
    }
    if (lines->offset < offset)
        return too_short(lines, offset, error);
    return RT_OK;
}

// What is left of a line that was given out already, as far as it was there.
static rt_status skip_rest(rt_lines *lines, uint64_t *rest_p, rt_error *error)
{
    const uint64_t line = lines->line;
    rt_line rest;
    rt_status status = rt_lines_next(lines, 0, 0, &rest, error);
    if (!status)
        *rest_p = rest.length;
    lines->line = line;
    if (status == RT_END)
        return RT_OK;
    return status;
}

rt_status rt_lines_seek(rt_lines *lines, uint64_t offset, uint64_t line, bool inside_line,
                        uint64_t *rest_p, rt_error *error)
{
    rt_assert(lines->offset == 0 && lines->end == 0);
    *rest_p = 0;
    rt_status status = RT_OK;
    if (!lines->waits && offset > 0) {
        status = find_packing(lines, 0, error);
        if (!status && lines->packing == PACKING_PLAIN)
            status = seek_plain(lines, offset, error);
        else if (!status)
            status = skip_packed(lines, offset, error);
    }
    lines->offset = offset;
    lines->line = line;
    lines->last_size = lines->last_lines = 0;
    if (!status && inside_line && !lines->waits)
        status = skip_rest(lines, rest_p, error);
    return status;
}
