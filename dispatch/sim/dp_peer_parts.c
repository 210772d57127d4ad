#include "dispatch/sim/dp_peer_parts.h"

#include <math.h>
#include <string.h>

#include "runtime/wire/rt_wire.h"

// ---- batches ---------------------------------------------------------------------------------

static rt_status number_keys(dp_peer_run_state *run, dp_peer_batch *batch)
{
    const rt_batch *raw = &run->raw;
    const uint32_t stamp = ++run->batch_count;
    batch->sample_count = raw->sample_count;
    batch->key_count = raw->key_count;
    batch->distinct_count = 0;
    if (dp_directory_reserve(&run->directory, raw->key_count) ||
        rt_grow(&run->stamps, &run->stamp_capacity,
                (uint64_t)run->directory.record_top + raw->key_count, sizeof *run->stamps) ||
        rt_grow(&batch->offsets, &batch->offset_capacity, raw->sample_count + UINT64_C(1),
                sizeof *batch->offsets) ||
        rt_grow(&batch->records, &batch->record_capacity, raw->key_count, sizeof *batch->records) ||
        rt_grow(&batch->distinct, &batch->distinct_capacity, raw->key_count,
                sizeof *batch->distinct))
        return RT_NO_MEMORY;
    memcpy(batch->offsets, raw->key_offsets, (raw->sample_count + 1) * sizeof *batch->offsets);
    for (uint32_t i = 0; i < raw->key_count; i++) {
        const uint32_t top = run->directory.record_top;
        const uint32_t record = dp_directory_find(&run->directory, raw->keys[i]);
        if (record == top)
            run->stamps[record] = 0;
        batch->records[i] = record;
        if (run->stamps[record] == stamp)
            continue;
        run->stamps[record] = stamp;
        batch->distinct[batch->distinct_count++] = record;
    }
    return RT_OK;
}

rt_status dp_peer_read(dp_peer_run_state *run, uint32_t sample_count, dp_peer_batch *batch,
                       rt_error *error)
{
    rt_status status = rt_stream_read(run->stream, &run->raw, sample_count, error);
    if (status)
        return status;
    if (rt_tables_fold(&rt_stream_schema(run->stream)->tables, &run->raw))
        return rt_fail(error, RT_NO_MEMORY, "out of memory: a batch");
    if (number_keys(run, batch))
        return rt_fail(error, RT_NO_MEMORY, "out of memory: a batch");
    return RT_OK;
}

void dp_peer_batch_fini(dp_peer_batch *batch)
{
    rt_free(batch->offsets);
    rt_free(batch->records);
    rt_free(batch->distinct);
    *batch = (dp_peer_batch){0};
}

// ---- what moves ------------------------------------------------------------------------------

void dp_peer_pull(const dp_peer_run_state *run, dp_peer_moves *moves, uint32_t worker,
                  uint32_t record, bool with_state, bool is_new)
{
    moves->workers[worker].first_touch += is_new;
    if (is_new && !run->first_touch_moves)
        return;
    moves->workers[worker].miss_pull++;
    moves->up[worker] += sizeof(rt_wire_pull);
    moves->down[worker] += dp_row_bytes(&run->costs.layout, dp_peer_field(run, record), with_state);
}

void dp_peer_push_row(const dp_peer_run_state *run, dp_peer_moves *moves, uint32_t worker,
                      uint32_t record)
{
    moves->workers[worker].evict_push++;
    moves->up[worker] += dp_row_bytes(&run->costs.layout, dp_peer_field(run, record), true);
}

void dp_peer_push_grad(const dp_peer_run_state *run, dp_peer_moves *moves, uint32_t worker,
                       uint32_t record)
{
    moves->workers[worker].grad_push++;
    moves->up[worker] += dp_grad_bytes(&run->costs.layout, dp_peer_field(run, record));
}

