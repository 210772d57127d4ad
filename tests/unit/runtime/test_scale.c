// Dense features on one scale: what it learns, what one wild value does to it, and that it goes on
// from a file with the same bits.
#include "tests/support/test.h"

#include <math.h>
#include <string.h>

#include "runtime/rt_hash.h"
#include "runtime/stream/rt_scale.h"

#define FEATURES 4u
#define SAMPLES 512u
#define BATCHES 8u

// Feature 0 around 100, 1 mostly missing, 2 always the same, 3 with a wide range.
static void fill(rt_batch *batch, uint32_t samples, uint64_t seed)
{
    rt_random random = {rt_mix(seed)};
    rt_batch_clear(batch);
    for (uint32_t i = 0; i < samples; i++) {
        const float dense[FEATURES] = {100 + (float)rt_random_below(&random, 1000) * 0.01f,
                                       rt_random_below(&random, 100) < 2 ? 3.0f : 0.0f, 0.1f,
                                       expf((float)rt_random_below(&random, 80) * 0.1f - 4)};
        const uint64_t key = rt_key(0, i);
        assert_int_equal(rt_batch_append(batch, 0, dense, &key, 1), RT_OK);
    }
}

static void set(rt_batch *batch, uint32_t sample, uint32_t feature, double value)
{
    const size_t at = (size_t)sample * batch->dense_count + feature;
    batch->read[at] = value;
    batch->dense[at] = (float)value;
}

typedef struct {
    rt_batch batch;
    rt_scale *scale;
} fixture;

static fixture make(void)
{
    fixture f;
    rt_batch_init(&f.batch, FEATURES);
    assert_int_equal(rt_scale_create(FEATURES, SAMPLES, &f.scale), RT_OK);
    return f;
}

static void end(fixture *f)
{
    rt_scale_destroy(f->scale);
    rt_batch_fini(&f->batch);
}

static uint64_t take(fixture *f, uint64_t seed)
{
    fill(&f->batch, SAMPLES, seed);
    rt_scale_learn(f->scale, &f->batch);
    return rt_scale_apply(f->scale, &f->batch);
}

static uint64_t hash_of(const rt_batch *batch)
{
    return rt_hash_bytes(batch->dense,
                         (size_t)batch->sample_count * batch->dense_count * sizeof(float));
}

static void mean_and_deviation_of_all_so_far(void **state)
{
    (void)state;
    fixture f = make();
    double sum = 0, squares = 0, count = 0;
    for (uint64_t b = 0; b < BATCHES; b++) {
        fill(&f.batch, SAMPLES, b);
        for (uint32_t i = 0; i < SAMPLES; i++) {
            const double x = (double)f.batch.dense[i * FEATURES];
            sum += x;
            squares += x * x;
            count++;
        }
        const double mean = sum / count, deviation = sqrt(squares / count - mean * mean);
        const double first = (double)f.batch.dense[0];
        rt_scale_learn(f.scale, &f.batch);
        assert_int_equal(rt_scale_apply(f.scale, &f.batch), 0);
        // One rounding to 32 bits each of mean, factor, difference and product; 100 / 3 deviations.
        assert_true(fabs((double)f.batch.dense[0] - (first - mean) / deviation) < 2e-5);
        assert_true(f.batch.dense[2] == 0.0f);
    }
    end(&f);
}

// In the first batch, where nothing is known, and later; of every kind of feature that varies.
static void one_wild_value_is_clipped_and_counted(void **state)
{
    (void)state;
    static const float wild[] = {1e38f, -1e38f, 3.4e38f, INFINITY, 1e9f};
    for (size_t w = 0; w < RT_COUNT_OF(wild); w++)
        for (uint64_t at = 0; at < 3; at++)
            for (uint32_t k = 0; k < FEATURES; k += k == 1 ? 2 : 1) {
                fixture f = make(), calm = make();
                for (uint64_t b = 0; b < at; b++) {
                    assert_int_equal(take(&f, b), 0);
                    take(&calm, b);
                }
                fill(&f.batch, SAMPLES, at);
                set(&f.batch, 7, k, (double)wild[w]);
                rt_scale_learn(f.scale, &f.batch);
                assert_int_equal(rt_scale_apply(f.scale, &f.batch), 1);
                assert_int_equal(rt_scale_clipped(f.scale), 1);
                assert_true(f.batch.dense[7 * FEATURES + k] == copysignf(RT_SCALE_LIMIT, wild[w]));
                take(&calm, at);
                for (uint64_t b = at + 1; b < BATCHES; b++) {
                    assert_int_equal(take(&f, b), 0);
                    take(&calm, b);
                }
                for (uint32_t i = 0; i < SAMPLES; i++) {
                    const float x = f.batch.dense[i * FEATURES + k];
                    const float y = calm.batch.dense[i * FEATURES + k];
                    // What one of 4,096 samples, counted as 10 to 60 deviations, does to the rest.
                    assert_true(fabsf(x - y) < 0.05f + 0.35f * fabsf(y));
                }
                end(&f);
                end(&calm);
            }
}

