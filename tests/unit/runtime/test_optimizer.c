// Every optimizer of the list: its own formula, its pinned bits, and what all of them promise.
#define RT_OPTIMIZER_FORMULAS
#include "runtime/numbers/rt_optimizer_parts.h"

#include <inttypes.h>
#include <string.h>

#include "runtime/rt_hash.h"
#include "tests/support/test.h"

#define DIM_MAX 67
#define STEPS 50

static const rt_optimizer_config base = {.learning_rate = 0.05f,
                                         .epsilon = 1e-8f,
                                         .initial_accumulator = 0.1f,
                                         .momentum = 0.9f,
                                         .beta1 = 0.9f,
                                         .beta2 = 0.999f,
                                         .l1 = 0.02f,
                                         .beta = 1.0f};

static rt_optimizer_config config_of(rt_optimizer_kind kind)
{
    rt_optimizer_config config = base;
    config.kind = kind;
    config.l2 = rt_optimizer_is(kind, RT_OWN_RATES) ? 0.3f : 0;
    return config;
}

// With everything that shapes a step. Norms of the gradients below are about 0.25 sqrt(dim).
static rt_optimizer_config shaped_config_of(rt_optimizer_kind kind)
{
    rt_optimizer_config config = config_of(kind);
    config.l2 = 0.3f;
    config.clip_norm = 0.7f;
    if (rt_optimizer_is(kind, RT_OWN_RATES))
        return config;
    config.warmup_iterations = 7;
    config.decay = RT_DECAY_COSINE;
    config.decay_iterations = 30;
    config.decay_floor = 0.1f;
    return config;
}

// The learning rate as docs/CONFIG.md has it, with libm.
static double reference_rate(const rt_optimizer_config *c, uint64_t t)
{
    const double floor = c->decay_floor, s = (double)t - c->warmup_iterations;
    const double x = c->decay_iterations ? s / c->decay_iterations : 0;
    double share = 1;
    if (s < 0)
        return c->learning_rate * (double)t / c->warmup_iterations;
    if (c->decay == RT_DECAY_LINEAR)
        share = x < 1 ? 1 - (1 - floor) * x : floor;
    if (c->decay == RT_DECAY_COSINE)
        share = x < 1 ? floor + (1 - floor) * 0.5 * (1 + cos(M_PI * x)) : floor;
    if (c->decay == RT_DECAY_INVERSE_SQRT)
        share = floor + (1 - floor) / sqrt(1 + x);
    return c->learning_rate * share;
}

// Every formula once more, in double precision, as the papers write them: one value at a time.
// State as doubles: a = accumulator or first moment, b = second.
typedef struct {
    double w, a, b;
} reference;

typedef void formula(const rt_optimizer_given *given, double *w, double *a, double *b);

#define XX(kind, name, traits, help) {rt_##name##_formula, rt_##name##_bits},
static const struct {
    formula *formula;
    uint64_t bits;
} own[] = {RT_OPTIMIZER_MAP(XX, XX)};
#undef XX

static double random_value(rt_random *random)
{
    return rt_random_unit(random) * 2 - 1;
}

// Gradients after clipping and L2: what the formulas see.
static void reference_shape(const rt_optimizer_config *c, uint32_t dim, const reference *values,
                            const float *gradient, double *shaped)
{
    double norm = 0;
    for (uint32_t i = 0; i < dim; i++)
        norm += (double)gradient[i] * gradient[i];
    norm = sqrt(norm);
    for (uint32_t i = 0; i < dim; i++) {
        shaped[i] = gradient[i];
        if (c->clip_norm > 0 && norm > c->clip_norm)
            shaped[i] *= c->clip_norm / norm;
        shaped[i] += (double)rt_optimizer_terms_of(c, 1).l2 * values[i].w;
    }
}

