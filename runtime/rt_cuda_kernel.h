// rt_cuda_kernel - what .cu files need to compile with nvcc as well as for the CPU
// (tests/support/cuda_cpu): launches and shared memory through macros, C headers in C++.
#ifndef RT_CUDA_KERNEL_H
#define RT_CUDA_KERNEL_H

#include <cuda_runtime.h>
#include <float.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __CUDACC__
// The kernel's arguments follow the stream.
#define LAUNCH(kernel, grid, block, shared_bytes, stream, ...) \
    kernel<<<(grid), (block), (shared_bytes), (stream)>>>(__VA_ARGS__)
#define SHARED(type, name, count) __shared__ type name[count]
#define SHARED_DYNAMIC(type, name)                                \
    extern __shared__ __align__(16) unsigned char shared_block[]; \
    type *name = (type *)shared_block
#endif

#define RT_CUDA_WARP 32u
#define RT_CUDA_FULL 0xffffffffu // all lanes of a warp

#define _Noreturn __attribute__((noreturn))
extern "C" {
#include "runtime/rt_base.h"
}
#undef _Noreturn

#endif
