// dp_hook - checkpoint.after: a command of the user for each checkpoint that is complete.
//
// One at a time, beside training, whatever it does: while one runs the newest checkpoint that is
// completed waits for its turn, those between are passed over. What fails goes to the log and the
// metrics. At the end of a run one that runs goes on. A plain value; one thread.
#ifndef DP_HOOK_H
#define DP_HOOK_H

#include "runtime/metrics/rt_metrics.h"
#include "runtime/config/rt_config.h"
#include "runtime/rt_base.h"

typedef struct {
    const char *command; // "": none
    rt_metrics *metrics;
    int child; // its process; 0: none runs
    uint64_t begin_ns;
    uint32_t iteration, waiting; // of the checkpoint that it is run for, and of the next; 0: none
    char folder[RT_PATH_MAX + 64], next[RT_PATH_MAX + 64];
    uint64_t failures, passed_over;
} dp_hook;

// A checkpoint is complete in a folder.
void dp_hook_put(dp_hook *hook, uint32_t iteration, const char *folder);

// Looks whether the command has ended, and runs the one that waits.
void dp_hook_step(dp_hook *hook);

// The run ends: the one that waits is run now, beside the one that runs; both go on by themselves.
void dp_hook_end(dp_hook *hook);

#endif
