#define _GNU_SOURCE // copy_file_range
#include "runtime/files/rt_published.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "runtime/files/rt_checkpoint.h"
#include "runtime/files/rt_manifest.h"
#include "runtime/wire/rt_control.h"
#include "runtime/files/rt_own.h"

#define PATH_SIZE (RT_FOLDER_MAX + 128)
#define CURRENT_BYTES_MAX 4096

// ---- current.json ----------------------------------------------------------------------------

rt_status rt_published_read(const char *folder, rt_published *published, rt_error *error)
{
    char path[PATH_SIZE], text[CURRENT_BYTES_MAX];
    snprintf(path, sizeof path, "%s/" RT_PUBLISHED_CURRENT, folder);
    FILE *file = fopen(path, "re");
    if (!file)
        return rt_fail(error, errno == ENOENT ? RT_NOT_FOUND : RT_IO, "cannot read %s: %s", path,
                       strerror(errno));
    const size_t size = fread(text, 1, sizeof text - 1, file);
    const bool failed = ferror(file) != 0;
    fclose(file);
    text[size] = '\0';
    if (failed)
        return rt_fail(error, RT_IO, "cannot read %s", path);
    cJSON *root = cJSON_Parse(text);
    const cJSON *pinned = cJSON_GetObjectItemCaseSensitive(root, "pinned");
    uint32_t iteration = 0, held = 0;
    const bool good = rt_manifest_u32(root, "iteration", UINT32_MAX, &iteration) && iteration &&
                      cJSON_IsBool(pinned);
    if (!rt_manifest_u32(root, "held", UINT32_MAX, &held))
        held = 0;
    *published = (rt_published){iteration, good && cJSON_IsTrue(pinned), held};
    cJSON_Delete(root);
    if (!good)
        return rt_fail(error, RT_DATA, "%s: expected {\"iteration\": N, \"pinned\": false}", path);
    return RT_OK;
}

rt_status rt_published_write(const char *folder, const rt_published *published, rt_error *error)
{
    char path[PATH_SIZE];
    rt_json json;
    snprintf(path, sizeof path, "%s/" RT_PUBLISHED_CURRENT, folder);
    rt_json_init(&json, 0);
    rt_json_begin_object(&json, NULL);
    rt_json_u64(&json, "iteration", published->iteration);
    rt_json_bool(&json, "pinned", published->pinned);
    if (published->held)
        rt_json_u64(&json, "held", published->held);
    rt_json_end_object(&json);
    rt_status status = rt_json_save(&json, path, error);
    rt_json_fini(&json);
    return status;
}

rt_status rt_published_lock(const char *folder, int *lock_p, rt_error *error)
{
    char path[PATH_SIZE];
    snprintf(path, sizeof path, "%s/" RT_PUBLISHED_LOCK, folder);
    int lock = -1;
    const rt_status status = rt_own_open(path, 0666, &lock, error);
    if (status)
        return status;
    while (flock(lock, LOCK_EX) != 0)
        if (errno != EINTR) {
            close(lock);
            return rt_fail(error, RT_IO, "cannot lock %s: %s", path, strerror(errno));
        }
    *lock_p = lock;
    return RT_OK;
}

// ---- versions --------------------------------------------------------------------------------

static double number_of(const cJSON *root, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(root, name);
    return cJSON_IsNumber(item) ? item->valuedouble : NAN;
}

rt_status rt_published_version_of(const char *folder, uint32_t iteration,
                                  rt_published_version *version, rt_error *error)
{
    char path[PATH_SIZE];
    cJSON *root = NULL;
    rt_status status = rt_checkpoint_path(folder, iteration, path, sizeof path, error);
    if (!status)
        status = rt_manifest_read(path, &root, error);
    if (status)
        return status;
    *version = (rt_published_version){
        .iteration = iteration,
        .is_held = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(root, "held")),
        .trained_s = number_of(root, "trained_s"),
        .since_s = number_of(root, "since_s"),
        .log_loss = number_of(root, "logloss"),
        .calibration = number_of(root, "calibration")};
    if (!rt_manifest_hash(root, "run", &version->run))
        version->run = 0;
    if (!rt_manifest_u32(root, "base", UINT32_MAX, &version->base) ||
        !rt_manifest_u64(root, "samples", UINT64_C(1) << 53, &version->samples))
        status = rt_fail(error, RT_DATA, "%s: its manifest lacks \"base\" or \"samples\"", path);
    cJSON_Delete(root);
    return status;
}

// To the end, and onto the disk; false: errno says why not.
static bool copy_bytes(int in, int out)
{
    ssize_t count;
    do
        count = copy_file_range(in, NULL, out, NULL, (size_t)1 << 24, 0);
    while (count > 0);
    return count == 0 && fsync(out) == 0;
}