static void run_against_reference(rt_optimizer_config config, uint32_t dim)
{
    const rt_optimizer_kind kind = config.kind;
    const uint32_t state_floats = rt_optimizer_state_floats(&config, dim);
    float values[DIM_MAX + 1], state[2 * DIM_MAX + 1], gradient[DIM_MAX];
    reference want[DIM_MAX] = {{0}};
    rt_random random = {kind * 1000u + dim};
    rt_optimizer_init_state(&config, dim, state);
    for (uint32_t i = 0; i < dim; i++) {
        values[i] = (float)random_value(&random);
        want[i].w = values[i];
        if (rt_optimizer_floats(rt_optimizer_find(kind)->about->accumulators, 1))
            want[i].a = config.initial_accumulator;
    }
    values[dim] = 4321;
    state[state_floats] = 1234; // guards
    for (uint64_t t = 1; t <= STEPS; t++) {
        double mean_square = 0, shaped[DIM_MAX];
        for (uint32_t i = 0; i < dim; i++)
            gradient[i] = i % 5 == 4 ? 0 : (float)(random_value(&random) * 0.5);
        reference_shape(&config, dim, want, gradient, shaped);
        for (uint32_t i = 0; i < dim; i++)
            mean_square += shaped[i] * shaped[i] / dim;
        rt_optimizer_step(&config, dim, t, values, state, gradient);
        for (uint32_t i = 0; i < dim; i++) {
            const rt_optimizer_given given = {&config, shaped[i], mean_square,
                                              reference_rate(&config, t), (double)t};
            own[kind].formula(&given, &want[i].w, &want[i].a, &want[i].b);
        }
    }
    // A float step rounds about six times, each relative 2^-24 of a value of size 1.
    for (uint32_t i = 0; i < dim; i++)
        test_close(values[i], want[i].w, 6 * STEPS * 0x1p-24, 1, "value");
    assert_true(values[dim] == 4321 && state[state_floats] == 1234);
}

static void test_kinds_follow_their_formulas(void **context)
{
    (void)context;
    const uint32_t dims[] = {1, 2, 7, 8, 9, 16, 31, 64, DIM_MAX};
    for (int kind = 0; kind < RT_OPTIMIZER_COUNT; kind++)
        for (size_t i = 0; i < RT_COUNT_OF(dims); i++)
            run_against_reference(config_of((rt_optimizer_kind)kind), dims[i]);
}

static void test_shaped_steps_follow_their_formulas(void **context)
{
    (void)context;
    const uint32_t dims[] = {1, 2, 7, 8, 9, 16, 31, 64, DIM_MAX};
    for (int kind = 0; kind < RT_OPTIMIZER_COUNT; kind++)
        for (size_t i = 0; i < RT_COUNT_OF(dims); i++)
            run_against_reference(shaped_config_of((rt_optimizer_kind)kind), dims[i]);
}

static void test_rate_follows_its_formula(void **context)
{
    (void)context;
    rt_optimizer_config config = shaped_config_of(RT_OPTIMIZER_SGD);
    for (int decay = 0; decay < RT_DECAY_COUNT; decay++)
        for (uint32_t warmup = 0; warmup < 300; warmup += 149)
            for (uint64_t t = 1; t < 2000; t++) {
                config.decay = (rt_decay_kind)decay;
                config.warmup_iterations = warmup;
                config.decay_iterations = 1000;
                // One rounding to a float; the rest is double.
                test_close(rt_optimizer_rate(&config, t), reference_rate(&config, t), 0x1.01p-24, 0,
                           "rate");
            }
    config.decay = RT_DECAY_INVERSE_SQRT;
    assert_true(rt_optimizer_rate(&config, UINT64_MAX) >= 0.1f * config.learning_rate);
}

// Norms across chunks, and where single squares would overflow a float.
static void test_norms(void **context)
{
    (void)context;
    enum { COUNT = 2 * RT_OPTIMIZER_SQUARES_CHUNK + 501 };
    static float gradient[COUNT];
    double want = 0;
    rt_random random = {4};
    for (uint32_t i = 0; i < COUNT; i++) {
        gradient[i] = (float)(random_value(&random) * 1e30);
        want += (double)gradient[i] * gradient[i];
    }
    // Doubles: COUNT additions.
    test_close(rt_optimizer_squares(COUNT, gradient) / want, 1, COUNT * 0x1p-53, 1, "squares");
    assert_true(rt_optimizer_squares(0, gradient) == 0);
    rt_optimizer_config sgd = {.kind = RT_OPTIMIZER_SGD, .learning_rate = 1, .clip_norm = 2};
    static float values[COUNT];
    rt_optimizer_step(&sgd, COUNT, 1, values, NULL, gradient);
    test_close(sqrt(rt_optimizer_squares(COUNT, values)), 2, 2 * 0x1p-22, 1, "clipped norm");
}

