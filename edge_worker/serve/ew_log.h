// ew_log - what was served, on its way into the join of a run (docs/SERVING.md, "What was served").
//
// Events go to a spool on this disk (serve.log) and from there to the coordinator (feed.to), which
// may be away. Answers do not wait for it: what the last moments before a crash had is lost, and
// where the spool is full events are dropped; both are counted, there or by the join as outcomes
// without an event.
#ifndef EW_LOG_H
#define EW_LOG_H

#include "runtime/config/rt_config.h"
#include "runtime/rt_base.h"

typedef struct ew_log ew_log;

typedef struct {
    uint64_t events;  // that went to the spool
    uint64_t dropped; // that it had no room for, or that the disk did not take
    uint64_t sent;    // that the coordinator has, of this spool
} ew_log_counts;

#define EW_LOG_NAME_SIZE 17u

// config: serve.log, feed.to, journal.bytes_max, security; it outlives the log. RT_CONFIG, RT_IO,
// RT_DATA, RT_LIMIT, RT_NO_MEMORY; error names the key or file.
rt_status ew_log_open(const rt_config *config, ew_log **log_p, rt_error *error);
void ew_log_close(ew_log *log); // NULL is fine

// Any thread, as are all below. A name that no other question has.
void ew_log_name(ew_log *log, char name[EW_LOG_NAME_SIZE]);

// count lines, each with its line end. Never waits.
void ew_log_put(ew_log *log, const void *lines, size_t size, uint32_t count);

ew_log_counts ew_log_counted(ew_log *log);

#endif
