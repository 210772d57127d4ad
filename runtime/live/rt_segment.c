#define _GNU_SOURCE // memmem
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
#include "runtime/rt_build.h"

#define SEGMENT_MAGIC UINT64_C(0x4c4e524a59414c52) // "RLAYJRNL"
#define FRAME_MAGIC UINT32_C(0x4d415246)           // "FRAM"
#define VERSION 1u
#define HEAD_BYTES_MAX                                                                   \
    (sizeof(rt_segment_head) + RT_JOURNAL_ORIGINS_MAX * sizeof(rt_journal_origin_mark) + \
     RT_JOURNAL_NOTE_MAX + sizeof(uint64_t))
#define LOOK_BYTES ((size_t)1 << 20)
#define HASHED_BYTES_MAX (UINT64_C(4) << 30) // of what looks like a frame, in one search

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

// The head's hash, which stands behind it, is that of its bytes.
static bool is_hash_of(const uint8_t *bytes, uint64_t size)
{
    uint64_t hash;
    memcpy(&hash, bytes + size - sizeof hash, sizeof hash);
    return hash == rt_hash_bytes(bytes, size - sizeof hash);
}

rt_status rt_segment_read_head(int file, const char *name, uint64_t *first_p,
                               rt_journal_memory *memory, uint64_t *size_p, rt_error *error)
{
    rt_segment_head head;
    if (pread(file, &head, sizeof head, 0) != sizeof head || head.magic != SEGMENT_MAGIC ||
        head.size < sizeof head + sizeof(uint64_t) || head.size > HEAD_BYTES_MAX)
        return damaged(name, error);
    uint8_t *bytes = rt_alloc(head.size, 1);
    if (!bytes)
        return rt_fail(error, RT_NO_MEMORY, "out of memory for a journal");
    const size_t origins = (size_t)head.origin_count * sizeof *memory->origins;
    rt_status status = RT_OK;
    // Magic, version and size come first and the hash last in a head of any version.
    if (pread(file, bytes, head.size, 0) != (ssize_t)head.size || !is_hash_of(bytes, head.size))
        status = damaged(name, error);
    else if (head.version != VERSION)
        status = rt_fail_format(error, name, head.version, VERSION, NULL);
    else if (head.origin_count > RT_JOURNAL_ORIGINS_MAX || head.note_size > RT_JOURNAL_NOTE_MAX ||
             sizeof head + origins + head.note_size + sizeof(uint64_t) != head.size)
        status = damaged(name, error);
    if (!status && memory) {
        const uint8_t *at = bytes + sizeof head;
        memory->origin_count = head.origin_count;
        memcpy(memory->origins, at, origins);
        rt_journal_memory_note(memory, at + origins, head.note_size);
    }
    rt_free(bytes);
    *first_p = head.first;
    *size_p = head.size;
    return status;
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

// ---- damage ----------------------------------------------------------------------------------

typedef struct {
    int file;
    uint64_t offset, end; // of what is searched
    uint64_t next;        // event of the next frame, if nothing is missing
    uint64_t hashed;
} search;

// Whether what looks like a frame is one. RT_DATA: no.
static rt_status try_frame(search *s, uint64_t offset, rt_frame_head *head, rt_bytes *rest,
                           rt_error *error)
{
    rt_status status = rt_frame_read(s->file, offset, s->end, head, NULL, error);
    if (status)
        return status;
    // An event has a byte at least: no more of them are missing than there are bytes.
    if (head->count == 0 || head->count > head->size - head->note_size || head->first < s->next ||
        head->first - s->next > offset - s->offset)
        return RT_DATA;
    s->hashed += head->size;
    if (s->hashed > HASHED_BYTES_MAX)
        return RT_DATA;
    return rt_frame_read(s->file, offset, s->end, head, rest, error);
}

// Where the first whole frame begins. RT_END: there is none.
static rt_status search_frame(search *s, uint8_t *block, uint64_t *at_p, rt_frame_head *head,
                              rt_bytes *rest, rt_error *error)
{
    const uint32_t magic = FRAME_MAGIC;
    uint64_t from = s->offset;
    while (s->end - from >= sizeof *head) {
        const size_t size = rt_min_u64(LOOK_BYTES, s->end - from);
        if (pread(s->file, block, size, (off_t)from) != (ssize_t)size)
            return rt_fail(error, RT_IO, "cannot read the journal: %s", strerror(errno));
        const uint8_t *end = block + size;
        for (const uint8_t *at = block; (at = memmem(at, (size_t)(end - at), &magic, sizeof magic));
             at++) {
            *at_p = from + (uint64_t)(at - block);
            const rt_status status = try_frame(s, *at_p, head, rest, error);
            if (status != RT_DATA)
                return status;
        }
        if (from + size == s->end)
            return RT_END;
        from += size - sizeof magic + 1;
    }
    return RT_END;
}

static uint32_t count_ends(const uint8_t *bytes, size_t size)
{
    uint32_t count = 0;
    for (const uint8_t *at = bytes, *end = bytes + size;
         (at = memchr(at, '\n', (size_t)(end - at))); at++)
        count++;
    return count;
}

// One frame in so many bytes, of which only those fields of its head are damaged that can be known
// otherwise. RT_DATA: its hash is that of something else.
static rt_status restore_head(const search *s, uint64_t size, uint64_t follower,
                              rt_frame_head *head, rt_bytes *rest, rt_error *error)
{
    if (size < sizeof *head || size - sizeof *head > RT_JOURNAL_FRAME_MAX + RT_JOURNAL_NOTE_MAX ||
        pread(s->file, head, sizeof *head, (off_t)s->offset) != sizeof *head)
        return RT_DATA;
    head->magic = FRAME_MAGIC;
    head->size = (uint32_t)(size - sizeof *head);
    head->first = s->next;
    if (head->note_size > head->size)
        return RT_DATA;
    rt_bytes_clear(rest);
    uint8_t *to = rt_bytes_extend(rest, head->size + RT_LINE_PAD);
    if (!to)
        return rt_fail(error, RT_NO_MEMORY, "out of memory for a journal");
    memset(to + head->size, 0, RT_LINE_PAD);
    if (pread(s->file, to, head->size, (off_t)(s->offset + sizeof *head)) != (ssize_t)head->size)
        return RT_DATA;
    const uint32_t counts[] = {
        head->count, follower ? (uint32_t)(follower - s->next)
                              : count_ends(to + head->note_size, head->size - head->note_size)};
    for (size_t i = 0; i < RT_COUNT_OF(counts); i++) {
        head->count = counts[i];
        if (head->count > 0 && head->hash == hash_of(head, to))
            return RT_OK;
    }
    return RT_DATA;
}

// Where the damaged frame's head says that it ends, if the one that follows it stands there: what
// its lines look like does not count then.
static rt_status trust_head(search *s, rt_frame_head *head, rt_bytes *rest, uint64_t *at_p,
                            rt_error *error)
{
    rt_status status = rt_frame_read(s->file, s->offset, s->end, head, NULL, error);
    if (status)
        return status;
    const uint64_t follower = head->first + head->count;
    *at_p = s->offset + sizeof *head + head->size;
    if (head->first != s->next || *at_p == s->end)
        return RT_DATA;
    status = try_frame(s, *at_p, head, rest, error);
    if (!status && head->first != follower)
        return RT_DATA;
    return status;
}

static rt_status find_frame(search *s, rt_frame_head *head, rt_bytes *rest, uint64_t *at_p,
                            rt_error *error)
{
    const rt_status trusted = trust_head(s, head, rest, at_p, error);
    if (trusted != RT_DATA)
        return trusted;
    uint8_t *block = rt_alloc(rt_min_u64(LOOK_BYTES, s->end - s->offset), 1);
    if (!block)
        return rt_fail(error, RT_NO_MEMORY, "out of memory for a journal");
    *at_p = s->end;
    rt_status status = search_frame(s, block, at_p, head, rest, error);
    rt_free(block);
    if (status && status != RT_END)
        return status;
    if (status == RT_END)
        *at_p = s->end;
    const uint64_t at = *at_p, follower = status ? 0 : head->first;
    const rt_status restored = restore_head(s, at - s->offset, follower, head, rest, error);
    if (restored != RT_DATA) {
        *at_p = s->offset;
        return restored;
    }
    if (status)
        return status;
    return rt_frame_read(s->file, at, s->end, head, rest, error);
}

rt_status rt_frame_next(int file, uint64_t offset, uint64_t end, uint64_t next, rt_frame_head *head,
                        rt_bytes *rest, uint64_t *at_p, rt_error *error)
{
    *at_p = offset;
    const rt_status status = rt_frame_read(file, offset, end, head, rest, error);
    if (status != RT_DATA && (status || head->first >= next))
        return status;
    search s = {file, offset, end, next, 0};
    return find_frame(&s, head, rest, at_p, error);
}

// Behind the head of a segment that cannot be read.
static uint64_t find_magic(int file, uint64_t end)
{
    const uint32_t magic = FRAME_MAGIC;
    const size_t size = rt_min_u64(HEAD_BYTES_MAX + sizeof magic, end);
    uint8_t *bytes = rt_alloc(size + 1, 1);
    const uint8_t *at = NULL;
    uint64_t offset = end;
    if (bytes && pread(file, bytes, size, 0) == (ssize_t)size)
        at = memmem(bytes, size, &magic, sizeof magic);
    if (at)
        offset = (uint64_t)(at - bytes);
    rt_free(bytes);
    return offset;
}

rt_status rt_frame_judge_end(int file, uint64_t offset, uint64_t end, uint64_t next,
                             rt_frame_end *found, rt_error *error)
{
    rt_frame_head head;
    uint64_t ends = 0;
    *found = (rt_frame_end){.is_cut_off = true};
    if (offset == 0)
        offset = find_magic(file, end);
    if (end - offset < sizeof head)
        return RT_OK;
    if (pread(file, &head, sizeof head, (off_t)offset) != sizeof head)
        return rt_fail(error, RT_IO, "cannot read the journal: %s", strerror(errno));
    const uint64_t size = end - offset - sizeof head;
    const bool is_frame =
        head.magic == FRAME_MAGIC && head.first == next && head.note_size <= head.size;
    uint8_t *block = rt_alloc(LOOK_BYTES, 1);
    if (!block)
        return rt_fail(error, RT_NO_MEMORY, "out of memory for a journal");
    uint64_t from = offset + sizeof head + (is_frame ? head.note_size : 0);
    while (from < end) {
        const ssize_t got = pread(file, block, rt_min_u64(LOOK_BYTES, end - from), (off_t)from);
        if (got <= 0)
            break;
        ends += count_ends(block, (size_t)got);
        from += (uint64_t)got;
    }
    rt_free(block);
    found->is_cut_off = is_frame && head.size > size && ends < head.count;
    if (found->is_cut_off)
        return RT_OK;
    const bool is_known = is_frame && head.count > 0 && head.size == size && head.count <= size;
    found->events = is_known ? head.count : ends;
    return RT_OK;
}
