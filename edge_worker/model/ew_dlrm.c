// DLRM (Naumov et al., 2019): dense features become a vector of the embeddings' dimension, all
// vectors meet in pairs.
//   d = bottom MLP(dense), of embedding_dim values after the layers of model.mlp_bottom
//   h = top MLP(d, v_a . v_b for all pairs of the pooled embeddings and d)
//   logit = output.weight . h + output.bias
#include <string.h>

#include "edge_worker/model/ew_model_parts.h"

typedef struct {
    ew_mlp bottom, top;
    uint32_t hidden_count, pooled_count, top_count;
    uint32_t output, output_bias;           // offsets
    float *vectors, *vector_gradients;      // sample_count x vectors_stride: embeddings, then d
    float *top_input, *top_input_gradients; // sample_count x top_stride
    uint32_t vectors_stride, top_stride;
} dlrm;

static rt_status create_buffers(ew_model *model, dlrm *self, rt_error *error)
{
    const size_t samples = model->config.sample_count_max;
    const size_t vectors = samples * self->vectors_stride, top = samples * self->top_stride;
    const ew_model_wanted wanted[] = {{vectors, &self->vectors},
                                      {vectors, &self->vector_gradients},
                                      {top, &self->top_input},
                                      {top, &self->top_input_gradients}};
    return ew_model_buffers(model, wanted, RT_COUNT_OF(wanted), error);
}

static rt_status create(ew_model *model, void *part, rt_error *error)
{
    const ew_model_config *config = &model->config;
    const rt_model_config *sizes = &config->model;
    dlrm *self = part;
    uint32_t dim = sizes->embedding_dim, fields = config->field_count;
    uint32_t widths[RT_MLP_LAYERS_MAX], bottom_count = sizes->mlp_bottom_layer_count;
    if (config->dense_count == 0)
        return rt_fail(error, RT_CONFIG,
                       "model.name \"dlrm\" needs dense features, and the stream has none");
    if (bottom_count > RT_MLP_LAYERS_MAX - 1)
        return rt_fail(error, RT_CONFIG, "model.mlp_bottom: has %u layers, expected at most %d",
                       bottom_count, RT_MLP_LAYERS_MAX - 1);
    memcpy(widths, sizes->mlp_bottom, bottom_count * sizeof *widths);
    widths[bottom_count] = dim;
    self->pooled_count = fields * dim;
    self->hidden_count = sizes->mlp[sizes->mlp_layer_count - 1];
    self->top_count = dim + (fields + 1) * fields / 2;
    self->vectors_stride = ew_stride(self->pooled_count + dim);
    self->top_stride = ew_stride(self->top_count);
    rt_status status = create_buffers(model, self, error);
    if (status)
        return status;
    self->bottom.output = self->vectors + self->pooled_count;
    self->bottom.output_gradients = self->vector_gradients + self->pooled_count;
    self->bottom.output_stride = self->vectors_stride;
    status = ew_mlp_create(model, &self->bottom, "bottom", config->dense_count, widths,
                           bottom_count + 1, error);
    if (status)
        return status;
    status = ew_mlp_create(model, &self->top, "top", self->top_count, sizes->mlp,
                           sizes->mlp_layer_count, error);
    if (status)
        return status;
    ew_output_create(model, self->hidden_count, &self->output, &self->output_bias);
    return RT_OK;
}

static void forward(ew_model *model, void *part)
{
    dlrm *self = part;
    const ew_device *device = model->device;
    const ew_lookups *lookups = &model->lookups;
    device->layers->pool(device->state, lookups, NULL, 0, self->vectors, self->vectors_stride);
    ew_mlp_forward(model, &self->bottom, model->dense, model->config.dense_count);
    device->interactions->dots(device->state, lookups->sample_count, lookups->field_count + 1,
                               lookups->dim, self->vectors, self->vectors_stride, self->top_input,
                               self->top_stride);
    ew_mlp_forward(model, &self->top, self->top_input, self->top_stride);
    ew_linear_forward(model, self->output, self->top.output, self->hidden_count,
                      self->top.output_stride, 0);
    ew_bias_forward(model, self->output_bias);
}

static void backward(ew_model *model, void *part)
{
    dlrm *self = part;
    const ew_device *device = model->device;
    const ew_lookups *lookups = &model->lookups;
    ew_bias_backward(model, self->output_bias);
    ew_linear_backward(model, self->output, self->top.output, self->hidden_count,
                       self->top.output_stride, self->top.output_gradients);
    ew_model_done(model, self->output);
    ew_mlp_backward(model, &self->top, self->top_count, 0, self->top_input_gradients,
                    self->top_stride);
    device->interactions->dots_back(
        device->state, lookups->sample_count, lookups->field_count + 1, lookups->dim, self->vectors,
        self->vectors_stride, self->top_input_gradients, self->top_stride, self->vector_gradients);
    ew_mlp_backward(model, &self->bottom, 0, 0, NULL, 0);
    device->layers->rows_back(device->state, lookups, self->vector_gradients, self->vectors_stride,
                              NULL, model->row_gradients);
}

const ew_model_kind ew_dlrm = {"dlrm", sizeof(dlrm), create, forward, backward, false, false};
