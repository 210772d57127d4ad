// Deep Interest Network (Zhou et al., KDD 2018, section 4.3): the rows of a sequence field (what a
// user did) are weighed against one target field (what is shown), and summed without a softmax.
//   a_j = u . relu layers(h_j, t, h_j * t) + c      the activation unit, for every row h_j
//   v_s = sum over j of a_j h_j                     in the sequence field's place; empty: zeros
//   logit = output.weight . MLP(v of all fields, dense) + output.bias
// t is the target's pooled embedding. The unit's input has no difference h_j - t: its first layer
// makes every linear combination of h_j and t. ReLU stands where the paper tries PReLU and Dice.
//
// Every look-up of the sequence is a row of one matrix, in blocks of dim columns; all of it is what
// devices can do for other models. x: h, t, h * t, then a (dim times), two blocks of zeros, a h.
// Its gradients: those of h, t, h * t, of a h, two blocks of zeros, then what reaches a.
#include "edge_worker/model/ew_model_parts.h"

enum { X_H, X_T, X_PRODUCT, X_WEIGHT, X_ZERO, X_SUMMAND = 6 };
enum { G_H, G_T, G_PRODUCT, G_SUMMAND, G_WEIGHT = 6, BLOCKS = 9 };

typedef struct {
    ew_mlp unit, mlp;
    uint32_t dim, input_count, hidden_count, sequence, target; // the last two: columns of the input
    uint32_t unit_weights, unit_bias, output, output_bias;     // offsets
    float *input, *input_gradients; // sample_count x stride: pooled embeddings, dense features
    uint32_t stride;
    float *x, *gradients; // look-ups of the sequence x x_stride
    uint32_t x_stride;
    float *weights, *weight_gradients; // a, by look-up
    float *ones, *zeros, *unit_matrix; // dim; 3 dim; dim x dim
    float *target_gradients, *scratch; // sample_count x dim; 3 dim
    ew_lookups rows;                   // of the sequence, by look-up: samples of one field
} din;

// ---- creation --------------------------------------------------------------------------------

static rt_status check(const ew_model_config *config, rt_error *error)
{
    const rt_model_config *model = &config->model;
    if (config->sequence_field >= config->field_count)
        return rt_fail(error, RT_CONFIG,
                       "model.sequence: \"%s\" is no field of the stream, expected one for \"din\"",
                       model->sequence);
    if (config->target_field >= config->field_count)
        return rt_fail(error, RT_CONFIG,
                       "model.target: \"%s\" is no field of the stream, expected one for \"din\"",
                       model->target);
    if (config->sequence_field == config->target_field || !config->tables.are_shared ||
        !config->tables.borrows[config->sequence_field] ||
        rt_tables_of(&config->tables, config->sequence_field) !=
            rt_tables_of(&config->tables, config->target_field))
        return rt_fail(error, RT_CONFIG,
                       "model.name \"din\" needs the rows of the target in the sequence: expected "
                       "\"%s=%s\" in stream.tables",
                       model->sequence, model->target);
    if (model->attention_layer_count < 1 || model->attention_layer_count > RT_MLP_LAYERS_MAX)
        return rt_fail(error, RT_CONFIG, "model.attention: has %u layers, expected 1 to %d",
                       model->attention_layer_count, RT_MLP_LAYERS_MAX);
    return RT_OK;
}

static rt_status create_buffers(ew_model *model, din *self, rt_error *error)
{
    const ew_model_config *config = &model->config;
    const size_t samples = config->sample_count_max, lookups = config->lookup_count_max;
    const size_t dim = self->dim;
    const ew_model_wanted wanted[] = {
        {samples * self->stride, &self->input},
        {samples * self->stride, &self->input_gradients},
        {lookups * self->x_stride, &self->x},
        {lookups * self->x_stride, &self->gradients},
        {lookups, &self->weights},
        {lookups, &self->weight_gradients},
        {dim, &self->ones},
        {3 * dim, &self->zeros},
        {dim * dim, &self->unit_matrix},
        {samples * dim, &self->target_gradients},
        {3 * dim, &self->scratch},
        {model->split.row_count_max + (size_t)1, &self->rows.row_starts},
        {model->split.row_count_max, &self->rows.row_fields},
        {model->split.row_count_max, &self->rows.row_scalars},
        {lookups, &self->rows.row_samples},
    };
    return ew_model_buffers(model, wanted, RT_COUNT_OF(wanted), error);
}

static rt_status fill_constants(ew_model *model, din *self, rt_error *error)
{
    const ew_device *device = model->device;
    const size_t dim = self->dim;
    float *ones = rt_alloc(dim, sizeof *ones), *unit = rt_alloc(dim * dim, sizeof *unit);
    rt_status status;
    if (!ones || !unit) {
        status = rt_fail(error, RT_NO_MEMORY, "no memory for the model");
    } else {
        for (size_t d = 0; d < dim; d++)
            ones[d] = unit[d * dim + d] = 1;
        device->ops->copy(device->state, EW_COPY_IN, self->ones, ones, dim * sizeof *ones);
        device->ops->copy(device->state, EW_COPY_IN, self->unit_matrix, unit,
                          dim * dim * sizeof *unit);
        status = device->ops->finish(device->state, error);
    }
    rt_free(ones);
    rt_free(unit);
    return status;
}

