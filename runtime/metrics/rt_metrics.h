// rt_metrics - the one stream of measurements: a file of JSON lines, one record a line.
//
// Records and their fields are listed in docs/METRICS.md. Measuring never ends a run: when a record
// cannot be written, one warning says so, that record is lost as a whole, and the next one is tried
// again. One owner, no locking; nothing is allocated once the buffer holds the largest record.
//
//     rt_json *json = rt_metrics_begin(metrics, "iteration");
//     rt_json_u64(json, "iteration", t);
//     rt_metrics_end(metrics);
#ifndef RT_METRICS_H
#define RT_METRICS_H

#include "runtime/rt_json.h"
#include "runtime/metrics/rt_meter.h"

typedef struct rt_metrics rt_metrics;

// Creates or empties the file. path NULL: a writer that drops every record. RT_NO_MEMORY, RT_IO;
// error names the file.
rt_status rt_metrics_open(const char *path, rt_metrics **metrics_p, rt_error *error);

// The same, but what is there under this name stays, whole, until rt_metrics_keep: the records go
// to "path.new" so long, which goes with the writer if they are not kept.
rt_status rt_metrics_open_beside(const char *path, rt_metrics **metrics_p, rt_error *error);

// From now on the records are those of path; what was put aside there ("path.1") goes. Any thread,
// once; nothing to do for the other writers.
void rt_metrics_keep(rt_metrics *metrics);

// As open, but what the file holds stays.
rt_status rt_metrics_append(const char *path, rt_metrics **metrics_p, rt_error *error);
void rt_metrics_close(rt_metrics *metrics);

// Bounds the space on disk: a file that has reached half of bytes_max after a record becomes
// "path.1", in place of the one before, and goes on empty. 0: no bound, as at the start. Where that
// fails, a warning says so once, and the file grows.
void rt_metrics_limit(rt_metrics *metrics, uint64_t bytes_max);

// From now on every record is also given to take, in the thread that ends it: a line without its
// end, valid until take returns. It must not wait.
void rt_metrics_tap(rt_metrics *metrics, void (*take)(void *context, const char *line, size_t size),
                    void *context);

// Starts a record: {"record": name, "time_s": seconds since open, ... Members are added to the
// result, which is valid until end. Every begin is followed by one end.
rt_json *rt_metrics_begin(rt_metrics *metrics, const char *record);

// Hands the line to the operating system with one write.
void rt_metrics_end(rt_metrics *metrics);

// The object that docs/METRICS.md calls "quality", as member key of the open object.
void rt_metrics_quality(rt_json *json, const char *key, const rt_quality *quality);

#endif
