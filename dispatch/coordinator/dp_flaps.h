// dp_flaps - workers that are lost again and again are put aside.
//
// Every loss ends the run and costs what was trained since the checkpoint; who was lost
// DP_FLAPS_MAX times within DP_FLAPS_S is done without (on_worker_loss "shrink") until the first of
// those is so long ago. Kept in a file beside the checkpoints too, since a coordinator on a box of
// its own ends with every loss. A plain value, by the seconds of the clock; one thread.
#ifndef DP_FLAPS_H
#define DP_FLAPS_H

#include "runtime/rt_base.h"

#define DP_FLAPS_MAX 5u
#define DP_FLAPS_S 600

typedef struct {
    int64_t lost_s[RT_WORKERS_MAX][DP_FLAPS_MAX]; // the last losses, the oldest first; 0: none
} dp_flaps;

void dp_flaps_note(dp_flaps *flaps, uint32_t worker, int64_t now_s);

// Mask of those to be done without. Losses that the clock says are still to come do not count.
uint64_t dp_flaps_aside(const dp_flaps *flaps, int64_t now_s);

// The same where a run begins, which the log says; not all of its workers, for it needs some.
uint64_t dp_flaps_put_aside(const dp_flaps *flaps, uint32_t worker_count, int64_t now_s);

// In a folder. Without such a file, or with one that cannot be read, nobody was lost.
void dp_flaps_read(dp_flaps *flaps, const char *folder);
void dp_flaps_write(const dp_flaps *flaps, const char *folder);

#endif
