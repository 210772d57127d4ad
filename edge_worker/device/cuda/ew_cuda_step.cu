// step, rows_step: the optimizer on the dense block and on rows of the slab.
//
// No races: every value and its state belong to one thread; a row's one float of state (row-wise
// Adagrad) is written by lane 0 of its warp, after a barrier of the warp; slots are distinct.
#include "edge_worker/device/cuda/ew_cuda_parts.h"
#include "runtime/config/rt_optimizers.h"

extern "C" {
#include "runtime/numbers/rt_optimizer_parts.h"
}

// rt_optimizer_step on a device: the same operations in the same order, hence the same bits: the
// steps of values are the same source (rt_optimizer_parts.h).

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

// Sums over the dense block: a warp for each chunk, into parts; then one warp adds these in order.

static __global__ void chunk_squares(uint32_t count, const float *gradients, double *parts)
{
    const uint32_t chunk = ew_cuda_row(), size = ew_cuda_chunk_size(count, chunk);
    const size_t begin = (size_t)chunk * RT_OPTIMIZER_SQUARES_CHUNK;
    const double sum = ew_cuda_chunk_squares(size, gradients + begin, threadIdx.x);
    if (threadIdx.x == 0 && size > 0)
        parts[chunk] = sum;
}

// scale: NULL counts as 1, here and below.
static __global__ void chunk_shaped_squares(ew_cuda_step_terms t, const float *scale,
                                            uint32_t count, const float *values,
                                            const float *gradients, double *parts)
{
    const uint32_t chunk = ew_cuda_row(), size = ew_cuda_chunk_size(count, chunk);
    const size_t begin = (size_t)chunk * RT_OPTIMIZER_SQUARES_CHUNK;
    const float sum = ew_cuda_shaped_squares(t, scale ? *scale : 1, size, values + begin,
                                             gradients + begin, threadIdx.x);
    if (threadIdx.x == 0 && size > 0)
        parts[chunk] = sum;
}

// One warp loads the parts together; all its lanes get their sum.
static __device__ double add_parts(uint32_t part_count, const double *parts)
{
    double sum = 0;
    for (uint32_t begin = 0; begin < part_count; begin += EW_CUDA_WARP) {
        const uint32_t left = part_count - begin;
        const double own = threadIdx.x < left ? parts[begin + threadIdx.x] : 0;
        for (uint32_t k = 0; k < EW_CUDA_WARP; k++) { // + 0 behind the last changes nothing
            const double one = __shfl_sync(EW_CUDA_FULL, own, k);
            sum += one;
        }
    }
    return sum;
}

static __global__ void block_scale(ew_cuda_step_terms t, uint32_t part_count, const double *parts,
                                   float *scale)
{
    const double sum = add_parts(part_count, parts);
    if (threadIdx.x == 0)
        *scale = ew_cuda_clip_scale(t, sum);
}

// A float of state for the whole dense block, and the rate of all values.
static __global__ void block_rate(ew_cuda_step_terms t, uint32_t count, uint32_t part_count,
                                  const double *parts, float *state, float *rate)
{
    const double sum = add_parts(part_count, parts);
    if (threadIdx.x == 0)
        *rate = ew_cuda_settle(t, count, sum, state);
}

// rate: NULL stands for that of the terms.
static __global__ void step_values(ew_cuda_step_terms t, const float *scale, const float *rate,
                                   uint32_t count, float *values, float *state,
                                   const float *gradients)
{
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count)
        return;
    rt_optimizer_terms terms = ew_cuda_scaled(t, scale ? *scale : 1);
    if (rate)
        terms.rate = *rate;
    ew_cuda_step_value(t.config, terms, values + i, state + i, state + count + (size_t)i,
                       gradients[i]);
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
    ew_cuda_step_value(t.config, ew_cuda_scaled(t, 1), row + d, row + dim + d,
                       row + 2 * (size_t)dim + d, gradients[from + d]);
}

