#include "runtime/stream/rt_lines.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/rt_hash.h"
#include "runtime/rt_log.h"
#include "runtime/stream/rt_columnar.h"
#include "runtime/stream/rt_file_kind.h"

// Small enough that unpacked text is parsed while it is still in the cache.
#define BLOCK_BYTES ((size_t)256 << 10)
#define TEXT_BYTES (RT_LINE_MAX + 2 * BLOCK_BYTES + RT_LINES_TAIL_BYTES)
#define PACKED_BYTES_MIN 8u          // fewer are no packed file, not even one without content
#define WIDE_BYTES (BLOCK_BYTES / 2) // of UTF-16, which may become half as much again

struct rt_lines {
    int descriptor;
    const char *name;
    uint32_t file;
    rt_source_watch watch;
    bool has_packing; // packing is known
    rt_packing packing;
    rt_columnar columnar; // who makes lines of the file
    bool has_wide;        // wide is known
    rt_wide wide;
    bool waits;       // no regular file: bytes may be long in coming
    bool is_file_end; // no more bytes will come from this file
    bool is_skipping; // inside a line that is too long
    bool is_inside;   // the line given out last had no end
    rt_unpack *unpack;
    uint8_t *wide_text; // WIDE_BYTES: UTF-16 that is no text yet
    size_t wide_count;
    uint8_t *packed; // BLOCK_BYTES: [packed_next, packed_end) is not yet unpacked or copied
    size_t packed_next, packed_end;
    char *text;       // TEXT_BYTES and padding
    size_t next, end; // [next, end) has not been given out; before it what was, at least the tail
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

rt_lines_tail rt_lines_last(const rt_lines *lines)
{
    const size_t bytes = rt_min_u64(lines->next, RT_LINES_TAIL_BYTES);
    return (rt_lines_tail){rt_hash_bytes(lines->text + lines->next - bytes, bytes), bytes};
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

static bool is_columnar(const rt_lines *lines)
{
    return lines->columnar.child != 0;
}

// Where bytes come from.
static int source_of(const rt_lines *lines)
{
    return is_columnar(lines) ? lines->columnar.lines : lines->descriptor;
}

// Until there are bytes, or the end of them; RT_STOPPED, RT_AGAIN.
static rt_status wait_for_bytes(const rt_lines *lines, uint64_t deadline_ns)
{
    struct pollfd wanted[] = {{source_of(lines), POLLIN, 0}, {lines->watch.stop, POLLIN, 0}};
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

// All of the file was read then.
static rt_status end_columnar(rt_lines *lines, rt_error *error)
{
    const off_t at = lseek(lines->descriptor, 0, SEEK_CUR),
                end = lseek(lines->descriptor, 0, SEEK_END);
    if (end > at)
        lines->bytes_read += (uint64_t)(end - at);
    return rt_columnar_end(&lines->columnar, lines->name, error);
}

// Reads what is there, at least one byte; *count_p 0: end of file.
static rt_status read_some(rt_lines *lines, void *bytes, size_t size, uint64_t deadline_ns,
                           size_t *count_p, rt_error *error)
{
    for (;;) {
        // A read of a file does not wait for long, and a poll of it would be one call too many.
        rt_status status = RT_OK;
        if (lines->waits || is_columnar(lines))
            status = wait_for_bytes(lines, deadline_ns);
        if (status)
            return status;
        ssize_t count = read(source_of(lines), bytes, size);
        if (count >= 0) {
            *count_p = (size_t)count;
            lines->bytes_read += is_columnar(lines) ? 0 : (uint64_t)count;
            return count == 0 && is_columnar(lines) ? end_columnar(lines, error) : RT_OK;
        }
        // EAGAIN: a standard input that somebody made non-blocking.
        if (errno != EINTR && errno != EAGAIN)
            return fail_here(lines, RT_IO, strerror(errno), error);
    }
}

static rt_status check_kind(const rt_lines *lines, const rt_file_kind *kind, rt_error *error)
{
    const char *ending, *name;
    if (!kind->is_read || (kind->is_columnar && lines->waits))
        return rt_fail(error, RT_DATA, "%s:1: %s, which is not read: %s", lines->name, kind->name,
                       kind->advice);
    const rt_packing wanted = rt_file_kind_named(lines->name, &ending, &name);
    if (wanted != RT_PACKED_NOT && lines->packed_end == 0)
        return rt_fail(error, RT_DATA,
                       "%s:1: the file is empty, expected one packed with %s: its writer wrote "
                       "nothing",
                       lines->name, name);
    if (wanted != kind->packing && wanted != RT_PACKED_NOT && lines->packed_end < PACKED_BYTES_MIN)
        return rt_fail(error, RT_DATA, "%s:1: named %s, but its %zu bytes are too few for %s",
                       lines->name, ending, lines->packed_end, name);
    if (wanted != RT_PACKED_NOT && wanted != kind->packing)
        return rt_fail(error, RT_DATA, "%s:1: named %s, but its first bytes are not those of %s",
                       lines->name, ending, name);
    return RT_OK;
}

// Reads first bytes until they tell what the file is: no more than that, so that the first line of
// a slow standard input is not held back.
static rt_status find_packing(rt_lines *lines, uint64_t deadline_ns, rt_error *error)
{
    size_t count = 1;
    bool may_tell_more;
    rt_file_kind kind = rt_file_kind_of(lines->packed, lines->packed_end, &may_tell_more);
    while (count > 0 && may_tell_more) {
        rt_status status = read_some(lines, lines->packed + lines->packed_end,
                                     BLOCK_BYTES - lines->packed_end, deadline_ns, &count, error);
        if (status)
            return status;
        lines->packed_end += count;
        kind = rt_file_kind_of(lines->packed, lines->packed_end, &may_tell_more);
    }
    const rt_status status = check_kind(lines, &kind, error);
    if (status)
        return status;
    lines->packing = kind.packing;
    lines->has_packing = true;
    if (kind.packing != RT_PACKED_NOT)
        rt_unpack_begin(lines->unpack, kind.packing);
    if (!kind.is_columnar)
        return RT_OK;
    lines->packed_end = 0;
    return rt_columnar_start(&lines->columnar, lines->descriptor, lines->name, error);
}

rt_status rt_lines_create(rt_lines **lines_p, rt_error *error)
{
    rt_lines *lines = rt_alloc(1, sizeof *lines);
    if (!lines)
        return rt_fail(error, RT_NO_MEMORY, "out of memory for an input");
    lines->watch = (rt_source_watch){-1, -1};
    lines->columnar = RT_COLUMNAR_NONE;
    lines->text = rt_alloc(TEXT_BYTES + 1 + RT_LINE_PAD, 1);
    lines->packed = rt_alloc(BLOCK_BYTES, 1);
    lines->wide_text = rt_alloc(WIDE_BYTES, 1);
    if (!lines->text || !lines->packed || !lines->wide_text || rt_unpack_create(&lines->unpack)) {
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
    rt_columnar_stop(&lines->columnar);
    rt_unpack_destroy(lines->unpack);
    rt_free(lines->wide_text);
    rt_free(lines->packed);
    rt_free(lines->text);
    rt_free(lines);
}

void rt_lines_begin(rt_lines *lines, int descriptor, const char *name, uint32_t file, bool waits)
{
    rt_columnar_stop(&lines->columnar);
    lines->descriptor = descriptor;
    lines->name = name;
    lines->file = file;
    lines->waits = waits;
    lines->is_file_end = lines->is_skipping = lines->is_inside = false;
    lines->next = lines->end = lines->scanned = 0;
    lines->packed_next = lines->packed_end = 0;
    lines->line = lines->offset = 0;
    lines->last_size = lines->last_lines = 0;
    lines->has_packing = lines->has_wide = false;
    lines->packing = RT_PACKED_NOT;
    lines->wide = RT_WIDE_NOT;
    lines->wide_count = 0;
}

// What follows appends to `to` up to room bytes of the file as it is unpacked, at least one unless
// it ends.
static rt_status bring_plain(rt_lines *lines, void *to, size_t room, uint64_t deadline_ns,
                             size_t *count_p, rt_error *error)
{
    const size_t count = rt_min_u64(lines->packed_end - lines->packed_next, room);
    if (count > 0) { // what find_packing read
        memcpy(to, lines->packed + lines->packed_next, count);
        lines->packed_next += count;
        *count_p = count;
        return RT_OK;
    }
    rt_status status =
        read_some(lines, to, rt_min_u64(room, BLOCK_BYTES), deadline_ns, count_p, error);
    if (!status)
        lines->is_file_end = *count_p == 0;
    return status;
}

static rt_status fail_unpacking(const rt_lines *lines, rt_status status, rt_error *error)
{
    if (status == RT_NO_MEMORY)
        return fail_here(lines, status, "out of memory for unpacking", error);
    return fail_here(lines, status, rt_unpack_problem(lines->unpack), error);
}

static rt_status bring_packed(rt_lines *lines, void *to, size_t room, uint64_t deadline_ns,
                              size_t *count_p, rt_error *error)
{
    room = rt_min_u64(room, BLOCK_BYTES);
    for (;;) {
        if (lines->packed_next == lines->packed_end && !rt_unpack_has_more(lines->unpack)) {
            rt_status status =
                read_some(lines, lines->packed, BLOCK_BYTES, deadline_ns, count_p, error);
            if (status)
                return status;
            if (*count_p == 0 && rt_unpack_is_inside(lines->unpack))
                return fail_here(lines, RT_DATA, "the packed file is cut off: it ends inside",
                                 error);
            lines->packed_next = 0;
            lines->packed_end = *count_p;
            lines->is_file_end = *count_p == 0;
            if (lines->is_file_end)
                return RT_OK;
        }
        const uint8_t *in = lines->packed + lines->packed_next;
        rt_status status = rt_unpack_step(lines->unpack, &in, lines->packed + lines->packed_end, to,
                                          room, count_p);
        lines->packed_next = (size_t)(in - lines->packed);
        if (status)
            return fail_unpacking(lines, status, error);
        if (*count_p > 0)
            return RT_OK;
    }
}

static rt_status bring(rt_lines *lines, void *to, size_t room, uint64_t deadline_ns,
                       size_t *count_p, rt_error *error)
{
    *count_p = 0;
    if (lines->packing != RT_PACKED_NOT)
        return bring_packed(lines, to, room, deadline_ns, count_p, error);
    return bring_plain(lines, to, room, deadline_ns, count_p, error);
}

// Reads first bytes until they tell whether they are text, and of which kind.
static rt_status find_wide(rt_lines *lines, uint64_t deadline_ns, rt_error *error)
{
    bool may_tell_more = true, may_be_other;
    while (may_tell_more && !lines->is_file_end) {
        size_t count;
        rt_status status = bring(lines, lines->wide_text + lines->wide_count,
                                 WIDE_BYTES - lines->wide_count, deadline_ns, &count, error);
        if (status)
            return status;
        lines->wide_count += count;
        lines->wide = rt_file_kind_wide(lines->wide_text, lines->wide_count, &may_tell_more);
    }
    const rt_file_kind kind = rt_file_kind_of(lines->wide_text, lines->wide_count, &may_be_other);
    if (lines->packing != RT_PACKED_NOT && kind.packing != RT_PACKED_NOT)
        return fail_here(lines, RT_DATA, "was packed twice: unpack it once", error);
    if (lines->packing != RT_PACKED_NOT && !kind.is_read)
        return rt_fail(error, RT_DATA, "%s:1: packed, it is %s, which is not read: %s", lines->name,
                       kind.name, kind.advice);
    lines->has_wide = true;
    return RT_OK;
}

// What find_wide brought, then what comes, as UTF-8.
static rt_status fill_text(rt_lines *lines, size_t room, uint64_t deadline_ns, rt_error *error)
{
    char *to = lines->text + lines->end;
    size_t count = 0, used = 0;
    rt_status status = RT_OK;
    if (lines->wide == RT_WIDE_NOT && lines->wide_count > 0) {
        rt_assert(lines->wide_count <= room);
        memcpy(to, lines->wide_text, lines->wide_count);
        lines->end += lines->wide_count;
        lines->wide_count = 0;
        return RT_OK;
    }
    if (lines->wide == RT_WIDE_NOT) {
        status = bring(lines, to, room, deadline_ns, &count, error);
        lines->end += status ? 0 : count;
        return status;
    }
    for (;;) {
        const size_t made = rt_file_kind_narrow(lines->wide, lines->wide_text, lines->wide_count,
                                                lines->is_file_end, to, &used);
        lines->wide_count -= used;
        memmove(lines->wide_text, lines->wide_text + used, lines->wide_count);
        lines->end += made;
        if (made > 0 || lines->is_file_end)
            return RT_OK;
        status = bring(lines, lines->wide_text + lines->wide_count, WIDE_BYTES - lines->wide_count,
                       deadline_ns, &count, error);
        if (status)
            return status;
        lines->wide_count += count;
    }
}

// Brings at least one byte of text, or finds the end of the file.
static rt_status fill(rt_lines *lines, uint64_t deadline_ns, rt_error *error)
{
    rt_status status = RT_OK;
    if (!lines->has_packing)
        status = find_packing(lines, deadline_ns, error);
    if (!status && !lines->has_wide)
        status = find_wide(lines, deadline_ns, error);
    if (status)
        return status;
    // Moving is paid for by the bytes given out before; a long tail that grows is not moved again.
    const size_t rest = lines->end - lines->next;
    const size_t kept = rt_min_u64(lines->next, RT_LINES_TAIL_BYTES), over = lines->next - kept;
    if (rest < over || TEXT_BYTES - lines->end < BLOCK_BYTES) {
        memmove(lines->text, lines->text + over, kept + rest);
        lines->scanned -= over;
        lines->next = kept;
        lines->end = kept + rest;
    }
    size_t room = TEXT_BYTES - lines->end;
    rt_assert(room >= BLOCK_BYTES);
    const size_t before = lines->end;
    status = fill_text(lines, room, deadline_ns, error);
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

// read_before: bytes that were read before this file.
static rt_status seek_plain(rt_lines *lines, uint64_t offset, uint64_t tail, uint64_t read_before,
                            rt_error *error)
{
    struct stat info;
    if (fstat(lines->descriptor, &info) != 0 ||
        lseek(lines->descriptor, (off_t)offset, SEEK_SET) < 0)
        return fail_here(lines, RT_IO, strerror(errno), error);
    lines->bytes_read = read_before + offset;
    lines->packed_next = lines->packed_end = lines->wide_count = 0;
    lines->is_file_end = false;
    if ((uint64_t)info.st_size < offset)
        return too_short(lines, offset, error);
    tail = rt_min_u64(tail, offset);
    if (pread(lines->descriptor, lines->text, tail, (off_t)(offset - tail)) != (ssize_t)tail)
        return fail_here(lines, RT_IO, "what was read cannot be read again", error);
    lines->next = lines->end = lines->scanned = tail;
    return RT_OK;
}

static rt_status skip_packed(rt_lines *lines, uint64_t offset, rt_error *error)
{
    while (lines->offset < offset && (!lines->is_file_end || lines->wide_count > 0)) {
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

static bool is_behind(const rt_lines *lines, const rt_lines_tail *tail)
{
    return tail->bytes == 0 ||
           (tail->bytes <= lines->next &&
            rt_hash_bytes(lines->text + lines->next - tail->bytes, tail->bytes) == tail->hash);
}

rt_status rt_lines_seek(rt_lines *lines, const rt_lines_place *place, uint64_t *rest_p,
                        rt_error *error)
{
    rt_assert(lines->offset == 0 && lines->end == 0);
    const uint64_t read_before = lines->bytes_read;
    const uint64_t tail = rt_min_u64(place->tail.bytes, RT_LINES_TAIL_BYTES);
    *rest_p = 0;
    rt_status status = RT_OK;
    if (!lines->waits && place->offset > 0) {
        status = find_packing(lines, 0, error);
        if (!status)
            status = find_wide(lines, 0, error);
        if (!status && lines->packing == RT_PACKED_NOT && lines->wide == RT_WIDE_NOT &&
            !is_columnar(lines))
            status = seek_plain(lines, place->offset, tail, read_before, error);
        else if (!status)
            status = skip_packed(lines, place->offset, error);
        if (!status && !is_behind(lines, &place->tail))
            status = RT_NOT_FOUND;
    }
    lines->offset = place->offset;
    lines->line = place->line;
    lines->last_size = lines->last_lines = 0;
    if (!status && place->is_inside && !lines->waits)
        status = skip_rest(lines, rest_p, error);
    return status;
}
