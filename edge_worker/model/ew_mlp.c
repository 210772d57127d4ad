#include <stdio.h>

#include "edge_worker/model/ew_model_parts.h"

static void declare(ew_model *model, ew_mlp *mlp, const char *name, uint32_t layer)
{
    char parameter[RT_TENSOR_NAME_MAX];
    uint32_t in = mlp->widths[layer], out = mlp->widths[layer + 1];
    snprintf(parameter, sizeof parameter, "%s.%u.weight", name, layer);
    mlp->weights[layer] = ew_model_parameter(model, parameter, out, in, in);
    snprintf(parameter, sizeof parameter, "%s.%u.bias", name, layer);
    mlp->biases[layer] = ew_model_parameter(model, parameter, 0, out, in);
}

static rt_status create_values(ew_model *model, ew_mlp *mlp, size_t samples, rt_error *error)
{
    for (uint32_t i = 0; i < mlp->layer_count; i++) {
        if (mlp->values[i])
            continue; // the output is another's
        const rt_status status =
            ew_model_buffer(model, samples * mlp->strides[i], &mlp->values[i], error);
        if (status)
            return status;
    }
    return RT_OK;
}

// Gradients of neighbouring layers use two buffers by turns.
static rt_status create_buffers(ew_model *model, ew_mlp *mlp, rt_error *error)
{
    size_t samples = mlp->row_count_max ? mlp->row_count_max : model->config.sample_count_max;
    uint32_t last = mlp->layer_count - 1, widest = 0;
    float *turns[2];
    for (uint32_t i = 0; i <= last; i++) {
        mlp->strides[i] = ew_stride(mlp->widths[i + 1]);
        widest = (uint32_t)rt_max_u64(widest, mlp->strides[i]);
    }
    if (mlp->output) {
        mlp->strides[last] = mlp->output_stride;
        mlp->values[last] = mlp->output;
    }
    rt_status status = create_values(model, mlp, samples, error);
    if (status)
        return status;
    const ew_model_wanted wanted[] = {{samples * widest, &turns[0]}, {samples * widest, &turns[1]}};
    status = ew_model_buffers(model, wanted, RT_COUNT_OF(wanted), error);
    if (status)
        return status;
    for (uint32_t i = 0; i <= last; i++)
        mlp->gradients[i] = turns[i % 2];
    if (mlp->output)
        mlp->gradients[last] = mlp->output_gradients;
    mlp->output = mlp->values[last];
    mlp->output_gradients = mlp->gradients[last];
    mlp->output_stride = mlp->strides[last];
    return status;
}

rt_status ew_mlp_create(ew_model *model, ew_mlp *mlp, const char *name, uint32_t input_count,
                        const uint32_t *widths, uint32_t layer_count, rt_error *error)
{
    rt_assert(layer_count >= 1 && layer_count <= RT_MLP_LAYERS_MAX);
    mlp->layer_count = layer_count;
    mlp->widths[0] = input_count;
    for (uint32_t i = 0; i < layer_count; i++) {
        mlp->widths[i + 1] = widths[i];
        if ((mlp->widths[i] + (uint64_t)1) * widths[i] > EW_PARAMETERS_MAX - model->float_count)
            return rt_fail(error, RT_CONFIG, "model: more than %u dense parameters in \"%s\"",
                           EW_PARAMETERS_MAX, name);
        declare(model, mlp, name, i);
    }
    return create_buffers(model, mlp, error);
}

static uint32_t rows_of(const ew_model *model, const ew_mlp *mlp)
{
    return mlp->row_count_max ? mlp->row_count : model->sample_count;
}

void ew_mlp_forward(ew_model *model, ew_mlp *mlp, const float *input, uint32_t input_stride)
{
    const ew_layer_ops *layers = model->device->layers;
    void *state = model->device->state;
    uint32_t samples = rows_of(model, mlp);
    mlp->input = input;
    mlp->input_stride = input_stride;
    for (uint32_t i = 0; i < mlp->layer_count; i++) {
        uint32_t in = mlp->widths[i], out = mlp->widths[i + 1];
        layers->gemm(state, false, true, samples, out, in, input, input_stride,
                     model->values + mlp->weights[i], in, 0, mlp->values[i], mlp->strides[i]);
        layers->activate(state, EW_RELU, samples, out, model->values + mlp->biases[i],
                         mlp->values[i], mlp->strides[i]);
        input = mlp->values[i];
        input_stride = mlp->strides[i];
    }
}

