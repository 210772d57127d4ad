#include "dispatch/planner/dp_numbers.h"

#include <string.h>

#define BITS_MIN 10u  // of a table's size
#define SPARE_BITS 2u // a quarter of the entries is taken, at most: most probes end at home

rt_status dp_numbers_init(dp_numbers *numbers, uint64_t look_ups_max)
{
    memset(numbers, 0, sizeof *numbers);
    numbers->keys = rt_alloc_unset(look_ups_max, sizeof *numbers->keys);
    numbers->uses = rt_alloc_unset(look_ups_max, sizeof *numbers->uses);
    if (!numbers->keys || !numbers->uses)
        return RT_NO_MEMORY;
    return dp_numbers_share(numbers, look_ups_max, 1);
}

static void free_parts(dp_numbers *numbers)
{
    for (uint32_t p = 0; p < numbers->part_count; p++)
        rt_free(numbers->parts[p].entries);
    rt_free(numbers->parts);
    rt_free(numbers->part_keys);
    rt_free(numbers->part_uses);
    rt_free(numbers->first);
    rt_free(numbers->number);
}

void dp_numbers_fini(dp_numbers *numbers)
{
    free_parts(numbers);
    rt_free(numbers->keys);
    rt_free(numbers->uses);
    memset(numbers, 0, sizeof *numbers);
}

static rt_status allocate_parts(dp_numbers *numbers, uint64_t look_ups_max)
{
    const uint64_t places = numbers->part_count > 1 ? look_ups_max : 0;
    numbers->parts = rt_alloc(numbers->part_count, sizeof *numbers->parts);
    numbers->part_keys = rt_alloc_unset(places, sizeof *numbers->part_keys);
    numbers->part_uses = rt_alloc_unset(places, sizeof *numbers->part_uses);
    numbers->first = rt_alloc_unset(places, sizeof *numbers->first);
    numbers->number = rt_alloc_unset(places, sizeof *numbers->number);
    if (!numbers->parts || !numbers->part_keys || !numbers->part_uses || !numbers->first ||
        !numbers->number)
        return RT_NO_MEMORY;
    for (uint32_t p = 0; p < numbers->part_count; p++) {
        numbers->parts[p].bits = BITS_MIN;
        numbers->parts[p].entries = rt_alloc(1u << BITS_MIN, sizeof *numbers->parts[p].entries);
        if (!numbers->parts[p].entries)
            return RT_NO_MEMORY;
    }
    return RT_OK;
}

rt_status dp_numbers_share(dp_numbers *numbers, uint64_t look_ups_max, uint32_t thread_count)
{
    dp_numbers shared = *numbers;
    shared.parts = NULL;
    shared.part_count = (uint32_t)rt_min_u64(thread_count, DP_NUMBERS_PARTS_MAX);
    if (allocate_parts(&shared, look_ups_max)) {
        if (!shared.parts)
            shared.part_count = 0;
        free_parts(&shared);
        return RT_NO_MEMORY;
    }
    free_parts(numbers);
    *numbers = shared;
    return RT_OK;
}

// ---- one part --------------------------------------------------------------------------------

static void clear(dp_numbers_part *part)
{
    memset(part->entries, 0, sizeof *part->entries << part->bits);
    part->count = 0;
}

// Where the search for a key begins. One multiplication (Fibonacci hashing: Knuth, volume 3, 6.4):
// every look-up takes this step, and the table is far from full.
static inline uint64_t home_of(const dp_numbers_part *part, uint64_t key)
{
    return (key ^ key >> 32) * UINT64_C(0x9e3779b97f4a7c15) >> (64 - part->bits);
}

// The entry of key, or a free one.
static inline uint32_t *probe(const dp_numbers_part *part, uint64_t key)
{
    const uint64_t mask = (UINT64_C(1) << part->bits) - 1;
    uint64_t at = home_of(part, key);
    uint32_t number;
    while ((number = part->entries[at]) && part->keys[number - 1] != key)
        at = (at + 1) & mask;
    return &part->entries[at];
}

