#include "runtime/numbers/rt_optimizer.h"

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

#include "runtime/numbers/rt_optimizer_parts.h"
#include "runtime/rt_hash.h"

#define LANES 8u

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

typedef rt_optimizer_terms terms;

// Sum of squares in one order on every machine: lane k takes the elements k, k + 8, ...
static inline float sum_of_squares(terms t, uint32_t count, const float *restrict values,
                                   const float *restrict gradient)
{
    float lanes[LANES] = {0};
    uint32_t i = 0;
    for (; i + LANES <= count; i += LANES)
        for (uint32_t k = 0; k < LANES; k++) {
            float g = rt_optimizer_shaped(t, gradient[i + k], values[i + k]);
            lanes[k] += g * g;
        }
    for (uint32_t k = 0; i + k < count; k++) {
        float g = rt_optimizer_shaped(t, gradient[i + k], values[i + k]);
        lanes[k] += g * g;
    }
    return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
           ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

// The chunk of a block of dim that begins there.
WIDE static double squares_from(terms t, uint32_t dim, uint32_t begin, const float *restrict values,
                                const float *restrict gradient)
{
    uint32_t size = dim - begin;
    if (size > RT_OPTIMIZER_SQUARES_CHUNK)
        size = RT_OPTIMIZER_SQUARES_CHUNK;
    return (double)sum_of_squares(t, size, values + begin, gradient + begin);
}

// A loop over values for every kind. What it has no state of is never read.
#define XX(kind, name, traits, help)                                                            \
    WIDE static void step_##name(const rt_optimizer_config *config, terms t, uint32_t dim,      \
                                 uint32_t plane, float *restrict values, float *restrict state, \
                                 const float *restrict gradient)                                \
    {                                                                                           \
        const rt_optimizer_config c = *config;                                                  \
        const uint32_t floats = rt_##name##_about.state.per_value;                              \
        float *restrict first = floats > 0 ? state : values;                                    \
        float *restrict second = floats > 1 ? state + plane : values;                           \
        for (uint32_t i = 0; i < dim; i++)                                                      \
            rt_##name##_value(&c, t, gradient[i], values + i, first + i, second + i);           \
    }
RT_OPTIMIZER_MAP(XX, XX)
#undef XX

