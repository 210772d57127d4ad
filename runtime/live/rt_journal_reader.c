// The reader of a journal: it follows the commits through the segments.
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/config/rt_config.h"
#include "runtime/live/rt_journal_parts.h"

typedef struct {
    rt_journal_segment segment;
    bool is_last;
    uint64_t follower; // first event of the next segment; of the last: the next event
} place;

int rt_journal_fd(const rt_journal *journal)
{
    return journal->event_fd;
}

// The reader's segment as it is now; one that is gone: the oldest that is there.
static place look(rt_journal *journal)
{
    place at;
    uint32_t i = 0;
    pthread_mutex_lock(&journal->lock);
    while (i + 1 < journal->segment_count && journal->segments[i].first < journal->reader_segment)
        i++;
    at.segment = journal->segments[i];
    at.is_last = i + 1 == journal->segment_count;
    at.follower = at.is_last ? journal->counts.next : journal->segments[i + 1].first;
    pthread_mutex_unlock(&journal->lock);
    return at;
}

static void close_file(rt_journal *journal)
{
    if (journal->reader_file >= 0)
        close(journal->reader_file);
    journal->reader_file = -1;
}

// One whose head is damaged is searched from its beginning. RT_DATA: it is not there, and another
// one follows it.
static rt_status open_segment(rt_journal *journal, const place *at, rt_error *error)
{
    char path[RT_PATH_MAX + RT_SEGMENT_NAME_MAX];
    uint64_t first;
    if (journal->reader_file >= 0 && journal->reader_segment == at->segment.first)
        return RT_OK;
    close_file(journal);
    rt_journal_path(journal, at->segment.first, path, sizeof path);
    journal->reader_segment = journal->reader_event = at->segment.first;
    journal->reader_offset = 0;
    journal->reader_file = open(path, O_RDONLY | O_CLOEXEC);
    if (journal->reader_file < 0) {
        const int reason = errno;
        return rt_fail(error, reason == ENOENT && !at->is_last ? RT_DATA : RT_IO,
                       "cannot open %s: %s", path, strerror(reason));
    }
    const rt_status status = rt_segment_read_head(journal->reader_file, path, &first, NULL,
                                                  &journal->reader_offset, error);
    if (status != RT_DATA)
        return status;
    if (error)
        *error = (rt_error){0};
    journal->reader_offset = 0;
    return RT_OK;
}

// Events up to `until` are lost; returns how many were not counted before.
static uint64_t count_lost(rt_journal *journal, uint64_t until)
{
    const uint64_t from = rt_max_u64(journal->reader_next, journal->lost_end);
    uint64_t lost = 0;
    if (until > from) {
        lost = until - from;
        journal->lost_end = until;
    }
    pthread_mutex_lock(&journal->lock);
    journal->counts.lost += lost;
    pthread_mutex_unlock(&journal->lock);
    journal->reader_next = rt_max_u64(journal->reader_next, until);
    return lost;
}

static void flag_segment(rt_journal *journal)
{
    pthread_mutex_lock(&journal->lock);
    for (uint32_t i = 0; i < journal->segment_count; i++)
        journal->segments[i].is_damaged |= journal->segments[i].first == journal->reader_segment;
    pthread_mutex_unlock(&journal->lock);
}

// The bytes from the reader's place to `to` are damaged: those events of them that are not read
// yet, before `until`, are lost.
static void pass_over(rt_journal *journal, uint64_t to, uint64_t until)
{
    char path[RT_PATH_MAX + RT_SEGMENT_NAME_MAX], what[96] = "no event is lost that was not read";
    const uint64_t lost = count_lost(journal, until);
    rt_journal_path(journal, journal->reader_segment, path, sizeof path);
    if (lost)
        snprintf(what, sizeof what, "%" PRIu64 " events from number %" PRIu64 " on are lost", lost,
                 until - lost);
    rt_error_log("%s: bytes %" PRIu64 " to %" PRIu64
                 " are damaged and passed over: %s; the file is kept",
                 path, journal->reader_offset, to, what);
    flag_segment(journal);
}

// The segment has no more that can be read; to: its end, or where it is missing.
static void go_on(rt_journal *journal, const place *at, uint64_t to)
{
    uint64_t lost = 0;
    if (to > journal->reader_offset)
        pass_over(journal, to, at->follower);
    else
        lost = count_lost(journal, at->follower);
    if (lost)
        rt_error_log("the journal %s: %" PRIu64 " events from number %" PRIu64
                     " on are lost: they are missing",
                     journal->directory, lost, at->follower - lost);
    if (at->is_last) {
        journal->reader_offset = at->segment.bytes;
        journal->reader_event = at->follower;
        return;
    }
    close_file(journal);
    journal->reader_segment = at->follower;
}

