// Rows as they are: PULL, and PUSH_ROW.
#include <inttypes.h>
#include <string.h>

#include "ps_lite/ps_shard_parts.h"

// ---- PULL ------------------------------------------------------------------------------------

static rt_status answer_pull(ps_shard *shard, uint32_t worker, uint64_t iteration, uint32_t tag,
                             ps_found found, rt_error *error)
{
    const rt_wire_row head = {found.entry->key, found.entry->version, tag};
    uint32_t count = shard->config.dim;
    if (tag & RT_WIRE_TAG_STATE)
        count = shard->row_floats;
    if (shard->deltas)
        ps_row_set_pulls(shard, found.row, ps_row_pulls(shard, found.row) + 1);
    if (shard->config.row_wire != RT_CODING_FP32)
        return ps_shard_answer_coded(shard, worker, iteration, head, found.row, error);
    return ps_shard_write_row(shard, worker, RT_MESSAGE_ROWS, iteration, head, found.row, count,
                              error);
}

rt_status ps_shard_wake_pulls(ps_shard *shard, ps_entry *entry, rt_error *error)
{
    ps_parked_pull pull;
    while (ps_parked_count(shard->parked) &&
           ps_parked_take(shard->parked, entry->key, entry->version, &pull)) {
        const ps_found found = {entry, ps_table_row(shard->table, entry)};
        shard->parked_counts[pull.worker]--;
        rt_status status = answer_pull(shard, pull.worker, pull.iteration, pull.tag, found, error);
        if (status)
            return status;
    }
    return RT_OK;
}

rt_status ps_shard_check_pulls(ps_shard *shard, const ps_request *in, rt_error *error)
{
    rt_status status = ps_shard_check_parked(shard, in, error);
    if (status)
        return status;
    for (uint32_t i = 0; i < in->count; i++) {
        status = ps_shard_check_key(shard, in, ps_key_at(in, i), error);
        if (status)
            return status;
    }
    status = ps_shard_reserve_rows(shard, in, error);
    if (status)
        return status;
    if (ps_parked_reserve(shard->parked, in->count))
        return rt_fail(error, RT_NO_MEMORY, "out of memory: pulls of worker %u", in->worker);
    return RT_OK;
}

static void park(ps_shard *shard, const ps_request *in, const rt_wire_pull *pull)
{
    ps_parked_add(shard->parked, &(ps_parked_pull){.key = pull->key,
                                                   .iteration = in->iteration,
                                                   .version = pull->version,
                                                   .tag = pull->tag,
                                                   .worker = in->worker});
    shard->parked_counts[in->worker]++;
}

// For a key that had no row when its block was looked up; it may stand twice in a message.
static ps_found find_or_create(ps_shard *shard, uint64_t key)
{
    ps_entry *entry = ps_table_find(shard->table, key);
    if (!entry)
        entry = ps_shard_create_row(shard, key);
    return (ps_found){entry, ps_table_row(shard->table, entry)};
}

rt_status ps_shard_apply_pulls(ps_shard *shard, const ps_request *in, rt_error *error)
{
    ps_found block[PS_BLOCK];
    for (uint32_t from = 0, count; from < in->count; from += count) {
        count = ps_shard_find_block(shard, in, from, block);
        for (uint32_t i = 0; i < count; i++) {
            const rt_wire_pull pull = ps_pull_at(in, from + i);
            ps_found found = block[i];
            if (!found.entry && pull.version == 0)
                found = find_or_create(shard, pull.key);
            rt_status status = RT_OK;
            if (found.entry && found.entry->version >= pull.version)
                status = answer_pull(shard, in->worker, in->iteration, pull.tag, found, error);
            else
                park(shard, in, &pull);
            if (!status && found.entry && shard->deltas)
                status = ps_shard_add_waiting(shard, found.entry, error);
            if (status)
                return status;
        }
    }
    const uint64_t parked = ps_parked_count(shard->parked);
    ps_shard_statistics *statistics = &shard->statistics;
    statistics->pulls += in->count;
    statistics->pulls_parked_max = rt_max_u64(statistics->pulls_parked_max, parked);
    return RT_OK;
}

// ---- PUSH_ROW --------------------------------------------------------------------------------

rt_status ps_shard_check_version(ps_shard *shard, const ps_request *in, uint64_t key,
                                 uint32_t version, rt_error *error)
{
    rt_status status = ps_shard_check_key(shard, in, key, error);
    if (status)
        return status;
    if (version == 0)
        return ps_reject(in, key, error, "version 0, which is never pushed");
    if (!ps_aggregates_count(shard->aggregates))
        return RT_OK;
    const ps_aggregate *one = NULL;
    while ((one = ps_aggregates_next(shard->aggregates, key, one)))
        if (one->base < version)
            return ps_reject(in, key, error,
                             "version %u, while gradients of iteration %u wait for version %u",
                             version, one->iteration, one->base);
    return RT_OK;
}

rt_status ps_shard_check_rows(ps_shard *shard, const ps_request *in, rt_error *error)
{
    for (uint32_t i = 0; i < in->count; i++) {
        const rt_status status =
            ps_shard_check_version(shard, in, ps_key_at(in, i), ps_row_at(in, i).version, error);
        if (status)
            return status;
    }
    return ps_shard_reserve_rows(shard, in, error);
}

static rt_status store_row(ps_shard *shard, const ps_request *in, uint32_t i, ps_found found,
                           rt_error *error)
{
    const rt_wire_row row = ps_row_at(in, i);
    if (!found.entry) {
        found.entry = ps_table_find(shard->table, row.key); // twice in this message?
        if (!found.entry) {
            ps_images_born(&shard->images, row.key);
            found.entry = ps_table_insert(shard->table, row.key);
        }
        found.row = ps_table_row(shard->table, found.entry);
    }
    if (row.version <= found.entry->version) {
        shard->statistics.row_pushes_ignored++;
        return RT_OK;
    }
    ps_images_keep(&shard->images, shard->table, found.entry);
    memcpy(found.row, ps_record_at(in, i) + sizeof row, shard->row_floats * sizeof(float));
    found.entry->version = row.version;
    return ps_shard_row_changed(shard, found.entry, error);
}

rt_status ps_shard_apply_rows(ps_shard *shard, const ps_request *in, rt_error *error)
{
    ps_found block[PS_BLOCK];
    for (uint32_t from = 0, count; from < in->count; from += count) {
        count = ps_shard_find_block(shard, in, from, block);
        for (uint32_t i = 0; i < count; i++) {
            rt_status status = store_row(shard, in, from + i, block[i], error);
            if (status)
                return status;
        }
    }
    shard->statistics.row_pushes += in->count;
    return ps_outbox_notify(shard->outbox, in->worker, RT_MESSAGE_PUSHED, in->iteration, error);
}
