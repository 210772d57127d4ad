#include "runtime/rt_chains.h"

#include <string.h>

#include "runtime/rt_hash.h"

#define CAPACITY_MIN 1024u

// ---- items -----------------------------------------------------------------------------------

static rt_status resize_items(rt_items *items, uint32_t capacity)
{
    unsigned char *bytes = rt_alloc(capacity, items->item_bytes);
    uint32_t *next = rt_alloc(capacity, sizeof *next);
    if (!bytes || !next) {
        rt_free(bytes);
        rt_free(next);
        return RT_NO_MEMORY;
    }
    if (items->capacity) {
        memcpy(bytes, items->bytes, items->capacity * items->item_bytes);
        memcpy(next, items->next, items->capacity * sizeof *next);
    }
    for (uint32_t i = items->capacity; i < capacity; i++)
        next[i] = i + 1;
    next[capacity - 1] = items->free;
    items->free = items->capacity;
    rt_free(items->bytes);
    rt_free(items->next);
    items->bytes = bytes;
    items->next = next;
    items->capacity = capacity;
    return RT_OK;
}

rt_status rt_items_init(rt_items *items, size_t item_bytes)
{
    rt_assert(item_bytes % 8 == 0);
    *items = (rt_items){.item_bytes = item_bytes, .free = RT_NO_ITEM};
    return resize_items(items, CAPACITY_MIN);
}

void rt_items_fini(rt_items *items)
{
    rt_free(items->bytes);
    rt_free(items->next);
    *items = (rt_items){0};
}

// The capacity with room for count more; 0: there is none so large.
static uint32_t capacity_for(const rt_items *items, uint32_t count)
{
    const uint64_t wanted = (uint64_t)items->count + count;
    uint64_t capacity = items->capacity;
    while (capacity < wanted)
        capacity *= 2;
    if (capacity > UINT32_MAX / 2)
        return 0;
    return (uint32_t)capacity;
}

rt_status rt_items_reserve(rt_items *items, uint32_t count)
{
    const uint32_t capacity = capacity_for(items, count);
    if (!capacity)
        return RT_NO_MEMORY;
    if (capacity == items->capacity)
        return RT_OK;
    return resize_items(items, capacity);
}

uint32_t rt_items_take(rt_items *items)
{
    rt_assert(items->count < items->capacity);
    const uint32_t number = items->free;
    items->free = items->next[number];
    items->next[number] = RT_NO_ITEM;
    items->count++;
    memset(rt_items_at(items, number), 0, items->item_bytes);
    return number;
}

void rt_items_give(rt_items *items, uint32_t number)
{
    items->next[number] = items->free;
    items->free = number;
    items->count--;
}

// ---- chains ----------------------------------------------------------------------------------

static uint32_t *head_of(const rt_chains *chains, uint64_t key)
{
    return &chains->heads[rt_mix(key) & (chains->items.capacity - 1)];
}

// Buckets for items that have grown in number; the taken items are those of the old buckets.
static void spread(rt_chains *chains, const uint32_t *heads, uint32_t head_count)
{
    for (uint32_t i = 0; i < chains->items.capacity; i++)
        chains->heads[i] = RT_NO_ITEM;
    for (uint32_t i = 0; i < head_count; i++) {
        for (uint32_t at = heads[i], next; at != RT_NO_ITEM; at = next) {
            uint32_t *head = head_of(chains, chains->keys[at]);
            next = chains->items.next[at];
            chains->items.next[at] = *head;
            *head = at;
        }
    }
}

static rt_status resize_chains(rt_chains *chains, uint32_t capacity)
{
    const uint32_t before = chains->heads ? chains->items.capacity : 0;
    uint32_t *heads = rt_alloc(capacity, sizeof *heads), *old = chains->heads;
    uint64_t *keys = rt_alloc(capacity, sizeof *keys);
    if (!heads || !keys ||
        (capacity > chains->items.capacity && resize_items(&chains->items, capacity))) {
        rt_free(heads);
        rt_free(keys);
        return RT_NO_MEMORY;
    }
    if (before)
        memcpy(keys, chains->keys, before * sizeof *keys);
    rt_free(chains->keys);
    chains->keys = keys;
    chains->heads = heads;
    spread(chains, old, before);
    rt_free(old);
    return RT_OK;
}

rt_status rt_chains_init(rt_chains *chains, size_t item_bytes)
{
    *chains = (rt_chains){0};
    rt_status status = rt_items_init(&chains->items, item_bytes);
    if (status)
        return status;
    return resize_chains(chains, chains->items.capacity);
}

void rt_chains_fini(rt_chains *chains)
{
    rt_items_fini(&chains->items);
    rt_free(chains->keys);
    rt_free(chains->heads);
    *chains = (rt_chains){0};
}

rt_status rt_chains_reserve(rt_chains *chains, uint32_t count)
{
    const uint32_t capacity = capacity_for(&chains->items, count);
    if (!capacity)
        return RT_NO_MEMORY;
    if (capacity == chains->items.capacity)
        return RT_OK;
    return resize_chains(chains, capacity);
}

uint32_t rt_chains_add(rt_chains *chains, uint64_t key)
{
    const uint32_t number = rt_items_take(&chains->items);
    uint32_t *head = head_of(chains, key);
    chains->keys[number] = key;
    chains->items.next[number] = *head;
    *head = number;
    return number;
}

void rt_chains_remove(rt_chains *chains, uint32_t number)
{
    uint32_t *link = head_of(chains, chains->keys[number]);
    while (*link != number)
        link = &chains->items.next[*link];
    *link = chains->items.next[number];
    rt_items_give(&chains->items, number);
}

static uint32_t of_key(const rt_chains *chains, uint32_t at, uint64_t key)
{
    while (at != RT_NO_ITEM && chains->keys[at] != key)
        at = chains->items.next[at];
    return at;
}

uint32_t rt_chains_first(const rt_chains *chains, uint64_t key)
{
    return of_key(chains, *head_of(chains, key), key);
}

uint32_t rt_chains_next(const rt_chains *chains, uint32_t number)
{
    return of_key(chains, chains->items.next[number], chains->keys[number]);
}