static rt_status create(ew_model *model, void *part, rt_error *error)
{
    const ew_model_config *config = &model->config;
    din *self = part;
    rt_status status = check(config, error);
    if (status)
        return status;
    self->dim = config->model.embedding_dim;
    self->sequence = config->sequence_field * self->dim;
    self->target = config->target_field * self->dim;
    self->input_count = config->field_count * self->dim + config->dense_count;
    self->stride = ew_stride(self->input_count);
    self->x_stride = ew_stride(BLOCKS * self->dim);
    self->hidden_count = config->model.mlp[config->model.mlp_layer_count - 1];
    self->unit.row_count_max = config->lookup_count_max;
    status = ew_mlp_create(model, &self->unit, "attention", 3 * self->dim, config->model.attention,
                           config->model.attention_layer_count, error);
    if (status)
        return status;
    const uint32_t units = config->model.attention[config->model.attention_layer_count - 1];
    self->unit_weights = ew_model_parameter(model, "attention.output.weight", 1, units, units);
    self->unit_bias = ew_model_parameter(model, "attention.output.bias", 0, 1, units);
    status = ew_mlp_create(model, &self->mlp, "mlp", self->input_count, config->model.mlp,
                           config->model.mlp_layer_count, error);
    if (status)
        return status;
    status = create_buffers(model, self, error);
    if (status)
        return status;
    status = fill_constants(model, self, error);
    if (status)
        return status;
    ew_output_create(model, self->hidden_count, &self->output, &self->output_bias);
    return RT_OK;
}

// ---- rows of matrices as look-ups ------------------------------------------------------------

// Of every look-up of the sequence a row of the matrix from: that of its sample, or its own.
static ew_lookups lookups_of(const ew_model *model, const din *self, const float *from,
                             uint32_t stride)
{
    const ew_split *s = &model->split;
    return (ew_lookups){.sample_count = s->sequence_count,
                        .field_count = 1,
                        .lookup_count = s->sequence_count,
                        .row_count = s->number_count,
                        .dim = self->dim,
                        .row_stride = stride,
                        .pooling = RT_POOL_SUM,
                        .lookup_rows = s->samples_there,
                        .row_slots = s->numbers,
                        .slab = from};
}

// out: of every look-up of the sequence its sample's row of a matrix.
static void spread(ew_model *model, const din *self, const float *from, uint32_t stride, float *out)
{
    const ew_lookups rows = lookups_of(model, self, from, stride);
    model->device->layers->pool(model->device->state, &rows, NULL, 0, out, self->x_stride);
}

// out: of every sample the sum of its look-ups' rows of a matrix.
static void gather(ew_model *model, const din *self, const float *from, float *out, uint32_t stride)
{
    ew_lookups rows = lookups_of(model, self, from, self->x_stride);
    rows.sample_count = model->lookups.sample_count;
    rows.lookup_rows = model->split.numbers;
    rows.bag_offsets = model->split.offsets_there;
    model->device->layers->pool(model->device->state, &rows, NULL, 0, out, stride);
}

static void set_rows(const ew_model *model, din *self)
{
    const ew_split *s = &model->split;
    ew_lookups *rows = &self->rows;
    rows->sample_count = rows->lookup_count = s->sequence_count;
    rows->field_count = 1;
    rows->row_count = s->row_count;
    rows->dim = self->dim;
    rows->row_stride = model->lookups.row_stride;
    rows->pooling = RT_POOL_SUM;
    rows->lookup_rows = s->rows_there;
    rows->row_slots = model->lookups.row_slots;
    rows->slab = model->lookups.slab;
}

// ---- passes ----------------------------------------------------------------------------------

// What the activation unit makes of x: weights, and x's last block.
static void weigh(ew_model *model, din *self)
{
    const ew_device *device = model->device;
    const ew_layer_ops *layers = device->layers;
    const uint32_t count = model->split.sequence_count, dim = self->dim, stride = self->x_stride;
    const uint32_t units = self->unit.widths[self->unit.layer_count];
    float *x = self->x;
    self->unit.row_count = count;
    ew_mlp_forward(model, &self->unit, x, stride);
    layers->gemm(device->state, false, false, count, 1, units, self->unit.output,
                 self->unit.output_stride, model->values + self->unit_weights, 1, 0, self->weights,
                 1);
    layers->activate(device->state, EW_IDENTITY, count, 1, model->values + self->unit_bias,
                     self->weights, 1);
    layers->gemm(device->state, false, false, count, dim, 1, self->weights, 1, self->ones, dim, 0,
                 x + (size_t)X_WEIGHT * dim, stride);
    device->interactions->cross_matrix(device->state, count, dim, x, x + (size_t)X_ZERO * dim,
                                       self->zeros, x + (size_t)X_WEIGHT * dim,
                                       x + (size_t)X_SUMMAND * dim, stride);
}

