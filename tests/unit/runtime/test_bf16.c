#include "runtime/numbers/rt_bf16.h"

#include <math.h>
#include <string.h>

#include "runtime/rt_hash.h"
#include "tests/support/test.h"

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static float unpacked(uint16_t packed)
{
    float value;
    rt_bf16_unpack(&packed, 1, &value);
    return value;
}

// By comparing distances in double precision to the two neighbours, which are one unit apart.
static uint16_t nearest(uint32_t bits)
{
    const uint16_t low = (uint16_t)(bits >> 16), high = (uint16_t)(low + 1);
    const double value = float_of(bits);
    // What follows the largest finite number counts as 2^128.
    const double below = unpacked(low), above = isinf(unpacked(high))
                                                    ? copysign(ldexp(1, 128), value)
                                                    : (double)unpacked(high);
    const double to_low = fabs(value - below), to_high = fabs(above - value);
    if (to_low != to_high)
        return to_low < to_high ? low : high;
    return low & 1 ? high : low;
}

static void rounds_to_nearest_even(void **state)
{
    static const uint32_t lows[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
    (void)state;
    for (uint32_t high = 0; high < 0x10000; high++) {
        for (size_t i = 0; i < RT_COUNT_OF(lows); i++) {
            const uint32_t bits = high << 16 | lows[i];
            const float value = float_of(bits);
            uint16_t packed;
            rt_bf16_pack(&value, 1, &packed);
            if (isnan(value))
                assert_true(isnan(unpacked(packed)));
            else if (isinf(value))
                assert_true(unpacked(packed) == value);
            else
                assert_int_equal(packed, nearest(bits));
        }
    }
}

// Vectors of any length, also those that are no multiple of a register.
static void lengths(void **state)
{
    enum { MOST = 133 };
    float values[MOST + 1], residual[MOST + 1], sum[MOST + 1], back[MOST + 1];
    uint16_t packed[MOST + 1], fed[MOST + 1];
    rt_random random = {7};
    (void)state;
    for (uint32_t count = 0; count <= MOST; count++) {
        for (uint32_t i = 0; i <= MOST; i++) {
            values[i] = (float)rt_random_below(&random, 1000003) * 1e-4f - 50;
            residual[i] = 0;
            sum[i] = (float)i;
            packed[i] = fed[i] = 0xdead;
            back[i] = -1;
        }
        rt_bf16_pack(values, count, packed);
        rt_bf16_pack_feedback(values, residual, count, fed);
        rt_bf16_unpack(packed, count, back);
        rt_bf16_add(packed, count, sum);
        assert_true(packed[count] == 0xdead && fed[count] == 0xdead && back[count] == -1 &&
                    sum[count] == (float)count);
        for (uint32_t i = 0; i < count; i++) {
            assert_int_equal(packed[i], fed[i]);
            assert_true(residual[i] == values[i] - back[i]);
            assert_true(sum[i] == (float)i + back[i]);
            assert_true(fabsf(values[i] - back[i]) <= fabsf(values[i]) * 0x1p-8f);
        }
    }
}

// What was sent in all is what was wanted in all, but for one rounding: it does not add up.
static void feedback_does_not_drift(void **state)
{
    static const float wanted[] = {1.0039f, 1e-3f, -3.3333f, 1e-30f, 257.0f / 256};
    (void)state;
    for (size_t i = 0; i < RT_COUNT_OF(wanted); i++) {
        float residual = 0;
        double sent = 0, all = 0;
        for (uint32_t t = 1; t <= 1000; t++) {
            uint16_t packed;
            rt_bf16_pack_feedback(&wanted[i], &residual, 1, &packed);
            sent += unpacked(packed);
            all += wanted[i];
            // Half a unit of rounding, and what adding floats loses.
            assert_true(fabs(sent - all) <= fabs(wanted[i]) * (0x1p-8 + t * 0x1p-23));
        }
    }
}

static void bad_values_do_not_stay(void **state)
{
    const float bad[] = {INFINITY, -INFINITY, NAN, 3.4e38f};
    (void)state;
    for (size_t i = 0; i < RT_COUNT_OF(bad); i++) {
        float residual = 0.25f, good = 1;
        uint16_t packed;
        rt_bf16_pack_feedback(&bad[i], &residual, 1, &packed);
        assert_true(!isfinite(unpacked(packed)));
        assert_true(residual == 0);
        rt_bf16_pack_feedback(&good, &residual, 1, &packed);
        assert_true(unpacked(packed) == 1);
    }
}

TEST_MAIN(TEST(rounds_to_nearest_even), TEST(lengths), TEST(feedback_does_not_drift),
          TEST(bad_values_do_not_stay))
