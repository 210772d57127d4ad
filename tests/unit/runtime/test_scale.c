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
                f.batch.dense[7 * FEATURES + k] = wild[w];
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
        f.batch.dense[i * FEATURES] = 0;
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
        f.batch.dense[5 * FEATURES] = NAN;
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
    rt_scale_tensors(f.scale, parts);
    assert_int_equal(rt_tensors_encode(parts, RT_SCALE_TENSORS, &file), RT_OK);
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
          TEST(small_batches_and_none))
