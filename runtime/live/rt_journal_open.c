// The segments of a journal as a start finds them: the last one is read as a whole, for what it
// remembers, its next event, and where it ends.
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/config/rt_config.h"
#include "runtime/files/rt_own.h"
#include "runtime/live/rt_journal_parts.h"
#include "runtime/rt_clock.h"

typedef struct {
    rt_journal *journal;
    uint64_t first; // by its name
    int file;
    char path[RT_PATH_MAX + RT_SEGMENT_NAME_MAX];
    uint64_t next, offset, size;
    bool has_head, has_frames, is_damaged;
} scan;

static rt_status open_scan(scan *s, rt_journal *journal, uint64_t first, rt_error *error)
{
    struct stat info;
    *s = (scan){.journal = journal, .first = first, .next = first};
    rt_journal_path(journal, first, s->path, sizeof s->path);
    rt_status status = rt_own_reopen(s->path, &s->file, error);
    if (status)
        return status;
    if (fstat(s->file, &info) != 0) {
        status = rt_fail(error, RT_IO, "cannot open %s: %s", s->path, strerror(errno));
        close(s->file);
        return status;
    }
    rt_own_hide(s->file);
    s->size = (uint64_t)info.st_size;
    return RT_OK;
}

// RT_DATA: damaged, and no copy has another one.
static rt_status read_head(scan *s, rt_error *error)
{
    rt_journal *journal = s->journal;
    uint64_t first, to;
    rt_frame_head head;
    rt_bytes rest = {0};
    rt_status status =
        rt_segment_read_head(s->file, s->path, &first, &journal->memory, &s->offset, error);
    if (status != RT_DATA)
        return status;
    if (error)
        *error = (rt_error){0};
    s->offset = 0;
    status = rt_frame_next(s->file, 0, s->size, s->first, &head, &rest, &to, NULL);
    rt_bytes_fini(&rest);
    if (status && status != RT_END)
        return status;
    if (rt_journal_mend(journal, s->first, 0, status ? UINT64_MAX : to, s->first))
        return rt_segment_read_head(s->file, s->path, &first, &journal->memory, &s->offset, error);
    return RT_DATA;
}

static void remember(scan *s, const rt_frame_head *head, const rt_bytes *rest)
{
    rt_journal_memory *memory = &s->journal->memory;
    s->journal->last_ns = rt_max_u64(s->journal->last_ns, head->arrival_ns);
    if (head->origin)
        rt_journal_memory_set(memory, head->origin, head->origin_last);
    if (head->note_size)
        rt_journal_memory_note(memory, rest->data, head->note_size);
}

// From s->offset to the end of what is whole.
static rt_status read_frames(scan *s, rt_error *error)
{
    uint64_t at;
    rt_frame_head head;
    rt_bytes rest = {0};
    rt_status status;
    while (
        !(status = rt_frame_next(s->file, s->offset, s->size, s->next, &head, &rest, &at, error))) {
        if (at > s->offset && rt_journal_mend(s->journal, s->first, s->offset, at, s->next))
            continue;
        s->is_damaged |= at > s->offset;
        s->has_frames = true;
        s->next = head.first + head.count;
        s->offset = at + sizeof head + head.size;
        remember(s, &head, &rest);
    }
    rt_bytes_fini(&rest);
    if (status != RT_END)
        return status;
    if (s->journal->memory.note.failed)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    return RT_OK;
}

// Whether the copy had more than what is whole here.
static rt_status mend_end(scan *s, rt_error *error)
{
    struct stat info;
    if (s->offset >= s->size ||
        !rt_journal_mend(s->journal, s->first, s->offset, UINT64_MAX, s->next))
        return RT_OK;
    if (fstat(s->file, &info) != 0)
        return rt_fail(error, RT_IO, "%s: %s", s->path, strerror(errno));
    s->size = (uint64_t)info.st_size;
    return read_frames(s, error);
}

// What is behind the last whole frame was never acknowledged, or it is damaged.
static rt_status settle_end(scan *s, rt_error *error)
{
    rt_frame_end found;
    rt_status status = mend_end(s, error);
    if (status || s->offset >= s->size)
        return status;
    status = rt_frame_judge_end(s->file, s->offset, s->size, s->next, &found, error);
    if (status || (found.is_cut_off && s->offset == 0)) // no frame is in it
        return status;
    if (found.is_cut_off) {
        rt_info("%s: %" PRIu64 " bytes at its end are a frame that was cut off while it was "
                "written, which was not acknowledged: they are removed",
                s->path, s->size - s->offset);
        if (ftruncate(s->file, (off_t)s->offset) != 0 || fdatasync(s->file) != 0)
            return rt_fail(error, RT_IO, "%s: %s", s->path, strerror(errno));
        return RT_OK;
    }
    rt_warn("%s: the bytes from %" PRIu64 " to its end at %" PRIu64 " are damaged; about %" PRIu64
            " events stood there",
            s->path, s->offset, s->size, found.events);
    s->is_damaged = s->journal->end_is_damaged = true;
    s->next += found.events;
    s->offset = s->size;
    return RT_OK;
}

