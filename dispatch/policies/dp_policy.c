#include <string.h>

#include "dispatch/policies/dp_policies.h"
#include "dispatch/solvers/dp_solver.h"

#define RANDOM(XX, PART, NONE, T) XX(T, state)
RT_FIELDS_SHARED(dp_policy_random_fields, rt_random, RANDOM, "state:8");

const dp_policy_ops *dp_policy_find(rt_policy_kind kind)
{
#define XX(enumerator, name, help) [RT_POLICY_##enumerator] = &dp_policy_##name,
    static const dp_policy_ops *const policies[RT_POLICY_COUNT] = { RT_POLICY_MAP(XX) };
#undef XX
    rt_assert((uint32_t)kind < RT_POLICY_COUNT);
    return policies[kind];
}

bool dp_policy_is_named(const char *name)
{
    for (uint32_t kind = 0; kind < RT_POLICY_COUNT; kind++) {
        if (strcmp(dp_policy_find((rt_policy_kind)kind)->name, name) == 0)
            return true;
    }
    return false;
}

bool dp_policy_can(rt_policy_kind kind, uint32_t traits)
{
    return (dp_policy_find(kind)->traits & traits) == traits;
}

const char *dp_policy_solver(const rt_dispatch_config *dispatch)
{
    if (!dp_policy_can(dispatch->policy, DP_POLICY_ALPHA))
        return NULL;
    const dp_solver_ops *solver = dp_solver_find(dispatch->solver);
    return solver ? solver->name : dp_solver_transport.name;
}

bool dp_policy_chooses_tables(const rt_dispatch_config *dispatch)
{
    return dispatch->tables > 0 && dp_policy_can(dispatch->policy, DP_POLICY_TABLES);
}
