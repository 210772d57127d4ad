// rows_back: the gradient of every row, a sum over its look-ups in the order of index.
//
// Two kernels share the rows: most have a few look-ups and take one thread per pack of columns;
// the popular ones take a block, in which groups of threads add up shares of the look-ups.
//
// No races: every gradient is written by one thread of one block, of the kernel that the length of
// its row names; shares pass through shared memory, between barriers.
#include "edge_worker/device/cuda/ew_cuda_parts.h"

#define LONG_ROW 32u // look-ups
// Packs of columns of a block of long_rows: the rest of its threads share look-ups.
#define LONG_ROWS_WIDTH 32u
#define AT_ONCE 4u // look-ups whose loads are under way together

typedef struct {
    const float *pooled_gradients; // or NULL
    uint32_t stride;
    const float *weights; // or NULL
    float *gradients;
} row_terms;

template <uint32_t W>
static __device__ void add_weighted(const ew_lookups &l, uint32_t bag, const ew_cuda_pack<W> &one,
                                    ew_cuda_pack<W> *sum)
{
    const float weight = ew_cuda_bag_weight(l, bag);
    for (uint32_t i = 0; i < W; i++)
        sum->at[i] += weight * one.at[i];
}

// Adds look-ups at, at + step, ... of the row to sum, in this order.
template <uint32_t W>
static __device__ void add_pooled(const ew_lookups &l, const row_terms &t, uint32_t row,
                                  uint32_t column, uint32_t at, uint32_t step, ew_cuda_pack<W> *sum)
{
    const uint32_t field = l.row_fields[row], end = l.row_starts[row + 1];
    const float *from = t.pooled_gradients + field * l.dim + column;
    for (; at + (AT_ONCE - 1) * step < end; at += AT_ONCE * step) {
        ew_cuda_pack<W> ones[AT_ONCE];
        uint32_t samples[AT_ONCE];
        for (uint32_t k = 0; k < AT_ONCE; k++)
            samples[k] = l.row_samples[at + k * step];
        for (uint32_t k = 0; k < AT_ONCE; k++)
            ones[k] = ew_cuda_load<W>(from + (size_t)samples[k] * t.stride);
        for (uint32_t k = 0; k < AT_ONCE; k++)
            add_weighted<W>(l, samples[k] * l.field_count + field, ones[k], sum);
    }
    for (; at < end; at += step) {
        const uint32_t sample = l.row_samples[at];
        add_weighted<W>(l, sample * l.field_count + field,
                        ew_cuda_load<W>(from + (size_t)sample * t.stride), sum);
    }
}

template <uint32_t W>
static __device__ ew_cuda_pack<W> wide_term(const ew_lookups &l, const row_terms &t, uint32_t row,
                                            uint32_t column)
{
    ew_cuda_pack<W> sum;
    for (uint32_t i = 0; i < W; i++)
        sum.at[i] = t.weights ? l.row_scalars[row] *
                                    t.weights[(size_t)l.row_fields[row] * l.dim + column + i]
                              : 0;
    return sum;
}

template <uint32_t W> static __global__ void short_rows(ew_lookups l, row_terms t)
{
    uint32_t row = ew_cuda_row(), column = ew_cuda_column() * W;
    if (row >= l.row_count || column >= l.dim)
        return;
    if (t.pooled_gradients && l.row_starts[row + 1] - l.row_starts[row] > LONG_ROW)
        return;
    ew_cuda_pack<W> sum = wide_term<W>(l, t, row, column);
    if (t.pooled_gradients)
        add_pooled<W>(l, t, row, column, l.row_starts[row], 1, &sum);
    ew_cuda_store<W>(t.gradients + (size_t)row * l.dim + column, sum);
}

template <uint32_t W> static __global__ void long_rows(ew_lookups l, row_terms t)
{
    SHARED(float, shares, EW_CUDA_THREADS *W);
    uint32_t row = blockIdx.x, column = ew_cuda_column() * W;
    if (l.row_starts[row + 1] - l.row_starts[row] <= LONG_ROW)
        return; // the whole block
    ew_cuda_pack<W> sum;
    for (uint32_t i = 0; i < W; i++)
        sum.at[i] = 0;
    if (column < l.dim)
        add_pooled<W>(l, t, row, column, l.row_starts[row] + threadIdx.y, blockDim.y, &sum);
    float *own = shares + (threadIdx.y * blockDim.x + threadIdx.x) * W;
    for (uint32_t i = 0; i < W; i++)
        own[i] = sum.at[i];
    __syncthreads();
    if (threadIdx.y != 0 || column >= l.dim)
        return;
    sum = wide_term<W>(l, t, row, column);
    for (uint32_t y = 0; y < blockDim.y; y++)
        for (uint32_t i = 0; i < W; i++)
            sum.at[i] += shares[(y * blockDim.x + threadIdx.x) * W + i];
    ew_cuda_store<W>(t.gradients + (size_t)row * l.dim + column, sum);
}

template <uint32_t W> static void launch(ew_cuda *cuda, const ew_lookups *lookups, row_terms terms)
{
    ew_cuda_tile tile = ew_cuda_tile_of(lookups->row_count, lookups->dim / W);
    LAUNCH(short_rows<W>, tile.grid, tile.block, 0, cuda->compute, *lookups, terms);
    if (!terms.pooled_gradients || lookups->lookup_count <= LONG_ROW)
        return;
    const uint32_t width = ew_cuda_power(lookups->dim / W, LONG_ROWS_WIDTH);
    tile.block = dim3(width, EW_CUDA_THREADS / width);
    tile.grid = dim3(lookups->row_count, ew_cuda_blocks(lookups->dim / W, width));
    LAUNCH(long_rows<W>, tile.grid, tile.block, 0, cuda->compute, *lookups, terms);
}

extern "C" void ew_cuda_rows_back(void *state, const ew_lookups *lookups,
                                  const float *pooled_gradients, uint32_t stride,
                                  const float *weights, float *gradients)
{
    ew_cuda *cuda = (ew_cuda *)state;
    uint32_t dim = lookups->dim;
    row_terms terms = {pooled_gradients, stride, weights, gradients};
    if (lookups->row_count == 0 || !ew_cuda_enter(cuda))
        return;
    if (ew_cuda_fits_4(gradients, dim, dim) && ew_cuda_fits_4(pooled_gradients, dim, stride))
        launch<4>(cuda, lookups, terms);
    else
        launch<1>(cuda, lookups, terms);
    ew_cuda_leave(cuda, "rows_back");
}
