#include "edge_worker/device/ew_cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge_worker/device/ew_device_backends.h"
#include "runtime/rt_cuda.h"

#define DEVICES_MAX 1024ul

// The N of "cuda:N".
static rt_status parse_index(const char *name, uint32_t *index_p, rt_error *error)
{
    const char *digits = name + strlen("cuda");
    char *end = NULL;
    unsigned long index = 0;
    if (*digits == ':' && digits[1] >= '0' && digits[1] <= '9')
        index = strtoul(digits + 1, &end, 10);
    if (*digits && (!end || *end || index >= DEVICES_MAX))
        return rt_fail(error, RT_UNSUPPORTED, "\"%s\" is no device, expected \"cuda:0\" or so",
                       name);
    *index_p = (uint32_t)index;
    return RT_OK;
}

rt_status ew_cuda_open(const char *path, const char *name, ew_device *device, rt_error *error)
{
    const rt_cuda_plugin *plugin;
    char what[96];
    uint32_t index = 0;
    void *state;
    rt_status status = parse_index(name, &index, error);
    if (!status)
        status = rt_cuda_open(path, &plugin, error);
    if (!status)
        status = plugin->probe(index, what, sizeof what, error);
    if (status)
        return status;
    const ew_cuda_table *table = plugin->table("ew_device");
    if (!table)
        return rt_fail(error, RT_UNSUPPORTED, "the CUDA plug-in has no device operations");
    status = table->create(index, &state, error);
    if (status)
        return status;
    *device = (ew_device){.ops = table->ops,
                          .layers = table->layers,
                          .interactions = table->interactions,
                          .state = state};
    snprintf(device->description, sizeof device->description, "cuda:%u: %s, %s", index, what,
             plugin->build);
    return RT_OK;
}

static rt_status open_default(const char *name, ew_device *device, rt_error *error)
{
    return ew_cuda_open(NULL, strcmp(name, "auto") == 0 ? "cuda:0" : name, device, error);
}

const ew_device_backend ew_device_cuda = {"cuda", open_default};
