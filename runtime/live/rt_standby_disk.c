#include "runtime/live/rt_standby_disk.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/files/rt_checkpoint.h"
#include "runtime/files/rt_file.h"
#include "runtime/files/rt_manifest.h"
#include "runtime/live/rt_segment.h"
#include "runtime/rt_hash.h"
#include "runtime/files/rt_own.h"

#define ID "standby.id"
#define STATE "standby.state"
#define MANIFEST_BYTES_MAX ((size_t)1 << 20)

// ---- its own state ---------------------------------------------------------------------------

static rt_status write_text(const char *directory, const char *name, const char *text,
                            rt_error *error)
{
    char path[RT_PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return rt_file_save(path, text, strlen(text), error);
}

rt_status rt_standby_read(const char *directory, rt_standby_state *state, rt_error *error)
{
    char path[RT_PATH_MAX + 32];
    uint32_t promoted = 0;
    *state = (rt_standby_state){0};
    snprintf(path, sizeof path, "%s/" STATE, directory);
    FILE *file = fopen(path, "re");
    if (!file && errno == ENOENT)
        return RT_OK;
    if (!file)
        return rt_fail(error, RT_IO, "%s: %s", path, strerror(errno));
    const bool is_read =
        fscanf(file, "epoch %" SCNu32 " promoted %" SCNu32, &state->epoch, &promoted) == 2;
    fclose(file);
    state->is_promoted = promoted == 1;
    if (!is_read || promoted > 1)
        return rt_fail(error, RT_DATA, "%s: expected \"epoch N promoted 0\", or 1", path);
    return RT_OK;
}

static rt_status write_state(const rt_standby_disk *disk, rt_error *error)
{
    char text[64];
    snprintf(text, sizeof text, "epoch %" PRIu32 " promoted %d\n", disk->state.epoch,
             disk->state.is_promoted);
    return write_text(disk->directory, STATE, text, error);
}

rt_status rt_standby_read_id(const char *directory, uint64_t *id_p, rt_error *error)
{
    char path[RT_PATH_MAX + 32];
    *id_p = 0;
    snprintf(path, sizeof path, "%s/" ID, directory);
    FILE *file = fopen(path, "re");
    if (!file && errno == ENOENT)
        return RT_OK;
    if (!file)
        return rt_fail(error, RT_IO, "%s: %s", path, strerror(errno));
    const bool is_read = fscanf(file, "%" SCNx64, id_p) == 1 && *id_p;
    fclose(file);
    if (!is_read)
        return rt_fail(error, RT_DATA, "%s: no id of a run", path);
    return RT_OK;
}

// Who has led the run has what nobody else got; blocks behind that would not fit.
static rt_status check_folder(const rt_standby_disk *disk, rt_error *error)
{
    char path[RT_PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/" STATE, disk->directory);
    if (disk->id && access(path, F_OK) != 0)
        return rt_fail(error, RT_CONFIG,
                       "%s: this is the folder of a coordinator, which may have events that the "
                       "run lacks: give the standby an empty folder",
                       disk->directory);
    return RT_OK;
}

// Of checkpoints and journals, whose names are set.
static rt_status make_folders(const rt_config *config, const char *place, rt_standby_disk *disk,
                              rt_error *error)
{
    const bool is_sent[RT_FLOWS] = {
        [RT_FLOW_EVENTS] = rt_config_source_is_live(&config->stream),
        [RT_FLOW_OUTCOMES] = rt_config_join_is_live(&config->stream),
    };
    rt_status status = rt_checkpoint_make(disk->checkpoints, error);
    if (status)
        return status;
    for (rt_flow flow = 0; flow < RT_FLOWS; flow++) {
        rt_journal_place(place, flow, disk->journals[flow], sizeof disk->journals[flow]);
        if (!is_sent[flow])
            continue;
        status = flow == RT_FLOW_OUTCOMES ? rt_checkpoint_make_own(disk->journals[flow], error)
                                          : rt_checkpoint_make(disk->journals[flow], error);
        if (status)
            return status;
    }
    return RT_OK;
}

rt_status rt_standby_disk_open(const rt_config *config, const char *directory,
                               const char *checkpoints, rt_standby_disk *disk, rt_error *error)
{
    char own[RT_PATH_MAX + 16];
    rt_status status = RT_OK;
    *disk = (rt_standby_disk){.segment_file = -1, .part_file = -1};
    snprintf(disk->directory, sizeof disk->directory, "%s", directory);
    snprintf(disk->checkpoints, sizeof disk->checkpoints, "%s", checkpoints);
    snprintf(own, sizeof own, "%s/journal", directory);
    const char *place = *config->journal_directory ? config->journal_directory : own;
    if (place == own) // a name that nobody gave
        status = rt_own_check_folder(own, error);
    if (!status)
        status = make_folders(config, place, disk, error);
    if (status)
        return status;
    status = rt_standby_read_id(directory, &disk->id, error);
    if (status)
        return status;
    status = check_folder(disk, error);
    if (status)
        return status;
    return rt_standby_read(directory, &disk->state, error);
}

static void close_segment(rt_standby_disk *disk)
{
    if (disk->segment_file >= 0)
        close(disk->segment_file);
    disk->segment_file = -1;
}

static void close_part(rt_standby_disk *disk)
{
    if (disk->part_file >= 0)
        close(disk->part_file);
    disk->part_file = -1;
}

void rt_standby_disk_close(rt_standby_disk *disk)
{
    close_segment(disk);
    close_part(disk);
}

// ---- what is there ---------------------------------------------------------------------------

static bool is_there(const char *path)
{
    return access(path, F_OK) == 0;
}

static void put_line(rt_bytes *text, const char *line)
{
    rt_bytes_put(text, line, strlen(line));
}

static rt_status list_journal(rt_standby_disk *disk, rt_flow flow, rt_bytes *text, rt_error *error)
{
    uint64_t *firsts;
    uint32_t count;
    if (!is_there(disk->journals[flow]))
        return RT_OK;
    rt_status status = rt_segment_list(disk->journals[flow], &firsts, &count, error);
    if (status)
        return status;
    for (uint32_t i = 0; i < count; i++) {
        char name[RT_SEGMENT_NAME_MAX], path[sizeof disk->journals[flow] + RT_SEGMENT_NAME_MAX];
        char line[96];
        struct stat info = {0};
        rt_segment_name(firsts[i], name);
        snprintf(path, sizeof path, "%s/%s", disk->journals[flow], name);
        if (stat(path, &info) != 0)
            continue;
        snprintf(line, sizeof line, "journal %d %" PRIu64 " %" PRIu64 "\n", (int)flow, firsts[i],
                 (uint64_t)info.st_size);
        put_line(text, line);
    }
    rt_free(firsts);
    return RT_OK;
}

// 0: there is none, or it cannot be read.
static uint64_t hash_manifest(const char *folder, uint8_t *buffer)
{
    char path[RT_PATH_MAX + 96];
    snprintf(path, sizeof path, "%s/" RT_MANIFEST_NAME, folder);
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return 0;
    const ssize_t size = read(file, buffer, MANIFEST_BYTES_MAX);
    close(file);
    if (size <= 0)
        return 0;
    return rt_hash_bytes(buffer, (size_t)size);
}

static rt_status list_checkpoints(rt_standby_disk *disk, rt_bytes *text, rt_error *error)
{
    uint32_t *iterations, count;
    rt_status status = rt_checkpoint_list(disk->checkpoints, &iterations, &count, error);
    if (status)
        return status;
    uint8_t *buffer = rt_alloc(1, MANIFEST_BYTES_MAX);
    if (!buffer) {
        rt_free(iterations);
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    }
    for (uint32_t i = 0; i < count; i++) {
        char folder[RT_PATH_MAX + 64], line[64];
        if (rt_checkpoint_path(disk->checkpoints, iterations[i], folder, sizeof folder, NULL))
            continue;
        snprintf(line, sizeof line, "checkpoint %" PRIu32 " %016" PRIx64 "\n", iterations[i],
                 hash_manifest(folder, buffer));
        put_line(text, line);
    }
    rt_free(buffer);
    rt_free(iterations);
    return RT_OK;
}

rt_status rt_standby_disk_list(rt_standby_disk *disk, rt_bytes *text, rt_error *error)
{
    rt_bytes_clear(text);
    close_part(disk);
    for (rt_flow flow = 0; flow < RT_FLOWS; flow++) {
        rt_status status = list_journal(disk, flow, text, error);
        if (status)
            return status;
    }
    rt_status status = list_checkpoints(disk, text, error);
    if (!status && text->failed)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    return status;
}

// ---- whom it follows -------------------------------------------------------------------------

static bool is_empty(rt_standby_disk *disk)
{
    rt_bytes text = {0};
    const bool is_empty = !rt_standby_disk_list(disk, &text, NULL) && text.size == 0;
    rt_bytes_fini(&text);
    return is_empty;
}

rt_status rt_standby_disk_adopt(rt_standby_disk *disk, uint64_t id, uint32_t epoch, rt_error *error)
{
    char text[32];
    if (disk->state.is_promoted)
        return rt_fail(error, RT_REFUSED, "the standby was promoted and now leads the run");
    if (id == 0 || (disk->id && disk->id != id) || (!disk->id && !is_empty(disk)))
        return rt_fail(error, RT_REFUSED,
                       "the standby's folder %s is that of another run: give it an empty one",
                       disk->directory);
    if (epoch < disk->state.epoch)
        return rt_fail(error, RT_REFUSED,
                       "the standby has followed epoch %" PRIu32 ", this is %" PRIu32
                       ": an old copy of the coordinator's folder",
                       disk->state.epoch, epoch);
    if (!disk->id || epoch > disk->state.epoch) { // before the id, see check_folder
        disk->state.epoch = epoch;
        rt_status status = write_state(disk, error);
        if (status)
            return status;
    }
    if (disk->id)
        return RT_OK;
    snprintf(text, sizeof text, "%016" PRIx64 "\n", id);
    rt_status status = write_text(disk->directory, ID, text, error);
    if (!status)
        disk->id = id;
    return status;
}

rt_status rt_standby_disk_promote(rt_standby_disk *disk, rt_error *error)
{
    if (!disk->id)
        return rt_fail(error, RT_REFUSED,
                       "this standby has never followed a coordinator, so there is no run to lead");
    const rt_standby_state before = disk->state;
    disk->state.is_promoted = true;
    disk->state.epoch = (before.epoch | (RT_STANDBY_EPOCHS - 1)) + 1;
    rt_status status = write_state(disk, error);
    if (status)
        disk->state = before;
    return status;
}

// ---- what is sent ----------------------------------------------------------------------------

static rt_status sync_folder(const char *path, rt_error *error)
{
    const int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const bool is_synced = folder >= 0 && fsync(folder) == 0;
    const int reason = errno;
    if (folder >= 0)
        close(folder);
    if (!is_synced)
        return rt_fail(error, RT_IO, "%s: %s", path, strerror(reason));
    return RT_OK;
}

static rt_status write_at(int file, const char *path, uint64_t offset, const rt_reader *bytes,
                          bool syncs, rt_error *error)
{
    size_t done = 0;
    while (done < bytes->left) {
        const ssize_t count =
            pwrite(file, bytes->next + done, bytes->left - done, (off_t)(offset + done));
        if (count < 0 && errno == EINTR)
            continue;
        const int reason = count < 0 ? errno : ENOSPC;
        if (count <= 0)
            return rt_fail(error, RT_IO, "%s: cannot be written: %s", path, strerror(reason));
        done += (size_t)count;
    }
    if (syncs && fdatasync(file) != 0)
        return rt_fail(error, RT_IO, "%s: cannot be synced: %s", path, strerror(errno));
    return RT_OK;
}

static rt_status expect_size(int file, const char *path, uint64_t size, rt_error *error)
{
    struct stat info;
    if (fstat(file, &info) != 0)
        return rt_fail(error, RT_IO, "%s: %s", path, strerror(errno));
    if ((uint64_t)info.st_size != size)
        return rt_fail(error, RT_IO, "%s: has %" PRIu64 " bytes, these are from %" PRIu64 " on",
                       path, (uint64_t)info.st_size, size);
    return RT_OK;
}

static void segment_path(const rt_standby_disk *disk, const rt_wire_mirror *what, char *path,
                         size_t size)
{
    char name[RT_SEGMENT_NAME_MAX];
    rt_segment_name(what->number, name);
    snprintf(path, size, "%s/%s", disk->journals[what->flow], name);
}

static rt_status open_segment(rt_standby_disk *disk, const rt_wire_mirror *what, const char *path,
                              rt_error *error)
{
    if (disk->segment_file >= 0 && disk->segment_flow == what->flow &&
        disk->segment == what->number)
        return RT_OK;
    close_segment(disk);
    rt_status status = rt_own_open(path, RT_OWN_EVENTS_MODE, &disk->segment_file, error);
    if (status)
        return status;
    rt_own_hide(disk->segment_file);
    disk->segment_flow = what->flow;
    disk->segment = what->number;
    return sync_folder(disk->journals[what->flow], error);
}

static rt_status take_block(rt_standby_disk *disk, const rt_wire_mirror *what,
                            const rt_reader *bytes, rt_error *error)
{
    char path[sizeof disk->journals[0] + RT_SEGMENT_NAME_MAX];
    segment_path(disk, what, path, sizeof path);
    rt_status status = open_segment(disk, what, path, error);
    if (!status)
        status = expect_size(disk->segment_file, path, what->offset, error);
    if (!status) {
        status = write_at(disk->segment_file, path, what->offset, bytes,
                          what->flags & RT_WIRE_MIRROR_SYNC, error);
        if (status) // what is there of it in part goes; the next list tells what is left
            (void)ftruncate(disk->segment_file, (off_t)what->offset);
    }
    if (status)
        close_segment(disk);
    return status;
}

static rt_status cut_segment(rt_standby_disk *disk, const rt_wire_mirror *what, rt_error *error)
{
    char path[sizeof disk->journals[0] + RT_SEGMENT_NAME_MAX];
    segment_path(disk, what, path, sizeof path);
    close_segment(disk);
    if (what->offset == 0) {
        if (unlink(path) != 0 && errno != ENOENT)
            return rt_fail(error, RT_IO, "%s: %s", path, strerror(errno));
        return sync_folder(disk->journals[what->flow], error);
    }
    int file = -1;
    const rt_status status = rt_own_reopen(path, &file, error);
    if (status)
        return status;
    const bool is_cut = ftruncate(file, (off_t)what->offset) == 0 && fdatasync(file) == 0;
    const int reason = errno;
    close(file);
    if (!is_cut)
        return rt_fail(error, RT_IO, "%s: %s", path, strerror(reason));
    return RT_OK;
}

rt_status rt_standby_disk_read(const rt_standby_disk *disk, const rt_wire_mirror *what,
                               rt_bytes *bytes, rt_error *error)
{
    char path[sizeof disk->journals[0] + RT_SEGMENT_NAME_MAX];
    if (what->flow >= RT_FLOWS || !is_there(disk->journals[what->flow]) ||
        what->total > RT_WIRE_MIRROR_BYTES_MAX)
        return rt_fail(error, RT_WIRE, "a part of a journal that no standby has");
    segment_path(disk, what, path, sizeof path);
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return rt_fail(error, RT_IO, "%s: %s", path, strerror(errno));
    void *to = rt_bytes_extend(bytes, what->total);
    const ssize_t got = to ? pread(file, to, what->total, (off_t)what->offset) : 0;
    const int reason = errno;
    close(file);
    if (!to)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    if (got < 0)
        return rt_fail(error, RT_IO, "%s: cannot be read: %s", path, strerror(reason));
    bytes->size -= what->total - (uint64_t)got;
    return RT_OK;
}

// "boxes", or "ckpt-000000001200/dense.bin": letters, digits, dots, dashes, underscores.
static bool may_be(const char *name)
{
    const char *slash = strchr(name, '/'), *file = name;
    const size_t folder_size = strlen("ckpt-") + 12;
    if (slash && ((size_t)(slash - name) != folder_size || strncmp(name, "ckpt-", 5) != 0 ||
                  strspn(name + 5, "0123456789") != 12))
        return false;
    if (slash)
        file = slash + 1;
    const size_t allowed =
        strspn(file, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");
    return *file && *file != '.' && file[allowed] == '\0';
}

static rt_status open_part(rt_standby_disk *disk, const char *path, uint64_t offset,
                           rt_error *error)
{
    char folder[sizeof disk->part];
    if (offset > 0 && (disk->part_file < 0 || strcmp(path, disk->part) != 0))
        return rt_fail(error, RT_IO, "%s: its beginning did not arrive", path);
    if (offset > 0)
        return RT_OK;
    close_part(disk);
    snprintf(folder, sizeof folder, "%s", path);
    *strrchr(folder, '/') = '\0';
    rt_status status = rt_checkpoint_make_own(folder, error);
    if (status)
        return status;
    snprintf(disk->part, sizeof disk->part, "%s", path);
    return rt_own_create(path, RT_OWN_EVENTS_MODE, &disk->part_file, error);
}

static rt_status remove_file(const rt_standby_disk *disk, const char *path, rt_error *error)
{
    if (unlink(path) != 0 && errno != ENOENT)
        return rt_fail(error, RT_IO, "%s: %s", path, strerror(errno));
    return sync_folder(disk->checkpoints, error);
}

static rt_status take_file(rt_standby_disk *disk, const rt_wire_mirror *what,
                           const rt_reader *bytes, rt_error *error)
{
    char path[RT_PATH_MAX + 136], part[sizeof disk->part];
    if (!memchr(what->name, 0, sizeof what->name) || !may_be(what->name) ||
        what->offset > what->total || bytes->left > what->total - what->offset)
        return rt_fail(error, RT_WIRE, "a file that no standby keeps");
    snprintf(path, sizeof path, "%s/%s", disk->checkpoints, what->name);
    if (what->total == 0 && !strchr(what->name, '/'))
        return remove_file(disk, path, error);
    snprintf(part, sizeof part, "%s.part", path);
    rt_status status = open_part(disk, part, what->offset, error);
    if (!status)
        status = expect_size(disk->part_file, part, what->offset, error);
    if (!status)
        status = write_at(disk->part_file, part, what->offset, bytes,
                          what->flags & RT_WIRE_MIRROR_SYNC, error);
    if (status || what->offset + bytes->left < what->total)
        return status;
    close_part(disk);
    if (rename(part, path) != 0)
        return rt_fail(error, RT_IO, "%s: %s", path, strerror(errno));
    *strrchr(path, '/') = '\0';
    return sync_folder(path, error);
}

rt_status rt_standby_disk_take(rt_standby_disk *disk, const rt_wire_mirror *what,
                               const rt_reader *bytes, rt_error *error)
{
    const bool is_journal = what->kind == RT_MIRROR_BLOCK || what->kind == RT_MIRROR_CUT;
    if (is_journal && (what->flow >= RT_FLOWS || !is_there(disk->journals[what->flow])))
        return rt_fail(error, RT_WIRE, "a journal that this configuration does not have");
    switch (what->kind) {
    case RT_MIRROR_BLOCK:
        return take_block(disk, what, bytes, error);
    case RT_MIRROR_CUT:
        return cut_segment(disk, what, error);
    case RT_MIRROR_FILE:
        return take_file(disk, what, bytes, error);
    case RT_MIRROR_DROP:
        close_part(disk);
        rt_checkpoint_remove(disk->checkpoints, (uint32_t)what->number, NULL);
        return RT_OK;
    default:
        return rt_fail(error, RT_WIRE, "a MIRROR of kind %" PRIu32, what->kind);
    }
}
