// dp_control - what people ask of a run that trains: another value of a key, the end of a row.
//
// A request is the text of a CONTROL message of a visitor, a verb and its arguments, a line each:
//
//     set KEY VALUE      VALUE as after --set. A key that a run takes over while it trains; the
//                        value is checked with all others that are in force
//     forget KEY         16 hexadecimal digits: the row of a key, and all copies of it, end
//     add BOX            a box joins with the next checkpoint, or leaves (dp_move.h); answered then
//     add BOX TEXT       one that no configuration has, which is let in (dp_move.h)
//     drain BOX
//     drain BOX for good  of a box that was added: its key is taken off, too
//
// What changes plans becomes input records, so that records.jsonl and checkpoints know it; every
// request that was done is a record of the metrics. dp_iterations.c hands requests over. One
// thread.
#ifndef DP_CONTROL_H
#define DP_CONTROL_H

#include "dispatch/coordinator/dp_reload.h"

typedef struct dp_run dp_run;

#define DP_SETTABLE_MAX 16u // keys that can be set while a run trains
#define DP_FORGET_MAX 256u  // keys that wait for their end, or for a checkpoint without them

typedef struct {
    uint64_t forgotten[DP_FORGET_MAX]; // whose rows the newest checkpoints have
    uint32_t forgotten_count;
    uint32_t after;    // none of them has a row after this iteration, unless it was trained anew
    uint64_t asked_ns; // when a checkpoint without them was asked for last
    uint32_t visitor;  // whose request is at work
    char *set[DP_SETTABLE_MAX]; // "key=value" in force beside the configuration; NULL: none
} dp_control;

// Reads the keys that a run before was to forget, and that the checkpoint has which this one goes on
// from. RT_DATA: the file that names them is damaged.
rt_status dp_control_open(dp_run *run, rt_error *error);

// Their rows end again. After the feed was made.
void dp_control_resume(dp_run *run);

void dp_control_fini(dp_control *control);

// Sees to it that a checkpoint without the rows that were forgotten is made, as long as there is
// none.
void dp_control_step(dp_run *run);

// Other values of the keys that can be reloaded.
void dp_control_take_over(dp_run *run, const dp_reloaded *values);

// Does what the text of a request asks for, or says why not. answer: what was done.
rt_status dp_control_do(dp_run *run, char *request, char *answer, size_t size, rt_error *error);

#endif
