// Sums of gradients: PUSH_GRAD.
#include <inttypes.h>
#include <string.h>

#include "ps_lite/ps_shard_parts.h"

// The sum that is complete and applies to the row as it is.
static ps_aggregate *ready_sum(ps_shard *shard, const ps_entry *entry)
{
    ps_aggregate *one = NULL;
    while ((one = ps_aggregates_next(shard->aggregates, entry->key, one)))
        if (one->arrived == one->mask && one->base == entry->version)
            break;
    return one;
}

static void apply_sum(ps_shard *shard, ps_aggregate *aggregate, ps_entry *entry)
{
    const uint32_t dim = shard->config.dim;
    float *row = ps_table_row(shard->table, entry);
    rt_assert(aggregate->arrived == aggregate->mask && aggregate->base == entry->version);
    rt_assert(aggregate->iteration > entry->version);
    ps_images_keep(&shard->images, shard->table, entry);
    ps_aggregates_sum(shard->aggregates, aggregate, shard->sum);
    if (aggregate->step == RT_WIRE_NO_STEP) {
        shard->statistics.steps_skipped++;
    } else {
        rt_optimizer_step(&shard->config.optimizer, dim, aggregate->place, row, row + dim,
                          shard->sum);
        shard->statistics.steps++;
    }
    entry->version = aggregate->iteration;
    ps_aggregates_close(shard->aggregates, aggregate);
}

// Follows a change of the row's version: pulls first, because they ask for this very version.
rt_status ps_shard_row_changed(ps_shard *shard, ps_entry *entry, rt_error *error)
{
    for (;;) {
        rt_status status = ps_shard_wake_pulls(shard, entry, error);
        if (status || !ps_aggregates_count(shard->aggregates))
            return status;
        ps_aggregate *aggregate = ready_sum(shard, entry);
        if (!aggregate)
            return RT_OK;
        apply_sum(shard, aggregate, entry);
    }
}

// ---- PUSH_GRAD -------------------------------------------------------------------------------

static rt_status check_iteration(const ps_shard *shard, const ps_request *in, rt_error *error)
{
    if (in->iteration == 0)
        return rt_fail(error, RT_WIRE,
                       "worker %u: %s of iteration %" PRIu64 ", which no version can be",
                       in->worker, rt_message_type_name(in->type), in->iteration);
    if (!rt_optimizer_place_fits(in->place, shard->config.optimizer.batch_samples))
        return rt_fail(error, RT_WIRE,
                       "worker %u: %s of iteration %" PRIu64 " for step %" PRIu32
                       " of the optimizer, with %" PRIu64 " samples: impossible",
                       in->worker, rt_message_type_name(in->type), in->iteration,
                       (uint32_t)in->place, in->place >> RT_OPTIMIZER_PART);
    return RT_OK;
}

// What can be said of a gradient by itself.
static rt_status check_grad(const ps_shard *shard, const ps_request *in, const rt_wire_grad *grad,
                            rt_error *error)
{
    const uint64_t mask = grad->mask;
    if (!(grad->mask & rt_bit(in->worker)))
        return ps_reject(in, grad->key, error, "mask %" PRIx64 " lacks the sender", mask);
    if (grad->mask & ~shard->workers)
        return ps_reject(in, grad->key, error, "mask %" PRIx64 " names workers beyond %u", mask,
                         shard->config.worker_count - 1);
    if (grad->base >= in->iteration)
        return ps_reject(in, grad->key, error, "base %u is not an earlier iteration", grad->base);
    if (grad->step > RT_WIRE_NO_STEP)
        return ps_reject(in, grad->key, error, "step %u, expected 0 (a step) or 1 (none)",
                         grad->step);
    return RT_OK;
}

// Against what is known of the key's sums.
static rt_status check_against_sums(ps_shard *shard, const ps_request *in, const rt_wire_grad *grad,
                                    rt_error *error)
{
    const ps_aggregate *one = NULL;
    while ((one = ps_aggregates_next(shard->aggregates, grad->key, one))) {
        if (one->iteration == in->iteration) {
            if (one->arrived & rt_bit(in->worker))
                return ps_reject(in, grad->key, error, "sent twice");
            if (one->step != grad->step)
                return ps_reject(in, grad->key, error, "step %u, others have %u", grad->step,
                                 one->step);
            if (one->place != in->place)
                return ps_reject(in, grad->key, error,
                                 "step %u of the optimizer, with %u samples: others have %u, %u",
                                 (uint32_t)in->place, (uint32_t)(in->place >> RT_OPTIMIZER_PART),
                                 (uint32_t)one->place, (uint32_t)(one->place >> RT_OPTIMIZER_PART));
            if (one->mask != grad->mask || one->base != grad->base)
                return ps_reject(in, grad->key, error,
                                 "mask %" PRIx64 " base %u, others have %" PRIx64 " base %u",
                                 grad->mask, grad->base, one->mask, one->base);
        } else if (one->base == grad->base) {
            return ps_reject(in, grad->key, error, "base %u is that of iteration %u too",
                             grad->base, one->iteration);
        }
    }
    return RT_OK;
}

