// dp_losses - which workers were lost and when; those that are lost too often take part later.
//
// Every loss ends the run and costs what was trained since the checkpoint; who was lost
// DP_LOSSES_MAX times within DP_LOSSES_S is done without (on_worker_loss "shrink") until the first of
// those is so long ago. Kept in a file beside the checkpoints too, since a coordinator on a box of
// its own ends with every loss. A plain value, by the seconds of the clock; one thread.
#ifndef DP_FLAPS_H
#define DP_FLAPS_H

#include "runtime/rt_base.h"

#define DP_LOSSES_MAX 5u
#define DP_LOSSES_S 600

typedef struct {
    int64_t lost_s[RT_WORKERS_MAX][DP_LOSSES_MAX]; // the last losses, the oldest first; 0: none
} dp_losses;

void dp_losses_note(dp_losses *losses, uint32_t worker, int64_t now_s);

// Mask of those to be done without. Losses that the clock says are still to come do not count.
uint64_t dp_losses_too_often(const dp_losses *losses, int64_t now_s);

// The same where a run of these workers begins, which the log says; not all of them, for it needs
// some.
uint64_t dp_losses_uninvite(const dp_losses *losses, uint64_t workers, int64_t now_s);

// In a folder. Without such a file, or with one that cannot be read, nobody was lost.
void dp_losses_read(dp_losses *losses, const char *folder);
void dp_losses_write(const dp_losses *losses, const char *folder);

#endif
