// The source of lines for one file that grows, and for those that take its name.
//
// Only whole lines are given out. At the end of what is there it is looked whether the file was
// truncated (it is read from its start again) or renamed (it is read to its end, then the next one
// from its start). Files are known by device, inode and their first bytes; one that was renamed is
// looked for beside its old name, so a run that goes on finds it, and those that came between.
// They come in the order of their last changes; those that were read are remembered. One thread.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "runtime/config/rt_sources.h"
#include "runtime/rt_hash.h"
#include "runtime/rt_clock.h"
#include "runtime/rt_log.h"
#include "runtime/stream/rt_source.h"
#include "runtime/wire/rt_fields.h"

#define BLOCK_BYTES ((size_t)256 << 10)
#define TEXT_BYTES (RT_LINE_MAX + 2 * BLOCK_BYTES)
#define LOOK_MS 500 // also where a file system tells nothing of changes
#define HEAD_BYTES 256u
#define DONE_MAX 64u // files that were read to their end and may still be there, renamed
#define SETTLED_NS UINT64_C(1000000000) // a renamed file is done when it has not grown for so long

typedef struct {
    uint64_t device, inode;
    uint64_t head_size, head_hash; // of its first bytes, as far as they are known
    uint64_t offset, line;         // behind the line given out last
} mark;

#define MARK(XX, PART, NONE, T) \
    XX(T, device)               \
    XX(T, inode)                \
    XX(T, head_size)            \
    XX(T, head_hash)            \
    XX(T, offset)               \
    XX(T, line)
RT_FIELDS(mark_fields, mark, MARK, "device:8 inode:8 head_size:8 head_hash:8 offset:8 line:8");

typedef struct {
    char path[RT_PATH_MAX];
    char folder[RT_PATH_MAX], base[RT_PATH_MAX];
    rt_source_watch watch;
    int fd; // -1: none is open
    int notify;
    mark at;
    uint64_t read_offset;    // in the file, behind text[end]
    char *text;              // TEXT_BYTES
    size_t next, end;        // [next, end) has not been given out
    size_t last_size;        // of the line given out last
    bool is_skipping;        // inside a line that is too long
    uint64_t renamed_ns;     // since when the file has had another name, as far as known; 0: not
    struct timespec changed; // the last change of the file that was read to its end
    mark done[DONE_MAX];     // the newest last
    uint32_t done_count;
    uint64_t arrival_ns, bytes_read;
} follow;

static bool serves(const rt_stream_config *config)
{
    return !rt_format_is_generated(config->format) && config->source == RT_SOURCE_FOLLOW;
}

static void close_source(void *source)
{
    follow *f = source;
    if (f->fd >= 0)
        close(f->fd);
    if (f->notify >= 0)
        close(f->notify);
    rt_free(f->text);
    rt_free(f);
}

static rt_status open_source(const rt_stream_config *config, uint64_t seed, void **source_p,
                             rt_error *error)
{
    char copy[RT_PATH_MAX];
    (void)seed;
    const char *path = config->files[0];
    if (strlen(path) >= RT_PATH_MAX)
        return rt_fail(error, RT_CONFIG, "stream.files: longer than %d bytes", RT_PATH_MAX - 1);
    follow *f = rt_alloc(1, sizeof *f);
    if (f)
        f->text = rt_alloc(TEXT_BYTES + RT_LINE_PAD, 1);
    if (!f || !f->text) {
        rt_free(f);
        return rt_fail(error, RT_NO_MEMORY, "out of memory for an input");
    }
    f->fd = -1;
    f->watch = (rt_source_watch){-1, -1};
    strcpy(f->path, path);
    strcpy(copy, path);
    strcpy(f->folder, dirname(copy));
    strcpy(copy, path);
    strcpy(f->base, basename(copy));
    f->notify = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (access(f->folder, R_OK | X_OK) != 0) {
        const rt_status status =
            rt_fail(error, RT_IO, "stream.files: cannot read the folder %s: %s", f->folder,
                    strerror(errno));
        close_source(f);
        return status;
    }
    if (f->notify >= 0)
        (void)inotify_add_watch(f->notify, f->folder,
                                IN_MODIFY | IN_CREATE | IN_MOVED_TO | IN_MOVED_FROM);
    *source_p = f;
    return RT_OK;
}

