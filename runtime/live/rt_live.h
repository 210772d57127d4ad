// rt_live - what a run is sent while it goes on: intakes, their journals, and the source of lines
// that reads a journal.
//
//   senders ──► intake ──► journal ──► rt_source_live ──► rt_stream
//                 ◄── kept ──┘ fsync
//
// Events and outcomes (stream.join), each where they are sent, have a journal of their own.
// Who sends is told that events are kept once they are on disk. A run that goes on from a
// checkpoint reads the journal from the checkpoint's event on, so that all of them are trained. One
// per process.
#ifndef RT_LIVE_H
#define RT_LIVE_H

#include "runtime/config/rt_config.h"
#include "runtime/live/rt_intake.h"
#include "runtime/live/rt_mirror.h"

typedef struct rt_live rt_live;

typedef struct {
    rt_journal_counts journal;
    rt_intake_counts intake; // of http and feed, events and outcomes together
    uint64_t read;           // the next event that the stream asks for
} rt_live_counts;

// Whether events or outcomes of a configuration are sent, so that it needs a journal.
bool rt_live_is_wanted(const rt_config *config);

// Opens journals and intakes. directory: of the events' journal, unless journal.directory names
// one; that of outcomes is in it, in "outcomes". config is kept. RT_CONFIG, RT_IO, RT_DATA,
// RT_NO_MEMORY, RT_UNSUPPORTED: error names the key or file.
rt_status rt_live_open(const rt_config *config, const char *directory, rt_live **live_p,
                       rt_error *error);
// The same with a mirror of its journals, which outlives it; NULL: none.
rt_status rt_live_open_with(const rt_config *config, const char *directory, rt_mirror *mirror,
                            rt_live **live_p, rt_error *error);
void rt_live_close(rt_live *live); // NULL is fine

rt_journal *rt_live_journal(const rt_live *live, rt_flow flow); // NULL: it is not sent

// Of a flow that is sent.
rt_live_counts rt_live_statistics(rt_live *live, rt_flow flow);

#endif
