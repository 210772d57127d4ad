#include "runtime/stream/rt_keyset.h"

#include "runtime/rt_hash.h"

#define SLOTS_MIN (UINT64_C(1) << 10)
#define PREFETCH 16u // keys ahead: enough to hide a miss to memory

rt_status rt_keyset_init(rt_keyset *set)
{
    *set = (rt_keyset){.slots = rt_alloc(SLOTS_MIN, sizeof *set->slots), .slot_count = SLOTS_MIN};
    if (!set->slots)
        return RT_NO_MEMORY;
    return RT_OK;
}

void rt_keyset_fini(rt_keyset *set)
{
    rt_free(set->slots);
    *set = (rt_keyset){0};
}

static void insert(uint64_t *slots, uint64_t slot_count, uint64_t key, uint64_t *used)
{
    uint64_t slot = rt_mix(key) & (slot_count - 1);
    while (slots[slot] != 0 && slots[slot] != key)
        slot = (slot + 1) & (slot_count - 1);
    *used += slots[slot] == 0;
    slots[slot] = key;
}

static rt_status grow(rt_keyset *set)
{
    uint64_t slot_count = set->slot_count * 2, used = 0;
    uint64_t *slots = rt_alloc(slot_count, sizeof *slots);
    if (!slots)
        return RT_NO_MEMORY;
    for (uint64_t i = 0; i < set->slot_count; i++) {
        if (set->slots[i] != 0)
            insert(slots, slot_count, set->slots[i], &used);
    }
    rt_assert(used == set->used);
    rt_free(set->slots);
    set->slots = slots;
    set->slot_count = slot_count;
    return RT_OK;
}

rt_status rt_keyset_add(rt_keyset *set, const uint64_t *keys, uint32_t key_count)
{
    for (uint32_t i = 0; i < key_count; i++) {
        if (i + PREFETCH < key_count)
            __builtin_prefetch(&set->slots[rt_mix(keys[i + PREFETCH]) & (set->slot_count - 1)]);
        if (keys[i] == 0) {
            set->has_zero = true;
            continue;
        }
        if (set->used * 2 >= set->slot_count && grow(set))
            return RT_NO_MEMORY;
        insert(set->slots, set->slot_count, keys[i], &set->used);
    }
    return RT_OK;
}

bool rt_keyset_has(const rt_keyset *set, uint64_t key)
{
    uint64_t slot = rt_mix(key) & (set->slot_count - 1);
    if (key == 0)
        return set->has_zero;
    while (set->slots[slot] != 0 && set->slots[slot] != key)
        slot = (slot + 1) & (set->slot_count - 1);
    return set->slots[slot] != 0;
}

uint64_t rt_keyset_count(const rt_keyset *set)
{
    return set->used + set->has_zero;
}
