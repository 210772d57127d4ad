// A table of members without connections, for parts of the coordinator that ask it who takes part.
#ifndef SUPPORT_MEMBERS_H
#define SUPPORT_MEMBERS_H

#include "dispatch/coordinator/dp_roster.h"

// All that are invited are there, and the run begins. No worker has a row that the PS lacks.
static inline void members_begin(dp_membership *all)
{
    for (uint32_t i = 0; i < dp_membership_count(all); i++)
        dp_membership_hello(all, dp_membership_find(all, dp_membership_at(all, i)->peer));
    dp_membership_begin(all);
    all->clean = UINT64_MAX;
}

static inline bool members_connected(dp_roster *roster, uint32_t peer)
{
    const dp_member *one = dp_membership_find(dp_roster_members(roster), peer);
    return one && dp_member_is_connected(one);
}

#endif
