// dp_cuda_parts - a solver's problem on the device, and its way there.
//
// It is solved in one block of threads: a problem of a few thousand rows fits its caches, and the
// steps between two barriers are shorter than a launch. Costs lie sink by sink, so that threads,
// one per row, read neighbours. Places that no row needs are taken by blank rows, which cost
// nothing anywhere: then every sink ends up full.
#ifndef DP_CUDA_PARTS_H
#define DP_CUDA_PARTS_H

#include "runtime/rt_cuda_kernel.h"

extern "C" {
#include "dispatch/solvers/dp_cuda.h"
}

#define DP_CUDA_SINKS_MAX RT_WORKERS_MAX
#define DP_CUDA_THREADS_MAX 1024u
#define DP_CUDA_NONE UINT32_MAX

// Sinks without places are left out.
typedef struct {
    uint32_t row_count; // with blanks
    uint32_t real_count;
    uint32_t sink_count;
    const int32_t *cost; // sink_count x real_count
    uint32_t capacity[DP_CUDA_SINKS_MAX];
    int32_t cost_highest;
} dp_cuda_problem;

static __device__ inline int64_t dp_cuda_cost(const dp_cuda_problem &p, uint32_t row, uint32_t sink)
{
    return row < p.real_count ? p.cost[(size_t)sink * p.real_count + row] : 0;
}

// One solver's memory on device number index.
typedef struct {
    uint32_t index;
    uint32_t row_count_max, sink_count_max;
    cudaStream_t stream;
    cudaEvent_t begin, end; // of the last problem
    double device_s;
    int32_t *cost, *staged_cost;       // device, pinned host
    uint32_t *place, *staged_place;    // per row, device and pinned
    void *work;                        // device, work_bytes per row
    uint32_t sinks[DP_CUDA_SINKS_MAX]; // of the problem, by number on the device
} dp_cuda_solver;

// work_bytes: what a kernel keeps per row. RT_NO_MEMORY, RT_UNSUPPORTED.
rt_status dp_cuda_create(uint32_t index, uint32_t row_count_max, uint32_t sink_count_max,
                         size_t work_bytes, void **state_p, rt_error *error);
void dp_cuda_destroy(void *state);
double dp_cuda_device_s(const void *state);

// Brings the problem to the device; false: it has no rows.
bool dp_cuda_begin(dp_cuda_solver *solver, const dp_problem *problem, dp_cuda_problem *p);

// Whole warps, at most a block.
uint32_t dp_cuda_threads(const dp_cuda_problem *p);

// Fetches the places. RT_IO.
rt_status dp_cuda_end(dp_cuda_solver *solver, const dp_cuda_problem *p, uint32_t *sink_of_row,
                      rt_error *error);

#endif
