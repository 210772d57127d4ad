// dp_cut - a moment between two iterations at which all is carried out: for a checkpoint, until
// every row of it is captured, or for a sweep (dp_sweep.h), until rows have ended.
//
// The plan of a checkpoint's cut flushes every dirty row. Nothing that was planned after it goes
// out while dp_cut.planned is set, so that no update of a later iteration exists while the cut is
// open:
//   MARK   to every worker; each answers once all so far is carried out and the shards have
//          processed every push of it; one of them, the lead, sends the dense part before (PART)
//   CUT    to every shard, when all have answered and the last iteration is reported; each
//          captures its rows (a forked copy writes them) and answers at once
//   EXPIRE instead of PART and CUT for a sweep; each shard answers when its rows have ended
// A plain value of the coordinator's thread.
#ifndef DP_CUT_H
#define DP_CUT_H

#include "dispatch/coordinator/dp_checkpoint.h"
#include "dispatch/coordinator/dp_feed.h"
#include "dispatch/coordinator/dp_membership.h"
#include "dispatch/coordinator/dp_roster.h"
#include "dispatch/coordinator/dp_stats.h"

typedef struct {
    dp_roster *roster;
    dp_feed *feed;
    dp_stats *stats;
    dp_checkpoint *checkpoint;
    const dp_ages *ages; // NULL: there are none
    uint32_t sender, shard_count;
    double every_s; // from the end of a cut until the next is due; 0: never
    bool is_wanted; // one was asked for

    bool is_requested;   // the planner was told
    dp_planned *planned; // NULL: no cut is open
    uint64_t marks;      // workers that have answered
    uint64_t captured;   // shards
    uint64_t ended_rows; // of the sweep that is open
    bool asked;          // shards were told
    bool asks_anew;      // the lead is another one, and does not know it
    uint32_t lead;       // the worker that is asked for the dense weights
    rt_bytes dense;      // of it, dense_bytes once they are complete
    uint64_t dense_bytes;
    double drained_s; // the time of drained_ns, in seconds since 1970
    uint64_t begin_ns, drained_ns, asked_ns;
    uint64_t end_ns; // of the last one
} dp_cut;

void dp_cut_fini(dp_cut *cut); // planned goes back to the feed

// Has the planner plan a cut when one is due or wanted: once the checkpoint before is written,
// since a cut waits for that, and training with it.
void dp_cut_request(dp_cut *cut);

// The slices of the cut are out. planned is the cut's from now on.
rt_status dp_cut_begin(dp_cut *cut, dp_planned *planned, rt_error *error);

// A worker is lost (dp_membership_lose), and the run goes on. If it was to give the dense part, another one is asked.
void dp_cut_lose(dp_cut *cut, uint32_t worker);

// Answers of workers. RT_WIRE: nobody waits for that.
rt_status dp_cut_mark(dp_cut *cut, uint32_t peer, const rt_message *message, rt_error *error);
rt_status dp_cut_part(dp_cut *cut, uint32_t peer, const rt_message *message, rt_error *error);

// No iteration is under way: tells the shards, as soon as the workers have answered and the
// checkpoint before is written.
rt_status dp_cut_step(dp_cut *cut, rt_error *error);

// Who has not answered, if a cut is open and no iteration is under way.
dp_awaited dp_cut_awaited(const dp_cut *cut);

// A shard's answer to EXPIRE; when all have, as below, and *swept_p says so. RT_WIRE.
rt_status dp_cut_expired(dp_cut *cut, uint32_t peer, const rt_message *message, bool *swept_p,
                         rt_error *error);

// A shard has captured its rows; when all have, planned goes back to the feed and iterations may go
// out again.
rt_status dp_cut_captured(dp_cut *cut, uint32_t peer, rt_error *error);

#endif
