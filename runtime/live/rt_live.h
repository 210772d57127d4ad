// rt_live - what a run is sent while it goes on: an intake, its journal, and the source of lines
// that reads the journal.
//
//   senders ──► intake ──► journal ──► rt_source_live ──► rt_stream
//                 ◄── kept ──┘ fsync
//
// Who sends is told that events are kept once they are on disk. A run that goes on from a
// checkpoint reads the journal from the checkpoint's event on, so that all of them are trained. One
// per process.
#ifndef RT_LIVE_H
#define RT_LIVE_H

#include "runtime/config/rt_config.h"
#include "runtime/live/rt_intake.h"

typedef struct rt_live rt_live;

typedef struct {
    rt_journal_counts journal;
    rt_intake_counts intake;
    uint64_t read; // the next event that the stream asks for
} rt_live_counts;

// Whether the source of a configuration is sent to, and needs a journal.
bool rt_live_is_wanted(const rt_config *config);

// Opens journal and intake. directory: of the journal, unless journal.directory names one. config
// is kept. RT_CONFIG, RT_IO, RT_DATA, RT_NO_MEMORY, RT_UNSUPPORTED: error names the key or file.
rt_status rt_live_open(const rt_config *config, const char *directory, rt_live **live_p,
                       rt_error *error);
void rt_live_close(rt_live *live); // NULL is fine

rt_journal *rt_live_journal(const rt_live *live);
rt_live_counts rt_live_statistics(rt_live *live);

#endif
