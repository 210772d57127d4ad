// rt_judge - how good predictions of whole batches are, by label.
//
// A meter (rt_meter.h) for each label, of samples that have it, by weight where the stream has
// weights; of a label of several classes one. One owner, no locking.
#ifndef RT_JUDGE_H
#define RT_JUDGE_H

#include "runtime/metrics/rt_meter.h"
#include "runtime/stream/rt_stream.h"

typedef struct {
    uint32_t label_count, class_count, samples_max;
    bool is_weighted;
    rt_meter *meters[RT_LABELS_MAX]; // by label
    float *of_label[3];              // predictions, labels, weights of one
} rt_judge;

// For batches of that stream, of at most samples_max samples. RT_NO_MEMORY: rt_judge_fini all the
// same.
rt_status rt_judge_init(rt_judge *judge, const rt_schema *schema, bool is_weighted,
                        uint32_t samples_max);
void rt_judge_fini(rt_judge *judge); // also of zeroes

// predictions: as many of each sample as it has outputs.
void rt_judge_add(rt_judge *judge, const rt_batch *batch, const float *predictions);

#endif
