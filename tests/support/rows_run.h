// rows_run - the rows of a run in one process: executors and shards that carry out a plan, with
// gradients that are drawn instead of trained.
//
// A seed draws what happens next, as in a fabric, and says what a model would: there is none, and
// no dense exchange. A lie is one message of the run made wrong on its way, which ends the run.
#ifndef ROWS_RUN_H
#define ROWS_RUN_H

#include "tests/support/fabric.h"

typedef struct {
    uint64_t seed;      // of the order of events, and of gradients
    uint32_t run_ahead; // slices handed out before they are trained
    uint32_t push_credits, message_bytes;
    uint32_t full_every; // so many messages: one is refused at first; 0: none
    uint32_t skip_every; // so many iterations: one does not count; 0: none
} rows_run_schedule;

// The whole run. In the end every row is at one shard, in the version that was planned; it has the
// bits that one loop over all gradients makes of it, where rows do not travel rounded and are not
// stale. Workers did what was planned, nothing waits any more. Returns how many messages were
// delivered.
uint32_t rows_run_play(const fabric_plan *plan, const rows_run_schedule *schedule);

// The run until one of its messages, which is made wrong as the seed says, or comes twice. Whoever
// refuses it says why, and sends nothing; by a wrong header nothing changes. Whether it was taken.
bool rows_run_lie(const fabric_plan *plan, const rows_run_schedule *schedule, uint32_t delivery,
                  uint64_t seed);

#endif
