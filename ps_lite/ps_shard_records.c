// What all messages of rows share: their records, the rows and the room that they need, answers.
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "ps_lite/ps_shard_parts.h"
#include "runtime/rt_hash.h"

rt_status ps_reject(const ps_request *in, uint64_t key, rt_error *error, const char *format, ...)
{
    char what[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    return rt_fail(error, RT_WIRE, "worker %u: %s of iteration %" PRIu64 ", key %016" PRIx64 ": %s",
                   in->worker, rt_message_type_name(in->type), in->iteration, key, what);
}

rt_status ps_shard_check_key(const ps_shard *shard, const ps_request *in, uint64_t key,
                             rt_error *error)
{
    if (shard->config.shard_count == 1 || shard->config.homes == RT_HOMES_PLANNED)
        return RT_OK;
    const uint32_t owner = rt_key_shard(key, shard->config.shard_count);
    if (RT_LIKELY(owner == shard->config.rank))
        return RT_OK;
    return ps_reject(in, key, error, "belongs to shard %u of %u, this is shard %u", owner,
                     shard->config.shard_count, shard->config.rank);
}

// ---- Walking over records --------------------------------------------------------------------

static uint32_t take_keys(const ps_request *in, uint32_t from, uint64_t keys[PS_BLOCK])
{
    const uint32_t count = (uint32_t)rt_min_u64(PS_BLOCK, in->count - from);
    for (uint32_t i = 0; i < count; i++)
        keys[i] = ps_key_at(in, from + i);
    return count;
}

// Rows of up to PS_BLOCK records from `from` on, on their way into the cache, as are the index
// lines of the PS_BLOCK after that.
uint32_t ps_shard_find_block(const ps_shard *shard, const ps_request *in, uint32_t from,
                             ps_found found[PS_BLOCK])
{
    uint64_t keys[PS_BLOCK];
    const uint32_t count = take_keys(in, from, keys);
    if (from == 0)
        ps_table_prefetch(shard->table, keys, count);
    ps_table_find_all(shard->table, keys, count, found);
    const uint32_t next_count = take_keys(in, from + count, keys);
    ps_table_prefetch(shard->table, keys, next_count);
    return count;
}

void ps_shard_announce_rows(const ps_shard *shard, const ps_request *in)
{
    for (uint32_t i = 0; i < in->count && ps_table_is_on_disk(shard->table); i++) {
        const ps_entry *entry = ps_table_find(shard->table, ps_key_at(in, i));
        if (entry)
            ps_table_will_need(shard->table, entry);
    }
}

// Whether the record makes a row when its key has none.
static bool creates(const ps_request *in, uint32_t i)
{
    if (in->type == RT_MESSAGE_PUSH_DELTA)
        return ps_delta_at(in, i).base == 0;
    if (in->type == RT_MESSAGE_PUSH_CHANGE)
        return ps_change_at(in, i).base == 0;
    if (in->type == RT_MESSAGE_PUSH_GRAD)
        return ps_grad_at(in, i).base == 0;
    return in->type == RT_MESSAGE_PUSH_ROW ||
           (in->type == RT_MESSAGE_PULL && ps_pull_at(in, i).version == 0);
}

// Makes room for the rows that a message may create; entries do not move afterwards. Looks keys up
// only when room for all of them cannot be had.
rt_status ps_shard_reserve_rows(ps_shard *shard, const ps_request *in, rt_error *error)
{
    uint32_t count = 0, missing = 0;
    for (uint32_t i = 0; i < in->count; i++)
        count += creates(in, i);
    if (ps_table_reserve(shard->table, count, NULL) == RT_OK)
        return RT_OK;
    for (uint32_t i = 0; i < in->count; i++)
        missing += creates(in, i) && !ps_table_find(shard->table, ps_key_at(in, i));
    return ps_table_reserve(shard->table, missing, error);
}

rt_status ps_shard_check_parked(const ps_shard *shard, const ps_request *in, rt_error *error)
{
    const uint32_t parked = shard->parked_counts[in->worker];
    if ((uint64_t)parked + in->count <= shard->config.pulls_parked_max)
        return RT_OK;
    return rt_fail(error, RT_LIMIT, "worker %u: %u pulls while %u wait, at most %u may", in->worker,
                   in->count, parked, shard->config.pulls_parked_max);
}

// After a reserve; the key has no row.
ps_entry *ps_shard_create_row(ps_shard *shard, uint64_t key)
{
    ps_images_born(&shard->images, key);
    ps_entry *entry = ps_table_insert(shard->table, key);
    float *row = ps_table_row(shard->table, entry);
    rt_row_init(key, shard->config.seed, shard->config.init_scale, shard->config.dim, row);
    rt_optimizer_init_state(&shard->config.optimizer, shard->config.dim, row + shard->config.dim);
    if (shard->deltas)
        ps_row_set_pulls(shard, row, 0);
    shard->statistics.rows_created++;
    return entry;
}

rt_status ps_shard_write_row(ps_shard *shard, uint32_t worker, rt_message_type type,
                             uint64_t iteration, rt_wire_row head, const float *floats,
                             uint32_t count, rt_error *error)
{
    uint8_t *record;
    rt_status status = ps_outbox_record(shard->outbox, worker, type, iteration,
                                        sizeof head + count * sizeof *floats, &record, error);
    if (status)
        return status;
    memcpy(record, &head, sizeof head);
    memcpy(record + sizeof head, floats, count * sizeof *floats);
    return RT_OK;
}
