#include "ps_lite/ps_parked.h"

#include "runtime/rt_hash.h"

#define NONE UINT32_MAX
#define COUNT_MIN 1024u

typedef struct {
    ps_parked_pull pull;
    uint32_t next; // of the same bucket, or of the free list
} node;

// Chains over a pool: taking out leaves nothing behind, unlike in an open-addressing table.
struct ps_parked {
    node *nodes;
    uint32_t *heads; // one per bucket; as many buckets as nodes, a power of two
    uint32_t capacity;
    uint32_t count;
    uint32_t free;
};

static uint32_t *bucket(const ps_parked *parked, uint64_t key)
{
    return &parked->heads[rt_mix(key) & (parked->capacity - 1)];
}

static void append(ps_parked *parked, uint32_t at)
{
    uint32_t *link = bucket(parked, parked->nodes[at].pull.key);
    while (*link != NONE)
        link = &parked->nodes[*link].next;
    *link = at;
    parked->nodes[at].next = NONE;
}

// Moves every waiting pull into the new pool; bucket by bucket, so that a key's order stays.
static void move_all(const ps_parked *from, ps_parked *to)
{
    for (uint32_t i = 0; i < from->capacity; i++)
        for (uint32_t at = from->heads[i]; at != NONE; at = from->nodes[at].next)
            ps_parked_add(to, &from->nodes[at].pull);
}

static rt_status resize(ps_parked *parked, uint32_t capacity)
{
    ps_parked grown = {.capacity = capacity};
    grown.nodes = rt_alloc(capacity, sizeof *grown.nodes);
    grown.heads = rt_alloc(capacity, sizeof *grown.heads);
    if (!grown.nodes || !grown.heads) {
        rt_free(grown.nodes);
        rt_free(grown.heads);
        return RT_NO_MEMORY;
    }
    for (uint32_t i = 0; i < capacity; i++) {
        grown.heads[i] = NONE;
        grown.nodes[i].next = i + 1 < capacity ? i + 1 : NONE;
    }
    move_all(parked, &grown);
    rt_free(parked->nodes);
    rt_free(parked->heads);
    *parked = grown;
    return RT_OK;
}

rt_status ps_parked_create(ps_parked **parked_p)
{
    ps_parked *parked = rt_alloc(1, sizeof *parked);
    if (!parked || resize(parked, COUNT_MIN) != RT_OK) {
        rt_free(parked);
        return RT_NO_MEMORY;
    }
    *parked_p = parked;
    return RT_OK;
}

void ps_parked_destroy(ps_parked *parked)
{
    if (!parked)
        return;
    rt_free(parked->nodes);
    rt_free(parked->heads);
    rt_free(parked);
}

rt_status ps_parked_reserve(ps_parked *parked, uint32_t count)
{
    const uint64_t wanted = (uint64_t)parked->count + count;
    uint64_t capacity = parked->capacity;
    while (capacity < wanted)
        capacity *= 2;
    if (capacity > UINT32_MAX / 2)
        return RT_NO_MEMORY;
    return capacity == parked->capacity ? RT_OK : resize(parked, (uint32_t)capacity);
}

void ps_parked_add(ps_parked *parked, const ps_parked_pull *pull)
{
    rt_assert(parked->count < parked->capacity);
    const uint32_t at = parked->free;
    parked->free = parked->nodes[at].next;
    parked->nodes[at].pull = *pull;
    parked->count++;
    append(parked, at);
}

bool ps_parked_take(ps_parked *parked, uint64_t key, uint32_t version, ps_parked_pull *pull)
{
    for (uint32_t *link = bucket(parked, key); *link != NONE; link = &parked->nodes[*link].next) {
        const uint32_t at = *link;
        node *found = &parked->nodes[at];
        if (found->pull.key != key || found->pull.version > version)
            continue;
        *pull = found->pull;
        *link = found->next;
        found->next = parked->free;
        parked->free = at;
        parked->count--;
        return true;
    }
    return false;
}

uint32_t ps_parked_count(const ps_parked *parked)
{
    return parked->count;
}
