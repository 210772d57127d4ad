// rt_journal_parts - inside a journal: what its commits and its reader share.
#ifndef RT_JOURNAL_PARTS_H
#define RT_JOURNAL_PARTS_H

#include <pthread.h>

#include "runtime/live/rt_segment.h"
#include "runtime/rt_log.h"

typedef struct {
    uint64_t first, bytes; // bytes: of its file, as far as it is committed
    double last_s;         // when its last event came (rt_steady_s)
    bool is_damaged;       // it is kept aside when its events are not needed any more
} rt_journal_segment;

typedef struct rt_journal_waiting {
    struct rt_journal_waiting *next;
    rt_journal_entry entry; // lines and note point behind this struct
    uint64_t arrival_ns;
    bool lacks_end; // of the last line
    bool is_refused;
} rt_journal_waiting;

struct rt_journal {
    char *directory;
    int directory_fd, lock_fd;
    uint64_t bytes_max, segment_bytes;
    double keep_s;    // 0: whatever the age
    double begun_s;   // the last segment, or this process
    uint64_t last_ns; // when the last event came that was there at the start; 0: none was
    pthread_t thread;
    bool thread_runs;
    int event_fd;
    rt_log_limit failures, damages;

    rt_journal_copy copy; // offer NULL: it is here alone
    bool end_is_damaged;  // as it was opened: what is behind its last event was acknowledged, too

    // The journal's thread.
    bool must_roll;           // the next commit begins a segment
    int file;                 // the last segment; -1: it cannot be written any more
    rt_bytes block;           // of one commit
    rt_journal_memory coming; // as it will be after the commit
    uint64_t coming_lost;     // by those that sent what it has

    // The reader's.
    int reader_file;
    uint64_t reader_segment, reader_offset, reader_next;
    uint64_t lost_end;     // events before it were counted, where they are lost: once
    uint64_t reader_event; // of the frame at reader_offset, if nothing is missing before it
    rt_bytes reader_bytes;

    pthread_mutex_t lock; // the members below
    pthread_cond_t wake;
    rt_journal_waiting *waiting, **waiting_end;
    uint64_t waiting_bytes;
    bool is_held; // nothing is appended for a moment
    bool stop;
    rt_journal_segment *segments;
    uint32_t segment_count, segment_capacity;
    uint64_t keep_from;
    rt_journal_memory memory; // of what is committed
    rt_journal_counts counts; // bytes are added up when asked for
};

// "DIRECTORY/NAME" of a segment.
void rt_journal_path(const rt_journal *journal, uint64_t first, char *path, size_t size);

// Under no lock. RT_IO, RT_NO_MEMORY.
rt_status rt_journal_begin_segment(rt_journal *journal, uint64_t first, rt_error *error);

// At the start: all segments of the folder, or a first one. RT_IO, RT_UNSUPPORTED, RT_NO_MEMORY.
rt_status rt_journal_take_segments(rt_journal *journal, rt_error *error);

// The bytes [from, to) of a damaged segment (to UINT64_MAX: to its end) are taken from the copy, if
// the frames there are whole and begin with event `next`. True: they are here now.
bool rt_journal_mend(rt_journal *journal, uint64_t segment, uint64_t from, uint64_t to,
                     uint64_t next);

// A damaged file gets another name, "PATH.damaged"; the latest of them stay.
void rt_journal_set_aside(rt_journal *journal, const char *path);

#endif
