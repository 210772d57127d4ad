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
    if (status == RT_OK && self->deep_all) {
        self->stride = ew_stride(inputs);
        size_t count = (size_t)config->sample_count_max * self->stride;
        status = ew_model_buffer(model, count, &self->input, error);
        if (status == RT_OK)
            status = ew_model_buffer(model, count, &self->input_gradients, error);
    }
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
    const ew_lookups *lookups = &model->lookups;
    const float *output = model->values + self->output, *input = model->dense;
    uint32_t hidden_count = self->hidden_count, stride = model->config.dense_count;
    if (self->deep_all) {
        layers->pool(state, lookups, model->dense, model->config.dense_count, self->input,
                     self->stride);
        input = self->input;
        stride = self->stride;
    }
    ew_mlp_forward(model, &self->mlp, input, stride);
    layers->gemm(state, false, false, lookups->sample_count, 1, hidden_count,
                 self->mlp.values[self->mlp.layer_count - 1], ew_stride(hidden_count), output, 1, 0,
                 model->logits, 1);
    layers->wide(state, lookups, output + hidden_count, model->logits);
    layers->activate(state, EW_IDENTITY, lookups->sample_count, 1,
                     model->values + self->output_bias, model->logits, 1);
}

static void backward(ew_model *model, void *part)
{
    wdl *self = part;
    const ew_layer_ops *layers = model->device->layers;
    void *state = model->device->state;
    const ew_lookups *lookups = &model->lookups;
    const float *output = model->values + self->output;
    float *output_gradients = model->gradients + self->output;
    uint32_t samples = lookups->sample_count, hidden_count = self->hidden_count;
    layers->activate_back(state, EW_IDENTITY, samples, 1, model->logits, model->logit_gradients, 1,
                          model->gradients + self->output_bias);
    layers->gemm(state, true, false, hidden_count, 1, samples,
                 self->mlp.values[self->mlp.layer_count - 1], ew_stride(hidden_count),
                 model->logit_gradients, 1, 0, output_gradients, 1);
    layers->wide_back(state, lookups, model->logit_gradients, output_gradients + hidden_count);
    ew_model_done(model, self->output);
    layers->gemm(state, false, false, samples, hidden_count, 1, model->logit_gradients, 1, output,
                 hidden_count, 0, ew_mlp_output_gradients(&self->mlp), ew_stride(hidden_count));
    uint32_t pooled_count = lookups->field_count * lookups->dim;
    ew_mlp_backward(model, &self->mlp, self->deep_all ? pooled_count : 0, self->input_gradients,
                    self->stride);
    layers->rows_back(state, lookups, self->deep_all ? self->input_gradients : NULL, self->stride,
                      output + hidden_count, model->row_gradients);
}

const ew_model_kind ew_wdl = {"wdl", sizeof(wdl), create, forward, backward};
