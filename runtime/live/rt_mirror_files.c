// The checkpoints of a mirror: file by file, those that others build on first, manifests last.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/files/rt_checkpoint.h"
#include "runtime/files/rt_manifest.h"
#include "runtime/live/rt_mirror_parts.h"
#include "runtime/rt_hash.h"

#define SYNC_BYTES (UINT64_C(8) << 20) // so often within a file: commits wait behind it
#define BESIDE_BYTES_MAX (256u << 10)  // dp_members of 64 boxes

// What stands beside checkpoints and a start needs (dp_members, dp_membership, dp_control).
static const struct {
    const char *name;
    bool ends; // it goes once no checkpoint needs it any more
} beside[] = {{"boxes", false}, {"losses", false}, {"forgotten", true}};
#define GONE 1u // in place of a hash
_Static_assert(RT_COUNT_OF(beside) == RT_MIRROR_BESIDE, "one hash each");

static rt_status send_piece(rt_mirror *m, const char *name, uint64_t offset, uint64_t total,
                            size_t size, rt_error *error)
{
    rt_wire_mirror what = {.kind = RT_MIRROR_FILE,
                           .id = m->id,
                           .epoch = m->config.epoch,
                           .offset = offset,
                           .total = total};
    const bool is_last = offset + size == total;
    if (is_last || (offset + size) / SYNC_BYTES != offset / SYNC_BYTES)
        what.flags = RT_WIRE_MIRROR_SYNC;
    if (!rt_control_put_text(what.name, sizeof what.name, name))
        return rt_fail(error, RT_CONFIG, "%s: the name of the standby is too long", name);
    rt_status status = rt_mirror_ask(m, &what, m->buffer, size, NULL, error);
    if (status)
        return status;
    return rt_mirror_journals(m, error);
}

// What has gone here goes there, too; for any other reason the standby lacks what it should have.
static rt_status cannot_read(rt_mirror *m, const char *path, int reason, rt_error *error)
{
    uint64_t count;
    if (reason != ENOENT && rt_log_due(&m->unread, &count))
        rt_warn("coordinator.standby: checkpoints do not reach it: %s: %s", path, strerror(reason));
    return rt_fail(error, RT_NOT_FOUND, "%s: %s", path, strerror(reason));
}

// At least one piece: an empty file is one, too.
static rt_status send_pieces(rt_mirror *m, const char *name, const char *path, int file,
                             rt_error *error)
{
    struct stat info;
    if (fstat(file, &info) != 0)
        return cannot_read(m, path, errno, error);
    const uint64_t total = (uint64_t)info.st_size;
    uint64_t offset = 0;
    do {
        const size_t wanted = rt_min_u64(total - offset, RT_WIRE_MIRROR_BYTES_MAX);
        const ssize_t count = pread(file, m->buffer, wanted, (off_t)offset);
        if (count < 0)
            return cannot_read(m, path, errno, error);
        if ((size_t)count != wanted)
            return rt_fail(error, RT_NOT_FOUND, "%s: has become shorter", path);
        rt_status status = send_piece(m, name, offset, total, wanted, error);
        if (status)
            return status;
        offset += wanted;
    } while (offset < total);
    return RT_OK;
}

// name: below the folder of the checkpoints.
static rt_status send_file(rt_mirror *m, const char *name, rt_error *error)
{
    char path[RT_PATH_MAX + 160];
    snprintf(path, sizeof path, "%s/%s", m->checkpoints, name);
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (file < 0)
        return cannot_read(m, path, errno, error);
    const rt_status status = send_pieces(m, name, path, file, error);
    close(file);
    return status;
}

// How many of the file's bytes are in the buffer, at most size; 0: it is empty, or cannot be read.
// *reason_p: why it cannot be opened, 0.
static size_t read_whole(rt_mirror *m, const char *path, size_t size, int *reason_p)
{
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    *reason_p = errno;
    if (file < 0)
        return 0;
    *reason_p = 0;
    const ssize_t count = read(file, m->buffer, size);
    close(file);
    if (count < 0)
        return 0;
    return (size_t)count;
}

