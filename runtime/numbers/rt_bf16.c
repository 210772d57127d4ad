#include "runtime/numbers/rt_bf16.h"

#include <string.h>

// Loops without branches and without aliasing: compilers make vectors of them.

static inline uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

// A NaN could lose all bits of its fraction, or carry into the sign: it gets the quiet bit instead.
static inline uint16_t rounded(uint32_t bits)
{
    uint32_t nearest = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
    uint32_t quiet = bits >> 16 | 0x40u;
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? quiet : nearest);
}

void rt_bf16_pack(const float *restrict values, uint32_t count, uint16_t *restrict packed)
{
    for (uint32_t i = 0; i < count; i++)
        packed[i] = rounded(bits_of(values[i]));
}

void rt_bf16_pack_feedback(const float *restrict values, float *restrict residual, uint32_t count,
                           uint16_t *restrict packed)
{
    for (uint32_t i = 0; i < count; i++) {
        float wanted = values[i] + residual[i];
        uint16_t sent = rounded(bits_of(wanted));
        uint32_t sent_bits = (uint32_t)sent << 16;
        float lost = wanted - float_of(sent_bits);
        bool finite = (sent_bits & 0x7f800000u) != 0x7f800000u;
        packed[i] = sent;
        residual[i] = finite ? lost : 0;
    }
}

void rt_bf16_unpack(const uint16_t *restrict packed, uint32_t count, float *restrict values)
{
    for (uint32_t i = 0; i < count; i++)
        values[i] = float_of((uint32_t)packed[i] << 16);
}

void rt_bf16_add(const uint16_t *restrict packed, uint32_t count, float *restrict values)
{
    for (uint32_t i = 0; i < count; i++)
        values[i] += float_of((uint32_t)packed[i] << 16);
}