void ew_mlp_backward(ew_model *model, ew_mlp *mlp, uint32_t input_columns, float input_beta,
                     float *input_gradients, uint32_t input_gradients_stride)
{
    const ew_layer_ops *layers = model->device->layers;
    void *state = model->device->state;
    uint32_t samples = rows_of(model, mlp);
    for (uint32_t i = mlp->layer_count; i-- > 0;) {
        uint32_t in = mlp->widths[i], out = mlp->widths[i + 1], stride = mlp->strides[i];
        const float *weights = model->values + mlp->weights[i];
        const float *input = mlp->input;
        uint32_t input_stride = mlp->input_stride;
        if (i > 0) {
            input = mlp->values[i - 1];
            input_stride = mlp->strides[i - 1];
        }
        float *gradients = mlp->gradients[i];
        layers->activate_back(state, EW_RELU, samples, out, mlp->values[i], gradients, stride,
                              model->gradients + mlp->biases[i]);
        layers->gemm(state, true, false, out, in, samples, gradients, stride, input, input_stride,
                     0, model->gradients + mlp->weights[i], in);
        ew_model_done(model, mlp->weights[i]);
        if (i > 0)
            layers->gemm(state, false, false, samples, in, out, gradients, stride, weights, in, 0,
                         mlp->gradients[i - 1], mlp->strides[i - 1]);
        else if (input_columns > 0)
            layers->gemm(state, false, false, samples, input_columns, out, gradients, stride,
                         weights, in, input_beta, input_gradients, input_gradients_stride);
    }
}

void ew_output_create(ew_model *model, uint32_t column_count, uint32_t *weights_p,
                      uint32_t *biases_p)
{
    model->output_columns = column_count;
    *weights_p =
        ew_model_parameter(model, "output.weight", model->label_count, column_count, column_count);
    *biases_p = ew_model_parameter(model, "output.bias", 0, model->label_count, column_count);
}

// With one label the weights are a column, else the rows of a matrix.
void ew_linear_forward(ew_model *model, uint32_t weights, const float *values, uint32_t count,
                       uint32_t stride, float beta)
{
    const uint32_t labels = model->label_count;
    model->device->layers->gemm(model->device->state, false, labels > 1, model->sample_count,
                                labels, count, values, stride, model->values + weights,
                                labels > 1 ? model->output_columns : 1, beta, model->logits,
                                labels);
}

static void linear_backward_all(ew_model *model, uint32_t weights, const float *values,
                                uint32_t count, uint32_t stride, float *gradients)
{
    const ew_layer_ops *layers = model->device->layers;
    void *state = model->device->state;
    const uint32_t samples = model->sample_count, labels = model->label_count;
    layers->gemm(state, true, false, labels, count, samples, model->logit_gradients, labels, values,
                 stride, 0, model->gradients + weights, model->output_columns);
    if (gradients)
        layers->gemm(state, false, false, samples, count, labels, model->logit_gradients, labels,
                     model->values + weights, model->output_columns, 0, gradients, stride);
}

void ew_linear_backward(ew_model *model, uint32_t weights, const float *values, uint32_t count,
                        uint32_t stride, float *gradients)
{
    const ew_layer_ops *layers = model->device->layers;
    void *state = model->device->state;
    uint32_t samples = model->sample_count;
    if (model->label_count > 1) {
        linear_backward_all(model, weights, values, count, stride, gradients);
        return;
    }
    layers->gemm(state, true, false, count, 1, samples, values, stride, model->logit_gradients, 1,
                 0, model->gradients + weights, 1);
    if (gradients)
        layers->gemm(state, false, false, samples, count, 1, model->logit_gradients, 1,
                     model->values + weights, count, 0, gradients, stride);
}

void ew_bias_forward(ew_model *model, uint32_t bias)
{
    model->device->layers->activate(model->device->state, EW_IDENTITY, model->sample_count,
                                    model->label_count, model->values + bias, model->logits,
                                    model->label_count);
}

void ew_bias_backward(ew_model *model, uint32_t bias)
{
    model->device->layers->activate_back(model->device->state, EW_IDENTITY, model->sample_count,
                                         model->label_count, model->logits, model->logit_gradients,
                                         model->label_count, model->gradients + bias);
}
