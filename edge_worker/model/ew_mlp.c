#include <stdio.h>

#include "edge_worker/model/ew_model_parts.h"

rt_status ew_mlp_create(ew_model *model, ew_mlp *mlp, const char *name, uint32_t input_count,
                        const uint32_t *widths, uint32_t layer_count, rt_error *error)
{
    uint32_t samples = model->config.sample_count_max, widest = 0;
    rt_assert(layer_count >= 1 && layer_count <= RT_MLP_LAYERS_MAX);
    mlp->layer_count = layer_count;
    mlp->widths[0] = input_count;
    for (uint32_t i = 0; i < layer_count; i++) {
        char parameter[RT_TENSOR_NAME_MAX];
        mlp->widths[i + 1] = widths[i];
        snprintf(parameter, sizeof parameter, "%s.%u.weight", name, i);
        mlp->weights[i] =
            ew_model_parameter(model, parameter, widths[i], mlp->widths[i], mlp->widths[i]);
        snprintf(parameter, sizeof parameter, "%s.%u.bias", name, i);
        mlp->biases[i] = ew_model_parameter(model, parameter, 0, widths[i], mlp->widths[i]);
        rt_status status =
            ew_model_buffer(model, (size_t)samples * ew_stride(widths[i]), &mlp->values[i], error);
        if (status != RT_OK)
            return status;
        widest = ew_stride(widths[i]) > widest ? ew_stride(widths[i]) : widest;
    }
    for (uint32_t i = 0; i < 2; i++) {
        rt_status status =
            ew_model_buffer(model, (size_t)samples * widest, &mlp->gradients[i], error);
        if (status != RT_OK)
            return status;
    }
    return RT_OK;
}

void ew_mlp_forward(ew_model *model, ew_mlp *mlp, const float *input, uint32_t input_stride)
{
    const ew_layer_ops *layers = model->device->layers;
    void *state = model->device->state;
    uint32_t samples = model->lookups.sample_count;
    mlp->input = input;
    mlp->input_stride = input_stride;
    for (uint32_t i = 0; i < mlp->layer_count; i++) {
        uint32_t in = mlp->widths[i], out = mlp->widths[i + 1], stride = ew_stride(out);
        layers->gemm(state, false, true, samples, out, in, input, input_stride,
                     model->values + mlp->weights[i], in, 0, mlp->values[i], stride);
        layers->activate(state, EW_RELU, samples, out, model->values + mlp->biases[i],
                         mlp->values[i], stride);
        input = mlp->values[i];
        input_stride = stride;
    }
}

float *ew_mlp_output_gradients(ew_mlp *mlp)
{
    return mlp->gradients[mlp->layer_count % 2];
}

void ew_mlp_backward(ew_model *model, ew_mlp *mlp, uint32_t input_columns, float *input_gradients,
                     uint32_t input_gradients_stride)
{
    const ew_layer_ops *layers = model->device->layers;
    void *state = model->device->state;
    uint32_t samples = model->lookups.sample_count;
    for (uint32_t i = mlp->layer_count; i-- > 0;) {
        uint32_t in = mlp->widths[i], out = mlp->widths[i + 1], stride = ew_stride(out);
        float *gradients = mlp->gradients[(i + 1) % 2];
        const float *input = i > 0 ? mlp->values[i - 1] : mlp->input;
        uint32_t input_stride = i > 0 ? ew_stride(in) : mlp->input_stride;
        layers->activate_back(state, EW_RELU, samples, out, mlp->values[i], gradients, stride,
                              model->gradients + mlp->biases[i]);
        layers->gemm(state, true, false, out, in, samples, gradients, stride, input, input_stride,
                     0, model->gradients + mlp->weights[i], in);
        ew_model_done(model, mlp->weights[i]);
        if (i > 0)
            layers->gemm(state, false, false, samples, in, out, gradients, stride,
                         model->values + mlp->weights[i], in, 0, mlp->gradients[i % 2],
                         ew_stride(in));
        else if (input_columns > 0)
            layers->gemm(state, false, false, samples, input_columns, out, gradients, stride,
                         model->values + mlp->weights[0], in, 0, input_gradients,
                         input_gradients_stride);
    }
}