static rt_status grow(dp_numbers_part *part)
{
    uint32_t *entries = rt_alloc(UINT64_C(2) << part->bits, sizeof *entries);
    if (!entries)
        return RT_NO_MEMORY;
    rt_free(part->entries);
    part->entries = entries;
    part->bits++;
    for (uint32_t n = 0; n < part->count; n++)
        *probe(part, part->keys[n]) = n + 1;
    return RT_OK;
}

// entry: a free one, where the key comes unless the table grows.
static rt_status add_key(dp_numbers_part *part, uint64_t key, uint32_t *entry)
{
    const uint32_t number = part->count;
    if (RT_UNLIKELY(number >> (part->bits - SPARE_BITS))) {
        if (grow(part))
            return RT_NO_MEMORY;
        entry = probe(part, key);
    }
    *entry = number + 1;
    part->keys[number] = key;
    part->uses[number] = 0;
    part->count++;
    return RT_OK;
}

static rt_status number_part(dp_numbers_part *part, const uint64_t *keys, uint32_t count,
                             uint32_t *look_ups)
{
    uint32_t *const uses = part->uses;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t *entry = probe(part, keys[i]);
        uint32_t number = *entry;
        if (RT_UNLIKELY(number == 0)) {
            number = part->count + 1;
            if (add_key(part, keys[i], entry))
                return RT_NO_MEMORY;
        }
        uses[number - 1]++;
        look_ups[i] = number - 1;
    }
    return RT_OK;
}

void dp_numbers_begin(dp_numbers *numbers)
{
    dp_numbers_part *part = &numbers->parts[0];
    part->keys = numbers->keys;
    part->uses = numbers->uses;
    numbers->count = 0;
    clear(part);
}

rt_status dp_numbers_add(dp_numbers *numbers, const uint64_t *keys, uint32_t count,
                         uint32_t *look_ups)
{
    rt_status status = number_part(&numbers->parts[0], keys, count, look_ups);
    numbers->count = numbers->parts[0].count;
    return status;
}

// ---- several parts ---------------------------------------------------------------------------

typedef struct {
    dp_numbers *numbers;
    const uint64_t *keys;
    uint32_t *look_ups;
    uint32_t part_count;
    uint32_t later_count; // distinct keys of all parts but the first
} numbering;

static void number_some(void *context, uint32_t p)
{
    const numbering *all = context;
    dp_numbers_part *part = &all->numbers->parts[p];
    if (p > 0) // begin cleared the first
        clear(part);
    part->status = number_part(part, all->keys + part->begin, part->end - part->begin,
                               all->look_ups + part->begin);
}

typedef struct {
    uint32_t begin, end;
} range;

// A thread's share of count things.
static range share_of(uint32_t count, uint32_t thread, uint32_t thread_count)
{
    return (range){(uint32_t)((uint64_t)count * thread / thread_count),
                   (uint32_t)((uint64_t)count * (thread + 1) / thread_count)};
}

// What a share has of the count things from first on, counted from there.
static range within(range share, uint32_t first, uint32_t count)
{
    const uint64_t end = (uint64_t)first + count;
    return (range){(uint32_t)(rt_min_u64(rt_max_u64(share.begin, first), end) - first),
                   (uint32_t)(rt_min_u64(rt_max_u64(share.end, first), end) - first)};
}

// The place at which a key of part p appears first; it is used there, too.
static uint32_t first_place(dp_numbers *numbers, uint32_t p, uint32_t number)
{
    const dp_numbers_part *part = &numbers->parts[p];
    for (uint32_t q = 0; q < p; q++) {
        const dp_numbers_part *before = &numbers->parts[q];
        const uint32_t found = *probe(before, part->keys[number]);
        if (found == 0)
            continue;
        (void)__atomic_fetch_add(&before->uses[found - 1], part->uses[number], __ATOMIC_RELAXED);
        return before->begin + found - 1;
    }
    return part->begin + number;
}

