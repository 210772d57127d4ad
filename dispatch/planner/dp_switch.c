// dp_switch - another policy while a planner plans (DP_INPUT_POLICY).
//
// Plans know nothing of policies, so only what a policy sees changes: its own state begins as in a
// run that begins with it, and where it decides on snapshots (dp_viewed.c) those begin as the
// workers' caches are, unless there are some already. Sizes of micro-batches stay as the run began:
// a policy that could have unequal ones has equal ones where the run began without.
#include <inttypes.h>

#include "dispatch/planner/dp_planner_parts.h"

rt_status dp_planner_can_switch(const dp_planner *planner, rt_policy_kind policy, rt_error *error)
{
    dp_planner_config config = planner->config;
    config.dispatch.policy = policy;
    if (dp_policy_can(policy, DP_POLICY_HOT) != (config.hot != NULL))
        return rt_fail(error, RT_CONFIG,
                       "policy: \"%s\": workers keep hot rows from the beginning of a run, or "
                       "never: a run must begin with it",
                       rt_config_choice_name("dispatch.policy", (int)policy));
    if (dp_policy_chooses_tables(&config.dispatch) && !planner->own.caches[0].by_field &&
        !dp_planner_decides_on_snapshots(&config))
        return rt_fail(error, RT_CONFIG,
                       "policy: \"%s\" with dispatch.tables counts what caches hold from the "
                       "beginning: with dispatch.view \"strict\", or stale copies, a run must "
                       "begin with it",
                       rt_config_choice_name("dispatch.policy", (int)policy));
    return RT_OK;
}

static void drop_viewed(dp_planner *planner)
{
    for (uint32_t w = 0; w < planner->config.worker_count; w++) {
        const dp_cache *cache = &planner->viewed.caches[w];
        for (uint32_t slot = 0; slot < cache->slot_count; slot++) {
            const uint32_t index = cache->slots[slot].record;
            if (index >= planner->directory.record_top)
                continue;
            dp_copies *copies = &planner->directory.records[index].viewed;
            if (dp_cache_slot(planner->viewed.caches, w, copies) != slot)
                continue;
            dp_cache_drop(planner->viewed.caches, w, copies);
            dp_planner_release(planner, index);
        }
    }
    dp_planner_destroy_caches(planner->viewed.caches, planner->config.worker_count);
    planner->viewed.caches = NULL;
}

static rt_status create_viewed(dp_planner *planner, bool counts)
{
    if (!planner->viewed.changes &&
        dp_planner_create_slot_changes(planner, &planner->viewed.changes))
        return RT_NO_MEMORY;
    if (counts && !planner->cached)
        planner->cached = rt_alloc(RT_FIELDS_MAX, sizeof *planner->cached);
    if ((counts && !planner->cached) || dp_planner_create_caches(planner, &planner->viewed.caches))
        return RT_NO_MEMORY;
    for (uint32_t w = 0; counts && w < planner->config.worker_count; w++)
        dp_cache_count_fields(&planner->viewed.caches[w], &planner->directory, planner->cached);
    return dp_planner_copy_caches(planner);
}

rt_status dp_planner_switch(dp_planner *planner, rt_error *error)
{
    const dp_planner_config *config = &planner->config;
    if (planner->policy == dp_policy_find(config->dispatch.policy))
        return RT_OK;
    const bool wants = dp_planner_decides_on_snapshots(config);
    const bool counts = dp_policy_chooses_tables(&config->dispatch);
    if (planner->viewed.caches && (!wants || (counts && !planner->viewed.caches[0].by_field)))
        drop_viewed(planner);
    if (wants && !planner->viewed.caches && create_viewed(planner, counts))
        return rt_fail(error, RT_NO_MEMORY, "out of memory for the caches that decisions see");
    planner->policy->destroy(planner->policy_state);
    planner->policy_state = NULL;
    return dp_planner_create_policy(planner, error);
}
