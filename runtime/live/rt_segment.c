#include "runtime/live/rt_segment.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/rt_hash.h"

#define SEGMENT_MAGIC UINT64_C(0x4c4e524a59414c52) // "RLAYJRNL"
#define FRAME_MAGIC UINT32_C(0x4d415246)           // "FRAM"
#define VERSION 1u
#define HEAD_BYTES_MAX                                                                   \
    (sizeof(rt_segment_head) + RT_JOURNAL_ORIGINS_MAX * sizeof(rt_journal_origin_mark) + \
     RT_JOURNAL_NOTE_MAX + sizeof(uint64_t))

// ---- what is remembered ----------------------------------------------------------------------

uint64_t *rt_journal_memory_find(rt_journal_memory *memory, uint64_t origin)
{
    for (uint32_t i = 0; i < memory->origin_count; i++)
        if (memory->origins[i].id == origin)
            return &memory->origins[i].number;
    return NULL;
}

void rt_journal_memory_set(rt_journal_memory *memory, uint64_t origin, uint64_t number)
{
    uint64_t *known = rt_journal_memory_find(memory, origin);
    if (known) {
        *known = rt_max_u64(*known, number);
        return;
    }
    if (memory->origin_count == RT_JOURNAL_ORIGINS_MAX)
        memmove(memory->origins, memory->origins + 1,
                --memory->origin_count * sizeof *memory->origins);
    memory->origins[memory->origin_count++] = (rt_journal_origin_mark){origin, number};
}

void rt_journal_memory_note(rt_journal_memory *memory, const void *note, size_t size)
{
    rt_bytes_clear(&memory->note);
    rt_bytes_put(&memory->note, note, size);
}

// ---- names -----------------------------------------------------------------------------------

void rt_segment_name(uint64_t first, char name[RT_SEGMENT_NAME_MAX])
{
    snprintf(name, RT_SEGMENT_NAME_MAX, "%020" PRIu64 ".seg", first);
}

