#include "runtime/numbers/rt_int8.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "runtime/numbers/rt_coding.h"
#include "runtime/rt_hash.h"
#include "tests/support/test.h"

enum { COUNT = 1500 };

static void draw(rt_random *random, float *values, uint32_t count, int exponent)
{
    for (uint32_t i = 0; i < count; i++)
        values[i] = ldexpf((float)(rt_random_u64(random) % 20001) - 10000, exponent);
}

// One by one, in double precision: the nearest multiple of the scale, an even one of two.
static void one_block(const float *values, uint32_t count, float scale, const int8_t *codes)
{
    double largest = 0;
    for (uint32_t i = 0; i < count; i++)
        largest = fmax(largest, fabs((double)values[i]));
    assert_true(scale == (float)(largest / 127));
    for (uint32_t i = 0; i < count; i++) {
        const double exact = values[i] / (double)scale;
        assert_true(codes[i] >= -127);
        // The factor 1 / scale is rounded: next to a half either neighbour may come.
        assert_true(fabs(codes[i] - exact) <= 0.5 + 127 * 0x1p-22);
        if (fabs(fabs(exact - trunc(exact)) - 0.5) > 1e-3)
            assert_int_equal(codes[i], (int)nearbyint(exact));
    }
}

static void rounds_to_the_nearest(void **state)
{
    static float values[COUNT], back[COUNT];
    static int8_t codes[COUNT];
    rt_random random = {5};
    (void)state;
    for (uint32_t count = 0; count < 300; count++) {
        draw(&random, values, count, (int)(rt_random_u64(&random) % 200) - 100);
        const float scale = rt_int8_pack(values, count, codes);
        one_block(values, count, scale, codes);
        rt_int8_unpack(scale, codes, count, back);
        for (uint32_t i = 0; i < count; i++)
            assert_true(back[i] == scale * (float)codes[i]);
        memcpy(back, values, sizeof back);
        rt_int8_add(scale, codes, count, back);
        for (uint32_t i = 0; i < count; i++)
            assert_true(back[i] == values[i] + scale * (float)codes[i]);
    }
}

static void ends_of_the_range(void **state)
{
    static const float bad[] = {INFINITY, -INFINITY, NAN, FLT_MAX};
    float values[9] = {0}, residual[9], back[9];
    int8_t codes[9];
    (void)state;
    assert_true(rt_int8_pack(values, 9, codes) == 0);
    values[3] = FLT_MIN; // its scale would not be exact
    assert_true(rt_int8_pack(values, 9, codes) == 0 && codes[3] == 0);
    values[3] = -FLT_MAX / 2;
    rt_int8_unpack(rt_int8_pack(values, 9, codes), codes, 9, back);
    assert_true(codes[3] == -127 && isfinite(back[3]) && back[2] == 0);
    for (size_t i = 0; i < RT_COUNT_OF(bad); i++) {
        for (uint32_t k = 0; k < 9; k++)
            residual[k] = values[k] = (float)k;
        values[i] = bad[i];
        rt_int8_unpack(rt_int8_pack_feedback(values, residual, 9, codes), codes, 9, back);
        for (uint32_t k = 0; k < 9; k++)
            assert_true(isnan(back[k]) && residual[k] == 0);
    }
}

// What is sent over many rounds is what was to be sent, less what is kept: nothing gets lost.
static void feedback_keeps_what_is_lost(void **state)
{
    static float values[COUNT], residual[COUNT], sent[COUNT];
    static uint32_t packed[COUNT];
    static double wanted[COUNT], got[COUNT];
    rt_random random = {6};
    (void)state;
    memset(residual, 0, sizeof residual);
    for (uint32_t round = 0; round < 50; round++) {
        draw(&random, values, COUNT, -10);
        values[0] = 1e4f; // the others of its block are far below
        rt_int8_pack_blocks(values, residual, COUNT, packed);
        rt_int8_unpack_blocks(packed, COUNT, sent);
        for (uint32_t i = 0; i < COUNT; i++) {
            wanted[i] += values[i];
            got[i] += sent[i];
            const double scale = ((const float *)packed)[i / RT_INT8_BLOCK];
            assert_true(fabs(residual[i]) <= scale * 0.5 * (1 + 1e-4));
            assert_true(fabs(got[i] + residual[i] - wanted[i]) <=
                        50 * FLT_EPSILON * (fabs(wanted[i]) + 2e4));
        }
    }
}

