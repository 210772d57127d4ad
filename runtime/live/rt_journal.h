// rt_journal - events on disk before anybody is told that they are kept, in the order of arrival.
//
// Lines are appended from any thread and numbered from 1 on. A thread of the journal's own writes
// what has come and calls fdatasync once for all of it (group commit); then everybody is told. One
// reader reads what is committed. The folder holds segments, NUMBER.seg, named by their first
// event:
//   head    magic, version, size, first event, known origins, the latest note; XXH3 of it
//   frames  one per append: events, arrival, origin; XXH3 of it and of its lines
// A frame that is cut off at the end of the last segment was never acknowledged and is removed at
// the next open. Damage anywhere else is mended from a copy where there is one (rt_mirror); else it
// is told, counted and passed over, up to the next frame whose hash holds, and its file is kept
// aside. Little-endian, as are all files here.
//
// An origin is somebody who numbers what it sends (a feeder): of what was appended before, nothing
// is appended again. A note is bytes that belong to who appends (where its source stands); the
// latest one comes back after a restart. Both live as long as the journal, not as its segments.
#ifndef RT_JOURNAL_H
#define RT_JOURNAL_H

#include "runtime/stream/rt_line.h"
#include "runtime/stream/rt_position.h"
#include "runtime/wire/rt_bytes.h"

#define RT_JOURNAL_ORIGINS_MAX 1024u
#define RT_JOURNAL_NOTE_MAX ((size_t)128 << 10)
#define RT_JOURNAL_FRAME_MAX ((size_t)16 << 20) // bytes of one append

typedef struct rt_journal rt_journal;

// Everything that was appended is on disk (RT_OK), or none of it is: RT_IO; RT_REFUSED: what its
// origin had sent before it is not there. In the journal's thread; must not wait for the journal.
typedef void (*rt_journal_done)(void *context, rt_status status);

typedef struct {
    const char *lines; // size bytes, every line with its '\n'; the last may lack it
    size_t size;
    bool is_lent; // lines stay until done is called, and are not copied
    uint32_t count;
    uint64_t origin;       // 0: none
    uint64_t origin_first; // its number of the first line
    uint64_t origin_left;  // the oldest that it still has: what came before is not waited for; of
                           // one that is new here, above origin_first by as many as damage took
    const void *note;      // NULL: the one before stays
    size_t note_size;
    rt_journal_done done; // NULL: nobody waits
    void *context;
} rt_journal_entry;

typedef struct {
    uint64_t next;      // number of the event that is committed next
    uint64_t first;     // of the oldest that is there
    uint64_t bytes;     // of all segments
    uint64_t events;    // committed by this process
    uint64_t repeated;  // not appended: their origin had sent them before
    uint64_t commits;   // calls of fdatasync
    uint64_t commit_ns; // they took together
    uint64_t failures;  // of them
    uint64_t full;      // appends that were turned away
    uint64_t lost;      // events that damage took, here or from an origin's spool
} rt_journal_counts;

// "DIRECTORY", or "DIRECTORY/outcomes": where the journal of a flow is, one folder for both.
void rt_journal_place(const char *directory, rt_flow flow, char *path, size_t size);

// What is committed must be somewhere else, too (rt_mirror). In the journal's thread.
typedef struct {
    // This block is being written at offset of a segment (its first event); the bytes stay until
    // settle has returned.
    void (*offer)(void *context, uint64_t segment, uint64_t offset, const void *bytes, size_t size);
    // Waits until it is there. is_written false: it is not on disk here, and goes there, too. A
    // status: nothing of it is acknowledged, and it goes here, too.
    rt_status (*settle)(void *context, bool is_written, rt_error *error);
    // Any thread but the journal's: bytes [offset, offset + size) of a segment as they are there,
    // fewer at its end, appended to `to`. NULL: nobody can be asked.
    rt_status (*fetch)(void *context, uint64_t segment, uint64_t offset, size_t size, rt_bytes *to,
                       rt_error *error);
    void *context;
} rt_journal_copy;

// bytes_max: of all segments together. Makes the folder. copy (NULL: it is here alone) is copied.
// RT_IO, RT_UNSUPPORTED (another version), RT_NO_MEMORY; error names the file.
rt_status rt_journal_open(const char *directory, uint64_t bytes_max, const rt_journal_copy *copy,
                          rt_journal **journal_p, rt_error *error);
// Commits what was appended, tells everybody, and ends. NULL is fine.
void rt_journal_close(rt_journal *journal);

// Any thread. RT_AGAIN: full, or too much waits to be committed; nothing was appended, and nobody
// will be told. RT_LIMIT: longer than RT_JOURNAL_FRAME_MAX. RT_NO_MEMORY.
rt_status rt_journal_append(rt_journal *journal, const rt_journal_entry *entry);

// Counts the lines of size bytes of text and checks their lengths; the last may lack its '\n'.
// False: one is longer than RT_LINE_MAX.
bool rt_journal_count_lines(const char *text, size_t size, uint32_t *count_p);

// The last number that an origin has on disk; 0: none.
uint64_t rt_journal_origin(rt_journal *journal, uint64_t origin);

// The latest note is appended to note.
void rt_journal_note(rt_journal *journal, rt_bytes *note);

// Segments whose events are all before this one may go. Any thread.
void rt_journal_keep_from(rt_journal *journal, uint64_t event);

// True once more than half of bytes_max is in use: whoever can should let segments go.
bool rt_journal_is_pressed(rt_journal *journal);

// Segments are begun so that events of one go soon after keep_s; 0, as at the start: by size alone.
// Is old: all events of the first segment are older than that, and there is another one. Any
// thread.
void rt_journal_keep_for(rt_journal *journal, double keep_s);
bool rt_journal_is_old(rt_journal *journal);

typedef struct {
    uint64_t first, bytes; // as far as it is committed
} rt_journal_extent;

// The segments, ascending; the caller's (rt_free). Any thread. RT_NO_MEMORY.
rt_status rt_journal_extents(rt_journal *journal, rt_journal_extent **extents_p, uint32_t *count_p);

// When the last event came that was there when it was opened; 0: none is known.
uint64_t rt_journal_last_ns(const rt_journal *journal);

// Where it is.
const char *rt_journal_directory(const rt_journal *journal);

rt_journal_counts rt_journal_statistics(rt_journal *journal);

// The next event of a journal that never had one, or whose end was damaged when it was opened, will
// have this number. False: its end is whole, or it goes farther.
bool rt_journal_begin_at(rt_journal *journal, uint64_t event);

// ---- the reader: one thread ------------------------------------------------------------------

typedef struct {
    const char *lines; // count lines, each with its '\n', and RT_LINE_PAD bytes behind
    size_t size;
    uint64_t first; // event
    uint32_t count;
    uint64_t arrival_ns; // rt_arrival_ns
    uint64_t origin;     // 0: none
} rt_journal_frame;

// Goes to an event. RT_NOT_FOUND: it is not there any more, *lost_p are missing before the first
// that is: they are counted, and reading goes on with that. RT_DATA: the journal ends before it.
// RT_IO.
rt_status rt_journal_seek(rt_journal *journal, uint64_t event, uint64_t *lost_p, rt_error *error);

// The next committed frame, valid until the next call; it begins at the event that was sought, or
// behind the one before. RT_AGAIN: none is committed yet. RT_IO, RT_NO_MEMORY. Damage is told,
// counted and passed over.
rt_status rt_journal_read(rt_journal *journal, rt_journal_frame *frame, rt_error *error);

// Readable when rt_journal_read may have more; read clears it.
int rt_journal_fd(const rt_journal *journal);

#endif
