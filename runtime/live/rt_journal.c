#include "runtime/live/rt_journal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/config/rt_config.h"
#include "runtime/live/rt_journal_parts.h"
#include "runtime/rt_clock.h"
#include "runtime/rt_thread.h"
#include "runtime/files/rt_own.h"

#define WAITING_BYTES_MAX (UINT64_C(64) << 20)
#define BLOCK_KEPT_BYTES ((size_t)1 << 20) // from one commit to the next
#define SEGMENTS_PER_LIFE 8.0              // with a life time: as many begin in it at least
#define SEGMENTS_PER_JOURNAL 16u
#define SEGMENT_BYTES_MIN (UINT64_C(64) << 10)
#define SEGMENT_BYTES_MAX (UINT64_C(64) << 20)
#define HOLD_NS UINT64_C(5000000000)
#define HOLD_TURN_US 1000

void rt_journal_path(const rt_journal *journal, uint64_t first, char *path, size_t size)
{
    char name[RT_SEGMENT_NAME_MAX];
    rt_segment_name(first, name);
    snprintf(path, size, "%s/%s", journal->directory, name);
}

bool rt_journal_count_lines(const char *text, size_t size, uint32_t *count_p)
{
    const char *end = text + size;
    uint32_t count = 0;
    while (text < end) {
        const char *line_end = memchr(text, '\n', (size_t)(end - text));
        if (!line_end)
            line_end = end;
        if (line_end - text > RT_LINE_MAX)
            return false;
        count++;
        text = line_end + 1;
    }
    *count_p = count;
    return true;
}

// ---- appending -------------------------------------------------------------------------------

static uint64_t bytes_of(const rt_journal *journal)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < journal->segment_count; i++)
        bytes += journal->segments[i].bytes;
    return bytes;
}

static rt_journal_waiting *copy_entry(const rt_journal_entry *entry)
{
    const size_t copied = entry->is_lent ? 0 : entry->size;
    rt_journal_waiting *copy = rt_alloc(1, sizeof *copy + copied + entry->note_size);
    if (!copy)
        return NULL;
    char *lines = (char *)(copy + 1), *note = lines + copied;
    copy->entry = *entry;
    copy->lacks_end = entry->size > 0 && entry->lines[entry->size - 1] != '\n';
    if (copied)
        memcpy(lines, entry->lines, copied);
    if (entry->note_size)
        memcpy(note, entry->note, entry->note_size);
    if (!entry->is_lent)
        copy->entry.lines = lines;
    copy->entry.note = note;
    copy->arrival_ns = rt_arrival_ns();
    return copy;
}

static size_t bytes_of_frame(const rt_journal_waiting *w)
{
    return sizeof(rt_frame_head) + w->entry.note_size + w->entry.size + w->lacks_end;
}

rt_status rt_journal_append(rt_journal *journal, const rt_journal_entry *entry)
{
    rt_assert(entry->count > 0 && entry->note_size <= RT_JOURNAL_NOTE_MAX);
    if (entry->size >= RT_JOURNAL_FRAME_MAX)
        return RT_LIMIT;
    rt_journal_waiting *copy = copy_entry(entry);
    if (!copy)
        return RT_NO_MEMORY;
    const uint64_t size = bytes_of_frame(copy);
    pthread_mutex_lock(&journal->lock);
    const bool is_full = journal->is_held || journal->waiting_bytes + size > WAITING_BYTES_MAX ||
                         bytes_of(journal) + journal->waiting_bytes + size > journal->bytes_max;
    if (is_full) {
        journal->counts.full++;
    } else {
        *journal->waiting_end = copy;
        journal->waiting_end = &copy->next;
        journal->waiting_bytes += size;
        pthread_cond_signal(&journal->wake);
    }
    pthread_mutex_unlock(&journal->lock);
    if (is_full)
        rt_free(copy);
    if (is_full)
        return RT_AGAIN;
    return RT_OK;
}

// ---- commits: the journal's thread -----------------------------------------------------------

