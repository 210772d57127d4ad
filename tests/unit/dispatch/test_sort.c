// Sorting by digits and by worth against a sort that compares neighbours: stable, for every range
// of bits, and for counts on both sides of where digits become wider.
#include "dispatch/cache/dp_sort.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/rt_base.h"
#include "runtime/rt_hash.h"
#include "tests/support/test.h"

#define MOST 5000u

typedef struct {
    uint64_t items[MOST], scratch[MOST], wanted[MOST];
    uint32_t bytes[64];
} sorted;

typedef struct {
    uint32_t low, high;
    const uint32_t *bytes; // NULL: by bits
} order;

static uint64_t bits_of(const order *by, uint64_t item)
{
    const uint32_t width = by->high - by->low;
    return width == 64 ? item : item >> by->low & ((UINT64_C(1) << width) - 1);
}

// a has to come before b.
static bool is_before(const order *by, uint64_t a, uint64_t b)
{
    if (!by->bytes)
        return bits_of(by, a) < bits_of(by, b);
    return (unsigned __int128)(a >> 32) * by->bytes[(uint32_t)b] <
           (unsigned __int128)(b >> 32) * by->bytes[(uint32_t)a];
}

// Merges, from the top down.
static void sort_again(const order *by, uint64_t *items, uint64_t *spare, uint32_t count)
{
    const uint32_t half = count / 2;
    uint32_t left = 0, right = half;
    if (count < 2)
        return;
    sort_again(by, items, spare, half);
    sort_again(by, items + half, spare, count - half);
    for (uint32_t i = 0; i < count; i++) {
        const bool from_left =
            right == count || (left < half && !is_before(by, items[right], items[left]));
        spare[i] = items[from_left ? left++ : right++];
    }
    memcpy(items, spare, count * sizeof *items);
}

static void check(sorted *s, const order *by, uint32_t count)
{
    memcpy(s->wanted, s->items, count * sizeof *s->items);
    sort_again(by, s->wanted, s->scratch, count);
    if (by->bytes)
        dp_sort_by_worth(s->items, s->scratch, count, by->bytes);
    else
        dp_sort_bits(s->items, s->scratch, count, by->low, by->high);
    for (uint32_t i = 0; i < count; i++)
        if (s->items[i] != s->wanted[i])
            fail_msg("%" PRIu32 " of %" PRIu32 ", bits %" PRIu32 " to %" PRIu32 "%s", i, count,
                     by->low, by->high, by->bytes ? ", by worth" : "");
}

static const uint32_t counts[] = {0, 1, 2, 3, 17, 255, 1000, 4095, 4096, 4097, MOST};

// Few bits are random, so that items are equal, and digits that all share are among the others.
static void by_bits(void **state)
{
    (void)state;
    static const order ranges[] = {{0, 64, NULL}, {32, 64, NULL}, {0, 32, NULL}, {3, 17, NULL},
                                   {7, 8, NULL},  {11, 22, NULL}, {8, 24, NULL}, {60, 64, NULL}};
    sorted *s = calloc(1, sizeof *s);
    rt_random random = {5};
    for (uint32_t c = 0; c < RT_COUNT_OF(counts); c++) {
        for (uint32_t r = 0; r < 4 * RT_COUNT_OF(ranges); r++) {
            const uint64_t open = rt_random_u64(&random) & rt_random_u64(&random) &
                                  (r % 4 ? rt_random_u64(&random) : UINT64_MAX);
            const uint64_t same = rt_random_u64(&random);
            for (uint32_t i = 0; i < counts[c]; i++)
                s->items[i] = (rt_random_u64(&random) & open) | (same & ~open);
            check(s, &ranges[r / 4], counts[c]);
        }
    }
    free(s);
}

// Equal worths of unequal sizes, too; as exact as products of 32 bits are.
static void by_worth(void **state)
{
    (void)state;
    sorted *s = calloc(1, sizeof *s);
    rt_random random = {6};
    for (uint32_t c = 0; c < RT_COUNT_OF(counts); c++) {
        for (uint32_t large = 0; large < 2; large++) {
            for (uint32_t b = 0; b < RT_COUNT_OF(s->bytes); b++)
                s->bytes[b] = large ? UINT32_MAX - rt_random_below(&random, 3)
                                    : 1 + rt_random_below(&random, 4);
            for (uint32_t i = 0; i < counts[c]; i++) {
                const uint64_t uses =
                    large ? UINT32_MAX - rt_random_below(&random, 3) : rt_random_below(&random, 20);
                s->items[i] = uses << 32 | rt_random_below(&random, RT_COUNT_OF(s->bytes));
            }
            check(s, &(order){.bytes = s->bytes}, counts[c]);
        }
    }
    free(s);
}

TEST_MAIN(TEST(by_bits), TEST(by_worth))
