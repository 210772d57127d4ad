// Deep & Cross, parallel form: x0 = (pooled embeddings, dense features),
//   v1 (Wang et al., ADKDD 2017):  x' = x0 (x . w) + b + x      model.cross "vector"
//   v2 (Wang et al., WWW 2021):    x' = x0 * (W x + b) + x      model.cross "matrix"
//   h = MLP(x0), logit = output.weight . (x_L, h) + output.bias
// v1 never forms x_l: see cross in ew_device.h. The output's weights stand behind those of the
// layers, so that x0 meets all of them in one product.
#include <stdio.h>

#include "edge_worker/model/ew_model_parts.h"

typedef struct {
    ew_mlp mlp;
    bool matrix;
    uint32_t hidden_count, input_count, layer_count;
    // Offsets; v1 uses the first.
    uint32_t weights[RT_CROSS_LAYERS_MAX], biases[RT_CROSS_LAYERS_MAX];
    uint32_t output, output_bias;
    float *input, *input_gradients; // sample_count x stride
    uint32_t stride;
    float *products, *product_gradients; // v1: sample_count x product_stride
    uint32_t product_stride;
    // v1 of several labels: the layers' weights and one label's row of the output's behind them,
    // and what goes back through that label
    float *column, *own_weights, *own_gradients, *own_bias_gradients;
    float *z[RT_CROSS_LAYERS_MAX], *x[RT_CROSS_LAYERS_MAX]; // v2: of each layer, as input
    float *gradients, *z_gradients;
} dcn;

static void declare_cross(ew_model *model, dcn *self)
{
    uint32_t count = self->input_count;
    if (!self->matrix) {
        self->biases[0] = ew_model_parameter(model, "cross.bias", self->layer_count, count, count);
        self->weights[0] =
            ew_model_parameter(model, "cross.weight", self->layer_count, count, count);
        return;
    }
    for (uint32_t l = 0; l < self->layer_count; l++) {
        char name[RT_TENSOR_NAME_MAX];
        snprintf(name, sizeof name, "cross.%u.weight", l);
        self->weights[l] = ew_model_parameter(model, name, count, count, count);
        snprintf(name, sizeof name, "cross.%u.bias", l);
        self->biases[l] = ew_model_parameter(model, name, 0, count, count);
    }
}

static rt_status create_label_buffers(ew_model *model, dcn *self, rt_error *error)
{
    const size_t layers = (size_t)self->layer_count * self->input_count;
    if (self->matrix || model->label_count == 1)
        return RT_OK;
    const ew_model_wanted wanted[] = {{layers + self->input_count, &self->own_weights},
                                      {layers + self->input_count, &self->own_gradients},
                                      {layers, &self->own_bias_gradients}};
    const rt_status status = ew_labels_column(model, &self->column, error);
    if (status)
        return status;
    return ew_model_buffers(model, wanted, RT_COUNT_OF(wanted), error);
}

static rt_status create_matrix_buffers(ew_model *model, dcn *self, size_t count, rt_error *error)
{
    const ew_model_wanted last[] = {{count, &self->gradients}, {count, &self->z_gradients}};
    for (uint32_t l = 0; l < self->layer_count; l++) {
        const ew_model_wanted own[] = {{count, &self->z[l]}, {count, &self->x[l]}};
        const rt_status status = ew_model_buffers(model, own, RT_COUNT_OF(own), error);
        if (status)
            return status;
    }
    return ew_model_buffers(model, last, RT_COUNT_OF(last), error);
}

static rt_status create_vector_buffers(ew_model *model, dcn *self, rt_error *error)
{
    const size_t count = (size_t)model->config.sample_count_max * self->product_stride;
    const ew_model_wanted wanted[] = {{count, &self->products}, {count, &self->product_gradients}};
    return ew_model_buffers(model, wanted, RT_COUNT_OF(wanted), error);
}

static rt_status create_buffers(ew_model *model, dcn *self, rt_error *error)
{
    const size_t count = (size_t)model->config.sample_count_max * self->stride;
    const ew_model_wanted inputs[] = {{count, &self->input}, {count, &self->input_gradients}};
    rt_status status = ew_model_buffers(model, inputs, RT_COUNT_OF(inputs), error);
    if (status)
        return status;
    if (self->matrix)
        status = create_matrix_buffers(model, self, count, error);
    else
        status = create_vector_buffers(model, self, error);
    if (status)
        return status;
    return create_label_buffers(model, self, error);
}