rt_status rt_journal_begin_segment(rt_journal *journal, uint64_t first, rt_error *error)
{
    char path[RT_PATH_MAX + RT_SEGMENT_NAME_MAX];
    rt_bytes head = {0};
    rt_journal_path(journal, first, path, sizeof path);
    rt_segment_put_head(&head, first, &journal->memory);
    const int file =
        open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, RT_OWN_EVENTS_MODE);
    bool is_there = !head.failed && file >= 0 &&
                    write(file, head.data, head.size) == (ssize_t)head.size &&
                    fdatasync(file) == 0 && fsync(journal->directory_fd) == 0;
    const int reason = errno;
    pthread_mutex_lock(&journal->lock);
    is_there = is_there && !rt_grow(&journal->segments, &journal->segment_capacity,
                                    journal->segment_count + 1u, sizeof *journal->segments);
    if (is_there)
        journal->segments[journal->segment_count++] =
            (rt_journal_segment){first, head.size, rt_steady_s(), false};
    journal->begun_s = rt_steady_s();
    pthread_mutex_unlock(&journal->lock);
    rt_bytes_fini(&head);
    if (is_there) {
        if (journal->file >= 0)
            close(journal->file);
        journal->file = file;
        return RT_OK;
    }
    if (file >= 0) {
        close(file);
        unlink(path);
    }
    return rt_fail(error, RT_IO, "%s: cannot be written: %s", path, strerror(reason));
}

// Lines that the journal has from their origin already are left out; count of those left.
static uint32_t leave_out_repeated(rt_journal *journal, rt_journal_entry *entry)
{
    if (!entry->origin)
        return entry->count;
    const uint64_t *known = rt_journal_memory_find(&journal->coming, entry->origin);
    uint64_t repeated = 0;
    if (known && *known >= entry->origin_first)
        repeated = rt_min_u64(*known - entry->origin_first + 1, entry->count);
    for (uint64_t i = 0; i < repeated; i++) {
        const char *end = memchr(entry->lines, '\n', entry->size);
        const size_t length = end ? (size_t)(end + 1 - entry->lines) : entry->size;
        entry->size -= length;
        entry->lines += length;
    }
    entry->count -= (uint32_t)repeated;
    entry->origin_first += repeated;
    journal->counts.repeated += repeated;
    return entry->count;
}

// What its origin sent before was not kept: it has to come first.
static bool leaves_gap(rt_journal *journal, const rt_journal_entry *entry)
{
    const uint64_t *known = rt_journal_memory_find(&journal->coming, entry->origin);
    if (!entry->origin || entry->origin_left == 0)
        return false;
    if (!known)
        return entry->origin_first > entry->origin_left;
    return entry->origin_first > *known + 1 && entry->origin_first != entry->origin_left;
}

// What its origin had, and has lost before it came here.
static void count_left_out(rt_journal *journal, const rt_journal_entry *entry)
{
    const uint64_t *known = rt_journal_memory_find(&journal->coming, entry->origin);
    uint64_t told, lost;
    if (known)
        lost = entry->origin_first - rt_min_u64(entry->origin_first, *known + 1);
    else
        lost = entry->origin_left - rt_min_u64(entry->origin_left, entry->origin_first);
    if (lost == 0)
        return;
    journal->coming_lost += lost;
    if (rt_log_due(&journal->damages, &told))
        rt_error_log("the journal %s: %" PRIu64 " events of feeder %016" PRIx64
                     " from its number %" PRIu64 " on are lost: its spool no longer has them",
                     journal->directory, lost, entry->origin, entry->origin_first - lost);
}

// Under the lock. Returns the events that it has.
static uint32_t put_frame(rt_journal *journal, rt_journal_waiting *waiting, uint64_t next)
{
    rt_journal_entry *entry = &waiting->entry;
    waiting->is_refused = leaves_gap(journal, entry);
    if (waiting->is_refused || leave_out_repeated(journal, entry) == 0)
        return 0;
    const size_t begin = journal->block.size;
    rt_frame_head head = {.size = (uint32_t)(bytes_of_frame(waiting) - sizeof head),
                          .first = next,
                          .count = entry->count,
                          .note_size = (uint32_t)entry->note_size,
                          .arrival_ns = waiting->arrival_ns,
                          .origin = entry->origin,
                          .origin_last = entry->origin_first + entry->count - 1};
    rt_bytes_put(&journal->block, &head, sizeof head);
    rt_bytes_put(&journal->block, entry->note, entry->note_size);
    rt_bytes_put(&journal->block, entry->lines, entry->size);
    rt_bytes_put(&journal->block, "\n", waiting->lacks_end);
    if (journal->block.failed)
        return 0;
    rt_frame_seal(&head, journal->block.data + begin + sizeof head);
    memcpy(journal->block.data + begin, &head, sizeof head);
    if (entry->origin) {
        count_left_out(journal, entry);
        rt_journal_memory_set(&journal->coming, entry->origin, head.origin_last);
    }
    if (entry->note_size)
        rt_journal_memory_note(&journal->coming, entry->note, entry->note_size);
    return entry->count;
}

