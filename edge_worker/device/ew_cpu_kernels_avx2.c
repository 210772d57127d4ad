#include "edge_worker/device/ew_cpu_kernels.h"

#if defined(__x86_64__)
#define KERNEL static __attribute__((target("avx2")))
#define VECTOR_LANES 8
#define KERNELS ew_cpu_kernels_avx2
#define KERNELS_NAME "AVX2"
#include "edge_worker/device/ew_cpu_kernels.inc"
#endif
