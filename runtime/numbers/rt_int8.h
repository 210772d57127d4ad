// rt_int8 - floats in 8 bits on the wire: whole multiples, -127 to 127, of a block's scale.
//
// The scale is the largest magnitude of the block, divided by 127, in 32 bits; rounding is to the
// nearest multiple, ties to even, so what is lost of a float is at most half the scale. A block
// with a float that is not finite becomes NaN as a whole. What every machine gets from the same
// floats is the same, bit for bit. Any thread.
#ifndef RT_INT8_H
#define RT_INT8_H

#include "runtime/rt_base.h"

#define RT_INT8_BLOCK 256u // floats that share a scale, where there are many

// One block. codes[i] x the scale, which is returned, = values[i] rounded.
float rt_int8_pack(const float *values, uint32_t count, int8_t *codes);

// With error feedback, as rt_bf16_pack_feedback: codes[i] x scale = values[i] + residual[i]
// rounded, residual[i] = what that lost; 0 where the block is not finite.
float rt_int8_pack_feedback(const float *values, float *residual, uint32_t count, int8_t *codes);

void rt_int8_unpack(float scale, const int8_t *codes, uint32_t count, float *values);
void rt_int8_add(float scale, const int8_t *codes, uint32_t count, float *values); // +=

// Many floats, in blocks of RT_INT8_BLOCK, the last one shorter: all scales, then all codes.
static inline uint32_t rt_int8_blocks(uint32_t count)
{
    return (count + RT_INT8_BLOCK - 1) / RT_INT8_BLOCK;
}
static inline uint64_t rt_int8_bytes(uint32_t count)
{
    return (uint64_t)rt_int8_blocks(count) * sizeof(float) + count;
}

// in, out: rt_int8_bytes, at a multiple of 4.
void rt_int8_pack_blocks(const float *values, float *residual, uint32_t count, void *out);
void rt_int8_unpack_blocks(const void *in, uint32_t count, float *values);
void rt_int8_add_blocks(const void *in, uint32_t count, float *values); // +=

#endif