static rt_status write_block(rt_journal *journal, uint64_t offset, rt_error *error)
{
    const rt_bytes *block = &journal->block;
    size_t done = 0;
    while (done < block->size) {
        const ssize_t count =
            pwrite(journal->file, block->data + done, block->size - done, (off_t)(offset + done));
        if (count < 0 && errno == EINTR)
            continue;
        const int reason = count < 0 ? errno : ENOSPC;
        if (count <= 0)
            return rt_fail(error, RT_IO, "cannot write the journal %s: %s", journal->directory,
                           strerror(reason));
        done += (size_t)count;
    }
    if (fdatasync(journal->file) != 0)
        return rt_fail(error, RT_IO, "cannot sync the journal %s: %s", journal->directory,
                       strerror(errno));
    return RT_OK;
}

// On this disk and, where there is another one, at the same time on that.
static rt_status keep_block(rt_journal *journal, const rt_journal_segment *last, rt_error *error)
{
    const rt_journal_copy *copy = &journal->copy;
    if (copy->offer)
        copy->offer(copy->context, last->first, last->bytes, journal->block.data,
                    journal->block.size);
    rt_status status = write_block(journal, last->bytes, error);
    rt_error other = {0};
    rt_status settled = RT_OK;
    if (copy->offer)
        settled = copy->settle(copy->context, !status, &other);
    if (!status && settled)
        status = rt_fail(error, settled, "%s", other.text);
    return status;
}

// What failed may be there in part: the segment ends before it, and the next one begins.
static void give_up_segment(rt_journal *journal, uint64_t offset, const rt_error *error)
{
    uint64_t count;
    if (journal->file >= 0 && ftruncate(journal->file, (off_t)offset) == 0)
        (void)fdatasync(journal->file);
    if (journal->file >= 0)
        close(journal->file);
    journal->file = -1;
    if (rt_log_due(&journal->failures, &count))
        rt_error_log("%s: what came is not acknowledged", error->text);
}

static rt_journal_segment last_segment(rt_journal *journal)
{
    pthread_mutex_lock(&journal->lock);
    const rt_journal_segment last = journal->segments[journal->segment_count - 1];
    pthread_mutex_unlock(&journal->lock);
    return last;
}

// So long that what is in it could go some time before what follows.
static bool is_aged(rt_journal *journal)
{
    pthread_mutex_lock(&journal->lock);
    const bool is_aged =
        journal->keep_s > 0 &&
        journal->segments[journal->segment_count - 1].first != journal->counts.next &&
        rt_steady_s() - journal->begun_s > journal->keep_s / SEGMENTS_PER_LIFE;
    pthread_mutex_unlock(&journal->lock);
    return is_aged;
}

static void copy_memory(const rt_journal_memory *from, rt_journal_memory *to)
{
    memcpy(to->origins, from->origins, from->origin_count * sizeof *from->origins);
    to->origin_count = from->origin_count;
    rt_journal_memory_note(to, from->note.data, from->note.size);
}

static rt_status ensure_segment(rt_journal *journal, rt_error *error)
{
    const rt_journal_segment last = last_segment(journal);
    const uint64_t next = journal->counts.next;
    if (journal->file >= 0 && !journal->must_roll && !is_aged(journal) &&
        (last.bytes < journal->segment_bytes || last.first == next))
        return RT_OK;
    if (journal->file < 0 && last.first == next) { // it failed before its first event
        char path[RT_PATH_MAX + RT_SEGMENT_NAME_MAX];
        rt_journal_path(journal, next, path, sizeof path);
        return rt_own_reopen(path, &journal->file, error);
    }
    rt_status status = rt_journal_begin_segment(journal, next, error);
    journal->must_roll = journal->must_roll && status;
    return status;
}