static void test_state_sizes_and_initial_state(void **context)
{
    (void)context;
    for (rt_optimizer_kind kind = 0; kind < RT_OPTIMIZER_COUNT; kind++) {
        const rt_optimizer_config config = config_of(kind);
        const rt_optimizer_about *about = rt_optimizer_find(kind)->about;
        const uint32_t count = rt_optimizer_state_floats(&config, 16);
        assert_int_equal(count, 16 * about->state.per_value + about->state.per_block);
        assert_true(about->state.per_block == 0 || about->state.per_value == 0);
        float state[33];
        for (size_t i = 0; i < 33; i++)
            state[i] = 77;
        rt_optimizer_init_state(&config, 16, state);
        assert_true(state[count] == 77);
        for (uint32_t i = 0; i < count; i++) {
            const bool accumulates = i < rt_optimizer_floats(about->accumulators, 16);
            assert_true(state[i] == (accumulates ? config.initial_accumulator : 0));
        }
    }
}

// 0 / 0 lurks where nothing was accumulated and epsilon is 0.
static void test_zero_gradients_change_nothing(void **context)
{
    (void)context;
    for (int kind = 0; kind < RT_OPTIMIZER_COUNT; kind++) {
        if (rt_optimizer_is((rt_optimizer_kind)kind, RT_OWN_RATES)) // below
            continue;
        rt_optimizer_config config = config_of((rt_optimizer_kind)kind);
        config.epsilon = 0;
        config.initial_accumulator = 0;
        float values[9] = {1, -2, 3, -4, 5, -6, 7, -8, 9}, state[18], gradient[9] = {0};
        rt_optimizer_init_state(&config, 9, state);
        for (uint64_t t = 1; t < 4; t++)
            rt_optimizer_step(&config, 9, t, values, state, gradient);
        for (int i = 0; i < 9; i++)
            assert_true(values[i] == (i % 2 ? -1.0f : 1.0f) * (float)(i + 1));
    }
    rt_optimizer_config ftrl = config_of(RT_OPTIMIZER_FTRL);
    ftrl.beta = ftrl.l1 = ftrl.l2 = ftrl.initial_accumulator = 0;
    float value = 1, state[2] = {0, 0}, gradient = 0;
    rt_optimizer_step(&ftrl, 1, 1, &value, state, &gradient);
    assert_true(value == 0); // with z = 0 the proximal minimum is 0
}

// After three steps with parts of a gradient, in a run that divided by 256, or with all of it.
static void steps_in_run(const rt_optimizer_config *config, float part, float values[9])
{
    float state[18], gradient[9];
    rt_optimizer_init_state(config, 9, state);
    for (int i = 0; i < 9; i++) {
        values[i] = 0.1f * (float)i;
        gradient[i] = (0.3f - 0.07f * (float)i) * part;
    }
    for (uint64_t t = 1; t < 4; t++)
        rt_optimizer_step(config, 9, t, values, state, gradient);
}

// Some (ftrl) step by sums over samples, whatever the gradient was divided by, the others by what
// comes: nothing in between.
static void test_steps_are_by_sums_or_by_what_comes(void **context)
{
    (void)context;
    uint32_t by_sums = 0;
    for (rt_optimizer_kind kind = 0; kind < RT_OPTIMIZER_COUNT; kind++) {
        const rt_optimizer_config plain = config_of(kind);
        const rt_optimizer_config divided = rt_optimizer_in_run(&plain, 0, 256);
        float want[9], same[9], part[9];
        steps_in_run(&plain, 1, want);
        steps_in_run(&divided, 1, same);
        steps_in_run(&divided, 1.0f / 256, part);
        const bool sums = memcmp(want, same, sizeof want) != 0;
        assert_memory_equal(want, sums ? part : same, sizeof want);
        by_sums += sums;
    }
    assert_true(by_sums > 0 && by_sums < RT_OPTIMIZER_COUNT);
}

