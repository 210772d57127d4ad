// How features meet, on the CPU (ew_device.h), split over threads: by samples, and where sums over
// samples are written, by columns.
#include <string.h>

#include "edge_worker/device/ew_blas.h"
#include "edge_worker/device/ew_cpu_parts.h"

// The arguments of any of these operations.
typedef struct {
    const ew_cpu *cpu;
    uint32_t sample_count, count, dim, stride, out_stride;
    bool is_first, is_last;
    const float *x, *x0, *weights, *gradients; // x0: also v of gmf
    float *out, *sums, *logits, *to, *x0_to, *bias_to;
    const float *logit_gradients;
} meeting;

static void fm_samples(const void *call, uint32_t from, uint32_t to)
{
    const meeting *c = call;
    c->cpu->kernels->fm(to - from, c->count, c->dim, c->x + (size_t)from * c->stride, c->stride,
                        c->sums + (size_t)from * c->dim, c->logits + from);
}

static void cpu_fm(void *state, uint32_t sample_count, uint32_t count, uint32_t dim, const float *x,
                   uint32_t stride, float *sums, float *logits)
{
    const meeting call = {.cpu = state,
                          .count = count,
                          .dim = dim,
                          .x = x,
                          .stride = stride,
                          .sums = sums,
                          .logits = logits};
    ew_cpu_split(state, sample_count, UINT64_C(2) * count * dim, fm_samples, &call);
}

static void fm_back_samples(const void *call, uint32_t from, uint32_t to)
{
    const meeting *c = call;
    const size_t first = (size_t)from * c->stride;
    c->cpu->kernels->fm_back(to - from, c->count, c->dim, c->x + first, c->stride,
                             c->gradients + (size_t)from * c->dim, c->logit_gradients + from,
                             c->to + first);
}

static void cpu_fm_back(void *state, uint32_t sample_count, uint32_t count, uint32_t dim,
                        const float *x, uint32_t stride, const float *sums,
                        const float *logit_gradients, float *x_gradients)
{
    const meeting call = {.cpu = state,
                          .count = count,
                          .dim = dim,
                          .x = x,
                          .stride = stride,
                          .gradients = sums,
                          .logit_gradients = logit_gradients,
                          .to = x_gradients};
    ew_cpu_split(state, sample_count, UINT64_C(3) * count * dim, fm_back_samples, &call);
}

// Deep & Cross with vectors: a few numbers per sample, and passes over weights and biases, which
// are nothing worth a vector. With x_l = a_l x0 + s_l, s_l = b_0 + ... + b_(l-1), and p_l = x0 . w_l:
//   x_l . w_l = a_l p_l + c_l,  c_l = s_l . w_l (no sample in it),
//   x_(l+1) = x0 (x_l . w_l) + b_l + x_l, hence a_(l+1) = a_l + a_l p_l + c_l, a_0 = 1,
// and the output is x_L . w_L = a_L p_L + c_L.

#define PRODUCTS_MAX (RT_CROSS_LAYERS_MAX + 1)

// c_0 .. c_L.
static void fill_constants(uint32_t layer_count, uint32_t dim, const float *weights,
                           const float *biases, double *constants)
{
    for (uint32_t l = 0; l <= layer_count; l++)
        constants[l] = 0;
    for (uint32_t d = 0; d < dim; d++) {
        double sum = 0;
        for (uint32_t l = 0; l <= layer_count; l++) {
            constants[l] += sum * weights[(size_t)l * dim + d];
            if (l < layer_count)
                sum += biases[(size_t)l * dim + d];
        }
    }
}

// a_0 .. a_L of one sample.
static void fill_factors(uint32_t layer_count, const double *constants, const float *products,
                         double *factors)
{
    factors[0] = 1;
    for (uint32_t l = 0; l < layer_count; l++)
        factors[l + 1] = factors[l] + factors[l] * products[l] + constants[l];
}

static void cpu_cross(void *state, uint32_t sample_count, uint32_t layer_count, uint32_t dim,
                      const float *weights, const float *biases, const float *products,
                      uint32_t stride, float *logits)
{
    double constants[PRODUCTS_MAX], factors[PRODUCTS_MAX];
    (void)state;
    rt_assert(layer_count <= RT_CROSS_LAYERS_MAX);
    fill_constants(layer_count, dim, weights, biases, constants);
    for (uint32_t i = 0; i < sample_count; i++) {
        const float *p = products + (size_t)i * stride;
        fill_factors(layer_count, constants, p, factors);
        logits[i] += (float)(factors[layer_count] * p[layer_count] + constants[layer_count]);
    }
}