static rt_status create(ew_model *model, void *part, rt_error *error)
{
    const ew_model_config *config = &model->config;
    dcn *self = part;
    self->matrix = config->model.cross == RT_CROSS_MATRIX;
    self->layer_count = config->model.cross_layer_count;
    self->hidden_count = config->model.mlp[config->model.mlp_layer_count - 1];
    self->input_count = config->field_count * config->model.embedding_dim + config->dense_count;
    self->stride = ew_stride(self->input_count);
    if (self->layer_count < 1 || self->layer_count > RT_CROSS_LAYERS_MAX)
        return rt_fail(error, RT_CONFIG, "model.cross_layers: is %u, expected 1 to %d",
                       self->layer_count, RT_CROSS_LAYERS_MAX);
    uint64_t floats = (uint64_t)self->layer_count * self->input_count * self->input_count;
    if (self->matrix && floats > EW_PARAMETERS_MAX / 2)
        return rt_fail(error, RT_CONFIG,
                       "model.cross \"matrix\": %u layers of %u x %u weights are too many",
                       self->layer_count, self->input_count, self->input_count);
    self->product_stride = ew_stride(self->layer_count + 1);
    rt_status status = ew_mlp_create(model, &self->mlp, "mlp", self->input_count, config->model.mlp,
                                     config->model.mlp_layer_count, error);
    if (status)
        return status;
    declare_cross(model, self);
    uint32_t output_count = self->input_count + self->hidden_count;
    ew_output_create(model, output_count, &self->output, &self->output_bias);
    return create_buffers(model, self, error);
}

// The weights of one label, and x0 times them.
static void take_label(ew_model *model, dcn *self, uint32_t label)
{
    const uint32_t count = self->input_count, layers = self->layer_count * count;
    const float *row = model->values + self->output + (size_t)label * model->output_columns;
    if (label == 0)
        ew_labels_copy(model, layers, model->values + self->weights[0], self->own_weights);
    ew_labels_copy(model, count, row, self->own_weights + layers);
    model->device->layers->gemm(model->device->state, false, true, model->lookups.sample_count,
                                self->layer_count + 1, count, self->input, self->stride,
                                self->own_weights, count, 0, self->products, self->product_stride);
}

static void labels_forward(ew_model *model, dcn *self)
{
    const ew_device *device = model->device;
    for (uint32_t l = 0; l < model->label_count; l++) {
        take_label(model, self, l);
        ew_labels_clear(model, self->column);
        device->interactions->cross(device->state, model->lookups.sample_count, self->layer_count,
                                    self->input_count, self->own_weights,
                                    model->values + self->biases[0], self->products,
                                    self->product_stride, self->column);
        ew_labels_add(model, self->column, l);
    }
}

// Gradients of the layers and of x0 add up over the labels.
static void label_backward(ew_model *model, dcn *self, uint32_t label)
{
    const ew_device *device = model->device;
    const uint32_t samples = model->lookups.sample_count, count = self->input_count;
    const uint32_t layers = self->layer_count * count;
    float *row = model->gradients + self->output + (size_t)label * model->output_columns;
    float *weights = model->gradients + self->weights[0];
    float *biases = model->gradients + self->biases[0];
    take_label(model, self, label);
    ew_labels_take(model, label, self->column);
    device->interactions->cross_back(
        device->state, samples, self->layer_count, count, self->own_weights,
        model->values + self->biases[0], self->products, self->product_stride, self->column,
        self->product_gradients, self->own_gradients, self->own_bias_gradients);
    device->layers->gemm(device->state, true, false, self->layer_count + 1, count, samples,
                         self->product_gradients, self->product_stride, self->input, self->stride,
                         1, self->own_gradients, count);
    ew_labels_copy(model, count, self->own_gradients + layers, row);
    if (label == 0) {
        ew_labels_copy(model, layers, self->own_gradients, weights);
        ew_labels_copy(model, layers, self->own_bias_gradients, biases);
    } else {
        ew_labels_add_block(model, layers, self->own_gradients, weights);
        ew_labels_add_block(model, layers, self->own_bias_gradients, biases);
    }
    device->layers->gemm(device->state, false, false, samples, count, self->layer_count + 1,
                         self->product_gradients, self->product_stride, self->own_weights, count,
                         label == 0 ? 0 : 1, self->input_gradients, self->stride);
}

static void vector_forward(ew_model *model, dcn *self)
{
    const ew_device *device = model->device;
    uint32_t samples = model->lookups.sample_count, count = self->input_count;
    const float *weights = model->values + self->weights[0];
    if (model->label_count > 1) {
        labels_forward(model, self);
        return;
    }
    device->layers->gemm(device->state, false, true, samples, self->layer_count + 1, count,
                         self->input, self->stride, weights, count, 0, self->products,
                         self->product_stride);
    device->interactions->cross(device->state, samples, self->layer_count, count, weights,
                                model->values + self->biases[0], self->products,
                                self->product_stride, model->logits);
}

