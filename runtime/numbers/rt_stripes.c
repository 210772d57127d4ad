#include "runtime/numbers/rt_stripes.h"

#include <string.h>

#include "runtime/numbers/rt_optimizer.h"

bool rt_stripes_keep(const rt_config *config)
{
    return config->dispatch.participants != RT_PARTICIPANTS_ALL;
}

uint32_t rt_stripes_shards(const rt_config *config, uint32_t shard_count)
{
    const bool is_whole = !rt_optimizer_is_elementwise(&config->optimizer_dense);
    if (is_whole && rt_stripes_keep(config))
        return 1;
    return shard_count;
}

uint32_t rt_stripes_part(const rt_stripes *stripes, uint32_t shard)
{
    const uint32_t whole = stripes->count / RT_STRIPE_FLOATS;
    const uint32_t rest = stripes->count % RT_STRIPE_FLOATS;
    if (shard >= stripes->shard_count)
        return 0;
    const uint32_t own = whole / stripes->shard_count + (shard < whole % stripes->shard_count);
    const bool has_rest = shard == whole % stripes->shard_count;
    return own * RT_STRIPE_FLOATS + has_rest * rest;
}

uint32_t rt_stripes_place(const rt_stripes *stripes, uint32_t shard, uint32_t at)
{
    const uint32_t stripe = at / RT_STRIPE_FLOATS * stripes->shard_count + shard;
    return stripe * RT_STRIPE_FLOATS + at % RT_STRIPE_FLOATS;
}

uint32_t rt_stripes_owner(const rt_stripes *stripes, uint32_t place, uint32_t *at_p)
{
    const uint32_t stripe = place / RT_STRIPE_FLOATS;
    *at_p = stripe / stripes->shard_count * RT_STRIPE_FLOATS + place % RT_STRIPE_FLOATS;
    return stripe % stripes->shard_count;
}

uint32_t rt_stripes_run(const rt_stripes *stripes, uint32_t at, uint32_t most)
{
    if (stripes->shard_count == 1)
        return most;
    return (uint32_t)rt_min_u64(RT_STRIPE_FLOATS - at % RT_STRIPE_FLOATS, most);
}

void rt_stripes_gather(const rt_stripes *stripes, uint32_t shard, uint32_t first, uint32_t count,
                       const float *vector, float *part)
{
    for (uint32_t done = 0, run; done < count; done += run) {
        run = rt_stripes_run(stripes, first + done, count - done);
        memcpy(part + done, vector + rt_stripes_place(stripes, shard, first + done),
               run * sizeof *part);
    }
}

void rt_stripes_scatter(const rt_stripes *stripes, uint32_t shard, uint32_t first, uint32_t count,
                        const float *part, float *vector)
{
    for (uint32_t done = 0, run; done < count; done += run) {
        run = rt_stripes_run(stripes, first + done, count - done);
        memcpy(vector + rt_stripes_place(stripes, shard, first + done), part + done,
               run * sizeof *part);
    }
}
