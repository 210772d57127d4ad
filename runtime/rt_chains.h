// rt_chains - items of a fixed size by number, and by key: a pool and a chained hash table over
// one.
//
// For one thread. A number is an item's for as long as it is taken, whatever else comes and goes;
// addresses change when a pool grows. Storage grows by doubling and stays. A table holds any number
// of items of one key. Taking one out leaves nothing behind, unlike in an open-addressing table,
// so that tables whose items come and go all the time (ps_parked, ps_aggregate) do not fill up.
//
//     heads[hash of key] --> 5 --next--> 2 --next--> NONE       items of one bucket, newest first
//     free               --> 3 --next--> 7 --next--> NONE
#ifndef RT_CHAINS_H
#define RT_CHAINS_H

#include "runtime/rt_base.h"

#define RT_NO_ITEM UINT32_MAX

typedef struct {
    unsigned char *items;
    uint32_t *next; // of the free list; of a taken item its owner's, to make lists
    size_t item_bytes;
    uint32_t capacity, count;
    uint32_t free;
} rt_pool;

typedef struct {
    rt_pool pool; // next: of the same bucket
    uint64_t *keys;
    uint32_t *heads; // as many as the pool's capacity, a power of two
} rt_chains;

// item_bytes: a multiple of 8. RT_NO_MEMORY; fini is allowed then.
rt_status rt_pool_init(rt_pool *pool, size_t item_bytes);
void rt_pool_fini(rt_pool *pool);

// Room for count more. RT_NO_MEMORY: unchanged.
rt_status rt_pool_reserve(rt_pool *pool, uint32_t count);

// The number of an item of zeros, at the end of a list; after a reserve.
uint32_t rt_pool_take(rt_pool *pool);
void rt_pool_give(rt_pool *pool, uint32_t number);

static inline void *rt_pool_item(const rt_pool *pool, uint32_t number)
{
    return pool->items + number * pool->item_bytes;
}

// As above.
rt_status rt_chains_init(rt_chains *chains, size_t item_bytes);
void rt_chains_fini(rt_chains *chains);
rt_status rt_chains_reserve(rt_chains *chains, uint32_t count);
uint32_t rt_chains_add(rt_chains *chains, uint64_t key);
void rt_chains_remove(rt_chains *chains, uint32_t number);

// The items of a key, the newest first, up to RT_NO_ITEM.
uint32_t rt_chains_first(const rt_chains *chains, uint64_t key);
uint32_t rt_chains_next(const rt_chains *chains, uint32_t number);

static inline void *rt_chains_item(const rt_chains *chains, uint32_t number)
{
    return rt_pool_item(&chains->pool, number);
}

#endif
