// ew_shape - micro-batches of about one size get one shape, for devices that repeat the steps of a
// shape (ew_device_ops.repeat).
//
// No two micro-batches have as many rows; where shares are free (dispatch.policy "makespan") they
// differ in samples, where fields have several values in look-ups. So all three are rounded up,
// rows and samples to one of 32 numbers. What is behind the last one changes no number that is
// read:
// - A row that is none lies in the slot of the first, and no sample of the batch looks it up.
// - A sample that is none has no weight, so that its logit gradient is 0, and adds zeros at the end
//   of sums. Its bags are empty; where every bag has one look-up, they are of rows that are none,
//   each of one field, at most 32 a row, so that none of them gets popular.
// - Look-ups are only counted, to a power of two: bags say where they end.
// Only steps have samples that are none, and not those of classes, whose loss has no weights.
// Where fields share tables (ew_split) nothing is rounded.
#ifndef EW_SHAPE_H
#define EW_SHAPE_H

#include "edge_worker/model/ew_model.h"

typedef struct {
    bool is_used;        // the device repeats steps, and fields share no tables
    uint32_t spare_rows; // behind row_count_max, at most
    uint32_t sample_step, row_step;

    uint32_t sample_count, lookup_count, row_count; // of the batch at hand, rounded
    uint32_t looked_up;                             // of the rows that are none, the last so many

    uint32_t *words; // host: what stands behind the slots, look-ups and ends of bags
    float *zeros;    // host: and behind the dense features
} ew_shape;

// After ew_split_create. RT_NO_MEMORY.
rt_status ew_shape_create(ew_model *model, rt_error *error);
void ew_shape_destroy(ew_model *model);

// The counts of a batch, as ew_split_batch leaves it.
void ew_shape_round(ew_model *model, const ew_micro_batch *batch);

// Queues what stands behind the batch, which is staged, but for its labels and weights.
void ew_shape_fill(ew_model *model, const ew_micro_batch *batch);

#endif
