// ew_cuda_optimizer - rt_optimizer_step on a device: the same operations in the same order, hence
// the same bits: the steps of values are the same source (rt_optimizer_parts.h).
#ifndef EW_CUDA_OPTIMIZER_H
#define EW_CUDA_OPTIMIZER_H

#include "edge_worker/device/cuda/ew_cuda_parts.h"

extern "C" {
#include "runtime/numbers/rt_optimizer_parts.h"
}

#define EW_CUDA_SQUARE_LANES 8u // lanes of rt_optimizer's sum of squares

// What a step needs, worked out once on the host.
typedef struct {
    rt_optimizer_config config;
    rt_optimizer_terms terms;
} ew_cuda_step_terms;

static inline ew_cuda_step_terms ew_cuda_step_of(const rt_optimizer_config *config, uint64_t step)
{
    return {*config, rt_optimizer_terms_of(config, step)};
}

// The terms with the scale of clipping.
static __device__ inline rt_optimizer_terms ew_cuda_scaled(const ew_cuda_step_terms &t, float scale)
{
    rt_optimizer_terms terms = t.terms;
    terms.scale = scale;
    return terms;
}

// One value; first and second: its state, where the kind has any.
static __device__ inline void ew_cuda_step_value(const rt_optimizer_config &config,
                                                 const rt_optimizer_terms &terms, float *value,
                                                 float *first, float *second, float raw)
{
    switch (config.kind) {
#define XX(kind, name, traits, help)                                  \
    case RT_OPTIMIZER_##kind:                                         \
        rt_##name##_value(&config, terms, raw, value, first, second); \
        break;
        RT_OPTIMIZER_MAP(XX, XX)
#undef XX
    }
}

// Kinds with a float of state for the whole block: what becomes of it, and of the rate.
static __device__ inline float ew_cuda_settle(const ew_cuda_step_terms &t, uint32_t dim,
                                              double squares, float *state)
{
    switch (t.config.kind) {
#define XX(kind, name, traits, help) \
    case RT_OPTIMIZER_##kind:        \
        return rt_##name##_settle(&t.config, t.terms.rate, dim, squares, state);
        RT_OPTIMIZER_MAP(XX, XX)
#undef XX
    }
    return t.terms.rate;
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

// The sum of what gradients count as, squared, over at most one chunk, in lane 0; whole warps call, all lanes
// load, and lane k adds the elements k, k + 8, ... in that order.
static __device__ inline float ew_cuda_shaped_squares(const ew_cuda_step_terms &t, float scale,
                                                      uint32_t count, const float *values,
                                                      const float *gradient, uint32_t lane)
{
    const rt_optimizer_terms terms = ew_cuda_scaled(t, scale);
    float sum = 0;
    for (uint32_t begin = 0; begin < count; begin += EW_CUDA_WARP) {
        float own = 0;
        if (begin + lane < count)
            own = rt_optimizer_shaped(terms, gradient[begin + lane], values[begin + lane]);
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
