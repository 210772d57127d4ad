#include "runtime/numbers/rt_coding.h"

#include <string.h>

#include "runtime/numbers/rt_bf16.h"
#include "runtime/numbers/rt_int8.h"

// But for int8.
static uint64_t float_bytes(rt_coding coding)
{
    if (coding == RT_CODING_BF16)
        return sizeof(uint16_t);
    return sizeof(float);
}

uint64_t rt_coding_dense_bytes(rt_coding coding, uint64_t floats)
{
    if (coding == RT_CODING_INT8)
        return floats + (floats + RT_INT8_BLOCK - 1) / RT_INT8_BLOCK * sizeof(float);
    return floats * float_bytes(coding);
}

uint64_t rt_coding_dense_floats(rt_coding coding, uint64_t bytes)
{
    const uint64_t block = RT_INT8_BLOCK + sizeof(float), rest = bytes % block;
    if (coding == RT_CODING_INT8)
        return bytes / block * RT_INT8_BLOCK + (rest ? rest - sizeof(float) : 0);
    return bytes / float_bytes(coding);
}

uint32_t rt_coding_words(rt_coding coding, uint32_t count)
{
    switch (coding) {
    case RT_CODING_BF16:
        return count / 2 + count % 2;
    case RT_CODING_INT8:
        return 1 + count / 4 + (count % 4 > 0);
    case RT_CODING_FP32:
        break;
    }
    return count;
}

// A part that is not full ends in zeros: bytes on the wire are those of the row, and nothing else.
void rt_coding_pack(rt_coding coding, const float *values, uint32_t count, void *words)
{
    uint32_t *last = (uint32_t *)words + rt_coding_words(coding, count) - 1;
    float scale;
    switch (coding) {
    case RT_CODING_BF16:
        *last = 0;
        rt_bf16_pack(values, count, words);
        return;
    case RT_CODING_INT8:
        *last = 0;
        scale = rt_int8_pack(values, count, (int8_t *)words + sizeof scale);
        memcpy(words, &scale, sizeof scale);
        return;
    case RT_CODING_FP32:
        memcpy(words, values, count * sizeof *values);
    }
}

void rt_coding_unpack(rt_coding coding, const void *words, uint32_t count, float *values)
{
    float scale;
    switch (coding) {
    case RT_CODING_BF16:
        rt_bf16_unpack(words, count, values);
        return;
    case RT_CODING_INT8:
        memcpy(&scale, words, sizeof scale);
        rt_int8_unpack(scale, (const int8_t *)words + sizeof scale, count, values);
        return;
    case RT_CODING_FP32:
        memcpy(values, words, count * sizeof *values);
    }
}
