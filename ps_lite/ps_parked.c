#include "ps_lite/ps_parked.h"

#include "runtime/rt_hash.h"

#define NONE UINT32_MAX
#define COUNT_MIN 1024u

// Pulls of one key, by version, those of one version in the order of arrival. A hot key has one of
// every worker and iteration ahead, so the list has both ends at hand: later iterations ask later.
typedef struct {
    uint64_t key;
    uint32_t first, last; // nodes
    uint32_t next;        // of the same bucket, or of the free list
} group;

typedef struct {
    ps_parked_pull pull;
    uint32_t next; // of the same group, or of the free list
} node;

// Chains over pools: taking out leaves nothing behind, unlike in an open-addressing table.
struct ps_parked {
    node *nodes;
    group *groups;
    uint32_t *heads;   // one per bucket, groups; a power of two
    uint32_t capacity; // nodes, groups, heads
    uint32_t count;
    uint32_t free_node, free_group;
};

// The link that points to the key's group, or to NONE at the end of its bucket.
static uint32_t *find(const ps_parked *parked, uint64_t key)
{
    uint32_t *link = &parked->heads[rt_mix(key) & (parked->capacity - 1)];
    while (*link != NONE && parked->groups[*link].key != key)
        link = &parked->groups[*link].next;
    return link;
}

static void move_all(const ps_parked *from, ps_parked *to)
{
    for (uint32_t i = 0; i < from->capacity; i++)
        for (uint32_t g = from->heads[i]; g != NONE; g = from->groups[g].next)
            for (uint32_t at = from->groups[g].first; at != NONE; at = from->nodes[at].next)
                ps_parked_add(to, &from->nodes[at].pull);
}

static void release(ps_parked *parked)
{
    rt_free(parked->nodes);
    rt_free(parked->groups);
    rt_free(parked->heads);
}

static rt_status resize(ps_parked *parked, uint32_t capacity)
{
    ps_parked grown = {.capacity = capacity};
    grown.nodes = rt_alloc(capacity, sizeof *grown.nodes);
    grown.groups = rt_alloc(capacity, sizeof *grown.groups);
    grown.heads = rt_alloc(capacity, sizeof *grown.heads);
    if (!grown.nodes || !grown.groups || !grown.heads) {
        release(&grown);
        return RT_NO_MEMORY;
    }
    for (uint32_t i = 0; i < capacity; i++) {
        grown.heads[i] = NONE;
        grown.nodes[i].next = grown.groups[i].next = i + 1 < capacity ? i + 1 : NONE;
    }
    move_all(parked, &grown);
    release(parked);
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
    release(parked);
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

// Behind all of the same or an earlier version.
static void insert(ps_parked *parked, group *g, uint32_t at)
{
    const uint32_t version = parked->nodes[at].pull.version;
    uint32_t *link = &g->first;
    if (parked->nodes[g->last].pull.version <= version)
        link = &parked->nodes[g->last].next;
    while (*link != NONE && parked->nodes[*link].pull.version <= version)
        link = &parked->nodes[*link].next;
    parked->nodes[at].next = *link;
    *link = at;
    if (parked->nodes[at].next == NONE)
        g->last = at;
}

void ps_parked_add(ps_parked *parked, const ps_parked_pull *pull)
{
    rt_assert(parked->count < parked->capacity);
    const uint32_t at = parked->free_node;
    parked->free_node = parked->nodes[at].next;
    parked->nodes[at] = (node){*pull, NONE};
    parked->count++;
    uint32_t *link = find(parked, pull->key);
    if (*link != NONE) {
        insert(parked, &parked->groups[*link], at);
        return;
    }
    const uint32_t g = parked->free_group; // there are as many groups as nodes
    parked->free_group = parked->groups[g].next;
    parked->groups[g] = (group){pull->key, at, at, NONE};
    *link = g;
}

bool ps_parked_take(ps_parked *parked, uint64_t key, uint32_t version, ps_parked_pull *pull)
{
    uint32_t *link = find(parked, key);
    if (*link == NONE)
        return false;
    const uint32_t index = *link;
    group *g = &parked->groups[index];
    const uint32_t at = g->first;
    if (parked->nodes[at].pull.version > version)
        return false;
    *pull = parked->nodes[at].pull;
    g->first = parked->nodes[at].next;
    parked->nodes[at].next = parked->free_node;
    parked->free_node = at;
    parked->count--;
    if (g->first == NONE) {
        *link = g->next;
        g->next = parked->free_group;
        parked->free_group = index;
    }
    return true;
}

uint32_t ps_parked_count(const ps_parked *parked)
{
    return parked->count;
}
