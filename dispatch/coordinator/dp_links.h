// dp_links - the links of a run in the coordinator: what workers measured, and what it changes.
//
// Owns the table. Probes come when workers join, what their transfers say with every report. A rate
// that comes into force is told to the feed as an input record. A plain value, one thread.
#ifndef DP_LINKS_H
#define DP_LINKS_H

#include "bandwidth_probe/bw_table.h"
#include "dispatch/coordinator/dp_feed.h"
#include "runtime/metrics/rt_metrics.h"
#include "dispatch/coordinator/dp_membership.h"
#include "dispatch/coordinator/dp_roster.h"

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

// ---- probes while a run goes on --------------------------------------------------------------
//
// Probes of workers' links while a run goes on.
//
// Transfers tell of a link only while they fill it, and roughly. So a link that nothing told of for
// links.probe_s is probed again, and one whose rate in force is what transfers said after a tenth
// of that; each time that a probe contradicts what they said the wait for the next such probe
// doubles. For a probe training pauses: nothing is handed out while dp_prober.open is set.
//   MARK   to every worker, once all iterations are reported; each answers when the shards have
//          processed every push of it: now nothing moves
//   LINK   to one worker after the other; each answers with a LINK when it has measured
// A pause measures for about DP_PROBER_PAUSE_S; over time all pauses together are
// at most DP_PROBER_SHARE of the run. A plain value of the coordinator's thread.

#define DP_PROBER_SHARE 0.01
#define DP_PROBER_SAVED_S 4.0  // of pauses that a run may have at once
#define DP_PROBER_PAUSE_S 2.0  // after which no other worker begins in the same pause
#define DP_PROBER_SOON 0.1     // of every_s: a rate that transfers changed
#define DP_PROBER_BACK_OFF 64u // times that, at most

typedef struct {
    uint64_t told_ns[BW_WAYS]; // when something last told of the link
    uint64_t probed_ns;
    uint32_t back_off; // 1, 2, 4...
} dp_prober_worker;

typedef struct {
    dp_roster *roster;
    dp_links *links;
    dp_feed *feed; // NULL: the run is not that far yet
    rt_metrics *metrics;
    uint32_t sender, worker_count;
    double every_s; // 0: never

    bool open;
    bool drains;     // the MARKs are out
    uint64_t number; // of the pause, in its MARKs
    uint64_t marks;  // workers that have answered
    uint64_t wanted; // still to be measured
    uint64_t asked;  // of them, the one that measures
    uint64_t joined; // workers that have told what they measured when they joined
    uint64_t begin_ns;
    uint64_t counted_ns; // up to then the allowance is counted
    double allowance_s;
    dp_prober_worker workers[RT_WORKERS_MAX];
} dp_prober;

void dp_prober_init(dp_prober *prober, uint64_t now_ns);

// A worker's report: what its transfers say counts as news of its link.
void dp_prober_reported(dp_prober *prober, uint32_t worker, const rt_wire_report *report,
                        uint64_t now_ns);

// Begins a pause if one is due and may_begin; carries an open one on, quiet: no iteration is under
// way. Call now and then.
rt_status dp_prober_step(dp_prober *prober, bool may_begin, bool quiet, uint64_t now_ns,
                         rt_error *error);

// A worker's answer to the MARK. RT_WIRE: nobody waits for that.
rt_status dp_prober_mark(dp_prober *prober, uint32_t peer, const rt_message *message,
                         rt_error *error);

// A LINK: a worker has measured, unasked when it joined. Its rates come into force; before there is
// a feed, dp_prober.links keeps them. RT_WIRE: it is malformed, or nobody waits for it.
rt_status dp_prober_take(dp_prober *prober, uint32_t peer, const rt_message *message,
                         uint64_t now_ns, rt_error *error);

// Who has not answered, if a pause is open.
dp_awaited dp_prober_awaited(const dp_prober *prober);

// The run ends: no other worker is asked.
void dp_prober_stop(dp_prober *prober);

#endif