static void skip_lines(rt_journal_frame *frame, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        const char *end = memchr(frame->lines, '\n', frame->size);
        const size_t size = end ? (size_t)(end + 1 - frame->lines) : frame->size;
        frame->lines += size;
        frame->size -= size;
    }
    frame->first += count;
    frame->count -= (uint32_t)count;
}

static void take_frame(rt_journal *journal, const rt_frame_head *head, rt_journal_frame *frame)
{
    *frame = (rt_journal_frame){.lines = (const char *)journal->reader_bytes.data + head->note_size,
                                .size = head->size - head->note_size,
                                .first = head->first,
                                .count = head->count,
                                .arrival_ns = head->arrival_ns,
                                .origin = head->origin};
    if (head->first < journal->reader_next)
        skip_lines(frame, journal->reader_next - head->first);
    journal->reader_next = head->first + head->count;
}

// The next frame of the reader's segment. RT_AGAIN: what was damaged has come from a copy. *to_p:
// where the damage before it ends.
static rt_status next_frame(rt_journal *journal, const place *at, rt_frame_head *head,
                            uint64_t *to_p, rt_error *error)
{
    const uint64_t from = journal->reader_offset, end = at->segment.bytes;
    const rt_status status = rt_frame_next(journal->reader_file, from, end, journal->reader_event,
                                           head, &journal->reader_bytes, to_p, error);
    if ((status && status != RT_END) || *to_p <= from)
        return status;
    const bool is_mended =
        rt_journal_mend(journal, journal->reader_segment, from, *to_p, journal->reader_event);
    if (!is_mended)
        return status;
    if (from == 0)
        close_file(journal); // its head is read anew
    return RT_AGAIN;
}

rt_status rt_journal_read(rt_journal *journal, rt_journal_frame *frame, rt_error *error)
{
    rt_frame_head head;
    uint64_t wakes, to = 0;
    bool is_sure = false; // that nothing was committed since it was looked at
    for (;;) {
        const place at = look(journal);
        rt_status status = open_segment(journal, &at, error);
        if (status == RT_DATA) {
            if (error)
                *error = (rt_error){0};
            go_on(journal, &at, 0);
            continue;
        }
        if (!status)
            status = next_frame(journal, &at, &head, &to, error);
        if (status == RT_AGAIN)
            continue;
        const bool is_at_end = status == RT_END && at.is_last && to <= journal->reader_offset;
        if (is_at_end && is_sure)
            return RT_AGAIN;
        if (is_at_end) {
            is_sure = true;
            if (read(journal->event_fd, &wakes, sizeof wakes) < 0) {
                // nobody has written to it
            }
            continue;
        }
        if (status == RT_END) {
            go_on(journal, &at, to);
            continue;
        }
        if (status)
            return status;
        if (to > journal->reader_offset)
            pass_over(journal, to, head.first);
        journal->reader_offset = to + sizeof head + head.size;
        journal->reader_event = head.first + head.count;
        if (head.first + head.count <= journal->reader_next)
            continue;
        (void)count_lost(journal, head.first);
        take_frame(journal, &head, frame);
        return RT_OK;
    }
}

rt_status rt_journal_seek(rt_journal *journal, uint64_t event, uint64_t *lost_p, rt_error *error)
{
    uint32_t i = 0;
    close_file(journal);
    pthread_mutex_lock(&journal->lock);
    const uint64_t first = journal->segments[0].first, next = journal->counts.next;
    while (i + 1 < journal->segment_count && journal->segments[i + 1].first <= event)
        i++;
    journal->reader_segment = journal->segments[i].first;
    pthread_mutex_unlock(&journal->lock);
    *lost_p = event < first ? first - event : 0;
    pthread_mutex_lock(&journal->lock);
    journal->counts.lost += *lost_p;
    pthread_mutex_unlock(&journal->lock);
    journal->reader_next = rt_max_u64(event, first);
    if (event > next)
        return rt_fail(error, RT_DATA,
                       "the journal %s ends with event %" PRIu64
                       ", but reading is to go on at %" PRIu64
                       ": put back the journal that belongs to the checkpoint, or empty the folder "
                       "to go on without later events",
                       journal->directory, next - 1, event);
    if (*lost_p)
        return RT_NOT_FOUND;
    return RT_OK;
}
