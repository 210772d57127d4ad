// rows_run - the rows of a run in one process: executors and shards that carry out a plan, with
// gradients that are drawn instead of trained, and a record of all that they do.
//
// A seed draws what happens next, as in a fabric, and says what a model would: there is none, and
// no dense exchange. A lie is one message of the run made wrong on its way, which ends the run.
#ifndef ROWS_RUN_H
#define ROWS_RUN_H

#include "runtime/wire/rt_bytes.h"
#include "tests/support/fabric.h"

typedef struct {
    uint64_t seed;      // of the order of events, and of gradients
    uint32_t run_ahead; // slices handed out before they are trained
    uint32_t push_credits, message_bytes;
    bool one_at_a_time;
    uint32_t full_every; // so many messages: one is refused at first; 0: none
    uint32_t skip_every; // so many iterations: one does not count; 0: none
} rows_run_schedule;

// The whole run, recorded. Returns how many messages were delivered.
uint32_t rows_run_play(const fabric_plan *plan, const rows_run_schedule *schedule,
                       rt_bytes *record);

// The run until one of its messages, which is made wrong as the seed says: a line, if it is
// refused. Else a hash of what comes of it; 0: it was refused.
uint64_t rows_run_lie(const fabric_plan *plan, const rows_run_schedule *schedule, uint32_t delivery,
                      uint64_t seed, rt_bytes *record);

#endif
