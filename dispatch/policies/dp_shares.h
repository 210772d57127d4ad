// dp_shares - how many samples each worker gets, so that all are done at the same time.
//
// A worker is done after fixed + per_sample x samples. The longest of these times is least where
// they are equal for all who get more than their minimum: the level (water filling). What a sample
// costs depends on the others beside it (rows are shared), so it is measured in one placement, and
// the next goes a part of the way only.
#ifndef DP_SHARES_H
#define DP_SHARES_H

#include "runtime/rt_base.h"

typedef struct {
    double fixed;      // time whatever the worker trains
    double per_sample; // > 0
    uint32_t min, max; // samples
} dp_share;

// sizes: samples of each worker, the sum of them is sample_count; between min and max of each where
// that is possible. Deterministic.
void dp_shares_level(const dp_share *shares, uint32_t worker_count, uint32_t sample_count,
                     uint32_t *sizes);

// From sizes (any sum) a part of the way (0 to 1) to the level: sizes of sample_count in all.
void dp_shares_approach(const dp_share *shares, uint32_t worker_count, uint32_t sample_count,
                        double part, uint32_t *sizes);

#endif