static size_t bytes_of_block(const rt_journal_waiting *list)
{
    size_t bytes = 0;
    for (; list; list = list->next)
        bytes += bytes_of_frame(list);
    return bytes;
}

static rt_status commit(rt_journal *journal, rt_journal_waiting *list, rt_error *error)
{
    rt_status status = ensure_segment(journal, error);
    if (status)
        return status;
    const rt_journal_segment last = last_segment(journal);
    uint64_t next = journal->counts.next;
    rt_bytes_clear(&journal->block);
    (void)rt_bytes_reserve(&journal->block, bytes_of_block(list));
    pthread_mutex_lock(&journal->lock);
    copy_memory(&journal->memory, &journal->coming);
    journal->coming_lost = 0;
    for (rt_journal_waiting *w = list; w; w = w->next)
        next += put_frame(journal, w, next);
    pthread_mutex_unlock(&journal->lock);
    const uint64_t begin_ns = rt_now_ns();
    if (journal->block.failed)
        status = rt_fail(error, RT_NO_MEMORY, "out of memory for the journal");
    else if (journal->block.size > 0)
        status = keep_block(journal, &last, error);
    pthread_mutex_lock(&journal->lock);
    if (!status) {
        copy_memory(&journal->coming, &journal->memory);
        journal->counts.commits += journal->block.size > 0;
        journal->counts.commit_ns += rt_now_ns() - begin_ns;
        journal->counts.events += next - journal->counts.next;
        journal->counts.next = next;
        journal->counts.lost += journal->coming_lost;
        journal->segments[journal->segment_count - 1].bytes += journal->block.size;
        journal->segments[journal->segment_count - 1].last_s = rt_steady_s();
    }
    pthread_mutex_unlock(&journal->lock);
    if (status)
        give_up_segment(journal, last.bytes, error);
    return status;
}

// One that was large is not kept for those that follow.
static void give_back_block(rt_journal *journal)
{
    if (journal->block.capacity > BLOCK_KEPT_BYTES)
        rt_bytes_fini(&journal->block);
}

static void remove_old(rt_journal *journal)
{
    char path[RT_PATH_MAX + RT_SEGMENT_NAME_MAX];
    for (;;) {
        pthread_mutex_lock(&journal->lock);
        const bool may_go =
            journal->segment_count > 1 && journal->segments[1].first <= journal->keep_from;
        const uint64_t first = journal->segments[0].first;
        const bool is_damaged = journal->segments[0].is_damaged;
        if (may_go)
            memmove(journal->segments, journal->segments + 1,
                    --journal->segment_count * sizeof *journal->segments);
        pthread_mutex_unlock(&journal->lock);
        if (!may_go)
            return;
        rt_journal_path(journal, first, path, sizeof path);
        if (is_damaged)
            rt_journal_set_aside(journal, path);
        else if (unlink(path) != 0)
            rt_warn("%s: cannot be removed: %s", path, strerror(errno));
    }
}

static void tell_all(rt_journal *journal, rt_journal_waiting *list, rt_status status)
{
    const uint64_t one = 1;
    if (!status && write(journal->event_fd, &one, sizeof one) < 0) {
        // it is readable already
    }
    while (list) {
        rt_journal_waiting *next = list->next;
        const rt_status own = !status && list->is_refused ? RT_REFUSED : status;
        if (list->entry.done)
            list->entry.done(list->entry.context, own);
        rt_free(list);
        list = next;
    }
}

static void *run(void *context)
{
    rt_journal *journal = context;
    prctl(PR_SET_NAME, "journal");
    pthread_mutex_lock(&journal->lock);
    for (;;) {
        while (!journal->waiting && !journal->stop &&
               !(journal->segment_count > 1 && journal->segments[1].first <= journal->keep_from))
            pthread_cond_wait(&journal->wake, &journal->lock);
        rt_journal_waiting *list = journal->waiting;
        if (!list && journal->stop)
            break;
        const uint64_t bytes = journal->waiting_bytes;
        journal->waiting = NULL;
        journal->waiting_end = &journal->waiting;
        pthread_mutex_unlock(&journal->lock);
        rt_error error = {0};
        rt_status status = RT_OK;
        if (list)
            status = commit(journal, list, &error);
        give_back_block(journal);
        remove_old(journal);
        pthread_mutex_lock(&journal->lock);
        journal->waiting_bytes -= bytes;
        journal->counts.failures += status != RT_OK;
        pthread_mutex_unlock(&journal->lock);
        tell_all(journal, list, status);
        pthread_mutex_lock(&journal->lock);
    }
    pthread_mutex_unlock(&journal->lock);
    return NULL;
}

