#include "edge_worker/device/ew_device.h"

#include <stdio.h>
#include <string.h>

#include "edge_worker/device/ew_device_backends.h"

// In the order in which "auto" tries them.
static const ew_device_backend *const backends[] = {&ew_device_cuda, &ew_device_cpu};

static bool is_of(const ew_device_backend *backend, const char *name)
{
    size_t length = strcspn(name, ":");
    return length == strlen(backend->name) && strncmp(name, backend->name, length) == 0;
}

static rt_status open_any(const ew_device_wish *wish, ew_device *device, rt_error *error)
{
    rt_status status = RT_UNSUPPORTED;
    rt_error why = {0}; // the one before could not be had
    for (size_t i = 0; i < RT_COUNT_OF(backends); i++) {
        rt_error one = {0};
        status = backends[i]->open(wish, device, &one);
        if (!status) {
            const size_t used = strlen(device->description);
            if (i > 0)
                snprintf(device->description + used, sizeof device->description - used,
                         "; not %s: %s", backends[i - 1]->name, why.text);
            return RT_OK;
        }
        why = one;
    }
    if (error)
        *error = why;
    return status;
}

rt_status ew_device_open_as(const ew_device_wish *wish, ew_device *device, rt_error *error)
{
    if (strcmp(wish->name, "auto") == 0)
        return open_any(wish, device, error);
    for (size_t i = 0; i < RT_COUNT_OF(backends); i++)
        if (is_of(backends[i], wish->name))
            return backends[i]->open(wish, device, error);
    return rt_fail(error, RT_UNSUPPORTED, "no device is called \"%s\"", wish->name);
}

rt_status ew_device_open(const char *name, ew_device *device, rt_error *error)
{
    return ew_device_open_as(&(ew_device_wish){.name = name, .threads = 1}, device, error);
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