static void vector_backward(ew_model *model, dcn *self)
{
    const ew_device *device = model->device;
    uint32_t samples = model->lookups.sample_count, count = self->input_count;
    const float *weights = model->values + self->weights[0];
    float *weight_gradients = model->gradients + self->weights[0];
    for (uint32_t l = 0; l < model->label_count && model->label_count > 1; l++)
        label_backward(model, self, l);
    if (model->label_count > 1) {
        ew_model_done(model, self->biases[0]);
        return;
    }
    device->interactions->cross_back(
        device->state, samples, self->layer_count, count, weights, model->values + self->biases[0],
        self->products, self->product_stride, model->logit_gradients, self->product_gradients,
        weight_gradients, model->gradients + self->biases[0]);
    device->layers->gemm(device->state, true, false, self->layer_count + 1, count, samples,
                         self->product_gradients, self->product_stride, self->input, self->stride,
                         1, weight_gradients, count);
    ew_model_done(model, self->biases[0]);
    device->layers->gemm(device->state, false, false, samples, count, self->layer_count + 1,
                         self->product_gradients, self->product_stride, weights, count, 0,
                         self->input_gradients, self->stride);
}

static void matrix_forward(ew_model *model, dcn *self)
{
    const ew_device *device = model->device;
    uint32_t samples = model->lookups.sample_count, count = self->input_count;
    const float *x = self->input;
    for (uint32_t l = 0; l < self->layer_count; l++) {
        device->layers->gemm(device->state, false, true, samples, count, count, x, self->stride,
                             model->values + self->weights[l], count, 0, self->z[l], self->stride);
        device->interactions->cross_matrix(device->state, samples, count, self->input, x,
                                           model->values + self->biases[l], self->z[l], self->x[l],
                                           self->stride);
        x = self->x[l];
    }
    ew_linear_forward(model, self->output, x, count, self->stride, 1);
}

static void matrix_backward(ew_model *model, dcn *self)
{
    const ew_device *device = model->device;
    void *state = device->state;
    uint32_t samples = model->lookups.sample_count, count = self->input_count, l;
    uint32_t stride = self->stride;
    ew_linear_backward(model, self->output, self->x[self->layer_count - 1], count, stride,
                       self->gradients);
    ew_model_done(model, self->output);
    for (l = self->layer_count; l-- > 0;) {
        const float *x = self->input;
        float *gradients = self->input_gradients; // of x
        if (l > 0) {
            x = self->x[l - 1];
            gradients = self->gradients;
        }
        device->interactions->cross_matrix_back(
            state, samples, count, l == 0, l == self->layer_count - 1, self->input, self->z[l],
            self->gradients, self->z_gradients, self->input_gradients,
            model->gradients + self->biases[l], stride);
        device->layers->gemm(state, true, false, count, count, samples, self->z_gradients, stride,
                             x, stride, 0, model->gradients + self->weights[l], count);
        ew_model_done(model, self->weights[l]);
        device->layers->gemm(state, false, false, samples, count, count, self->z_gradients, stride,
                             model->values + self->weights[l], count, 1, gradients, stride);
    }
}

static void forward(ew_model *model, void *part)
{
    dcn *self = part;
    const ew_device *device = model->device;
    device->layers->pool(device->state, &model->lookups, model->dense, model->config.dense_count,
                         self->input, self->stride);
    ew_mlp_forward(model, &self->mlp, self->input, self->stride);
    ew_linear_forward(model, self->output + self->input_count, self->mlp.output, self->hidden_count,
                      self->mlp.output_stride, 0);
    if (self->matrix)
        matrix_forward(model, self);
    else
        vector_forward(model, self);
    ew_bias_forward(model, self->output_bias);
}

static void backward(ew_model *model, void *part)
{
    dcn *self = part;
    const ew_device *device = model->device;
    const ew_lookups *lookups = &model->lookups;
    ew_bias_backward(model, self->output_bias);
    ew_linear_backward(model, self->output + self->input_count, self->mlp.output,
                       self->hidden_count, self->mlp.output_stride, self->mlp.output_gradients);
    if (self->matrix)
        matrix_backward(model, self);
    else
        vector_backward(model, self);
    ew_mlp_backward(model, &self->mlp, lookups->field_count * lookups->dim, 1,
                    self->input_gradients, self->stride);
    device->layers->rows_back(device->state, lookups, self->input_gradients, self->stride, NULL,
                              model->row_gradients);
}

const ew_model_kind ew_dcn = {"dcn", sizeof(dcn), create, forward, backward, false, false};
