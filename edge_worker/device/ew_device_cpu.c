#include <math.h>
#include <stdio.h>
#include <string.h>

#include "edge_worker/device/ew_blas.h"
#include "edge_worker/device/ew_cpu_cross.h"
#include "edge_worker/device/ew_cpu_dots.h"
#include "edge_worker/device/ew_cpu_kernels.h"
#include "edge_worker/device/ew_device_backends.h"

#define PREFETCH_ROWS 8u // ahead

typedef struct {
    ew_blas blas;
    const ew_cpu_kernels *kernels;
} cpu_state;

static void *cpu_alloc(void *state, size_t count)
{
    (void)state;
    return rt_alloc(count, sizeof(float));
}

static void cpu_free(void *state, void *block)
{
    (void)state;
    rt_free(block);
}

static void cpu_copy(void *state, ew_copy kind, void *to, const void *from, size_t bytes)
{
    (void)state, (void)kind;
    if (bytes > 0)
        memcpy(to, from, bytes);
}

static rt_status cpu_finish(void *state, rt_error *error)
{
    (void)state, (void)error;
    return RT_OK;
}

static float *slot_row(float *slab, uint32_t row_stride, uint32_t slot)
{
    return slab + (size_t)slot * row_stride;
}

// Rows lie anywhere in the slab; beyond some lines the hardware sees where it goes.
static void prefetch_row(const float *row, uint32_t float_count)
{
    for (uint32_t i = 0; i < float_count && i < 128; i += 16)
        __builtin_prefetch(row + i, 1);
}

static void cpu_rows_init(void *state, const rt_optimizer_config *optimizer, uint32_t dim,
                          uint64_t seed, float scale, const uint64_t *keys, const uint32_t *slots,
                          uint32_t count, float *slab, uint32_t row_stride)
{
    (void)state;
    for (uint32_t k = 0; k < count; k++) {
        float *row = slot_row(slab, row_stride, slots[k]);
        rt_row_init(keys[k], seed, scale, dim, row);
        rt_optimizer_init_state(optimizer, dim, row + dim);
    }
}

static void cpu_rows_get(void *state, const float *slab, uint32_t row_stride, uint32_t float_count,
                         const uint32_t *slots, uint32_t count, float *packed)
{
    (void)state;
    for (uint32_t k = 0; k < count; k++)
        memcpy(packed + (size_t)k * float_count, slab + (size_t)slots[k] * row_stride,
               float_count * sizeof(float));
}

static void cpu_rows_put(void *state, float *slab, uint32_t row_stride, uint32_t float_count,
                         const uint32_t *slots, uint32_t count, const float *packed)
{
    (void)state;
    for (uint32_t k = 0; k < count; k++)
        memcpy(slot_row(slab, row_stride, slots[k]), packed + (size_t)k * float_count,
               float_count * sizeof(float));
}

static void cpu_rows_step(void *state, const rt_optimizer_config *optimizer, uint32_t dim,
                          uint64_t step, float *slab, uint32_t row_stride, const uint32_t *slots,
                          const uint32_t *rows, uint32_t count, const float *gradients)
{
    (void)state;
    uint32_t floats = dim + rt_optimizer_state_floats(optimizer, dim);
    for (uint32_t k = 0; k < count; k++) {
        float *row = slot_row(slab, row_stride, slots[k]);
        uint32_t r = rows ? rows[k] : k;
        if (k + PREFETCH_ROWS < count)
            prefetch_row(slot_row(slab, row_stride, slots[k + PREFETCH_ROWS]), floats);
        rt_optimizer_step(optimizer, dim, step, row, row + dim, gradients + (size_t)r * dim);
    }
}

