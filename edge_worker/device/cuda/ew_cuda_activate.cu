// activate, activate_back: bias and activation; and their gradients with the bias's column sums.
//
// No races: every element is read and written by one thread. Column sums are partial sums over
// chunks of rows (ew_cuda_sums.cu); within a block they meet in shared memory, after a barrier.
#include "edge_worker/device/cuda/ew_cuda_parts.h"

#define ROWS_PER_PART 32u

static __global__ void add_bias(ew_activation activation, uint32_t row_count, uint32_t column_count,
                                const float *bias, float *values, uint32_t stride)
{
    uint32_t row = ew_cuda_row(), column = ew_cuda_column();
    if (row >= row_count || column >= column_count)
        return;
    float *at = values + (size_t)row * stride + column;
    float sum = *at + bias[column];
    *at = activation == EW_RELU && sum <= 0 ? 0 : sum; // a NaN is not <= 0
}

static __global__ void mask_and_sum(ew_activation activation, uint32_t row_count,
                                    uint32_t column_count, const float *values, float *gradients,
                                    uint32_t stride, uint32_t chunk, float *parts)
{
    SHARED(float, shares, EW_CUDA_THREADS);
    uint32_t column = ew_cuda_column(), begin = blockIdx.x * chunk;
    uint32_t end = begin + chunk < row_count ? begin + chunk : row_count;
    float sum = 0;
    for (uint32_t row = begin + threadIdx.y; row < end && column < column_count;
         row += blockDim.y) {
        size_t at = (size_t)row * stride + column;
        float gradient = activation == EW_RELU && values[at] == 0 ? 0 : gradients[at];
        if (activation == EW_RELU)
            gradients[at] = gradient;
        sum += gradient;
    }
    shares[threadIdx.y * blockDim.x + threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y != 0 || column >= column_count)
        return;
    sum = 0;
    for (uint32_t y = 0; y < blockDim.y; y++)
        sum += shares[y * blockDim.x + threadIdx.x];
    parts[(size_t)blockIdx.x * column_count + column] = sum;
}

extern "C" void ew_cuda_activate(void *state, ew_activation activation, uint32_t row_count,
                                 uint32_t column_count, const float *bias, float *values,
                                 uint32_t stride)
{
    ew_cuda *cuda = (ew_cuda *)state;
    if (row_count == 0 || column_count == 0 || !ew_cuda_enter(cuda))
        return;
    ew_cuda_tile tile = ew_cuda_tile_of(row_count, column_count);
    LAUNCH(add_bias, tile.grid, tile.block, 0, cuda->compute, activation, row_count, column_count,
           bias, values, stride);
    ew_cuda_leave(cuda, "activate");
}

extern "C" void ew_cuda_activate_back(void *state, ew_activation activation, uint32_t row_count,
                                      uint32_t column_count, const float *values, float *gradients,
                                      uint32_t stride, float *bias_gradients)
{
    ew_cuda *cuda = (ew_cuda *)state;
    if (column_count == 0 || !ew_cuda_enter(cuda))
        return;
    uint32_t chunk;
    uint32_t parts = ew_cuda_part_count(cuda, row_count, ROWS_PER_PART, column_count, &chunk);
    float *to = parts > 1 ? cuda->scratch : bias_gradients;
    uint32_t x = ew_cuda_power(column_count, EW_CUDA_WARP);
    dim3 grid(parts, ew_cuda_blocks(column_count, x)), block(x, EW_CUDA_THREADS / x);
    LAUNCH(mask_and_sum, grid, block, 0, cuda->compute, activation, row_count, column_count, values,
           gradients, stride, chunk, to);
    if (parts > 1)
        ew_cuda_sum_parts(cuda, parts, column_count, to, bias_gradients);
    ew_cuda_leave(cuda, "activate_back");
}
