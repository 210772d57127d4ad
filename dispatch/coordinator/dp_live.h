// dp_live - what the metrics say of a run that is sent its events (rt_live.h).
#ifndef DP_LIVE_H
#define DP_LIVE_H

#include "runtime/live/rt_live.h"
#include "runtime/metrics/rt_metrics.h"
#include "runtime/stream/rt_stream.h"

// A record "stream", and "outcomes" where these are sent (docs/METRICS.md).
void dp_live_record(rt_live *live, const rt_stream_stats *stats, rt_metrics *metrics);

#endif
