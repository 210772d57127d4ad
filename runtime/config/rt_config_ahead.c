// What a run reads ahead: by its key, or by the policy (rt_config.h).
#include "runtime/config/rt_config.h"
#include "runtime/config/rt_policies.h"

static bool is_bagpipe(const rt_config *config)
{
    return config->dispatch.policy == RT_POLICY_BAGPIPE;
}

uint32_t rt_config_lookahead(const rt_config *config)
{
    if (is_bagpipe(config) && config->cache.lookahead == 0)
        return RT_BAGPIPE_LOOKAHEAD;
    return config->cache.lookahead;
}

uint32_t rt_config_batches_ahead(const rt_config *config)
{
    const uint32_t window = config->dispatch.window, lookahead = rt_config_lookahead(config);
    return window > lookahead + 1 ? window - 1 : lookahead;
}
