#include "ps_lite/ps_shard_parts.h"

#include "runtime/rt_chains.h"

// Pulls of one key, by version, those of one version in the order of arrival. A hot key has one of
// every worker and iteration ahead, so the list has both ends at hand: later iterations ask later.
typedef struct {
    uint32_t first, last; // pulls
} group;

struct ps_parked {
    rt_chains groups; // by key
    rt_items pulls;   // next: of the same group
};

static ps_parked_pull *pull_at(const ps_parked *parked, uint32_t number)
{
    return rt_items_at(&parked->pulls, number);
}

rt_status ps_parked_create(ps_parked **parked_p)
{
    ps_parked *parked = rt_alloc(1, sizeof *parked);
    if (!parked)
        return RT_NO_MEMORY;
    if (rt_chains_init(&parked->groups, sizeof(group)) ||
        rt_items_init(&parked->pulls, sizeof(ps_parked_pull))) {
        ps_parked_destroy(parked);
        return RT_NO_MEMORY;
    }
    *parked_p = parked;
    return RT_OK;
}

void ps_parked_destroy(ps_parked *parked)
{
    if (!parked)
        return;
    rt_chains_fini(&parked->groups);
    rt_items_fini(&parked->pulls);
    rt_free(parked);
}

rt_status ps_parked_reserve(ps_parked *parked, uint32_t count)
{
    const rt_status status = rt_chains_reserve(&parked->groups, count);
    if (status)
        return status;
    return rt_items_reserve(&parked->pulls, count);
}

// Behind all of the same or an earlier version.
static void insert(ps_parked *parked, group *g, uint32_t at)
{
    const uint32_t version = pull_at(parked, at)->version;
    uint32_t *next = parked->pulls.next, *link = &g->first;
    if (pull_at(parked, g->last)->version <= version)
        link = &next[g->last];
    while (*link != RT_NO_ITEM && pull_at(parked, *link)->version <= version)
        link = &next[*link];
    next[at] = *link;
    *link = at;
    if (next[at] == RT_NO_ITEM)
        g->last = at;
}

void ps_parked_add(ps_parked *parked, const ps_parked_pull *pull)
{
    const uint32_t at = rt_items_take(&parked->pulls);
    uint32_t number = rt_chains_first(&parked->groups, pull->key);
    *pull_at(parked, at) = *pull;
    if (number != RT_NO_ITEM) {
        insert(parked, rt_chains_item(&parked->groups, number), at);
        return;
    }
    number = rt_chains_add(&parked->groups, pull->key);
    *(group *)rt_chains_item(&parked->groups, number) = (group){at, at};
}

bool ps_parked_take(ps_parked *parked, uint64_t key, uint32_t version, ps_parked_pull *pull)
{
    const uint32_t number = rt_chains_first(&parked->groups, key);
    if (number == RT_NO_ITEM)
        return false;
    group *g = rt_chains_item(&parked->groups, number);
    const uint32_t at = g->first;
    if (pull_at(parked, at)->version > version)
        return false;
    *pull = *pull_at(parked, at);
    g->first = parked->pulls.next[at];
    rt_items_give(&parked->pulls, at);
    if (g->first == RT_NO_ITEM)
        rt_chains_remove(&parked->groups, number);
    return true;
}

uint32_t ps_parked_count(const ps_parked *parked)
{
    return parked->pulls.count;
}
