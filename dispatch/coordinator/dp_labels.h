// dp_labels - how good the predictions of a run are, label by label, where samples have several.
//
// The first label's meter is the run's own (dp_stats); those of the others are here. One thread.
#ifndef DP_LABELS_H
#define DP_LABELS_H

#include "dispatch/coordinator/dp_feed.h"
#include "dispatch/coordinator/dp_slices.h"
#include "runtime/metrics/rt_metrics.h"

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
