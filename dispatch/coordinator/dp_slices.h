// dp_slices - quality by the values of one column (watch.column): a shop, a country, a kind of till.
//
// Sums that fade by a factor of e over watch.window_samples samples, for those values that come
// most; others share what is left of DP_SLICES_MAX places, the rarest going first. One thread.
#ifndef DP_SLICES_H
#define DP_SLICES_H

#include "runtime/metrics/rt_metrics.h"
#include "runtime/stream/rt_value_names.h"

#define DP_SLICES_MAX 128u  // values that are followed
#define DP_SLICES_TOLD 16u  // of them, that are told

typedef struct {
    uint64_t key;
    double samples, positives, loss, predicted; // by weight
} dp_slice_sums;

typedef struct {
    const char *column; // stays the caller's
    uint32_t field;
    double window_samples;
    rt_value_names *names; // or NULL
    uint32_t count;
    dp_slice_sums sums[DP_SLICES_MAX];
} dp_slices;

// Predictions, what of their weight has label 1, weights, and the key of the column, in this order.
void dp_slices_add(dp_slices *slices, const float *predictions, const float *labels,
                   const float *weights, const uint64_t *keys, uint32_t count);

// A record "slices" (docs/METRICS.md); none where there is no sample yet.
void dp_slices_record(const dp_slices *slices, uint32_t iteration, rt_metrics *metrics);

#endif
