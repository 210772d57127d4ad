// dp_watch - what a run says of itself now and then, beside its iterations: who takes part and how
// it is, columns, slices, warnings; and those who are shown it (rt_viewer.h).
//
// Records of docs/METRICS.md, every few seconds. A plain value of the coordinator's thread.
#ifndef DP_WATCH_H
#define DP_WATCH_H

#include "dispatch/coordinator/dp_columns.h"
#include "dispatch/coordinator/dp_quality.h"
#include "runtime/watch/rt_viewer.h"
#include "runtime/wire/rt_control.h"
#include "runtime/live/rt_live.h"
#include "runtime/metrics/rt_metrics.h"
#include "runtime/stream/rt_stream.h"

typedef struct {
    rt_viewer *viewer; // NULL: nobody looks
    rt_schema schema;
    rt_value_names *names;                                         // of watch.column; NULL: none
    dp_slices *slices;                                             // likewise
    dp_columns columns;                                            // since the last record
    rt_wire_vitals workers[RT_WORKERS_MAX], shards[RT_SHARDS_MAX]; // by place
    uint64_t image_bytes[RT_SHARDS_MAX]; // likewise: of rows as they were at checkpoints
    uint64_t due_ns;                     // of the next records; 0: nothing was trained yet
    uint64_t samples;                    // that were trained since this start
    bool has_recorded;
    uint64_t checkpoint_ns; // when the newest one was complete, or the run began
    uint32_t checkpoint;    // iteration of it
    uint64_t warnings_seen;
} dp_watch;

// The viewer, before anything is read. As rt_viewer_open.
rt_status dp_watch_open(const rt_config *config, const char *directory, bool goes_on,
                        dp_watch *watch, rt_error *error);

// Where the parser of the stream notes the values of watch.column; before it is opened.
// RT_NO_MEMORY.
rt_status dp_watch_note(const rt_config *config, rt_value_names **names_p, dp_watch *watch,
                        rt_error *error);

// What the samples hold. RT_CONFIG: watch.column is no categorical column of them.
rt_status dp_watch_schema(const rt_config *config, const rt_schema *schema, dp_watch *watch,
                          rt_error *error);

// Of worker or shard. RT_WIRE.
rt_status dp_watch_take(dp_watch *watch, uint32_t peer, const rt_message *message, rt_error *error);

void dp_watch_close(dp_watch *watch); // also of a zeroed one

// ---- events that are sent --------------------------------------------------------------------
//
// What the metrics say of a run that is sent its events (rt_live.h).

// A record "stream", and "outcomes" where these are sent (docs/METRICS.md).
void dp_live_record(rt_live *live, const rt_stream_stats *stats, rt_metrics *metrics);

#endif
