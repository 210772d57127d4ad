// Several labels: one number per sample into and out of their logits. Products with ones, since
// that is what every device has.
#include "edge_worker/model/ew_model_parts.h"

static void product(ew_model *model, uint32_t m, uint32_t n, uint32_t k, const float *a,
                    uint32_t a_stride, const float *b, float beta, float *c, uint32_t c_stride)
{
    model->device->layers->gemm(model->device->state, false, false, m, n, k, a, a_stride, b, n,
                                beta, c, c_stride);
}

rt_status ew_labels_create(ew_model *model, rt_error *error)
{
    const ew_device *device = model->device;
    const uint32_t samples = model->config.sample_count_max;
    model->units_count = (uint32_t)rt_max_u64(samples, model->label_count);
    rt_status status = ew_model_buffer(model, model->units_count + (size_t)1, &model->units, error);
    if (status)
        return status;
    float *ones = rt_alloc(model->units_count, sizeof *ones);
    if (!ones)
        return rt_fail(error, RT_NO_MEMORY, "no memory for the labels");
    for (uint32_t i = 0; i < model->units_count; i++)
        ones[i] = 1;
    device->ops->copy(device->state, EW_COPY_IN, model->units, ones,
                      model->units_count * sizeof *ones);
    status = device->ops->finish(device->state, error);
    rt_free(ones);
    return status;
}

rt_status ew_labels_column(ew_model *model, float **column_p, rt_error *error)
{
    if (model->label_count == 1)
        return RT_OK;
    return ew_model_buffer(model, model->config.sample_count_max, column_p, error);
}

void ew_labels_clear(ew_model *model, float *column)
{
    product(model, model->sample_count, 1, 1, model->units, 1, model->units + model->units_count, 0,
            column, 1);
}

void ew_labels_add(ew_model *model, const float *column, uint32_t label)
{
    product(model, model->sample_count, 1, 1, column, 1, model->units, 1, model->logits + label,
            model->label_count);
}

void ew_labels_take(ew_model *model, uint32_t label, float *column)
{
    product(model, model->sample_count, 1, 1, model->logit_gradients + label, model->label_count,
            model->units, 0, column, 1);
}

void ew_labels_spread(ew_model *model, const float *column)
{
    product(model, model->sample_count, model->label_count, 1, column, 1, model->units, 1,
            model->logits, model->label_count);
}

void ew_labels_sum(ew_model *model, float *column)
{
    product(model, model->sample_count, 1, model->label_count, model->logit_gradients,
            model->label_count, model->units, 0, column, 1);
}

void ew_labels_copy(ew_model *model, uint32_t count, const float *from, float *to)
{
    product(model, count, 1, 1, from, 1, model->units, 0, to, 1);
}

void ew_labels_add_block(ew_model *model, uint32_t count, const float *from, float *to)
{
    product(model, count, 1, 1, from, 1, model->units, 1, to, 1);
}
