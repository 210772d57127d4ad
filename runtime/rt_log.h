// rt_log - leveled lines on standard error; one line is one write, so processes do not interleave.
//
// Volume by level: error and warn = needs attention, info = per run, debug = per object,
// trace = per message. Measurements never go through the log (rt_metrics has them).
#ifndef RT_LOG_H
#define RT_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/rt_status.h"

typedef enum { RT_LOG_ERROR, RT_LOG_WARN, RT_LOG_INFO, RT_LOG_DEBUG, RT_LOG_TRACE } rt_log_level;

// Process-wide: the level, and the name put before each line ("worker 2"). Called by main only.
void rt_log_setup(rt_log_level level, const char *name);

// Another level from now on. Any thread.
void rt_log_set_level(rt_log_level level);

void rt_log(rt_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define RT_LOG_RECENT 8u
#define RT_LOG_RECENT_BYTES 256u // longer ones are cut

// The warnings and errors that were logged after the first `seen`, the oldest first, at most
// RT_LOG_RECENT, without level and name; returns their number, and *seen is that of all. Any
// thread.
uint32_t rt_log_recent(uint64_t *seen, char texts[RT_LOG_RECENT][RT_LOG_RECENT_BYTES]);

// For whoever forks (rt_child_fork): between the two no thread is inside the log, so that the copy,
// which has one thread and every lock as it stood, can log once it has called the second, too.
void rt_log_hold(void);
void rt_log_release(void);

// What others can cause as often as they like is counted, and one line in 5 s stands for many.
typedef struct {
    uint64_t count, logged_ns;
} rt_log_limit;

// Counts one event. True: a line is due, and *count_p is how many events it stands for.
bool rt_log_due(rt_log_limit *limit, uint64_t *count_p);

#define rt_error_log(...) rt_log(RT_LOG_ERROR, __VA_ARGS__)
#define rt_warn(...) rt_log(RT_LOG_WARN, __VA_ARGS__)
#define rt_info(...) rt_log(RT_LOG_INFO, __VA_ARGS__)
#define rt_debug(...) rt_log(RT_LOG_DEBUG, __VA_ARGS__)
#define rt_trace(...) rt_log(RT_LOG_TRACE, __VA_ARGS__)

#endif
