// gmf, gmf_back: the weighted products of two vectors.
//
// No races: every element has one thread; a logit the first lane of its group; weight gradients are
// partial sums over chunks of samples (ew_cuda_sums.cu) that meet in shared memory.
#include "edge_worker/device/cuda/ew_cuda_parts.h"

#define SAMPLES_PER_PART 32u

static __global__ void products(uint32_t sample_count, uint32_t dim, const float *u, const float *v,
                                uint32_t stride, const float *weights, float *logits)
{
    uint32_t sample = ew_cuda_row();
    float sum = 0;
    if (sample < sample_count)
        for (uint32_t d = threadIdx.x; d < dim; d += blockDim.x)
            sum += weights[d] * (u[(size_t)sample * stride + d] * v[(size_t)sample * stride + d]);
    sum = ew_cuda_group_sum(sum);
    if (sample < sample_count && threadIdx.x == 0)
        logits[sample] += sum;
}

typedef struct {
    uint32_t sample_count, dim, stride, chunk;
    const float *u, *v, *weights, *logit_gradients;
    float *u_gradients, *v_gradients;
} gmf_back;

static __global__ void products_back(gmf_back t, float *parts)
{
    SHARED(float, shares, EW_CUDA_THREADS);
    uint32_t d = ew_cuda_column(), begin = blockIdx.x * t.chunk;
    uint32_t end = begin + t.chunk < t.sample_count ? begin + t.chunk : t.sample_count;
    float sum = 0;
    for (uint32_t sample = begin + threadIdx.y; sample < end && d < t.dim; sample += blockDim.y) {
        size_t at = (size_t)sample * t.stride + d;
        float gradient = t.logit_gradients[sample], weighted = gradient * t.weights[d];
        float a = t.u[at], b = t.v[at];
        t.u_gradients[at] = weighted * b;
        t.v_gradients[at] = weighted * a;
        sum += gradient * (a * b);
    }
    shares[threadIdx.y * blockDim.x + threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y != 0 || d >= t.dim)
        return;
    sum = 0;
    for (uint32_t y = 0; y < blockDim.y; y++)
        sum += shares[y * blockDim.x + threadIdx.x];
    parts[(size_t)blockIdx.x * t.dim + d] = sum;
}

extern "C" void ew_cuda_gmf(void *state, uint32_t sample_count, uint32_t dim, const float *u,
                            const float *v, uint32_t stride, const float *weights, float *logits)
{
    ew_cuda *cuda = (ew_cuda *)state;
    if (sample_count == 0 || !ew_cuda_enter(cuda))
        return;
    ew_cuda_tile groups = ew_cuda_groups_of(sample_count, dim);
    LAUNCH(products, groups.grid, groups.block, 0, cuda->compute, sample_count, dim, u, v, stride,
           weights, logits);
    ew_cuda_leave(cuda, "gmf");
}

extern "C" void ew_cuda_gmf_back(void *state, uint32_t sample_count, uint32_t dim, const float *u,
                                 const float *v, uint32_t stride, const float *weights,
                                 const float *logit_gradients, float *u_gradients,
                                 float *v_gradients, float *weight_gradients)
{
    ew_cuda *cuda = (ew_cuda *)state;
    if (dim == 0 || !ew_cuda_enter(cuda))
        return;
    uint32_t chunk, parts = ew_cuda_part_count(cuda, sample_count, SAMPLES_PER_PART, dim, &chunk);
    gmf_back terms = {sample_count,    dim,         stride,     chunk, u, v, weights,
                      logit_gradients, u_gradients, v_gradients};
    float *to = parts > 1 ? cuda->scratch : weight_gradients;
    uint32_t x = ew_cuda_power(dim, EW_CUDA_WARP);
    dim3 grid(parts, ew_cuda_blocks(dim, x)), block(x, EW_CUDA_THREADS / x);
    LAUNCH(products_back, grid, block, 0, cuda->compute, terms, to);
    if (parts > 1)
        ew_cuda_sum_parts(cuda, parts, dim, to, weight_gradients);
    ew_cuda_leave(cuda, "gmf_back");
}