// Any cut of a block, and a block of several values at once, are the same steps.
static void test_parts_are_the_whole(void **context)
{
    (void)context;
    for (rt_optimizer_kind kind = 0; kind < RT_OPTIMIZER_COUNT; kind++) {
        const rt_optimizer_config config = shaped_config_of(kind);
        float values[2][DIM_MAX], states[2][2 * DIM_MAX], gradient[DIM_MAX];
        for (int k = 0; k < 2; k++) {
            rt_row_init(1, 2, 1, DIM_MAX, values[k]);
            rt_optimizer_init_state(&config, DIM_MAX, states[k]);
        }
        for (uint64_t t = 1; t < 9; t++) {
            rt_row_init(t, 3, 0.5f, DIM_MAX, gradient);
            rt_optimizer_step(&config, DIM_MAX, t, values[0], states[0], gradient);
            rt_optimizer_terms terms = rt_optimizer_clipped_terms(&config, DIM_MAX, t, gradient);
            if (!rt_optimizer_is_elementwise(&config))
                terms = rt_optimizer_settle(
                    &config, terms, DIM_MAX,
                    rt_optimizer_chunk_squares(terms, DIM_MAX, 0, values[1], gradient), states[1]);
            for (uint32_t from = 0; from < DIM_MAX; from += (uint32_t)t)
                rt_optimizer_step_range(&config, terms, DIM_MAX, from,
                                        (uint32_t)rt_min_u64(from + t, DIM_MAX), values[1],
                                        states[1], gradient);
        }
        assert_memory_equal(values[0], values[1], sizeof values[0]);
        assert_memory_equal(states[0], states[1],
                            rt_optimizer_state_floats(&config, DIM_MAX) * sizeof(float));
    }
}

// Half the squared distance from 1, 2, 3: every kind gets nearer, and near.
static void test_every_kind_descends(void **context)
{
    (void)context;
    for (rt_optimizer_kind kind = 0; kind < RT_OPTIMIZER_COUNT; kind++) {
        rt_optimizer_config config = base;
        config.kind = kind;
        config.learning_rate = 0.3f;
        config.l1 = 0;
        float values[3] = {0}, state[6], gradient[3], loss = 0;
        rt_optimizer_init_state(&config, 3, state);
        for (uint64_t t = 1; t <= 1000; t++) {
            for (int i = 0; i < 3; i++)
                gradient[i] = values[i] - (float)(i + 1);
            rt_optimizer_step(&config, 3, t, values, state, gradient);
        }
        for (int i = 0; i < 3; i++)
            loss += (values[i] - (float)(i + 1)) * (values[i] - (float)(i + 1)) / 2;
        if (!(loss < 0.1f)) // 7 at the start
            fail_msg("%s: %g", rt_optimizer_find(kind)->name, (double)loss);
    }
}

// What a step does whatever its gradient says is the less the fewer samples it is of: four quarters
// of a batch decay a value as the batch would. The rate follows full batches, not steps.
static void test_a_part_of_a_batch_is_a_part_of_a_step(void **context)
{
    (void)context;
    rt_optimizer_config config = config_of(RT_OPTIMIZER_SGD);
    config.learning_rate = 0.1f;
    config.l2 = 0.01f;
    config.clip_norm = 0;
    config.warmup_iterations = 0;
    config.decay = RT_DECAY_NONE;
    config.batch_samples = 64;
    float whole = 1, parts = 1, gradient = 0;
    rt_optimizer_step(&config, 1, rt_optimizer_place(7, 64, 64), &whole, NULL, &gradient);
    assert_true(whole == 1 - 0.1f * 0.01f);
    for (int i = 0; i < 4; i++)
        rt_optimizer_step(&config, 1, rt_optimizer_place(7, 16, 64), &parts, NULL, &gradient);
    test_close(parts, whole, 1e-6, 0, "four quarters of a batch");
    assert_true(rt_optimizer_place(7, 64, 64) == 7);
    config.warmup_iterations = 10;
    assert_true(rt_optimizer_terms_of(&config, rt_optimizer_place(3, 1, 64)).rate ==
                rt_optimizer_rate(&config, 3));
    assert_true(rt_optimizer_place_fits(rt_optimizer_place(3, 1, 64), 64));
    assert_false(rt_optimizer_place_fits(rt_optimizer_place(3, 64, 65), 64));
    assert_false(rt_optimizer_place_fits(0, 64));
}

// Bits of one run of every kind at dimension 19, pinned: a compiler, a machine or a vector width
// that rounds differently shows here.
static uint64_t bits_after_steps(rt_optimizer_kind kind)
{
    const rt_optimizer_config config = config_of(kind);
    float block[3 * 19], gradient[19];
    rt_row_init(rt_key(3, 12345), 7, 0.01f, 19, block);
    memset(block + 19, 0, 2 * 19 * sizeof(float));
    rt_optimizer_init_state(&config, 19, block + 19);
    for (uint64_t t = 1; t <= 20; t++) {
        rt_row_init(t, 99, 0.1f, 19, gradient);
        rt_optimizer_step(&config, 19, t, block, block + 19, gradient);
    }
    return rt_hash_bytes(block, sizeof block);
}

