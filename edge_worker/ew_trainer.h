// ew_trainer - the training thread: takes jobs, runs the model, steps owned rows and dense weights.
//
// Tasks are carried out in the order they are given: TRAIN t (forward, backward), ROWS t (rows of
// mode OWN), DENSE t (one step with the summed gradient). The last two once it is known whether the
// iteration counts: if not, they change nothing. Results come back through a queue with a wake
// descriptor. One owner (the communication thread) calls; the device and the model belong to the
// training thread between create and destroy.
#ifndef EW_TRAINER_H
#define EW_TRAINER_H

#include "edge_worker/ew_weights.h"
#include "edge_worker/executor/ew_executor.h"
#include "edge_worker/model/ew_model.h"
#include "runtime/wire/rt_bytes.h"

typedef struct ew_trainer ew_trainer;

typedef struct {
    ew_device *device;
    ew_model *model;
    rt_optimizer_config row_optimizer;
    float *slab; // device
    uint32_t slot_count, row_stride, dim;
    uint32_t row_count_max;
    int wake_fd; // written when a result is ready
} ew_trainer_config;

// Of a TRAIN task, and again of the ROWS task that follows; valid until the next TRAIN is given.
typedef struct {
    rt_status status;
    rt_error error;
    const float *predictions;   // per sample and label
    const float *row_gradients; // row_count x dim, host; of OWN rows undefined
    double loss_sum;
    uint64_t compute_ns; // of both tasks
} ew_trained;

// What a model makes of a slice whose rows lie in this slab (slots x row_stride floats). Arrays
// stay the slice's.
ew_micro_batch ew_trainer_batch(const dp_slice_view *slice, float *slab, uint32_t row_stride);

rt_status ew_trainer_create(const ew_trainer_config *config, ew_trainer **trainer_p,
                            rt_error *error);

// Waits for the task that runs; none may be given any more. Then nothing tells the exchange, which
// goes next: until it has gone its thread uses the gradients, which stay until destroy.
void ew_trainer_stop(ew_trainer *trainer);
void ew_trainer_destroy(ew_trainer *trainer); // NULL is fine; after a stop, if one was attached

// The slice must stay until the result of its ROWS task is taken.
void ew_trainer_train(ew_trainer *trainer, const dp_slice_view *slice);

// Follows the training of slice. apply: its iteration counts.
void ew_trainer_rows(ew_trainer *trainer, const dp_slice_view *slice, bool apply);

// The result of the TRAIN or ROWS task given last. RT_AGAIN: not yet.
rt_status ew_trainer_result(ew_trainer *trainer, const ew_trained **trained_p);

// The dense gradients of the micro-batch that was trained last, and one float more, its verdict: 0,
// or 1 where the loss is not finite. The dense exchange takes them from here and leaves the sums
// here, before ew_trainer_dense; the iteration counts if the verdicts' sum is 0.
float *ew_trainer_dense_gradients(ew_trainer *trainer, uint32_t *count_p);

// Before the first task: the exchange is told as gradients become final, until ew_trainer_stop.
void ew_trainer_attach(ew_trainer *trainer, ew_exchange *exchange);

// The sum is in place: a step follows before the next training, if apply. place:
// rt_optimizer_place.
void ew_trainer_dense(ew_trainer *trainer, uint64_t place, bool apply);

// Waits until all tasks are done, and all else that the device was asked for. Fails as the device
// has: where no training follows nothing else would tell of what befell rows.
rt_status ew_trainer_settle(ew_trainer *trainer, rt_error *error);

// The trainer's model, for ew_weights (context: the trainer). Waits until all tasks are done.
extern const ew_weights_ops ew_trainer_weights;

// Waits until all tasks are done; appends the dense parameters (rt_tensors).
rt_status ew_trainer_get_model(ew_trainer *trainer, rt_bytes *bytes, rt_error *error);

// Waits until all tasks are done; appends dense parameters and optimizer state (rt_tensors), or
// takes them from such bytes. begins: those of the model that a run begins with, which may have
// fewer fields and lack the state. RT_DATA: not those of this model; error names the tensor.
rt_status ew_trainer_get_state(ew_trainer *trainer, rt_bytes *bytes, rt_error *error);
rt_status ew_trainer_set_state(ew_trainer *trainer, const rt_bytes *bytes, bool begins,
                               rt_error *error);

#endif
