#include "edge_worker/executor/ew_outlet.h"

#include <string.h>

void ew_outlet_fini(ew_outlet *outlet)
{
    for (uint32_t i = 0; i < outlet->count; i++)
        rt_message_release(&outlet->messages[outlet->first + i]);
    rt_free(outlet->messages);
    *outlet = (ew_outlet){0};
}

rt_status ew_outlet_put(ew_outlet *outlet, rt_message *message)
{
    if (outlet->first + outlet->count == outlet->capacity && outlet->first > 0) {
        memmove(outlet->messages, outlet->messages + outlet->first,
                outlet->count * sizeof *outlet->messages);
        outlet->first = 0;
    }
    rt_status status = rt_grow(&outlet->messages, &outlet->capacity,
                               (uint64_t)outlet->first + outlet->count + 1, sizeof(rt_message));
    if (status) {
        rt_message_release(message);
        return status;
    }
    outlet->messages[outlet->first + outlet->count++] = *message;
    *message = (rt_message){0};
    return RT_OK;
}

// A credit is spent with every message that the other side confirms; without one it waits here.
rt_status ew_outlet_flush(ew_outlet *outlet, ew_outlet_send send, void *context, uint32_t shard)
{
    while (outlet->count && (!outlet->counted || outlet->credits)) {
        rt_status status = send(context, shard, &outlet->messages[outlet->first]);
        if (status == RT_AGAIN)
            return RT_OK;
        if (status)
            return status;
        outlet->first++;
        outlet->count--;
        outlet->credits -= outlet->counted;
    }
    if (outlet->count == 0)
        outlet->first = 0;
    return RT_OK;
}
