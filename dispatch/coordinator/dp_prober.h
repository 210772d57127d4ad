// dp_prober - probes of workers' links while a run goes on.
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
#ifndef DP_PROBER_H
#define DP_PROBER_H

#include "dispatch/coordinator/dp_links.h"
#include "dispatch/coordinator/dp_overdue.h"
#include "dispatch/coordinator/dp_roster.h"

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
