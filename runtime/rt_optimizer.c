#include "runtime/rt_optimizer.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "runtime/rt_hash.h"

// The same bits on every machine: loops are element-wise (any vector width gives the same result),
// the one sum has a fixed order, and a multiply followed by an add is never fused: build with
// -ffp-contract=off and without -ffast-math. gcc knows the former pragma as an option only.
// -fno-math-errno changes no result and lets compilers vectorise sqrtf.
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC optimize("O3", "fp-contract=off")
#endif
#ifdef __FAST_MATH__
#error "rt_optimizer.c must not be compiled with -ffast-math"
#endif

#define LANES 8u

uint32_t rt_optimizer_state_floats(const rt_optimizer_config *config, uint32_t dim)
{
    switch (config->kind) {
    case RT_OPTIMIZER_SGD:
        return 0;
    case RT_OPTIMIZER_MOMENTUM:
    case RT_OPTIMIZER_ADAGRAD:
        return dim;
    case RT_OPTIMIZER_ROWWISE_ADAGRAD:
        return 1;
    case RT_OPTIMIZER_ADAM:
    case RT_OPTIMIZER_FTRL:
        return 2 * dim;
    }
    rt_assert_failed("optimizer kind", __FILE__, __LINE__);
}

void rt_optimizer_init_state(const rt_optimizer_config *config, uint32_t dim, float *state)
{
    uint32_t count = rt_optimizer_state_floats(config, dim);
    uint32_t accumulators = 0;
    if (config->kind == RT_OPTIMIZER_ADAGRAD || config->kind == RT_OPTIMIZER_ROWWISE_ADAGRAD)
        accumulators = count;
    else if (config->kind == RT_OPTIMIZER_FTRL)
        accumulators = dim;
    for (uint32_t i = 0; i < accumulators; i++)
        state[i] = config->initial_accumulator;
    for (uint32_t i = accumulators; i < count; i++)
        state[i] = 0;
}

// Without epsilon and accumulated gradients a divisor is 0, and so is the gradient: 0 / 0.
// Wider vectors where the machine has them, chosen when the program is loaded. The element-wise
// operations are the same ones, and fused multiply-adds stay off, so the results are too. The
// choice runs before the sanitizers are set up, so their builds do without.
#if defined(__has_feature)
#define SANITIZED (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif
#if defined(__x86_64__) && !SANITIZED
#define WIDE __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define WIDE
#endif

static inline float positive(float divisor)
{
    return divisor > FLT_MIN ? divisor : FLT_MIN;
}

WIDE static void step_sgd(float rate, uint32_t dim, float *restrict values,
                          const float *restrict gradient)
{
    for (uint32_t i = 0; i < dim; i++)
        values[i] -= rate * gradient[i];
}

WIDE static void step_momentum(const rt_optimizer_config *config, uint32_t dim,
                               float *restrict values, float *restrict velocity,
                               const float *restrict gradient)
{
    const float rate = config->learning_rate, momentum = config->momentum;
    for (uint32_t i = 0; i < dim; i++) {
        velocity[i] = momentum * velocity[i] + gradient[i];
        values[i] -= rate * velocity[i];
    }
}

// Duchi, Hazan, Singer, JMLR 12 (2011), the diagonal form.
WIDE static void step_adagrad(const rt_optimizer_config *config, uint32_t dim,
                              float *restrict values, float *restrict squares,
                              const float *restrict gradient)
{
    const float rate = config->learning_rate, epsilon = config->epsilon;
    for (uint32_t i = 0; i < dim; i++) {
        float square = squares[i] + gradient[i] * gradient[i];
        squares[i] = square;
        values[i] -= rate * gradient[i] / positive(sqrtf(square) + epsilon);
    }
}

