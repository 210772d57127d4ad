// ew_model_parts - what the file of one model needs: parameters, buffers, the current batch, MLPs.
//
// A model is an ew_model_kind: create declares parameters and buffers, forward turns the batch
// into logits, backward turns logit gradients into dense and row gradients. Parameters are
// declared in forward order; backward reports them from the last to the first.
#ifndef EW_MODEL_PARTS_H
#define EW_MODEL_PARTS_H

#include "edge_worker/model/ew_model.h"
#include "runtime/config/rt_models.h"

// ---- ew_shape.c -------------------------------------------------------------------------------

// Micro-batches of about one size get one shape, for devices that repeat the steps of a shape
// (ew_device_ops.repeat).
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

// ---- ew_split.c -------------------------------------------------------------------------------

// Look-ups as devices want them, of models whose fields share tables (rt_tables.h).
//
// A device knows a row in one field only (ew_lookups). So a row that several fields of a
// micro-batch look up is several rows to it, one for each field, in the same slot; what reached
// each is added up afterwards, in ascending order of the fields. All of it is a counting pass on
// the host before a step, and one `pool` on the device behind it.
//
// A model with a sequence field (din) gets its look-ups apart: to the others its bags are empty.
//
// A graph's model (graphsage) gets look-ups by node instead of by sample. A sample's fields are a
// node, fan_out neighbours, and for each of these its own neighbours. Its nodes are the first one
// and every neighbour that is there; each has two bags: its own row, and the rows of its
// neighbours. To the device own and neighbour are the two fields in which a row can be.

typedef struct {
    bool is_used;
    uint32_t row_count_max;    // rows as the device sees them: at most one for every look-up
    uint32_t sequence_field;   // UINT32_MAX: none
    uint32_t fan_out;          // of a graph; 0: none
    uint32_t lookup_count_max; // as the device sees them

    // Host, of the micro-batch at hand. A row of the batch has a chain of rows of the device.
    uint32_t *first, *next, *fields; // by row of the batch; by row of the device
    uint32_t *lookup_rows, *bag_offsets, *row_slots;
    uint32_t *parts, *part_offsets; // rows of the device by row of the batch; row_count + 1
    uint32_t row_count, batch_rows; // of the device, of the batch

    // The sequence's look-ups, sample by sample; host, and then where the device reads them.
    uint32_t *sequence_rows, *sequence_samples, *sequence_offsets; // ... sample_count + 1
    uint32_t sequence_count;

    // Of a graph: those of sample i are the nodes node_bags[2 i] (its first) and, its neighbours,
    // from node_bags[2 i + 1] to node_bags[2 i + 2].
    uint32_t *node_bags, node_count, node_count_max; // 2 x sample_count + 1
    const uint32_t *node_bags_there;
    uint32_t *node_bags_buffer;
    const uint32_t *rows_there, *samples_there, *offsets_there;

    uint32_t *parts_buffer, *part_offsets_buffer, *numbers; // device; numbers: 0, 1, 2 ...
    uint32_t *rows_buffer, *samples_buffer, *offsets_buffer;
    uint32_t number_count;
    float *sums; // device, gradients of the batch's rows
} ew_split;

// Nothing where no table is shared and there is no sequence. RT_NO_MEMORY.
rt_status ew_split_create(ew_model *model, rt_error *error);
void ew_split_destroy(ew_model *model);

// Makes the look-ups of the batch those of the device. The sequence's go to the device.
void ew_split_batch(ew_model *model, ew_micro_batch *batch);

// Queues the sums: gradients by row of the batch. Of rows in the sequence field they stand behind
// those of row_count_max others.
const float *ew_split_sum(ew_model *model);

// -----------------------------------------------------------------------------------------------

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
    bool has_hops;     // model->lookups are those of a graph's nodes (ew_split.c)
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
