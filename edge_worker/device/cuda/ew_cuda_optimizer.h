// ew_cuda_optimizer - rt_optimizer_step on a device: the same operations in the same order, hence
// the same bits. rt_optimizer.c names the papers.
#ifndef EW_CUDA_OPTIMIZER_H
#define EW_CUDA_OPTIMIZER_H

#include "edge_worker/device/cuda/ew_cuda_parts.h"

#define EW_CUDA_SQUARE_LANES 8u // lanes of rt_optimizer's sum of squares

// What a step needs, worked out once on the host.
typedef struct {
    rt_optimizer_config config;
    float rate, root; // adam: with the bias corrections of the step
    float l2;         // added to gradients, times the value
    float summed;     // ftrl: gradients times this
} ew_cuda_step_terms;

static inline ew_cuda_step_terms ew_cuda_step_of(const rt_optimizer_config *config, uint64_t step)
{
    const rt_optimizer_terms terms = rt_optimizer_terms_of(config, step);
    return {*config, terms.rate, terms.root, terms.l2, rt_optimizer_summed(config)};
}

static __device__ inline float ew_cuda_positive(float divisor)
{
    return divisor > FLT_MIN ? divisor : FLT_MIN;
}

// What a gradient counts as. scale: of clipping.
static __device__ inline float ew_cuda_shaped(const ew_cuda_step_terms &t, float scale,
                                              float gradient, float value)
{
    return scale * gradient + t.l2 * value;
}

// One value; first and second: its state, where the kind has any. Not for row-wise Adagrad.
static __device__ inline void ew_cuda_step_value(const ew_cuda_step_terms &t, float scale,
                                                 float *value, float *first, float *second,
                                                 float raw)
{
    const rt_optimizer_config &c = t.config;
    const float gradient = ew_cuda_shaped(t, scale, raw, *value);
    switch (c.kind) {
    case RT_OPTIMIZER_SGD:
        *value -= t.rate * gradient;
        break;
    case RT_OPTIMIZER_MOMENTUM:
        *first = c.momentum * *first + gradient;
        *value -= t.rate * *first;
        break;
    case RT_OPTIMIZER_ADAGRAD: {
        float square = *first + gradient * gradient;
        *first = square;
        *value -= t.rate * gradient / ew_cuda_positive(sqrtf(square) + c.epsilon);
        break;
    }
    case RT_OPTIMIZER_ADAM: {
        float m = c.beta1 * *first + (1 - c.beta1) * gradient;
        float v = c.beta2 * *second + (1 - c.beta2) * (gradient * gradient);
        *first = m;
        *second = v;
        *value -= t.rate * m / ew_cuda_positive(sqrtf(v) * t.root + c.epsilon);
        break;
    }
    case RT_OPTIMIZER_FTRL: {
        float sum = gradient * t.summed, square = *first + sum * sum, root = sqrtf(square);
        float sigma = (root - sqrtf(*first)) / t.rate;
        float z = *second + (sum - sigma * *value);
        float shrunk = fabsf(z) > c.l1 ? copysignf(c.l1, z) - z : 0;
        *first = square;
        *second = z;
        *value = shrunk / ew_cuda_positive((c.beta + root) / t.rate + c.l2);
        break;
    }
    case RT_OPTIMIZER_ROWWISE_ADAGRAD:
        break;
    }
}

// Row-wise Adagrad: what its new square leaves of the learning rate.
static __device__ inline float ew_cuda_rowwise_rate(const ew_cuda_step_terms &t, float square)
{
    return t.rate / ew_cuda_positive(sqrtf(square) + t.config.epsilon);
}

// The eight lanes' sums in rt_optimizer's order; whole warps call, lanes 0 to 7 hold sums. Lane 0
// gets the result.
template <typename T> static __device__ inline T ew_cuda_add_lanes(T sum)
{
    sum += __shfl_xor_sync(EW_CUDA_FULL, sum, 4);
    sum += __shfl_xor_sync(EW_CUDA_FULL, sum, 2);
    sum += __shfl_xor_sync(EW_CUDA_FULL, sum, 1);
    return sum;
}

// Row-wise Adagrad's sum of squares over at most one chunk, in lane 0; whole warps call, all lanes
// load, and lane k adds the elements k, k + 8, ... in that order.
static __device__ inline float ew_cuda_shaped_squares(const ew_cuda_step_terms &t, float scale,
                                                      uint32_t count, const float *values,
                                                      const float *gradient, uint32_t lane)
{
    float sum = 0;
    for (uint32_t begin = 0; begin < count; begin += EW_CUDA_WARP) {
        float own = 0;
        if (begin + lane < count)
            own = ew_cuda_shaped(t, scale, gradient[begin + lane], values[begin + lane]);
        own *= own;
        for (uint32_t k = 0; k < EW_CUDA_WARP; k += EW_CUDA_SQUARE_LANES) {
            const float one = __shfl_sync(EW_CUDA_FULL, own, k + lane % EW_CUDA_SQUARE_LANES);
            sum += one; // behind the last 0, which changes nothing
        }
    }
    return ew_cuda_add_lanes(sum);
}

// rt_optimizer_squares of at most one chunk, in lane 0; whole warps call.
static __device__ inline double ew_cuda_chunk_squares(uint32_t count, const float *gradient,
                                                      uint32_t lane)
{
    double sum = 0;
    for (uint32_t i = lane; i < count && lane < EW_CUDA_SQUARE_LANES; i += EW_CUDA_SQUARE_LANES)
        sum += (double)gradient[i] * gradient[i];
    return ew_cuda_add_lanes(sum);
}

// The values of a chunk, of a block of count; 0 behind the last.
static __device__ inline uint32_t ew_cuda_chunk_size(uint32_t count, uint32_t chunk)
{
    const uint64_t begin = (uint64_t)chunk * RT_OPTIMIZER_SQUARES_CHUNK;
    const uint64_t left = begin < count ? count - begin : 0;
    return (uint32_t)(left < RT_OPTIMIZER_SQUARES_CHUNK ? left : RT_OPTIMIZER_SQUARES_CHUNK);
}

static __device__ inline float ew_cuda_clip_scale(const ew_cuda_step_terms &t, double squares)
{
    double norm = sqrt(squares), most = t.config.clip_norm;
    return norm > most ? (float)(most / norm) : 1;
}

// Of one row by one warp, in all lanes. Whole warps call, with the same dim and active.
static __device__ inline float ew_cuda_row_scale(const ew_cuda_step_terms &t, uint32_t dim,
                                                 const float *gradient, bool active)
{
    double squares = 0;
    if (!(t.config.clip_norm > 0))
        return 1;
    for (uint32_t begin = 0; begin < dim; begin += RT_OPTIMIZER_SQUARES_CHUNK) {
        uint32_t left = dim - begin, most = RT_OPTIMIZER_SQUARES_CHUNK;
        squares += ew_cuda_chunk_squares(active ? (left < most ? left : most) : 0, gradient + begin,
                                         threadIdx.x);
    }
    return __shfl_sync(EW_CUDA_FULL, ew_cuda_clip_scale(t, squares), 0);
}

#endif
