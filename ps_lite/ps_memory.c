#include "ps_lite/ps_memory.h"

#include <string.h>

#include "runtime/rt_memory.h"

#define SHARES 3u // of ps_memory_share, beside the rows

uint64_t ps_memory_share(const rt_config *config)
{
    return config->ps_memory_bytes_max / 4;
}

static size_t length_of_host(const char *address)
{
    const char *port = strrchr(address, ':');
    return port ? (size_t)(port - address) : strlen(address);
}

static bool share_box(const rt_config *config, uint32_t a, uint32_t b)
{
    if (config->box_count)
        return rt_config_box_of_shard(config, a) == rt_config_box_of_shard(config, b);
    if (config->network_ps_count == 0) // under `lanyard up`
        return true;
    const char *one = config->network_ps[a], *other = config->network_ps[b];
    const size_t length = length_of_host(one);
    return length == length_of_host(other) && memcmp(one, other, length) == 0;
}

uint64_t ps_memory_held_max(const rt_config *config, uint32_t rank)
{
    uint32_t here = 0;
    if (config->ps_storage != RT_STORAGE_DISK)
        return 0;
    for (uint32_t s = 0; s < config->ps_shard_count; s++)
        here += share_box(config, rank, s);
    const uint64_t memory = rt_memory_limit();
    if (!memory || !here)
        return ps_memory_share(config);
    return rt_min_u64(ps_memory_share(config), memory / 8 / here);
}

uint64_t ps_memory_max(const rt_config *config, uint32_t rank)
{
    return config->ps_memory_bytes_max + SHARES * ps_memory_share(config) +
           ps_memory_held_max(config, rank);
}