// XXH3 of a manifest; RT_NOT_FOUND: the checkpoint is not complete.
static rt_status hash_manifest(rt_mirror *m, uint32_t iteration, uint64_t *hash_p)
{
    char folder[RT_PATH_MAX + 64], path[RT_PATH_MAX + 96];
    int reason;
    if (rt_checkpoint_path(m->checkpoints, iteration, folder, sizeof folder, NULL))
        return RT_NOT_FOUND;
    snprintf(path, sizeof path, "%s/" RT_MANIFEST_NAME, folder);
    const size_t count = read_whole(m, path, RT_WIRE_MIRROR_BYTES_MAX, &reason);
    if (count == 0)
        return RT_NOT_FOUND;
    *hash_p = rt_hash_bytes(m->buffer, count);
    return RT_OK;
}

static uint32_t find_saved(const rt_mirror *m, uint32_t iteration)
{
    uint32_t i = 0;
    while (i < m->saved_count && m->saved[i].iteration != iteration)
        i++;
    return i;
}

static rt_status drop(rt_mirror *m, uint32_t at, rt_error *error)
{
    const rt_wire_mirror what = {.kind = RT_MIRROR_DROP,
                                 .id = m->id,
                                 .epoch = m->config.epoch,
                                 .number = m->saved[at].iteration};
    rt_status status = rt_mirror_ask(m, &what, NULL, 0, NULL, error);
    if (!status)
        memmove(m->saved + at, m->saved + at + 1, (--m->saved_count - at) * sizeof *m->saved);
    return status;
}

static bool is_sent_first(const struct dirent *entry)
{
    const char *end = strrchr(entry->d_name, '.');
    return entry->d_name[0] != '.' && strcmp(entry->d_name, RT_MANIFEST_NAME) != 0 &&
           !(end && strcmp(end, ".tmp") == 0);
}

// All but the manifest, of the folder of that name.
static rt_status send_first(rt_mirror *m, const char *base, DIR *files, rt_error *error)
{
    char name[RT_PATH_MAX + 320];
    for (struct dirent *entry; (entry = readdir(files));) {
        if (!is_sent_first(entry))
            continue;
        snprintf(name, sizeof name, "%s/%s", base, entry->d_name);
        rt_status status = send_file(m, name, error);
        if (status)
            return status;
    }
    return RT_OK;
}

static rt_status send_checkpoint(rt_mirror *m, uint32_t iteration, rt_error *error)
{
    char folder[RT_PATH_MAX + 64], name[RT_PATH_MAX + 96];
    rt_status status = rt_checkpoint_path(m->checkpoints, iteration, folder, sizeof folder, error);
    if (status)
        return status;
    const char *base = strrchr(folder, '/') + 1;
    DIR *files = opendir(folder);
    if (!files)
        return cannot_read(m, folder, errno, error);
    status = send_first(m, base, files, error);
    closedir(files);
    if (status)
        return status;
    snprintf(name, sizeof name, "%s/" RT_MANIFEST_NAME, base);
    return send_file(m, name, error);
}

// One that is complete here is complete there.
static rt_status bring_checkpoint(rt_mirror *m, uint32_t iteration, rt_error *error)
{
    uint64_t hash;
    const uint32_t at = find_saved(m, iteration);
    if (hash_manifest(m, iteration, &hash) || (at < m->saved_count && m->saved[at].hash == hash))
        return RT_OK;
    rt_status status = RT_OK;
    if (at < m->saved_count)
        status = drop(m, at, error); // of another history
    if (status)
        return status;
    status = send_checkpoint(m, iteration, error);
    if (status)
        return status;
    if (rt_grow(&m->saved, &m->saved_capacity, m->saved_count + 1u, sizeof *m->saved))
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    m->saved[m->saved_count++] = (rt_mirror_checkpoint){iteration, hash};
    return RT_OK;
}