// ---- opening ---------------------------------------------------------------------------------

static rt_status open_folder(rt_journal *journal, const char *directory, rt_error *error)
{
    if (strlen(directory) >= RT_PATH_MAX)
        return rt_fail(error, RT_CONFIG, "%s: longer than %d bytes", directory, RT_PATH_MAX - 1);
    journal->directory = rt_alloc(strlen(directory) + 1, 1);
    if (!journal->directory)
        return rt_fail(error, RT_NO_MEMORY, "out of memory for a journal");
    strcpy(journal->directory, directory);
    if (mkdir(directory, 0750) != 0 && errno != EEXIST)
        return rt_fail(error, RT_IO, "cannot make the journal %s: %s", directory, strerror(errno));
    journal->directory_fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (journal->directory_fd < 0)
        return rt_fail(error, RT_IO, "cannot open the journal %s: %s", directory, strerror(errno));
    const struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    char path[RT_PATH_MAX + 8];
    snprintf(path, sizeof path, "%s/lock", directory);
    const rt_status status = rt_own_open(path, RT_OWN_EVENTS_MODE, &journal->lock_fd, error);
    if (status)
        return status;
    if (fcntl(journal->lock_fd, F_SETLK, &whole) != 0)
        return rt_fail(error, RT_IO, "the journal %s is in use by another process", directory);
    return RT_OK;
}

static rt_status start(rt_journal *journal, rt_error *error)
{
    journal->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (journal->event_fd < 0)
        return rt_fail(error, RT_LIMIT, "cannot create an event descriptor");
    journal->thread_runs = rt_thread_start(&journal->thread, run, journal) == 0;
    if (!journal->thread_runs)
        return rt_fail(error, RT_LIMIT, "cannot start the journal's thread");
    return RT_OK;
}

void rt_journal_place(const char *directory, rt_flow flow, char *path, size_t size)
{
    snprintf(path, size, "%s%s", directory, flow == RT_FLOW_OUTCOMES ? "/outcomes" : "");
}

rt_status rt_journal_open(const char *directory, uint64_t bytes_max, const rt_journal_copy *copy,
                          rt_journal **journal_p, rt_error *error)
{
    rt_journal *journal = rt_alloc(1, sizeof *journal);
    if (!journal)
        return rt_fail(error, RT_NO_MEMORY, "out of memory for a journal");
    journal->directory_fd = journal->lock_fd = journal->file = -1;
    journal->reader_file = journal->event_fd = -1;
    journal->bytes_max = bytes_max;
    if (copy)
        journal->copy = *copy;
    journal->segment_bytes = rt_max_u64(
        rt_min_u64(bytes_max / SEGMENTS_PER_JOURNAL, SEGMENT_BYTES_MAX), SEGMENT_BYTES_MIN);
    journal->waiting_end = &journal->waiting;
    pthread_mutex_init(&journal->lock, NULL);
    pthread_cond_init(&journal->wake, NULL);
    rt_status status = open_folder(journal, directory, error);
    if (!status)
        status = rt_journal_take_segments(journal, error);
    if (!status)
        status = start(journal, error);
    if (status) {
        rt_journal_close(journal);
        return status;
    }
    journal->reader_segment = journal->segments[0].first;
    journal->reader_next = journal->reader_event = journal->segments[0].first;
    *journal_p = journal;
    return RT_OK;
}

void rt_journal_close(rt_journal *journal)
{
    if (!journal)
        return;
    pthread_mutex_lock(&journal->lock);
    journal->stop = true;
    pthread_cond_signal(&journal->wake);
    pthread_mutex_unlock(&journal->lock);
    if (journal->thread_runs)
        pthread_join(journal->thread, NULL);
    const int files[] = {journal->file, journal->reader_file, journal->event_fd,
                         journal->directory_fd, journal->lock_fd};
    for (size_t i = 0; i < RT_COUNT_OF(files); i++)
        if (files[i] >= 0)
            close(files[i]);
    rt_bytes_fini(&journal->block);
    rt_bytes_fini(&journal->reader_bytes);
    rt_bytes_fini(&journal->memory.note);
    rt_bytes_fini(&journal->coming.note);
    rt_free(journal->segments);
    rt_free(journal->directory);
    pthread_cond_destroy(&journal->wake);
    pthread_mutex_destroy(&journal->lock);
    rt_free(journal);
}