// entry: of its row; NULL: it has none.
static rt_status check_record(ps_shard *shard, const ps_request *in, uint32_t i,
                              const ps_entry *entry, rt_error *error)
{
    const rt_wire_grad grad = ps_grad_at(in, i);
    rt_status status = ps_shard_check_key(shard, in, grad.key, error);
    if (status)
        return status;
    status = check_grad(shard, in, &grad, error);
    if (status)
        return status;
    status = check_against_sums(shard, in, &grad, error);
    if (status)
        return status;
    if (entry && entry->version > grad.base)
        return ps_reject(in, grad.key, error, "base %u, but the row has version %u", grad.base,
                         entry->version);
    return RT_OK;
}

static rt_status check_records(ps_shard *shard, const ps_request *in, rt_error *error)
{
    ps_found block[PS_BLOCK];
    for (uint32_t from = 0, count; from < in->count; from += count) {
        count = ps_shard_find_block(shard, in, from, block);
        for (uint32_t i = 0; i < count; i++) {
            const rt_status status = check_record(shard, in, from + i, block[i].entry, error);
            if (status)
                return status;
        }
    }
    return RT_OK;
}

rt_status ps_shard_check_grads(ps_shard *shard, const ps_request *in, rt_error *error)
{
    rt_status status = check_iteration(shard, in, error);
    if (status)
        return status;
    status = check_records(shard, in, error);
    if (status)
        return status;
    const uint32_t waiting = ps_aggregates_gradients(shard->aggregates);
    if ((uint64_t)waiting + in->count > shard->gradients_max)
        return rt_fail(error, RT_LIMIT,
                       "worker %u: %u gradients while %u wait for other workers, at most %u fit "
                       "into %" PRIu64 " bytes",
                       in->worker, in->count, waiting, shard->gradients_max,
                       shard->config.gradient_bytes_max);
    if (ps_aggregates_reserve(shard->aggregates, in->count))
        return rt_fail(error, RT_NO_MEMORY, "out of memory: gradients of worker %u", in->worker);
    return ps_shard_reserve_rows(shard, in, error);
}

static rt_status add_gradient(ps_shard *shard, const ps_request *in, uint32_t i, rt_error *error)
{
    const rt_wire_grad grad = ps_grad_at(in, i);
    ps_aggregates *aggregates = shard->aggregates;
    ps_aggregate *sum = ps_aggregates_find(aggregates, grad.key, (uint32_t)in->iteration);
    if (!sum)
        sum = ps_aggregates_open(aggregates, grad.key, (uint32_t)in->iteration);
    else if (sum->arrived & rt_bit(in->worker))
        return ps_reject(in, grad.key, error, "twice in one message");
    sum->mask = grad.mask;
    sum->base = grad.base;
    sum->step = grad.step;
    sum->place = in->place;
    ps_aggregates_add(aggregates, sum, in->worker, ps_record_at(in, i) + sizeof grad);
    if (sum->arrived != sum->mask)
        return RT_OK;
    ps_entry *entry = ps_table_find(shard->table, grad.key);
    if (!entry && grad.base == 0)
        entry = ps_shard_create_row(shard, grad.key);
    if (!entry || entry->version != grad.base)
        return RT_OK;
    apply_sum(shard, sum, entry);
    return ps_shard_row_changed(shard, entry, error);
}

rt_status ps_shard_apply_grads(ps_shard *shard, const ps_request *in, rt_error *error)
{
    for (uint32_t i = 0; i < in->count; i++) {
        rt_status status = add_gradient(shard, in, i, error);
        if (status)
            return status;
    }
    shard->statistics.gradients += in->count;
    return ps_outbox_notify(shard->outbox, in->worker, RT_MESSAGE_PUSHED, in->iteration, error);
}
