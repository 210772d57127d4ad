#include "dispatch/coordinator/dp_hello.h"

#include <string.h>

static bool is_zero(const uint8_t *bytes, size_t size)
{
    return *bytes == 0 && memcmp(bytes, bytes + 1, size - 1) == 0;
}

static uint32_t box_of(const rt_config *config, uint32_t peer)
{
    if (rt_peer_role(peer) == RT_ROLE_PS)
        return rt_config_box_of_shard(config, rt_peer_rank(peer));
    return rt_config_box_of_worker(config, rt_peer_rank(peer));
}

// Of a member that listens: whoever connects to it needs its key.
static rt_status check_key(const dp_hello_run *run, const rt_wire_hello *hello, const char *name,
                           rt_error *error)
{
    const rt_keys *keys = run->keys;
    if (!keys || !keys->is_set || rt_keys_find(keys, hello->key))
        return RT_OK;
    if (run->added && dp_added_find_key(run->added, hello->key))
        return RT_OK;
    return rt_fail(error, RT_CONFIG, "%s has %s, which security.allow does not have", name,
                   is_zero(hello->key, sizeof hello->key) ? "no key" : "a key");
}

rt_status dp_hello_check(const dp_hello_run *run, uint32_t peer, const rt_wire_hello *hello,
                         const char *name, rt_error *error)
{
    const rt_status status = rt_control_agree(hello, run->identity, name, error);
    if (status)
        return status;
    if (hello->role != (uint32_t)rt_peer_role(peer) || hello->rank != rt_peer_rank(peer))
        return rt_fail(error, RT_WIRE, "%s says that it is another one", name);
    const bool listens = hello->role == RT_ROLE_PS || rt_dispatch_is_mutual(&run->config->dispatch);
    if (listens && !hello->address[0])
        return rt_fail(error, RT_WIRE, "%s does not say where it listens", name);
    if (hello->box != rt_config_hash_box(run->config, box_of(run->config, peer)))
        return rt_fail(
            error, RT_CONFIG,
            "%s has another entry of its box in boxes: `lanyard add` wrote a file for it", name);
    if (!listens)
        return RT_OK;
    return check_key(run, hello, name, error);
}
