#include "ps_lite/ps_aggregate.h"

#include <string.h>

#include "runtime/rt_hash.h"
#include "runtime/wire/rt_wire.h"

#define NONE UINT32_MAX
#define COUNT_MIN 1024u
#define BLOCK_BITS 10 // gradients per block of memory

typedef struct {
    uint32_t worker;
    uint32_t next; // of the same sum, ascending workers; or of the free list
} gradient;

struct ps_aggregates {
    uint32_t dim;
    uint32_t capacity; // of nodes, buckets and gradients, a power of two
    uint32_t count;
    uint32_t gradient_count;
    uint32_t free_node;
    uint32_t free_gradient;
    ps_aggregate *nodes;
    uint32_t *heads;
    gradient *gradients;
    float **blocks; // capacity >> BLOCK_BITS
};

static uint32_t *bucket(const ps_aggregates *aggregates, uint64_t key)
{
    return &aggregates->heads[rt_mix(key) & (aggregates->capacity - 1)];
}

static float *floats(const ps_aggregates *aggregates, uint32_t at)
{
    const size_t within = at & ((1u << BLOCK_BITS) - 1);
    return aggregates->blocks[at >> BLOCK_BITS] + within * aggregates->dim;
}

static void release(ps_aggregates *aggregates)
{
    rt_free(aggregates->nodes);
    rt_free(aggregates->heads);
    rt_free(aggregates->gradients);
    rt_free(aggregates->blocks);
}

static rt_status add_blocks(ps_aggregates *aggregates, uint32_t from)
{
    const uint32_t to = aggregates->capacity >> BLOCK_BITS;
    for (uint32_t i = from; i < to; i++) {
        aggregates->blocks[i] = rt_alloc((size_t)aggregates->dim << BLOCK_BITS, sizeof(float));
        if (aggregates->blocks[i])
            continue;
        while (i-- > from)
            rt_free(aggregates->blocks[i]);
        return RT_NO_MEMORY;
    }
    return RT_OK;
}

// Node and gradient numbers stay, so only the buckets are made anew.
static void take_over(const ps_aggregates *old, ps_aggregates *grown)
{
    const uint32_t capacity = grown->capacity;
    for (uint32_t i = 0; i < capacity; i++)
        grown->heads[i] = NONE;
    for (uint32_t i = old->capacity; i < capacity; i++) {
        grown->nodes[i].next = i + 1 < capacity ? i + 1 : old->free_node;
        grown->gradients[i].next = i + 1 < capacity ? i + 1 : old->free_gradient;
    }
    grown->free_node = grown->free_gradient = old->capacity;
    if (!old->capacity)
        return;
    memcpy(grown->nodes, old->nodes, old->capacity * sizeof *old->nodes);
    memcpy(grown->gradients, old->gradients, old->capacity * sizeof *old->gradients);
    for (uint32_t i = 0; i < old->capacity; i++) {
        for (uint32_t at = old->heads[i]; at != NONE; at = old->nodes[at].next) {
            uint32_t *head = bucket(grown, old->nodes[at].key);
            grown->nodes[at].next = *head;
            *head = at;
        }
    }
}

static rt_status resize(ps_aggregates *aggregates, uint32_t capacity)
{
    ps_aggregates grown = *aggregates;
    const uint32_t blocks = aggregates->capacity >> BLOCK_BITS;
    grown.capacity = capacity;
    grown.nodes = rt_alloc(capacity, sizeof *grown.nodes);
    grown.heads = rt_alloc(capacity, sizeof *grown.heads);
    grown.gradients = rt_alloc(capacity, sizeof *grown.gradients);
    grown.blocks = rt_alloc(capacity >> BLOCK_BITS, sizeof *grown.blocks);
    if (!grown.nodes || !grown.heads || !grown.gradients || !grown.blocks)
        goto release_arrays;
    if (blocks)
        memcpy(grown.blocks, aggregates->blocks, blocks * sizeof *grown.blocks);
    if (add_blocks(&grown, blocks) != RT_OK)
        goto release_arrays;
    take_over(aggregates, &grown);
    release(aggregates);
    *aggregates = grown;
    return RT_OK;

release_arrays:
    release(&grown);
    return RT_NO_MEMORY;
}

rt_status ps_aggregates_create(uint32_t dim, ps_aggregates **aggregates_p)
{
    ps_aggregates *aggregates = rt_alloc(1, sizeof *aggregates);
    if (!aggregates)
        return RT_NO_MEMORY;
    aggregates->dim = dim;
    aggregates->free_node = aggregates->free_gradient = NONE;
    if (resize(aggregates, COUNT_MIN) != RT_OK) {
        rt_free(aggregates);
        return RT_NO_MEMORY;
    }
    *aggregates_p = aggregates;
    return RT_OK;
}

