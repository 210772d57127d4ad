// rt_policies - "dispatch.policy": a line for each; dp_policy_NAME does the work (dp_policy.h).
#ifndef RT_POLICIES_H
#define RT_POLICIES_H

#include "runtime/config/rt_choice.h"

// clang-format off
#define RT_POLICY_MAP(XX)                                                                \
    XX(RANDOM, random, "at random")                                                      \
    XX(LAIA, laia, "on the worker with most of a sample's rows (Herald, Algorithm 1)")   \
    XX(ESD, esd, "on the worker where a sample costs least (ESD, Algorithms 1 and 2)")   \
    XX(MAKESPAN, makespan,                                                               \
       "so that the iteration is predicted to end first; a shared row counts once")      \
    XX(HET, het, "at random, with stale copies and light LFU (HET)")                       \
    XX(BAGPIPE, bagpipe,                                                                 \
       "in sequence; rows leave after their last use in sight (Bagpipe)")                \
    XX(FAE, fae,                                                                         \
       "in sequence; every worker keeps the rows of `dispatch.profile`, and no others (FAE)")
// clang-format on

#define XX(kind, name, help) RT_POLICY_##kind,
enum { RT_POLICY_MAP(XX) };
#undef XX
#define RT_POLICY_COUNT (0 RT_POLICY_MAP(RT_CHOICE_ONE))

// Policies have numbers in records and checkpoints. 3 was herald's, which is laia with tables.
#define RT_POLICY_HERALD_WAS 3
static inline uint32_t rt_policy_number(rt_policy_kind kind)
{
    return kind + (kind >= RT_POLICY_HERALD_WAS);
}
// RT_POLICY_COUNT: of none.
static inline uint32_t rt_policy_of_number(uint32_t number)
{
    if (number == RT_POLICY_HERALD_WAS)
        return RT_POLICY_LAIA;
    return (uint32_t)rt_min_u64(number - (number > RT_POLICY_HERALD_WAS), RT_POLICY_COUNT);
}

#endif