// *is_gone: it is not here, and ends there with end_beside.
static rt_status bring_beside(rt_mirror *m, uint32_t which, bool *is_gone, rt_error *error)
{
    char path[RT_PATH_MAX + 16];
    int reason;
    snprintf(path, sizeof path, "%s/%s", m->checkpoints, beside[which].name);
    const size_t count = read_whole(m, path, BESIDE_BYTES_MAX, &reason);
    *is_gone = reason == ENOENT && beside[which].ends;
    if (count == 0)
        return RT_OK;
    const uint64_t hash = rt_hash_bytes(m->buffer, count);
    if (hash == m->beside[which])
        return RT_OK;
    m->beside[which] = 0;
    rt_status status = send_file(m, beside[which].name, error);
    if (!status)
        m->beside[which] = hash;
    return status;
}

// After the checkpoints that do without it.
static rt_status end_beside(rt_mirror *m, uint32_t which, rt_error *error)
{
    if (m->beside[which] == GONE)
        return RT_OK;
    m->beside[which] = 0;
    rt_status status = send_piece(m, beside[which].name, 0, 0, 0, error);
    if (!status)
        m->beside[which] = GONE;
    return status;
}

static bool is_among(uint32_t iteration, const uint32_t *iterations, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (iterations[i] == iteration)
            return true;
    return false;
}

// What has gone here goes there, too: all that is left here is there by now.
static rt_status let_go(rt_mirror *m, const uint32_t *iterations, uint32_t count,
                        const uint64_t *firsts, rt_error *error)
{
    for (uint32_t i = m->saved_count; i-- > 0;) {
        if (is_among(m->saved[i].iteration, iterations, count))
            continue;
        rt_status status = drop(m, i, error);
        if (status)
            return status;
    }
    for (uint32_t f = 0; f < RT_MIRROR_FLOWS; f++) {
        rt_status status = rt_mirror_journal_keep_from(m, f, firsts[f], error);
        if (status)
            return status;
    }
    return RT_OK;
}

static uint32_t newest(const rt_mirror *m)
{
    uint32_t newest = 0;
    for (uint32_t i = 0; i < m->saved_count; i++)
        newest = (uint32_t)rt_max_u64(newest, m->saved[i].iteration);
    return newest;
}

// Brings what is here, then ends what is not.
static rt_status bring_all(rt_mirror *m, const uint32_t *iterations, uint32_t count,
                           const bool is_gone[RT_MIRROR_BESIDE], rt_error *error)
{
    for (uint32_t i = 0; i < count; i++) {
        rt_status status = bring_checkpoint(m, iterations[i], error);
        if (status)
            return status;
    }
    for (uint32_t b = 0; b < RT_COUNT_OF(beside); b++) {
        rt_status status = RT_OK;
        if (is_gone[b])
            status = end_beside(m, b, error);
        if (status)
            return status;
    }
    return RT_OK;
}

rt_status rt_mirror_files(rt_mirror *m, rt_error *error)
{
    uint64_t firsts[RT_MIRROR_FLOWS];
    bool is_gone[RT_MIRROR_BESIDE] = {false};
    uint32_t *iterations, count;
    for (uint32_t f = 0; f < RT_MIRROR_FLOWS; f++) // before checkpoints are listed
        firsts[f] = rt_mirror_journal_first(m, f);
    for (uint32_t b = 0; b < RT_COUNT_OF(beside); b++) { // likewise
        rt_status status = bring_beside(m, b, &is_gone[b], error);
        if (status)
            return status;
    }
    if (rt_checkpoint_list(m->checkpoints, &iterations, &count, error))
        return RT_NOT_FOUND;
    rt_status status = bring_all(m, iterations, count, is_gone, error);
    if (!status)
        status = let_go(m, iterations, count, firsts, error);
    rt_free(iterations);
    pthread_mutex_lock(&m->lock);
    m->checkpoint = newest(m);
    pthread_mutex_unlock(&m->lock);
    return status;
}
