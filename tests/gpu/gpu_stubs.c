// What tests on a GPU do without: a BLAS for the CPU that they compare with (plain loops instead),
// and the checksums of model files.
#include "edge_worker/device/ew_blas.h"
#include "runtime/rt_hash.h"

#include <stdio.h>

static void sgemm(int order, int a_trans, int b_trans, int m, int n, int k, float alpha,
                  const float *a, int a_stride, const float *b, int b_stride, float beta, float *c,
                  int c_stride)
{
    rt_assert(order == EW_BLAS_ROW_MAJOR);
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            double sum = 0;
            for (int l = 0; l < k; l++)
                sum += (double)(a_trans == EW_BLAS_TRANS ? a[(size_t)l * a_stride + i]
                                                         : a[(size_t)i * a_stride + l]) *
                       (b_trans == EW_BLAS_TRANS ? b[(size_t)j * b_stride + l]
                                                 : b[(size_t)l * b_stride + j]);
            float *to = &c[(size_t)i * c_stride + j];
            *to = (float)(alpha * sum + (beta == 0 ? 0 : (double)beta * *to));
        }
}

static void sgemv(int order, int trans, int m, int n, float alpha, const float *a, int a_stride,
                  const float *x, int x_step, float beta, float *y, int y_step)
{
    int rows = trans == EW_BLAS_TRANS ? n : m, terms = trans == EW_BLAS_TRANS ? m : n;
    sgemm(order, trans, EW_BLAS_NO_TRANS, rows, 1, terms, alpha, a, a_stride, x, x_step, beta, y,
          y_step);
}

rt_status ew_blas_open(ew_blas *blas, rt_error *error)
{
    (void)error;
    *blas = (ew_blas){.sgemm = sgemm, .sgemv = sgemv};
    snprintf(blas->description, sizeof blas->description, "plain loops");
    return RT_OK;
}

void ew_blas_close(ew_blas *blas)
{
    *blas = (ew_blas){0};
}

uint64_t rt_hash_bytes(const void *bytes, size_t size)
{
    (void)bytes, (void)size;
    rt_assert_failed("no model files here", __FILE__, __LINE__);
}