void dp_peer_reduce(const dp_peer_run_state *run, dp_peer_moves *moves, uint32_t record,
                    bool is_critical)
{
    const uint64_t bytes =
        run->costs.layout.values[dp_peer_field(run, record)] * (uint64_t)sizeof(float);
    moves->reduce_bytes += bytes;
    if (is_critical)
        moves->reduce_critical_bytes += bytes;
}

void dp_peer_fetch(const dp_peer_run_state *run, dp_peer_moves *moves, uint32_t owner,
                   uint32_t worker, uint32_t record)
{
    const uint32_t field = dp_peer_field(run, record);
    const uint64_t row = dp_row_bytes(&run->costs.layout, field, false);
    const uint64_t gradient = dp_grad_bytes(&run->costs.layout, field);
    moves->sent[owner] += row;
    moves->received[worker] += row;
    moves->sent[worker] += gradient;
    moves->received[owner] += gradient;
    moves->fetched++;
}

// What a worker sends, and receives, when all sum vectors of so many bytes in a ring.
static double ring_bytes(const dp_peer_run_state *run, double bytes)
{
    const double n = run->costs.worker_count;
    return 2 * (n - 1) / n * bytes;
}

// As dp_predict_s, with rings in the place of the dense exchange.
static double predict_s(const dp_peer_run_state *run, const dp_peer_moves *moves)
{
    const dp_rates *rates = &run->costs.rates;
    const double ring = ring_bytes(run, (double)(run->costs.dense_bytes + moves->reduce_bytes));
    double slowest = 0, up = 0, down = 0;
    for (uint32_t j = 0; j < run->costs.worker_count; j++) {
        const dp_link *link = &rates->links[j];
        const double links =
            fmax(((double)(moves->up[j] + moves->sent[j]) + ring) / link->up_bytes_per_s,
                 ((double)(moves->down[j] + moves->received[j]) + ring) / link->down_bytes_per_s);
        slowest = fmax(slowest, links + rates->compute_s_per_sample[j] * moves->micro_batch[j]);
        up += (double)moves->up[j];
        down += (double)moves->down[j];
    }
    return fmax(slowest, dp_shards_s(rates->ps_bytes_per_s, &rates->shards, fmax(up, down), 0));
}

bool dp_peer_iterated(dp_peer_run_state *run, const dp_peer_moves *moves)
{
    const rt_config *config = run->sim->config;
    dp_account *account = &run->result->account;
    run->iterations++;
    const bool is_last = config->sim_iterations && run->iterations >= config->sim_iterations;
    if (run->iterations <= config->sim_warmup)
        return is_last;
    for (uint32_t j = 0; j < run->costs.worker_count; j++) {
        const dp_link *link = &run->costs.rates.links[j];
        const uint64_t requests = moves->workers[j].miss_pull * sizeof(rt_wire_pull);
        rt_counts_add(&account->workers[j], &moves->workers[j]);
        account->traffic[j].up += moves->up[j] + moves->sent[j];
        account->traffic[j].down += moves->down[j] + moves->received[j];
        account->micro_batch[j] += moves->micro_batch[j];
        account->cost_s[j] += (double)(moves->up[j] - requests) / link->up_bytes_per_s +
                              (double)moves->down[j] / link->down_bytes_per_s;
    }
    account->handed.rows += moves->fetched;
    account->iterations++;
    account->samples += moves->sample_count;
    account->predicted_s += predict_s(run, moves);
    account->hits.lookups += moves->hits.lookups;
    account->hits.lookups_hit += moves->hits.lookups_hit;
    account->hits.keys += moves->hits.keys;
    account->hits.keys_hit += moves->hits.keys_hit;
    account->hits.distinct += moves->hits.distinct;
    run->result->reduce_bytes += moves->reduce_bytes;
    run->result->reduce_critical_bytes += moves->reduce_critical_bytes;
    run->result->window_rows += moves->window_rows;
    run->result->window_batches += moves->window_batches;
    return is_last;
}
