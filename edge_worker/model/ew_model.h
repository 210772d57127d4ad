// ew_model - a click-through model on a device: one step on a micro-batch, its dense parameters.
//
// Rows belong to the executor (slab, slots); the model reads them and returns a gradient per row.
// The dense parameters are one block of floats in the order of ew_model_tensor, so that they can
// be exchanged as one buffer or in pieces. Everything is allocated by create. One thread uses a
// model, and it is the one that uses the device.
#ifndef EW_MODEL_H
#define EW_MODEL_H

#include "edge_worker/device/ew_device.h"
#include "runtime/files/rt_tensors.h"
#include "runtime/stream/rt_stream.h"

typedef struct ew_model ew_model;

typedef struct {
    rt_model_config model;
    rt_optimizer_config optimizer; // of the dense parameters
    uint64_t seed;                 // of their initial values
    uint32_t dense_count;          // dense features per sample
    uint32_t field_count;
    rt_tables tables;                      // that fields share
    uint32_t sequence_field, target_field; // din; of no field: field_count or more
    uint32_t more_labels;                  // of a sample, after the first
    float label_weights[RT_LABELS_MAX];    // of the loss of each label; 0: 1
    uint32_t class_count;                  // of the one label; 0: it is 0 or 1
    uint32_t sample_count_max;             // per step; likewise below
    uint32_t lookup_count_max;
    uint32_t row_count_max;
} ew_model_config;

// What a worker trains in one iteration. Host memory, except the slab.
typedef struct {
    uint32_t sample_count; // 0: the worker sits out, its gradients are zero
    uint32_t lookup_count;
    uint32_t row_count;
    const float *labels;  // sample_count x labels of a sample; NULL for prediction; of classes the
                          // sample's class
    const float *weights; // likewise; NULL (not of several labels, always of classes): all are 1
    const float *dense;   // sample_count x dense_count
    const uint32_t *lookup_rows;
    const uint32_t *bag_offsets; // NULL: one look-up per sample and field (see ew_lookups)
    const uint32_t *row_slots;   // row_count
    const float *slab;           // device
    uint32_t row_stride;
    float scale; // 1 / samples of the whole batch, over all workers
    // With model.base_rate "auto" a step adds it to the output's bias once the samples are
    // predicted, and before the training (rt_base_rate.h).
    float log_odds;
    const float *more_odds; // the same of the labels after the first; NULL: 0
} ew_micro_batch;

// Valid until the next step or prediction.
typedef struct {
    const float *predictions; // host, per sample and label or class, as before this step
    double loss_sum;          // log loss summed over the micro-batch and its labels; NaN shows here
    const float *row_gradients; // device, row_count x embedding_dim
} ew_step_result;

// The dense gradients [offset, offset + count) are final (on a device with a queue: once what is
// queued so far has run). Pieces come from the end of the block to its beginning, without gaps.
typedef void (*ew_layer_done)(void *context, uint32_t offset, uint32_t count);

typedef enum { EW_VALUES, EW_GRADIENTS, EW_OPTIMIZER_STATE } ew_model_block;

// The fields of a stream, by model.sequence and model.target too.
void ew_model_fields(ew_model_config *config, const rt_schema *schema);
// The labels or classes of a stream.
void ew_model_labels(ew_model_config *config, const rt_stream_config *stream);

// RT_CONFIG (sizes that this model cannot have), RT_UNSUPPORTED, RT_NO_MEMORY. device outlives the
// model.
rt_status ew_model_create(const ew_model_config *config, const ew_device *device,
                          ew_model **model_p, rt_error *error);
void ew_model_destroy(ew_model *model);

// Predictions of a sample: of its labels, or of the classes of its one label.
uint32_t ew_model_output_count(const ew_model *model);

// Whether a micro-batch from a peer is within the model's limits and every index in it is within
// its array (slots below slot_count, bags in order, rows in fields of one table each, classes
// below their number). RT_WIRE; error says what is not.
rt_status ew_model_check(ew_model *model, const ew_micro_batch *batch, uint32_t slot_count,
                         rt_error *error);

// The summed loss of the step in progress, for layer_done on a unified device.
double ew_model_loss(const ew_model *model);

// Forward and backward pass; the batch has passed ew_model_check. layer_done may be NULL. Changes
// no parameter. Fails only as the device does (finish).
rt_status ew_model_step(ew_model *model, const ew_micro_batch *batch, ew_layer_done layer_done,
                        void *context, ew_step_result *result, rt_error *error);

// What a step with these log odds adds to the biases of the labels, which stand side by side in the
// block EW_VALUES. Returns the place of the first.
uint32_t ew_model_shifts(const ew_model *model, float log_odds, const float *more_odds,
                         float by[RT_LABELS_MAX]);

// The forward pass alone. loss_sum is 0 without labels; row_gradients is NULL.
rt_status ew_model_predict(ew_model *model, const ew_micro_batch *batch, ew_step_result *result,
                           rt_error *error);

// One optimizer step with what the block EW_GRADIENTS holds: after a step, and after the exchange
// with other workers wrote the sum there. step: rt_optimizer_place.
void ew_model_dense_step(ew_model *model, uint64_t step);

// A block of the dense parameters in device memory, *count_p floats. The state is what
// rt_optimizer_state_floats says for one block of all parameters. Behind the gradients there is
// room for one float more, for whoever exchanges them.
float *ew_model_dense(ew_model *model, ew_model_block block, uint32_t *count_p);

// The same through host memory; queued transfers have finished on return.
rt_status ew_model_dense_read(ew_model *model, ew_model_block block, float *host, rt_error *error);
rt_status ew_model_dense_write(ew_model *model, ew_model_block block, const float *host,
                               rt_error *error);

// Dense parameters by name, in the order of the block: "mlp.0.weight" (outputs x inputs) ...
// tensor->values points into values (host, a copy of the block EW_VALUES; may be NULL). False past
// the last.
bool ew_model_tensor(const ew_model *model, uint32_t index, const float *values, rt_tensor *tensor);

// Initial values from a file instead of the seed. RT_DATA: a tensor is missing or has another
// shape; error names it.
rt_status ew_model_load(ew_model *model, const rt_tensors *file, rt_error *error);

// The same of a model that may have fewer fields and labels, the first of this one's: weights that
// only see or make the others are 0. So it predicts what the model in the file does; of dfm but for
// the pairs that the other fields' initial rows are in. Errors as above.
rt_status ew_model_begin_with(ew_model *model, const rt_tensors *file, rt_error *error);

#endif
