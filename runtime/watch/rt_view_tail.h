// rt_view_tail - the records of a run's folder for a view: the newest ones, and those that follow.
//
// metrics.jsonl is read from its last part on, then as it grows, and again where another file takes
// its place. One owner.
#ifndef RT_VIEW_TAIL_H
#define RT_VIEW_TAIL_H

#include <stdio.h>
#include <sys/types.h>

#include "runtime/watch/rt_view.h"

#define RT_VIEW_TAIL_BYTES \
    (UINT64_C(16) << 20)            // of a file that is there, the last so many are read
#define RT_VIEW_LINE_MAX (1u << 20) // longer lines are left out

typedef struct {
    uint64_t count, bad, first_bad; // bad: no records; first_bad: its number, from 1
} rt_view_lines;

typedef struct {
    char path[RT_PATH_MAX + 32];
    FILE *file;
    ino_t inode;
    char *line;    // of RT_VIEW_LINE_MAX bytes
    size_t length; // of a line whose end is not there yet
    bool skips;    // until the next line begins
    rt_view_lines lines;
} rt_view_tail;

// RT_NOT_FOUND: the folder has no metrics.jsonl; RT_IO, RT_NO_MEMORY; error names the file.
rt_status rt_view_tail_open(const char *directory, rt_view_tail *tail, rt_error *error);
void rt_view_tail_close(rt_view_tail *tail); // also of a zeroed one

// Takes what is there, up to `end` bytes into the file (UINT64_MAX: all). Returns how many records
// came.
uint64_t rt_view_tail_read(rt_view_tail *tail, uint64_t end, rt_view *view);

// Takes all of a file, from its beginning; an end that is cut short is a bad line. RT_IO,
// RT_NO_MEMORY; error names the path.
rt_status rt_view_read(const char *path, FILE *file, rt_view *view, rt_view_lines *lines,
                       rt_error *error);

// When the file was written last, of the clock of the day.
double rt_view_tail_unix_s(const rt_view_tail *tail);

#endif
