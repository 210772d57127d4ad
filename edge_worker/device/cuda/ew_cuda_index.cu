// index: the look-ups by row, each row's samples ascending.
//
// Count the look-ups of each row, add the counts up, give every look-up a place in its row, sort
// the places of each row. Atomic counters hand out places in any order; counts and sorted rows are
// the same in every run. Rows with few look-ups are sorted by a warp, popular ones by a block of
// their own each, which counts the look-ups of every sample.
//
// No races: counters change by atomics only; row_fields[r] is written by the one thread that
// counted first; each place is handed out once; a row is sorted by one warp, or by one block,
// between barriers; sorted and row_samples are written by the threads of the row's block alone.
// Kernels of one stream run one after another.
#include "edge_worker/device/cuda/ew_cuda_parts.h"

#define SCAN_THREADS_MAX 1024u
#define ROWS_PER_BLOCK (EW_CUDA_THREADS / EW_CUDA_WARP)
#define WARP_SORTS 64u     // look-ups; longer rows are counted
#define TILE_SAMPLES 4096u // samples whose counts are in shared memory at a time

static __global__ void count_lookups(ew_lookups l, uint32_t *counts)
{
    uint32_t bag = blockIdx.x * blockDim.x + threadIdx.x;
    if (bag >= l.sample_count * l.field_count)
        return;
    uint32_t end = ew_cuda_bag_end(l, bag);
    for (uint32_t k = ew_cuda_bag_begin(l, bag); k < end; k++)
        if (atomicAdd(&counts[l.lookup_rows[k]], 1u) == 0)
            l.row_fields[l.lookup_rows[k]] = bag % l.field_count;
}

// One block: every thread adds up a stretch of counts, then the stretches are added.
static __global__ void __launch_bounds__(SCAN_THREADS_MAX)
    scan_counts(uint32_t row_count, const uint32_t *counts, uint32_t *starts)
{
    SHARED(uint32_t, warps, SCAN_THREADS_MAX / EW_CUDA_WARP);
    uint32_t stretch = (row_count + blockDim.x - 1) / blockDim.x;
    uint32_t begin = threadIdx.x * stretch, end = begin + stretch;
    end = end < row_count ? end : row_count;
    uint32_t sum = 0;
    for (uint32_t r = begin; r < end; r++)
        sum += counts[r];
    uint32_t before = sum, lane = threadIdx.x % EW_CUDA_WARP, warp = threadIdx.x / EW_CUDA_WARP;
    for (uint32_t step = 1; step < EW_CUDA_WARP; step *= 2) {
        uint32_t other = __shfl_up_sync(EW_CUDA_FULL, before, step);
        before += lane >= step ? other : 0;
    }
    if (lane == EW_CUDA_WARP - 1)
        warps[warp] = before;
    __syncthreads();
    before -= sum;
    for (uint32_t w = 0; w < warp; w++)
        before += warps[w];
    for (uint32_t r = begin; r < end; r++) {
        starts[r] = before;
        before += counts[r];
    }
    if (threadIdx.x == blockDim.x - 1)
        starts[row_count] = before;
}

static __global__ void place_lookups(ew_lookups l, uint32_t *counts)
{
    uint32_t bag = blockIdx.x * blockDim.x + threadIdx.x;
    if (bag >= l.sample_count * l.field_count)
        return;
    uint32_t end = ew_cuda_bag_end(l, bag);
    for (uint32_t k = ew_cuda_bag_begin(l, bag); k < end; k++) {
        uint32_t row = l.lookup_rows[k];
        l.row_samples[l.row_starts[row] + atomicSub(&counts[row], 1u) - 1] = bag / l.field_count;
    }
}

static __device__ void order_pair(uint32_t *values, uint32_t count, uint32_t low, uint32_t high)
{
    if (high >= count || values[low] <= values[high])
        return;
    uint32_t kept = values[low];
    values[low] = values[high];
    values[high] = kept;
}

// One step of a bitonic network in which every pair ascends, so that what lies past count can be
// taken for infinite. Runs of size are sorted out of two halves: the first step mirrors.
static __device__ void sort_step(uint32_t *values, uint32_t count, uint32_t size, uint32_t distance,
                                 uint32_t thread, uint32_t thread_count)
{
    uint32_t pair_count = (count + size - 1) / size * (size / 2);
    for (uint32_t pair = thread; pair < pair_count; pair += thread_count) {
        if (distance == size / 2) {
            uint32_t run = pair / distance * size, k = pair % distance;
            order_pair(values, count, run + k, run + size - 1 - k);
        } else {
            uint32_t low = pair / distance * 2 * distance + pair % distance;
            order_pair(values, count, low, low + distance);
        }
    }
}

static __global__ void sort_samples(ew_lookups l)
{
    uint32_t first = blockIdx.x * ROWS_PER_BLOCK, lane = threadIdx.x % EW_CUDA_WARP;
    uint32_t own = first + threadIdx.x / EW_CUDA_WARP;
    uint32_t start = own < l.row_count ? l.row_starts[own] : 0;
    uint32_t count = own < l.row_count ? l.row_starts[own + 1] - start : 0;
    count = count <= WARP_SORTS ? count : 0;
    for (uint32_t size = 2; size < 2 * count; size *= 2)
        for (uint32_t distance = size / 2; distance > 0; distance /= 2) {
            sort_step(l.row_samples + start, count, size, distance, lane, EW_CUDA_WARP);
            __syncwarp();
        }
}

