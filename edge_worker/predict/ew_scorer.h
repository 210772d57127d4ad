// ew_scorer - probabilities of samples by a finished model: the one implementation of
// docs/MODEL_FORMAT.md, "A prediction", for eval, predict, serve and liblanyard.
//
// One thread uses a scorer; many scorers may share one ew_finished. Everything is allocated by
// create. A key that the model has no row for has the value that training would start from, and is
// counted.
#ifndef EW_SCORER_H
#define EW_SCORER_H

#include "edge_worker/model/ew_model.h"
#include "edge_worker/predict/ew_finished.h"

typedef struct ew_scorer ew_scorer;

// Over all runs.
typedef struct {
    uint64_t samples, lookups;
    uint64_t unknown;       // look-ups of keys without a row
    uint64_t dense_clipped; // values beyond RT_SCALE_LIMIT deviations
} ew_scorer_counts;

// The device that scorers run on: a sample's probabilities have the same bits whatever others it is
// asked with, and by whom. Errors as ew_device_open_as.
rt_status ew_scorer_open_device(uint32_t threads, ew_device *device, rt_error *error);

// For weights of this config and schema and batches of up to sample_count_max samples. device is
// the CPU's, which keeps no state of its own: scorers of many threads may share it. It outlives
// them. RT_CONFIG, RT_UNSUPPORTED, RT_NO_MEMORY.
rt_status ew_scorer_create(const ew_finished *weights, const ew_device *device,
                           uint32_t sample_count_max, ew_scorer **scorer_p, rt_error *error);
void ew_scorer_destroy(ew_scorer *scorer); // also NULL

// Dense features are as they were read; they are scaled in place. *probabilities_p holds
// batch->sample_count values, of each of the schema's labels, until the next run. RT_DATA: the
// dense part is of another model.
rt_status ew_scorer_run(ew_scorer *scorer, const ew_finished *weights, rt_batch *batch,
                        const float **probabilities_p, rt_error *error);

ew_scorer_counts ew_scorer_counted(const ew_scorer *scorer);

#endif
