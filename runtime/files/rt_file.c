#define _GNU_SOURCE // O_DIRECT
#include "runtime/files/rt_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "runtime/files/rt_own.h"

// Whole pieces of a large file go past the page cache where the file system lets them: that takes a
// fraction of the processor time, and nobody's pages are pushed out of memory.
#define PIECE_BYTES ((size_t)1 << 20)
#define PIECE_ALIGN ((size_t)4096)
// Where it does not, the kernel is made to write as we go, so that the sync at the end is short.
#define SYNC_BYTES ((size_t)64 << 20)

#define WRITERS_MAX 64u // of one name at a time

struct rt_file {
    int descriptor;
    bool is_in_place; // what has the name is no file, and keeps it
    bool is_direct;   // writes go past the page cache
    bool is_large;    // a piece has been written
    size_t filled;    // bytes in piece
    size_t unsynced;
    uint8_t *piece; // PIECE_BYTES, aligned, in block
    uint8_t *block;
    char *path;
    char *path_unfinished;
};

static void destroy(rt_file *file)
{
    rt_free(file->block);
    rt_free(file->path);
    rt_free(file->path_unfinished);
    rt_free(file);
}

static rt_status failed(const char *what, const char *path, rt_error *error)
{
    return rt_fail(error, rt_status_of_errno(errno), "cannot %s %s: %s", what, path,
                   strerror(errno));
}

// Whether the name is still that of the open file: its writer may have renamed it since.
static bool is_named(int descriptor, const char *name)
{
    struct stat open_file, named;
    return fstat(descriptor, &open_file) == 0 && stat(name, &named) == 0 &&
           open_file.st_dev == named.st_dev && open_file.st_ino == named.st_ino;
}

// A link of this name is nobody's who writes here.
static int open_own(const char *name)
{
    const int flags = O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC;
    const int descriptor = open(name, flags, 0666);
    if (descriptor >= 0 || errno != ELOOP || unlink(name) != 0)
        return descriptor;
    return open(name, flags, 0666);
}

