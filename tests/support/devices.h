// devices - on what the conformance tests of devices and CUDA solvers run: the CPU, and the CUDA
// kernels on the CPU (tests/support/cuda_cpu), there in two orders of threads. On a machine with a
// GPU `make gpu-test` links gpu_devices.c instead, which has the GPU.
#ifndef DEVICES_H
#define DEVICES_H

#include "edge_worker/device/ew_device.h"

uint32_t test_device_count(void);

// RT_UNSUPPORTED: not on this machine.
rt_status test_device_open(uint32_t index, ew_device *device, rt_error *error);

// The plug-in whose solvers are tested; NULL: the program's own.
const char *test_plugin_path(void);

// A function of the kernels-on-the-CPU plug-in, by name; NULL where there is none.
void test_plugin_function(const char *name, void *function_p);

#endif
