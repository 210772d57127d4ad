// dp_policies - the tables of all policies by name, for who names one; others ask dp_policy_find.
#ifndef DP_POLICIES_H
#define DP_POLICIES_H

#include "dispatch/policies/dp_policy.h"
#include "runtime/config/rt_policies.h"

#define XX(kind, name, help) extern const dp_policy_ops dp_policy_##name;
RT_POLICY_MAP(XX)
#undef XX

#endif
