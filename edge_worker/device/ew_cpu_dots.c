#include "edge_worker/device/ew_cpu_dots.h"

#include <string.h>

#define COUNT_MAX 64u
#define DIM_MIN 32u

bool ew_cpu_dots_fit(uint32_t count, uint32_t dim)
{
    return count <= COUNT_MAX && dim >= DIM_MIN;
}

void ew_cpu_dots(const ew_blas *blas, uint32_t sample_count, uint32_t count, uint32_t dim,
                 const float *x, uint32_t stride, float *out, uint32_t out_stride)
{
    float products[COUNT_MAX * COUNT_MAX];
    const int n = (int)count, k = (int)dim;
    for (uint32_t i = 0; i < sample_count; i++) {
        const float *row = x + (size_t)i * stride;
        float *to = out + (size_t)i * out_stride;
        blas->sgemm(EW_BLAS_ROW_MAJOR, EW_BLAS_NO_TRANS, EW_BLAS_TRANS, n, n, k, 1, row, k, row, k,
                    0, products, n);
        memcpy(to, row + (size_t)(count - 1) * dim, dim * sizeof *to);
        to += dim;
        for (uint32_t a = 1; a < count; a++, to += a - 1)
            memcpy(to, products + a * count, a * sizeof *to);
    }
}

// The symmetric matrix of pair gradients, 0 for a vector with itself.
static void spread(uint32_t count, const float *pairs, float *matrix)
{
    for (uint32_t a = 0; a < count; a++) {
        matrix[a * count + a] = 0;
        for (uint32_t b = 0; b < a; b++)
            matrix[a * count + b] = matrix[b * count + a] = *pairs++;
    }
}

void ew_cpu_dots_back(const ew_blas *blas, uint32_t sample_count, uint32_t count, uint32_t dim,
                      const float *x, uint32_t stride, const float *out_gradients,
                      uint32_t out_stride, float *x_gradients)
{
    float matrix[COUNT_MAX * COUNT_MAX];
    const int n = (int)count, k = (int)dim;
    for (uint32_t i = 0; i < sample_count; i++) {
        const float *from = out_gradients + (size_t)i * out_stride;
        float *to = x_gradients + (size_t)i * stride, *last = to + (size_t)(count - 1) * dim;
        spread(count, from + dim, matrix);
        blas->sgemm(EW_BLAS_ROW_MAJOR, EW_BLAS_NO_TRANS, EW_BLAS_NO_TRANS, n, k, n, 1, matrix, n,
                    x + (size_t)i * stride, k, 0, to, k);
        for (uint32_t d = 0; d < dim; d++)
            last[d] += from[d];
    }
}