// A stable counting sort. row_starts[r + 1] first counts row r, then is where its next look-up
// goes, and so ends as the end of row r.
static void cpu_index(void *state, const ew_lookups *lookups)
{
    (void)state;
    uint32_t *starts = lookups->row_starts, row_count = lookups->row_count;
    memset(starts, 0, (row_count + (size_t)1) * sizeof *starts);
    memset(lookups->row_fields, 0, row_count * sizeof *lookups->row_fields);
    for (uint32_t l = 0; l < lookups->lookup_count; l++)
        if (lookups->lookup_rows[l] + 1 < row_count)
            starts[lookups->lookup_rows[l] + 2]++;
    for (uint32_t r = 2; r <= row_count; r++)
        starts[r] += starts[r - 1];
    for (uint32_t i = 0, bag = 0; i < lookups->sample_count; i++) {
        for (uint32_t f = 0; f < lookups->field_count; f++, bag++) {
            uint32_t from = lookups->bag_offsets ? lookups->bag_offsets[bag] : bag;
            uint32_t end = lookups->bag_offsets ? lookups->bag_offsets[bag + 1] : bag + 1;
            for (uint32_t l = from; l < end; l++) {
                uint32_t row = lookups->lookup_rows[l];
                lookups->row_fields[row] = f;
                lookups->row_samples[starts[row + 1]++] = i;
            }
        }
    }
}

static void cpu_pool(void *state, const ew_lookups *lookups, const float *dense,
                     uint32_t dense_count, float *out, uint32_t stride)
{
    ((cpu_state *)state)->kernels->pool(lookups, dense, dense_count, out, stride);
}

static void cpu_wide(void *state, const ew_lookups *lookups, const float *weights, float *logits)
{
    ((cpu_state *)state)->kernels->wide(lookups, weights, logits);
}

static void cpu_wide_back(void *state, const ew_lookups *lookups, const float *logit_gradients,
                          float *weight_gradients)
{
    ((cpu_state *)state)->kernels->wide_back(lookups, logit_gradients, weight_gradients);
}

static void cpu_rows_back(void *state, const ew_lookups *lookups, const float *pooled_gradients,
                          uint32_t stride, const float *weights, float *gradients)
{
    ((cpu_state *)state)->kernels->rows_back(lookups, pooled_gradients, stride, weights, gradients);
}

// k == 0: nothing is summed, but c is still scaled; some libraries return early.
static void scale_matrix(uint32_t m, uint32_t n, float beta, float *c, uint32_t c_stride)
{
    for (uint32_t i = 0; i < m; i++)
        for (uint32_t j = 0; j < n; j++) {
            float *one = c + (size_t)i * c_stride + j;
            *one = beta == 0 ? 0 : beta * *one;
        }
}

static void cpu_gemm(void *state, bool a_transposed, bool b_transposed, uint32_t m, uint32_t n,
                     uint32_t k, const float *a, uint32_t a_stride, const float *b,
                     uint32_t b_stride, float beta, float *c, uint32_t c_stride)
{
    const cpu_state *cpu = state;
    int a_trans = a_transposed ? EW_BLAS_TRANS : EW_BLAS_NO_TRANS;
    int b_trans = b_transposed ? EW_BLAS_TRANS : EW_BLAS_NO_TRANS;
    if (m == 0 || n == 0)
        return;
    if (k == 0) {
        scale_matrix(m, n, beta, c, c_stride);
    } else if (k == 1 && !b_transposed) {
        cpu->kernels->outer(m, n, a, a_transposed ? 1 : a_stride, b, beta, c, c_stride);
    } else if (n == 1) {
        cpu->blas.sgemv(EW_BLAS_ROW_MAJOR, a_trans, (int)(a_transposed ? k : m),
                        (int)(a_transposed ? m : k), 1, a, (int)a_stride, b,
                        b_transposed ? 1 : (int)b_stride, beta, c, (int)c_stride);
    } else {
        cpu->blas.sgemm(EW_BLAS_ROW_MAJOR, a_trans, b_trans, (int)m, (int)n, (int)k, 1, a,
                        (int)a_stride, b, (int)b_stride, beta, c, (int)c_stride);
    }
}

static void cpu_activate(void *state, ew_activation activation, uint32_t row_count,
                         uint32_t column_count, const float *bias, float *values, uint32_t stride)
{
    ((cpu_state *)state)
        ->kernels->activate(activation, row_count, column_count, bias, values, stride);
}

static void cpu_activate_back(void *state, ew_activation activation, uint32_t row_count,
                              uint32_t column_count, const float *values, float *gradients,
                              uint32_t stride, float *bias_gradients)
{
    ((cpu_state *)state)
        ->kernels->activate_back(activation, row_count, column_count, values, gradients, stride,
                                 bias_gradients);
}

