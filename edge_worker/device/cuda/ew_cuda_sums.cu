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
                            uint64_t count, uint32_t *chunk_p)
{
    const uint64_t fitting = EW_CUDA_SCRATCH_FLOATS / (count ? count : 1);
    const uint64_t useful = (uint64_t)cuda->processor_count * 8;
    uint64_t most = fitting < useful ? fitting : useful;
    most = most ? most : 1;
    const uint64_t least = ew_cuda_blocks(item_count, item_min);
    *chunk_p = (uint32_t)((least + most - 1) / most) * item_min;
    *chunk_p = *chunk_p ? *chunk_p : item_min;
    const uint32_t parts = ew_cuda_blocks(item_count, *chunk_p);
    return parts ? parts : 1;
}
