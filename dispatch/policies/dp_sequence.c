// Samples are given out in sequence, in equal micro-batches. What makes the systems is when rows come
// and leave. bagpipe (SOSP'23): by look-ahead and cache.eviction "ttl" (rt_config_lookahead,
// dp_expire.h). fae: hot rows are with every worker, cold ones with none (dp_hot.h).
#include "dispatch/policies/dp_policies.h"

static rt_status create(const dp_policy_config *config, void **state_p, rt_error *error)
{
    (void)config, (void)error;
    *state_p = NULL;
    return RT_OK;
}

static void destroy(void *state)
{
    (void)state;
}

static void place(void *state, const dp_view *view, uint32_t *worker_of_sample)
{
    uint32_t filled = 0;
    (void)state;
    for (uint32_t j = 0; j < view->worker_count; j++) {
        for (uint32_t k = 0; k < view->capacity[j] && filled < view->sample_count; k++)
            worker_of_sample[filled++] = j;
    }
}

const dp_policy_ops dp_policy_bagpipe = {.name = "bagpipe",
                                         .traits = DP_POLICY_FRESH,
                                         .create = create,
                                         .destroy = destroy,
                                         .place = place};

const dp_policy_ops dp_policy_fae = {.name = "fae",
                                     .traits = DP_POLICY_FRESH | DP_POLICY_HOT,
                                     .create = create,
                                     .destroy = destroy,
                                     .place = place};
