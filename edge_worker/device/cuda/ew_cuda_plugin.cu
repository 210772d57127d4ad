// What liblanyard_cuda.so shows: one symbol (rt_cuda.h).
#include "edge_worker/device/cuda/ew_cuda_parts.h"

#include <stdio.h>
#include <string.h>

extern "C" {
#include "dispatch/solvers/dp_cuda.h"
#include "edge_worker/collective/ew_collective.h"
#include "runtime/rt_cuda.h"
extern const dp_cuda_table dp_hungarian_cuda_table;
extern const ew_cuda_table ew_cuda_device_table;
extern const ew_collective_ops *const ew_cuda_nccl_ops;
extern const rt_cuda_plugin lanyard_cuda_plugin __attribute__((visibility("default")));
}

// cudaGetDeviceCount leaves its argument as it is when it fails.
static uint32_t count_devices(void)
{
    int count = 0;
    return cudaGetDeviceCount(&count) == cudaSuccess && count > 0 ? (uint32_t)count : 0;
}

#define ANSWER 0x1a2b3c4du

static __global__ void answer(uint32_t *out)
{
    *out = ANSWER;
}

// Whether a kernel of ours runs on the thread's device: its properties do not tell.
static cudaError_t try_kernel(void)
{
    uint32_t *out = NULL, got = 0;
    cudaStream_t stream = NULL;
    cudaError_t failed = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    if (!failed)
        failed = cudaMalloc((void **)&out, sizeof *out);
    if (!failed) {
        LAUNCH(answer, dim3(1), dim3(1), 0, stream, out);
        failed = cudaGetLastError();
    }
    if (!failed)
        failed = cudaMemcpyAsync(&got, out, sizeof got, cudaMemcpyDeviceToHost, stream);
    if (!failed)
        failed = cudaStreamSynchronize(stream);
    if (!failed && got != ANSWER)
        failed = cudaErrorIllegalAddress;
    if (out)
        (void)cudaFree(out);
    if (stream)
        (void)cudaStreamDestroy(stream);
    (void)cudaGetLastError();
    return failed;
}

static rt_status probe(uint32_t index, char *name, size_t size, rt_error *error)
{
    int count = 0;
    cudaDeviceProp properties;
    cudaError_t failed = cudaGetDeviceCount(&count);
    if (failed == cudaErrorInsufficientDriver)
        return rt_fail(error, RT_UNSUPPORTED, "the NVIDIA driver is missing or too old: %s",
                       cudaGetErrorString(failed));
    if (failed == cudaErrorNoDevice || (!failed && count == 0))
        return rt_fail(error, RT_UNSUPPORTED, "there is no NVIDIA device");
    if (!failed && index >= (uint32_t)count)
        return rt_fail(error, RT_UNSUPPORTED, "there is no device cuda:%u, only %d", index, count);
    if (!failed)
        failed = cudaGetDeviceProperties(&properties, (int)index);
    if (failed)
        return rt_fail(error, RT_UNSUPPORTED, "%s", cudaGetErrorString(failed));
    if (properties.major * 10 + properties.minor < 75)
        return rt_fail(error, RT_UNSUPPORTED, "%s has compute capability %d.%d, 7.5 is needed",
                       properties.name, properties.major, properties.minor);
    failed = cudaSetDevice((int)index);
    if (!failed)
        failed = try_kernel();
    if (failed == cudaErrorNoKernelImageForDevice)
        return rt_fail(error, RT_UNSUPPORTED,
                       "%s has compute capability %d.%d, for which this build has no code: make "
                       "program GPUS=%d%d",
                       properties.name, properties.major, properties.minor, properties.major,
                       properties.minor);
    if (failed)
        return rt_fail(error, RT_UNSUPPORTED, "%s runs no kernel: %s", properties.name,
                       cudaGetErrorString(failed));
    snprintf(name, size, "%s, sm_%d%d, %d processors, %.0f GB", properties.name, properties.major,
             properties.minor, properties.multiProcessorCount,
             (double)properties.totalGlobalMem * 1e-9);
    return RT_OK;
}

static const void *table(const char *name)
{
    if (strcmp(name, "ew_device") == 0)
        return &ew_cuda_device_table;
    if (strcmp(name, "dp_hungarian") == 0)
        return &dp_hungarian_cuda_table;
    if (strcmp(name, "ew_nccl") == 0)
        return ew_cuda_nccl_ops;
    return NULL;
}

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
#ifdef __CUDACC__
#define BUILD "CUDA " TEXT(__CUDACC_VER_MAJOR__) "." TEXT(__CUDACC_VER_MINOR__)
#elif defined(CUDA_CPU_PTX)
#define BUILD "the kernels' PTX on the CPU, for tests"
#else
#define BUILD "kernels on the CPU, for tests"
#endif

const rt_cuda_plugin lanyard_cuda_plugin = {RT_CUDA_ABI, BUILD, count_devices, probe, table};