static int compare(const void *left, const void *right)
{
    const uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

rt_status rt_segment_list(const char *directory, uint64_t **firsts_p, uint32_t *count_p,
                          rt_error *error)
{
    uint64_t *firsts = NULL;
    uint32_t count = 0, capacity = 0;
    DIR *folder = opendir(directory);
    if (!folder)
        return rt_fail(error, RT_IO, "cannot open the journal %s: %s", directory, strerror(errno));
    for (struct dirent *entry; (entry = readdir(folder));) {
        char name[RT_SEGMENT_NAME_MAX];
        const uint64_t first = strtoull(entry->d_name, NULL, 10);
        rt_segment_name(first, name);
        if (strcmp(name, entry->d_name) != 0)
            continue;
        if (rt_grow(&firsts, &capacity, count + 1u, sizeof *firsts)) {
            closedir(folder);
            rt_free(firsts);
            return rt_fail(error, RT_NO_MEMORY, "out of memory for a journal");
        }
        firsts[count++] = first;
    }
    closedir(folder);
    if (count)
        qsort(firsts, count, sizeof *firsts, compare);
    *firsts_p = firsts;
    *count_p = count;
    return RT_OK;
}

// ---- heads -----------------------------------------------------------------------------------

void rt_segment_put_head(rt_bytes *bytes, uint64_t first, const rt_journal_memory *memory)
{
    const size_t origins = memory->origin_count * sizeof *memory->origins;
    const rt_segment_head head = {
        .magic = SEGMENT_MAGIC,
        .version = VERSION,
        .size = (uint32_t)(sizeof head + origins + memory->note.size + sizeof(uint64_t)),
        .first = first,
        .origin_count = memory->origin_count,
        .note_size = (uint32_t)memory->note.size};
    const size_t begin = bytes->size;
    rt_bytes_put(bytes, &head, sizeof head);
    rt_bytes_put(bytes, memory->origins, origins);
    rt_bytes_put(bytes, memory->note.data, memory->note.size);
    if (!bytes->failed)
        rt_bytes_put_u64(bytes, rt_hash_bytes(bytes->data + begin, bytes->size - begin));
}

static rt_status damaged(const char *name, rt_error *error)
{
    return rt_fail(error, RT_DATA, "%s: the head of this segment is damaged", name);
}

rt_status rt_segment_read_head(int file, const char *name, uint64_t *first_p,
                               rt_journal_memory *memory, uint64_t *size_p, rt_error *error)
{
    rt_segment_head head;
    uint64_t hash;
    if (pread(file, &head, sizeof head, 0) != sizeof head || head.magic != SEGMENT_MAGIC)
        return damaged(name, error);
    if (head.version != VERSION)
        return rt_fail(error, RT_DATA, "%s: a journal of version %" PRIu32 ", expected %u", name,
                       head.version, VERSION);
    const uint64_t size = sizeof head + (uint64_t)head.origin_count * sizeof *memory->origins +
                          head.note_size + sizeof hash;
    if (head.origin_count > RT_JOURNAL_ORIGINS_MAX || head.note_size > RT_JOURNAL_NOTE_MAX ||
        size != head.size || size > HEAD_BYTES_MAX)
        return damaged(name, error);
    uint8_t *bytes = rt_alloc(size, 1);
    if (!bytes)
        return rt_fail(error, RT_NO_MEMORY, "out of memory for a journal");
    bool is_whole = pread(file, bytes, size, 0) == (ssize_t)size;
    memcpy(&hash, bytes + size - sizeof hash, sizeof hash);
    is_whole = is_whole && hash == rt_hash_bytes(bytes, size - sizeof hash);
    if (is_whole && memory) {
        const uint8_t *at = bytes + sizeof head;
        memory->origin_count = head.origin_count;
        memcpy(memory->origins, at, head.origin_count * sizeof *memory->origins);
        rt_journal_memory_note(memory, at + head.origin_count * sizeof *memory->origins,
                               head.note_size);
    }
    rt_free(bytes);
    *first_p = head.first;
    *size_p = size;
    if (!is_whole)
        return damaged(name, error);
    return RT_OK;
}

// ---- frames ----------------------------------------------------------------------------------

static uint64_t hash_of(const rt_frame_head *head, const void *rest)
{
    const uint64_t both[2] = {rt_hash_bytes(head, offsetof(rt_frame_head, hash)),
                              rt_hash_bytes(rest, head->size)};
    return rt_hash_bytes(both, sizeof both);
}

void rt_frame_seal(rt_frame_head *head, const void *rest)
{
    head->magic = FRAME_MAGIC;
    head->hash = hash_of(head, rest);
}

rt_status rt_frame_read(int file, uint64_t offset, uint64_t end, rt_frame_head *head,
                        rt_bytes *rest, rt_error *error)
{
    if (offset >= end)
        return RT_END;
    if (end - offset < sizeof *head)
        return RT_DATA;
    const ssize_t got = pread(file, head, sizeof *head, (off_t)offset);
    if (got < 0)
        return rt_fail(error, RT_IO, "cannot read the journal: %s", strerror(errno));
    if (got != sizeof *head || head->magic != FRAME_MAGIC ||
        head->size > RT_JOURNAL_FRAME_MAX + RT_JOURNAL_NOTE_MAX || head->note_size > head->size ||
        head->size > end - offset - sizeof *head)
        return RT_DATA;
    if (!rest)
        return RT_OK;
    rt_bytes_clear(rest);
    uint8_t *to = rt_bytes_extend(rest, head->size + RT_LINE_PAD);
    if (!to)
        return rt_fail(error, RT_NO_MEMORY, "out of memory for a journal");
    memset(to + head->size, 0, RT_LINE_PAD);
    if (pread(file, to, head->size, (off_t)(offset + sizeof *head)) != (ssize_t)head->size)
        return RT_DATA;
    if (head->hash != hash_of(head, to))
        return RT_DATA;
    return RT_OK;
}
