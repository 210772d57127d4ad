// rt_position - where reading goes on, as checkpoints keep it: bytes that belong to their readers.
//
//   u64 magic, u32 version, u32 size of what follows:
//   counts of the stream (rt_fields.h); u64 size and bytes of the parser; name of the source, its bytes
//
// The first version had neither magic nor owner: 64 fixed bytes, rt_position_old. It is still read.
#ifndef RT_POSITION_H
#define RT_POSITION_H

#include "runtime/wire/rt_bytes.h"

#define RT_POSITION_BYTES_MAX (256u << 10)         // of a whole position
#define RT_POSITION_SOURCE_BYTES_MAX (118u << 10)  // of it what a source may take
#define RT_POSITION_MAGIC UINT64_C(0x4e4f49544953) // "SITION": more samples than anybody has read
#define RT_POSITION_VERSION 3u                     // 2: members without names (rt_fields.h)
#define RT_POSITION_HEAD_BYTES 16u
#define RT_POSITION_COUNTS_BYTES 88u // of the stream, of version 2
#define RT_POSITION_NAME_BYTES 16u   // of a source
#define RT_POSITION_JOURNAL "journal"
// Of a join, before the position of its outcomes, of version 2: its own, and the outcome at hand.
#define RT_POSITION_JOIN_BYTES 112u
#define RT_POSITION_OUTCOME_BYTES 24u

typedef struct {
    uint64_t samples, lines, malformed;
    uint64_t offset; // of the next line in its unpacked file; of a generator: the next sample
    uint64_t line;   // lines of the file before it
    uint64_t blank_lines, first_blank; // just read, not judged yet, and the number of the first
    uint32_t file, blank_file;
} rt_position_old;
_Static_assert(sizeof(rt_position_old) == 64, "file layout");

// Takes a position of any version off the reader and puts it into position, which is cleared first.
// False: there is none, or it is longer than any; position->failed: out of memory. A later version
// is left to who seeks it, and says so.
bool rt_position_take(rt_reader *reader, rt_bytes *position);

// RT_UNSUPPORTED: it is of a later version than this build reads.
rt_status rt_position_check(const rt_bytes *position, rt_error *error);

// What comes to a stream: samples, or events that wait for their outcomes (stream.join), and these.
typedef enum { RT_FLOW_EVENTS, RT_FLOW_OUTCOMES, RT_FLOWS } rt_flow;

// Where a position goes on in the journals (rt_live.h) of what is sent, by their numbers; 0: the
// flow is none of a journal.
typedef struct {
    uint64_t next[RT_FLOWS];
} rt_position_events;
rt_position_events rt_position_find_events(const rt_bytes *position);

#endif
