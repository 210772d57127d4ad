// dp_asked - what people have asked of a run, until it is done: rows that are to end, and what
// comes with the next checkpoint. Plain values of the coordinator's thread; dp_control.h and
// dp_move.h act by them.
#ifndef DP_ASKED_H
#define DP_ASKED_H

#include "dispatch/coordinator/dp_members.h"
#include "runtime/rt_base.h"

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

typedef struct {
    bool is_asked;
    dp_members next;            // from the next start on
    uint64_t leaves;            // the box that leaves, as a mask; 0: none does
    bool is_for_good;           // and its key is taken off
    uint32_t visitor;           // who asked; 0: nobody
    char what[2 * RT_NAME_MAX]; // "till-2 leaves"
} dp_move;

#endif
