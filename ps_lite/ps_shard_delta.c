// Bounded staleness: what workers changed of rows, added in the planned order.
#include <inttypes.h>

#include "ps_lite/ps_shard_parts.h"

// The row, and what waits for it.
static rt_status check_delta(ps_shard *shard, const ps_request *in, const rt_wire_delta *delta,
                             rt_error *error)
{
    const ps_entry *entry = ps_table_find(shard->table, delta->key);
    const ps_aggregate *one = NULL;
    if (delta->version <= delta->base || delta->reserved)
        return ps_reject(in, delta->key, error, "version %u on base %u", delta->version,
                         delta->base);
    if (delta->pulls > shard->config.worker_count)
        return ps_reject(in, delta->key, error, "%u pulls of one version by %u workers",
                         delta->pulls, shard->config.worker_count);
    if (entry && entry->version > delta->base)
        return ps_reject(in, delta->key, error, "base %u, but the row has version %u", delta->base,
                         entry->version);
    if (entry && entry->version == delta->base &&
        ps_row_pulls(shard, ps_table_row(shard->table, entry)) > delta->pulls)
        return ps_reject(in, delta->key, error, "%u pulls of version %u, but %u were answered",
                         delta->pulls, delta->base,
                         ps_row_pulls(shard, ps_table_row(shard->table, entry)));
    while ((one = ps_aggregates_next(shard->deltas, delta->key, one)))
        if (one->base == delta->base)
            return ps_reject(in, delta->key, error, "base %u is that of version %u too",
                             delta->base, one->iteration);
    return RT_OK;
}

rt_status ps_shard_check_deltas(ps_shard *shard, const ps_request *in, rt_error *error)
{
    if (!shard->deltas)
        return rt_fail(error, RT_WIRE,
                       "worker %u: a PUSH_DELTA, but rows are never stale here "
                       "(consistency.staleness)",
                       in->worker);
    for (uint32_t i = 0; i < in->count; i++) {
        const rt_wire_delta delta = ps_delta_at(in, i);
        rt_status status = ps_shard_check_key(shard, in, delta.key, error);
        if (status)
            return status;
        status = check_delta(shard, in, &delta, error);
        if (status)
            return status;
    }
    const uint32_t waiting = ps_aggregates_gradients(shard->deltas);
    if ((uint64_t)waiting + in->count > shard->gradients_max)
        return rt_fail(
            error, RT_LIMIT,
            "worker %u: changes of %u rows while %u wait for others, at most %u fit into "
            "%" PRIu64 " bytes",
            in->worker, in->count, waiting, shard->gradients_max, shard->config.gradient_bytes_max);
    if (ps_aggregates_reserve(shard->deltas, in->count))
        return rt_fail(error, RT_NO_MEMORY, "out of memory: changes of worker %u", in->worker);
    return ps_shard_reserve_rows(shard, in, error);
}

static bool has_its_turn(const ps_shard *shard, const ps_entry *entry, uint32_t base,
                         uint32_t pulls)
{
    return entry->version == base &&
           ps_row_pulls(shard, ps_table_row(shard->table, entry)) == pulls;
}

// change: row_floats.
static void add(ps_shard *shard, ps_entry *entry, uint32_t version, const float *restrict change)
{
    float *restrict row = ps_table_row(shard->table, entry);
    rt_assert(version > entry->version);
    for (uint32_t i = 0; i < shard->row_floats; i++)
        row[i] += change[i];
    entry->version = version;
    ps_row_set_pulls(shard, row, 0);
    shard->statistics.deltas++;
}

static ps_aggregate *next_of(ps_shard *shard, const ps_entry *entry)
{
    ps_aggregate *one = NULL;
    while ((one = ps_aggregates_next(shard->deltas, entry->key, one)))
        if (has_its_turn(shard, entry, one->base, one->pulls))
            break;
    return one;
}

rt_status ps_shard_add_waiting(ps_shard *shard, ps_entry *entry, rt_error *error)
{
    while (ps_aggregates_count(shard->deltas)) {
        ps_aggregate *one = next_of(shard, entry);
        if (!one)
            return RT_OK;
        const uint32_t version = one->iteration;
        ps_aggregates_sum(shard->deltas, one, shard->sum); // of one
        ps_aggregates_close(shard->deltas, one);
        add(shard, entry, version, shard->sum);
        const rt_status status = ps_shard_wake_pulls(shard, entry, error);
        if (status)
            return status;
    }
    return RT_OK;
}

static rt_status take_delta(ps_shard *shard, const ps_request *in, uint32_t i, rt_error *error)
{
    const rt_wire_delta delta = ps_delta_at(in, i);
    const void *change = ps_record_at(in, i) + sizeof delta;
    ps_entry *entry = ps_table_find(shard->table, delta.key);
    if (!entry && delta.base == 0)
        entry = ps_shard_create_row(shard, delta.key);
    if (entry && entry->version > delta.base) // checked before: another record of this message
        return ps_reject(in, delta.key, error, "twice in one message");
    if (entry && has_its_turn(shard, entry, delta.base, delta.pulls)) {
        memcpy(shard->sum, change, shard->row_floats * sizeof *shard->sum);
        add(shard, entry, delta.version, shard->sum);
        const rt_status status = ps_shard_wake_pulls(shard, entry, error);
        if (status)
            return status;
        return ps_shard_add_waiting(shard, entry, error);
    }
    ps_aggregate *one = ps_aggregates_open(shard->deltas, delta.key, delta.version);
    one->base = delta.base;
    one->pulls = delta.pulls;
    ps_aggregates_add(shard->deltas, one, in->worker, change);
    return RT_OK;
}

rt_status ps_shard_apply_deltas(ps_shard *shard, const ps_request *in, rt_error *error)
{
    for (uint32_t i = 0; i < in->count; i++) {
        rt_status status = take_delta(shard, in, i, error);
        if (status)
            return status;
    }
    return ps_outbox_notify(shard->outbox, in->worker, RT_MESSAGE_PUSHED, in->iteration, error);
}
