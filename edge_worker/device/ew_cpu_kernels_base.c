#include "edge_worker/device/ew_cpu_kernels.h"

#define KERNEL static
#define VECTOR_LANES 4
#define KERNELS ew_cpu_kernels_base
#define KERNELS_NAME "portable"
#include "edge_worker/device/ew_cpu_kernels.inc"
