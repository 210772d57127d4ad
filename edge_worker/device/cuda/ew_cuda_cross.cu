// cross, cross_back: Deep & Cross with vectors, in scalars; the formulas are in ew_cpu_meet.c.
//
// One block works out the constants of all samples, in double precision; then a thread per sample
// (forward), a block over all of them (back, for the sums), a thread per column (back, spreading).
//
// No races: constants and their gradients are written by one thread and read by later kernels;
// every other number has one thread; sums meet in shared memory, between barriers.
#include "edge_worker/device/cuda/ew_cuda_parts.h"

#define PRODUCTS_MAX (RT_CROSS_LAYERS_MAX + 1)
#define SAMPLE_THREADS_MAX 512u

// c_0 .. c_L, one block.
static __global__ void fill_constants(uint32_t layer_count, uint32_t dim, const float *weights,
                                      const float *biases, double *constants)
{
    SHARED(double, shared, EW_CUDA_WARP);
    for (uint32_t l = 0; l <= layer_count; l++) {
        double constant = 0;
        for (uint32_t d = threadIdx.x; d < dim; d += blockDim.x) {
            double sum = 0;
            for (uint32_t k = 0; k < l; k++)
                sum += biases[(size_t)k * dim + d];
            constant += sum * weights[(size_t)l * dim + d];
        }
        constant = ew_cuda_block_sum(constant, shared);
        if (threadIdx.x == 0)
            constants[l] = constant;
    }
}

// a_0 .. a_L of one sample.
static __device__ void fill_factors(uint32_t layer_count, const double *constants,
                                    const float *products, double *factors)
{
    factors[0] = 1;
    for (uint32_t l = 0; l < layer_count; l++)
        factors[l + 1] = factors[l] + factors[l] * products[l] + constants[l];
}

static __global__ void cross_samples(uint32_t sample_count, uint32_t layer_count,
                                     const double *constants, const float *products,
                                     uint32_t stride, float *logits)
{
    double factors[PRODUCTS_MAX];
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= sample_count)
        return;
    const float *p = products + (size_t)i * stride;
    fill_factors(layer_count, constants, p, factors);
    logits[i] += (float)(factors[layer_count] * p[layer_count] + constants[layer_count]);
}

static __global__ void __launch_bounds__(SAMPLE_THREADS_MAX)
    cross_samples_back(uint32_t sample_count, uint32_t layer_count, const double *constants,
                       const float *products, uint32_t stride, const float *logit_gradients,
                       float *product_gradients, double *constant_gradients)
{
    SHARED(double, shared, EW_CUDA_WARP);
    double factors[PRODUCTS_MAX], sums[PRODUCTS_MAX];
    for (uint32_t l = 0; l <= layer_count; l++)
        sums[l] = 0;
    for (uint32_t i = threadIdx.x; i < sample_count; i += blockDim.x) {
        const float *p = products + (size_t)i * stride;
        float *to = product_gradients + (size_t)i * stride;
        double gradient = logit_gradients[i], factor_gradient = gradient * p[layer_count];
        fill_factors(layer_count, constants, p, factors);
        to[layer_count] = (float)(gradient * factors[layer_count]);
        sums[layer_count] += gradient;
        for (uint32_t l = layer_count; l-- > 0;) {
            to[l] = (float)(factor_gradient * factors[l]);
            sums[l] += factor_gradient;
            factor_gradient += factor_gradient * p[l];
        }
    }
    for (uint32_t l = 0; l <= layer_count; l++) {
        double sum = ew_cuda_block_sum(sums[l], shared);
        if (threadIdx.x == 0)
            constant_gradients[l] = sum;
    }
}

// What reaches w_l and b_l through c_0 .. c_L.
static __global__ void spread_constants(uint32_t layer_count, uint32_t dim, const float *weights,
                                        const float *biases, const double *constant_gradients,
                                        float *weight_gradients, float *bias_gradients)
{
    uint32_t d = blockIdx.x * blockDim.x + threadIdx.x;
    if (d >= dim)
        return;
    double sum = 0;
    for (uint32_t l = 0; l <= layer_count; l++) {
        weight_gradients[(size_t)l * dim + d] = (float)(constant_gradients[l] * sum);
        if (l < layer_count)
            sum += biases[(size_t)l * dim + d];
    }
    sum = 0;
    for (uint32_t l = layer_count; l-- > 0;) {
        sum += constant_gradients[l + 1] * weights[(size_t)(l + 1) * dim + d];
        bias_gradients[(size_t)l * dim + d] = (float)sum;
    }
}

extern "C" void ew_cuda_cross(void *state, uint32_t sample_count, uint32_t layer_count,
                              uint32_t dim, const float *weights, const float *biases,
                              const float *products, uint32_t stride, float *logits)
{
    ew_cuda *cuda = (ew_cuda *)state;
    double *constants = (double *)(void *)cuda->scratch;
    rt_assert(layer_count <= RT_CROSS_LAYERS_MAX);
    if (sample_count == 0 || !ew_cuda_enter(cuda))
        return;
    LAUNCH(fill_constants, dim3(1), dim3(EW_CUDA_THREADS), 0, cuda->compute, layer_count, dim,
           weights, biases, constants);
    LAUNCH(cross_samples, dim3(ew_cuda_blocks(sample_count, EW_CUDA_THREADS)),
           dim3(EW_CUDA_THREADS), 0, cuda->compute, sample_count, layer_count, constants, products,
           stride, logits);
    ew_cuda_leave(cuda, "cross");
}

extern "C" void ew_cuda_cross_back(void *state, uint32_t sample_count, uint32_t layer_count,
                                   uint32_t dim, const float *weights, const float *biases,
                                   const float *products, uint32_t stride,
                                   const float *logit_gradients, float *product_gradients,
                                   float *weight_gradients, float *bias_gradients)
{
    ew_cuda *cuda = (ew_cuda *)state;
    double *constants = (double *)(void *)cuda->scratch;
    double *constant_gradients = constants + PRODUCTS_MAX;
    rt_assert(layer_count <= RT_CROSS_LAYERS_MAX);
    if (!ew_cuda_enter(cuda))
        return;
    uint32_t threads = ew_cuda_power(sample_count, SAMPLE_THREADS_MAX);
    threads = threads < EW_CUDA_WARP ? EW_CUDA_WARP : threads;
    LAUNCH(fill_constants, dim3(1), dim3(EW_CUDA_THREADS), 0, cuda->compute, layer_count, dim,
           weights, biases, constants);
    LAUNCH(cross_samples_back, dim3(1), dim3(threads), 0, cuda->compute, sample_count, layer_count,
           constants, products, stride, logit_gradients, product_gradients, constant_gradients);
    if (dim > 0)
        LAUNCH(spread_constants, dim3(ew_cuda_blocks(dim, EW_CUDA_THREADS)), dim3(EW_CUDA_THREADS),
               0, cuda->compute, layer_count, dim, weights, biases, constant_gradients,
               weight_gradients, bias_gradients);
    ew_cuda_leave(cuda, "cross_back");
}
