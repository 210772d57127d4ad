#include "runtime/rt_chains.h"

#include <string.h>

#include "runtime/rt_hash.h"

#define CAPACITY_MIN 1024u

// ---- pool ------------------------------------------------------------------------------------

static rt_status resize_pool(rt_pool *pool, uint32_t capacity)
{
    unsigned char *items = rt_alloc(capacity, pool->item_bytes);
    uint32_t *next = rt_alloc(capacity, sizeof *next);
    if (!items || !next) {
        rt_free(items);
        rt_free(next);
        return RT_NO_MEMORY;
    }
    if (pool->capacity) {
        memcpy(items, pool->items, pool->capacity * pool->item_bytes);
        memcpy(next, pool->next, pool->capacity * sizeof *next);
    }
    for (uint32_t i = pool->capacity; i < capacity; i++)
        next[i] = i + 1 < capacity ? i + 1 : pool->free;
    pool->free = pool->capacity;
    rt_free(pool->items);
    rt_free(pool->next);
    pool->items = items;
    pool->next = next;
    pool->capacity = capacity;
    return RT_OK;
}

rt_status rt_pool_init(rt_pool *pool, size_t item_bytes)
{
    rt_assert(item_bytes % 8 == 0);
    *pool = (rt_pool){.item_bytes = item_bytes, .free = RT_NO_ITEM};
    return resize_pool(pool, CAPACITY_MIN);
}

void rt_pool_fini(rt_pool *pool)
{
    rt_free(pool->items);
    rt_free(pool->next);
    *pool = (rt_pool){0};
}

// The capacity with room for count more; 0: there is none so large.
static uint32_t capacity_for(const rt_pool *pool, uint32_t count)
{
    const uint64_t wanted = (uint64_t)pool->count + count;
    uint64_t capacity = pool->capacity;
    while (capacity < wanted)
        capacity *= 2;
    return capacity > UINT32_MAX / 2 ? 0 : (uint32_t)capacity;
}

rt_status rt_pool_reserve(rt_pool *pool, uint32_t count)
{
    const uint32_t capacity = capacity_for(pool, count);
    if (!capacity)
        return RT_NO_MEMORY;
    return capacity == pool->capacity ? RT_OK : resize_pool(pool, capacity);
}

uint32_t rt_pool_take(rt_pool *pool)
{
    rt_assert(pool->count < pool->capacity);
    const uint32_t number = pool->free;
    pool->free = pool->next[number];
    pool->next[number] = RT_NO_ITEM;
    pool->count++;
    memset(rt_pool_item(pool, number), 0, pool->item_bytes);
    return number;
}

void rt_pool_give(rt_pool *pool, uint32_t number)
{
    pool->next[number] = pool->free;
    pool->free = number;
    pool->count--;
}

// ---- chains ----------------------------------------------------------------------------------

static uint32_t *head_of(const rt_chains *chains, uint64_t key)
{
    return &chains->heads[rt_mix(key) & (chains->pool.capacity - 1)];
}

// Arrays for a pool that has grown; the taken items are those of the old buckets.
static void spread(rt_chains *chains, const uint32_t *heads, uint32_t head_count)
{
    for (uint32_t i = 0; i < chains->pool.capacity; i++)
        chains->heads[i] = RT_NO_ITEM;
    for (uint32_t i = 0; i < head_count; i++) {
        for (uint32_t at = heads[i], next; at != RT_NO_ITEM; at = next) {
            uint32_t *head = head_of(chains, chains->keys[at]);
            next = chains->pool.next[at];
            chains->pool.next[at] = *head;
            *head = at;
        }
    }
}

static rt_status resize_chains(rt_chains *chains, uint32_t capacity)
{
    const uint32_t before = chains->heads ? chains->pool.capacity : 0;
    uint32_t *heads = rt_alloc(capacity, sizeof *heads), *old = chains->heads;
    uint64_t *keys = rt_alloc(capacity, sizeof *keys);
    if (!heads || !keys ||
        (capacity > chains->pool.capacity && resize_pool(&chains->pool, capacity))) {
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
    rt_status status = rt_pool_init(&chains->pool, item_bytes);
    return status ? status : resize_chains(chains, chains->pool.capacity);
}

void rt_chains_fini(rt_chains *chains)
{
    rt_pool_fini(&chains->pool);
    rt_free(chains->keys);
    rt_free(chains->heads);
    *chains = (rt_chains){0};
}

rt_status rt_chains_reserve(rt_chains *chains, uint32_t count)
{
    const uint32_t capacity = capacity_for(&chains->pool, count);
    if (!capacity)
        return RT_NO_MEMORY;
    return capacity == chains->pool.capacity ? RT_OK : resize_chains(chains, capacity);
}

uint32_t rt_chains_add(rt_chains *chains, uint64_t key)
{
    const uint32_t number = rt_pool_take(&chains->pool);
    uint32_t *head = head_of(chains, key);
    chains->keys[number] = key;
    chains->pool.next[number] = *head;
    *head = number;
    return number;
}

void rt_chains_remove(rt_chains *chains, uint32_t number)
{
    uint32_t *link = head_of(chains, chains->keys[number]);
    while (*link != number)
        link = &chains->pool.next[*link];
    *link = chains->pool.next[number];
    rt_pool_give(&chains->pool, number);
}

static uint32_t of_key(const rt_chains *chains, uint32_t at, uint64_t key)
{
    while (at != RT_NO_ITEM && chains->keys[at] != key)
        at = chains->pool.next[at];
    return at;
}

uint32_t rt_chains_first(const rt_chains *chains, uint64_t key)
{
    return of_key(chains, *head_of(chains, key), key);
}

uint32_t rt_chains_next(const rt_chains *chains, uint32_t number)
{
    return of_key(chains, chains->pool.next[number], chains->keys[number]);
}