// w (log(1 + e^-|z|) + max(z, 0)) - y z: neither overflows nor cancels.
static double weighted_loss(uint32_t count, const float *logits, const float *labels,
                            const float *weights, float scale, float *gradients)
{
    double sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        const double z = logits[i], w = weights[i], y = labels[i], small = exp(-fabs(z));
        const double prediction = (z >= 0 ? 1 : small) / (1 + small);
        gradients[i] = (float)((w * prediction - y) * scale);
        sum += w * log1p(small) + ((z > 0 ? w * z : 0) - y * z);
    }
    return sum;
}

static void cpu_loss(void *state, uint32_t count, const float *logits, const float *labels,
                     const float *weights, float scale, float *predictions, float *gradients,
                     double *loss)
{
    (void)state;
    double sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        double z = logits[i], small = exp(-fabs(z));
        double prediction = (z >= 0 ? 1 : small) / (1 + small);
        predictions[i] = (float)prediction;
        if (!labels)
            continue;
        gradients[i] = (float)((prediction - labels[i]) * scale);
        sum += log1p(small) + ((z > 0 ? z : 0) - labels[i] * z); // the small term last
    }
    if (labels && weights)
        sum = weighted_loss(count, logits, labels, weights, scale, gradients);
    if (labels)
        *loss = sum;
}

static void cpu_step(void *state, const rt_optimizer_config *optimizer, uint32_t count,
                     uint64_t step, float *values, float *optimizer_state, const float *gradients)
{
    (void)state;
    rt_optimizer_step(optimizer, count, step, values, optimizer_state, gradients);
}

static void cpu_fm(void *state, uint32_t sample_count, uint32_t count, uint32_t dim, const float *x,
                   uint32_t stride, float *sums, float *logits)
{
    ((cpu_state *)state)->kernels->fm(sample_count, count, dim, x, stride, sums, logits);
}

static void cpu_fm_back(void *state, uint32_t sample_count, uint32_t count, uint32_t dim,
                        const float *x, uint32_t stride, const float *sums,
                        const float *logit_gradients, float *x_gradients)
{
    ((cpu_state *)state)
        ->kernels->fm_back(sample_count, count, dim, x, stride, sums, logit_gradients, x_gradients);
}

static void cpu_cross(void *state, uint32_t sample_count, uint32_t layer_count, uint32_t dim,
                      const float *weights, const float *biases, const float *products,
                      uint32_t stride, float *logits)
{
    (void)state;
    ew_cpu_cross(sample_count, layer_count, dim, weights, biases, products, stride, logits);
}

static void cpu_cross_back(void *state, uint32_t sample_count, uint32_t layer_count, uint32_t dim,
                           const float *weights, const float *biases, const float *products,
                           uint32_t stride, const float *logit_gradients, float *product_gradients,
                           float *weight_gradients, float *bias_gradients)
{
    (void)state;
    ew_cpu_cross_back(sample_count, layer_count, dim, weights, biases, products, stride,
                      logit_gradients, product_gradients, weight_gradients, bias_gradients);
}

static void cpu_cross_matrix(void *state, uint32_t sample_count, uint32_t dim, const float *x0,
                             const float *x, const float *bias, float *z, float *next,
                             uint32_t stride)
{
    ((cpu_state *)state)->kernels->cross_matrix(sample_count, dim, x0, x, bias, z, next, stride);
}

static void cpu_cross_matrix_back(void *state, uint32_t sample_count, uint32_t dim, bool is_first,
                                  bool is_last, const float *x0, const float *z,
                                  const float *next_gradients, float *z_gradients,
                                  float *x0_gradients, float *bias_gradients, uint32_t stride)
{
    ((cpu_state *)state)
        ->kernels->cross_matrix_back(sample_count, dim, is_first, is_last, x0, z, next_gradients,
                                     z_gradients, x0_gradients, bias_gradients, stride);
}

static void cpu_dots(void *state, uint32_t sample_count, uint32_t count, uint32_t dim,
                     const float *x, uint32_t stride, float *out, uint32_t out_stride)
{
    const cpu_state *cpu = state;
    if (ew_cpu_dots_fit(count, dim))
        ew_cpu_dots(&cpu->blas, sample_count, count, dim, x, stride, out, out_stride);
    else
        cpu->kernels->dots(sample_count, count, dim, x, stride, out, out_stride);
}

