// dp_window - batches that follow, placed roughly, so that a placement knows who trains its rows
// next.
//
// dispatch.window W: the planner sees W - 1 batches behind the one it places (dp_planner_preview).
// Each is placed once when it comes into sight, by ESD's matrix (dp_cost.h), exactly: a row of it
// is where the batch before it in the window has it trained, or else where decisions see it now. A
// decision is then told for every row which worker alone is expected to train it next
// (dp_view.next). Samples stay in their batches. What is expected is not what must be: plans are
// legal whatever comes.
//
// The placements of a window are improved with every step: once from its last batch to its first,
// each now told what the one behind it needs, and once back. That is 2 W placements by ESD's
// matrix, beside the one that counts.
//
// Memory: the batches in sight as numbers. Deterministic, reads no clock. One thread.
#ifndef DP_WINDOW_H
#define DP_WINDOW_H

#include "dispatch/planner/dp_planner.h"

typedef struct dp_window dp_window;

// size: W, at least 2; kept: batches that are in sight at once, at least W. sample_count_max and
// lookups: of a batch. RT_NO_MEMORY.
rt_status dp_window_create(uint32_t size, uint32_t kept, uint32_t worker_count,
                           uint32_t sample_count_max, uint64_t lookups, dp_window **window_p);
void dp_window_destroy(dp_window *window); // NULL is allowed

// A batch comes into sight, as number iteration.
void dp_window_add(dp_window *window, const dp_planner *planner, const rt_batch *batch,
                   uint32_t iteration);

// Before the batch of the planner's view is placed: who trains its rows next, by distinct key
// (dp_view.next). It stays the window's.
const uint8_t *dp_window_next(dp_window *window, const dp_planner *planner);

// After that: the placement of the planner, in ranks.
void dp_window_placed(dp_window *window, const dp_planner *planner);

// Between two batches: where the samples of those behind are expected.
void dp_window_save(const dp_window *window, uint32_t iteration, rt_bytes *bytes);

// Into one just created, what save wrote with the same configuration; the batches are shown again.
// false: it cannot be that.
bool dp_window_load(dp_window *window, rt_reader *reader);

#endif
