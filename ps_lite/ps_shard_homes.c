// Rows that have another home (docs/PROTOCOL.md, "Homes"). A FORGET names the version up to which a
// row is elsewhere: one that has come back since has a later version, and stays.
#include <inttypes.h>

#include "ps_lite/ps_shard_parts.h"

bool ps_shard_wants_file(const ps_shard *shard, uint32_t file, uint32_t file_count,
                         bool was_planned)
{
    const ps_shard_config *config = &shard->config;
    if (config->homes == RT_HOMES_PLANNED)
        return file == config->rank || file >= config->shard_count;
    // With as many shards as there were, only its own file has rows of this one.
    return was_planned || file_count != config->shard_count || file == config->rank;
}

rt_status ps_shard_check_forgets(ps_shard *shard, const ps_request *in, rt_error *error)
{
    if (shard->config.homes != RT_HOMES_PLANNED)
        return rt_fail(error, RT_WIRE, "worker %" PRIu32 ": FORGET, but homes of rows are hashed",
                       in->worker);
    for (uint32_t i = 0; i < in->count; i++) {
        const rt_wire_pull one = ps_pull_at(in, i);
        if (one.version == 0 || one.tag)
            return rt_fail(error, RT_WIRE,
                           "worker %" PRIu32 ": FORGET of key %016" PRIx64 ", version %" PRIu32
                           ", tag %" PRIu32 ": expected a version and no tag",
                           in->worker, one.key, one.version, one.tag);
    }
    return RT_OK;
}

rt_status ps_shard_apply_forgets(ps_shard *shard, const ps_request *in, rt_error *error)
{
    for (uint32_t i = 0; i < in->count; i++) {
        const rt_wire_pull one = ps_pull_at(in, i);
        const ps_entry *entry = ps_table_find(shard->table, one.key);
        if (!entry || entry->version > one.version)
            continue;
        if (shard->config.names_left && ps_left_add(&shard->left, one.key))
            return rt_fail(error, RT_NO_MEMORY, "out of memory: keys that have left the shard");
        ps_images_keep(&shard->images, shard->table, entry);
        ps_table_erase(shard->table, one.key);
        shard->statistics.rows_forgotten++;
    }
    return ps_outbox_notify(shard->outbox, in->worker, RT_MESSAGE_PUSHED, in->iteration, error);
}