// What reaches w_l and b_l through c_0 .. c_L.
static void spread_constants(uint32_t layer_count, uint32_t dim, const float *weights,
                             const float *biases, const double *constant_gradients,
                             float *weight_gradients, float *bias_gradients)
{
    for (uint32_t d = 0; d < dim; d++) {
        double sum = 0;
        for (uint32_t l = 0; l <= layer_count; l++) {
            weight_gradients[(size_t)l * dim + d] = (float)(constant_gradients[l] * sum);
            if (l < layer_count)
                sum += biases[(size_t)l * dim + d];
        }
        sum = 0;
        for (uint32_t l = layer_count; l-- > 0;) {
            sum += constant_gradients[l + 1] * weights[(size_t)(l + 1) * dim + d];
            bias_gradients[(size_t)l * dim + d] = (float)sum;
        }
    }
}

static void cpu_cross_back(void *state, uint32_t sample_count, uint32_t layer_count, uint32_t dim,
                           const float *weights, const float *biases, const float *products,
                           uint32_t stride, const float *logit_gradients, float *product_gradients,
                           float *weight_gradients, float *bias_gradients)
{
    double constants[PRODUCTS_MAX], factors[PRODUCTS_MAX], constant_gradients[PRODUCTS_MAX] = {0};
    (void)state;
    rt_assert(layer_count <= RT_CROSS_LAYERS_MAX);
    fill_constants(layer_count, dim, weights, biases, constants);
    for (uint32_t i = 0; i < sample_count; i++) {
        const float *p = products + (size_t)i * stride;
        float *to = product_gradients + (size_t)i * stride;
        double gradient = logit_gradients[i], factor_gradient = gradient * p[layer_count];
        fill_factors(layer_count, constants, p, factors);
        to[layer_count] = (float)(gradient * factors[layer_count]);
        constant_gradients[layer_count] += gradient;
        for (uint32_t l = layer_count; l-- > 0;) {
            to[l] = (float)(factor_gradient * factors[l]);
            constant_gradients[l] += factor_gradient;
            factor_gradient += factor_gradient * p[l];
        }
    }
    spread_constants(layer_count, dim, weights, biases, constant_gradients, weight_gradients,
                     bias_gradients);
}

static void cross_matrix_samples(const void *call, uint32_t from, uint32_t to)
{
    const meeting *c = call;
    const size_t first = (size_t)from * c->stride;
    c->cpu->kernels->cross_matrix(to - from, c->dim, c->x0 + first, c->x + first, c->weights,
                                  c->out + first, c->to + first, c->stride);
}

static void cpu_cross_matrix(void *state, uint32_t sample_count, uint32_t dim, const float *x0,
                             const float *x, const float *bias, float *z, float *next,
                             uint32_t stride)
{
    const meeting call = {.cpu = state,
                          .dim = dim,
                          .x0 = x0,
                          .x = x,
                          .weights = bias,
                          .out = z,
                          .to = next,
                          .stride = stride};
    ew_cpu_split(state, sample_count, UINT64_C(5) * dim, cross_matrix_samples, &call);
}

static void cross_matrix_back_columns(const void *call, uint32_t from, uint32_t to)
{
    const meeting *c = call;
    c->cpu->kernels->cross_matrix_back(c->sample_count, to - from, c->is_first, c->is_last,
                                       c->x0 + from, c->x + from, c->gradients + from, c->to + from,
                                       c->x0_to + from, c->bias_to + from, c->stride);
}

static void cpu_cross_matrix_back(void *state, uint32_t sample_count, uint32_t dim, bool is_first,
                                  bool is_last, const float *x0, const float *z,
                                  const float *next_gradients, float *z_gradients,
                                  float *x0_gradients, float *bias_gradients, uint32_t stride)
{
    const meeting call = {.cpu = state,
                          .sample_count = sample_count,
                          .is_first = is_first,
                          .is_last = is_last,
                          .x0 = x0,
                          .x = z,
                          .gradients = next_gradients,
                          .to = z_gradients,
                          .x0_to = x0_gradients,
                          .bias_to = bias_gradients,
                          .stride = stride};
    ew_cpu_split(state, dim, UINT64_C(5) * sample_count, cross_matrix_back_columns, &call);
}

// The interactions of DLRM by matrix products, where vectors are long. The library computes every
// product of a pair twice, and still needs less time than loops that do not fuse multiplication and
// addition.

#define DOTS_COUNT_MAX 64u
#define DOTS_DIM_MIN 32u

// Whether that is so, and within what these functions can do.
static bool long_dots_fit(uint32_t count, uint32_t dim)
{
    return count <= DOTS_COUNT_MAX && dim >= DOTS_DIM_MIN;
}