#define XX(kind, name, traits, help) \
    {#name, &rt_##name##_about, rt_##name##_adapt, rt_##name##_settle, step_##name},
static const rt_optimizer_ops optimizers[RT_OPTIMIZER_COUNT] = {RT_OPTIMIZER_MAP(XX, XX)};
#undef XX

const rt_optimizer_ops *rt_optimizer_find(rt_optimizer_kind kind)
{
    rt_assert(kind < RT_OPTIMIZER_COUNT);
    return &optimizers[kind];
}

uint32_t rt_optimizer_floats(rt_optimizer_size size, uint32_t dim)
{
    return size.per_value * dim + size.per_block;
}

uint32_t rt_optimizer_state_floats(const rt_optimizer_config *config, uint32_t dim)
{
    return rt_optimizer_floats(rt_optimizer_find(config->kind)->about->state, dim);
}

void rt_optimizer_init_state(const rt_optimizer_config *config, uint32_t dim, float *state)
{
    const rt_optimizer_about *about = rt_optimizer_find(config->kind)->about;
    const uint32_t count = rt_optimizer_floats(about->state, dim);
    const uint32_t accumulators = rt_optimizer_floats(about->accumulators, dim);
    for (uint32_t i = 0; i < accumulators; i++)
        state[i] = config->initial_accumulator;
    for (uint32_t i = accumulators; i < count; i++)
        state[i] = 0;
}

// cos(x)^2 for x in [0, pi/2], by its Taylor series up to x^22: off by less than 2e-16. libm's cos
// differs between machines.
static double squared_cosine(double x)
{
    double sum = 0, square = x * x;
    for (int k = 22; k > 0; k -= 2)
        sum = (1 + sum) * -square / (k * (k - 1));
    return (1 + sum) * (1 + sum);
}

static double decay_share(const rt_optimizer_config *config, uint64_t after)
{
    const double floor = (double)config->decay_floor, length = config->decay_iterations;
    const double passed = (double)after / length, done = passed < 1 ? passed : 1;
    switch (config->decay) {
    case RT_DECAY_NONE:
        return 1;
    case RT_DECAY_LINEAR:
        return floor + (1 - floor) * (1 - done);
    case RT_DECAY_COSINE:
        return floor + (1 - floor) * squared_cosine(done * 1.5707963267948966);
    case RT_DECAY_INVERSE_SQRT:
        return floor + (1 - floor) / sqrt(1 + passed);
    }
    rt_assert_failed("decay", __FILE__, __LINE__);
}

float rt_optimizer_rate(const rt_optimizer_config *config, uint64_t step)
{
    const uint64_t warm = config->warmup_iterations;
    if (step < warm)
        return (float)(config->learning_rate * (double)step / (double)warm);
    if (config->decay == RT_DECAY_NONE)
        return config->learning_rate;
    return (float)(config->learning_rate * decay_share(config, step - warm));
}

double rt_optimizer_squares(uint32_t count, const float *gradient)
{
    double sum = 0;
    for (uint32_t begin = 0; begin < count; begin += RT_OPTIMIZER_SQUARES_CHUNK) {
        const float *restrict g = gradient + begin;
        uint32_t size = count - begin, i = 0;
        double lanes[LANES] = {0};
        size = size < RT_OPTIMIZER_SQUARES_CHUNK ? size : RT_OPTIMIZER_SQUARES_CHUNK;
        for (; i + LANES <= size; i += LANES)
            for (uint32_t k = 0; k < LANES; k++)
                lanes[k] += (double)g[i + k] * g[i + k];
        for (uint32_t k = 0; i + k < size; k++)
            lanes[k] += (double)g[i + k] * g[i + k];
        sum += ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
               ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
    }
    return sum;
}

rt_optimizer_terms rt_optimizer_terms_of(const rt_optimizer_config *config, uint64_t step)
{
    const uint32_t number = (uint32_t)step, part = (uint32_t)(step >> RT_OPTIMIZER_PART);
    terms t = {.rate = rt_optimizer_rate(config, number), .root = 1, .scale = 1, .l2 = config->l2};
    if (part)
        t.l2 *= (float)part / (float)config->batch_samples;
    rt_optimizer_find(config->kind)->adapt(config, number, &t);
    return t;
}

float rt_optimizer_scale(const rt_optimizer_config *config, uint32_t dim, const float *gradient)
{
    if (!(config->clip_norm > 0))
        return 1;
    const double norm = sqrt(rt_optimizer_squares(dim, gradient));
    return norm > config->clip_norm ? (float)(config->clip_norm / norm) : 1;
}

double rt_optimizer_chunk_squares(rt_optimizer_terms t, uint32_t dim, uint32_t chunk,
                                  const float *values, const float *gradient)
{
    return squares_from(t, dim, chunk * RT_OPTIMIZER_SQUARES_CHUNK, values, gradient);
}

rt_optimizer_terms rt_optimizer_settle(const rt_optimizer_config *config, rt_optimizer_terms t,
                                       uint32_t dim, double squares, float *state)
{
    t.rate = rt_optimizer_find(config->kind)->settle(config, t.rate, dim, squares, state);
    return t;
}

WIDE static double block_squares(terms t, uint32_t dim, const float *restrict values,
                                 const float *restrict gradient)
{
    double squares = 0;
    if (dim <= RT_OPTIMIZER_SQUARES_CHUNK) // a row: no call
        return (double)sum_of_squares(t, dim, values, gradient);
    for (uint32_t at = 0; at < dim; at += RT_OPTIMIZER_SQUARES_CHUNK)
        squares += squares_from(t, dim, at, values, gradient);
    return squares;
}

static inline void step_block(const rt_optimizer_config *config, terms t, uint32_t dim,
                              float *values, float *state, const float *gradient)
{
    const rt_optimizer_ops *ops = &optimizers[config->kind];
    if (ops->about->state.per_block)
        t.rate = ops->settle(config, t.rate, dim, block_squares(t, dim, values, gradient), state);
    ops->step(config, t, dim, dim, values, state, gradient);
}

void rt_optimizer_step_scaled(const rt_optimizer_config *config, uint32_t dim, uint64_t step,
                              float scale, float *values, float *state, const float *gradient)
{
    terms t = rt_optimizer_terms_of(config, step);
    t.scale = scale;
    step_block(config, t, dim, values, state, gradient);
}

rt_optimizer_terms rt_optimizer_clipped_terms(const rt_optimizer_config *config, uint32_t dim,
                                              uint64_t step, const float *gradient)
{
    terms t = rt_optimizer_terms_of(config, step);
    t.scale = rt_optimizer_scale(config, dim, gradient);
    return t;
}

void rt_optimizer_step(const rt_optimizer_config *config, uint32_t dim, uint64_t step,
                       float *values, float *state, const float *gradient)
{
    const terms t = rt_optimizer_clipped_terms(config, dim, step, gradient);
    step_block(config, t, dim, values, state, gradient);
}

bool rt_optimizer_is_elementwise(const rt_optimizer_config *config)
{
    return rt_optimizer_find(config->kind)->about->state.per_block == 0;
}

void rt_optimizer_step_range(const rt_optimizer_config *config, terms t, uint32_t dim,
                             uint32_t from, uint32_t to, float *values, float *state,
                             const float *gradient)
{
    const rt_optimizer_ops *ops = rt_optimizer_find(config->kind);
    rt_assert(from <= to && to <= dim);
    ops->step(config, t, to - from, dim, values + from,
              ops->about->state.per_value ? state + from : state, gradient + from);
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
