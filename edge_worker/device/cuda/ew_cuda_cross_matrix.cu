// cross_matrix, cross_matrix_back: one layer of Deep & Cross v2, element by element.
//
// No races: every element is read and written by one thread; the bias's column sums are partial
// sums over chunks of samples (ew_cuda_sums.cu) that meet in shared memory, after a barrier.
#include "edge_worker/device/cuda/ew_cuda_parts.h"

#define SAMPLES_PER_PART 32u

typedef struct {
    uint32_t sample_count, dim, stride;
    bool is_first, is_last;
    const float *x0, *z, *next_gradients;
    float *z_gradients, *x0_gradients;
} layer_back;

static __global__ void cross_layer(uint32_t sample_count, uint32_t dim, const float *x0,
                                   const float *x, const float *bias, float *z, float *next,
                                   uint32_t stride)
{
    uint32_t sample = ew_cuda_row(), d = ew_cuda_column();
    if (sample >= sample_count || d >= dim)
        return;
    size_t at = (size_t)sample * stride + d;
    float sum = z[at] + bias[d];
    z[at] = sum;
    next[at] = x0[at] * sum + x[at];
}

static __global__ void cross_layer_back(layer_back b, uint32_t chunk, float *parts)
{
    SHARED(float, shares, EW_CUDA_THREADS);
    uint32_t d = ew_cuda_column(), begin = blockIdx.x * chunk;
    uint32_t end = begin + chunk < b.sample_count ? begin + chunk : b.sample_count;
    const float direct = b.is_first ? 1 : 0;
    float sum = 0;
    for (uint32_t sample = begin + threadIdx.y; sample < end && d < b.dim; sample += blockDim.y) {
        size_t at = (size_t)sample * b.stride + d;
        float gradient = b.next_gradients[at], z_gradient = gradient * b.x0[at];
        float before = b.is_last ? 0 : b.x0_gradients[at];
        b.z_gradients[at] = z_gradient;
        b.x0_gradients[at] = before + gradient * (b.z[at] + direct);
        sum += z_gradient;
    }
    shares[threadIdx.y * blockDim.x + threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y != 0 || d >= b.dim)
        return;
    sum = 0;
    for (uint32_t y = 0; y < blockDim.y; y++)
        sum += shares[y * blockDim.x + threadIdx.x];
    parts[(size_t)blockIdx.x * b.dim + d] = sum;
}

extern "C" void ew_cuda_cross_matrix(void *state, uint32_t sample_count, uint32_t dim,
                                     const float *x0, const float *x, const float *bias, float *z,
                                     float *next, uint32_t stride)
{
    ew_cuda *cuda = (ew_cuda *)state;
    if (sample_count == 0 || dim == 0 || !ew_cuda_enter(cuda))
        return;
    ew_cuda_tile tile = ew_cuda_tile_of(sample_count, dim);
    LAUNCH(cross_layer, tile.grid, tile.block, 0, cuda->compute, sample_count, dim, x0, x, bias, z,
           next, stride);
    ew_cuda_leave(cuda, "cross_matrix");
}

extern "C" void ew_cuda_cross_matrix_back(void *state, uint32_t sample_count, uint32_t dim,
                                          bool is_first, bool is_last, const float *x0,
                                          const float *z, const float *next_gradients,
                                          float *z_gradients, float *x0_gradients,
                                          float *bias_gradients, uint32_t stride)
{
    ew_cuda *cuda = (ew_cuda *)state;
    layer_back back = {sample_count, dim, stride,         is_first,    is_last,
                       x0,           z,   next_gradients, z_gradients, x0_gradients};
    if (dim == 0 || !ew_cuda_enter(cuda))
        return;
    uint32_t chunk, parts = ew_cuda_part_count(cuda, sample_count, SAMPLES_PER_PART, dim, &chunk);
    float *to = parts > 1 ? cuda->scratch : bias_gradients;
    uint32_t x = ew_cuda_power(dim, EW_CUDA_WARP);
    dim3 grid(parts, ew_cuda_blocks(dim, x)), block(x, EW_CUDA_THREADS / x);
    LAUNCH(cross_layer_back, grid, block, 0, cuda->compute, back, chunk, to);
    if (parts > 1)
        ew_cuda_sum_parts(cuda, parts, dim, to, bias_gradients);
    ew_cuda_leave(cuda, "cross_matrix_back");
}
