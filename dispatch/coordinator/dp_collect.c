#include "dispatch/coordinator/dp_collect.h"

#include <string.h>

static rt_parcel_in *find(dp_collect *collect, uint32_t peer)
{
    const uint32_t rank = rt_peer_rank(peer);
    if (rt_peer_role(peer) == RT_ROLE_PS && rank < RT_SHARDS_MAX)
        return &collect->shards[rank];
    if (rt_peer_role(peer) == RT_ROLE_WORKER && rank == collect->giver)
        return &collect->worker;
    return NULL;
}

void dp_collect_fini(dp_collect *collect)
{
    rt_parcel_drop(&collect->worker);
    for (uint32_t s = 0; s < RT_SHARDS_MAX; s++)
        rt_parcel_drop(&collect->shards[s]);
}

rt_status dp_collect_expect(dp_collect *collect, uint32_t peer, uint64_t iteration,
                            const char *path, rt_error *error)
{
    rt_parcel_in *in = find(collect, peer);
    rt_assert(in);
    rt_parcel_drop(in);
    uint32_t file = 0;
    if (rt_peer_role(peer) == RT_ROLE_PS)
        file = rt_peer_rank(peer);
    return rt_parcel_expect(in, peer, iteration, file, path, collect->wake_fd, error);
}

void dp_collect_drop(dp_collect *collect, uint32_t peer)
{
    rt_parcel_drop(find(collect, peer));
}

const rt_parcel_in *dp_collect_of(const dp_collect *collect, uint32_t peer)
{
    const rt_parcel_in *in = find((dp_collect *)(uintptr_t)collect, peer);
    rt_assert(in);
    return in;
}

rt_status dp_collect_take(dp_collect *collect, uint32_t peer, const rt_message *message,
                          rt_error *error)
{
    char name[32];
    rt_parcel_in *in = find(collect, peer);
    const uint64_t iteration = rt_message_header(message)->iteration;
    if (in && !in->behind && iteration != 0 && iteration <= in->iteration)
        return RT_OK; // what was under way when it was dropped
    if (!in || !in->behind)
        return rt_fail(error, RT_WIRE, "%s: a PIECE of a file that nobody waits for",
                       rt_peer_name(peer, name));
    if (iteration < in->iteration)
        return RT_OK;
    return rt_parcel_take(in, message, error);
}

static rt_status answer(dp_collect *collect, uint32_t peer, rt_error *error)
{
    rt_message message = {0};
    rt_status status = rt_parcel_look(find(collect, peer), collect->sender, &message);
    if (status == RT_AGAIN)
        return RT_OK;
    if (status)
        return rt_fail(error, status, "out of memory");
    return dp_roster_send(collect->roster, peer, &message, error);
}

rt_status dp_collect_step(dp_collect *collect, rt_error *error)
{
    rt_status status = answer(collect, rt_peer(RT_ROLE_WORKER, collect->giver), error);
    if (status)
        return status;
    for (uint32_t s = 0; s < RT_SHARDS_MAX; s++) {
        status = answer(collect, rt_peer(RT_ROLE_PS, s), error);
        if (status)
            return status;
    }
    return RT_OK;
}
