// index: the look-ups by row, each row's samples ascending.
//
// Count the look-ups of each row, add the counts up, give every look-up a place in its row, sort
// the places of each row. Atomic counters hand out places in any order; counts and sorted rows are
// the same in every run.
//
// No races: counters change by atomics only; row_fields[r] is written by the one thread that
// counted first; each place is handed out once; a row is sorted by one warp, or by one block after
// a barrier. Kernels of one stream run one after another.
#include "edge_worker/device/cuda/ew_cuda_parts.h"

#define SCAN_THREADS_MAX 1024u
#define ROWS_PER_BLOCK (EW_CUDA_THREADS / EW_CUDA_WARP)
#define WARP_SORTS 64u // longer rows take the whole block

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
    for (uint32_t row = first; row < first + ROWS_PER_BLOCK && row < l.row_count; row++) {
        start = l.row_starts[row];
        count = l.row_starts[row + 1] - start;
        if (count <= WARP_SORTS)
            continue; // so for all threads of the block
        for (uint32_t size = 2; size < 2 * count; size *= 2)
            for (uint32_t distance = size / 2; distance > 0; distance /= 2) {
                sort_step(l.row_samples + start, count, size, distance, threadIdx.x, blockDim.x);
                __syncthreads();
            }
    }
}

extern "C" void ew_cuda_index(void *state, const ew_lookups *lookups)
{
    ew_cuda *cuda = (ew_cuda *)state;
    if (!ew_cuda_enter(cuda))
        return;
    uint32_t rows = lookups->row_count, bags = lookups->sample_count * lookups->field_count;
    uint32_t *counts = (uint32_t *)(void *)lookups->row_scalars; // free until wide_back
    dim3 bag_grid(ew_cuda_blocks(bags, EW_CUDA_THREADS)), block(EW_CUDA_THREADS);
    uint32_t scan_threads = ew_cuda_power(rows, SCAN_THREADS_MAX);
    scan_threads = scan_threads < EW_CUDA_WARP ? EW_CUDA_WARP : scan_threads;
    if (rows > 0)
        ew_cuda_check(cuda, cudaMemsetAsync(counts, 0, rows * sizeof *counts, cuda->compute),
                      "index");
    if (bags > 0)
        LAUNCH(count_lookups, bag_grid, block, 0, cuda->compute, *lookups, counts);
    LAUNCH(scan_counts, dim3(1), dim3(scan_threads), 0, cuda->compute, rows, counts,
           lookups->row_starts);
    if (bags > 0 && rows > 0) {
        LAUNCH(place_lookups, bag_grid, block, 0, cuda->compute, *lookups, counts);
        LAUNCH(sort_samples, dim3(ew_cuda_blocks(rows, ROWS_PER_BLOCK)), block, 0, cuda->compute,
               *lookups);
    }
    ew_cuda_leave(cuda, "index");
}
