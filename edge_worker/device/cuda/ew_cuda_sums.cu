// Sums in parts: kernels that add up over many items write one partial sum per chunk of items, and
// this adds the parts in their order. So a sum does not depend on which block ran first.
//
// No races: every number of out is written by one thread; parts are only read.
#include "edge_worker/device/cuda/ew_cuda_parts.h"

static __global__ void sum_parts(uint32_t part_count, uint32_t count, const float *parts,
                                 float *out)
{
    uint32_t at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= count)
        return;
    float sum = 0;
    for (uint32_t p = 0; p < part_count; p++)
        sum += parts[(size_t)p * count + at];
    out[at] = sum;
}

void ew_cuda_sum_parts(ew_cuda *cuda, uint32_t part_count, uint32_t count, const float *parts,
                       float *out)
{
    if (count > 0)
        LAUNCH(sum_parts, dim3(ew_cuda_blocks(count, EW_CUDA_THREADS)), dim3(EW_CUDA_THREADS), 0,
               cuda->compute, part_count, count, parts, out);
}

uint32_t ew_cuda_part_count(const ew_cuda *cuda, uint32_t item_count, uint32_t item_min,
                            uint64_t count)
{
    uint64_t parts = ew_cuda_blocks(item_count, item_min);
    uint64_t fitting = EW_CUDA_SCRATCH_FLOATS / (count ? count : 1);
    uint64_t useful = (uint64_t)cuda->processor_count * 8;
    parts = parts < fitting ? parts : fitting;
    parts = parts < useful ? parts : useful;
    return parts ? (uint32_t)parts : 1;
}
