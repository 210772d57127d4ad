// rt_source - the lines of several files, one after the other, unpacked on the way.
//
// One thread. Plain and zstd files are told apart by their first bytes; "-" is standard input,
// which is read as data comes. A line ends with '\n', "\r\n" or its file. Memory is bounded: lines
// longer than RT_LINE_MAX are skipped, zstd frames with windows over 128 MiB are refused.
#ifndef RT_SOURCE_H
#define RT_SOURCE_H

#include "runtime/stream/rt_line.h"

typedef struct rt_source rt_source;

// Copies the paths. All files must exist, the first is opened. RT_IO, RT_NO_MEMORY.
rt_status rt_source_open(char *const *paths, uint32_t path_count, rt_source **source_p,
                         rt_error *error);
void rt_source_close(rt_source *source); // NULL is fine

// From now on a wait for bytes (of standard input, of a pipe) ends when fd becomes readable; fd is
// not read. -1: waits are endless, as they are after open.
void rt_source_set_stop(rt_source *source, int fd);

// The next line, valid until the next call. RT_END: there is none. RT_STOPPED: rt_source_set_stop's
// descriptor is readable and no line is there. RT_IO, RT_DATA (a packed file is damaged or cut
// off): error names file and line; the source is of no further use.
rt_status rt_source_line(rt_source *source, rt_line *line, rt_error *error);

// Where the next line begins: everything before it was given out.
typedef struct {
    uint32_t file;   // path_count: at the end
    uint64_t offset; // in the unpacked file
    uint64_t line;   // lines of the file before it
} rt_source_position;

rt_source_position rt_source_tell(const rt_source *source);

// Before the first line. Plain files are sought, packed ones unpacked up to there; standard input
// and pipes go on with what comes. RT_IO, RT_DATA: the file ends before; error names it.
// RT_STOPPED: rt_source_set_stop's descriptor became readable while unpacking.
rt_status rt_source_seek(rt_source *source, const rt_source_position *position, rt_error *error);

// Path by a line's file index, as given.
const char *rt_source_path(const rt_source *source, uint32_t file);

uint64_t rt_source_bytes_read(const rt_source *source); // before unpacking
uint64_t rt_source_bytes_all(const rt_source *source);  // of all files; 0 where one has no size

#endif
