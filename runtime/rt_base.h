// rt_base - assertions, arithmetic helpers and allocation that every file uses.
#ifndef RT_BASE_H
#define RT_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/rt_status.h"

#define RT_WORKERS_MAX 64u // holder sets are 64-bit masks
#define RT_SHARDS_MAX 16u
#define RT_SITE_BOXES_MAX 64u
#define RT_THREADS_MAX 256u // of a worker
#define RT_FIELDS_MAX 256u  // the field is the top byte of a key
#define RT_LABELS_MAX 8     // of a sample

// For our own bugs only, never for bytes of a peer or a file. Stays on in release builds.
#define rt_assert(condition) \
    ((condition) ? (void)0 : rt_assert_failed(#condition, __FILE__, __LINE__))
_Noreturn void rt_assert_failed(const char *condition, const char *file, int line);

#define RT_COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))
#define RT_LIKELY(x) __builtin_expect(!!(x), 1)
#define RT_UNLIKELY(x) __builtin_expect(!!(x), 0)

static inline uint64_t rt_min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}
static inline uint64_t rt_max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}
static inline uint64_t rt_bit(uint32_t index)
{
    return UINT64_C(1) << index;
}
// The lowest count bits, 0 to 64.
static inline uint64_t rt_bits_below(uint32_t count)
{
    return count > 0 ? UINT64_MAX >> (64 - count) : 0;
}
static inline uint32_t rt_lowest_bit(uint64_t mask)
{
    return (uint32_t)__builtin_ctzll(mask);
}
static inline uint32_t rt_bit_count(uint64_t mask)
{
    return (uint32_t)__builtin_popcountll(mask);
}
// The bit of a mask with `place` others below it; there must be one.
static inline uint32_t rt_bit_at(uint64_t mask, uint32_t place)
{
    for (; place > 0; place--)
        mask &= mask - 1;
    return rt_lowest_bit(mask);
}
// How many bits of a mask are below one: its place.
static inline uint32_t rt_bits_under(uint64_t mask, uint32_t bit)
{
    return rt_bit_count(mask & ((UINT64_C(1) << bit) - 1));
}
// At least two bits, exactly one: cheaper than counting, which is a call on the oldest x86-64.
static inline bool rt_bits_many(uint64_t mask)
{
    return (mask & (mask - 1)) != 0;
}
static inline bool rt_bits_one(uint64_t mask)
{
    return mask != 0 && !rt_bits_many(mask);
}

// For main, before there are threads: memory of messages that malloc gets back stays with the
// process. Handing it to the system and asking for it again costs a page fault every 4 KB.
void rt_keep_freed_memory(void);

// count * size bytes, zeroed, 64-byte aligned; NULL when it does not fit into memory or size_t.
// Free with rt_free. Large blocks ask the kernel for huge pages.
void *rt_alloc(size_t count, size_t size);
// The same with any contents: for what is written before it is read.
void *rt_alloc_unset(size_t count, size_t size);
// As rt_alloc, 16-byte aligned; a large block takes memory, and the time to clear it, as it is
// used.
void *rt_alloc_lazy(size_t count, size_t size);
void rt_free(void *block);

// Grows *block_p to hold at least count elements (contents kept, growth by half); *capacity_p is
// in elements. RT_NO_MEMORY leaves both untouched.
rt_status rt_grow(void *block_p, uint32_t *capacity_p, uint64_t count, size_t size);
// The same; what is new has any contents.
rt_status rt_grow_unset(void *block_p, uint32_t *capacity_p, uint64_t count, size_t size);

// Nanoseconds of the monotonic clock. The planner never calls it.
uint64_t rt_now_ns(void);

// Until then, for poll: milliseconds, rounded up, at most INT32_MAX. deadline_ns 0: -1, none.
int rt_wait_ms(uint64_t deadline_ns);

// Seconds since 1970, as the machine's clock has them.
double rt_unix_s(void);

#endif
