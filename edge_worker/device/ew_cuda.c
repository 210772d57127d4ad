#include "edge_worker/device/ew_cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge_worker/device/ew_device_backends.h"
#include "runtime/rt_cuda.h"

#define DEVICES_MAX 1024ul

// The N of "cuda:N"; *given: there is one.
static rt_status parse_index(const char *name, uint32_t *index_p, bool *given, rt_error *error)
{
    const char *digits = name + strlen("cuda");
    char *end = NULL;
    unsigned long index = 0;
    *given = *digits != 0;
    if (*digits == ':' && digits[1] >= '0' && digits[1] <= '9')
        index = strtoul(digits + 1, &end, 10);
    if (*digits && (!end || *end || index >= DEVICES_MAX))
        return rt_fail(error, RT_UNSUPPORTED,
                       "\"%s\" is not a device, expected for example "
                       "\"cuda:0\"",
                       name);
    *index_p = (uint32_t)index;
    return RT_OK;
}

static void describe(ew_device *device, uint32_t index, const char *what, const char *build,
                     uint32_t rank, uint32_t shared_count)
{
    char *text = device->description;
    int length = snprintf(text, sizeof device->description, "cuda:%u: %s, %s", index, what, build);
    if (shared_count > 1 && length > 0 && (size_t)length < sizeof device->description)
        snprintf(text + length, sizeof device->description - (size_t)length,
                 "; for worker %u, of %u GPUs here", rank, shared_count);
}

rt_status ew_cuda_open(const char *path, const ew_device_wish *wish, ew_device *device,
                       rt_error *error)
{
    const bool is_auto = strcmp(wish->name, "auto") == 0;
    const rt_cuda_plugin *plugin;
    char what[96];
    uint32_t index = 0, count = 0;
    bool given;
    void *state;
    const char *name = is_auto ? "cuda" : wish->name;
    rt_status status = parse_index(name, &index, &given, error);
    if (status)
        return status;
    status = rt_cuda_open(path, &plugin, error);
    if (status)
        return status;
    if (!given)
        count = plugin->count();
    if (count > 0)
        index = wish->rank % count;
    status = plugin->probe(index, what, sizeof what, error);
    if (status)
        return status;
    const ew_cuda_table *table = plugin->table("ew_device");
    if (!table)
        return rt_fail(error, RT_UNSUPPORTED, "the CUDA plug-in has no device operations");
    status = table->create(index, wish->tf32, &state, error);
    if (status)
        return status;
    *device = (ew_device){.ops = table->ops,
                          .layers = table->layers,
                          .interactions = table->interactions,
                          .state = state};
    describe(device, index, what, plugin->build, wish->rank, count);
    return RT_OK;
}

static rt_status open_default(const ew_device_wish *wish, ew_device *device, rt_error *error)
{
    return ew_cuda_open(NULL, wish, device, error);
}

const ew_device_backend ew_device_cuda = {"cuda", open_default};
