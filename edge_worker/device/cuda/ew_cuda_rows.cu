// rows_init, rows_get, rows_put: rows of the slab, made, gathered and scattered.
//
// packed may be pinned memory of the host: then these kernels are the transfer. They have run when
// they return, on the stream of the caller, so that row traffic overlaps computing.
//
// No races: one thread per float; slots are distinct, and not those of the other stream.
#include "edge_worker/device/cuda/ew_cuda_parts.h"

// rt_mix.
static __device__ inline uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

typedef struct {
    uint32_t dim, float_count; // with the state
    uint32_t accumulator_end;  // floats up to here, after the values, start as initial
    float initial, unit;
    uint64_t seed;
} fresh_row;

// rt_row_init: value number d takes draw number d + 1 of a generator whose state grows by a
// constant, so each thread finds its own. Integers, and one rounding in the product.
static __global__ void init_rows(fresh_row f, const uint64_t *keys, const uint32_t *slots,
                                 uint32_t count, float *slab, uint32_t row_stride)
{
    uint32_t k = ew_cuda_row(), d = ew_cuda_column();
    if (k >= count || d >= f.float_count)
        return;
    float *to = slab + (size_t)slots[k] * row_stride + d;
    if (d >= f.dim) {
        *to = d < f.accumulator_end ? f.initial : 0;
        return;
    }
    uint64_t state = mix(keys[k] + mix(f.seed)) + (d + (uint64_t)1) * 0x9e3779b97f4a7c15u;
    uint64_t bits = mix(state);
    int32_t sum =
        (int32_t)((bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48));
    *to = __fmul_rn((float)(sum - 2 * 65535), f.unit);
}

template <uint32_t W>
static __global__ void get_rows(const float *slab, uint32_t row_stride, uint32_t float_count,
                                const uint32_t *slots, uint32_t count, float *packed)
{
    uint32_t k = ew_cuda_row(), d = ew_cuda_column() * W;
    if (k < count && d < float_count)
        ew_cuda_store<W>(packed + (size_t)k * float_count + d,
                         ew_cuda_load<W>(slab + (size_t)slots[k] * row_stride + d));
}

template <uint32_t W>
static __global__ void put_rows(float *slab, uint32_t row_stride, uint32_t float_count,
                                const uint32_t *slots, uint32_t count, const float *packed)
{
    uint32_t k = ew_cuda_row(), d = ew_cuda_column() * W;
    if (k < count && d < float_count)
        ew_cuda_store<W>(slab + (size_t)slots[k] * row_stride + d,
                         ew_cuda_load<W>(packed + (size_t)k * float_count + d));
}

static fresh_row fresh_row_of(const rt_optimizer_config *optimizer, uint32_t dim, uint64_t seed,
                              float scale)
{
    fresh_row fresh = {dim, dim + rt_optimizer_state_floats(optimizer, dim), dim, 0, 0, seed};
    fresh.initial = optimizer->initial_accumulator;
    fresh.unit = scale / 37837.2266f; // as in rt_row_init
    fresh.accumulator_end =
        dim + rt_optimizer_floats(rt_optimizer_find(optimizer->kind)->about->accumulators, dim);
    return fresh;
}

extern "C" void ew_cuda_rows_init(void *state, const rt_optimizer_config *optimizer, uint32_t dim,
                                  uint64_t seed, float scale, const uint64_t *keys,
                                  const uint32_t *slots, uint32_t count, float *slab,
                                  uint32_t row_stride)
{
    ew_cuda *cuda = (ew_cuda *)state;
    cudaStream_t stream;
    if (count == 0 || !ew_cuda_enter_rows(cuda, &stream))
        return;
    fresh_row fresh = fresh_row_of(optimizer, dim, seed, scale);
    ew_cuda_tile tile = ew_cuda_tile_of(count, fresh.float_count);
    LAUNCH(init_rows, tile.grid, tile.block, 0, stream, fresh, keys, slots, count, slab,
           row_stride);
    ew_cuda_leave_rows(cuda, stream, "rows_init");
}

extern "C" void ew_cuda_rows_get(void *state, const float *slab, uint32_t row_stride,
                                 uint32_t float_count, const uint32_t *slots, uint32_t count,
                                 float *packed)
{
    ew_cuda *cuda = (ew_cuda *)state;
    cudaStream_t stream;
    if (count == 0 || float_count == 0 || !ew_cuda_enter_rows(cuda, &stream))
        return;
    if (ew_cuda_fits_4(slab, float_count, row_stride) && ew_cuda_fits_4(packed, 0, 0)) {
        ew_cuda_tile tile = ew_cuda_tile_of(count, float_count / 4);
        LAUNCH(get_rows<4>, tile.grid, tile.block, 0, stream, slab, row_stride, float_count, slots,
               count, packed);
    } else {
        ew_cuda_tile tile = ew_cuda_tile_of(count, float_count);
        LAUNCH(get_rows<1>, tile.grid, tile.block, 0, stream, slab, row_stride, float_count, slots,
               count, packed);
    }
    ew_cuda_leave_rows(cuda, stream, "rows_get");
}

extern "C" void ew_cuda_rows_put(void *state, float *slab, uint32_t row_stride,
                                 uint32_t float_count, const uint32_t *slots, uint32_t count,
                                 const float *packed)
{
    ew_cuda *cuda = (ew_cuda *)state;
    cudaStream_t stream;
    if (count == 0 || float_count == 0 || !ew_cuda_enter_rows(cuda, &stream))
        return;
    if (ew_cuda_fits_4(slab, float_count, row_stride) && ew_cuda_fits_4(packed, 0, 0)) {
        ew_cuda_tile tile = ew_cuda_tile_of(count, float_count / 4);
        LAUNCH(put_rows<4>, tile.grid, tile.block, 0, stream, slab, row_stride, float_count, slots,
               count, packed);
    } else {
        ew_cuda_tile tile = ew_cuda_tile_of(count, float_count);
        LAUNCH(put_rows<1>, tile.grid, tile.block, 0, stream, slab, row_stride, float_count, slots,
               count, packed);
    }
    ew_cuda_leave_rows(cuda, stream, "rows_put");
}
