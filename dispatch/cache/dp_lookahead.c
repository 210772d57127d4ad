#include "dispatch/cache/dp_lookahead.h"

#include "runtime/rt_hash.h"

rt_status dp_lookahead_init(dp_lookahead *lookahead, uint32_t window, uint64_t key_count_max)
{
    uint64_t size = 16;
    rt_assert(window < 64); // bits of two iterations never meet
    while (size < 2 * key_count_max * window)
        size *= 2;
    *lookahead = (dp_lookahead){.entries = rt_alloc(size, sizeof(dp_use)), .mask = size - 1};
    if (!lookahead->entries)
        return RT_NO_MEMORY;
    return RT_OK;
}

void dp_lookahead_fini(dp_lookahead *lookahead)
{
    rt_free(lookahead->entries);
    *lookahead = (dp_lookahead){0};
}

static uint64_t home(const dp_lookahead *lookahead, uint64_t key)
{
    return rt_mix(key) & lookahead->mask;
}

void dp_lookahead_prefetch(const dp_lookahead *lookahead, uint64_t key)
{
    __builtin_prefetch(&lookahead->entries[home(lookahead, key)], 1);
}

// The entry of key, or the free one where it belongs.
static uint64_t find(const dp_lookahead *lookahead, uint64_t key)
{
    uint64_t at = home(lookahead, key);
    while (lookahead->entries[at].uses && lookahead->entries[at].key != key)
        at = (at + 1) & lookahead->mask;
    return at;
}

bool dp_lookahead_add(dp_lookahead *lookahead, uint64_t key, uint32_t iteration)
{
    dp_use *use = &lookahead->entries[find(lookahead, key)];
    bool is_new = use->uses == 0;
    lookahead->key_count += is_new;
    rt_assert(lookahead->key_count <= lookahead->mask);
    use->key = key;
    use->uses |= rt_bit(iteration % 64);
    return is_new;
}

// Closes the gap at `gap`: entries behind it move up where their home allows it.
static void remove_entry(dp_lookahead *lookahead, uint64_t gap)
{
    dp_use *entries = lookahead->entries;
    lookahead->key_count--;
    for (uint64_t at = (gap + 1) & lookahead->mask; entries[at].uses;
         at = (at + 1) & lookahead->mask) {
        uint64_t from_home = (at - home(lookahead, entries[at].key)) & lookahead->mask;
        if (from_home >= ((at - gap) & lookahead->mask)) {
            entries[gap] = entries[at];
            gap = at;
        }
    }
    entries[gap].uses = 0;
}

uint32_t dp_lookahead_pass(dp_lookahead *lookahead, uint64_t key, uint32_t iteration)
{
    uint64_t at = find(lookahead, key);
    dp_use *use = &lookahead->entries[at];
    if (use->uses == 0)
        return 0;
    use->uses &= ~rt_bit(iteration % 64);
    if (use->uses == 0) {
        remove_entry(lookahead, at);
        return 0;
    }
    // Rotated so that bit 0 is the iteration after this one.
    uint32_t shift = (iteration + 1) % 64;
    uint64_t ahead = use->uses >> shift | use->uses << (-shift & 63);
    return iteration + 1 + rt_lowest_bit(ahead);
}
