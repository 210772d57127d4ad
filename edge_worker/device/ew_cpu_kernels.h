// ew_cpu_kernels - the CPU device's loops, compiled for three instruction sets.
//
// The source is ew_cpu_kernels.inc; each of ew_cpu_kernels_{base,avx2,avx512}.c compiles it under
// its own name. All give the same bits: sums run over 16 fixed lanes whatever the register width,
// and nothing fuses a multiply with an add (-ffp-contract=off). Meanings: ew_device.h.
#ifndef EW_CPU_KERNELS_H
#define EW_CPU_KERNELS_H

#include "edge_worker/device/ew_device.h"

typedef struct {
    const char *name;
    void (*pool)(const ew_lookups *lookups, const float *dense, uint32_t dense_count, float *out,
                 uint32_t stride);
    void (*wide)(const ew_lookups *lookups, const float *weights, float *logits);
    void (*wide_back)(const ew_lookups *lookups, const float *logit_gradients,
                      float *weight_gradients);
    void (*rows_back)(const ew_lookups *lookups, const float *pooled_gradients, uint32_t stride,
                      const float *weights, float *gradients);
    // c[i][j] = a[i x a_step] x b[j] + beta x c[i][j]
    void (*outer)(uint32_t m, uint32_t n, const float *a, uint32_t a_step, const float *b,
                  float beta, float *c, uint32_t c_stride);
    void (*activate)(ew_activation activation, uint32_t row_count, uint32_t column_count,
                     const float *bias, float *values, uint32_t stride);
    void (*activate_back)(ew_activation activation, uint32_t row_count, uint32_t column_count,
                          const float *values, float *gradients, uint32_t stride,
                          float *bias_gradients);
} ew_cpu_kernels;

extern const ew_cpu_kernels ew_cpu_kernels_base;
#if defined(__x86_64__)
extern const ew_cpu_kernels ew_cpu_kernels_avx2;
extern const ew_cpu_kernels ew_cpu_kernels_avx512;
#endif

#endif
