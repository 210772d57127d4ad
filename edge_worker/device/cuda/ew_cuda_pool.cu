// pool: every bag's rows, gathered and added up, then the dense features.
//
// One thread per bag and pack of columns: neighbours read neighbours of one row. What it reads
// once (each row of the batch, mostly) and writes is all its traffic.
//
// No races: every number of out is written by one thread; everything else is only read.
#include "edge_worker/device/cuda/ew_cuda_parts.h"

template <uint32_t W> static __global__ void pool_bags(ew_lookups l, float *out, uint32_t stride)
{
    uint32_t bag = ew_cuda_row(), column = ew_cuda_column() * W;
    if (bag >= l.sample_count * l.field_count || column >= l.dim)
        return;
    uint32_t begin = ew_cuda_bag_begin(l, bag), end = ew_cuda_bag_end(l, bag);
    ew_cuda_pack<W> sum;
    if (!l.bag_offsets) {
        sum = ew_cuda_load<W>(ew_cuda_row_values(l, l.lookup_rows[begin]) + column);
    } else {
        for (uint32_t i = 0; i < W; i++)
            sum.at[i] = 0;
        for (uint32_t k = begin; k < end; k++) {
            ew_cuda_pack<W> row = ew_cuda_load<W>(ew_cuda_row_values(l, l.lookup_rows[k]) + column);
            for (uint32_t i = 0; i < W; i++)
                sum.at[i] += row.at[i];
        }
        if (l.pooling == RT_POOL_MEAN)
            for (uint32_t i = 0; i < W; i++)
                sum.at[i] *= ew_cuda_bag_weight(l, bag);
    }
    size_t at = (size_t)(bag / l.field_count) * stride + bag % l.field_count * l.dim + column;
    ew_cuda_store<W>(out + at, sum);
}

static __global__ void copy_dense(uint32_t sample_count, uint32_t dense_count, const float *dense,
                                  float *out, uint32_t stride)
{
    uint32_t sample = ew_cuda_row(), column = ew_cuda_column();
    if (sample < sample_count && column < dense_count)
        out[(size_t)sample * stride + column] = dense[(size_t)sample * dense_count + column];
}

extern "C" void ew_cuda_pool(void *state, const ew_lookups *lookups, const float *dense,
                             uint32_t dense_count, float *out, uint32_t stride)
{
    ew_cuda *cuda = (ew_cuda *)state;
    uint32_t bags = lookups->sample_count * lookups->field_count, dim = lookups->dim;
    if (bags == 0 || !ew_cuda_enter(cuda))
        return;
    if (ew_cuda_fits_4(lookups->slab, dim, lookups->row_stride) &&
        ew_cuda_fits_4(out, dim, stride)) {
        ew_cuda_tile tile = ew_cuda_tile_of(bags, dim / 4);
        LAUNCH(pool_bags<4>, tile.grid, tile.block, 0, cuda->compute, *lookups, out, stride);
    } else {
        ew_cuda_tile tile = ew_cuda_tile_of(bags, dim);
        LAUNCH(pool_bags<1>, tile.grid, tile.block, 0, cuda->compute, *lookups, out, stride);
    }
    if (dense_count > 0) {
        ew_cuda_tile tile = ew_cuda_tile_of(lookups->sample_count, dense_count);
        LAUNCH(copy_dense, tile.grid, tile.block, 0, cuda->compute, lookups->sample_count,
               dense_count, dense, out + lookups->field_count * dim, stride);
    }
    ew_cuda_leave(cuda, "pool");
}
