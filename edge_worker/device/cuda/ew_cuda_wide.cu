// wide, wide_back: the part of a model that is linear in the embeddings, without pooling them.
//
// Forward, a group of lanes takes the product of one row, then a warp adds a sample's numbers.
// Back, row_scalars by groups over each row's look-ups; the weight gradients by field, as partial
// sums over chunks of samples (ew_cuda_sums.cu).
//
// No races: each product, logit, scalar and partial sum is written by one thread, in a kernel of
// its own; later kernels of the stream read it.
#include "edge_worker/device/cuda/ew_cuda_parts.h"

#define SCALAR_LANES 8u // most rows have one or two look-ups
#define SAMPLES_PER_PART 16u

template <uint32_t W> static __global__ void row_products(ew_lookups l, const float *weights)
{
    uint32_t row = ew_cuda_row();
    float sum = 0;
    if (row < l.row_count) {
        const float *values = ew_cuda_row_values(l, row);
        const float *factors = weights + (size_t)l.row_fields[row] * l.dim;
        for (uint32_t column = threadIdx.x * W; column < l.dim; column += blockDim.x * W) {
            ew_cuda_pack<W> a = ew_cuda_load<W>(factors + column);
            ew_cuda_pack<W> b = ew_cuda_load<W>(values + column);
            for (uint32_t i = 0; i < W; i++)
                sum += a.at[i] * b.at[i];
        }
    }
    sum = ew_cuda_group_sum(sum);
    if (row < l.row_count && threadIdx.x == 0)
        l.row_scalars[row] = sum;
}

static __global__ void add_logits(ew_lookups l, float *logits)
{
    uint32_t sample = ew_cuda_row();
    float sum = 0;
    if (sample < l.sample_count)
        for (uint32_t f = threadIdx.x; f < l.field_count; f += blockDim.x) {
            uint32_t bag = sample * l.field_count + f;
            uint32_t end = ew_cuda_bag_end(l, bag);
            float bag_sum = 0;
            for (uint32_t k = ew_cuda_bag_begin(l, bag); k < end; k++)
                bag_sum += l.row_scalars[l.lookup_rows[k]];
            sum += ew_cuda_bag_weight(l, bag) * bag_sum;
        }
    sum = ew_cuda_group_sum(sum);
    if (sample < l.sample_count && threadIdx.x == 0)
        logits[sample] += sum;
}

static __global__ void sum_scalars(ew_lookups l, const float *logit_gradients)
{
    uint32_t row = ew_cuda_row();
    float sum = 0;
    if (row < l.row_count) {
        uint32_t end = l.row_starts[row + 1], field = l.row_fields[row];
        for (uint32_t at = l.row_starts[row] + threadIdx.x; at < end; at += blockDim.x) {
            uint32_t sample = l.row_samples[at];
            sum += ew_cuda_bag_weight(l, sample * l.field_count + field) * logit_gradients[sample];
        }
    }
    sum = ew_cuda_group_sum(sum);
    if (row < l.row_count && threadIdx.x == 0)
        l.row_scalars[row] = sum;
}

// Block: one field (y), one chunk of samples (x), threads over packs of columns.
template <uint32_t W>
static __global__ void sum_weights(ew_lookups l, const float *logit_gradients, uint32_t chunk,
                                   float *parts)
{
    uint32_t field = blockIdx.y, begin = blockIdx.x * chunk;
    uint32_t end = begin + chunk < l.sample_count ? begin + chunk : l.sample_count;
    float *to = parts + ((size_t)blockIdx.x * l.field_count + field) * l.dim;
    for (uint32_t column = threadIdx.x * W; column < l.dim; column += blockDim.x * W) {
        ew_cuda_pack<W> sum;
        for (uint32_t i = 0; i < W; i++)
            sum.at[i] = 0;
        for (uint32_t sample = begin; sample < end; sample++) {
            uint32_t bag = sample * l.field_count + field, bag_end = ew_cuda_bag_end(l, bag);
            float gradient = ew_cuda_bag_weight(l, bag) * logit_gradients[sample];
            for (uint32_t k = ew_cuda_bag_begin(l, bag); k < bag_end; k++) {
                ew_cuda_pack<W> row =
                    ew_cuda_load<W>(ew_cuda_row_values(l, l.lookup_rows[k]) + column);
                for (uint32_t i = 0; i < W; i++)
                    sum.at[i] += gradient * row.at[i];
            }
        }
        ew_cuda_store<W>(to + column, sum);
    }
}

extern "C" void ew_cuda_wide(void *state, const ew_lookups *lookups, const float *weights,
                             float *logits)
{
    ew_cuda *cuda = (ew_cuda *)state;
    uint32_t rows = lookups->row_count, dim = lookups->dim;
    if (lookups->sample_count == 0 || !ew_cuda_enter(cuda))
        return;
    if (rows > 0 && ew_cuda_fits_4(lookups->slab, dim, lookups->row_stride) &&
        ew_cuda_fits_4(weights, dim, dim)) {
        ew_cuda_tile groups = ew_cuda_groups_of(rows, dim / 4);
        LAUNCH(row_products<4>, groups.grid, groups.block, 0, cuda->compute, *lookups, weights);
    } else if (rows > 0) {
        ew_cuda_tile groups = ew_cuda_groups_of(rows, dim);
        LAUNCH(row_products<1>, groups.grid, groups.block, 0, cuda->compute, *lookups, weights);
    }
    ew_cuda_tile groups = ew_cuda_groups_of(lookups->sample_count, lookups->field_count);
    LAUNCH(add_logits, groups.grid, groups.block, 0, cuda->compute, *lookups, logits);
    ew_cuda_leave(cuda, "wide");
}

extern "C" void ew_cuda_wide_back(void *state, const ew_lookups *lookups,
                                  const float *logit_gradients, float *weight_gradients)
{
    ew_cuda *cuda = (ew_cuda *)state;
    uint32_t samples = lookups->sample_count, count = lookups->field_count * lookups->dim;
    if (!ew_cuda_enter(cuda))
        return;
    if (lookups->row_count > 0) {
        ew_cuda_tile groups = ew_cuda_groups_of(lookups->row_count, SCALAR_LANES);
        LAUNCH(sum_scalars, groups.grid, groups.block, 0, cuda->compute, *lookups, logit_gradients);
    }
    uint32_t chunk, parts = ew_cuda_part_count(cuda, samples, SAMPLES_PER_PART, count, &chunk);
    float *to = parts > 1 ? cuda->scratch : weight_gradients;
    dim3 grid(parts, lookups->field_count);
    if (ew_cuda_fits_4(lookups->slab, lookups->dim, lookups->row_stride) &&
        ew_cuda_fits_4(to, lookups->dim, lookups->dim))
        LAUNCH(sum_weights<4>, grid, dim3(ew_cuda_power(lookups->dim / 4, EW_CUDA_THREADS)), 0,
               cuda->compute, *lookups, logit_gradients, chunk, to);
    else
        LAUNCH(sum_weights<1>, grid, dim3(ew_cuda_power(lookups->dim, EW_CUDA_THREADS)), 0,
               cuda->compute, *lookups, logit_gradients, chunk, to);
    if (parts > 1)
        ew_cuda_sum_parts(cuda, parts, count, to, weight_gradients);
    ew_cuda_leave(cuda, "wide_back");
}
