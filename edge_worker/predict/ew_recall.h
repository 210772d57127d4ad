// ew_recall - what a model on disk says of samples at hand, with few of its rows in memory.
//
// For a run that holds its newest model against the version in force (dispatch/coordinator/
// dp_evidence.h, dp_recall): the files of rows are read once, from front to back, and what the
// samples look up is kept.
#ifndef EW_RECALL_H
#define EW_RECALL_H

#include "runtime/stream/rt_batch.h"

// Of the samples from `first` on, as they were read: output_count predictions of each. RT_CONFIG: a
// model of another number of outputs; RT_DATA, RT_IO, RT_NOT_FOUND, RT_NO_MEMORY.
rt_status ew_recall(const char *folder, const rt_batch *batch, uint32_t first,
                    uint32_t output_count, float *predictions, rt_error *error);

#endif
