// What becomes of a segment that is damaged: bytes of it come from the copy of the journal that
// somebody else has, and a file that is needed no more is kept aside.
#define _GNU_SOURCE // memfd_create
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/config/rt_config.h"
#include "runtime/files/rt_own.h"
#include "runtime/live/rt_journal_parts.h"

#define PIECE_BYTES ((size_t)512 << 10)
#define FETCH_BYTES_MAX ((size_t)128 << 20)
#define ASIDE ".damaged"
#define ASIDE_MAX 16u // files of a folder

// [from, to) of the copy, or less of it.
static rt_status fetch(const rt_journal *journal, uint64_t segment, uint64_t from, uint64_t to,
                       rt_bytes *got, rt_error *error)
{
    const rt_journal_copy *copy = &journal->copy;
    while (got->size < to - from && got->size < FETCH_BYTES_MAX) {
        const size_t before = got->size;
        const size_t wanted = rt_min_u64(PIECE_BYTES, to - from - before);
        rt_status status = copy->fetch(copy->context, segment, from + before, wanted, got, error);
        if (!status && got->failed)
            status = rt_fail(error, RT_NO_MEMORY, "out of memory for a journal");
        if (status)
            return status;
        if (got->size < before + wanted)
            break;
    }
    return RT_OK;
}

// Bytes of whole frames in a row, the first of event `next`; of the head, too, where they begin
// with that.
static uint64_t count_whole(int file, uint64_t size, bool has_head, uint64_t next)
{
    rt_frame_head head;
    rt_bytes rest = {0};
    uint64_t offset = 0, first;
    if (has_head && rt_segment_read_head(file, "", &first, NULL, &offset, NULL))
        return 0;
    while (!rt_frame_read(file, offset, size, &head, &rest, NULL) && head.first == next) {
        next += head.count;
        offset += sizeof head + head.size;
    }
    rt_bytes_fini(&rest);
    return offset;
}

static uint64_t check(const rt_bytes *got, bool has_head, uint64_t next)
{
    uint64_t size = 0;
    const int file = memfd_create("journal", MFD_CLOEXEC);
    if (file < 0)
        return 0;
    if (write(file, got->data, got->size) == (ssize_t)got->size)
        size = count_whole(file, got->size, has_head, next);
    close(file);
    return size;
}

static bool write_over(const char *path, uint64_t from, const uint8_t *bytes, uint64_t size)
{
    int file;
    if (rt_own_reopen(path, &file, NULL))
        return false;
    const bool is_written =
        pwrite(file, bytes, size, (off_t)from) == (ssize_t)size && fdatasync(file) == 0;
    close(file);
    return is_written;
}

bool rt_journal_mend(rt_journal *journal, uint64_t segment, uint64_t from, uint64_t to,
                     uint64_t next)
{
    char path[RT_PATH_MAX + RT_SEGMENT_NAME_MAX];
    rt_bytes got = {0};
    rt_error error = {0};
    uint64_t size = 0;
    bool is_mended = false;
    if (!journal->copy.fetch)
        return false;
    rt_journal_path(journal, segment, path, sizeof path);
    const rt_status status = fetch(journal, segment, from, to, &got, &error);
    if (!status && got.size > 0)
        size = check(&got, from == 0, next);
    if (size > 0 && (to == UINT64_MAX || size == to - from))
        is_mended = write_over(path, from, got.data, size);
    rt_bytes_fini(&got);
    if (is_mended)
        rt_warn("%s: %" PRIu64 " bytes from %" PRIu64
                " on were damaged, and are mended from the standby's copy",
                path, size, from);
    else if (status)
        rt_info("%s: damaged at %" PRIu64 ", and the standby's copy cannot be read: %s", path, from,
                error.text);
    return is_mended;
}

// The one with the smallest number goes where there are too many.
static void remove_surplus(const rt_journal *journal)
{
    char oldest[NAME_MAX + 1] = "";
    uint32_t count = 0;
    DIR *folder = opendir(journal->directory);
    if (!folder)
        return;
    for (struct dirent *entry; (entry = readdir(folder));) {
        const size_t length = strlen(entry->d_name), end = strlen(ASIDE);
        if (length <= end || strcmp(entry->d_name + length - end, ASIDE) != 0)
            continue;
        count++;
        if (!*oldest || strcmp(entry->d_name, oldest) < 0)
            snprintf(oldest, sizeof oldest, "%s", entry->d_name);
    }
    if (count > ASIDE_MAX)
        (void)unlinkat(dirfd(folder), oldest, 0);
    closedir(folder);
}

void rt_journal_set_aside(rt_journal *journal, const char *path)
{
    char name[RT_PATH_MAX + RT_SEGMENT_NAME_MAX + sizeof ASIDE];
    snprintf(name, sizeof name, "%s" ASIDE, path);
    if (rename(path, name) != 0) {
        rt_warn("%s: cannot be set aside as %s: %s", path, name, strerror(errno));
        return;
    }
    rt_info("%s is damaged: it is kept aside as %s", path, name);
    remove_surplus(journal);
}
