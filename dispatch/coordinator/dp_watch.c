#include "dispatch/coordinator/dp_watch.h"

#include <string.h>

rt_status dp_watch_open(const rt_config *config, const char *directory, bool goes_on,
                        dp_watch *watch, rt_error *error)
{
    watch->checkpoint_ns = rt_now_ns();
    return rt_viewer_open(config, directory, goes_on, &watch->viewer, error);
}

rt_status dp_watch_note(const rt_config *config, rt_value_names **names_p, dp_watch *watch,
                        rt_error *error)
{
    if (!*config->watch.column)
        return RT_OK;
    if (rt_value_names_create(config->watch.column, &watch->names))
        return rt_fail(error, RT_NO_MEMORY, "out of memory for watch.column");
    *names_p = watch->names;
    return RT_OK;
}

rt_status dp_watch_schema(const rt_config *config, const rt_schema *schema, dp_watch *watch,
                          rt_error *error)
{
    const char *column = config->watch.column;
    uint32_t field = 0;
    watch->schema = *schema;
    if (!*column)
        return RT_OK;
    while (field < schema->field_count && strcmp(schema->field_names[field], column) != 0)
        field++;
    if (field == schema->field_count)
        return rt_fail(error, RT_CONFIG,
                       "watch.column: expected a categorical column of the stream, found \"%s\"",
                       column);
    if (schema->class_count)
        return rt_fail(error, RT_CONFIG,
                       "watch.column: is for labels of 0 and 1, not for one of several classes");
    watch->slices = rt_alloc(1, sizeof *watch->slices);
    if (!watch->slices)
        return rt_fail(error, RT_NO_MEMORY, "out of memory for watch.column");
    *watch->slices = (dp_slices){.column = column,
                                 .field = field,
                                 .window_samples = (double)config->watch.window_samples,
                                 .names = watch->names};
    return RT_OK;
}

void dp_watch_close(dp_watch *watch)
{
    rt_viewer_close(watch->viewer);
    rt_free(watch->slices);
    rt_value_names_destroy(watch->names);
    *watch = (dp_watch){0};
}

rt_status dp_watch_take(dp_watch *watch, uint32_t peer, const rt_message *message, rt_error *error)
{
    char name[32];
    const uint32_t rank = rt_peer_rank(peer);
    rt_wire_vitals *of = watch->shards;
    uint32_t count = RT_SHARDS_MAX;
    if (rt_peer_role(peer) == RT_ROLE_WORKER) {
        of = watch->workers;
        count = RT_WORKERS_MAX;
    }
    if (!rt_control_has(message, sizeof *of) || rank >= count)
        return rt_fail(error, RT_WIRE, "%s: VITALS of %zu bytes, expected %zu",
                       rt_peer_name(peer, name), message->size - sizeof(rt_wire_header),
                       sizeof *of);
    memcpy(&of[rank], rt_message_payload(message), sizeof *of);
    return RT_OK;
}
