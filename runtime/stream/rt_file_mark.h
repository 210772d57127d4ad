// rt_file_mark - how far one input file was read, and how it is known again.
//
// Plain values, part of a position (rt_position). A file is known by its first bytes together with
// its path or its inode: one that was renamed goes on where it was, one that was replaced does not,
// nor does one of which only the beginning is the same: what stands before the place is compared.
// A copy in another folder is known by its first bytes and its name, if these bytes are many.
#ifndef RT_FILE_MARK_H
#define RT_FILE_MARK_H

#include "runtime/wire/rt_fields.h"

#define RT_FILE_HEAD_BYTES (64u << 10) // first bytes that are compared, at most
#define RT_FILE_NAME_BYTES 24u         // end of the path, for messages

typedef enum {
    RT_MARK_FINISHED = 1, // read to its end
    RT_MARK_INSIDE = 2,   // whose last line had no end: a file that was being written
    RT_MARK_WAITS = 4,    // a pipe or a socket: nothing of it comes twice
} rt_file_flags;

typedef struct {
    uint64_t path_hash, name_hash; // of the path; of what follows its last slash
    uint64_t device, inode;        // 0: a pipe
    uint64_t head_hash;            // of the first head_bytes bytes
    uint64_t start_hash;           // of the first few of these: a file that was cut has them still
    uint64_t offset;               // of the next line in the unpacked file
    uint64_t line;                 // lines before it
    uint64_t size;                 // of the file, as it is packed, when its end was seen; else 0
    uint64_t end_hash;             // of the last bytes of these, of a regular file; 0: unknown
    uint64_t tail_hash;            // of the last tail_bytes bytes before offset (rt_lines_tail)
    uint64_t tail_bytes;           // 0: unknown
    uint32_t head_bytes;
    uint32_t flags;                // rt_file_flags
    char name[RT_FILE_NAME_BYTES]; // terminated
} rt_file_mark;

extern const rt_fields rt_file_mark_fields; // as a position keeps it

// A regular file that is about to be read, or a pipe (descriptor -1, or not regular): nothing of it
// was read. Its first bytes are read by pread.
void rt_file_mark_init(const char *path, int descriptor, rt_file_mark *mark);

// The end of the file was seen: its size, and what stands there.
void rt_file_mark_finish(rt_file_mark *mark, int descriptor, uint64_t size);

// How sure it is that the file of `now`, which was just begun, is that of `before`: 0: it is not;
// larger is surer, up to RT_FILE_SURE. RT_FILE_REPLACED: the path is the same, the first bytes are
// not; RT_FILE_REWRITTEN: these are, too, and the last ones of a file that was read to its end, and
// has its size, are not. descriptor: of the file of now.
#define RT_FILE_SURE 3
#define RT_FILE_REPLACED (-1)
#define RT_FILE_REWRITTEN (-2)
int rt_file_mark_match(const rt_file_mark *before, const rt_file_mark *now, int descriptor);

#endif
