// ew_cuda - a GPU as a device, through the plug-in (rt_cuda).
//
// The plug-in holds the tables; nothing here needs CUDA to build or to start.
#ifndef EW_CUDA_H
#define EW_CUDA_H

#include "edge_worker/device/ew_device.h"

// "ew_device" in the plug-in.
typedef struct {
    const ew_device_ops *ops;
    const ew_layer_ops *layers;
    const ew_interaction_ops *interactions;
    // Device number index; tf32: of ew_device_wish. RT_UNSUPPORTED, RT_NO_MEMORY.
    rt_status (*create)(uint32_t index, bool tf32, void **state_p, rt_error *error);
} ew_cuda_table;

// Opens "cuda:N", or with "cuda" or "auto" device number rank modulo their count, with the plug-in
// at path (NULL: as rt_cuda_open finds it). RT_UNSUPPORTED: error says what this machine or build
// lacks; RT_NO_MEMORY.
rt_status ew_cuda_open(const char *path, const ew_device_wish *wish, ew_device *device,
                       rt_error *error);

#endif
