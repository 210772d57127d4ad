#define _GNU_SOURCE // renameat2
#include "runtime/files/rt_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/files/rt_checkpoint.h"
#include "runtime/rt_log.h"

static bool is_of_model(const char *name)
{
    static const char *const patterns[] = {"manifest.json", "config.json", "dense.bin", "scale.bin",
                                           "rows-[0-9][0-9][0-9]-of-[0-9][0-9][0-9].bin"};
    char with[64];
    for (size_t i = 0; i < RT_COUNT_OF(patterns); i++) {
        snprintf(with, sizeof with, "%s.tmp", patterns[i]);
        if (fnmatch(patterns[i], name, 0) == 0 || fnmatch(with, name, 0) == 0)
            return true;
    }
    return false;
}

static bool is_dots(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

static rt_status check_entries(const char *path, DIR *folder, rt_error *error)
{
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (!is_dots(entry->d_name) && !is_of_model(entry->d_name))
            return rt_fail(error, RT_CONFIG,
                           "%s holds %s, which is no part of a model: a model takes the place of "
                           "its whole folder; move it, or take another folder",
                           path, entry->d_name);
    }
    return RT_OK;
}

rt_status rt_folder_check(const char *path, rt_error *error)
{
    struct stat info;
    if (lstat(path, &info) == 0 && S_ISLNK(info.st_mode))
        return rt_fail(error, RT_CONFIG,
                       "%s is a symbolic link: a model takes the place of a folder; name that, or "
                       "remove the link",
                       path);
    DIR *folder = opendir(path);
    if (!folder && errno == ENOENT)
        return RT_OK;
    if (!folder && errno == ENOTDIR)
        return rt_fail(error, RT_CONFIG, "%s is no folder", path);
    if (!folder)
        return rt_fail(error, rt_status_of_errno(errno), "cannot read %s: %s", path,
                       strerror(errno));
    const rt_status status = check_entries(path, folder, error);
    closedir(folder);
    return status;
}

// Its files, then itself, as far as that goes.
static void remove_model(const char *path, bool with_folder)
{
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *folder = fd >= 0 ? fdopendir(fd) : NULL;
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        if (is_of_model(entry->d_name))
            (void)unlinkat(fd, entry->d_name, 0);
    }
    if (folder)
        closedir(folder);
    else if (fd >= 0)
        close(fd);
    if (with_folder && rmdir(path) != 0 && errno != ENOENT)
        rt_warn("%s, with what is left of the model before, cannot be removed: %s", path,
                strerror(errno));
}

static bool exists(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0;
}

static rt_status set_paths(rt_folder *folder, const char *path, rt_error *error)
{
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        length--;
    if (length == 0 || length >= sizeof folder->path)
        return rt_fail(error, RT_CONFIG, "\"%s\": no path of a folder", path);
    snprintf(folder->path, sizeof folder->path, "%.*s", (int)length, path);
    snprintf(folder->draft, sizeof folder->draft, "%s.tmp", folder->path);
    snprintf(folder->old, sizeof folder->old, "%s.old", folder->path);
    return RT_OK;
}

static rt_status lock_draft(rt_folder *folder, rt_error *error)
{
    folder->lock_fd = open(folder->draft, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder->lock_fd < 0)
        return rt_fail(error, rt_status_of_errno(errno), "cannot open %s: %s", folder->draft,
                       strerror(errno));
    if (flock(folder->lock_fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK)
        return RT_OK; // where the file system knows no locks there is none
    close(folder->lock_fd);
    folder->lock_fd = -1;
    return rt_fail(error, RT_IO, "%s: another process is writing it", folder->draft);
}

rt_status rt_folder_begin(rt_folder *folder, const char *path, rt_error *error)
{
    folder->lock_fd = -1;
    rt_status status = set_paths(folder, path, error);
    if (!status)
        status = rt_folder_check(folder->path, error);
    if (!status)
        status = rt_checkpoint_make_own(folder->draft, error);
    if (!status)
        status = lock_draft(folder, error);
    if (status)
        return status;
    if (!exists(folder->path) && exists(folder->old)) // an end between two renames
        (void)rename(folder->old, folder->path);
    else if (exists(folder->old))
        remove_model(folder->old, true);
    remove_model(folder->draft, false);
    return RT_OK;
}

static void sync_path(const char *path)
{
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return;
    (void)fsync(fd); // some file systems cannot; what is inside is synced anyway
    close(fd);
}

static void sync_parent(const char *path)
{
    char parent[4096];
    snprintf(parent, sizeof parent, "%s", path);
    char *slash = strrchr(parent, '/');
    if (!slash)
        strcpy(parent, ".");
    else
        slash[slash == parent] = '\0';
    sync_path(parent);
}

// *left_p: where the old one is now.
static rt_status put_in_place(const rt_folder *folder, const char **left_p, rt_error *error)
{
    *left_p = folder->draft;
    if (renameat2(AT_FDCWD, folder->draft, AT_FDCWD, folder->path, RENAME_EXCHANGE) == 0)
        return RT_OK;
    *left_p = folder->old;
    if (exists(folder->path) && rename(folder->path, folder->old) != 0)
        return rt_fail(error, rt_status_of_errno(errno), "cannot rename %s: %s", folder->path,
                       strerror(errno));
    if (rename(folder->draft, folder->path) == 0)
        return RT_OK;
    rt_fail(error, rt_status_of_errno(errno), "cannot rename %s: %s", folder->draft,
            strerror(errno));
    (void)rename(folder->old, folder->path);
    if (error)
        return error->status;
    return RT_IO;
}

rt_status rt_folder_commit(rt_folder *folder, rt_error *error)
{
    const char *left;
    sync_path(folder->draft);
    rt_status status = put_in_place(folder, &left, error);
    if (status) {
        rt_folder_abort(folder);
        return status;
    }
    sync_parent(folder->path);
    close(folder->lock_fd);
    folder->lock_fd = -1;
    if (exists(left))
        remove_model(left, true);
    return RT_OK;
}

void rt_folder_abort(rt_folder *folder)
{
    if (folder->lock_fd < 0)
        return;
    remove_model(folder->draft, true);
    close(folder->lock_fd);
    folder->lock_fd = -1;
}