// It is set aside: its name is that of the segment that begins now. RT_NOT_FOUND: what its head
// remembered is not known either.
static rt_status replace_last(scan *s, rt_error *error)
{
    rt_journal *journal = s->journal;
    if (!s->has_head)
        rt_warn("%s: its head is not whole, and no event can be made out in it", s->path);
    journal->end_is_damaged = true;
    rt_journal_set_aside(journal, s->path);
    if (!s->has_head)
        return RT_NOT_FOUND;
    journal->counts.next = s->next;
    return rt_journal_begin_segment(journal, s->next, error);
}

// The last one. RT_NOT_FOUND: it was being made when the machine went down, and is set aside.
static rt_status take_last(scan *s, rt_error *error)
{
    rt_journal *journal = s->journal;
    rt_status status = settle_end(s, error);
    if (status)
        return status;
    if (s->is_damaged && !s->has_frames && s->next == s->first)
        return replace_last(s, error);
    journal->file = s->file;
    s->file = -1;
    journal->must_roll = s->is_damaged;
    journal->counts.next = s->next;
    journal->segments[journal->segment_count++] =
        (rt_journal_segment){s->first, s->offset, rt_steady_s(), s->is_damaged};
    return RT_OK;
}

// Scans one segment of those from which the memory of the journal is known.
static rt_status scan_one(rt_journal *journal, uint64_t first, bool is_last, rt_error *error)
{
    scan s;
    rt_status status = open_scan(&s, journal, first, error);
    if (status)
        return status;
    status = read_head(&s, error);
    s.has_head = !status;
    s.is_damaged = status == RT_DATA;
    if (!status || status == RT_DATA)
        status = read_frames(&s, error);
    if (!status && is_last)
        status = take_last(&s, error);
    if (s.file >= 0)
        close(s.file);
    return status;
}

// What a version before wrote is not for others to read either.
static void hide(const char *path)
{
    const int file = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (file < 0)
        return;
    rt_own_hide(file);
    close(file);
}

static void note_segment(rt_journal *journal, uint64_t first)
{
    char path[RT_PATH_MAX + RT_SEGMENT_NAME_MAX];
    struct stat info = {0};
    rt_journal_path(journal, first, path, sizeof path);
    hide(path);
    (void)stat(path, &info);
    const double written_s = rt_steady_s() - rt_clock_age_s((double)info.st_mtim.tv_sec);
    journal->segments[journal->segment_count++] =
        (rt_journal_segment){first, (uint64_t)info.st_size, written_s, false};
}

static bool has_head(rt_journal *journal, uint64_t first)
{
    char path[RT_PATH_MAX + RT_SEGMENT_NAME_MAX];
    uint64_t number, size;
    rt_journal_path(journal, first, path, sizeof path);
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    const bool has =
        file >= 0 && rt_segment_read_head(file, path, &number, NULL, &size, NULL) != RT_DATA;
    if (file >= 0)
        close(file);
    return has;
}

// What the journal remembers stands in the head of its last segment and in the frames of that;
// where the head is damaged, in those of the one before it.
static rt_status take_from(rt_journal *journal, const uint64_t *firsts, uint32_t count,
                           rt_error *error)
{
    uint32_t from = count - 1;
    rt_status status = RT_OK;
    while (from > 0 && !has_head(journal, firsts[from]))
        from--;
    journal->memory.origin_count = 0;
    rt_bytes_clear(&journal->memory.note);
    journal->segment_count = 0;
    for (uint32_t i = 0; i + 1 < count; i++)
        note_segment(journal, firsts[i]);
    for (uint32_t i = from; !status && i < count; i++)
        status = scan_one(journal, firsts[i], i + 1 == count, error);
    return status;
}

rt_status rt_journal_take_segments(rt_journal *journal, rt_error *error)
{
    uint64_t *firsts;
    uint32_t count;
    rt_status status = rt_segment_list(journal->directory, &firsts, &count, error);
    if (status)
        return status;
    if (rt_grow(&journal->segments, &journal->segment_capacity, count + 1u,
                sizeof *journal->segments)) {
        rt_free(firsts);
        return rt_fail(error, RT_NO_MEMORY, "out of memory for a journal");
    }
    status = RT_NOT_FOUND;
    while (count > 0 && status == RT_NOT_FOUND)
        status = take_from(journal, firsts, count--, error);
    rt_free(firsts);
    if (status != RT_NOT_FOUND)
        return status;
    journal->segment_count = 0;
    journal->counts.next = 1;
    return rt_journal_begin_segment(journal, 1, error);
}
