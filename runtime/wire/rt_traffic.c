#include "runtime/wire/rt_traffic.h"

#include <math.h>
#include <stdatomic.h>

#define ROLES (RT_ROLES + 1) // the first: no role that this build knows

static const uint8_t cause_of_type[] = {
#define XX(name, number, payload, cause) [number] = RT_CAUSE_##cause,
    RT_MESSAGE_MAP(XX)
#undef XX
};

static atomic_uint_fast64_t counted[RT_WAYS][ROLES][RT_CAUSES];
static atomic_uint_fast64_t split[RT_CAUSES];

void rt_traffic_begin(void)
{
    for (uint32_t i = 0; i < RT_WAYS * ROLES * RT_CAUSES; i++)
        atomic_store_explicit(&counted[0][0][0] + i, 0, memory_order_relaxed);
    for (uint32_t c = 0; c < RT_CAUSES; c++)
        atomic_store_explicit(&split[c], 0, memory_order_relaxed);
}

void rt_traffic_count(rt_way way, uint32_t type, uint32_t peer, size_t size)
{
    const uint32_t role = rt_peer_role(peer);
    const uint32_t cause = type < RT_COUNT_OF(cause_of_type) ? cause_of_type[type] : 0;
    atomic_fetch_add_explicit(&counted[way][role < ROLES ? role : 0][cause], size,
                              memory_order_relaxed);
}

void rt_traffic_split(rt_cause cause, uint64_t bytes)
{
    atomic_fetch_add_explicit(&split[cause], bytes, memory_order_relaxed);
}

static bool is_of_share(rt_role role, rt_way way, uint32_t peer)
{
    if (role == RT_ROLE_COORDINATOR)
        return true;
    if (role == RT_ROLE_WORKER)
        return peer == RT_ROLE_PS || (peer == RT_ROLE_WORKER && way == RT_WAY_SENT);
    return false;
}

void rt_traffic_share(rt_role role, rt_traffic *share)
{
    *share = (rt_traffic){0};
    for (rt_way way = 0; way < RT_WAYS; way++)
        for (uint32_t peer = 0; peer < ROLES; peer++)
            for (uint32_t c = 0; is_of_share(role, way, peer) && c < RT_CAUSES; c++)
                share->bytes[c] +=
                    atomic_load_explicit(&counted[way][peer][c], memory_order_relaxed);
    for (uint32_t c = 0; c < RT_CAUSES; c++) {
        const uint64_t part = rt_min_u64(atomic_load_explicit(&split[c], memory_order_relaxed),
                                         share->bytes[RT_CAUSE_rows]);
        share->bytes[c] += part;
        share->bytes[RT_CAUSE_rows] -= part;
    }
}

void rt_traffic_add(rt_traffic *sum, const rt_traffic *one)
{
    for (uint32_t c = 0; c < RT_CAUSES; c++)
        sum->bytes[c] += one->bytes[c];
}

uint64_t rt_traffic_bytes(const rt_traffic *traffic)
{
    uint64_t bytes = 0;
    for (uint32_t c = 0; c < RT_CAUSES; c++)
        bytes += traffic->bytes[c];
    return bytes;
}

void rt_traffic_write(rt_json *json, const char *key, const rt_traffic *traffic, uint64_t samples)
{
    const double all = (double)rt_traffic_bytes(traffic);
    rt_json_begin_object(json, key);
#define XX(name, text) rt_json_u64(json, #name, traffic->bytes[RT_CAUSE_##name]);
    RT_CAUSES_MAP(XX)
#undef XX
    rt_json_double(json, "all", all);
    rt_json_u64(json, "samples", samples);
    rt_json_double(json, "a_sample", samples ? all / (double)samples : (double)NAN);
    rt_json_end_object(json);
}
