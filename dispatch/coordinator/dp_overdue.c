#include "dispatch/coordinator/dp_overdue.h"

#include <stdio.h>
#include <string.h>

#include "runtime/wire/rt_wire.h"

static void put_names(uint64_t mask, rt_role role, char *text, size_t size)
{
    char name[32];
    size_t used = strlen(text);
    for (; mask && used + sizeof name < size; mask &= mask - 1)
        used += (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : "",
                                 rt_peer_name(rt_peer(role, rt_lowest_bit(mask)), name));
}

rt_status dp_overdue_check(dp_overdue *overdue, const dp_awaited *awaited, uint64_t now_ns,
                           rt_error *error)
{
    char names[256] = "";
    const dp_awaited *before = &overdue->awaited;
    const bool any = (awaited->workers | awaited->shards) != 0;
    if (!any || before->workers != awaited->workers || before->shards != awaited->shards ||
        before->number != awaited->number || before->what != awaited->what) {
        overdue->awaited = *awaited;
        overdue->since_ns = now_ns;
        return RT_OK;
    }
    const double waited_s = (double)(now_ns - overdue->since_ns) * 1e-9;
    if (waited_s <= overdue->limit_s)
        return RT_OK;
    put_names(awaited->workers, RT_ROLE_WORKER, names, sizeof names);
    put_names(awaited->shards, RT_ROLE_PS, names, sizeof names);
    return rt_fail(error, RT_TIMEOUT, "%s: alive, but %s within %.0f s (timeouts.answer_s)", names,
                   awaited->what, waited_s);
}
