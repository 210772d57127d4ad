#include "runtime/rt_hash.h"

#include <xxhash.h>

uint64_t rt_hash_bytes(const void *bytes, size_t size)
{
    return XXH3_64bits(bytes, size);
}

rt_hasher *rt_hasher_create(void)
{
    XXH3_state_t *state = XXH3_createState();
    if (state)
        (void)XXH3_64bits_reset(state);
    return (rt_hasher *)(void *)state;
}

void rt_hasher_destroy(rt_hasher *hasher)
{
    (void)XXH3_freeState((XXH3_state_t *)(void *)hasher);
}

void rt_hasher_add(rt_hasher *hasher, const void *bytes, size_t size)
{
    (void)XXH3_64bits_update((XXH3_state_t *)(void *)hasher, bytes, size);
}

uint64_t rt_hasher_sum(const rt_hasher *hasher)
{
    return XXH3_64bits_digest((const XXH3_state_t *)(const void *)hasher);
}
