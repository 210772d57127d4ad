#include "edge_worker/device/ew_device.h"

#include <string.h>

#include "edge_worker/device/ew_device_backends.h"

// In the order in which "auto" tries them.
static const ew_device_backend *const backends[] = {&ew_device_cpu};

rt_status ew_device_open(const char *name, ew_device *device, rt_error *error)
{
    bool any = strcmp(name, "auto") == 0;
    rt_status status = rt_fail(error, RT_UNSUPPORTED, "no device is called \"%s\"", name);
    for (size_t i = 0; i < RT_COUNT_OF(backends); i++) {
        if (!any && strcmp(name, backends[i]->name) != 0)
            continue;
        status = backends[i]->open(device, error);
        if (status == RT_OK || !any)
            return status;
    }
    return status;
}

void ew_device_close(ew_device *device)
{
    if (device->ops)
        device->ops->close(device->state);
    *device = (ew_device){0};
}

const void *ew_device_stage(const ew_device *device, void *buffer, const void *host, size_t bytes)
{
    if (device->unified)
        return host;
    device->ops->copy(device->state, EW_COPY_IN, buffer, host, bytes);
    return buffer;
}
