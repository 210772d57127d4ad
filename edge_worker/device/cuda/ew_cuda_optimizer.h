// ew_cuda_optimizer - rt_optimizer_step on a device: the same operations in the same order, hence
// the same bits. rt_optimizer.c names the papers.
#ifndef EW_CUDA_OPTIMIZER_H
#define EW_CUDA_OPTIMIZER_H

#include "edge_worker/device/cuda/ew_cuda_parts.h"

#define EW_CUDA_SQUARE_LANES 8u // lanes of rt_optimizer's sum of squares

// What a step needs, worked out once on the host.
typedef struct {
    rt_optimizer_config config;
    float rate, root; // adam: with the bias corrections of the step
} ew_cuda_step_terms;

static inline double ew_cuda_power_of(double base, uint64_t exponent)
{
    double result = 1;
    for (; exponent; exponent >>= 1, base *= base)
        if (exponent & 1)
            result *= base;
    return result;
}

static inline ew_cuda_step_terms ew_cuda_step_of(const rt_optimizer_config *config, uint64_t step)
{
    ew_cuda_step_terms terms = {*config, config->learning_rate, 1};
    if (config->kind == RT_OPTIMIZER_ADAM) {
        terms.rate = (float)(config->learning_rate / (1 - ew_cuda_power_of(config->beta1, step)));
        terms.root = (float)(1 / sqrt(1 - ew_cuda_power_of(config->beta2, step)));
    }
    return terms;
}

static __device__ inline float ew_cuda_positive(float divisor)
{
    return divisor > FLT_MIN ? divisor : FLT_MIN;
}

// One value; first and second: its state, where the kind has any. Not for row-wise Adagrad.
static __device__ inline void ew_cuda_step_value(const ew_cuda_step_terms &t, float *value,
                                                 float *first, float *second, float gradient)
{
    const rt_optimizer_config &c = t.config;
    switch (c.kind) {
    case RT_OPTIMIZER_SGD:
        *value -= t.rate * gradient;
        break;
    case RT_OPTIMIZER_MOMENTUM:
        *first = c.momentum * *first + gradient;
        *value -= t.rate * *first;
        break;
    case RT_OPTIMIZER_ADAGRAD: {
        float square = *first + gradient * gradient;
        *first = square;
        *value -= t.rate * gradient / ew_cuda_positive(sqrtf(square) + c.epsilon);
        break;
    }
    case RT_OPTIMIZER_ADAM: {
        float m = c.beta1 * *first + (1 - c.beta1) * gradient;
        float v = c.beta2 * *second + (1 - c.beta2) * (gradient * gradient);
        *first = m;
        *second = v;
        *value -= t.rate * m / ew_cuda_positive(sqrtf(v) * t.root + c.epsilon);
        break;
    }
    case RT_OPTIMIZER_FTRL: {
        float square = *first + gradient * gradient, root = sqrtf(square);
        float sigma = (root - sqrtf(*first)) / t.rate;
        float z = *second + (gradient - sigma * *value);
        float shrunk = fabsf(z) > c.l1 ? copysignf(c.l1, z) - z : 0;
        *first = square;
        *second = z;
        *value = shrunk / ew_cuda_positive((c.beta + root) / t.rate + c.l2);
        break;
    }
    case RT_OPTIMIZER_ROWWISE_ADAGRAD:
        break;
    }
}

// Row-wise Adagrad: what its new square leaves of the learning rate.
static __device__ inline float ew_cuda_rowwise_rate(const ew_cuda_step_terms &t, float square)
{
    return t.config.learning_rate / ew_cuda_positive(sqrtf(square) + t.config.epsilon);
}

// The eight lanes' sums in rt_optimizer's order; whole warps call, lanes 0 to 7 hold sums. Lane 0
// gets the result.
static __device__ inline float ew_cuda_add_lanes(float sum)
{
    sum += __shfl_xor_sync(EW_CUDA_FULL, sum, 4);
    sum += __shfl_xor_sync(EW_CUDA_FULL, sum, 2);
    sum += __shfl_xor_sync(EW_CUDA_FULL, sum, 1);
    return sum;
}

#endif
