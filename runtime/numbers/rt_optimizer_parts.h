// rt_optimizer_parts - what the files of runtime/optimizers/ are made of, and all of them: the step
// of one value, one source for the CPU's loops and the CUDA kernels, hence the same bits.
//
// A file rt_NAME.h says what its optimizer is:
// - rt_NAME_about: its state, and what a step costs;
// - rt_NAME_adapt: what it changes of the terms that all begin with (RT_OPTIMIZER_PLAIN_TERMS: none
//   of them);
// - rt_NAME_value: the step of one value, with the floats of its state; raw is its gradient as it
//   came, which mostly counts as rt_optimizer_shaped;
// - rt_NAME_settle: where a float of state belongs to the whole block (RT_OPTIMIZER_ELEMENTWISE:
//   none does), what becomes of it, and of the rate, by the squares of the block's gradients;
// - for tests, rt_NAME_formula: the step in doubles, as the paper writes it, and rt_NAME_bits: the
//   hash of a pinned run (tests/unit/runtime/test_optimizer.c prints it).
// Element-wise operations only, and no function of libm but sqrtf and what copies bits: others
// differ between machines.
#ifndef RT_OPTIMIZER_PARTS_H
#define RT_OPTIMIZER_PARTS_H

#include <float.h>
#include <math.h>

#include "runtime/numbers/rt_optimizer.h"

#ifdef __CUDACC__
#define RT_ANYWHERE __host__ __device__
#else
#define RT_ANYWHERE
#endif

// Without epsilon and accumulated gradients a divisor is 0, and so is the gradient: 0 / 0.
static RT_ANYWHERE inline float rt_optimizer_positive(float divisor)
{
    return divisor > FLT_MIN ? divisor : FLT_MIN;
}

// What a gradient counts as.
static RT_ANYWHERE inline float rt_optimizer_shaped(rt_optimizer_terms t, float gradient,
                                                    float value)
{
    return t.scale * gradient + t.l2 * value;
}

// What makes the sum over samples of a gradient.
static RT_ANYWHERE inline float rt_optimizer_summed(const rt_optimizer_config *config)
{
    return config->batch_samples ? (float)config->batch_samples : 1;
}

// libm's pow differs between machines in the last bit; multiplications do not.
static inline double rt_optimizer_power(double base, uint64_t exponent)
{
    double result = 1;
    for (; exponent; exponent >>= 1, base *= base)
        if (exponent & 1)
            result *= base;
    return result;
}

#define RT_OPTIMIZER_PLAIN_TERMS(name)                                                \
    static inline void name##_adapt(const rt_optimizer_config *config, uint64_t step, \
                                    rt_optimizer_terms *terms)                        \
    {                                                                                 \
        (void)config, (void)step, (void)terms;                                        \
    }
#define RT_OPTIMIZER_ELEMENTWISE(name)                                                           \
    static RT_ANYWHERE inline float name##_settle(const rt_optimizer_config *config, float rate, \
                                                  uint32_t dim, double squares, float *state)    \
    {                                                                                            \
        (void)config, (void)dim, (void)squares, (void)state;                                     \
        return rate;                                                                             \
    }

#ifdef RT_OPTIMIZER_FORMULAS
// A value's gradient after clipping and L2, the mean of the block's squares, the rate of step t.
typedef struct {
    const rt_optimizer_config *config;
    double g, mean_square, rate, t;
} rt_optimizer_given;
#endif

#define RT_OPTIMIZER_STEPS
#include "runtime/config/rt_optimizers.h"
#undef RT_OPTIMIZER_STEPS

#endif
