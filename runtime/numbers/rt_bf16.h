// rt_bf16 - floats in 16 bits on the wire: the upper half of a float (bfloat16).
//
// Rounding is to the nearest, ties to even, and a NaN stays one: what every machine gets from the
// same floats is the same, bit for bit. Any thread.
#ifndef RT_BF16_H
#define RT_BF16_H

#include "runtime/rt_base.h"

// packed[i] = values[i] rounded.
void rt_bf16_pack(const float *values, uint32_t count, uint16_t *packed);

// With error feedback (Seide et al., Interspeech 2014, section 2): what rounding loses is kept in
// residual and added the next time. packed[i] = values[i] + residual[i] rounded, residual[i] = what
// that lost; 0 where the result is not finite, so that one bad value does not stay for ever.
void rt_bf16_pack_feedback(const float *values, float *residual, uint32_t count, uint16_t *packed);

// values[i] = packed[i], exactly.
void rt_bf16_unpack(const uint16_t *packed, uint32_t count, float *values);

// values[i] += packed[i].
void rt_bf16_add(const uint16_t *packed, uint32_t count, float *values);

#endif
