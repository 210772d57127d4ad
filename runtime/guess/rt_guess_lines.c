// The first lines of a file, as they are read by a run: unpacked, in UTF-8.
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/guess/rt_guess_parts.h"
#include "runtime/stream/rt_lines.h"

#define BYTES_MAX (UINT64_C(48) << 20)
#define LINES_MAX 200000u
#define PIPE_LINES_MAX 10000u
#define PIPE_NS (UINT64_C(5) * 1000000000) // after its first line

static rt_status put_line(rt_guess_lines *lines, const rt_line *line)
{
    const uint64_t wanted = lines->size + line->length + 1 + RT_LINE_PAD;
    uint32_t room = (uint32_t)lines->room;
    rt_status status = rt_grow_unset(&lines->bytes, &room, wanted, 1);
    lines->room = room;
    if (!status)
        status = rt_grow(&lines->starts, &lines->line_room, lines->line_count + 2u,
                         sizeof *lines->starts);
    if (status)
        return status;
    memcpy(lines->bytes + lines->size, line->text, line->length);
    lines->size += line->length;
    lines->bytes[lines->size++] = '\n';
    memset(lines->bytes + lines->size, '\n', RT_LINE_PAD);
    lines->starts[++lines->line_count] = lines->size;
    return RT_OK;
}

static rt_status read_lines(rt_lines *from, bool waits, rt_guess_lines *lines, rt_error *error)
{
    const uint32_t count_max = waits ? PIPE_LINES_MAX : LINES_MAX;
    uint64_t deadline_ns = 0;
    rt_line line;
    while (lines->line_count < count_max && lines->size < BYTES_MAX) {
        rt_status status = rt_lines_next(from, deadline_ns, 0, &line, error);
        lines->is_whole = status == RT_END;
        if (status == RT_END || status == RT_AGAIN)
            return RT_OK;
        if (status)
            return status;
        if (waits && deadline_ns == 0)
            deadline_ns = rt_now_ns() + PIPE_NS;
        if (line.is_too_long)
            continue;
        if (lines->line_count == 0 && line.length >= 3 &&
            memcmp(line.text, "\xef\xbb\xbf", 3) == 0) {
            line.text += 3;
            line.length -= 3;
        }
        if (put_line(lines, &line))
            return rt_fail(error, RT_NO_MEMORY, "out of memory");
    }
    return RT_OK;
}

static rt_status open_path(const char *path, int *file_p, bool *waits_p, rt_error *error)
{
    struct stat info;
    const bool is_input = strcmp(path, "-") == 0;
    *file_p = is_input ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (*file_p < 0 || fstat(*file_p, &info) != 0)
        return rt_fail(error, RT_IO, "cannot open %s: %s", path, strerror(errno));
    *waits_p = !S_ISREG(info.st_mode);
    if (!S_ISDIR(info.st_mode))
        return RT_OK;
    close(*file_p);
    return rt_fail(error, RT_IO, "cannot read %s: it is a folder", path);
}

rt_status rt_guess_lines_read(const char *path, rt_guess_lines *lines, rt_error *error)
{
    rt_lines *from;
    int file;
    bool waits;
    *lines = (rt_guess_lines){0};
    rt_status status = open_path(path, &file, &waits, error);
    if (!status)
        status = rt_lines_create(&from, error);
    if (status)
        return status;
    rt_lines_begin(from, file, path, 0, waits);
    status = rt_grow(&lines->starts, &lines->line_room, 2, sizeof *lines->starts);
    if (!status)
        status = read_lines(from, waits, lines, error);
    rt_lines_destroy(from);
    if (file != STDIN_FILENO)
        close(file);
    if (!status && lines->line_count == 0)
        status = rt_fail(error, RT_DATA, "%s: it is empty", path);
    if (status)
        rt_guess_lines_fini(lines);
    return status;
}

void rt_guess_lines_fini(rt_guess_lines *lines)
{
    rt_free(lines->bytes);
    rt_free(lines->starts);
    *lines = (rt_guess_lines){0};
}

rt_cell rt_guess_line(const rt_guess_lines *lines, uint32_t index)
{
    const uint64_t start = lines->starts[index];
    return (rt_cell){lines->bytes + start, lines->starts[index + 1] - start - 1};
}
