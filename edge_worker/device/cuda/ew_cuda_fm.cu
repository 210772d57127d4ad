// fm, fm_back: DeepFM's pairwise products.
//
// A group of lanes per sample adds up its vectors column by column. No races: sums and gradients
// have one thread each, a logit the first lane of its group.
#include "edge_worker/device/cuda/ew_cuda_parts.h"

static __global__ void pair_products(uint32_t sample_count, uint32_t count, uint32_t dim,
                                     const float *x, uint32_t stride, float *sums, float *logits)
{
    uint32_t sample = ew_cuda_row();
    float square_of_sum = 0, sum_of_squares = 0;
    if (sample < sample_count) {
        const float *row = x + (size_t)sample * stride;
        for (uint32_t d = threadIdx.x; d < dim; d += blockDim.x) {
            float sum = 0;
            for (uint32_t v = 0; v < count; v++) {
                float one = row[(size_t)v * dim + d];
                sum += one;
                sum_of_squares += one * one;
            }
            sums[(size_t)sample * dim + d] = sum;
            square_of_sum += sum * sum;
        }
    }
    square_of_sum = ew_cuda_group_sum(square_of_sum);
    sum_of_squares = ew_cuda_group_sum(sum_of_squares);
    if (sample < sample_count && threadIdx.x == 0)
        logits[sample] += 0.5f * (square_of_sum - sum_of_squares);
}

static __global__ void pair_gradients(uint32_t sample_count, uint32_t count, uint32_t dim,
                                      const float *x, uint32_t stride, const float *sums,
                                      const float *logit_gradients, float *x_gradients)
{
    uint32_t sample = ew_cuda_row(), column = ew_cuda_column();
    if (sample >= sample_count || column >= count * dim)
        return;
    size_t at = (size_t)sample * stride + column;
    x_gradients[at] +=
        logit_gradients[sample] * (sums[(size_t)sample * dim + column % dim] - x[at]);
}

extern "C" void ew_cuda_fm(void *state, uint32_t sample_count, uint32_t count, uint32_t dim,
                           const float *x, uint32_t stride, float *sums, float *logits)
{
    ew_cuda *cuda = (ew_cuda *)state;
    if (sample_count == 0 || !ew_cuda_enter(cuda))
        return;
    ew_cuda_tile groups = ew_cuda_groups_of(sample_count, dim);
    LAUNCH(pair_products, groups.grid, groups.block, 0, cuda->compute, sample_count, count, dim, x,
           stride, sums, logits);
    ew_cuda_leave(cuda, "fm");
}

extern "C" void ew_cuda_fm_back(void *state, uint32_t sample_count, uint32_t count, uint32_t dim,
                                const float *x, uint32_t stride, const float *sums,
                                const float *logit_gradients, float *x_gradients)
{
    ew_cuda *cuda = (ew_cuda *)state;
    if (sample_count == 0 || count == 0 || dim == 0 || !ew_cuda_enter(cuda))
        return;
    ew_cuda_tile tile = ew_cuda_tile_of(sample_count, count * dim);
    LAUNCH(pair_gradients, tile.grid, tile.block, 0, cuda->compute, sample_count, count, dim, x,
           stride, sums, logit_gradients, x_gradients);
    ew_cuda_leave(cuda, "fm_back");
}
