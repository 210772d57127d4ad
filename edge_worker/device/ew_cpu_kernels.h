// ew_cpu_kernels - the CPU device's loops, compiled for three instruction sets.
//
// The source is ew_cpu_kernels.inc (layers) and ew_cpu_interactions.inc; each of
// ew_cpu_kernels_{base,avx2,avx512}.c compiles it under its own name. All give the same bits: sums
// run over 16 fixed lanes whatever the register width, and nothing fuses a multiply with an add
// (-ffp-contract=off). Meanings: ew_device.h.
#ifndef EW_CPU_KERNELS_H
#define EW_CPU_KERNELS_H

#include "edge_worker/device/ew_device.h"

typedef struct {
    const char *name;
    void (*pool)(const ew_lookups *lookups, const float *dense, uint32_t dense_count, float *out,
                 uint32_t stride);
    // wide: row_scalars of all rows first, then what samples make of them. wide_back likewise: the
    // rows, then the weights of fields [from, to).
    void (*wide_rows)(const ew_lookups *lookups, const float *weights);
    void (*wide_samples)(const ew_lookups *lookups, float *logits);
    void (*wide_back_rows)(const ew_lookups *lookups, const float *logit_gradients);
    void (*wide_back_fields)(const ew_lookups *lookups, uint32_t from, uint32_t to,
                             float *weight_gradients);
    void (*rows_back)(const ew_lookups *lookups, const float *pooled_gradients, uint32_t stride,
                      const float *weights, float *gradients);
    // c[i][j] = a[i x a_step] x b[j] + beta x c[i][j]
    void (*outer)(uint32_t m, uint32_t n, const float *a, uint32_t a_step, const float *b,
                  float beta, float *c, uint32_t c_stride);
    // c (m x n) = a op(b) + beta c, every row by itself: op(b)'s rows are b's columns, if
    // transposed.
    void (*product)(bool b_transposed, uint32_t m, uint32_t n, uint32_t k, const float *a,
                    uint32_t a_stride, const float *b, uint32_t b_stride, float beta, float *c,
                    uint32_t c_stride);
    void (*activate)(ew_activation activation, uint32_t row_count, uint32_t column_count,
                     const float *bias, float *values, uint32_t stride);
    void (*activate_back)(ew_activation activation, uint32_t row_count, uint32_t column_count,
                          const float *values, float *gradients, uint32_t stride,
                          float *bias_gradients);
    void (*fm)(uint32_t sample_count, uint32_t count, uint32_t dim, const float *x, uint32_t stride,
               float *sums, float *logits);
    void (*fm_back)(uint32_t sample_count, uint32_t count, uint32_t dim, const float *x,
                    uint32_t stride, const float *sums, const float *logit_gradients,
                    float *x_gradients);
    void (*cross_matrix)(uint32_t sample_count, uint32_t dim, const float *x0, const float *x,
                         const float *bias, float *z, float *next, uint32_t stride);
    void (*cross_matrix_back)(uint32_t sample_count, uint32_t dim, bool is_first, bool is_last,
                              const float *x0, const float *z, const float *next_gradients,
                              float *z_gradients, float *x0_gradients, float *bias_gradients,
                              uint32_t stride);
    void (*dots)(uint32_t sample_count, uint32_t count, uint32_t dim, const float *x,
                 uint32_t stride, float *out, uint32_t out_stride);
    void (*dots_back)(uint32_t sample_count, uint32_t count, uint32_t dim, const float *x,
                      uint32_t stride, const float *out_gradients, uint32_t out_stride,
                      float *x_gradients);
    void (*gmf)(uint32_t sample_count, uint32_t dim, const float *u, const float *v,
                uint32_t stride, const float *weights, float *logits);
    void (*gmf_back)(uint32_t sample_count, uint32_t dim, const float *u, const float *v,
                     uint32_t stride, const float *weights, const float *logit_gradients,
                     float *u_gradients, float *v_gradients, float *weight_gradients);
} ew_cpu_kernels;

extern const ew_cpu_kernels ew_cpu_kernels_base;
#if defined(__x86_64__)
extern const ew_cpu_kernels ew_cpu_kernels_avx2;
extern const ew_cpu_kernels ew_cpu_kernels_avx512;
#endif

#endif
