// ew_blas - the few BLAS functions that the CPU device uses, from the fastest library at hand.
//
// OpenBLAS reads its settings in its constructor and (0.3.21, Debian 12) takes newer Intel CPUs
// for one of 2004, at a quarter of their speed. So it is loaded at run time, with the core type
// named for what CPUID shows and one thread, unless the user set these variables.
// Immutable once open; any thread may call the functions.
#ifndef EW_BLAS_H
#define EW_BLAS_H

#include "runtime/rt_base.h"

// Values of the CBLAS standard (BLAS Technical Forum, 2001, appendix B).
enum { EW_BLAS_ROW_MAJOR = 101, EW_BLAS_NO_TRANS = 111, EW_BLAS_TRANS = 112 };

typedef struct {
    void *library;
    void (*sgemm)(int order, int a_trans, int b_trans, int m, int n, int k, float alpha,
                  const float *a, int a_stride, const float *b, int b_stride, float beta, float *c,
                  int c_stride);
    void (*sgemv)(int order, int trans, int m, int n, float alpha, const float *a, int a_stride,
                  const float *x, int x_step, float beta, float *y, int y_step);
    char description[96]; // "OpenBLAS 0.3.21 SkylakeX"
} ew_blas;

// Sets environment variables while the library loads: call before other threads start.
// RT_UNSUPPORTED: none found; error names the Debian package.
rt_status ew_blas_open(ew_blas *blas, rt_error *error);
void ew_blas_close(ew_blas *blas);

#endif
