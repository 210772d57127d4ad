#include "dispatch/cache/dp_sort.h"

#include <stdbool.h>
#include <string.h>

#include "runtime/rt_base.h"

#define WIDTH_MAX 11u
#define FEW 4096u // items for which counting over 2^11 digits would cost more than it saves
#define WIDTH_FEW 8u

static void sort_digit(const uint64_t *from, uint64_t *to, uint32_t count, uint32_t shift,
                       uint64_t mask)
{
    uint32_t starts[1u << WIDTH_MAX];
    memset(starts, 0, (mask + 1) * sizeof *starts);
    for (uint32_t i = 0; i < count; i++)
        starts[from[i] >> shift & mask]++;
    uint32_t sum = 0;
    for (uint64_t d = 0; d <= mask; d++) {
        const uint32_t here = starts[d];
        starts[d] = sum;
        sum += here;
    }
    for (uint32_t i = 0; i < count; i++)
        to[starts[from[i] >> shift & mask]++] = from[i];
}

// Digits that all items share are passed over.
void dp_sort_bits(uint64_t *items, uint64_t *scratch, uint32_t count, uint32_t low, uint32_t high)
{
    const uint32_t width = count < FEW ? WIDTH_FEW : WIDTH_MAX;
    uint64_t any = 0, all = UINT64_MAX;
    uint64_t *from = items, *to = scratch;
    for (uint32_t i = 0; i < count; i++) {
        any |= items[i];
        all &= items[i];
    }
    for (uint32_t shift = low; shift < high; shift += width) {
        const uint64_t mask = (UINT64_C(1) << (high - shift < width ? high - shift : width)) - 1;
        if (!((any & ~all) >> shift & mask))
            continue;
        sort_digit(from, to, count, shift, mask);
        uint64_t *sorted = to;
        to = from;
        from = sorted;
    }
    if (from != items)
        memcpy(items, from, count * sizeof *items);
}

// a before b.
static bool is_worth_less(const uint32_t *bytes, uint64_t a, uint64_t b)
{
    return (a >> 32) * bytes[(uint32_t)b] < (b >> 32) * bytes[(uint32_t)a];
}

// Merges runs of growing length.
void dp_sort_by_worth(uint64_t *items, uint64_t *scratch, uint32_t count, const uint32_t *bytes)
{
    for (uint64_t length = 1; length < count; length *= 2) {
        for (uint64_t begin = 0; begin < count; begin += 2 * length) {
            uint64_t middle = rt_min_u64(begin + length, count);
            uint64_t end = rt_min_u64(begin + 2 * length, count);
            uint64_t left = begin, right = middle;
            for (uint64_t at = begin; at < end; at++) {
                bool take_right = left == middle ||
                                  (right < end && is_worth_less(bytes, items[right], items[left]));
                scratch[at] = items[take_right ? right++ : left++];
            }
        }
        memcpy(items, scratch, count * sizeof *items);
    }
}
