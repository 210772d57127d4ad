// rt_intake_core - what all intakes have: a thread that is woken and stopped, blocks of lines that
// wait for the journal, and counts.
//
// An intake embeds one. What it keeps beside it that the journal's thread touches, too, is under
// core.lock.
#ifndef RT_INTAKE_CORE_H
#define RT_INTAKE_CORE_H

#include <pthread.h>

#include "runtime/config/rt_config.h"
#include "runtime/live/rt_intake.h"
#include "runtime/stream/rt_line.h"
#include "runtime/stream/rt_position.h"

// ---- rt_intake_reader.c -----------------------------------------------------------------------

// Whether a line that is sent is one that the run can read.
//
// It parses the line as the stream will, and keeps nothing of it: what goes into the journal is
// text, which is parsed again when its turn comes, maybe by another process. One thread.

typedef struct rt_intake_reader rt_intake_reader;

// Of lines of a flow. RT_CONFIG, RT_NO_MEMORY; error names the key.
rt_status rt_intake_reader_create(const rt_config *config, rt_flow flow,
                                  rt_intake_reader **reader_p, rt_error *error);
void rt_intake_reader_destroy(rt_intake_reader *reader); // NULL is fine

// A line without its end. False: problem says what was expected. With stream.take_anything every
// line is good that is not too long.
bool rt_intake_reader_takes(rt_intake_reader *reader, const char *text, size_t length,
                            rt_line_problem *problem);

// All lines of a text, none of which is too long. False: the line of that number, from 1, is not
// taken.
bool rt_intake_reader_takes_all(rt_intake_reader *reader, const char *text, size_t size,
                                uint32_t *line_p, rt_line_problem *problem);

// A text without the mark of UTF-8 before it and without the empty lines behind it; *size_p
// follows.
const char *rt_intake_trim(const char *text, size_t *size_p);

// Whether a text is a packed file (gzip, zstd), not lines.
bool rt_intake_is_packed(const char *text, size_t size);

// -----------------------------------------------------------------------------------------------

typedef struct {
    const char *name; // of the source, for messages
    rt_journals journals;
    rt_intake_reader *readers[RT_FLOWS]; // the thread's that takes lines; NULL: it reads none
    bool names_events;                   // stream.id
    int wake;                            // readable when something was kept, and once it is to stop
    pthread_t thread;
    bool runs;
    pthread_mutex_t lock; // the members below
    pthread_cond_t changed;
    bool stop;
    uint32_t open; // blocks that wait for the journal
    rt_intake_counts counts;
} rt_intake_core;

// A block is on disk, or (status) it is not. In the journal's thread, without the lock.
typedef void (*rt_intake_done)(void *context, uint32_t count, rt_status status);

// RT_LIMIT. Whatever it returns, rt_intake_end is to be called.
rt_status rt_intake_begin(rt_intake_core *core, const char *name, const rt_config *config,
                          const rt_journals *journals, rt_error *error);

// Lines of the flows that it takes are to be read before they are stored. RT_CONFIG, RT_NO_MEMORY.
rt_status rt_intake_read_lines(rt_intake_core *core, const rt_config *config, rt_error *error);

// Starts the thread. RT_LIMIT.
rt_status rt_intake_start(rt_intake_core *core, void *(*run)(void *), void *context,
                          rt_error *error);

void rt_intake_wake(const rt_intake_core *core);
void rt_intake_wakes_seen(const rt_intake_core *core);    // it is not readable any more
void rt_intake_pause(const rt_intake_core *core, int ms); // until it is, at most so long
bool rt_intake_is_stopped(rt_intake_core *core);

// Appends a block to the journal of a flow that it takes; done and context of the entry are not
// looked at. After RT_OK `done` is called, once; else never: errors are those of rt_journal_append.
rt_status rt_intake_append(rt_intake_core *core, rt_flow flow, const rt_journal_entry *entry,
                           rt_intake_done done, void *context);

void rt_intake_count_refused(rt_intake_core *core, uint64_t count);
void rt_intake_read_counts(rt_intake_core *core, rt_intake_counts *counts);

// Waits until the journal has said what became of every block.
void rt_intake_settle(rt_intake_core *core);

// Stops the thread, where one runs, and settles.
void rt_intake_stop(rt_intake_core *core);
void rt_intake_end(rt_intake_core *core);

#endif
