#define _GNU_SOURCE // renameat2
#include "runtime/files/rt_checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/config/rt_config.h"
#include "runtime/files/rt_own.h"

#define PREFIX "ckpt-"
#define ASIDE "damaged-" PREFIX
#define MANIFEST "manifest.json"
#define DRAFT "merge.tmp"
#define DIGITS 12

rt_status rt_checkpoint_path(const char *directory, uint32_t iteration, char *path, size_t size,
                             rt_error *error)
{
    int length = snprintf(path, size, "%s/" PREFIX "%0*" PRIu32, directory, DIGITS, iteration);
    if (length < 0 || (size_t)length >= size)
        return rt_fail(error, RT_CONFIG, "the path %s is too long", directory);
    return RT_OK;
}

static bool parse_name(const char *name, const char *prefix, uint32_t *iteration_p)
{
    char *end;
    const size_t length = strlen(prefix);
    if (strlen(name) != length + DIGITS || strncmp(name, prefix, length) != 0)
        return false;
    for (const char *c = name + length; *c; c++) {
        if (*c < '0' || *c > '9')
            return false;
    }
    uint64_t value = strtoull(name + length, &end, 10);
    *iteration_p = (uint32_t)value;
    return value <= UINT32_MAX;
}

// Without it, a folder that was just made can be lost with the power.
static void sync_folder(const char *path)
{
    int descriptor = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0)
        return;
    (void)fsync(descriptor); // some file systems cannot; what is inside is synced anyway
    close(descriptor);
}

rt_status rt_checkpoint_make(const char *path, rt_error *error)
{
    char part[RT_PATH_MAX + 64];
    size_t length = strlen(path);
    if (length == 0 || length >= sizeof part)
        return rt_fail(error, RT_CONFIG, "%s: no path of a folder", path);
    memcpy(part, path, length + 1);
    for (size_t i = 1; i <= length; i++) {
        if (part[i] != '/' && part[i] != '\0')
            continue;
        char kept = part[i];
        part[i] = '\0';
        if (mkdir(part, 0777) != 0 && errno != EEXIST)
            return rt_fail(error, rt_status_of_errno(errno), "cannot create %s: %s", part,
                           strerror(errno));
        part[i] = kept;
    }
    char *slash = strrchr(part, '/');
    if (slash && slash > part) {
        *slash = '\0';
        sync_folder(part);
    }
    return RT_OK;
}

rt_status rt_checkpoint_make_own(const char *path, rt_error *error)
{
    const rt_status status = rt_own_check_folder(path, error);
    if (status)
        return status;
    return rt_checkpoint_make(path, error);
}

static int compare(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static rt_status list(const char *directory, const char *prefix, uint32_t **iterations_p,
                      uint32_t *count_p, rt_error *error)
{
    uint32_t *iterations = NULL, count = 0, capacity = 0, iteration;
    DIR *folder = opendir(directory);
    *iterations_p = NULL;
    *count_p = 0;
    if (!folder && errno == ENOENT)
        return RT_OK;
    if (!folder)
        return rt_fail(error, rt_status_of_errno(errno), "cannot read %s: %s", directory,
                       strerror(errno));
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (!parse_name(entry->d_name, prefix, &iteration))
            continue;
        if (rt_grow(&iterations, &capacity, count + 1u, sizeof *iterations)) {
            closedir(folder);
            rt_free(iterations);
            return rt_fail(error, RT_NO_MEMORY, "out of memory: %s", directory);
        }
        iterations[count++] = iteration;
    }
    closedir(folder);
    if (count)
        qsort(iterations, count, sizeof *iterations, compare);
    *iterations_p = iterations;
    *count_p = count;
    return RT_OK;
}

rt_status rt_checkpoint_list(const char *directory, uint32_t **iterations_p, uint32_t *count_p,
                             rt_error *error)
{
    return list(directory, PREFIX, iterations_p, count_p, error);
}

static void remove_file(const char *folder, const char *name)
{
    char path[RT_PATH_MAX + 320];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    (void)unlink(path);
}

static void remove_folder(const char *path)
{
    DIR *folder = opendir(path);
    remove_file(path, MANIFEST); // first of all: without it, what is left is no checkpoint
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        if (entry->d_name[0] != '.')
            remove_file(path, entry->d_name);
    }
    if (folder)
        closedir(folder);
    (void)rmdir(path);
}

void rt_checkpoint_remove(const char *directory, uint32_t iteration, const char *file)
{
    char path[RT_PATH_MAX + 64];
    if (rt_checkpoint_path(directory, iteration, path, sizeof path, NULL))
        return;
    if (!file) {
        remove_folder(path);
        return;
    }
    remove_file(path, file);
    (void)rmdir(path);
}

rt_status rt_checkpoint_begin_draft(const char *directory, char *path, size_t size, rt_error *error)
{
    const int length = snprintf(path, size, "%s/" DRAFT, directory);
    if (length < 0 || (size_t)length >= size)
        return rt_fail(error, RT_CONFIG, "the path %s is too long", directory);
    rt_checkpoint_remove_draft(directory);
    return rt_checkpoint_make_own(path, error);
}

rt_status rt_checkpoint_put_draft(const char *directory, uint32_t iteration, rt_error *error)
{
    char path[RT_PATH_MAX + 64], draft[RT_PATH_MAX + 64];
    const rt_status status = rt_checkpoint_path(directory, iteration, path, sizeof path, error);
    if (status)
        return status;
    snprintf(draft, sizeof draft, "%s/" DRAFT, directory);
    sync_folder(draft);
    // Nothing else will do: there must be no moment without the checkpoint.
    if (renameat2(AT_FDCWD, draft, AT_FDCWD, path, RENAME_EXCHANGE) != 0)
        return rt_fail(error, rt_status_of_errno(errno), "cannot exchange %s and %s: %s", draft,
                       path, strerror(errno));
    sync_folder(directory);
    rt_checkpoint_remove_draft(directory);
    return RT_OK;
}

void rt_checkpoint_remove_draft(const char *directory)
{
    char path[RT_PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/" DRAFT, directory);
    if (!rt_own_check_folder(path, NULL))
        remove_folder(path);
}

static void aside_path(const char *directory, uint32_t iteration, char *path, size_t size)
{
    snprintf(path, size, "%s/" ASIDE "%0*" PRIu32, directory, DIGITS, iteration);
}

static void remove_old_aside(const char *directory)
{
    uint32_t *iterations, count;
    char path[RT_PATH_MAX + 96];
    if (list(directory, ASIDE, &iterations, &count, NULL))
        return;
    for (uint32_t i = 0; i + RT_CHECKPOINT_ASIDE_MAX < count; i++) {
        aside_path(directory, iterations[i], path, sizeof path);
        remove_folder(path);
    }
    rt_free(iterations);
}

void rt_checkpoint_set_aside(const char *directory, uint32_t iteration)
{
    char path[RT_PATH_MAX + 64], manifest[RT_PATH_MAX + 96], aside[RT_PATH_MAX + 96];
    if (rt_checkpoint_path(directory, iteration, path, sizeof path, NULL))
        return;
    snprintf(manifest, sizeof manifest, "%s/" MANIFEST, path);
    aside_path(directory, iteration, aside, sizeof aside);
    remove_folder(aside);
    if (access(manifest, F_OK) != 0 || rename(path, aside) != 0)
        remove_folder(path);
    remove_old_aside(directory);
}