// Where each thread's bins begin, if thread t's hold own: the sum of what threads before it hold.
// warps: shared, one number per warp. *all: of the whole block.
static __device__ uint32_t sum_before(uint32_t own, uint32_t *warps, uint32_t *all)
{
    uint32_t lane = threadIdx.x % EW_CUDA_WARP, warp = threadIdx.x / EW_CUDA_WARP, sum = own;
    for (uint32_t step = 1; step < EW_CUDA_WARP; step *= 2) {
        uint32_t other = __shfl_up_sync(EW_CUDA_FULL, sum, step);
        sum += lane >= step ? other : 0;
    }
    if (lane == EW_CUDA_WARP - 1)
        warps[warp] = sum;
    __syncthreads();
    uint32_t before = sum - own;
    *all = 0;
    for (uint32_t w = 0; w < EW_CUDA_THREADS / EW_CUDA_WARP; w++) {
        before += w < warp ? warps[w] : 0;
        *all += warps[w];
    }
    return before;
}

// A block per row: counts how often each sample stands in it, a tile of samples after the other,
// and writes them down in order, into sorted (as long as row_samples), and from there back. Without
// sorted: by a network, in place.
static __global__ void __launch_bounds__(EW_CUDA_THREADS)
    sort_popular(ew_lookups l, uint32_t *sorted)
{
    SHARED(uint32_t, counts, TILE_SAMPLES);
    SHARED(uint32_t, warps, EW_CUDA_THREADS / EW_CUDA_WARP);
    const uint32_t bins = TILE_SAMPLES / EW_CUDA_THREADS, own = threadIdx.x * bins;
    const uint32_t start = l.row_starts[blockIdx.x], end = l.row_starts[blockIdx.x + 1];
    if (end - start <= WARP_SORTS)
        return; // the whole block
    if (!sorted) {
        for (uint32_t size = 2; size < 2 * (end - start); size *= 2)
            for (uint32_t distance = size / 2; distance > 0; distance /= 2) {
                sort_step(l.row_samples + start, end - start, size, distance, threadIdx.x,
                          blockDim.x);
                __syncthreads();
            }
        return;
    }
    uint32_t written = start;
    for (uint32_t tile = 0; tile < l.sample_count; tile += TILE_SAMPLES) {
        uint32_t sum = 0, all;
        for (uint32_t i = threadIdx.x; i < TILE_SAMPLES; i += EW_CUDA_THREADS)
            counts[i] = 0;
        __syncthreads();
        for (uint32_t at = start + threadIdx.x; at < end; at += EW_CUDA_THREADS)
            if (l.row_samples[at] - tile < TILE_SAMPLES) // those before it wrap around
                atomicAdd(&counts[l.row_samples[at] - tile], 1u);
        __syncthreads();
        for (uint32_t i = own; i < own + bins; i++)
            sum += counts[i];
        uint32_t to = written + sum_before(sum, warps, &all);
        for (uint32_t i = own; i < own + bins; i++)
            for (uint32_t k = 0; k < counts[i]; k++)
                sorted[to++] = tile + i;
        written += all;
        __syncthreads(); // before the counts are cleared, and sorted is read
    }
    for (uint32_t at = start + threadIdx.x; at < end; at += EW_CUDA_THREADS)
        l.row_samples[at] = sorted[at];
}

// Each of these kernels goes where the one before has put a number: none may run without it.
static bool goes_on(ew_cuda *cuda)
{
    ew_cuda_leave(cuda, "index");
    return ew_cuda_enter(cuda);
}

extern "C" void ew_cuda_index(void *state, const ew_lookups *lookups)
{
    ew_cuda *cuda = (ew_cuda *)state;
    if (!ew_cuda_enter(cuda))
        return;
    uint32_t rows = lookups->row_count, bags = lookups->sample_count * lookups->field_count;
    uint32_t *counts = (uint32_t *)(void *)lookups->row_scalars; // free until wide_back
    const bool fits = lookups->lookup_count <= EW_CUDA_SCRATCH_FLOATS;
    uint32_t *sorted = fits ? (uint32_t *)(void *)cuda->scratch : NULL;
    dim3 bag_grid(ew_cuda_blocks(bags, EW_CUDA_THREADS)), block(EW_CUDA_THREADS);
    uint32_t scan_threads = ew_cuda_power(rows, SCAN_THREADS_MAX);
    scan_threads = scan_threads < EW_CUDA_WARP ? EW_CUDA_WARP : scan_threads;
    if (rows > 0)
        ew_cuda_check(cuda, cudaMemsetAsync(counts, 0, rows * sizeof *counts, cuda->compute),
                      "index");
    if (bags > 0 && goes_on(cuda))
        LAUNCH(count_lookups, bag_grid, block, 0, cuda->compute, *lookups, counts);
    if (goes_on(cuda))
        LAUNCH(scan_counts, dim3(1), dim3(scan_threads), 0, cuda->compute, rows, counts,
               lookups->row_starts);
    if (bags > 0 && rows > 0) {
        if (goes_on(cuda))
            LAUNCH(place_lookups, bag_grid, block, 0, cuda->compute, *lookups, counts);
        if (goes_on(cuda))
            LAUNCH(sort_samples, dim3(ew_cuda_blocks(rows, ROWS_PER_BLOCK)), block, 0,
                   cuda->compute, *lookups);
        if (lookups->lookup_count > WARP_SORTS && goes_on(cuda))
            LAUNCH(sort_popular, dim3(rows), block, 0, cuda->compute, *lookups, sorted);
    }
    ew_cuda_leave(cuda, "index");
}
