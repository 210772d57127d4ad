// How features meet, on the CPU (ew_device.h), split over threads: by samples, and where sums over
// samples are written, by columns.
#include "edge_worker/device/ew_cpu_cross.h"
#include "edge_worker/device/ew_cpu_dots.h"
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

static void dots_samples(const void *call, uint32_t from, uint32_t to)
{
    const meeting *c = call;
    const float *x = c->x + (size_t)from * c->stride;
    float *out = c->to + (size_t)from * c->out_stride;
    if (!c->cpu->is_steady && ew_cpu_dots_fit(c->count, c->dim))
        ew_cpu_dots(&c->cpu->blas, to - from, c->count, c->dim, x, c->stride, out, c->out_stride);
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
    if (ew_cpu_dots_fit(c->count, c->dim))
        ew_cpu_dots_back(&c->cpu->blas, to - from, c->count, c->dim, c->x + first, c->stride,
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
