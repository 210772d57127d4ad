// ew_device_backends - what each device offers to ew_device.c. No one else includes this.
#ifndef EW_DEVICE_BACKENDS_H
#define EW_DEVICE_BACKENDS_H

#include "edge_worker/device/ew_device.h"

typedef struct {
    const char *name; // what the names of its devices start with, up to a colon
    // Fills all of device. RT_UNSUPPORTED, RT_NO_MEMORY: error says why this machine has none.
    // The wish's name is one of these, or "auto".
    rt_status (*open)(const ew_device_wish *wish, ew_device *device, rt_error *error);
} ew_device_backend;

extern const ew_device_backend ew_device_cuda, ew_device_cpu;

#endif
