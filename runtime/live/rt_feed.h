// rt_feed - a feeder: keeps events of its box in a spool, and sends them to the coordinator.
//
//   source ──► spool (a journal) ──► EVENTS ──► the coordinator's journal
//                    ◄── forget ──── KEPT ◄──┘ fsync
//
// With stream.join outcomes have a spool and a connection of their own. The link may be gone for as
// long as the spool has room (journal.bytes_max); then sources wait, as at a coordinator.
#ifndef RT_FEED_H
#define RT_FEED_H

#include "runtime/config/rt_config.h"
#include "runtime/live/rt_journal.h"
#include "runtime/stream/rt_position.h"

typedef struct {
    uint64_t taken; // that came to the spool
    uint64_t kept;  // that the coordinator has
    uint64_t connections;
} rt_feed_counts;

// Feeds until stop_fd is readable (RT_OK), or until all of inputs that end is kept (RT_END).
// config: stream, feed.to, journal, security; directory: of the spool, unless journal.directory
// names one. RT_CONFIG, RT_IO, RT_DATA, RT_NO_MEMORY, RT_UNSUPPORTED; error names the key or file.
rt_status rt_feed_run(const rt_config *config, const char *directory, int stop_fd,
                      rt_feed_counts counts[RT_FLOWS], rt_error *error);

// ---- events of this process ------------------------------------------------------------------

typedef struct rt_feeder rt_feeder;

// Feeds what is appended to its journal, from a thread of its own, until it is closed. config:
// feed.to, journal.bytes_max, security; it is kept. What is not sent then stays in the folder, for
// the next time. As rt_feed_run.
rt_status rt_feeder_open(const rt_config *config, const char *directory, rt_feeder **feeder_p,
                         rt_error *error);
void rt_feeder_close(rt_feeder *feeder); // NULL is fine

// Lines are appended here (rt_journal_append), from any thread. NULL is never returned.
rt_journal *rt_feeder_journal(rt_feeder *feeder);

// Any thread. False: it failed, as error says, and what is appended stays in the spool.
bool rt_feeder_counts(rt_feeder *feeder, rt_feed_counts *counts, rt_error *error);

#endif
