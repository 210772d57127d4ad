// Neural collaborative filtering, NeuMF (He et al., WWW 2017, eq. 12): two fields, user and item.
// A row holds a GMF and an MLP embedding of k = embedding_dim / 2 values each; the user's GMF half
// comes first, the item's last, so that the MLP's input (user, item) is one run of columns.
//   h = MLP(u_mlp, v_mlp)
//   logit = output.weight . (u_gmf * v_gmf, h) + output.bias
#include "edge_worker/model/ew_model_parts.h"

typedef struct {
    ew_mlp mlp;
    uint32_t hidden_count, half; // k
    uint32_t output, output_bias;
    float *input, *input_gradients; // sample_count x stride: u_gmf, u_mlp, v_mlp, v_gmf
    uint32_t stride;
    float *column, *own_gradients; // of one of several labels; the latter as input_gradients
} ncf;

static rt_status create(ew_model *model, void *part, rt_error *error)
{
    const ew_model_config *config = &model->config;
    ncf *self = part;
    uint32_t dim = config->model.embedding_dim;
    if (config->field_count != 2 || config->dense_count != 0)
        return rt_fail(error, RT_CONFIG,
                       "model.name \"ncf\" needs a stream of 2 fields (user, item) without dense "
                       "features, this one has %u fields and %u dense features",
                       config->field_count, config->dense_count);
    if (dim % 2 != 0)
        return rt_fail(error, RT_CONFIG,
                       "model.embedding_dim: is %u, expected an even number for \"ncf\" (a half "
                       "each for GMF and MLP)",
                       dim);
    self->half = dim / 2;
    self->hidden_count = config->model.mlp[config->model.mlp_layer_count - 1];
    self->stride = ew_stride(2 * dim);
    size_t count = (size_t)config->sample_count_max * self->stride;
    rt_status status = ew_mlp_create(model, &self->mlp, "mlp", dim, config->model.mlp,
                                     config->model.mlp_layer_count, error);
    if (status)
        return status;
    const ew_model_wanted wanted[] = {{count, &self->input}, {count, &self->input_gradients}};
    status = ew_model_buffers(model, wanted, RT_COUNT_OF(wanted), error);
    if (status)
        return status;
    status = ew_labels_column(model, &self->column, error);
    if (status)
        return status;
    if (model->label_count > 1)
        status = ew_model_buffer(model, count, &self->own_gradients, error);
    if (status)
        return status;
    const uint32_t output_count = self->half + self->hidden_count;
    ew_output_create(model, output_count, &self->output, &self->output_bias);
    return RT_OK;
}

// Every label has weights of its own for u_gmf * v_gmf.
static void labels_forward(ew_model *model, ncf *self)
{
    const ew_device *device = model->device;
    const uint32_t half = self->half;
    for (uint32_t l = 0; l < model->label_count; l++) {
        const float *weights = model->values + self->output + (size_t)l * model->output_columns;
        ew_labels_clear(model, self->column);
        device->interactions->gmf(device->state, model->lookups.sample_count, half, self->input,
                                  self->input + 3 * half, self->stride, weights, self->column);
        ew_labels_add(model, self->column, l);
    }
}

static void labels_backward(ew_model *model, ncf *self)
{
    const ew_device *device = model->device;
    const uint32_t half = self->half, samples = model->lookups.sample_count;
    for (uint32_t l = 0; l < model->label_count; l++) {
        const size_t row = self->output + (size_t)l * model->output_columns;
        float *to = l == 0 ? self->input_gradients : self->own_gradients;
        ew_labels_take(model, l, self->column);
        device->interactions->gmf_back(device->state, samples, half, self->input,
                                       self->input + 3 * half, self->stride, model->values + row,
                                       self->column, to, to + 3 * half, model->gradients + row);
        if (l > 0)
            ew_labels_add_block(model, samples * self->stride, to, self->input_gradients);
    }
}

static void forward(ew_model *model, void *part)
{
    ncf *self = part;
    const ew_device *device = model->device;
    uint32_t half = self->half;
    device->layers->pool(device->state, &model->lookups, NULL, 0, self->input, self->stride);
    ew_mlp_forward(model, &self->mlp, self->input + half, self->stride);
    ew_linear_forward(model, self->output + half, self->mlp.output, self->hidden_count,
                      self->mlp.output_stride, 0);
    if (model->label_count > 1)
        labels_forward(model, self);
    else
        device->interactions->gmf(device->state, model->lookups.sample_count, half, self->input,
                                  self->input + 3 * half, self->stride,
                                  model->values + self->output, model->logits);
    ew_bias_forward(model, self->output_bias);
}

static void backward(ew_model *model, void *part)
{
    ncf *self = part;
    const ew_device *device = model->device;
    uint32_t half = self->half;
    float *gradients = self->input_gradients;
    ew_bias_backward(model, self->output_bias);
    ew_linear_backward(model, self->output + half, self->mlp.output, self->hidden_count,
                       self->mlp.output_stride, self->mlp.output_gradients);
    if (model->label_count > 1)
        labels_backward(model, self);
    else
        device->interactions->gmf_back(
            device->state, model->lookups.sample_count, half, self->input, self->input + 3 * half,
            self->stride, model->values + self->output, model->logit_gradients, gradients,
            gradients + 3 * half, model->gradients + self->output);
    ew_model_done(model, self->output);
    ew_mlp_backward(model, &self->mlp, 2 * half, 0, gradients + half, self->stride);
    device->layers->rows_back(device->state, &model->lookups, gradients, self->stride, NULL,
                              model->row_gradients);
}

const ew_model_kind ew_ncf = {"ncf", sizeof(ncf), create, forward, backward, false, false};