static void match_some(void *context, uint32_t thread)
{
    const numbering *all = context;
    dp_numbers *numbers = all->numbers;
    const range share = share_of(all->later_count, thread, all->part_count);
    uint32_t before = 0, new_count = 0;
    for (uint32_t p = 1; p < all->part_count; p++) {
        const dp_numbers_part *part = &numbers->parts[p];
        const range own = within(share, before, part->count);
        for (uint32_t n = own.begin; n < own.end; n++) {
            const uint32_t place = part->begin + n, first = first_place(numbers, p, n);
            numbers->first[place] = first;
            new_count += first == place;
        }
        before += part->count;
    }
    numbers->parts[thread].new_count = new_count;
}

// Keys of the first part have their numbers; those of the others get theirs where they are new.
static void assign_some(void *context, uint32_t thread)
{
    const numbering *all = context;
    dp_numbers *numbers = all->numbers;
    const range share = share_of(all->later_count, thread, all->part_count);
    const range first = share_of(numbers->parts[0].count, thread, all->part_count);
    uint32_t before = 0, next = numbers->parts[0].count;
    for (uint32_t t = 0; t < thread; t++)
        next += numbers->parts[t].new_count;
    for (uint32_t n = first.begin; n < first.end; n++)
        numbers->number[n] = n;
    for (uint32_t p = 1; p < all->part_count; p++) {
        const dp_numbers_part *part = &numbers->parts[p];
        const range own = within(share, before, part->count);
        for (uint32_t n = own.begin; n < own.end; n++) {
            const uint32_t place = part->begin + n;
            if (numbers->first[place] != place)
                continue;
            numbers->number[place] = next;
            numbers->keys[next] = part->keys[n];
            numbers->uses[next++] = part->uses[n];
        }
        before += part->count;
    }
}

// Look-ups of all parts but the first have numbers of their parts.
static void rename_some(void *context, uint32_t thread)
{
    const numbering *all = context;
    const dp_numbers *numbers = all->numbers;
    const uint32_t first_end = numbers->parts[0].end;
    const uint32_t later = numbers->parts[all->part_count - 1].end - first_end;
    const range share = share_of(later, thread, all->part_count);
    for (uint32_t p = 1; p < all->part_count; p++) {
        const dp_numbers_part *part = &numbers->parts[p];
        const uint32_t *first = numbers->first + part->begin;
        uint32_t *look_ups = all->look_ups + part->begin;
        const range own = within(share, part->begin - first_end, part->end - part->begin);
        for (uint32_t i = own.begin; i < own.end; i++)
            look_ups[i] = numbers->number[first[look_ups[i]]];
    }
}

static void begin_parts(dp_numbers *numbers, uint32_t count, uint32_t part_count)
{
    for (uint32_t p = 0; p < part_count; p++) {
        dp_numbers_part *part = &numbers->parts[p];
        const range share = share_of(count, p, part_count);
        part->begin = share.begin;
        part->end = share.end;
        if (p > 0) {
            part->keys = numbers->part_keys + part->begin;
            part->uses = numbers->part_uses + part->begin;
        }
    }
}

rt_status dp_numbers_add_all(dp_numbers *numbers, rt_pool *pool, const uint64_t *keys,
                             uint32_t count, uint32_t *look_ups)
{
    const uint32_t part_count = (uint32_t)rt_min_u64(rt_pool_threads(pool), numbers->part_count);
    numbering all = {numbers, keys, look_ups, part_count, 0};
    if (part_count == 1)
        return dp_numbers_add(numbers, keys, count, look_ups);
    begin_parts(numbers, count, part_count);
    rt_pool_run(pool, part_count, number_some, &all);
    for (uint32_t p = 0; p < part_count; p++) {
        if (numbers->parts[p].status)
            return numbers->parts[p].status;
        if (p > 0)
            all.later_count += numbers->parts[p].count;
    }
    rt_pool_run(pool, part_count, match_some, &all);
    rt_pool_run(pool, part_count, assign_some, &all);
    rt_pool_run(pool, part_count, rename_some, &all);
    numbers->count = numbers->parts[0].count;
    for (uint32_t p = 0; p < part_count; p++)
        numbers->count += numbers->parts[p].new_count;
    return RT_OK;
}
