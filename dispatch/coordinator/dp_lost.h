// dp_lost - workers that a run can do without: which of them, and which have gone.
//
// A worker that sits out (dispatch.participants), has nothing to do in any slice that was sent to
// it, and has nothing under way to others, can go at any moment and nobody misses anything: the run
// goes on, from where it is (docs/PROTOCOL.md, "A worker that is lost"). Four things say so:
//
// - clean: by the last plan that was sent it has no row in a version that the PS lacks;
// - needed: the last slice in which it trains, or sends something to others;
// - settled: the last slice whose report said that all it had sent until then is confirmed;
// - an iteration after the last one that it trained is complete: its dense gradients have arrived,
//   and so have the dense weights, if it had trained alone.
//
// A plain value of the coordinator's thread; workers are named by their places.
#ifndef DP_LOST_H
#define DP_LOST_H

#include "runtime/rt_base.h"
#include "runtime/config/rt_config.h"

typedef struct {
    uint64_t clean; // workers
    uint64_t gone;  // workers that the run goes on without
    uint64_t needed[RT_WORKERS_MAX], settled[RT_WORKERS_MAX]; // sequence numbers of slices
    uint32_t trained[RT_WORKERS_MAX];                         // iteration; 0: none since this start
    uint32_t complete; // the last iteration that all have reported
} dp_lost;

// A slice for all goes out.
typedef struct {
    uint64_t sequence;
    uint32_t iteration;    // 0: a flush
    uint64_t participants; // of the iteration
    uint64_t needed;       // workers that have something to do in it
    uint64_t clean;        // and those that have no row then which the PS lacks
} dp_lost_slice;

// False: one that has gone is needed.
bool dp_lost_sent(dp_lost *lost, const dp_lost_slice *slice);

// A worker's report on a slice; idle: what it has sent is confirmed, all that came is carried out.
void dp_lost_reported(dp_lost *lost, uint32_t worker, uint64_t sequence, bool idle);

// All have reported an iteration.
void dp_lost_completed(dp_lost *lost, uint32_t iteration);

// Whether nobody misses the worker if it goes now.
bool dp_lost_is_spare(const dp_lost *lost, uint32_t worker);

#endif