// Blocks are what they are one by one; nothing is written behind them.
static void blocks(void **state)
{
    static float values[COUNT], back[COUNT], one[RT_INT8_BLOCK];
    static uint32_t packed[COUNT];
    rt_random random = {7};
    (void)state;
    for (uint32_t count = 1; count < COUNT; count += 1 + count / 3) {
        draw(&random, values, count, 3);
        memset(packed, 0xee, sizeof packed);
        rt_int8_pack_blocks(values, NULL, count, packed);
        const uint8_t *end = (const uint8_t *)packed + rt_int8_bytes(count);
        assert_int_equal(*end, 0xee);
        assert_int_equal(rt_int8_bytes(count), (count + 255) / 256 * 4 + count);
        rt_int8_unpack_blocks(packed, count, back);
        for (uint32_t at = 0; at < count; at += RT_INT8_BLOCK) {
            int8_t codes[RT_INT8_BLOCK];
            const uint32_t some = (uint32_t)rt_min_u64(count - at, RT_INT8_BLOCK);
            const float scale = rt_int8_pack(values + at, some, codes);
            rt_int8_unpack(scale, codes, some, one);
            assert_memory_equal(one, back + at, some * sizeof *one);
        }
        rt_int8_add_blocks(packed, count, values);
        assert_true(fabsf(values[count - 1] - 2 * back[count - 1]) <=
                    ((const float *)packed)[(count - 1) / RT_INT8_BLOCK]);
    }
}

// A row, in all codings: so many words, zeros behind the last value, and again the same bits.
static void rows(void **state)
{
    static const uint32_t words[][3] = {
        {1, 1, 2}, {4, 2, 2}, {5, 3, 3}, {16, 8, 5}, {511, 256, 129}};
    static float values[512], back[512], again[512];
    static uint32_t packed[514];
    rt_random random = {8};
    (void)state;
    for (size_t n = 0; n < RT_COUNT_OF(words); n++) {
        const uint32_t count = words[n][0];
        for (rt_coding coding = 0; coding < RT_CODING_COUNT; coding++) {
            const uint32_t want = coding == RT_CODING_FP32 ? count : words[n][coding];
            assert_int_equal(rt_coding_words(coding, count), want);
            draw(&random, values, count, -20);
            memset(packed, 0xee, sizeof packed);
            rt_coding_pack(coding, values, count, packed);
            assert_int_equal(packed[want], 0xeeeeeeee);
            if (coding != RT_CODING_FP32 && count % 2)
                assert_int_equal(packed[want - 1] >> 24, 0);
            rt_coding_unpack(coding, packed, count, back);
            float largest = 0;
            for (uint32_t i = 0; i < count; i++)
                largest = fmaxf(largest, fabsf(values[i]));
            for (uint32_t i = 0; i < count; i++) {
                const double bound = coding == RT_CODING_FP32   ? 0
                                     : coding == RT_CODING_BF16 ? fabs((double)values[i]) / 256
                                                                : largest / 253.99;
                assert_true(fabs((double)back[i] - values[i]) <= bound);
            }
            rt_coding_pack(coding, values, count, packed); // the same again
            rt_coding_unpack(coding, packed, count, again);
            assert_memory_equal(back, again, count * sizeof *back);
        }
    }
}

static void bytes_of_the_dense_vector(void **state)
{
    (void)state;
    for (uint64_t floats = 0; floats < 3000; floats++) {
        for (rt_coding coding = 0; coding < RT_CODING_COUNT; coding++) {
            const uint64_t bytes = rt_coding_dense_bytes(coding, floats);
            assert_int_equal(bytes, coding == RT_CODING_INT8 ? rt_int8_bytes((uint32_t)floats)
                                                             : floats * (coding ? 2 : 4));
            assert_int_equal(rt_coding_dense_floats(coding, bytes), floats);
        }
    }
}

TEST_MAIN(TEST(rounds_to_the_nearest), TEST(ends_of_the_range), TEST(feedback_keeps_what_is_lost),
          TEST(blocks), TEST(rows), TEST(bytes_of_the_dense_vector))
