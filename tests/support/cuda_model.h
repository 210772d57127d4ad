// cuda_model - a model on the first device of the CUDA plug-in (tests/support/devices.h), and a
// slab of rows beside it, with initial values.
#ifndef CUDA_MODEL_H
#define CUDA_MODEL_H

#include "edge_worker/device/ew_cuda.h"
#include "edge_worker/model/ew_model.h"
#include "runtime/numbers/rt_optimizer.h"
#include "tests/support/devices.h"
#include "tests/support/test.h"

// values: value_count floats, that the slab gets, too.
static inline void cuda_model_open(const ew_model_config *config, ew_device *device,
                                   ew_model **model_p, float **slab_p, float *values,
                                   uint32_t value_count)
{
    rt_error error = {0};
    if (ew_cuda_open(test_plugin_path(), &(ew_device_wish){.name = "cuda:0"}, device, &error) ||
        ew_model_create(config, device, model_p, &error))
        fail_msg("%s", error.text);
    *slab_p = device->ops->alloc(device->state, value_count);
    rt_row_init(1, 2, 1, value_count, values);
    device->ops->copy(device->state, EW_COPY_IN, *slab_p, values, value_count * sizeof *values);
    assert_int_equal(device->ops->finish(device->state, &error), RT_OK);
}

static inline void cuda_model_close(ew_device *device, ew_model *model, float *slab)
{
    device->ops->free(device->state, slab);
    ew_model_destroy(model);
    ew_device_close(device);
}

#endif
