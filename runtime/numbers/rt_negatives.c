#include "runtime/numbers/rt_negatives.h"

#include "runtime/rt_hash.h"

bool rt_negatives_keeps(uint64_t seed, uint64_t number, double share)
{
    // 53 bits of the hash are a double exactly.
    return (double)(rt_mix(rt_mix(seed) ^ number) >> 11) * 0x1p-53 < share;
}

void rt_negatives_correct(const float *predictions, uint32_t count, double share, float *corrected)
{
    for (uint32_t i = 0; i < count; i++) {
        const double p = (double)predictions[i];
        corrected[i] = share == 1 ? predictions[i] : (float)(p / (p + (1 - p) / share));
    }
}