// A warp per row, which must know the gradient's norm first.
static __global__ void step_rows_clipped(ew_cuda_step_terms t, uint32_t dim, float *slab,
                                         uint32_t row_stride, const uint32_t *slots,
                                         const uint32_t *rows, uint32_t count,
                                         const float *gradients)
{
    uint32_t k = ew_cuda_row();
    const float *gradient = gradients + (size_t)(k >= count ? 0 : rows ? rows[k] : k) * dim;
    float scale = ew_cuda_row_scale(t, dim, gradient, k < count);
    if (k >= count)
        return;
    float *row = slab + (size_t)slots[k] * row_stride;
    const rt_optimizer_terms terms = ew_cuda_scaled(t, scale);
    for (uint32_t d = threadIdx.x; d < dim; d += EW_CUDA_WARP)
        ew_cuda_step_value(t.config, terms, row + d, row + dim + d, row + 2 * (size_t)dim + d,
                           gradient[d]);
}

// A warp per row, of kinds with one float of state for the whole of it.
static __global__ void step_rows_settled(ew_cuda_step_terms t, uint32_t dim, float *slab,
                                         uint32_t row_stride, const uint32_t *slots,
                                         const uint32_t *rows, uint32_t count,
                                         const float *gradients)
{
    uint32_t k = ew_cuda_row(), lane = threadIdx.x;
    float *row = slab, own = 0;
    double squares = 0;
    const float *gradient = gradients;
    if (k < count) { // other warps only keep step
        row = slab + (size_t)slots[k] * row_stride;
        gradient = gradients + (size_t)(rows ? rows[k] : k) * dim;
        own = row[dim];
    }
    float scale = ew_cuda_row_scale(t, dim, gradient, k < count);
    for (uint32_t begin = 0; begin < dim; begin += RT_OPTIMIZER_SQUARES_CHUNK) {
        const uint32_t size = ew_cuda_chunk_size(dim, begin / RT_OPTIMIZER_SQUARES_CHUNK);
        squares += ew_cuda_shaped_squares(t, scale, k < count ? size : 0, row + begin,
                                          gradient + begin, lane);
    }
    squares = __shfl_sync(EW_CUDA_FULL, squares, 0);
    __syncwarp(); // all have read the old float and values
    if (k >= count)
        return;
    rt_optimizer_terms terms = ew_cuda_scaled(t, scale);
    terms.rate = ew_cuda_settle(t, dim, squares, &own);
    if (lane == 0)
        row[dim] = own;
    for (uint32_t i = lane; i < dim; i += EW_CUDA_WARP)
        ew_cuda_step_value(t.config, terms, row + i, &own, &own, gradient[i]);
}

// Parts of a sum over the dense block in scratch, with room behind them for a float that follows
// from it. The sum that a block settles by needs the scale of clipping's.
typedef enum { SUM_OF_CLIPPING, SUM_TO_SETTLE } block_sum;

static double *parts_of(ew_cuda *cuda, block_sum sum, uint32_t part_count)
{
    const size_t each = part_count + (size_t)1, doubles = (SUM_TO_SETTLE + 1) * each;
    rt_assert(doubles * sizeof(double) <= EW_CUDA_SCRATCH_FLOATS * sizeof(float));
    return (double *)(void *)cuda->scratch + sum * each;
}

// The scale of the dense block in device memory, or NULL without clipping.
static const float *clip_block(ew_cuda *cuda, const ew_cuda_step_terms &terms, uint32_t count,
                               const float *gradients)
{
    if (!(terms.config.clip_norm > 0))
        return NULL;
    const uint32_t part_count = rt_optimizer_chunk_count(count);
    double *parts = parts_of(cuda, SUM_OF_CLIPPING, part_count);
    float *scale = (float *)(parts + part_count);
    ew_cuda_tile groups = ew_cuda_groups_of(part_count, EW_CUDA_WARP);
    LAUNCH(chunk_squares, groups.grid, groups.block, 0, cuda->compute, count, gradients, parts);
    LAUNCH(block_scale, dim3(1), dim3(EW_CUDA_WARP), 0, cuda->compute, terms, part_count, parts,
           scale);
    return scale;
}