void ps_aggregates_destroy(ps_aggregates *aggregates)
{
    if (!aggregates)
        return;
    for (uint32_t i = 0; i < aggregates->capacity >> BLOCK_BITS; i++)
        rt_free(aggregates->blocks[i]);
    release(aggregates);
    rt_free(aggregates);
}

rt_status ps_aggregates_reserve(ps_aggregates *aggregates, uint32_t count)
{
    const uint64_t wanted =
        (uint64_t)count + rt_max_u64(aggregates->count, aggregates->gradient_count);
    uint64_t capacity = aggregates->capacity;
    while (capacity < wanted)
        capacity *= 2;
    if (capacity > UINT32_MAX / 2)
        return RT_NO_MEMORY;
    return capacity == aggregates->capacity ? RT_OK : resize(aggregates, (uint32_t)capacity);
}

static ps_aggregate *of_key(ps_aggregates *aggregates, uint32_t at, uint64_t key)
{
    while (at != NONE && aggregates->nodes[at].key != key)
        at = aggregates->nodes[at].next;
    return at == NONE ? NULL : &aggregates->nodes[at];
}

ps_aggregate *ps_aggregates_next(ps_aggregates *aggregates, uint64_t key, const ps_aggregate *after)
{
    return of_key(aggregates, after ? after->next : *bucket(aggregates, key), key);
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
    rt_assert(aggregates->count < aggregates->capacity);
    const uint32_t at = aggregates->free_node;
    uint32_t *head = bucket(aggregates, key);
    ps_aggregate *aggregate = &aggregates->nodes[at];
    aggregates->free_node = aggregate->next;
    *aggregate = (ps_aggregate){.key = key,
                                .iteration = iteration,
                                .keeper = RT_WIRE_NO_KEEPER,
                                .gradients = NONE,
                                .next = *head};
    *head = at;
    aggregates->count++;
    return aggregate;
}

void ps_aggregates_add(ps_aggregates *aggregates, ps_aggregate *aggregate, uint32_t worker,
                       const void *bytes)
{
    rt_assert(aggregates->gradient_count < aggregates->capacity);
    rt_assert(!(aggregate->arrived & rt_bit(worker)));
    const uint32_t at = aggregates->free_gradient;
    aggregates->free_gradient = aggregates->gradients[at].next;
    aggregates->gradient_count++;
    uint32_t *link = &aggregate->gradients;
    while (*link != NONE && aggregates->gradients[*link].worker < worker)
        link = &aggregates->gradients[*link].next;
    aggregates->gradients[at] = (gradient){worker, *link};
    *link = at;
    aggregate->arrived |= rt_bit(worker);
    memcpy(floats(aggregates, at), bytes, aggregates->dim * sizeof(float));
}

void ps_aggregates_sum(const ps_aggregates *aggregates, const ps_aggregate *aggregate, float *sum)
{
    uint32_t at = aggregate->gradients;
    rt_assert(at != NONE);
    memcpy(sum, floats(aggregates, at), aggregates->dim * sizeof(float));
    for (at = aggregates->gradients[at].next; at != NONE; at = aggregates->gradients[at].next) {
        const float *restrict one = floats(aggregates, at);
        for (uint32_t i = 0; i < aggregates->dim; i++)
            sum[i] += one[i];
    }
}

void ps_aggregates_close(ps_aggregates *aggregates, ps_aggregate *aggregate)
{
    const uint32_t at = (uint32_t)(aggregate - aggregates->nodes);
    uint32_t *link = bucket(aggregates, aggregate->key);
    while (*link != at)
        link = &aggregates->nodes[*link].next;
    *link = aggregate->next;
    for (uint32_t one = aggregate->gradients; one != NONE;) {
        const uint32_t next = aggregates->gradients[one].next;
        aggregates->gradients[one].next = aggregates->free_gradient;
        aggregates->free_gradient = one;
        aggregates->gradient_count--;
        one = next;
    }
    aggregate->next = aggregates->free_node;
    aggregates->free_node = at;
    aggregates->count--;
}

uint32_t ps_aggregates_count(const ps_aggregates *aggregates)
{
    return aggregates->count;
}

uint32_t ps_aggregates_gradients(const ps_aggregates *aggregates)
{
    return aggregates->gradient_count;
}