// A feature that is 0 in all samples at first must not be held at 0 when it comes to life.
static void a_constant_that_begins_to_vary(void **state)
{
    (void)state;
    fixture f = make();
    fill(&f.batch, SAMPLES, 1);
    for (uint32_t i = 0; i < SAMPLES; i++)
        set(&f.batch, i, 0, 0);
    rt_scale_learn(f.scale, &f.batch);
    assert_int_equal(rt_scale_apply(f.scale, &f.batch), 0);
    assert_true(f.batch.dense[0] == 0.0f);
    assert_int_equal(take(&f, 2), 0);
    assert_true(f.batch.dense[0] > 0.9f && f.batch.dense[0] < 1.1f); // 105 +- 3 of 0 and 105
    end(&f);
}

static void what_is_no_number_teaches_nothing(void **state)
{
    (void)state;
    for (uint64_t first = 0; first < 2; first++) {
        fixture f = make();
        if (!first)
            take(&f, 0);
        fill(&f.batch, SAMPLES, 1);
        set(&f.batch, 5, 0, (double)NAN);
        rt_scale_learn(f.scale, &f.batch);
        assert_int_equal(rt_scale_apply(f.scale, &f.batch), 0);
        assert_true(isnan(f.batch.dense[5 * FEATURES])); // the guard of bad batches sees it
        assert_true(isfinite(f.batch.dense[0]));
        assert_int_equal(take(&f, 2), 0);
        for (uint32_t i = 0; i < SAMPLES; i++)
            assert_true(fabsf(f.batch.dense[i * FEATURES]) < 2);
        end(&f);
    }
}

static void it_goes_on_from_its_state(void **state)
{
    (void)state;
    fixture f = make(), other = make();
    rt_bytes bytes = {0};
    rt_error error;
    for (uint64_t b = 0; b < 3; b++)
        take(&f, b);
    rt_scale_save(f.scale, &bytes);
    assert_false(bytes.failed);
    rt_reader reader = rt_bytes_reader(&bytes);
    assert_int_equal(rt_scale_load(other.scale, &reader, &error), RT_OK);
    assert_int_equal(reader.left, 0);
    for (uint64_t b = 3; b < BATCHES; b++) {
        take(&f, b);
        take(&other, b);
        assert_true(hash_of(&f.batch) == hash_of(&other.batch));
    }
    for (size_t size = 0; size < bytes.size; size++) {
        rt_reader cut = {bytes.data, size, false};
        assert_int_equal(rt_scale_load(other.scale, &cut, &error), RT_DATA);
    }
    const double bad[] = {(double)NAN, (double)INFINITY, -1};
    for (size_t i = 0; i < RT_COUNT_OF(bad); i++) { // the squares of the last feature
        memcpy(bytes.data + bytes.size - sizeof bad[i], &bad[i], sizeof bad[i]);
        rt_reader wrong = rt_bytes_reader(&bytes);
        assert_int_equal(rt_scale_load(other.scale, &wrong, &error), RT_DATA);
    }
    rt_bytes_fini(&bytes);
    end(&f);
    end(&other);
}

