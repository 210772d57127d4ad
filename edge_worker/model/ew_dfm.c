// DeepFM (Guo et al., IJCAI 2017): a factorisation machine and an MLP that share the embeddings v_f
// (pooled, one per field):
//   h = MLP(v, dense)
//   logit = output.weight . (h, v, dense) + sum over pairs of fields v_f . v_g + output.bias
// The first-order weight of a feature is w_f . v_f with one vector w_f per field (Pan et al., WWW
// 2018, section 3.3, "FiLV"), so that a row needs no float beside its embedding.
#include "edge_worker/model/ew_model_parts.h"

typedef struct {
    ew_mlp mlp;
    uint32_t hidden_count, pooled_count;
    uint32_t output, output_bias;   // offsets
    float *input, *input_gradients; // sample_count x stride: embeddings, dense features
    uint32_t stride;
    float *sums;     // sample_count x dim
    float *meetings; // of several labels: the sum over pairs, which all share
} dfm;

static rt_status create(ew_model *model, void *part, rt_error *error)
{
    const ew_model_config *config = &model->config;
    dfm *self = part;
    self->pooled_count = config->field_count * config->model.embedding_dim;
    self->hidden_count = config->model.mlp[config->model.mlp_layer_count - 1];
    uint32_t inputs = self->pooled_count + config->dense_count;
    self->stride = ew_stride(inputs);
    size_t samples = config->sample_count_max;
    rt_status status = ew_mlp_create(model, &self->mlp, "mlp", inputs, config->model.mlp,
                                     config->model.mlp_layer_count, error);
    if (status)
        return status;
    const ew_model_wanted wanted[] = {{samples * self->stride, &self->input},
                                      {samples * self->stride, &self->input_gradients},
                                      {samples * config->model.embedding_dim, &self->sums}};
    status = ew_model_buffers(model, wanted, RT_COUNT_OF(wanted), error);
    if (status)
        return status;
    status = ew_labels_column(model, &self->meetings, error);
    if (status)
        return status;
    ew_output_create(model, self->hidden_count + inputs, &self->output, &self->output_bias);
    return RT_OK;
}

// The wide part is a product with all inputs, and the sum over pairs goes to every label.
static void forward_labels(ew_model *model, dfm *self)
{
    const ew_device *device = model->device;
    const ew_lookups *lookups = &model->lookups;
    ew_linear_forward(model, self->output + self->hidden_count, self->input,
                      self->pooled_count + model->config.dense_count, self->stride, 1);
    ew_labels_clear(model, self->meetings);
    device->interactions->fm(device->state, lookups->sample_count, lookups->field_count,
                             lookups->dim, self->input, self->stride, self->sums, self->meetings);
    ew_labels_spread(model, self->meetings);
    ew_bias_forward(model, self->output_bias);
}

static void backward_labels(ew_model *model, dfm *self)
{
    const ew_device *device = model->device;
    const ew_lookups *lookups = &model->lookups;
    ew_linear_backward(model, self->output + self->hidden_count, self->input,
                       self->pooled_count + model->config.dense_count, self->stride,
                       self->input_gradients);
    ew_model_done(model, self->output);
    ew_mlp_backward(model, &self->mlp, self->pooled_count, 1, self->input_gradients, self->stride);
    ew_labels_sum(model, self->meetings);
    device->interactions->fm_back(device->state, lookups->sample_count, lookups->field_count,
                                  lookups->dim, self->input, self->stride, self->sums,
                                  self->meetings, self->input_gradients);
    device->layers->rows_back(device->state, lookups, self->input_gradients, self->stride, NULL,
                              model->row_gradients);
}

static void forward(ew_model *model, void *part)
{
    dfm *self = part;
    const ew_device *device = model->device;
    const ew_lookups *lookups = &model->lookups;
    uint32_t dense_count = model->config.dense_count, wide = self->output + self->hidden_count;
    device->layers->pool(device->state, lookups, model->dense, dense_count, self->input,
                         self->stride);
    ew_mlp_forward(model, &self->mlp, self->input, self->stride);
    ew_linear_forward(model, self->output, self->mlp.output, self->hidden_count,
                      self->mlp.output_stride, 0);
    if (model->label_count > 1) {
        forward_labels(model, self);
        return;
    }
    if (dense_count > 0)
        ew_linear_forward(model, wide + self->pooled_count, model->dense, dense_count, dense_count,
                          1);
    device->layers->wide(device->state, lookups, model->values + wide, model->logits);
    device->interactions->fm(device->state, lookups->sample_count, lookups->field_count,
                             lookups->dim, self->input, self->stride, self->sums, model->logits);
    ew_bias_forward(model, self->output_bias);
}

static void backward(ew_model *model, void *part)
{
    dfm *self = part;
    const ew_device *device = model->device;
    const ew_lookups *lookups = &model->lookups;
    uint32_t dense_count = model->config.dense_count, wide = self->output + self->hidden_count;
    ew_bias_backward(model, self->output_bias);
    ew_linear_backward(model, self->output, self->mlp.output, self->hidden_count,
                       self->mlp.output_stride, self->mlp.output_gradients);
    if (model->label_count > 1) {
        backward_labels(model, self);
        return;
    }
    if (dense_count > 0)
        ew_linear_backward(model, wide + self->pooled_count, model->dense, dense_count, dense_count,
                           NULL);
    device->layers->wide_back(device->state, lookups, model->logit_gradients,
                              model->gradients + wide);
    ew_model_done(model, self->output);
    ew_mlp_backward(model, &self->mlp, self->pooled_count, 0, self->input_gradients, self->stride);
    device->interactions->fm_back(device->state, lookups->sample_count, lookups->field_count,
                                  lookups->dim, self->input, self->stride, self->sums,
                                  model->logit_gradients, self->input_gradients);
    device->layers->rows_back(device->state, lookups, self->input_gradients, self->stride,
                              model->values + wide, model->row_gradients);
}

const ew_model_kind ew_dfm = {"dfm", sizeof(dfm), create, forward, backward, false, false};