static void watch(void *source, const rt_source_watch *watch)
{
    ((follow *)source)->watch = *watch;
}

// ---- files -----------------------------------------------------------------------------------

static uint64_t hash_head(int fd, uint64_t size)
{
    char head[HEAD_BYTES];
    const ssize_t got = pread(fd, head, size, 0);
    if (got == (ssize_t)size)
        return rt_hash_bytes(head, size);
    return 0;
}

// More of the first bytes may be there now.
static void refresh_head(int fd, mark *at)
{
    const uint64_t size = rt_min_u64(at->offset, HEAD_BYTES);
    if (size <= at->head_size)
        return;
    at->head_size = size;
    at->head_hash = hash_head(fd, size);
}

static bool is_the_file(const mark *at, int fd, const struct stat *info)
{
    return at->device == info->st_dev && at->inode == info->st_ino &&
           (uint64_t)info->st_size >= at->head_size &&
           (at->head_size == 0 || hash_head(fd, at->head_size) == at->head_hash);
}

// An inode may serve another file later: then the first bytes, or the size, are others.
static bool was_read(const follow *f, int fd, const struct stat *info)
{
    for (uint32_t i = 0; i < f->done_count; i++) {
        const mark *done = &f->done[i];
        const bool has_size =
            done->offset ? (uint64_t)info->st_size >= done->offset : info->st_size == 0;
        if (has_size && is_the_file(done, fd, info))
            return true;
    }
    return false;
}

static void note_read(follow *f)
{
    if (f->done_count == DONE_MAX)
        memmove(f->done, f->done + 1, --f->done_count * sizeof *f->done);
    f->done[f->done_count++] = f->at;
}

static void begin_file(follow *f, int fd, const struct stat *info)
{
    f->fd = fd;
    f->at = (mark){.device = info->st_dev, .inode = info->st_ino};
    f->next = f->end = f->last_size = 0;
    f->read_offset = 0;
    f->renamed_ns = 0;
    f->is_skipping = false;
}

static bool is_packed(const char *name)
{
    const char *end = strrchr(name, '.');
    return end && (strcmp(end, ".gz") == 0 || strcmp(end, ".zst") == 0 || strcmp(end, ".xz") == 0 ||
                   strcmp(end, ".bz2") == 0);
}

static int open_beside(const follow *f, const char *name, struct stat *info)
{
    char path[2 * RT_PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", f->folder, name);
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0 && fstat(fd, info) == 0 && S_ISREG(info->st_mode))
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

static bool is_later(const struct timespec *left, const struct timespec *right)
{
    if (left->tv_sec != right->tv_sec)
        return left->tv_sec > right->tv_sec;
    return left->tv_nsec > right->tv_nsec;
}

// Of the files that have or had the name: `wanted`, or (NULL) the one that follows the one read
// last, by the time of its last change. -1: there is none.
static int find_file(const follow *f, const mark *wanted, struct stat *found)
{
    int best = -1;
    DIR *folder = opendir(f->folder);
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        struct stat info;
        if (strncmp(entry->d_name, f->base, strlen(f->base)) != 0 || is_packed(entry->d_name))
            continue;
        const int fd = open_beside(f, entry->d_name, &info);
        if (fd < 0)
            continue;
        const bool is_own = info.st_dev == f->at.device && info.st_ino == f->at.inode;
        const bool is_named = strcmp(entry->d_name, f->base) == 0;
        bool is_better;
        if (wanted)
            is_better = best < 0 && is_the_file(wanted, fd, &info);
        else // the one that has the name now may not have been written to yet
            is_better = !is_own && !was_read(f, fd, &info) &&
                        (is_named || !is_later(&f->changed, &info.st_mtim)) &&
                        (best < 0 || is_later(&found->st_mtim, &info.st_mtim));
        if (is_better && best >= 0)
            close(best);
        if (is_better) {
            best = fd;
            *found = info;
        } else {
            close(fd);
        }
    }
    if (folder)
        closedir(folder);
    return best;
}

// The file under the name now is another one, or there is none.
static bool is_renamed(const follow *f)
{
    struct stat info;
    return stat(f->path, &info) != 0 || info.st_dev != f->at.device || info.st_ino != f->at.inode;
}

// ---- reading ---------------------------------------------------------------------------------