static void a_model_scales_as_its_last_batch_was(void **state)
{
    (void)state;
    fixture f = make();
    rt_tensor parts[RT_SCALE_TENSORS];
    rt_bytes file = {0};
    rt_tensors *tensors;
    rt_scale *fixed;
    rt_error error;
    take(&f, 1);
    take(&f, 2);
    const uint64_t want = hash_of(&f.batch);
    const uint32_t count = rt_scale_tensors(f.scale, parts);
    assert_int_equal(count, 2);
    assert_string_equal(parts[0].name, "scale.mean");
    assert_int_equal(rt_tensors_encode(parts, count, &file), RT_OK);
    assert_int_equal(rt_tensors_decode("scale.bin", file.data, file.size, &tensors, &error), RT_OK);
    assert_int_equal(rt_scale_open(tensors, FEATURES, &fixed, &error), RT_OK);
    fill(&f.batch, SAMPLES, 2);
    assert_int_equal(rt_scale_apply(fixed, &f.batch), 0);
    assert_true(hash_of(&f.batch) == want);
    rt_scale_destroy(fixed);
    assert_int_equal(rt_scale_open(tensors, FEATURES + 1, &fixed, &error), RT_DATA);
    assert_non_null(strstr(error.text, "expected 5 finite values"));
    rt_tensors_close(tensors);
    rt_bytes_fini(&file);
    assert_int_equal(rt_tensors_encode(parts, 1, &file), RT_OK);
    assert_int_equal(rt_tensors_decode("scale.bin", file.data, file.size, &tensors, &error), RT_OK);
    assert_int_equal(rt_scale_open(tensors, FEATURES, &fixed, &error), RT_DATA);
    rt_tensors_close(tensors);
    rt_bytes_fini(&file);
    end(&f);
}

// ---- far from zero ---------------------------------------------------------------------------

static const struct {
    double from, reach;
} far_ones[] = {
    {1764000000, 3600}, // seconds since 1970 over an hour
    {1764000000, 1500},    {1764e9, 3.6e6},  {1764e15, 3.6e12}, {1764000000.25, 1e-3},
    {16777216, 20},        {101325, 0.2},    {50, 1e-4},        {-1e9, 1e-4},
    {-1e12, 500},          {1e12, 12345.67}, {1e-9, 1e-14},     {3e38, 1e33},
    {-273150000000, 1e-2},
};
#define FARS RT_COUNT_OF(far_ones)

static double drawn(rt_random *random, uint32_t k)
{
    return far_ones[k].from + far_ones[k].reach * rt_random_unit(random);
}

static fixture make_far(void)
{
    fixture f;
    rt_batch_init(&f.batch, FARS);
    assert_int_equal(rt_scale_create(FARS, SAMPLES, &f.scale), RT_OK);
    return f;
}

static void fill_far(rt_batch *batch, uint64_t seed)
{
    rt_random random = {rt_mix(seed)};
    rt_batch_clear(batch);
    for (uint32_t i = 0; i < SAMPLES; i++) {
        double read[FARS];
        const uint64_t key = rt_key(0, i);
        for (uint32_t k = 0; k < FARS; k++)
            read[k] = drawn(&random, k);
        assert_int_equal(rt_batch_append_read(batch, 0, read, &key, 1), RT_OK);
    }
}

static uint64_t take_far(fixture *f, uint64_t seed)
{
    fill_far(&f->batch, seed);
    rt_scale_learn(f->scale, &f->batch);
    return rt_scale_apply(f->scale, &f->batch);
}

// Evenly over a reach: what is scaled is that of 0 to 1, whatever the place. 64 bits of 1e9 have
// steps of 1e-7.
static void what_is_far_from_zero_is_scaled_as_what_is_near(void **state)
{
    (void)state;
    fixture f = make_far();
    for (uint64_t b = 0; b < BATCHES; b++) {
        assert_int_equal(take_far(&f, b), 0);
        rt_random random = {rt_mix(b)};
        for (uint32_t i = 0; i < SAMPLES; i++)
            for (uint32_t k = 0; k < FARS; k++) {
                const double unit = rt_random_unit(&random);
                // The mean of 512 samples is off by as much as 5 of its deviations.
                const double off =
                    fabs((double)f.batch.dense[i * FARS + k] - (unit - 0.5) * sqrt(12));
                if (off > 0.4)
                    fail_msg("%g + %g: off by %g", far_ones[k].from, far_ones[k].reach, off);
            }
    }
    double value;
    for (uint32_t k = 0; k < FARS; k++)
        assert_false(rt_scale_is_one(f.scale, k, &value));
    end(&f);
}

