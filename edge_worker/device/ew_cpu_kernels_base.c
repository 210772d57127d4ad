#include "edge_worker/device/ew_cpu_kernels.h"

#define KERNEL static
#define VECTOR_LANES 4
#define KERNELS ew_cpu_kernels_base
#if defined(__aarch64__)
#define KERNELS_NAME "NEON" // what vectors of 16 bytes are there
#else
#define KERNELS_NAME "portable"
#endif
#include "edge_worker/device/ew_cpu_kernels.inc"