// The rate of the dense block in device memory, or NULL where no float of state belongs to it all.
static const float *settle_block(ew_cuda *cuda, const ew_cuda_step_terms &terms, const float *scale,
                                 uint32_t count, const float *values, float *state,
                                 const float *gradients)
{
    if (rt_optimizer_is_elementwise(&terms.config))
        return NULL;
    const uint32_t part_count = rt_optimizer_chunk_count(count);
    double *parts = parts_of(cuda, SUM_TO_SETTLE, part_count);
    float *rate = (float *)(parts + part_count);
    ew_cuda_tile groups = ew_cuda_groups_of(part_count, EW_CUDA_WARP);
    LAUNCH(chunk_shaped_squares, groups.grid, groups.block, 0, cuda->compute, terms, scale, count,
           values, gradients, parts);
    LAUNCH(block_rate, dim3(1), dim3(EW_CUDA_WARP), 0, cuda->compute, terms, count, part_count,
           parts, state, rate);
    return rate;
}

extern "C" void ew_cuda_step(void *state, const rt_optimizer_config *optimizer, uint32_t count,
                             uint64_t step, float *values, float *optimizer_state,
                             const float *gradients)
{
    ew_cuda *cuda = (ew_cuda *)state;
    ew_cuda_step_terms terms = ew_cuda_step_of(optimizer, step);
    if (count == 0 || !ew_cuda_enter(cuda))
        return;
    const float *scale = clip_block(cuda, terms, count, gradients);
    const float *rate = settle_block(cuda, terms, scale, count, values, optimizer_state, gradients);
    LAUNCH(step_values, dim3(ew_cuda_blocks(count, EW_CUDA_THREADS)), dim3(EW_CUDA_THREADS), 0,
           cuda->compute, terms, scale, rate, count, values, optimizer_state, gradients);
    ew_cuda_leave(cuda, "step");
}

// Numbers that every warp reads, in the device's own memory: pinned memory comes over the bus, once
// for each that reads it. at: place in scratch.
static const uint32_t *bring(ew_cuda *cuda, const uint32_t *numbers, uint32_t count, size_t at)
{
    size_t bytes = count * sizeof *numbers;
    if (!numbers || at + count > EW_CUDA_SCRATCH_FLOATS || !ew_cuda_is_shared(cuda, numbers, bytes))
        return numbers;
    uint32_t *own = (uint32_t *)(void *)(cuda->scratch + at);
    ew_cuda_check(cuda, cudaMemcpyAsync(own, numbers, bytes, cudaMemcpyHostToDevice, cuda->compute),
                  "rows_step");
    return own;
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
    ew_cuda_tile groups = ew_cuda_groups_of(count, EW_CUDA_WARP);
    slots = bring(cuda, slots, count, 0);
    rows = bring(cuda, rows, count, count);
    if (!ew_cuda_enter(cuda))
        return; // without its slots no row may be stepped
    if (!rt_optimizer_is_elementwise(optimizer)) {
        LAUNCH(step_rows_settled, groups.grid, groups.block, 0, cuda->compute, terms, dim, slab,
               row_stride, slots, rows, count, gradients);
    } else if (optimizer->clip_norm > 0) {
        LAUNCH(step_rows_clipped, groups.grid, groups.block, 0, cuda->compute, terms, dim, slab,
               row_stride, slots, rows, count, gradients);
    } else {
        ew_cuda_tile tile = ew_cuda_tile_of(count, dim);
        LAUNCH(step_rows, tile.grid, tile.block, 0, cuda->compute, terms, dim, slab, row_stride,
               slots, rows, count, gradients);
    }
    ew_cuda_leave(cuda, "rows_step");
}
