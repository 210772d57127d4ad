// Kernels with the faults that cuda_runtime.h promises to show;
// tests/unit/edge_worker/test_cuda_cpu.c runs them, each in a process of its own.
#include "runtime/rt_cuda_kernel.h"

#define THREADS 64u

static __global__ void divergent(uint32_t *out)
{
    if (threadIdx.x < 40)
        __syncthreads();
    out[threadIdx.x] = 1;
}

static __global__ void two_barriers(uint32_t *out)
{
    if (threadIdx.x % 2)
        __syncthreads();
    else
        __syncthreads();
    out[threadIdx.x] = 1;
}

static __global__ void partial_warp(uint32_t *out)
{
    out[threadIdx.x] = __shfl_xor_sync(RT_CUDA_FULL, threadIdx.x, 1);
}

// Reads its neighbour's number without waiting for it.
static __global__ void missing_barrier(float *out)
{
    SHARED(float, numbers, THREADS);
    numbers[threadIdx.x] = (float)threadIdx.x;
    out[threadIdx.x] = numbers[(threadIdx.x + 1) % THREADS];
}

static __global__ void with_barrier(float *out)
{
    SHARED(float, numbers, THREADS);
    numbers[threadIdx.x] = (float)threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = numbers[(threadIdx.x + 1) % THREADS];
}

static __global__ void past_shared(float *out)
{
    SHARED(float, numbers, THREADS);
    numbers[threadIdx.x + 1] = 1;
    __syncthreads();
    out[threadIdx.x] = numbers[threadIdx.x];
}

static __global__ void past_device(float *out)
{
    out[THREADS + threadIdx.x] = 1;
}

// Blocks add to one number.
static __global__ void between_blocks(float *out)
{
    if (threadIdx.x == 0)
        *out += 1;
}

static __global__ void touch(float *out)
{
    if (out)
        *out = 1;
}

extern "C" __attribute__((visibility("default"))) float cuda_cpu_faulty(int which)
{
    float *out = NULL, host[THREADS] = {0};
    const dim3 one(1), block(THREADS);
    if (cudaMalloc((void **)&out, THREADS * sizeof *out) != cudaSuccess)
        return -1;
    (void)cudaMemsetAsync(out, 0, THREADS * sizeof *out, NULL);
    switch (which) {
    case 0:
        LAUNCH(divergent, one, block, 0, NULL, (uint32_t *)(void *)out);
        break;
    case 1:
        LAUNCH(two_barriers, one, block, 0, NULL, (uint32_t *)(void *)out);
        break;
    case 2:
        LAUNCH(partial_warp, one, dim3(40), 0, NULL, (uint32_t *)(void *)out);
        break;
    case 3:
        LAUNCH(missing_barrier, one, block, 0, NULL, out);
        break;
    case 4:
        LAUNCH(with_barrier, one, block, 0, NULL, out);
        break;
    case 5:
        LAUNCH(past_shared, one, block, 0, NULL, out);
        break;
    case 6:
        LAUNCH(past_device, one, block, 0, NULL, out);
        break;
    case 7:
        LAUNCH(between_blocks, dim3(4), block, 0, NULL, out);
        break;
    case 8:
        LAUNCH(touch, one, one, 0, NULL, host);
        break;
    case 9:
        *out = 1; // the host
        break;
    case 10:
        LAUNCH(touch, one, dim3(2048), 0, NULL, out);
        return (float)cudaGetLastError();
    }
    (void)cudaMemcpyAsync(host, out, sizeof host, cudaMemcpyDeviceToHost, NULL);
    (void)cudaFree(out);
    float sum = 0;
    for (uint32_t i = 0; i < THREADS; i++)
        sum += host[i];
    return sum;
}