// Sum of squares in one order on every machine: lane k takes the elements k, k + 8, ...
static float sum_of_squares(uint32_t dim, const float *restrict gradient)
{
    float lanes[LANES] = {0};
    uint32_t i = 0;
    for (; i + LANES <= dim; i += LANES)
        for (uint32_t k = 0; k < LANES; k++)
            lanes[k] += gradient[i + k] * gradient[i + k];
    for (uint32_t k = 0; i + k < dim; k++)
        lanes[k] += gradient[i + k] * gradient[i + k];
    return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
           ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

// One accumulator per row, of the mean of the squares (as DLRM and FBGEMM do).
WIDE static void step_rowwise_adagrad(const rt_optimizer_config *config, uint32_t dim,
                                      float *restrict values, float *restrict square,
                                      const float *restrict gradient)
{
    *square += sum_of_squares(dim, gradient) / (float)dim;
    const float rate = config->learning_rate / positive(sqrtf(*square) + config->epsilon);
    for (uint32_t i = 0; i < dim; i++)
        values[i] -= rate * gradient[i];
}

// libm's pow differs between machines in the last bit; multiplications do not.
static double power(double base, uint64_t exponent)
{
    double result = 1;
    for (; exponent; exponent >>= 1, base *= base)
        if (exponent & 1)
            result *= base;
    return result;
}

// Kingma, Ba, ICLR 2015, Algorithm 1.
WIDE static void step_adam(const rt_optimizer_config *config, uint32_t dim, uint64_t step,
                           float *restrict values, float *restrict state,
                           const float *restrict gradient)
{
    float *restrict first = state, *restrict second = state + dim;
    const float beta1 = config->beta1, beta2 = config->beta2, epsilon = config->epsilon;
    const float rest1 = 1 - beta1, rest2 = 1 - beta2;
    const float rate = (float)(config->learning_rate / (1 - power(beta1, step)));
    const float root = (float)(1 / sqrt(1 - power(beta2, step)));
    for (uint32_t i = 0; i < dim; i++) {
        float m = beta1 * first[i] + rest1 * gradient[i];
        float v = beta2 * second[i] + rest2 * (gradient[i] * gradient[i]);
        first[i] = m;
        second[i] = v;
        values[i] -= rate * m / positive(sqrtf(v) * root + epsilon);
    }
}

// McMahan et al., KDD 2013, Algorithm 1. State: n (squares), then z. A row's initial values enter
// only through sigma, so the first steps largely replace them.
WIDE static void step_ftrl(const rt_optimizer_config *config, uint32_t dim, float *restrict values,
                           float *restrict state, const float *restrict gradient)
{
    float *restrict squares = state, *restrict z = state + dim;
    const float alpha = config->learning_rate, beta = config->beta;
    const float l1 = config->l1, l2 = config->l2;
    for (uint32_t i = 0; i < dim; i++) {
        float square = squares[i] + gradient[i] * gradient[i];
        float root = sqrtf(square);
        float sigma = (root - sqrtf(squares[i])) / alpha;
        float z_next = z[i] + (gradient[i] - sigma * values[i]);
        float shrunk = fabsf(z_next) > l1 ? copysignf(l1, z_next) - z_next : 0;
        squares[i] = square;
        z[i] = z_next;
        values[i] = shrunk / positive((beta + root) / alpha + l2);
    }
}

void rt_optimizer_step(const rt_optimizer_config *config, uint32_t dim, uint64_t step,
                       float *values, float *state, const float *gradient)
{
    switch (config->kind) {
    case RT_OPTIMIZER_SGD:
        step_sgd(config->learning_rate, dim, values, gradient);
        break;
    case RT_OPTIMIZER_MOMENTUM:
        step_momentum(config, dim, values, state, gradient);
        break;
    case RT_OPTIMIZER_ADAGRAD:
        step_adagrad(config, dim, values, state, gradient);
        break;
    case RT_OPTIMIZER_ROWWISE_ADAGRAD:
        step_rowwise_adagrad(config, dim, values, state, gradient);
        break;
    case RT_OPTIMIZER_ADAM:
        rt_assert(step > 0);
        step_adam(config, dim, step, values, state, gradient);
        break;
    case RT_OPTIMIZER_FTRL:
        step_ftrl(config, dim, values, state, gradient);
        break;
    }
}

// The sum S of four uniform 16-bit integers has mean 2 * 65535 and variance (2^32 - 1) / 3. Its
// distance from the mean is exact in a float, so each value is rounded once, in the product.
void rt_row_init(uint64_t key, uint64_t seed, float scale, uint32_t dim, float *values)
{
    const float unit = scale / 37837.2266f; // sqrt((2^32 - 1) / 3)
    rt_random random = {rt_mix(key + rt_mix(seed))};
    for (uint32_t i = 0; i < dim; i++) {
        uint64_t bits = rt_random_u64(&random);
        int32_t sum = (int32_t)((bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) +
                                (bits >> 48));
        values[i] = (float)(sum - 2 * 65535) * unit;
    }
}