static void forward(ew_model *model, void *part)
{
    din *self = part;
    const ew_device *device = model->device;
    const uint32_t count = model->split.sequence_count, dim = self->dim, stride = self->x_stride;
    float *x = self->x;
    set_rows(model, self);
    device->layers->pool(device->state, &model->lookups, model->dense, model->config.dense_count,
                         self->input, self->stride);
    device->layers->pool(device->state, &self->rows, NULL, 0, x, stride);
    spread(model, self, self->input + self->target, self->stride, x + (size_t)X_T * dim);
    device->interactions->cross_matrix(device->state, count, dim, x, x + (size_t)X_ZERO * dim,
                                       self->zeros, x + (size_t)X_T * dim,
                                       x + (size_t)X_PRODUCT * dim, stride);
    weigh(model, self);
    gather(model, self, x + (size_t)X_SUMMAND * dim, self->input + self->sequence, self->stride);
    ew_mlp_forward(model, &self->mlp, self->input, self->stride);
    ew_linear_forward(model, self->output, self->mlp.output, self->hidden_count,
                      self->mlp.output_stride, 0);
    ew_bias_forward(model, self->output_bias);
}

// From the gradients of a h to those of the unit's weights, of h, t and h * t. The zeros beside
// them make the first three blocks begin with what reaches h from a h, and zeros.
static void weigh_back(ew_model *model, din *self)
{
    const ew_device *device = model->device;
    const ew_layer_ops *layers = device->layers;
    const uint32_t count = model->split.sequence_count, dim = self->dim, stride = self->x_stride;
    const uint32_t units = self->unit.widths[self->unit.layer_count];
    float *g = self->gradients;
    device->interactions->cross_matrix_back(
        device->state, count, 3 * dim, false, true, self->x, self->x + (size_t)X_WEIGHT * dim,
        g + (size_t)G_SUMMAND * dim, g + (size_t)G_WEIGHT * dim, g, self->scratch, stride);
    layers->gemm(device->state, false, false, count, 1, dim, g + (size_t)G_WEIGHT * dim, stride,
                 self->ones, 1, 0, self->weight_gradients, 1);
    layers->activate_back(device->state, EW_IDENTITY, count, 1, self->weights,
                          self->weight_gradients, 1, model->gradients + self->unit_bias);
    layers->gemm(device->state, true, false, units, 1, count, self->unit.output,
                 self->unit.output_stride, self->weight_gradients, 1, 0,
                 model->gradients + self->unit_weights, 1);
    layers->gemm(device->state, false, false, count, units, 1, self->weight_gradients, 1,
                 model->values + self->unit_weights, units, 0, self->unit.output_gradients,
                 self->unit.output_stride);
    ew_model_done(model, self->unit_weights);
    ew_mlp_backward(model, &self->unit, 3 * dim, 1, g, stride);
}

static void backward(ew_model *model, void *part)
{
    din *self = part;
    const ew_device *device = model->device;
    const uint32_t count = model->split.sequence_count, dim = self->dim, stride = self->x_stride;
    const uint32_t samples = model->lookups.sample_count;
    float *x = self->x, *g = self->gradients;
    ew_bias_backward(model, self->output_bias);
    ew_linear_backward(model, self->output, self->mlp.output, self->hidden_count,
                       self->mlp.output_stride, self->mlp.output_gradients);
    ew_model_done(model, self->output);
    ew_mlp_backward(model, &self->mlp, model->config.field_count * dim, 0, self->input_gradients,
                    self->stride);
    spread(model, self, self->input_gradients + self->sequence, self->stride,
           g + (size_t)G_SUMMAND * dim);
    weigh_back(model, self);
    // h * t adds to the gradients of either; what it writes besides nobody needs.
    for (uint32_t own = X_H; own <= X_T; own++)
        device->interactions->cross_matrix_back(
            device->state, count, dim, false, false, x + (size_t)own * dim,
            x + (size_t)(X_T - own) * dim, g + (size_t)G_PRODUCT * dim, g + (size_t)G_WEIGHT * dim,
            g + (size_t)own * dim, self->scratch, stride);
    gather(model, self, g + (size_t)G_T * dim, self->target_gradients, dim);
    device->layers->gemm(device->state, false, false, samples, dim, dim, self->target_gradients,
                         dim, self->unit_matrix, dim, 1, self->input_gradients + self->target,
                         self->stride);
    device->layers->rows_back(device->state, &model->lookups, self->input_gradients, self->stride,
                              NULL, model->row_gradients);
    device->layers->index(device->state, &self->rows);
    device->layers->rows_back(device->state, &self->rows, g, stride, NULL,
                              model->row_gradients + (size_t)model->split.row_count_max * dim);
}

const ew_model_kind ew_din = {"din", sizeof(din), create, forward, backward, true, false};
