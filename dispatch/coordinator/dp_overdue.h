// dp_overdue - members that are alive and do not answer.
//
// Heartbeats come from a member's communication; its training, its device or its disk can hang all
// the same. Who has not answered what it was asked for timeouts.answer_s, while nobody else answers
// either, counts as lost. A plain value of the coordinator's thread.
#ifndef DP_OVERDUE_H
#define DP_OVERDUE_H

#include "runtime/rt_base.h"

typedef struct {
    uint64_t workers, shards; // masks: whose answer is awaited
    const char *what;         // "has not reported an iteration", a literal
    uint64_t number;          // tells one such wait from the next
} dp_awaited;

typedef struct {
    double limit_s;
    dp_awaited awaited; // when it was looked at last
    uint64_t since_ns;  // when that began
} dp_overdue;

// RT_TIMEOUT: the same is awaited for longer than the limit; error names the members.
rt_status dp_overdue_check(dp_overdue *overdue, const dp_awaited *awaited, uint64_t now_ns,
                           rt_error *error);

#endif
