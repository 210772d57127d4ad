#include "runtime/transport/rt_visitor.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

rt_status rt_visitor_init(rt_visitor *visitor, rt_error *error)
{
    uint32_t random;
    if (getrandom(&random, sizeof random, 0) != sizeof random)
        return rt_fail(error, RT_IO, "no random numbers: %s", strerror(errno));
    *visitor = (rt_visitor){.rank = random % RT_RANKS_MAX};
    return RT_OK;
}

uint32_t rt_visitor_peer(const rt_visitor *visitor)
{
    return rt_peer(RT_ROLE_VISITOR, visitor->rank);
}

bool rt_visitor_next(rt_visitor *visitor)
{
    visitor->rank = (visitor->rank + 1) % RT_RANKS_MAX;
    visitor->tried = (visitor->tried + 1) % RT_RANKS_MAX;
    return visitor->tried != 0;
}

void rt_visitor_settle(rt_visitor *visitor)
{
    visitor->tried = 0;
}