// ---- what others ask -------------------------------------------------------------------------

uint64_t rt_journal_origin(rt_journal *journal, uint64_t origin)
{
    pthread_mutex_lock(&journal->lock);
    const uint64_t *known = rt_journal_memory_find(&journal->memory, origin);
    const uint64_t number = known ? *known : 0;
    pthread_mutex_unlock(&journal->lock);
    return number;
}

void rt_journal_note(rt_journal *journal, rt_bytes *note)
{
    pthread_mutex_lock(&journal->lock);
    rt_bytes_put(note, journal->memory.note.data, journal->memory.note.size);
    pthread_mutex_unlock(&journal->lock);
}

void rt_journal_keep_from(rt_journal *journal, uint64_t event)
{
    pthread_mutex_lock(&journal->lock);
    journal->keep_from = rt_max_u64(journal->keep_from, event);
    pthread_cond_signal(&journal->wake);
    pthread_mutex_unlock(&journal->lock);
}

void rt_journal_keep_for(rt_journal *journal, double keep_s)
{
    pthread_mutex_lock(&journal->lock);
    journal->keep_s = keep_s;
    pthread_mutex_unlock(&journal->lock);
}

bool rt_journal_is_old(rt_journal *journal)
{
    pthread_mutex_lock(&journal->lock);
    const bool is_old = journal->keep_s > 0 && journal->segment_count > 1 &&
                        rt_steady_s() - journal->segments[0].last_s > journal->keep_s;
    pthread_mutex_unlock(&journal->lock);
    return is_old;
}

bool rt_journal_is_pressed(rt_journal *journal)
{
    pthread_mutex_lock(&journal->lock);
    const bool is_pressed = bytes_of(journal) > journal->bytes_max / 2;
    pthread_mutex_unlock(&journal->lock);
    return is_pressed;
}

rt_status rt_journal_extents(rt_journal *journal, rt_journal_extent **extents_p, uint32_t *count_p)
{
    pthread_mutex_lock(&journal->lock);
    const uint32_t count = journal->segment_count;
    rt_journal_extent *extents = rt_alloc(count, sizeof *extents);
    for (uint32_t i = 0; extents && i < count; i++)
        extents[i] = (rt_journal_extent){journal->segments[i].first, journal->segments[i].bytes};
    pthread_mutex_unlock(&journal->lock);
    if (!extents)
        return RT_NO_MEMORY;
    *extents_p = extents;
    *count_p = count;
    return RT_OK;
}

uint64_t rt_journal_last_ns(const rt_journal *journal)
{
    return journal->last_ns;
}

const char *rt_journal_directory(const rt_journal *journal)
{
    return journal->directory;
}

rt_journal_counts rt_journal_statistics(rt_journal *journal)
{
    pthread_mutex_lock(&journal->lock);
    rt_journal_counts counts = journal->counts;
    counts.bytes = bytes_of(journal);
    counts.first = journal->segments[0].first;
    pthread_mutex_unlock(&journal->lock);
    return counts;
}

bool rt_journal_begin_at(rt_journal *journal, uint64_t event)
{
    const uint64_t end_ns = rt_now_ns() + HOLD_NS;
    pthread_mutex_lock(&journal->lock);
    const bool may_be = journal->counts.next == 1 || journal->end_is_damaged;
    journal->is_held = may_be; // or a commit could number events meanwhile
    while (may_be && journal->waiting_bytes > 0 && rt_now_ns() < end_ns) {
        pthread_mutex_unlock(&journal->lock);
        usleep(HOLD_TURN_US);
        pthread_mutex_lock(&journal->lock);
    }
    const bool begins = may_be && journal->waiting_bytes == 0 && journal->counts.next < event &&
                        (journal->counts.next == 1 || journal->end_is_damaged);
    if (begins) {
        journal->counts.next = event;
        journal->must_roll = true;
    }
    journal->is_held = false;
    pthread_mutex_unlock(&journal->lock);
    return begins;
}
