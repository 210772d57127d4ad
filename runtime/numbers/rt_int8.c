#include "runtime/numbers/rt_int8.h"

#include <float.h>
#include <math.h>
#include <string.h>

// Loops without branches and without aliasing: compilers make vectors of them.

#define CODE_MAX 127.0f
#define NEAREST 12582912.0f // 1.5 x 2^23: what is added to it is rounded to a whole number

// The bits of the largest magnitude, which are ordered as the floats are; of a NaN above infinity.
static int32_t largest_bits(const float *restrict values, uint32_t count)
{
    int32_t largest = 0;
    for (uint32_t i = 0; i < count; i++) {
        int32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        bits &= 0x7fffffff;
        largest = bits > largest ? bits : largest;
    }
    return largest;
}

// NaN: a float is not finite, or would not come back as one. 0: all are too small for a scale.
static float scale_of(const float *values, uint32_t count)
{
    const int32_t bits = largest_bits(values, count);
    float largest;
    memcpy(&largest, &bits, sizeof largest);
    const float scale = largest / CODE_MAX;
    if (!isfinite(scale * CODE_MAX))
        return NAN;
    return scale < FLT_MIN ? 0 : scale;
}

static void encode(const float *restrict values, uint32_t count, float scale,
                   int8_t *restrict codes)
{
    const float inverse = 1 / scale;
    for (uint32_t i = 0; i < count; i++)
        codes[i] = (int8_t)(int32_t)((values[i] * inverse + NEAREST) - NEAREST);
}

float rt_int8_pack(const float *values, uint32_t count, int8_t *codes)
{
    const float scale = scale_of(values, count);
    if (scale > 0)
        encode(values, count, scale, codes);
    else
        memset(codes, 0, count);
    return scale;
}

// wanted: what was encoded, becomes what that lost.
static void keep_lost(float *restrict wanted, const int8_t *restrict codes, float scale,
                      uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        wanted[i] -= scale * (float)codes[i];
}

float rt_int8_pack_feedback(const float *restrict values, float *restrict residual, uint32_t count,
                            int8_t *restrict codes)
{
    for (uint32_t i = 0; i < count; i++)
        residual[i] += values[i];
    const float scale = rt_int8_pack(residual, count, codes);
    if (isnan(scale))
        memset(residual, 0, count * sizeof *residual);
    else
        keep_lost(residual, codes, scale, count);
    return scale;
}

void rt_int8_unpack(float scale, const int8_t *restrict codes, uint32_t count,
                    float *restrict values)
{
    for (uint32_t i = 0; i < count; i++)
        values[i] = scale * (float)codes[i];
}

void rt_int8_add(float scale, const int8_t *restrict codes, uint32_t count, float *restrict values)
{
    for (uint32_t i = 0; i < count; i++)
        values[i] += scale * (float)codes[i];
}

// ---- many blocks -----------------------------------------------------------------------------

void rt_int8_pack_blocks(const float *values, float *residual, uint32_t count, void *out)
{
    float *scales = out;
    int8_t *codes = (int8_t *)(scales + rt_int8_blocks(count));
    for (uint32_t at = 0; at < count; at += RT_INT8_BLOCK) {
        const uint32_t some = (uint32_t)rt_min_u64(count - at, RT_INT8_BLOCK);
        if (residual)
            *scales++ = rt_int8_pack_feedback(values + at, residual + at, some, codes + at);
        else
            *scales++ = rt_int8_pack(values + at, some, codes + at);
    }
}

void rt_int8_unpack_blocks(const void *in, uint32_t count, float *values)
{
    const float *scales = in;
    const int8_t *codes = (const int8_t *)(scales + rt_int8_blocks(count));
    for (uint32_t at = 0; at < count; at += RT_INT8_BLOCK)
        rt_int8_unpack(*scales++, codes + at, (uint32_t)rt_min_u64(count - at, RT_INT8_BLOCK),
                       values + at);
}

void rt_int8_add_blocks(const void *in, uint32_t count, float *values)
{
    const float *scales = in;
    const int8_t *codes = (const int8_t *)(scales + rt_int8_blocks(count));
    for (uint32_t at = 0; at < count; at += RT_INT8_BLOCK)
        rt_int8_add(*scales++, codes + at, (uint32_t)rt_min_u64(count - at, RT_INT8_BLOCK),
                    values + at);
}