static void cpu_dots_back(void *state, uint32_t sample_count, uint32_t count, uint32_t dim,
                          const float *x, uint32_t stride, const float *out_gradients,
                          uint32_t out_stride, float *x_gradients)
{
    const cpu_state *cpu = state;
    if (ew_cpu_dots_fit(count, dim))
        ew_cpu_dots_back(&cpu->blas, sample_count, count, dim, x, stride, out_gradients, out_stride,
                         x_gradients);
    else
        cpu->kernels->dots_back(sample_count, count, dim, x, stride, out_gradients, out_stride,
                                x_gradients);
}

static void cpu_gmf(void *state, uint32_t sample_count, uint32_t dim, const float *u,
                    const float *v, uint32_t stride, const float *weights, float *logits)
{
    ((cpu_state *)state)->kernels->gmf(sample_count, dim, u, v, stride, weights, logits);
}

static void cpu_gmf_back(void *state, uint32_t sample_count, uint32_t dim, const float *u,
                         const float *v, uint32_t stride, const float *weights,
                         const float *logit_gradients, float *u_gradients, float *v_gradients,
                         float *weight_gradients)
{
    ((cpu_state *)state)
        ->kernels->gmf_back(sample_count, dim, u, v, stride, weights, logit_gradients, u_gradients,
                            v_gradients, weight_gradients);
}

static const ew_cpu_kernels *fastest_kernels(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return &ew_cpu_kernels_avx512;
    if (__builtin_cpu_supports("avx2"))
        return &ew_cpu_kernels_avx2;
#endif
    return &ew_cpu_kernels_base;
}

static void cpu_close(void *state)
{
    cpu_state *cpu = state;
    ew_blas_close(&cpu->blas);
    rt_free(cpu);
}

static const ew_device_ops cpu_ops = {
    .close = cpu_close,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .alloc_shared = cpu_alloc,
    .free_shared = cpu_free,
    .copy = cpu_copy,
    .finish = cpu_finish,
    .rows_init = cpu_rows_init,
    .rows_get = cpu_rows_get,
    .rows_put = cpu_rows_put,
    .rows_step = cpu_rows_step,
};

static const ew_layer_ops cpu_layers = {
    .index = cpu_index,
    .pool = cpu_pool,
    .wide = cpu_wide,
    .wide_back = cpu_wide_back,
    .rows_back = cpu_rows_back,
    .gemm = cpu_gemm,
    .activate = cpu_activate,
    .activate_back = cpu_activate_back,
    .loss = cpu_loss,
    .step = cpu_step,
};

static const ew_interaction_ops cpu_interactions = {
    .fm = cpu_fm,
    .fm_back = cpu_fm_back,
    .cross = cpu_cross,
    .cross_back = cpu_cross_back,
    .cross_matrix = cpu_cross_matrix,
    .cross_matrix_back = cpu_cross_matrix_back,
    .dots = cpu_dots,
    .dots_back = cpu_dots_back,
    .gmf = cpu_gmf,
    .gmf_back = cpu_gmf_back,
};

static rt_status cpu_open(const char *name, uint32_t rank, ew_device *device, rt_error *error)
{
    (void)rank;
    (void)name;
    cpu_state *cpu = rt_alloc(1, sizeof *cpu);
    if (!cpu)
        return rt_fail(error, RT_NO_MEMORY, "no memory for the CPU device");
    rt_status status = ew_blas_open(&cpu->blas, error);
    if (status) {
        rt_free(cpu);
        return status;
    }
    cpu->kernels = fastest_kernels();
    *device = (ew_device){.ops = &cpu_ops,
                          .layers = &cpu_layers,
                          .interactions = &cpu_interactions,
                          .state = cpu,
                          .unified = true};
    snprintf(device->description, sizeof device->description, "cpu: %s kernels, %s",
             cpu->kernels->name, cpu->blas.description);
    return RT_OK;
}

const ew_device_backend ew_device_cpu = {"cpu", cpu_open};