// All of it in one sum of 64 bits, from the offset: what 32 bits keep of the rest.
static void it_loses_what_32_bits_lose_of_the_rest(void **state)
{
    (void)state;
    fixture f = make_far();
    static double read[SAMPLES * FARS];
    fill_far(&f.batch, 9);
    memcpy(read, f.batch.read, sizeof read);
    rt_scale_learn(f.scale, &f.batch);
    rt_scale_apply(f.scale, &f.batch);
    for (uint32_t k = 0; k < FARS; k++) {
        double mean = 0, squares = 0;
        for (uint32_t i = 0; i < SAMPLES; i++)
            mean += (read[i * FARS + k] - far_ones[k].from) / SAMPLES;
        for (uint32_t i = 0; i < SAMPLES; i++)
            squares += pow(read[i * FARS + k] - far_ones[k].from - mean, 2) / SAMPLES;
        for (uint32_t i = 0; i < SAMPLES; i++) {
            const double want = (read[i * FARS + k] - far_ones[k].from - mean) / sqrt(squares);
            assert_true(fabs((double)f.batch.dense[i * FARS + k] - want) < 1e-5);
        }
    }
    end(&f);
}

static void offsets_go_on_from_state_and_model(void **state)
{
    (void)state;
    fixture f = make_far(), other = make_far();
    rt_bytes bytes = {0}, file = {0};
    rt_tensor parts[RT_SCALE_TENSORS];
    rt_tensors *tensors;
    rt_scale *fixed;
    rt_error error;
    take_far(&f, 1);
    rt_scale_save(f.scale, &bytes);
    rt_reader reader = rt_bytes_reader(&bytes);
    assert_int_equal(rt_scale_load(other.scale, &reader, &error), RT_OK);
    assert_int_equal(reader.left, 0);
    for (size_t size = 0; size < bytes.size; size++) {
        rt_reader cut = {bytes.data, size, false};
        rt_scale *none;
        assert_int_equal(rt_scale_create(FARS, 0, &none), RT_OK);
        assert_int_equal(rt_scale_load(none, &cut, &error), RT_DATA);
        rt_scale_destroy(none);
    }
    take_far(&f, 2);
    take_far(&other, 2);
    const uint64_t want = hash_of(&f.batch);
    assert_true(hash_of(&other.batch) == want);
    const uint32_t count = rt_scale_tensors(f.scale, parts);
    assert_int_equal(count, 3);
    for (uint32_t i = 0; i < count; i++) // a reader that does not know offsets finds no mean
        assert_string_not_equal(parts[i].name, "scale.mean");
    assert_int_equal(rt_tensors_encode(parts, count, &file), RT_OK);
    assert_int_equal(rt_tensors_decode("scale.bin", file.data, file.size, &tensors, &error), RT_OK);
    assert_int_equal(rt_scale_open(tensors, FARS, &fixed, &error), RT_OK);
    rt_tensors_close(tensors);
    fill_far(&f.batch, 2);
    rt_scale_apply(fixed, &f.batch);
    assert_true(hash_of(&f.batch) == want);
    rt_scale_go_on(fixed, rt_scale_samples(f.scale));
    rt_scale_copy(fixed, other.scale); // a run that begins with the model
    take_far(&other, 3);
    take_far(&f, 3);
    for (size_t at = 0; at < SAMPLES * FARS; at++)
        assert_true(fabsf(f.batch.dense[at] - other.batch.dense[at]) < 1e-3f);
    rt_scale_destroy(fixed);
    rt_bytes_fini(&bytes);
    rt_bytes_fini(&file);
    end(&f);
    end(&other);
}

// Constant at first: at a value of its own kind, or at 0; and the same once more from a state.
static void what_was_one_value_comes_alive_anywhere(void **state)
{
    (void)state;
    for (uint32_t way = 0; way < 4; way++) {
        fixture f = make_far();
        double value;
        for (uint64_t b = 0; b < 3; b++) {
            fill_far(&f.batch, b);
            for (uint32_t i = 0; i < SAMPLES; i++)
                for (uint32_t k = 0; k < FARS; k++)
                    set(&f.batch, i, k, way & 1 ? 0 : far_ones[k].from + far_ones[k].reach / 3);
            rt_scale_learn(f.scale, &f.batch);
            rt_scale_apply(f.scale, &f.batch);
            assert_true(f.batch.dense[b] == 0.0f);
            for (uint32_t k = 0; k < FARS; k++) {
                assert_true(rt_scale_is_one(f.scale, k, &value));
                assert_true(value == (way & 1 ? 0 : far_ones[k].from + far_ones[k].reach / 3));
            }
        }
        if (way & 2) {
            rt_bytes bytes = {0};
            rt_error error;
            rt_scale_save(f.scale, &bytes);
            rt_scale_destroy(f.scale);
            assert_int_equal(rt_scale_create(FARS, SAMPLES, &f.scale), RT_OK);
            rt_reader reader = rt_bytes_reader(&bytes);
            assert_int_equal(rt_scale_load(f.scale, &reader, &error), RT_OK);
            rt_bytes_fini(&bytes);
        }
        for (uint64_t b = 3; b < BATCHES; b++)
            take_far(&f, b);
        for (uint32_t k = 0; k < FARS; k++) {
            float low = INFINITY, high = -INFINITY;
            for (uint32_t i = 0; i < SAMPLES; i++) {
                low = fminf(low, f.batch.dense[i * FARS + k]);
                high = fmaxf(high, f.batch.dense[i * FARS + k]);
            }
            assert_false(rt_scale_is_one(f.scale, k, &value));
            if (!(high - low > 0.15f)) // of 3.5 where it always varied
                fail_msg("way %u, %g + %g: %g to %g", way, far_ones[k].from, far_ones[k].reach,
                         (double)low, (double)high);
        }
        end(&f);
    }
}

