// rt_feed - a feeder: keeps events of its box in a spool, and sends them to the coordinator.
//
//   source ──► spool (a journal) ──► EVENTS ──► the coordinator's journal
//                    ◄── forget ──── KEPT ◄──┘ fsync
//
// The spool numbers events under a name of its own (a random number in the folder), so that the
// coordinator knows what comes again. What is kept there is forgotten here. The link may be gone
// for as long as the spool has room (journal.bytes_max); then sources wait, as at a coordinator.
#ifndef RT_FEED_H
#define RT_FEED_H

#include "runtime/config/rt_config.h"
#include "runtime/rt_base.h"

typedef struct {
    uint64_t taken;  // events that came to the spool
    uint64_t kept;   // that the coordinator has
    uint64_t connections;
} rt_feed_counts;

// Feeds until stop_fd is readable (RT_OK), or until all of an input that ends is kept (RT_END).
// config: stream, feed.to, journal, security; directory: of the spool, unless journal.directory
// names one. RT_CONFIG, RT_IO, RT_DATA, RT_NO_MEMORY, RT_UNSUPPORTED; error names the key or file.
rt_status rt_feed_run(const rt_config *config, const char *directory, int stop_fd,
                      rt_feed_counts *counts, rt_error *error);

#endif
