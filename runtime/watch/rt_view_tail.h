// rt_view_tail - the records of a run's folder: all of them, or for a view the newest ones, and those
// that follow.
//
// A tail reads metrics.jsonl from its last part on, then as it grows, and again where another file
// takes its place. One owner.
#ifndef RT_VIEW_TAIL_H
#define RT_VIEW_TAIL_H

#include <stdio.h>
#include <sys/types.h>

#include "runtime/watch/rt_view.h"

#define RT_VIEW_TAIL_BYTES \
    (UINT64_C(16) << 20)            // of a file that is there, the last so many are read
#define RT_VIEW_LINE_MAX (1u << 20) // longer lines are left out

// False: it is no record.
typedef bool (*rt_view_taker)(void *context, const char *line);

typedef struct {
    bool is_there;
    char path[RT_PATH_MAX + 32];
    uint64_t count, bad, first_bad; // bad: no records; first_bad: the number of the first, from 1
} rt_view_lines;

typedef struct {
    char path[RT_PATH_MAX + 32];
    FILE *file;
    ino_t inode;
    char *line;                     // of RT_VIEW_LINE_MAX bytes
    size_t length;                  // of a line whose end is not there yet
    bool skips;                     // until the next line begins
    uint64_t count, bad, first_bad; // lines, as in rt_view_lines
    rt_view_taker take;
    void *context;
} rt_view_tail;

// RT_NOT_FOUND: the folder has no metrics.jsonl; RT_IO, RT_NO_MEMORY; error names the file.
rt_status rt_view_tail_open(const char *directory, rt_view_tail *tail, rt_error *error);
void rt_view_tail_close(rt_view_tail *tail); // also of a zeroed one

// Takes what is there, up to `end` bytes into the file (UINT64_MAX: all). Returns how many records
// came.
uint64_t rt_view_tail_read(rt_view_tail *tail, uint64_t end, rt_view *view);

// All lines of a run's records: of the file that was put aside (metrics.bytes_max), then of
// metrics.jsonl; an end that is cut short is a bad line. RT_NOT_FOUND: neither is there; RT_IO,
// RT_LIMIT, RT_NO_MEMORY.
rt_status rt_view_read_run(const char *directory, rt_view_taker take, void *context,
                           rt_view_lines lines[2], rt_error *error);

// When the file was written last, of the clock of the day.
double rt_view_tail_unix_s(const rt_view_tail *tail);

#endif
