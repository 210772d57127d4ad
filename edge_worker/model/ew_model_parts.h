// ew_model_parts - what the file of one model needs: parameters, buffers, the current batch, MLPs.
//
// A model is an ew_model_kind: create declares parameters and buffers, forward turns the batch
// into logits, backward turns logit gradients into dense and row gradients. Parameters are
// declared in forward order; backward reports them from the last to the first.
#ifndef EW_MODEL_PARTS_H
#define EW_MODEL_PARTS_H

#include "edge_worker/model/ew_shape.h"
#include "edge_worker/model/ew_split.h"
#include "runtime/config/rt_models.h"

#define EW_TENSORS_MAX 64u
#define EW_BUFFERS_MAX 64u
#define EW_PARAMETERS_MAX (1u << 30) // of an MLP and what was declared before it

typedef struct {
    const char *name;
    size_t part_size; // of the struct that create fills, zeroed before
    rt_status (*create)(ew_model *model, void *part, rt_error *error);
    void (*forward)(ew_model *model, void *part);  // batch -> model->logits
    void (*backward)(ew_model *model, void *part); // model->logit_gradients -> all gradients
    bool has_sequence; // model->split has the look-ups of the sequence field
    bool has_hops;     // model->lookups are those of a graph's nodes (ew_split.h)
} ew_model_kind;

#define XX(kind, name, traits, help) extern const ew_model_kind ew_##name;
RT_MODEL_MAP(XX)
#undef XX

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
    uint32_t label_count;    // of outputs: labels, or classes
    uint32_t truth_count;    // of what is known of a sample: labels; of classes one
    uint32_t output_columns; // of the last layer, which has a row for every label

    ew_parameter parameters[EW_TENSORS_MAX];
    uint32_t parameter_count;
    uint32_t float_count; // of all parameters
    float *values, *gradients, *state;

    void *buffers[EW_BUFFERS_MAX]; // device, freed by destroy
    uint32_t buffer_count;

    // The current batch, in device memory.
    uint32_t sample_count;
    ew_lookups lookups;
    const float *labels, *weights, *dense;
    float *logits, *logit_gradients; // sample_count x label_count
    float *row_gradients;            // row_count x dim
    ew_split split;                  // of models whose fields share tables
    ew_shape shape;                  // of devices that repeat steps

    ew_layer_done layer_done; // may be NULL
    void *layer_context;
    uint32_t done_from; // offset of the last piece reported

    // Device buffers behind the batch, and results on their way to the host.
    float *labels_buffer, *weights_buffer, *dense_buffer, *predictions_buffer, *predictions;
    uint32_t *rows_buffer, *bags_buffer, *slots_buffer;
    double *loss_buffer;

    float *units; // of several labels, device: units_count ones, then a zero
    uint32_t units_count;
    bool is_scaled;                  // losses of labels have weights
    float *own_labels, *own_weights; // host: with those, and of samples that are none

    uint32_t *check_tables; // ew_model_check: the table of each row (host)
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

// The same for a list of them.
typedef struct {
    size_t count;
    void *buffer_p;
} ew_model_wanted;

rt_status ew_model_buffers(ew_model *model, const ew_model_wanted *wanted, size_t wanted_count,
                           rt_error *error);

// Gradients from offset to the last piece reported are final.
void ew_model_done(ew_model *model, uint32_t offset);

// Layers of ReLU units. A model may set the output_ members before create, to place what the last
// layer gives (sample_count_max x output_stride) in a matrix of its own; or row_count_max, and
// row_count before a pass, where the input has rows of its own number.
typedef struct {
    float *output, *output_gradients;
    uint32_t output_stride;

    uint32_t layer_count;
    uint32_t widths[RT_MLP_LAYERS_MAX + 1]; // widths[0]: inputs
    uint32_t weights[RT_MLP_LAYERS_MAX];    // offsets in the block
    uint32_t biases[RT_MLP_LAYERS_MAX];
    float *values[RT_MLP_LAYERS_MAX];    // of each layer
    float *gradients[RT_MLP_LAYERS_MAX]; // the last one's is output_gradients, the others share two
    uint32_t strides[RT_MLP_LAYERS_MAX];
    uint32_t row_count_max, row_count; // of the input, where these are not the samples; else 0
    const float *input;                // of the last forward pass
    uint32_t input_stride;
} ew_mlp;

// Declares the parameters "<name>.<layer>.weight" and ".bias" and the buffers. RT_CONFIG: too many
// parameters; RT_NO_MEMORY.
rt_status ew_mlp_create(ew_model *model, ew_mlp *mlp, const char *name, uint32_t input_count,
                        const uint32_t *widths, uint32_t layer_count, rt_error *error);

// input: sample_count x widths[0], kept until backward. The result is in output.
void ew_mlp_forward(ew_model *model, ew_mlp *mlp, const float *input, uint32_t input_stride);

// From output_gradients, which is overwritten: parameter gradients, layer by layer (each reported),
// and then those of the first input_columns inputs, unless that is 0, plus input_beta times what
// input_gradients holds.
void ew_mlp_backward(ew_model *model, ew_mlp *mlp, uint32_t input_columns, float input_beta,
                     float *input_gradients, uint32_t input_gradients_stride);

// The last layer, a row of column_count weights for every label, and its biases: declares
// "output.weight" and "output.bias". Their offsets.
void ew_output_create(ew_model *model, uint32_t column_count, uint32_t *weights_p,
                      uint32_t *biases_p);

// What most models end in: logits = weights . values + beta x logits, for count columns of a matrix
// (weights: offset in the block of the first of so many columns of the last layer). Back, written:
// weight gradients, and those of the columns, with the stride of values, unless gradients is NULL.
void ew_linear_forward(ew_model *model, uint32_t weights, const float *values, uint32_t count,
                       uint32_t stride, float beta);
void ew_linear_backward(ew_model *model, uint32_t weights, const float *values, uint32_t count,
                        uint32_t stride, float *gradients);

// logits += the parameters at offset bias; and their gradients.
void ew_bias_forward(ew_model *model, uint32_t bias);
void ew_bias_backward(ew_model *model, uint32_t bias);

// ---- several labels (ew_labels.c) ------------------------------------------------------------
//
// Operations on logits know one number per sample. With several labels they work on a column
// (sample_count_max floats) that is put into the logits, or taken from their gradients.

// Buffers that the functions below need; once, where there are several labels.
rt_status ew_labels_create(ew_model *model, rt_error *error);
rt_status ew_labels_column(ew_model *model, float **column_p, rt_error *error);

void ew_labels_clear(ew_model *model, float *column);                     // zeros
void ew_labels_add(ew_model *model, const float *column, uint32_t label); // to its logits
void ew_labels_take(ew_model *model, uint32_t label, float *column);      // of its gradients
void ew_labels_spread(ew_model *model, const float *column);              // to all logits
void ew_labels_sum(ew_model *model, float *column);                       // of all gradients
void ew_labels_copy(ew_model *model, uint32_t count, const float *from, float *to);
void ew_labels_add_block(ew_model *model, uint32_t count, const float *from, float *to);

#endif
