#include "ps_lite/ps_shard_parts.h"

#include <string.h>

#include "runtime/rt_chains.h"
#include "runtime/wire/rt_wire.h"

#define BLOCK_BITS 10 // gradients per block of memory

typedef struct {
    uint64_t worker;
} gradient;

// Floats are not in the pool of gradients, so that they stay where they are when it grows.
struct ps_aggregates {
    uint32_t dim;
    rt_chains sums;     // ps_aggregate, by key
    rt_items gradients; // next: of the same sum, ascending workers
    uint32_t block_count;
    uint32_t block_capacity;
    float **blocks; // of the gradients in order of their numbers
};

static gradient *gradient_at(const ps_aggregates *aggregates, uint32_t number)
{
    return rt_items_at(&aggregates->gradients, number);
}

static float *floats(const ps_aggregates *aggregates, uint32_t at)
{
    const size_t within = at & ((1u << BLOCK_BITS) - 1);
    return aggregates->blocks[at >> BLOCK_BITS] + within * aggregates->dim;
}

// Memory for as many gradients as the pool has room for.
static rt_status add_blocks(ps_aggregates *aggregates)
{
    const uint32_t wanted = (aggregates->gradients.capacity - 1) / (1u << BLOCK_BITS) + 1;
    if (rt_grow(&aggregates->blocks, &aggregates->block_capacity, wanted,
                sizeof *aggregates->blocks))
        return RT_NO_MEMORY;
    while (aggregates->block_count < wanted) {
        float *block = rt_alloc((size_t)aggregates->dim << BLOCK_BITS, sizeof(float));
        if (!block)
            return RT_NO_MEMORY;
        aggregates->blocks[aggregates->block_count++] = block;
    }
    return RT_OK;
}

rt_status ps_aggregates_create(uint32_t dim, ps_aggregates **aggregates_p)
{
    ps_aggregates *aggregates = rt_alloc(1, sizeof *aggregates);
    if (!aggregates)
        return RT_NO_MEMORY;
    aggregates->dim = dim;
    if (rt_chains_init(&aggregates->sums, sizeof(ps_aggregate)) ||
        rt_items_init(&aggregates->gradients, sizeof(gradient)) || add_blocks(aggregates)) {
        ps_aggregates_destroy(aggregates);
        return RT_NO_MEMORY;
    }
    *aggregates_p = aggregates;
    return RT_OK;
}

void ps_aggregates_destroy(ps_aggregates *aggregates)
{
    if (!aggregates)
        return;
    for (uint32_t i = 0; i < aggregates->block_count; i++)
        rt_free(aggregates->blocks[i]);
    rt_free(aggregates->blocks);
    rt_chains_fini(&aggregates->sums);
    rt_items_fini(&aggregates->gradients);
    rt_free(aggregates);
}

rt_status ps_aggregates_reserve(ps_aggregates *aggregates, uint32_t count)
{
    if (rt_chains_reserve(&aggregates->sums, count) ||
        rt_items_reserve(&aggregates->gradients, count))
        return RT_NO_MEMORY;
    return add_blocks(aggregates);
}

static ps_aggregate *sum_at(const ps_aggregates *aggregates, uint32_t number)
{
    if (number == RT_NO_ITEM)
        return NULL;
    return rt_chains_item(&aggregates->sums, number);
}

static uint32_t number_of(const ps_aggregates *aggregates, const ps_aggregate *aggregate)
{
    return (uint32_t)(aggregate - (const ps_aggregate *)rt_chains_item(&aggregates->sums, 0));
}

ps_aggregate *ps_aggregates_next(ps_aggregates *aggregates, uint64_t key, const ps_aggregate *after)
{
    uint32_t number;
    if (after)
        number = rt_chains_next(&aggregates->sums, number_of(aggregates, after));
    else
        number = rt_chains_first(&aggregates->sums, key);
    return sum_at(aggregates, number);
}

ps_aggregate *ps_aggregates_find(ps_aggregates *aggregates, uint64_t key, uint32_t iteration)
{
    ps_aggregate *aggregate = NULL;
    while ((aggregate = ps_aggregates_next(aggregates, key, aggregate)))
        if (aggregate->iteration == iteration)
            break;
    return aggregate;
}

ps_aggregate *ps_aggregates_open(ps_aggregates *aggregates, uint64_t key, uint32_t iteration)
{
    ps_aggregate *aggregate = sum_at(aggregates, rt_chains_add(&aggregates->sums, key));
    *aggregate = (ps_aggregate){.key = key, .iteration = iteration, .gradients = RT_NO_ITEM};
    return aggregate;
}

void ps_aggregates_add(ps_aggregates *aggregates, ps_aggregate *aggregate, uint32_t worker,
                       const void *bytes)
{
    rt_assert(!(aggregate->arrived & rt_bit(worker)));
    const uint32_t at = rt_items_take(&aggregates->gradients);
    uint32_t *next = aggregates->gradients.next, *link = &aggregate->gradients;
    while (*link != RT_NO_ITEM && gradient_at(aggregates, *link)->worker < worker)
        link = &next[*link];
    gradient_at(aggregates, at)->worker = worker;
    next[at] = *link;
    *link = at;
    aggregate->arrived |= rt_bit(worker);
    memcpy(floats(aggregates, at), bytes, aggregates->dim * sizeof(float));
}

void ps_aggregates_sum(const ps_aggregates *aggregates, const ps_aggregate *aggregate, float *sum)
{
    const uint32_t *next = aggregates->gradients.next;
    uint32_t at = aggregate->gradients;
    rt_assert(at != RT_NO_ITEM);
    memcpy(sum, floats(aggregates, at), aggregates->dim * sizeof(float));
    for (at = next[at]; at != RT_NO_ITEM; at = next[at]) {
        const float *restrict one = floats(aggregates, at);
        for (uint32_t i = 0; i < aggregates->dim; i++)
            sum[i] += one[i];
    }
}

void ps_aggregates_close(ps_aggregates *aggregates, ps_aggregate *aggregate)
{
    for (uint32_t at = aggregate->gradients; at != RT_NO_ITEM;) {
        const uint32_t next = aggregates->gradients.next[at];
        rt_items_give(&aggregates->gradients, at);
        at = next;
    }
    rt_chains_remove(&aggregates->sums, number_of(aggregates, aggregate));
}

uint32_t ps_aggregates_count(const ps_aggregates *aggregates)
{
    return aggregates->sums.items.count;
}

uint32_t ps_aggregates_gradients(const ps_aggregates *aggregates)
{
    return aggregates->gradients.count;
}