static void long_dots(const ew_blas *blas, uint32_t sample_count, uint32_t count, uint32_t dim,
                      const float *x, uint32_t stride, float *out, uint32_t out_stride)
{
    float products[DOTS_COUNT_MAX * DOTS_COUNT_MAX];
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

static void long_dots_back(const ew_blas *blas, uint32_t sample_count, uint32_t count, uint32_t dim,
                           const float *x, uint32_t stride, const float *out_gradients,
                           uint32_t out_stride, float *x_gradients)
{
    float matrix[DOTS_COUNT_MAX * DOTS_COUNT_MAX];
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

static void dots_samples(const void *call, uint32_t from, uint32_t to)
{
    const meeting *c = call;
    const float *x = c->x + (size_t)from * c->stride;
    float *out = c->to + (size_t)from * c->out_stride;
    if (!c->cpu->is_steady && long_dots_fit(c->count, c->dim))
        long_dots(&c->cpu->blas, to - from, c->count, c->dim, x, c->stride, out, c->out_stride);
    else
        c->cpu->kernels->dots(to - from, c->count, c->dim, x, c->stride, out, c->out_stride);
}

static void cpu_dots(void *state, uint32_t sample_count, uint32_t count, uint32_t dim,
                     const float *x, uint32_t stride, float *out, uint32_t out_stride)
{
    const meeting call = {.cpu = state,
                          .count = count,
                          .dim = dim,
                          .x = x,
                          .stride = stride,
                          .to = out,
                          .out_stride = out_stride};
    ew_cpu_split(state, sample_count, (uint64_t)count * count * dim / 16 + 1, dots_samples, &call);
}

static void dots_back_samples(const void *call, uint32_t from, uint32_t to)
{
    const meeting *c = call;
    const size_t first = (size_t)from * c->stride;
    const float *gradients = c->gradients + (size_t)from * c->out_stride;
    if (long_dots_fit(c->count, c->dim))
        long_dots_back(&c->cpu->blas, to - from, c->count, c->dim, c->x + first, c->stride,
                       gradients, c->out_stride, c->to + first);
    else
        c->cpu->kernels->dots_back(to - from, c->count, c->dim, c->x + first, c->stride, gradients,
                                   c->out_stride, c->to + first);
}

static void cpu_dots_back(void *state, uint32_t sample_count, uint32_t count, uint32_t dim,
                          const float *x, uint32_t stride, const float *out_gradients,
                          uint32_t out_stride, float *x_gradients)
{
    const meeting call = {.cpu = state,
                          .count = count,
                          .dim = dim,
                          .x = x,
                          .stride = stride,
                          .gradients = out_gradients,
                          .out_stride = out_stride,
                          .to = x_gradients};
    ew_cpu_split(state, sample_count, (uint64_t)count * count * dim / 16 + 1, dots_back_samples,
                 &call);
}

static void gmf_samples(const void *call, uint32_t from, uint32_t to)
{
    const meeting *c = call;
    const size_t first = (size_t)from * c->stride;
    c->cpu->kernels->gmf(to - from, c->dim, c->x + first, c->x0 + first, c->stride, c->weights,
                         c->logits + from);
}

static void cpu_gmf(void *state, uint32_t sample_count, uint32_t dim, const float *u,
                    const float *v, uint32_t stride, const float *weights, float *logits)
{
    const meeting call = {.cpu = state,
                          .dim = dim,
                          .x = u,
                          .x0 = v,
                          .stride = stride,
                          .weights = weights,
                          .logits = logits};
    ew_cpu_split(state, sample_count, UINT64_C(2) * dim, gmf_samples, &call);
}

static void gmf_back_columns(const void *call, uint32_t from, uint32_t to)
{
    const meeting *c = call;
    c->cpu->kernels->gmf_back(c->sample_count, to - from, c->x + from, c->x0 + from, c->stride,
                              c->weights + from, c->logit_gradients, c->to + from, c->x0_to + from,
                              c->bias_to + from);
}

static void cpu_gmf_back(void *state, uint32_t sample_count, uint32_t dim, const float *u,
                         const float *v, uint32_t stride, const float *weights,
                         const float *logit_gradients, float *u_gradients, float *v_gradients,
                         float *weight_gradients)
{
    const meeting call = {.cpu = state,
                          .sample_count = sample_count,
                          .x = u,
                          .x0 = v,
                          .stride = stride,
                          .weights = weights,
                          .logit_gradients = logit_gradients,
                          .to = u_gradients,
                          .x0_to = v_gradients,
                          .bias_to = weight_gradients};
    ew_cpu_split(state, dim, UINT64_C(4) * sample_count, gmf_back_columns, &call);
}

const ew_interaction_ops ew_cpu_interactions = {
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
