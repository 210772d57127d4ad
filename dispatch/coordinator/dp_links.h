// dp_links - the links of a run in the coordinator: what workers measured, and what it changes.
//
// Owns the table. Probes come when workers join, what their transfers say with every report. A rate
// that comes into force is told to the feed as an input record. A plain value, one thread.
#ifndef DP_LINKS_H
#define DP_LINKS_H

#include "bandwidth_probe/bw_table.h"
#include "dispatch/coordinator/dp_feed.h"
#include "runtime/metrics/rt_metrics.h"

typedef struct {
    bw_table table;
    bw_rates estimates[RT_WORKERS_MAX]; // since the last iteration was complete
    rt_wire_link probes[RT_WORKERS_MAX][RT_SHARDS_MAX];
    uint32_t probe_counts[RT_WORKERS_MAX];
    uint32_t iteration; // the last one that was complete
    bool boxes_told;    // a worker that has all shards on its own box has no link to measure
} dp_links;

void dp_links_init(const rt_config *config, dp_links *links);

// Where the shards are, in order: before the first probe is told.
void dp_links_place(dp_links *links, const char (*addresses)[RT_ADDRESS_MAX]);

// A run goes on where these values are in force. After dp_links_place.
void dp_links_resume(dp_links *links, const dp_planner *planner);

// Keeps what a LINK of a worker says. RT_WIRE: it is malformed, error names the peer.
rt_status dp_links_take(dp_links *links, uint32_t peer, const rt_message *message, rt_error *error);

// Tells what the worker's last LINK, if there was one, changes; writes a record of it.
void dp_links_tell(dp_links *links, uint32_t worker, dp_feed *feed, rt_metrics *metrics);

// A worker's report on an iteration.
void dp_links_reported(dp_links *links, uint32_t worker, const rt_wire_report *report);

// All have reported: tells what that changes; writes a record of what they said.
void dp_links_iterated(dp_links *links, uint32_t iteration, dp_feed *feed, rt_metrics *metrics);

#endif
