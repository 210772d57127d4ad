// rt_segment - the files of a journal: their heads, frames and names.
#ifndef RT_SEGMENT_H
#define RT_SEGMENT_H

#include "runtime/live/rt_journal.h"

#define RT_SEGMENT_NAME_MAX 32

typedef struct {
    uint64_t id, number;
} rt_journal_origin_mark;
_Static_assert(sizeof(rt_journal_origin_mark) == 16, "file layout");

typedef struct {
    uint64_t magic;
    uint32_t version, size; // of the whole head
    uint64_t first;
    uint32_t origin_count, note_size;
    // origins, note; then, in every version, the XXH3 of all that
} rt_segment_head;
_Static_assert(sizeof(rt_segment_head) == 32, "file layout");

typedef struct {
    uint32_t magic, size; // of what follows the head: note, lines
    uint64_t first;
    uint32_t count, note_size;
    uint64_t arrival_ns, origin, origin_last;
    uint64_t hash; // of the head before it, and of what follows
} rt_frame_head;
_Static_assert(sizeof(rt_frame_head) == 56, "file layout");

// What a journal remembers beside its events.
typedef struct {
    rt_journal_origin_mark origins[RT_JOURNAL_ORIGINS_MAX];
    uint32_t origin_count;
    rt_bytes note;
} rt_journal_memory;

uint64_t *rt_journal_memory_find(rt_journal_memory *memory, uint64_t origin); // NULL: unknown
// The least lately added goes where there is no room.
void rt_journal_memory_set(rt_journal_memory *memory, uint64_t origin, uint64_t number);
void rt_journal_memory_note(rt_journal_memory *memory, const void *note, size_t size);

void rt_segment_name(uint64_t first, char name[RT_SEGMENT_NAME_MAX]);
// First events of the segments in a folder, ascending; the caller's (rt_free).
rt_status rt_segment_list(const char *directory, uint64_t **firsts_p, uint32_t *count_p,
                          rt_error *error);

// Appends the head of a new segment.
void rt_segment_put_head(rt_bytes *bytes, uint64_t first, const rt_journal_memory *memory);
// Reads one; memory NULL: not wanted. *size_p: where frames begin. RT_DATA: damaged;
// RT_UNSUPPORTED: of another version; RT_NO_MEMORY.
rt_status rt_segment_read_head(int file, const char *name, uint64_t *first_p,
                               rt_journal_memory *memory, uint64_t *size_p, rt_error *error);

void rt_frame_seal(rt_frame_head *head, const void *rest);
// The head of the frame at an offset, and (rest not NULL, which is replaced) what follows it, with
// RT_LINE_PAD bytes behind. RT_END: no byte is there. RT_DATA: none that is whole. RT_IO,
// RT_NO_MEMORY.
rt_status rt_frame_read(int file, uint64_t offset, uint64_t end, rt_frame_head *head,
                        rt_bytes *rest, rt_error *error);

// The next whole frame at an offset or behind it, of the event `next` or a later one; *at_p is
// where it begins: what is between is damaged. One of which only magic, size, first or count is
// damaged is whole: its hash says what stood there. RT_END: there is none before end, *at_p is
// that. RT_IO, RT_NO_MEMORY.
rt_status rt_frame_next(int file, uint64_t offset, uint64_t end, uint64_t next, rt_frame_head *head,
                        rt_bytes *rest, uint64_t *at_p, rt_error *error);

// What the bytes behind the last whole frame were.
typedef struct {
    bool is_cut_off; // the beginning of a frame that was being written: nobody was told of it
    uint64_t events; // else: as far as they can be made out
} rt_frame_end;
rt_status rt_frame_judge_end(int file, uint64_t offset, uint64_t end, uint64_t next,
                             rt_frame_end *found, rt_error *error);

#endif