// A cell that is empty is a 0, unless the column says what stands for it.
static void gaps_do_not_drown_what_is_far(void **state)
{
    (void)state;
    static const uint32_t every[] = {50, 5, 2};
    for (uint32_t e = 0; e < RT_COUNT_OF(every); e++) {
        fixture f = make_far();
        for (uint64_t b = 0; b < BATCHES; b++) {
            fill_far(&f.batch, b);
            for (uint32_t i = 0; i < SAMPLES; i += every[e])
                for (uint32_t k = 0; k < FARS; k++)
                    set(&f.batch, i, k, fmin(fabs(far_ones[k].from) * 1e-4, e));
            rt_scale_learn(f.scale, &f.batch);
            rt_scale_apply(f.scale, &f.batch);
        }
        for (uint32_t k = 0; k < FARS; k++) {
            float low = INFINITY, high = -INFINITY;
            for (uint32_t i = 0; i < SAMPLES; i++) {
                const float x = f.batch.dense[i * FARS + k];
                assert_true(i % every[e] || x == (far_ones[k].from > 0 ? -10.0f : 10.0f));
                low = i % every[e] ? fminf(low, x) : low;
                high = i % every[e] ? fmaxf(high, x) : high;
            }
            assert_true(high - low > 2 && high - low < 6);
        }
        end(&f);
    }
}

// 0.1 + 0.2 is not 0.3.
static void what_64_bits_round_is_one_value(void **state)
{
    (void)state;
    fixture f = make();
    double value;
    for (uint64_t b = 0; b < 3; b++) {
        fill(&f.batch, SAMPLES, b);
        for (uint32_t i = 0; i < SAMPLES; i++)
            set(&f.batch, i, 0, i % 3 ? 0.3 : 0.1 + 0.2);
        rt_scale_learn(f.scale, &f.batch);
        rt_scale_apply(f.scale, &f.batch);
        for (uint32_t i = 0; i < SAMPLES; i++)
            assert_true(f.batch.dense[i * FEATURES] == 0.0f);
        assert_true(rt_scale_is_one(f.scale, 0, &value));
    }
    end(&f);
}

static void small_batches_and_none(void **state)
{
    (void)state;
    fixture f = make();
    rt_batch_clear(&f.batch);
    rt_scale_learn(f.scale, &f.batch);
    assert_int_equal(rt_scale_apply(f.scale, &f.batch), 0);
    for (uint32_t samples = 1; samples < 5; samples++) {
        fill(&f.batch, samples, samples);
        rt_scale_learn(f.scale, &f.batch);
        assert_int_equal(rt_scale_apply(f.scale, &f.batch), 0);
        for (uint32_t i = 0; i < samples * FEATURES; i++)
            assert_true(fabsf(f.batch.dense[i]) <= RT_SCALE_LIMIT);
    }
    end(&f);
}

TEST_MAIN(TEST(mean_and_deviation_of_all_so_far), TEST(one_wild_value_is_clipped_and_counted),
          TEST(a_constant_that_begins_to_vary), TEST(what_is_no_number_teaches_nothing),
          TEST(it_goes_on_from_its_state), TEST(a_model_scales_as_its_last_batch_was),
          TEST(small_batches_and_none), TEST(what_is_far_from_zero_is_scaled_as_what_is_near),
          TEST(it_loses_what_32_bits_lose_of_the_rest), TEST(offsets_go_on_from_state_and_model),
          TEST(what_was_one_value_comes_alive_anywhere), TEST(gaps_do_not_drown_what_is_far),
          TEST(what_64_bits_round_is_one_value))
