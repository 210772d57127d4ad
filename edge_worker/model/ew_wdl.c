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
    // Of several labels the wide part is a product with the embeddings as they stand there; without
    // deep_all they stand there alone.
    bool wide_all;
    uint32_t pooled_count;
} wdl;

// Whether the rows of a sample stand side by side in `input`, and not only behind the wide part.
static bool is_pooled(const wdl *self)
{
    return self->deep_all || self->wide_all;
}

static rt_status create(ew_model *model, void *part, rt_error *error)
{
    const ew_model_config *config = &model->config;
    wdl *self = part;
    uint32_t pooled_count = config->field_count * config->model.embedding_dim;
    self->deep_all = config->model.deep_input == RT_DEEP_ALL;
    self->hidden_count = config->model.mlp[config->model.mlp_layer_count - 1];
    uint32_t inputs = config->dense_count;
    if (self->deep_all)
        inputs += pooled_count;
    if (inputs == 0)
        return rt_fail(error, RT_CONFIG,
                       "model.deep_input \"dense\" needs dense features, and the stream has none");
    rt_status status = ew_mlp_create(model, &self->mlp, "mlp", inputs, config->model.mlp,
                                     config->model.mlp_layer_count, error);
    if (status)
        return status;
    self->wide_all = model->label_count > 1;
    self->pooled_count = pooled_count;
    self->stride = ew_stride(self->deep_all ? inputs : pooled_count);
    if (is_pooled(self)) {
        const size_t count = (size_t)config->sample_count_max * self->stride;
        const ew_model_wanted wanted[] = {{count, &self->input}, {count, &self->input_gradients}};
        status = ew_model_buffers(model, wanted, RT_COUNT_OF(wanted), error);
    }
    if (status)
        return status;
    ew_output_create(model, self->hidden_count + pooled_count, &self->output, &self->output_bias);
    return RT_OK;
}

static void forward(ew_model *model, void *part)
{
    wdl *self = part;
    const ew_layer_ops *layers = model->device->layers;
    void *state = model->device->state;
    const float *input = model->dense;
    uint32_t stride = model->config.dense_count, beside = 0; // dense features beside the rows
    if (self->deep_all)
        beside = model->config.dense_count;
    if (is_pooled(self))
        layers->pool(state, &model->lookups, model->dense, beside, self->input, self->stride);
    if (self->deep_all) {
        input = self->input;
        stride = self->stride;
    }
    ew_mlp_forward(model, &self->mlp, input, stride);
    ew_linear_forward(model, self->output, self->mlp.output, self->hidden_count,
                      self->mlp.output_stride, 0);
    if (self->wide_all)
        ew_linear_forward(model, self->output + self->hidden_count, self->input, self->pooled_count,
                          self->stride, 1);
    else
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
    if (self->wide_all)
        ew_linear_backward(model, wide, self->input, self->pooled_count, self->stride,
                           self->input_gradients);
    else
        layers->wide_back(state, lookups, model->logit_gradients, model->gradients + wide);
    ew_model_done(model, self->output);
    const uint32_t columns = self->deep_all ? self->pooled_count : 0;
    const float beta = self->wide_all ? 1 : 0; // those of the wide part are there already
    ew_mlp_backward(model, &self->mlp, columns, beta, self->input_gradients, self->stride);
    const float *pooled = is_pooled(self) ? self->input_gradients : NULL;
    const float *weights = self->wide_all ? NULL : model->values + wide;
    layers->rows_back(state, lookups, pooled, self->stride, weights, model->row_gradients);
}

const ew_model_kind ew_wdl = {"wdl", sizeof(wdl), create, forward, backward, false, false};
