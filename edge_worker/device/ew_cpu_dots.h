// ew_cpu_dots - the interactions of DLRM by matrix products, where vectors are long.
//
// As dots and dots_back of ew_device.h. The library computes every product of a pair twice, and
// still needs less time than loops that do not fuse multiplication and addition.
#ifndef EW_CPU_DOTS_H
#define EW_CPU_DOTS_H

#include "edge_worker/device/ew_blas.h"
#include "runtime/rt_base.h"

// Whether that is so, and within what these functions can do.
bool ew_cpu_dots_fit(uint32_t count, uint32_t dim);

void ew_cpu_dots(const ew_blas *blas, uint32_t sample_count, uint32_t count, uint32_t dim,
                 const float *x, uint32_t stride, float *out, uint32_t out_stride);
void ew_cpu_dots_back(const ew_blas *blas, uint32_t sample_count, uint32_t count, uint32_t dim,
                      const float *x, uint32_t stride, const float *out_gradients,
                      uint32_t out_stride, float *x_gradients);

#endif