static void test_bits_are_pinned(void **context)
{
    (void)context;
    for (rt_optimizer_kind kind = 0; kind < RT_OPTIMIZER_COUNT; kind++)
        if (bits_after_steps(kind) != own[kind].bits)
            fail_msg("%s: rt_%s_bits is %#" PRIx64 ", and it steps to %#" PRIx64,
                     rt_optimizer_find(kind)->name, rt_optimizer_find(kind)->name, own[kind].bits,
                     bits_after_steps(kind));
}

// The one sum of all formulas, over squares: eight partial sums, then a tree, whatever the machine.
static void test_row_wise_sum_has_its_order(void **context)
{
    (void)context;
    const rt_optimizer_config config = config_of(RT_OPTIMIZER_ROWWISE_ADAGRAD);
    for (uint32_t dim = 1; dim <= DIM_MAX; dim++) {
        float gradient[DIM_MAX], values[DIM_MAX] = {0}, lanes[8] = {0}, state = 0;
        rt_row_init(dim, 3, 1, dim, gradient);
        for (uint32_t i = 0; i < dim; i++)
            lanes[i % 8] += gradient[i] * gradient[i];
        for (uint32_t width = 4; width > 0; width /= 2)
            for (uint32_t k = 0; k < width; k++)
                lanes[k] += lanes[k + width];
        rt_optimizer_step(&config, dim, 1, values, &state, gradient);
        assert_true(state == lanes[0] / (float)dim);
    }
}

// A block of several chunks: the lanes' sums of each, and these in their order, in doubles. It is
// the paper's formula, too, and threads that share the work do the same.
static void test_row_wise_sum_goes_by_chunks(void **context)
{
    (void)context;
    enum { CHUNK = RT_OPTIMIZER_SQUARES_CHUNK, DIM = 3 * CHUNK + 77 };
    static float gradient[DIM], values[DIM], shared[DIM];
    rt_optimizer_config config = config_of(RT_OPTIMIZER_ROWWISE_ADAGRAD);
    config.l2 = 0.3f;
    float state = 0.25f, shared_state = state, mean = 0;
    double sum = 0, exact = 0;
    rt_row_init(5, 3, 1, DIM, gradient);
    rt_row_init(6, 3, 1, DIM, values);
    memcpy(shared, values, sizeof shared);
    for (uint32_t begin = 0; begin < DIM; begin += CHUNK) {
        float lanes[8] = {0};
        for (uint32_t i = begin; i < DIM && i < begin + CHUNK; i++) {
            const float g = gradient[i] + 0.3f * values[i];
            lanes[i % 8] += g * g;
            exact += (double)g * g / DIM;
        }
        for (uint32_t width = 4; width > 0; width /= 2)
            for (uint32_t k = 0; k < width; k++)
                lanes[k] += lanes[k + width];
        sum += (double)lanes[0];
    }
    mean = (float)sum / DIM;
    rt_optimizer_step(&config, DIM, 1, values, &state, gradient);
    assert_true(state == 0.25f + mean);
    // Of a chunk a lane adds 128 floats.
    test_close(state, 0.25 + exact, 130 * 0x1p-24, 1, "state");
    rt_optimizer_terms terms = rt_optimizer_terms_of(&config, 1);
    sum = 0;
    for (uint32_t chunk = 0; chunk < rt_optimizer_chunk_count(DIM); chunk++)
        sum += rt_optimizer_chunk_squares(terms, DIM, chunk, shared, gradient);
    terms = rt_optimizer_settle(&config, terms, DIM, sum, &shared_state);
    rt_optimizer_step_range(&config, terms, DIM, 1000, DIM, shared, &shared_state, gradient);
    rt_optimizer_step_range(&config, terms, DIM, 0, 1000, shared, &shared_state, gradient);
    assert_true(shared_state == state);
    assert_memory_equal(shared, values, sizeof values);
}

