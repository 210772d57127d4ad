// rt_lines - the lines of one open file, pipe or socket, unpacked on the way.
//
// One thread. Plain text, UTF-16 (which becomes UTF-8) and what rt_unpack unpacks are told apart by
// the first bytes, and so are files that hold columns, which rt_columnar makes lines of; what else
// is known by them is refused by its name. A line ends with '\n', "\r\n"
// or its file. Memory is bounded: lines longer than RT_LINE_MAX are skipped.
#ifndef RT_LINES_H
#define RT_LINES_H

#include "runtime/stream/rt_line.h"

typedef struct rt_lines rt_lines;

// How waits end, and where the bytes that they bring are counted.
typedef struct {
    int stop;   // descriptor; readable: a wait ends, nothing is read from it. -1: nothing ends one
    int ledger; // descriptor of a file whose first 8 bytes are kept at `taken`; -1: nobody counts
} rt_source_watch;

rt_status rt_lines_create(rt_lines **lines_p, rt_error *error); // RT_NO_MEMORY
void rt_lines_destroy(rt_lines *lines);                         // NULL is fine; closes nothing

void rt_lines_watch(rt_lines *lines, const rt_source_watch *watch);

// Begins with a descriptor, which stays the caller's. name is for messages and is not copied; file
// is the number that its lines carry. waits: it is no regular file, its bytes may be long in
// coming.
void rt_lines_begin(rt_lines *lines, int descriptor, const char *name, uint32_t file, bool waits);

// The next line, valid until the next call; with line_feeds it goes on over so many line ends, and
// bears the number of its first line. RT_END: there is none. RT_STOPPED: watch.stop is readable and
// no line is there. RT_AGAIN: none is there at deadline_ns (of rt_now_ns; 0: it is waited for).
// RT_LIMIT: with line_feeds it is longer than RT_LINE_MAX; the line itself is still there.
// RT_IO, RT_DATA (packed and damaged, or cut off): error names file and line; of no further use.
rt_status rt_lines_next(rt_lines *lines, uint64_t deadline_ns, uint32_t line_feeds, rt_line *line,
                        rt_error *error);

// The line given out last will come again. It was not too long; nothing was asked for since.
void rt_lines_back(rt_lines *lines);

// The last bytes before a place, by which it is known again.
#define RT_LINES_TAIL_BYTES 1024u
typedef struct {
    uint64_t hash;
    uint64_t bytes; // at most RT_LINES_TAIL_BYTES; 0: nobody looked
} rt_lines_tail;

typedef struct {
    uint64_t offset, line;
    rt_lines_tail tail;
    bool is_inside; // the line before had no end when it was read
} rt_lines_place;

// Before the first line: goes on at this place. Plain files are sought, packed ones and UTF-16 read
// up to there; what waits goes on with what comes. What is left of a line that had no end is passed
// over, *rest_p bytes. RT_DATA: the file ends before. RT_NOT_FOUND, without a text: other bytes than
// the tail's stand before the place. RT_STOPPED while unpacking. RT_IO.
rt_status rt_lines_seek(rt_lines *lines, const rt_lines_place *place, uint64_t *rest_p,
                        rt_error *error);

// Where the next line begins: everything before it was given out.
uint64_t rt_lines_offset(const rt_lines *lines);    // in the unpacked file, of UTF-8
uint64_t rt_lines_number(const rt_lines *lines);    // lines before it
rt_lines_tail rt_lines_last(const rt_lines *lines); // what stands before it
bool rt_lines_is_inside(const rt_lines *lines);     // the file ended within the last line

uint64_t rt_lines_bytes_read(const rt_lines *lines);     // of all files so far, before unpacking
void rt_lines_add_read(rt_lines *lines, uint64_t bytes); // read before, or passed over

// Unpacked bytes that came from what waits, of all of them so far: they come only once.
uint64_t rt_lines_taken(const rt_lines *lines);
void rt_lines_set_taken(rt_lines *lines, uint64_t bytes);

#endif
