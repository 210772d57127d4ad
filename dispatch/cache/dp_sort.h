// dp_sort - stable sorts of numbers with a payload, in time linear in their count.
#ifndef DP_SORT_H
#define DP_SORT_H

#include <stdint.h>

// Ascending by the bits low to high - 1 (high <= 64); scratch holds count items too.
void dp_sort_bits(uint64_t *items, uint64_t *scratch, uint32_t count, uint32_t low, uint32_t high);

// Ascending by upper half / bytes[lower half], compared exactly. Takes count log count steps.
void dp_sort_by_worth(uint64_t *items, uint64_t *scratch, uint32_t count, const uint32_t *bytes);

static inline void dp_sort_upper(uint64_t *items, uint64_t *scratch, uint32_t count)
{
    dp_sort_bits(items, scratch, count, 32, 64);
}

#endif