static rt_status copy(const char *from, const char *to, rt_error *error)
{
    int out = -1;
    const rt_status status = rt_own_create(to, 0666, &out, error);
    if (status)
        return status;
    const int in = open(from, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    const bool is_copied = in >= 0 && copy_bytes(in, out);
    const int reason = errno;
    close(out);
    if (in >= 0)
        close(in);
    if (!is_copied)
        return rt_fail(error, RT_IO, "cannot copy %s to %s: %s", from, to, strerror(reason));
    return RT_OK;
}

static bool is_published(const char *name)
{
    return strncmp(name, "rows-", 5) == 0 || strcmp(name, "dense.bin") == 0 ||
           strcmp(name, "scale.bin") == 0 || strcmp(name, "config.json") == 0;
}

bool rt_published_may_be(const char *name)
{
    static const char digits[] = "0123456789", prefix[] = "ckpt-";
    if (strcmp(name, RT_PUBLISHED_CURRENT) == 0)
        return true;
    const char *slash = strchr(name, '/');
    if (strncmp(name, prefix, strlen(prefix)) != 0 || !slash || strchr(slash + 1, '/'))
        return false;
    return strspn(name + strlen(prefix), digits) == (size_t)(slash - name) - strlen(prefix) &&
           (is_published(slash + 1) || strcmp(slash + 1, RT_MANIFEST_NAME) == 0);
}

// Links of them, or copies where the file system has none.
static rt_status take_files(const char *checkpoint, DIR *files, const char *version,
                            rt_error *error)
{
    char from[PATH_SIZE + 300], to[PATH_SIZE + 300];
    for (struct dirent *entry; (entry = readdir(files));) {
        if (!is_published(entry->d_name))
            continue;
        snprintf(from, sizeof from, "%s/%s", checkpoint, entry->d_name);
        snprintf(to, sizeof to, "%s/%s", version, entry->d_name);
        if (link(from, to) == 0)
            continue;
        rt_status status = copy(from, to, error);
        if (status)
            return status;
    }
    return RT_OK;
}

rt_status rt_published_add(const char *folder, uint32_t iteration, const char *checkpoint,
                           rt_status (*put_manifest)(void *context, const char *version,
                                                     rt_error *error),
                           void *context, rt_error *error)
{
    char version[PATH_SIZE];
    rt_status status = rt_checkpoint_path(folder, iteration, version, sizeof version, error);
    if (status)
        return status;
    rt_checkpoint_remove(folder, iteration, NULL); // of a run before, or never complete
    status = rt_checkpoint_make_own(version, error);
    if (status)
        return status;
    DIR *files = opendir(checkpoint);
    if (!files)
        return rt_fail(error, RT_IO, "cannot read %s: %s", checkpoint, strerror(errno));
    status = take_files(checkpoint, files, version, error);
    closedir(files);
    if (status)
        return status;
    return put_manifest(context, version, error);
}

// ---- which stay ------------------------------------------------------------------------------

// Of a list in ascending order, the versions that are complete.
static uint32_t read_versions(const char *folder, rt_published_version **versions_p)
{
    uint32_t *iterations, count, good = 0;
    *versions_p = NULL;
    if (rt_checkpoint_list(folder, &iterations, &count, NULL))
        return 0;
    rt_published_version *versions = rt_alloc(count + 1u, sizeof *versions);
    for (uint32_t i = 0; i < count && versions; i++)
        good += !rt_published_version_of(folder, iterations[i], &versions[good], NULL);
    rt_free(iterations);
    *versions_p = versions;
    return good;
}

void rt_published_remove_above(const char *folder, uint32_t iteration)
{
    uint32_t *iterations, count;
    if (rt_checkpoint_list(folder, &iterations, &count, NULL))
        return;
    for (uint32_t i = 0; i < count; i++)
        if (iterations[i] > iteration)
            rt_checkpoint_remove(folder, iterations[i], NULL);
    rt_free(iterations);
}

void rt_published_prune(const char *folder, uint32_t keep, bool alone)
{
    rt_published current = {0};
    rt_published_version *versions;
    uint32_t count = read_versions(folder, &versions), first = count, kept = 0;
    while (first > 0 && kept < keep)
        kept += !versions[--first].is_held;
    if (kept == 0) // none has passed yet: the newest are what the next one builds on
        first = count - (uint32_t)rt_min_u64(keep, count);
    if (rt_published_read(folder, &current, NULL) == RT_OK) // of the one in force, too
        while (first > 0 && versions[first].iteration > current.iteration)
            first--;
    while (!alone && first > 0 && first < count && versions[first].base)
        first--;
    for (uint32_t i = 0; i < first && first < count; i++)
        rt_checkpoint_remove(folder, versions[i].iteration, NULL);
    rt_free(versions);
}

rt_status rt_published_before(const char *folder, uint32_t iteration, uint32_t *before_p,
                              rt_error *error)
{
    rt_published_version *versions;
    const uint32_t count = read_versions(folder, &versions);
    uint32_t found = 0;
    for (uint32_t i = 0; i < count; i++)
        if (versions[i].iteration < iteration && !versions[i].is_held)
            found = versions[i].iteration;
    rt_free(versions);
    if (!found)
        return rt_fail(error, RT_NOT_FOUND, "%s: no version before iteration %" PRIu32, folder,
                       iteration);
    *before_p = found;
    return RT_OK;
}
