// dp_quality - quality of parts of the predictions: by the values of one column (watch.column: a
// shop, a country, a kind of till), and label by label.
//
// Sums that fade by a factor of e over watch.window_samples samples, for those values that come
// most; others share what is left of DP_SLICES_MAX places, the rarest going first. One thread.
#ifndef DP_QUALITY_H
#define DP_QUALITY_H

#include "dispatch/coordinator/dp_feed.h"
#include "runtime/metrics/rt_metrics.h"
#include "runtime/stream/rt_value_names.h"

#define DP_SLICES_MAX 128u // values that are followed
#define DP_SLICES_TOLD 16u // of them, that are told

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

// ---- label by label --------------------------------------------------------------------------
//
// How good the predictions of a run are, label by label, where samples have several.
//
// The first label's meter is the run's own (dp_stats); those of the others are here. One thread.

typedef struct dp_labels dp_labels;

// *labels_p is NULL where there is one label. RT_NO_MEMORY.
rt_status dp_labels_create(const rt_config *config, dp_labels **labels_p);
void dp_labels_destroy(dp_labels *labels); // NULL is fine

uint32_t dp_labels_count(const dp_labels *labels);
rt_meter *dp_labels_meter(const dp_labels *labels, uint32_t label); // NULL: the run's own

// All predictions of an iteration, in the order of planned's labels. A label that a sample lacks is
// not judged. first: the run's own meter, its window open; slices: of the first label; NULL: none.
void dp_labels_add(dp_labels *labels, rt_meter *first, dp_slices *slices, const dp_planned *planned,
                   const float *predictions);

// Sums over the run, without the first label's. RT_DATA: no such state.
void dp_labels_save(const dp_labels *labels, rt_bytes *bytes);
rt_status dp_labels_load(dp_labels *labels, rt_reader *reader);

// Member "labels" of an iteration: of every label what "quality" is.
void dp_labels_write(const dp_labels *labels, rt_json *json);

// A line for every label. first: of the first one.
void dp_labels_print(const dp_labels *labels, const rt_quality *first);

#endif
