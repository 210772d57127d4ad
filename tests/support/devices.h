// devices - on what the conformance tests of devices and CUDA solvers run: the CPU, and the CUDA
// kernels on the CPU (tests/support/cuda_cpu), there in two orders of threads. On a machine with a
// GPU `make gpu-test` links gpu_devices.c instead, which has the GPU.
#ifndef DEVICES_H
#define DEVICES_H

#include "dispatch/solvers/dp_solver.h"
#include "edge_worker/device/ew_device.h"

uint32_t test_device_count(void);

// RT_UNSUPPORTED: not on this machine.
rt_status test_device_open(uint32_t index, ew_device *device, rt_error *error);

// The plug-in that these devices come from; NULL: where the program finds it.
const char *test_plugin_path(void);

// The solver of kind: one of the CPU's, or the plug-in's. NULL: there is none.
const dp_solver_ops *test_solver(rt_solver_kind kind);

// Whether the next problem, of so many rows times sinks, is one for kind: what runs the kernels on
// the CPU is slow, and takes one of many.
bool test_solver_takes(rt_solver_kind kind, uint64_t size);

// By how much a sweep over many problems is to be cut down: 1, or more under a sanitizer that makes
// kernels on the CPU slow.
uint32_t test_device_slowness(void);

// A function of the kernels-on-the-CPU plug-in, by name; NULL where there is none.
void test_plugin_function(const char *name, void *function_p);

#endif
