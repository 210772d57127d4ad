// step, rows_step: the optimizer on the dense block and on rows of the slab.
//
// No races: every value and its state belong to one thread; a row's one accumulator (row-wise
// Adagrad) is written by lane 0 of its warp, after a barrier of the warp; slots are distinct.
#include "edge_worker/device/cuda/ew_cuda_optimizer.h"

#define BLOCK_THREADS 1024u

static __global__ void step_values(ew_cuda_step_terms t, uint32_t count, float *values,
                                   float *state, const float *gradients)
{
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        ew_cuda_step_value(t, values + i, state + i, state + count + (size_t)i, gradients[i]);
}

// Row-wise Adagrad over the whole dense block, in one block of threads: tiles of gradients go
// through shared memory, where eight lanes add their squares in the CPU's order.
static __global__ void step_block_rowwise(ew_cuda_step_terms t, uint32_t count, float *values,
                                          float *square, const float *gradients)
{
    SHARED(float, tile, BLOCK_THREADS);
    SHARED(float, result, 1);
    float sum = 0;
    for (uint32_t begin = 0; begin < count; begin += blockDim.x) {
        uint32_t size = count - begin < blockDim.x ? count - begin : blockDim.x;
        __syncthreads();
        if (threadIdx.x < size)
            tile[threadIdx.x] = gradients[begin + threadIdx.x];
        __syncthreads();
        if (threadIdx.x < EW_CUDA_SQUARE_LANES)
            for (uint32_t i = threadIdx.x; i < size; i += EW_CUDA_SQUARE_LANES)
                sum += tile[i] * tile[i];
    }
    sum = ew_cuda_add_lanes(sum);
    if (threadIdx.x == 0)
        *square = *result = *square + sum / (float)count;
    __syncthreads();
    float rate = ew_cuda_rowwise_rate(t, *result);
    for (uint32_t i = threadIdx.x; i < count; i += blockDim.x)
        values[i] -= rate * gradients[i];
}

static __global__ void step_rows(ew_cuda_step_terms t, uint32_t dim, float *slab,
                                 uint32_t row_stride, const uint32_t *slots, const uint32_t *rows,
                                 uint32_t count, const float *gradients)
{
    uint32_t k = ew_cuda_row(), d = ew_cuda_column();
    if (k >= count || d >= dim)
        return;
    float *row = slab + (size_t)slots[k] * row_stride;
    size_t from = (size_t)(rows ? rows[k] : k) * dim;
    ew_cuda_step_value(t, row + d, row + dim + d, row + 2 * (size_t)dim + d, gradients[from + d]);
}

// A warp per row.
static __global__ void step_rows_rowwise(ew_cuda_step_terms t, uint32_t dim, float *slab,
                                         uint32_t row_stride, const uint32_t *slots,
                                         const uint32_t *rows, uint32_t count,
                                         const float *gradients)
{
    uint32_t k = ew_cuda_row(), lane = threadIdx.x;
    float *row = NULL, sum = 0, square = 0;
    const float *gradient = NULL;
    if (k < count) { // other warps only keep step
        row = slab + (size_t)slots[k] * row_stride;
        gradient = gradients + (size_t)(rows ? rows[k] : k) * dim;
        square = row[dim];
        for (uint32_t i = lane; i < dim && lane < EW_CUDA_SQUARE_LANES; i += EW_CUDA_SQUARE_LANES)
            sum += gradient[i] * gradient[i];
    }
    sum = __shfl_sync(EW_CUDA_FULL, ew_cuda_add_lanes(sum), 0);
    __syncwarp(); // all have read the old square
    if (k >= count)
        return;
    square += sum / (float)dim;
    if (lane == 0)
        row[dim] = square;
    float rate = ew_cuda_rowwise_rate(t, square);
    for (uint32_t i = lane; i < dim; i += EW_CUDA_WARP)
        row[i] -= rate * gradient[i];
}

extern "C" void ew_cuda_step(void *state, const rt_optimizer_config *optimizer, uint32_t count,
                             uint64_t step, float *values, float *optimizer_state,
                             const float *gradients)
{
    ew_cuda *cuda = (ew_cuda *)state;
    ew_cuda_step_terms terms = ew_cuda_step_of(optimizer, step);
    if (count == 0 || !ew_cuda_enter(cuda))
        return;
    if (optimizer->kind == RT_OPTIMIZER_ROWWISE_ADAGRAD)
        LAUNCH(step_block_rowwise, dim3(1), dim3(BLOCK_THREADS), 0, cuda->compute, terms, count,
               values, optimizer_state, gradients);
    else
        LAUNCH(step_values, dim3(ew_cuda_blocks(count, EW_CUDA_THREADS)), dim3(EW_CUDA_THREADS), 0,
               cuda->compute, terms, count, values, optimizer_state, gradients);
    ew_cuda_leave(cuda, "step");
}

extern "C" void ew_cuda_rows_step(void *state, const rt_optimizer_config *optimizer, uint32_t dim,
                                  uint64_t step, float *slab, uint32_t row_stride,
                                  const uint32_t *slots, const uint32_t *rows, uint32_t count,
                                  const float *gradients)
{
    ew_cuda *cuda = (ew_cuda *)state;
    ew_cuda_step_terms terms = ew_cuda_step_of(optimizer, step);
    if (count == 0 || dim == 0 || !ew_cuda_enter(cuda))
        return;
    if (optimizer->kind == RT_OPTIMIZER_ROWWISE_ADAGRAD) {
        ew_cuda_tile groups = ew_cuda_groups_of(count, EW_CUDA_WARP);
        LAUNCH(step_rows_rowwise, groups.grid, groups.block, 0, cuda->compute, terms, dim, slab,
               row_stride, slots, rows, count, gradients);
    } else {
        ew_cuda_tile tile = ew_cuda_tile_of(count, dim);
        LAUNCH(step_rows, tile.grid, tile.block, 0, cuda->compute, terms, dim, slab, row_stride,
               slots, rows, count, gradients);
    }
    ew_cuda_leave(cuda, "rows_step");
}