// RT_AGAIN: no more is there now.
static rt_status fill(follow *f, rt_error *error)
{
    if (f->next > 0) {
        memmove(f->text, f->text + f->next, f->end - f->next);
        f->end -= f->next;
        f->next = f->last_size = 0;
    }
    const ssize_t got = pread(f->fd, f->text + f->end, BLOCK_BYTES, (off_t)f->read_offset);
    if (got < 0)
        return rt_fail(error, RT_IO, "%s:%" PRIu64 ": %s", f->path, f->at.line + 1,
                       strerror(errno));
    f->arrival_ns = rt_arrival_ns();
    f->end += (size_t)got;
    f->read_offset += (size_t)got;
    f->bytes_read += (size_t)got;
    if (got == 0)
        return RT_AGAIN;
    return RT_OK;
}

static void give_line(follow *f, size_t line_end, rt_line *line)
{
    size_t length = line_end - f->next;
    *line = (rt_line){.text = f->text + f->next,
                      .number = f->at.line + 1,
                      .is_too_long = f->is_skipping || length > RT_LINE_MAX,
                      .arrival_ns = f->arrival_ns};
    f->is_skipping = false;
    f->last_size = line_end + 1 - f->next;
    f->at.offset += f->last_size;
    f->at.line++;
    f->next = line_end + 1;
    if (line->is_too_long) {
        line->text = f->text + line_end;
        length = 0;
    } else if (length > 0 && line->text[length - 1] == '\r') {
        length--;
    }
    line->length = (uint32_t)length;
}

// A whole line of what was read. RT_AGAIN: there is none.
static rt_status take_line(follow *f, rt_line *line)
{
    const char *found = memchr(f->text + f->next, '\n', f->end - f->next);
    if (found) {
        give_line(f, (size_t)(found - f->text), line);
        return RT_OK;
    }
    if (f->end - f->next > RT_LINE_MAX) {
        f->is_skipping = true;
        f->at.offset += f->end - f->next;
        f->next = f->end;
    }
    return RT_AGAIN;
}

// The file has had another name, and has not grown, for so long that its writer is done with it. A
// change of the name changes st_ctim; where a file system does not do that, or has another clock,
// it counts from when the name was seen. So one who reads what came while it was away does not
// wait at every file, while what belongs to its lines (stream.join) is read on.
static bool is_settled(const follow *f, const struct stat *info, uint64_t now_ns)
{
    const double changed_s = (double)info->st_ctim.tv_sec + 1e-9 * (double)info->st_ctim.tv_nsec;
    return now_ns - f->renamed_ns >= SETTLED_NS || rt_clock_age_s(changed_s) >= 1e-9 * SETTLED_NS;
}

// Everything of the file was read. RT_AGAIN: more may come. RT_OK: another one is open now, or this
// one begins again.
static rt_status look_at_end(follow *f)
{
    struct stat info;
    const uint64_t now = rt_now_ns();
    if (fstat(f->fd, &info) != 0)
        return RT_AGAIN;
    refresh_head(f->fd, &f->at);
    const bool is_short = (uint64_t)info.st_size < f->read_offset;
    if (is_short || !is_the_file(&f->at, f->fd, &info)) {
        rt_info("%s was truncated after byte %" PRIu64 ": it is read from its start", f->path,
                f->at.offset);
        begin_file(f, f->fd, &info);
        return RT_OK;
    }
    if (!is_renamed(f)) {
        f->renamed_ns = 0;
        return RT_AGAIN;
    }
    if (f->renamed_ns == 0)
        f->renamed_ns = now;
    if (!is_settled(f, &info, now)) // its writer may still have it open
        return RT_AGAIN;
    if (f->end > f->next)
        rt_warn("%s: the file that had this name ends inside a line, which is left out", f->path);
    f->changed = info.st_mtim;
    const int fd = find_file(f, NULL, &info);
    if (fd < 0)
        return RT_AGAIN;
    rt_info("%s: another file has the name: reading goes on there", f->path);
    note_read(f);
    close(f->fd);
    begin_file(f, fd, &info);
    return RT_OK;
}

static rt_status open_first(follow *f)
{
    struct stat info;
    const int fd = open_beside(f, f->base, &info);
    if (fd < 0)
        return RT_AGAIN;
    begin_file(f, fd, &info);
    return RT_OK;
}

