#include "dispatch/cache/dp_lookahead.h"

#include "runtime/rt_hash.h"

#define ENTRIES_FIRST 1024u

static dp_use *create_entries(uint64_t count)
{
    dp_use *entries = rt_alloc_unset(count, sizeof *entries);
    for (uint64_t i = 0; entries && i < count; i++)
        entries[i] = (dp_use){.first = DP_NO_USE};
    return entries;
}

rt_status dp_lookahead_init(dp_lookahead *lookahead)
{
    *lookahead = (dp_lookahead){
        .entries = create_entries(ENTRIES_FIRST), .mask = ENTRIES_FIRST - 1, .free_use = DP_NO_USE};
    if (!lookahead->entries)
        return RT_NO_MEMORY;
    return RT_OK;
}

void dp_lookahead_fini(dp_lookahead *lookahead)
{
    rt_free(lookahead->entries);
    rt_free(lookahead->uses);
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
    while (lookahead->entries[at].first != DP_NO_USE && lookahead->entries[at].key != key)
        at = (at + 1) & lookahead->mask;
    return at;
}

static rt_status grow_entries(dp_lookahead *lookahead, uint64_t key_count)
{
    dp_use *old = lookahead->entries;
    const uint64_t old_count = lookahead->mask + 1;
    uint64_t count = old_count;
    while (count < 2 * key_count)
        count *= 2;
    if (count == old_count)
        return RT_OK;
    dp_use *entries = create_entries(count);
    if (!entries)
        return RT_NO_MEMORY;
    lookahead->entries = entries;
    lookahead->mask = count - 1;
    for (uint64_t i = 0; i < old_count; i++) {
        if (old[i].first != DP_NO_USE)
            entries[find(lookahead, old[i].key)] = old[i];
    }
    rt_free(old);
    return RT_OK;
}

rt_status dp_lookahead_reserve(dp_lookahead *lookahead, uint32_t key_count)
{
    // as if no use were free, which those that passed are
    if (rt_grow(&lookahead->uses, &lookahead->use_capacity,
                (uint64_t)lookahead->use_top + key_count, sizeof *lookahead->uses))
        return RT_NO_MEMORY;
    return grow_entries(lookahead, lookahead->key_count + key_count);
}

static uint32_t take_use(dp_lookahead *lookahead, uint32_t iteration)
{
    uint32_t use = lookahead->free_use;
    if (use != DP_NO_USE) {
        lookahead->free_use = lookahead->uses[use].next;
    } else {
        rt_assert(lookahead->use_top < lookahead->use_capacity); // dp_lookahead_reserve
        use = lookahead->use_top++;
    }
    lookahead->uses[use] = (dp_use_at){iteration, DP_NO_USE};
    return use;
}

bool dp_lookahead_add(dp_lookahead *lookahead, uint64_t key, uint32_t iteration)
{
    dp_use *entry = &lookahead->entries[find(lookahead, key)];
    const bool is_new = entry->first == DP_NO_USE;
    if (!is_new && lookahead->uses[entry->last].iteration == iteration)
        return false;
    const uint32_t use = take_use(lookahead, iteration);
    if (is_new) {
        rt_assert(++lookahead->key_count <= lookahead->mask);
        *entry = (dp_use){key, use, use};
        return true;
    }
    lookahead->uses[entry->last].next = use;
    entry->last = use;
    return false;
}

// Closes the gap at `gap`: entries behind it move up where their home allows it.
static void remove_entry(dp_lookahead *lookahead, uint64_t gap)
{
    dp_use *entries = lookahead->entries;
    lookahead->key_count--;
    for (uint64_t at = (gap + 1) & lookahead->mask; entries[at].first != DP_NO_USE;
         at = (at + 1) & lookahead->mask) {
        uint64_t from_home = (at - home(lookahead, entries[at].key)) & lookahead->mask;
        if (from_home >= ((at - gap) & lookahead->mask)) {
            entries[gap] = entries[at];
            gap = at;
        }
    }
    entries[gap].first = DP_NO_USE;
}

uint32_t dp_lookahead_pass(dp_lookahead *lookahead, uint64_t key, uint32_t iteration)
{
    const uint64_t at = find(lookahead, key);
    dp_use *entry = &lookahead->entries[at];
    if (entry->first == DP_NO_USE)
        return 0;
    const uint32_t use = entry->first;
    dp_use_at *first = &lookahead->uses[use];
    if (first->iteration > iteration)
        return first->iteration;
    const uint32_t next = first->next;
    first->next = lookahead->free_use;
    lookahead->free_use = use;
    if (next == DP_NO_USE) {
        remove_entry(lookahead, at);
        return 0;
    }
    entry->first = next;
    return lookahead->uses[next].iteration;
}

uint64_t dp_lookahead_bytes(const dp_lookahead *lookahead)
{
    return (lookahead->mask + 1) * sizeof *lookahead->entries +
           lookahead->use_capacity * (uint64_t)sizeof *lookahead->uses;
}
