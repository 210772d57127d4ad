#include "edge_worker/device/ew_cpu_kernels.h"

#if defined(__x86_64__)
#define KERNEL static __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#define VECTOR_LANES 16
#define KERNELS ew_cpu_kernels_avx512
#define KERNELS_NAME "AVX-512"
#include "edge_worker/device/ew_cpu_kernels.inc"
#endif