static rt_status wait_for_change(follow *f, uint64_t deadline_ns)
{
    char events[4096];
    struct pollfd wanted[] = {{f->watch.stop, POLLIN, 0}, {f->notify, POLLIN, 0}};
    uint64_t wait_ms = LOOK_MS;
    if (deadline_ns)
        wait_ms = rt_min_u64(wait_ms, (uint64_t)rt_wait_ms(deadline_ns));
    (void)poll(wanted, 2, (int)wait_ms);
    if (wanted[0].revents)
        return RT_STOPPED;
    while (read(f->notify, events, sizeof events) > 0)
        continue;
    if (deadline_ns && rt_now_ns() >= deadline_ns)
        return RT_AGAIN;
    return RT_OK;
}

static rt_status next_line(void *source, uint64_t deadline_ns, uint32_t line_feeds, rt_line *line,
                           rt_error *error)
{
    follow *f = source;
    if (line_feeds > 0) // a line stands alone: nobody knows when the next one comes
        return RT_END;
    for (;;) {
        if (f->fd >= 0 && !take_line(f, line))
            return RT_OK;
        rt_status status = f->fd >= 0 ? fill(f, error) : open_first(f);
        if (status == RT_AGAIN && f->fd >= 0)
            status = look_at_end(f);
        if (status == RT_AGAIN)
            status = wait_for_change(f, deadline_ns);
        if (status)
            return status;
    }
}

static void take_back(void *source)
{
    follow *f = source;
    rt_assert(f->last_size > 0);
    f->next -= f->last_size;
    f->at.offset -= f->last_size;
    f->at.line--;
    f->last_size = 0;
}

// ---- positions -------------------------------------------------------------------------------

static void tell(const void *source, rt_bytes *bytes)
{
    const follow *f = source;
    mark at = f->at;
    if (f->fd >= 0)
        refresh_head(f->fd, &at);
    rt_fields_put(bytes, &mark_fields, &at, 1);
    rt_bytes_put_u64(bytes, f->done_count);
    rt_fields_put(bytes, &mark_fields, f->done, f->done_count);
}

static rt_status seek(void *source, rt_reader *bytes, const rt_source_place *place, rt_error *error)
{
    follow *f = source;
    struct stat info;
    mark at;
    (void)place;
    const bool is_read = bytes && rt_fields_get(bytes, &mark_fields, &at, 1);
    const uint64_t count = is_read ? rt_reader_u64(bytes) : 0;
    if (!is_read || bytes->failed || count > DONE_MAX ||
        !rt_fields_get(bytes, &mark_fields, f->done, count) || bytes->left ||
        at.head_size > HEAD_BYTES || at.offset > INT64_MAX)
        return rt_fail(error, RT_DATA, "the position in the file is damaged");
    f->done_count = (uint32_t)count;
    for (uint32_t i = 0; i < f->done_count; i++)
        f->done[i].head_size = rt_min_u64(f->done[i].head_size, HEAD_BYTES);
    if (at.inode == 0) // nothing was read yet
        return RT_OK;
    const int fd = find_file(f, &at, &info);
    if (fd < 0) {
        rt_warn(
            "%s: the file that was read up to byte %" PRIu64
            " is gone, or was truncated: what followed there, if anything, is lost; reading goes "
            "on with the one that has the name now",
            f->path, at.offset);
        return RT_OK;
    }
    begin_file(f, fd, &info);
    if ((uint64_t)info.st_size < at.offset) {
        rt_info("%s was truncated: it is read from its start", f->path);
        return RT_OK;
    }
    f->at = at;
    f->read_offset = at.offset;
    rt_info("%s goes on at byte %" PRIu64, f->path, at.offset);
    return RT_OK;
}

static const char *input_name(const void *source, uint32_t input)
{
    (void)input;
    return ((const follow *)source)->path;
}

static void counts(const void *source, rt_source_counts *counts)
{
    *counts = (rt_source_counts){.bytes_read = ((const follow *)source)->bytes_read};
}

const rt_source_ops rt_source_follow = {.name = "follow",
                                        .serves = serves,
                                        .open = open_source,
                                        .close = close_source,
                                        .watch = watch,
                                        .line = next_line,
                                        .back = take_back,
                                        .tell = tell,
                                        .seek = seek,
                                        .input_name = input_name,
                                        .counts = counts};
