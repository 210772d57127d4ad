// rt_viewer - shows a run that goes on: a page, Prometheus, health; and tells when something is
// wrong (rt_alerts.h).
//
// It is given the records of the metrics as they are written, copies them into a bounded queue, and
// does all else in two threads of its own: what it is given never waits, and what does not fit is
// counted and left out. GET / (page), /events (server-sent), /status (JSON), /metrics, /health,
// /ready: docs/WATCHING.md.
#ifndef RT_VIEWER_H
#define RT_VIEWER_H

#include "runtime/config/rt_config.h"

typedef struct rt_viewer rt_viewer;

// config->watch and config->alerts; stays the caller's, as does directory, the run's folder (NULL:
// none). goes_on: what metrics.jsonl there holds was before. RT_OK with *viewer_p NULL: neither
// watch.listen nor alerts.command is given. RT_CONFIG, RT_IO, RT_NO_MEMORY; error names the key.
rt_status rt_viewer_open(const rt_config *config, const char *directory, bool goes_on,
                         rt_viewer **viewer_p, rt_error *error);

// For rt_metrics_tap. Any thread.
void rt_viewer_take(void *viewer, const char *line, size_t size);

// Shows what it was given to the end, and waits for a command that runs (for 2 s at most). NULL is
// fine.
void rt_viewer_close(rt_viewer *viewer);

#endif
