#include "runtime/watch/rt_view_tail.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

// From the beginning of a line in the last part of the file.
static bool open_file(rt_view_tail *tail)
{
    struct stat info;
    FILE *file = fopen(tail->path, "re");
    if (!file)
        return false;
    if (fstat(fileno(file), &info) != 0) {
        fclose(file);
        return false;
    }
    if (tail->file)
        fclose(tail->file);
    tail->file = file;
    tail->inode = info.st_ino;
    tail->length = 0;
    tail->skips = (uint64_t)info.st_size > RT_VIEW_TAIL_BYTES;
    if (tail->skips)
        (void)fseeko(file, (off_t)((uint64_t)info.st_size - RT_VIEW_TAIL_BYTES), SEEK_SET);
    return true;
}

rt_status rt_view_tail_open(const char *directory, rt_view_tail *tail, rt_error *error)
{
    *tail = (rt_view_tail){0};
    if (strlen(directory) >= RT_PATH_MAX)
        return rt_fail(error, RT_LIMIT, "the path of a run has more than %d bytes",
                       RT_PATH_MAX - 1);
    snprintf(tail->path, sizeof tail->path, "%s/metrics.jsonl", directory);
    tail->line = rt_alloc(RT_VIEW_LINE_MAX, 1);
    if (!tail->line)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    if (open_file(tail))
        return RT_OK;
    const int cause = errno;
    rt_view_tail_close(tail);
    if (cause == ENOENT || cause == ENOTDIR)
        return rt_fail(error, RT_NOT_FOUND, "%s: no metrics.jsonl: is this what --out named?",
                       directory);
    return rt_fail(error, RT_IO, "%s/metrics.jsonl: %s", directory, strerror(cause));
}

void rt_view_tail_close(rt_view_tail *tail)
{
    if (tail->file)
        fclose(tail->file);
    rt_free(tail->line);
    *tail = (rt_view_tail){0};
}

// The line has ended. True: it was a record.
static bool take_line(rt_view_tail *tail, rt_view *view)
{
    tail->line[tail->length] = '\0';
    const bool is_text = !tail->skips && strlen(tail->line) == tail->length;
    const bool is_record = is_text && rt_view_take(view, tail->line, NAN);
    tail->length = 0;
    tail->skips = false;
    tail->lines.count++;
    if (!is_record && tail->lines.bad++ == 0)
        tail->lines.first_bad = tail->lines.count;
    return is_record;
}

static uint64_t read_file(rt_view_tail *tail, uint64_t end, rt_view *view)
{
    uint64_t count = 0;
    int c;
    clearerr(tail->file);
    while ((uint64_t)ftello(tail->file) < end && (c = getc_unlocked(tail->file)) != EOF) {
        if (c == '\n')
            count += take_line(tail, view);
        else if (tail->length + 1 < RT_VIEW_LINE_MAX)
            tail->line[tail->length++] = (char)c;
        else
            tail->skips = true;
    }
    return count;
}

rt_status rt_view_read(const char *path, FILE *file, rt_view *view, rt_view_lines *lines,
                       rt_error *error)
{
    rt_view_tail tail = {.file = file, .line = rt_alloc(RT_VIEW_LINE_MAX, 1)};
    if (!tail.line)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    (void)read_file(&tail, UINT64_MAX, view);
    const int cause = ferror(file) ? errno : 0;
    if (tail.length || tail.skips) {
        tail.skips = true;
        (void)take_line(&tail, view);
    }
    rt_free(tail.line);
    *lines = tail.lines;
    if (cause)
        return rt_fail(error, RT_IO, "%s: %s", path, strerror(cause));
    return RT_OK;
}

// Another file has the name, or this one was emptied.
static bool is_replaced(const rt_view_tail *tail)
{
    struct stat info;
    return stat(tail->path, &info) == 0 &&
           (info.st_ino != tail->inode || info.st_size < ftello(tail->file));
}

uint64_t rt_view_tail_read(rt_view_tail *tail, uint64_t end, rt_view *view)
{
    uint64_t count = read_file(tail, end, view);
    if (end == UINT64_MAX && is_replaced(tail) && open_file(tail))
        count += read_file(tail, end, view);
    return count;
}

double rt_view_tail_unix_s(const rt_view_tail *tail)
{
    struct stat info;
    if (fstat(fileno(tail->file), &info) != 0)
        return NAN;
    return (double)info.st_mtim.tv_sec + 1e-9 * (double)info.st_mtim.tv_nsec;
}
