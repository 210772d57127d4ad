// tests/support/devices.h for a machine with a GPU.
#include "tests/support/devices.h"

#include <string.h>

uint32_t test_device_count(void)
{
    return 2;
}

// The CPU device, with gpu_blas.c, is the reference.
rt_status test_device_open(uint32_t index, ew_device *device, rt_error *error)
{
    return ew_device_open(index == 0 ? "cpu" : "cuda:0", device, error);
}

const char *test_plugin_path(void)
{
    return NULL;
}

void test_plugin_function(const char *name, void *function_p)
{
    (void)name;
    memset(function_p, 0, sizeof(void *));
}

const dp_solver_ops *test_solver(rt_solver_kind kind)
{
    return dp_solver_find(kind);
}

bool test_solver_takes(rt_solver_kind kind, uint64_t size)
{
    (void)kind, (void)size;
    return true;
}

uint32_t test_device_slowness(void)
{
    return 1;
}
