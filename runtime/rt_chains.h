// rt_chains - items of a fixed size by number (rt_items), and by key: a chained hash table over
// them.
//
// For one thread. A number is an item's for as long as it is taken, whatever else comes and goes;
// addresses change when storage grows. It grows by doubling and stays. A table holds any number
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
    unsigned char *bytes;
    uint32_t *next; // of the free list; of a taken item its owner's, to make lists
    size_t item_bytes;
    uint32_t capacity, count;
    uint32_t free;
} rt_items;

typedef struct {
    rt_items items; // next: of the same bucket
    uint64_t *keys;
    uint32_t *heads; // as many as the items' capacity, a power of two
} rt_chains;

// item_bytes: a multiple of 8. RT_NO_MEMORY; fini is allowed then.
rt_status rt_items_init(rt_items *items, size_t item_bytes);
void rt_items_fini(rt_items *items);

// Room for count more. RT_NO_MEMORY: unchanged.
rt_status rt_items_reserve(rt_items *items, uint32_t count);

// The number of an item of zeros, at the end of a list; after a reserve.
uint32_t rt_items_take(rt_items *items);
void rt_items_give(rt_items *items, uint32_t number);

static inline void *rt_items_at(const rt_items *items, uint32_t number)
{
    return items->bytes + number * items->item_bytes;
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
    return rt_items_at(&chains->items, number);
}

#endif
