// ew_model_parts - what the file of one model needs: parameters, buffers, the current batch, MLPs.
//
// A model is an ew_model_kind: create declares parameters and buffers, forward turns the batch
// into logits, backward turns logit gradients into dense and row gradients. Parameters are
// declared in forward order; backward reports them from the last to the first.
#ifndef EW_MODEL_PARTS_H
#define EW_MODEL_PARTS_H

#include "edge_worker/model/ew_model.h"

#define EW_TENSORS_MAX 64u
#define EW_BUFFERS_MAX 64u

typedef struct {
    const char *name;
    size_t part_size; // of the struct that create fills, zeroed before
    rt_status (*create)(ew_model *model, void *part, rt_error *error);
    void (*forward)(ew_model *model, void *part);  // batch -> model->logits
    void (*backward)(ew_model *model, void *part); // model->logit_gradients -> all gradients
} ew_model_kind;

extern const ew_model_kind ew_wdl;

typedef struct {
    char name[RT_TENSOR_NAME_MAX];
    uint32_t row_count, column_count; // a vector has one row
    bool is_vector;
    uint32_t offset; // in the block
    float bound;     // initial values are uniform in [-bound, bound)
} ew_parameter;

struct ew_model {
    ew_model_config config;
    const ew_device *device;
    const ew_model_kind *kind;
    void *part;

    ew_parameter parameters[EW_TENSORS_MAX];
    uint32_t parameter_count;
    uint32_t float_count; // of all parameters
    float *values, *gradients, *state;

    void *buffers[EW_BUFFERS_MAX]; // device, freed by destroy
    uint32_t buffer_count;

    // The current batch, in device memory.
    ew_lookups lookups;
    const float *labels, *dense;
    float *logits, *logit_gradients; // sample_count
    float *row_gradients;            // row_count x dim

    ew_layer_done layer_done; // may be NULL
    void *layer_context;
    uint32_t done_from; // offset of the last piece reported

    // Device buffers behind the batch, and results on their way to the host.
    float *labels_buffer, *dense_buffer, *predictions_buffer, *predictions;
    uint32_t *rows_buffer, *bags_buffer, *slots_buffer;
    double *loss_buffer;

    uint32_t *check_fields; // ew_model_check: the field of each row (host)
};

// Floats per row of a matrix: a multiple of a cache line.
static inline uint32_t ew_stride(uint32_t column_count)
{
    return (column_count + 15) / 16 * 16;
}

// Declares a matrix (row_count x column_count) or, with row_count 0, a vector of column_count.
// Initial values are uniform within 1 / sqrt(fan_in), as PyTorch's Linear has them. Returns its
// offset in the block. Running out of EW_TENSORS_MAX is our own bug.
uint32_t ew_model_parameter(ew_model *model, const char *name, uint32_t row_count,
                            uint32_t column_count, uint32_t fan_in);

// Zeroed device memory that lives as long as the model. RT_NO_MEMORY.
rt_status ew_model_buffer(ew_model *model, size_t count, void *buffer_p, rt_error *error);

// Gradients from offset to the last piece reported are final.
void ew_model_done(ew_model *model, uint32_t offset);

// Layers of ReLU units.
typedef struct {
    uint32_t layer_count;
    uint32_t widths[RT_MLP_LAYERS_MAX + 1]; // widths[0]: inputs
    uint32_t weights[RT_MLP_LAYERS_MAX];    // offsets in the block
    uint32_t biases[RT_MLP_LAYERS_MAX];
    float *values[RT_MLP_LAYERS_MAX]; // sample_count_max x ew_stride(width) each
    float *gradients[2];              // of neighbouring layers, by turns
    const float *input;               // of the last forward pass
    uint32_t input_stride;
} ew_mlp;

// Declares the parameters "<name>.<layer>.weight" and ".bias" and the buffers.
rt_status ew_mlp_create(ew_model *model, ew_mlp *mlp, const char *name, uint32_t input_count,
                        const uint32_t *widths, uint32_t layer_count, rt_error *error);

// input: sample_count x widths[0], kept until backward. The result is values[layer_count - 1].
void ew_mlp_forward(ew_model *model, ew_mlp *mlp, const float *input, uint32_t input_stride);

// Where the caller puts the gradients of the last layer's values before backward: sample_count x
// ew_stride(last width).
float *ew_mlp_output_gradients(ew_mlp *mlp);

// Parameter gradients, layer by layer (each reported), and then those of the first input_columns
// inputs, unless that is 0.
void ew_mlp_backward(ew_model *model, ew_mlp *mlp, uint32_t input_columns, float *input_gradients,
                     uint32_t input_gradients_stride);

#endif
