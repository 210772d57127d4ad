#include "tests/support/devices.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "edge_worker/device/ew_cuda.h"

#define PLUGIN "liblanyard_cuda_cpu.so"

// Test programs lie in <build>/tests/<kind>, the plug-in in <build>/tests.
const char *test_plugin_path(void)
{
    static char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - sizeof PLUGIN - 1);
    for (int up = 0; up < 2 && length > 0; up++)
        while (length > 0 && path[--length] != '/')
            ;
    snprintf(path + length, sizeof path - (size_t)length, "/%s", PLUGIN);
    return path;
}

void test_plugin_function(const char *name, void *function_p)
{
    void *library = dlopen(test_plugin_path(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    void *symbol = library ? dlsym(library, name) : NULL;
    memcpy(function_p, &symbol, sizeof symbol);
}

uint32_t test_device_count(void)
{
    return 3;
}

rt_status test_device_open(uint32_t index, ew_device *device, rt_error *error)
{
    void (*seed)(uint64_t);
    if (index == 0)
        return ew_device_open("cpu", device, error);
    test_plugin_function("cuda_cpu_seed", &seed);
    if (seed)
        seed(index);
    return ew_cuda_open(test_plugin_path(), "cuda:0", device, error);
}
