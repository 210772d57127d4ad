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

static rt_status init(const char *directory, rt_view_tail *tail, rt_error *error)
{
    *tail = (rt_view_tail){0};
    if (strlen(directory) >= RT_PATH_MAX)
        return rt_fail(error, RT_LIMIT, "the path of a run has more than %d bytes",
                       RT_PATH_MAX - 1);
    tail->line = rt_alloc(RT_VIEW_LINE_MAX, 1);
    if (!tail->line)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    return RT_OK;
}

static bool is_missing(int cause)
{
    return cause == ENOENT || cause == ENOTDIR;
}

static rt_status fail_missing(const char *directory, rt_error *error)
{
    return rt_fail(error, RT_NOT_FOUND, "%s: no metrics.jsonl: is this what --out named?",
                   directory);
}

rt_status rt_view_tail_open(const char *directory, rt_view_tail *tail, rt_error *error)
{
    const rt_status status = init(directory, tail, error);
    if (status)
        return status;
    snprintf(tail->path, sizeof tail->path, "%s/metrics.jsonl", directory);
    if (open_file(tail))
        return RT_OK;
    const int cause = errno;
    rt_view_tail_close(tail);
    if (is_missing(cause))
        return fail_missing(directory, error);
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
static bool take_line(rt_view_tail *tail)
{
    tail->line[tail->length] = '\0';
    const bool is_text = !tail->skips && strlen(tail->line) == tail->length;
    const bool is_record = is_text && tail->take(tail->context, tail->line);
    tail->length = 0;
    tail->skips = false;
    tail->count++;
    if (!is_record && tail->bad++ == 0)
        tail->first_bad = tail->count;
    return is_record;
}

static uint64_t read_file(rt_view_tail *tail, uint64_t end)
{
    uint64_t count = 0;
    int c;
    clearerr(tail->file);
    while ((uint64_t)ftello(tail->file) < end && (c = getc_unlocked(tail->file)) != EOF) {
        if (c == '\n')
            count += take_line(tail);
        else if (tail->length + 1 < RT_VIEW_LINE_MAX)
            tail->line[tail->length++] = (char)c;
        else
            tail->skips = true;
    }
    return count;
}

static rt_status read_whole(rt_view_tail *tail, rt_view_lines *lines, rt_error *error)
{
    tail->count = tail->bad = tail->first_bad = 0;
    tail->file = fopen(lines->path, "re");
    lines->is_there = tail->file != NULL;
    if (!tail->file && is_missing(errno))
        return RT_OK;
    if (tail->file)
        (void)read_file(tail, UINT64_MAX);
    const bool is_bad = !tail->file || ferror(tail->file);
    if (is_bad)
        return rt_fail(error, RT_IO, "%s: %s", lines->path, strerror(errno));
    if (tail->length || tail->skips) {
        tail->skips = true;
        (void)take_line(tail);
    }
    fclose(tail->file);
    tail->file = NULL;
    lines->count = tail->count;
    lines->bad = tail->bad;
    lines->first_bad = tail->first_bad;
    return RT_OK;
}

rt_status rt_view_read_run(const char *directory, rt_view_taker take, void *context,
                           rt_view_lines lines[2], rt_error *error)
{
    static const char *const names[2] = {"metrics.jsonl.1", "metrics.jsonl"};
    rt_view_tail tail;
    rt_status status = init(directory, &tail, error);
    tail.take = take;
    tail.context = context;
    for (uint32_t i = 0; i < 2 && !status; i++) {
        lines[i] = (rt_view_lines){.is_there = false};
        snprintf(lines[i].path, sizeof lines[i].path, "%s/%s", directory, names[i]);
        status = read_whole(&tail, &lines[i], error);
    }
    rt_view_tail_close(&tail);
    if (!status && !lines[0].is_there && !lines[1].is_there)
        return fail_missing(directory, error);
    return status;
}

// Another file has the name, or this one was emptied.
static bool is_replaced(const rt_view_tail *tail)
{
    struct stat info;
    return stat(tail->path, &info) == 0 &&
           (info.st_ino != tail->inode || info.st_size < ftello(tail->file));
}

static bool take_record(void *view, const char *line)
{
    return rt_view_take(view, line, NAN);
}

uint64_t rt_view_tail_read(rt_view_tail *tail, uint64_t end, rt_view *view)
{
    tail->take = take_record;
    tail->context = view;
    uint64_t count = read_file(tail, end);
    if (end == UINT64_MAX && is_replaced(tail) && open_file(tail))
        count += read_file(tail, end);
    return count;
}

double rt_view_tail_unix_s(const rt_view_tail *tail)
{
    struct stat info;
    if (fstat(fileno(tail->file), &info) != 0)
        return NAN;
    return (double)info.st_mtim.tv_sec + 1e-9 * (double)info.st_mtim.tv_nsec;
}
