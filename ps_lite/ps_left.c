#include "ps_lite/ps_shard_parts.h"

#include <stdlib.h>

void ps_left_fini(ps_left *left)
{
    rt_free(left->keys);
    *left = (ps_left){0};
}

rt_status ps_left_add(ps_left *left, uint64_t key)
{
    rt_status status =
        rt_grow(&left->keys, &left->capacity, (uint64_t)left->count + 1, sizeof *left->keys);
    if (!status)
        left->keys[left->count++] = (ps_left_key){key, left->cut, 0};
    return status;
}

void ps_left_cut(ps_left *left, uint32_t iteration, uint32_t base)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < left->count; i++)
        if (left->keys[i].cut >= base)
            left->keys[kept++] = left->keys[i];
    left->count = kept;
    left->cut = iteration;
}

static int compare(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

rt_status ps_left_since(const ps_left *left, const ps_table *table, uint32_t base,
                        uint64_t **keys_p, uint32_t *count_p)
{
    uint64_t *keys = rt_alloc(left->count + 1u, sizeof *keys);
    uint32_t count = 0, different = 0;
    if (!keys)
        return RT_NO_MEMORY;
    for (uint32_t i = 0; i < left->count; i++)
        if (left->keys[i].cut >= base && !ps_table_find(table, left->keys[i].key))
            keys[count++] = left->keys[i].key;
    qsort(keys, count, sizeof *keys, compare);
    for (uint32_t i = 0; i < count; i++)
        if (i == 0 || keys[i] != keys[i - 1])
            keys[different++] = keys[i];
    *keys_p = keys;
    *count_p = different;
    return RT_OK;
}