static void test_row_init_is_pinned(void **context)
{
    (void)context;
    const float want[][4] = {{0x1.d4214ap-7f, 0x1.6cc518p-10f, -0x1.dc3156p-7f, 0x1.6ec0ccp-7f},
                             {-0x1.aeef2ap-8f, -0x1.a3545ap-8f, -0x1.7f2a0ep-6f, -0x1.9ce2e2p-9f},
                             {0x1.0cc0fp-6f, -0x1.5c0c04p-7f, 0x1.21e044p-11f, -0x1.09e0e2p-7f}};
    const uint64_t keys[] = {0, rt_key(3, 12345), rt_key(255, RT_ID_MISSING)};
    for (size_t i = 0; i < 3; i++) {
        float row[4];
        rt_row_init(keys[i], i, 0.01f, 4, row);
        assert_memory_equal(row, want[i], sizeof row);
    }
}

static void test_row_init_depends_on_key_seed_and_not_on_dim(void **context)
{
    (void)context;
    float a[64], b[64], prefix[5];
    rt_row_init(42, 1, 0.01f, 64, a);
    rt_row_init(42, 1, 0.01f, 64, b);
    assert_memory_equal(a, b, sizeof a);
    rt_row_init(42, 1, 0.01f, 5, prefix);
    assert_memory_equal(a, prefix, sizeof prefix);
    rt_row_init(43, 1, 0.01f, 64, b);
    assert_memory_not_equal(a, b, sizeof a);
    rt_row_init(42, 2, 0.01f, 64, b);
    assert_memory_not_equal(a, b, sizeof a);
}

// Moments over 2^20 values, with bounds at five standard errors: sqrt(1 / n) for the mean in units
// of the deviation, sqrt(kurtosis - 1) / (2 sqrt(n)) <= 0.71 / sqrt(n) for the deviation;
// neighbours (same key, next key) are uncorrelated within 5 / sqrt(n).
static void test_row_init_moments(void **context)
{
    (void)context;
    enum { KEYS = 1 << 16, DIM = 16 };
    const double n = (double)KEYS * DIM, scale = 0.01;
    double sum = 0, squares = 0, along = 0, across = 0, extreme = 0;
    float row[DIM], previous[DIM] = {0};
    for (uint64_t key = 0; key < KEYS; key++) {
        rt_row_init(rt_key(2, key), 5, (float)scale, DIM, row);
        for (int i = 0; i < DIM; i++) {
            sum += row[i] / scale;
            squares += row[i] / scale * row[i] / scale;
            along += row[i] / scale * row[(i + 1) % DIM] / scale;
            across += row[i] / scale * previous[i] / scale;
            extreme = fmax(extreme, fabs(row[i] / scale));
        }
        memcpy(previous, row, sizeof row);
    }
    assert_true(fabs(sum / n) < 5 / sqrt(n));
    assert_true(fabs(sqrt(squares / n) - 1) < 5 * 0.71 / sqrt(n));
    assert_true(fabs(along / n) < 5 / sqrt(n));
    assert_true(fabs(across / n) < 5 / sqrt(n));
    assert_true(extreme > 3.2 && extreme <= 2 * sqrt(3) * (1 + 1e-4)); // the sum of four is bounded
}

// A line of the list: its name leads to its table; some are for dense weights only.
static void test_names_lead_to_their_tables(void **context)
{
    (void)context;
    for (int kind = 0; kind < RT_OPTIMIZER_COUNT; kind++) {
        const char *name = rt_optimizer_find((rt_optimizer_kind)kind)->name;
        const char *rows = rt_config_choice_name("optimizer.rows.name", kind);
        assert_string_equal(name, rt_config_choice_name("optimizer.dense.name", kind));
        assert_true(!rows || strcmp(rows, name) == 0);
    }
}

TEST_MAIN(TEST(test_kinds_follow_their_formulas), TEST(test_shaped_steps_follow_their_formulas),
          TEST(test_rate_follows_its_formula), TEST(test_norms),
          TEST(test_state_sizes_and_initial_state), TEST(test_zero_gradients_change_nothing),
          TEST(test_steps_are_by_sums_or_by_what_comes), TEST(test_parts_are_the_whole),
          TEST(test_every_kind_descends), TEST(test_a_part_of_a_batch_is_a_part_of_a_step),
          TEST(test_bits_are_pinned), TEST(test_row_wise_sum_has_its_order),
          TEST(test_row_wise_sum_goes_by_chunks), TEST(test_row_init_is_pinned),
          TEST(test_row_init_depends_on_key_seed_and_not_on_dim), TEST(test_row_init_moments),
          TEST(test_names_lead_to_their_tables))
