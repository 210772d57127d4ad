#include "runtime/files/rt_own.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static rt_status fail(const char *path, int reason, rt_error *error)
{
    if (reason == ELOOP)
        return rt_fail(error, RT_IO, "%s: a symbolic link: expected a file of this run, or nothing",
                       path);
    return rt_fail(error, rt_status_of_errno(reason), "%s: cannot be written: %s", path,
                   strerror(reason));
}

rt_status rt_own_create(const char *path, mode_t mode, int *file_p, rt_error *error)
{
    struct stat info;
    if (lstat(path, &info) == 0 && (S_ISREG(info.st_mode) || S_ISLNK(info.st_mode)))
        (void)unlink(path);
    const int file = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    if (file < 0)
        return fail(path, errno, error);
    *file_p = file;
    return RT_OK;
}

// A pipe of this name would be waited for, and a device written to.
static rt_status take(const char *path, int file, int *file_p, rt_error *error)
{
    struct stat info;
    if (file < 0)
        return fail(path, errno, error);
    if (fstat(file, &info) == 0 && S_ISREG(info.st_mode)) {
        *file_p = file;
        return RT_OK;
    }
    close(file);
    return rt_fail(error, RT_IO, "%s: expected a file", path);
}

rt_status rt_own_open(const char *path, mode_t mode, int *file_p, rt_error *error)
{
    const int flags = O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
    return take(path, open(path, flags, mode), file_p, error);
}

rt_status rt_own_reopen(const char *path, int *file_p, rt_error *error)
{
    return take(path, open(path, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC), file_p, error);
}

rt_status rt_own_check_folder(const char *path, rt_error *error)
{
    struct stat info;
    if (lstat(path, &info) != 0 || !S_ISLNK(info.st_mode))
        return RT_OK;
    return rt_fail(error, RT_CONFIG,
                   "%s: a symbolic link: expected a folder of this run, or nothing (keys of the "
                   "configuration name folders elsewhere)",
                   path);
}

void rt_own_hide(int file)
{
    struct stat info;
    if (fstat(file, &info) == 0 && info.st_mode & S_IRWXO)
        (void)fchmod(file, info.st_mode & 07770);
}
