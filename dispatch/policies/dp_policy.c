#include "dispatch/policies/dp_policy.h"

const dp_policy_ops *dp_policy_find(rt_policy_kind kind)
{
    switch (kind) {
    case RT_POLICY_RANDOM:
        return &dp_policy_random;
    case RT_POLICY_LAIA:
        return &dp_policy_laia;
    case RT_POLICY_ESD:
        return &dp_policy_esd;
    case RT_POLICY_HERALD:
        return &dp_policy_herald;
    case RT_POLICY_MAKESPAN:
        return &dp_policy_makespan;
    }
    return NULL;
}
