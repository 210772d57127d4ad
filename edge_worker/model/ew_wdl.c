// Wide & Deep (Cheng et al., DLRS 2016) in the form that the embedding-cache papers train (HET,
// ESD; after Hetu's wdl_criteo): the wide part is linear in the embeddings of all fields.
//   h = MLP(dense)                       deep_input "dense"
//   h = MLP(pooled embeddings, dense)    deep_input "all"
//   logit = output.weight . (h, pooled embeddings) + output.bias
#include "edge_worker/model/ew_model_parts.h"

typedef struct {
    ew_mlp mlp;
    bool deep_all;
    uint32_t hidden_count;
    uint32_t output, output_bias; // offsets
    // deep_all: sample_count x stride, embeddings first (aligned), then dense features
    float *input, *input_gradients;
    uint32_t stride;
} wdl;

static rt_status create(ew_model *model, void *part, rt_error *error)
{
    const ew_model_config *config = &model->config;
    wdl *self = part;
    uint32_t pooled_count = config->field_count * config->model.embedding_dim;
    self->deep_all = config->model.deep_input == RT_DEEP_ALL;
    self->hidden_count = config->model.mlp[config->model.mlp_layer_count - 1];
    uint32_t inputs = config->dense_count + (self->deep_all ? pooled_count : 0);
    if (inputs == 0)
        return rt_fail(error, RT_CONFIG,
                       "model.deep_input \"dense\" needs dense features, and the stream has none");
    rt_status status = ew_mlp_create(model, &self->mlp, "mlp", inputs, config->model.mlp,
                                     config->model.mlp_layer_count, error);
    self->stride = ew_stride(inputs);
    size_t count = (size_t)config->sample_count_max * self->stride;
    if (!status && self->deep_all)
        status = ew_model_buffer(model, count, &self->input, error);
    if (!status && self->deep_all)
        status = ew_model_buffer(model, count, &self->input_gradients, error);
    uint32_t output_count = self->hidden_count + pooled_count;
    self->output = ew_model_parameter(model, "output.weight", 1, output_count, output_count);
    self->output_bias = ew_model_parameter(model, "output.bias", 0, 1, output_count);
    return status;
}

static void forward(ew_model *model, void *part)
{
    wdl *self = part;
    const ew_layer_ops *layers = model->device->layers;
    void *state = model->device->state;
    const float *input = model->dense;
    uint32_t stride = model->config.dense_count;
    if (self->deep_all) {
        layers->pool(state, &model->lookups, model->dense, model->config.dense_count, self->input,
                     self->stride);
        input = self->input;
        stride = self->stride;
    }
    ew_mlp_forward(model, &self->mlp, input, stride);
    ew_linear_forward(model, self->output, self->mlp.output, self->hidden_count,
                      self->mlp.output_stride, 0);
    layers->wide(state, &model->lookups, model->values + self->output + self->hidden_count,
                 model->logits);
    ew_bias_forward(model, self->output_bias);
}

static void backward(ew_model *model, void *part)
{
    wdl *self = part;
    const ew_layer_ops *layers = model->device->layers;
    void *state = model->device->state;
    const ew_lookups *lookups = &model->lookups;
    uint32_t wide = self->output + self->hidden_count;
    ew_bias_backward(model, self->output_bias);
    ew_linear_backward(model, self->output, self->mlp.output, self->hidden_count,
                       self->mlp.output_stride, self->mlp.output_gradients);
    layers->wide_back(state, lookups, model->logit_gradients, model->gradients + wide);
    ew_model_done(model, self->output);
    uint32_t pooled_count = lookups->field_count * lookups->dim;
    ew_mlp_backward(model, &self->mlp, self->deep_all ? pooled_count : 0, 0, self->input_gradients,
                    self->stride);
    layers->rows_back(state, lookups, self->deep_all ? self->input_gradients : NULL, self->stride,
                      model->values + wide, model->row_gradients);
}

const ew_model_kind ew_wdl = {"wdl", sizeof(wdl), create, forward, backward};