// A file that nobody else writes: the descriptor has its lock. Where the file system knows no locks
// the first name is taken. -1: errno says why.
static int open_unfinished(const char *path, char *name, size_t size)
{
    for (uint32_t turn = 0; turn < WRITERS_MAX; turn++) {
        if (turn == 0)
            snprintf(name, size, "%s.tmp", path);
        else
            snprintf(name, size, "%s.%" PRIu32 ".tmp", path, turn);
        const int descriptor = open_own(name);
        if (descriptor < 0)
            return -1;
        const bool is_free = flock(descriptor, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
        if (is_free && is_named(descriptor, name) && ftruncate(descriptor, 0) == 0)
            return descriptor;
        close(descriptor);
    }
    errno = EBUSY;
    return -1;
}

// The name that the file will have: of a link to a file that of the file, so that the link stays.
static const char *name_of(const char *path, char resolved[PATH_MAX])
{
    struct stat info;
    if (lstat(path, &info) != 0 || !S_ISLNK(info.st_mode))
        return path;
    const char *name = realpath(path, resolved);
    if (!name)
        return path;
    return name;
}

// A device or a pipe (/dev/stdout) is written where it is: a file in its place would end it for all
// others. A folder is refused before there is anything to write.
static bool is_no_file(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && !S_ISREG(info.st_mode);
}

// Opening it says what is wrong.
static bool is_folder(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static int open_file(rt_file *file, const char *path, size_t size, bool is_named)
{
    snprintf(file->path, size, "%s", path);
    file->is_in_place = is_named ? is_no_file(path) : is_folder(path);
    if (!file->is_in_place)
        return open_unfinished(path, file->path_unfinished, size);
    snprintf(file->path_unfinished, size, "%s", path);
    return open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
}

static rt_status create(const char *path, bool is_named, rt_file **file_p, rt_error *error)
{
    char resolved[PATH_MAX];
    const char *name = is_named ? name_of(path, resolved) : path;
    const size_t size = strlen(name) + sizeof ".4294967295.tmp";
    rt_file *file = rt_alloc(1, sizeof *file);
    if (!file)
        return rt_fail(error, RT_NO_MEMORY, "out of memory: %s", path);
    file->path = rt_alloc(size, 1);
    file->path_unfinished = rt_alloc(size, 1);
    file->block = rt_alloc(PIECE_BYTES + PIECE_ALIGN, 1);
    if (!file->path || !file->path_unfinished || !file->block) {
        destroy(file);
        return rt_fail(error, RT_NO_MEMORY, "out of memory: %s", path);
    }
    file->piece = file->block + (PIECE_ALIGN - (uintptr_t)file->block % PIECE_ALIGN);
    file->descriptor = open_file(file, name, size, is_named);
    if (file->descriptor < 0) {
        rt_status status = failed("create", file->path_unfinished, error);
        destroy(file);
        return status;
    }
    *file_p = file;
    return RT_OK;
}

rt_status rt_file_create(const char *path, rt_file **file_p, rt_error *error)
{
    return create(path, false, file_p, error);
}

rt_status rt_file_create_named(const char *path, rt_file **file_p, rt_error *error)
{
    return create(path, true, file_p, error);
}

void rt_file_hide(rt_file *file)
{
    rt_own_hide(file->descriptor);
}

static void set_direct(rt_file *file, bool is_direct)
{
    int flags = fcntl(file->descriptor, F_GETFL) & ~O_DIRECT;
    if (is_direct)
        flags |= O_DIRECT;
    file->is_direct = fcntl(file->descriptor, F_SETFL, flags) == 0 && is_direct;
}

// Writes what is in the piece.
static rt_status write_piece(rt_file *file, rt_error *error)
{
    size_t at = 0;
    while (at < file->filled) {
        ssize_t written = write(file->descriptor, file->piece + at, file->filled - at);
        if (written < 0 && errno == EINVAL && file->is_direct) {
            set_direct(file, false); // a file system that took the flag, and not the write
            written = 0;
        } else if (written < 0 && errno == EINTR)
            written = 0;
        if (written < 0)
            return failed("write", file->path_unfinished, error);
        at += (size_t)written;
    }
    if (!file->is_direct)
        file->unsynced += file->filled;
    file->filled = 0;
    if (file->unsynced < SYNC_BYTES || file->is_in_place)
        return RT_OK;
    file->unsynced = 0;
    if (fdatasync(file->descriptor) != 0)
        return failed("sync", file->path_unfinished, error);
    return RT_OK;
}

rt_status rt_file_write(rt_file *file, const void *bytes, size_t size, rt_error *error)
{
    const uint8_t *next = bytes;
    while (size > 0) {
        const size_t some = rt_min_u64(size, PIECE_BYTES - file->filled);
        memcpy(file->piece + file->filled, next, some);
        file->filled += some;
        next += some;
        size -= some;
        if (file->filled < PIECE_BYTES)
            continue;
        if (!file->is_large && !file->is_in_place)
            set_direct(file, true);
        file->is_large = true;
        rt_status status = write_piece(file, error);
        if (status)
            return status;
    }
    return RT_OK;
}

void rt_file_abort(rt_file *file)
{
    if (!file)
        return;
    if (!file->is_in_place)
        unlink(file->path_unfinished); // with the lock, or it could be another writer's
    close(file->descriptor);
    destroy(file);
}

// Without it, a rename can be lost with the power.
static rt_status sync_folder(const char *path, rt_error *error)
{
    char folder[4096] = ".";
    const char *slash = strrchr(path, '/');
    if (slash)
        snprintf(folder, sizeof folder, "%.*s", (int)(slash - path) + 1, path);
    int descriptor = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0)
        return failed("open", folder, error);
    rt_status status = RT_OK;
    if (fsync(descriptor) != 0 && errno != EINVAL) // some file systems cannot
        status = failed("sync", folder, error);
    close(descriptor);
    return status;
}

// All of it is on disk, by its name.
static rt_status complete(rt_file *file, rt_error *error)
{
    rt_status status = write_piece(file, error);
    if (status || file->is_in_place)
        return status;
    if (fsync(file->descriptor) != 0)
        return failed("sync", file->path_unfinished, error);
    if (rename(file->path_unfinished, file->path) != 0)
        return failed("rename to its final name", file->path_unfinished, error);
    return RT_OK;
}

rt_status rt_file_commit(rt_file *file, rt_error *error)
{
    if (file->is_direct)
        set_direct(file, false); // the rest is no whole piece
    rt_status status = complete(file, error);
    if (status) {
        rt_file_abort(file);
        return status;
    }
    close(file->descriptor); // with its lock; all of it is synced
    if (!file->is_in_place)
        status = sync_folder(file->path, error);
    destroy(file);
    return status;
}

static rt_status save(const char *path, bool is_named, const void *bytes, size_t size,
                      rt_error *error)
{
    rt_file *file;
    rt_status status = create(path, is_named, &file, error);
    if (status)
        return status;
    status = rt_file_write(file, bytes, size, error);
    if (!status)
        return rt_file_commit(file, error);
    rt_file_abort(file);
    return status;
}

rt_status rt_file_save(const char *path, const void *bytes, size_t size, rt_error *error)
{
    return save(path, false, bytes, size, error);
}

rt_status rt_file_save_named(const char *path, const void *bytes, size_t size, rt_error *error)
{
    return save(path, true, bytes, size, error);
}

// ---- as a sink -------------------------------------------------------------------------------

static rt_status open_place(void *context, uint64_t total, rt_error *error)
{
    rt_file_place *place = context;
    (void)total;
    return create(place->path, place->is_named, &place->file, error);
}

static rt_status write_place(void *context, const void *bytes, size_t size, rt_error *error)
{
    rt_file_place *place = context;
    return rt_file_write(place->file, bytes, size, error);
}

static rt_status commit_place(void *context, rt_error *error)
{
    rt_file_place *place = context;
    rt_file *file = place->file;
    place->file = NULL;
    return rt_file_commit(file, error);
}

static void abort_place(void *context)
{
    rt_file_place *place = context;
    rt_file_abort(place->file);
    place->file = NULL;
}

rt_sink rt_file_sink(rt_file_place *place)
{
    return (rt_sink){open_place, write_place, commit_place, abort_place, place, place->path};
}

bool rt_file_is_same(const struct stat *before, const struct stat *now)
{
    return before->st_ino == now->st_ino && before->st_dev == now->st_dev &&
           before->st_size == now->st_size && before->st_mtim.tv_sec == now->st_mtim.tv_sec &&
           before->st_mtim.tv_nsec == now->st_mtim.tv_nsec;
}
