// dots, dots_back: DLRM's products of all pairs of a sample's vectors.
//
// Forward, a block takes one sample: its vectors pass through shared memory a few columns at a
// time, and every thread keeps some pairs in registers meanwhile. Back, a thread per element of the
// gradient, which reads all vectors of its column; they stay in the cache.
//
// No races: every output has one thread; shared memory is written and read between barriers.
#include "edge_worker/device/cuda/ew_cuda_parts.h"

#define TILE_FLOATS 6144u // of shared memory
#define COLUMNS_MAX 32u
#define PAIRS 4u // per thread and pass

typedef struct {
    uint32_t sample_count, count, dim, stride, out_stride;
    uint32_t pair_count, columns; // of a tile
    const float *x;
    float *out;
} dots_terms;

// Pair number p is (a, b), b < a, with p = a (a - 1) / 2 + b.
static __device__ void find_pair(uint32_t p, uint32_t *a_p, uint32_t *b_p)
{
    uint32_t a = (uint32_t)((1 + sqrtf(1 + 8 * (float)p)) / 2);
    while (a * (a - 1) / 2 > p)
        a--;
    while (a * (a + 1) / 2 <= p)
        a++;
    *a_p = a;
    *b_p = p - a * (a - 1) / 2;
}

static __device__ void load_tile(const dots_terms &t, const float *row, uint32_t first,
                                 uint32_t width, float *tile)
{
    __syncthreads();
    for (uint32_t k = threadIdx.x; k < t.count * width; k += blockDim.x)
        tile[k / width * (t.columns + 1) + k % width] =
            row[(size_t)(k / width) * t.dim + first + k % width];
    __syncthreads();
}

static __global__ void pair_dots(dots_terms t)
{
    SHARED_DYNAMIC(float, tile); // count x (columns + 1): odd, so that banks differ
    const float *row = t.x + (size_t)blockIdx.x * t.stride;
    float *out = t.out + (size_t)blockIdx.x * t.out_stride;
    for (uint32_t d = threadIdx.x; d < t.dim; d += blockDim.x)
        out[d] = row[(size_t)(t.count - 1) * t.dim + d];
    for (uint32_t base = 0; base < t.pair_count; base += PAIRS * blockDim.x) {
        float sums[PAIRS];
        uint32_t a[PAIRS], b[PAIRS];
        for (uint32_t i = 0; i < PAIRS; i++) {
            uint32_t p = base + i * blockDim.x + threadIdx.x;
            find_pair(p < t.pair_count ? p : 0, &a[i], &b[i]);
            sums[i] = 0;
        }
        for (uint32_t first = 0; first < t.dim; first += t.columns) {
            uint32_t width = t.dim - first < t.columns ? t.dim - first : t.columns;
            load_tile(t, row, first, width, tile);
            for (uint32_t i = 0; i < PAIRS; i++)
                for (uint32_t d = 0; d < width; d++)
                    sums[i] += tile[a[i] * (t.columns + 1) + d] * tile[b[i] * (t.columns + 1) + d];
        }
        for (uint32_t i = 0; i < PAIRS; i++) {
            uint32_t p = base + i * blockDim.x + threadIdx.x;
            if (p < t.pair_count)
                out[t.dim + p] = sums[i];
        }
    }
}

// out: out_gradients.
static __global__ void pair_dots_back(dots_terms t, float *x_gradients)
{
    uint32_t sample = blockIdx.x;
    const float *row = t.x + (size_t)sample * t.stride;
    const float *from = t.out + (size_t)sample * t.out_stride, *pairs = from + t.dim;
    for (uint32_t k = threadIdx.x; k < t.count * t.dim; k += blockDim.x) {
        uint32_t a = k / t.dim, d = k % t.dim;
        float sum = 0;
        for (uint32_t b = 0; b < t.count; b++) {
            if (a == b)
                continue;
            uint32_t p = a > b ? a * (a - 1) / 2 + b : b * (b - 1) / 2 + a;
            sum += pairs[p] * row[(size_t)b * t.dim + d];
        }
        x_gradients[(size_t)sample * t.stride + k] = a == t.count - 1 ? sum + from[d] : sum;
    }
}

extern "C" void ew_cuda_dots(void *state, uint32_t sample_count, uint32_t count, uint32_t dim,
                             const float *x, uint32_t stride, float *out, uint32_t out_stride)
{
    ew_cuda *cuda = (ew_cuda *)state;
    if (sample_count == 0 || count == 0 || !ew_cuda_enter(cuda))
        return;
    uint32_t columns = TILE_FLOATS / count - 1;
    columns = columns < COLUMNS_MAX ? columns : COLUMNS_MAX;
    rt_assert(columns >= 1 && columns <= COLUMNS_MAX); // a vector per field and one more
    dots_terms terms = {sample_count, count, dim, stride, out_stride, count * (count - 1) / 2,
                        columns,      x,     out};
    uint32_t threads = ew_cuda_power((terms.pair_count + PAIRS - 1) / PAIRS, EW_CUDA_THREADS);
    threads = threads < EW_CUDA_WARP ? EW_CUDA_WARP : threads;
    LAUNCH(pair_dots, dim3(sample_count), dim3(threads), count * (columns + 1) * sizeof(float),
           cuda->compute, terms);
    ew_cuda_leave(cuda, "dots");
}

extern "C" void ew_cuda_dots_back(void *state, uint32_t sample_count, uint32_t count, uint32_t dim,
                                  const float *x, uint32_t stride, const float *out_gradients,
                                  uint32_t out_stride, float *x_gradients)
{
    ew_cuda *cuda = (ew_cuda *)state;
    if (sample_count == 0 || count == 0 || dim == 0 || !ew_cuda_enter(cuda))
        return;
    dots_terms terms = {sample_count,          count, dim, stride, out_stride, 0, 0, x,
                        (float *)out_gradients};
    LAUNCH(pair_dots_back, dim3(sample_count), dim3(ew_cuda_power(count * dim, EW_CUDA_THREADS)), 0,
           cuda->compute, terms, x_gradients);
    ew_cuda_leave(cuda, "dots_back");
}
