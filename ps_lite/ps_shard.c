#include "ps_lite/ps_shard.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "ps_lite/ps_shard_parts.h"
#include "runtime/rt_hash.h"

#define BLOCK 32u              // records whose index lines and rows load while others are worked on
#define GRADIENT_OVERHEAD 104u // bytes of bookkeeping, about, per gradient that waits

// Records of odd dimensions stand at any multiple of 4.
static inline uint64_t key_at(const ps_request *in, uint32_t i)
{
    uint64_t key;
    memcpy(&key, ps_record_at(in, i), sizeof key);
    return key;
}

static inline rt_wire_pull pull_at(const ps_request *in, uint32_t i)
{
    rt_wire_pull pull;
    memcpy(&pull, ps_record_at(in, i), sizeof pull);
    return pull;
}

static inline rt_wire_row row_at(const ps_request *in, uint32_t i)
{
    rt_wire_row row;
    memcpy(&row, ps_record_at(in, i), sizeof row);
    return row;
}

static inline rt_wire_grad grad_at(const ps_request *in, uint32_t i)
{
    rt_wire_grad grad;
    memcpy(&grad, ps_record_at(in, i), sizeof grad);
    return grad;
}

__attribute__((format(printf, 4, 5))) static rt_status
reject(const ps_request *in, uint64_t key, rt_error *error, const char *format, ...)
{
    char what[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    return rt_fail(error, RT_WIRE, "worker %u: %s of iteration %llu, key %016llx: %s", in->worker,
                   rt_message_type_name(in->type), (unsigned long long)in->iteration,
                   (unsigned long long)key, what);
}

// ---- Creation

static ps_table_config table_config(const ps_shard *shard)
{
    // Where changes are added, every row has its number of pulls behind it.
    return (ps_table_config){shard->row_floats + shard->config.adds_deltas,
                             shard->config.memory_bytes_max};
}

static rt_status create_parts(ps_shard *shard)
{
    const ps_shard_config *config = &shard->config;
    const ps_table_config table = table_config(shard);
    const ps_dense_config dense = {.worker_count = config->worker_count,
                                   .bytes_max = config->dense_bytes_max,
                                   .keeps = config->keeps_dense,
                                   .optimizer = config->dense_optimizer};
    const ps_outbox_config outbox = {.self = rt_peer(RT_ROLE_PS, config->rank),
                                     .epoch = config->epoch,
                                     .worker_count = config->worker_count,
                                     .message_bytes = config->message_bytes,
                                     .queue_messages_max = config->queue_messages_max,
                                     .send = config->send,
                                     .context = config->context};
    rt_status status = ps_table_create(&table, &shard->table);
    if (status == RT_OK)
        status = ps_parked_create(&shard->parked);
    if (status == RT_OK)
        status = ps_aggregates_create(config->dim, &shard->aggregates);
    if (status == RT_OK && config->adds_deltas)
        status = ps_aggregates_create(shard->row_floats, &shard->deltas);
    if (status == RT_OK)
        status = ps_dense_create(&dense, &shard->dense);
    if (status == RT_OK)
        status = ps_outbox_create(&outbox, &shard->outbox);
    if (status != RT_OK)
        return status;
    shard->sum = rt_alloc(shard->row_floats, sizeof *shard->sum);
    shard->parked_counts = rt_alloc(config->worker_count, sizeof *shard->parked_counts);
    return shard->sum && shard->parked_counts ? RT_OK : RT_NO_MEMORY;
}

rt_status ps_shard_create(const ps_shard_config *config, ps_shard **shard_p)
{
    rt_assert(config->rank < config->shard_count && config->dim > 0);
    rt_assert(config->worker_count > 0 && config->worker_count <= RT_WORKERS_MAX);
    ps_shard *shard = rt_alloc(1, sizeof *shard);
    if (!shard)
        return RT_NO_MEMORY;
    const uint64_t gradient_bytes = config->dim * sizeof(float) + GRADIENT_OVERHEAD;
    shard->config = *config;
    shard->row_floats = config->dim + rt_optimizer_state_floats(&config->optimizer, config->dim);
    shard->gradients_max =
        (uint32_t)rt_min_u64(config->gradient_bytes_max / gradient_bytes, UINT32_MAX / 4);
    shard->workers = rt_bits_below(config->worker_count);
    rt_status status = create_parts(shard);
    if (status != RT_OK) {
        ps_shard_destroy(shard);
        return status;
    }
    *shard_p = shard;
    return RT_OK;
}

void ps_shard_destroy(ps_shard *shard)
{
    if (!shard)
        return;
    ps_table_destroy(shard->table);
    ps_parked_destroy(shard->parked);
    ps_aggregates_destroy(shard->aggregates);
    ps_aggregates_destroy(shard->deltas);
    ps_dense_destroy(shard->dense);
    ps_outbox_destroy(shard->outbox);
    rt_free(shard->sum);
    rt_free(shard->parked_counts);
    rt_free(shard);
}

// ---- Rows

// After a reserve; the key has no row.
ps_entry *ps_shard_create_row(ps_shard *shard, uint64_t key)
{
    ps_entry *entry = ps_table_insert(shard->table, key);
    float *row = ps_table_row(shard->table, entry);
    rt_row_init(key, shard->config.seed, shard->config.init_scale, shard->config.dim, row);
    rt_optimizer_init_state(&shard->config.optimizer, shard->config.dim, row + shard->config.dim);
    if (shard->deltas)
        ps_row_set_pulls(shard, row, 0);
    shard->statistics.rows_created++;
    return entry;
}

static rt_status write_row(ps_shard *shard, uint32_t worker, rt_message_type type,
                           uint64_t iteration, rt_wire_row head, const float *floats,
                           uint32_t count, rt_error *error)
{
    uint8_t *record;
    rt_status status = ps_outbox_record(shard->outbox, worker, type, iteration,
                                        sizeof head + count * sizeof *floats, &record, error);
    if (status != RT_OK)
        return status;
    memcpy(record, &head, sizeof head);
    memcpy(record + sizeof head, floats, count * sizeof *floats);
    return RT_OK;
}

static rt_status answer_pull(ps_shard *shard, uint32_t worker, uint64_t iteration, uint32_t tag,
                             ps_found found, rt_error *error)
{
    const rt_wire_row head = {found.entry->key, found.entry->version, tag};
    const uint32_t count = tag & RT_WIRE_TAG_STATE ? shard->row_floats : shard->config.dim;
    if (shard->deltas)
        ps_row_set_pulls(shard, found.row, ps_row_pulls(shard, found.row) + 1);
    return write_row(shard, worker, RT_MESSAGE_ROWS, iteration, head, found.row, count, error);
}

rt_status ps_shard_wake_pulls(ps_shard *shard, ps_entry *entry, rt_error *error)
{
    ps_parked_pull pull;
    while (ps_parked_count(shard->parked) &&
           ps_parked_take(shard->parked, entry->key, entry->version, &pull)) {
        const ps_found found = {entry, ps_table_row(shard->table, entry)};
        shard->parked_counts[pull.worker]--;
        rt_status status = answer_pull(shard, pull.worker, pull.iteration, pull.tag, found, error);
        if (status != RT_OK)
            return status;
    }
    return RT_OK;
}

// The sum that is complete and applies to the row as it is.
static ps_aggregate *ready_sum(ps_shard *shard, const ps_entry *entry)
{
    ps_aggregate *one = NULL;
    while ((one = ps_aggregates_next(shard->aggregates, entry->key, one)))
        if (rt_wire_is_for_ps(one->keeper) && one->arrived == one->mask &&
            one->base == entry->version)
            break;
    return one;
}

static void apply_sum(ps_shard *shard, ps_aggregate *aggregate, ps_entry *entry)
{
    const uint32_t dim = shard->config.dim;
    float *row = ps_table_row(shard->table, entry);
    const bool steps = aggregate->keeper != RT_WIRE_NO_STEP;
    ps_aggregates_sum(shard->aggregates, aggregate, shard->sum);
    if (steps)
        rt_optimizer_step(&shard->config.optimizer, dim, aggregate->iteration, row, row + dim,
                          shard->sum);
    *(steps ? &shard->statistics.steps : &shard->statistics.steps_skipped) += 1;
    entry->version = aggregate->iteration;
    ps_aggregates_close(shard->aggregates, aggregate);
}

// Follows a change of the row's version: pulls first, because they ask for this very version.
static rt_status row_changed(ps_shard *shard, ps_entry *entry, rt_error *error)
{
    for (;;) {
        rt_status status = ps_shard_wake_pulls(shard, entry, error);
        if (status != RT_OK || !ps_aggregates_count(shard->aggregates))
            return status;
        ps_aggregate *aggregate = ready_sum(shard, entry);
        if (!aggregate)
            return RT_OK;
        apply_sum(shard, aggregate, entry);
    }
}

// ---- Walking over records

static uint32_t take_keys(const ps_request *in, uint32_t from, uint64_t keys[BLOCK])
{
    const uint32_t count = (uint32_t)rt_min_u64(BLOCK, in->count - from);
    for (uint32_t i = 0; i < count; i++)
        keys[i] = key_at(in, from + i);
    return count;
}

// Rows of up to BLOCK records from `from` on, on their way into the cache, as are the index lines
// of the BLOCK after that.
static uint32_t find_block(const ps_shard *shard, const ps_request *in, uint32_t from,
                           ps_found found[BLOCK])
{
    uint64_t keys[BLOCK];
    const uint32_t count = take_keys(in, from, keys);
    if (from == 0)
        ps_table_prefetch(shard->table, keys, count);
    ps_table_find_all(shard->table, keys, count, found);
    const uint32_t next_count = take_keys(in, from + count, keys);
    ps_table_prefetch(shard->table, keys, next_count);
    return count;
}

rt_status ps_shard_check_key(const ps_shard *shard, const ps_request *in, uint64_t key, rt_error *error)
{
    if (shard->config.shard_count == 1 || shard->config.homes == RT_HOMES_PLANNED)
        return RT_OK;
    const uint32_t owner = rt_key_shard(key, shard->config.shard_count);
    if (RT_LIKELY(owner == shard->config.rank))
        return RT_OK;
    return reject(in, key, error, "belongs to shard %u of %u, this is shard %u", owner,
                  shard->config.shard_count, shard->config.rank);
}

// Whether the record makes a row when its key has none.
static bool creates(const ps_request *in, uint32_t i)
{
    if (in->type == RT_MESSAGE_PUSH_DELTA) {
        rt_wire_delta delta;
        memcpy(&delta, ps_record_at(in, i), sizeof delta);
        return delta.base == 0;
    }
    if (in->type == RT_MESSAGE_PUSH_GRAD)
        return grad_at(in, i).base == 0 && rt_wire_is_for_ps(grad_at(in, i).keeper);
    return in->type == RT_MESSAGE_PUSH_ROW ||
           (in->type == RT_MESSAGE_PULL && pull_at(in, i).version == 0);
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
        missing += creates(in, i) && !ps_table_find(shard->table, key_at(in, i));
    return ps_table_reserve(shard->table, missing, error);
}

static rt_status check_parked(const ps_shard *shard, const ps_request *in, rt_error *error)
{
    const uint32_t parked = shard->parked_counts[in->worker];
    if ((uint64_t)parked + in->count <= shard->config.pulls_parked_max)
        return RT_OK;
    return rt_fail(error, RT_LIMIT, "worker %u: %u pulls while %u wait, at most %u may", in->worker,
                   in->count, parked, shard->config.pulls_parked_max);
}

// ---- PULL

static rt_status check_pulls(ps_shard *shard, const ps_request *in, rt_error *error)
{
    rt_status status = check_parked(shard, in, error);
    for (uint32_t i = 0; status == RT_OK && i < in->count; i++)
        status = ps_shard_check_key(shard, in, key_at(in, i), error);
    if (status == RT_OK)
        status = ps_shard_reserve_rows(shard, in, error);
    if (status == RT_OK && ps_parked_reserve(shard->parked, in->count) != RT_OK)
        status = rt_fail(error, RT_NO_MEMORY, "out of memory: pulls of worker %u", in->worker);
    return status;
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
    entry = entry ? entry : ps_shard_create_row(shard, key);
    return (ps_found){entry, ps_table_row(shard->table, entry)};
}

static rt_status apply_pulls(ps_shard *shard, const ps_request *in, rt_error *error)
{
    ps_found block[BLOCK];
    for (uint32_t from = 0, count; from < in->count; from += count) {
        count = find_block(shard, in, from, block);
        for (uint32_t i = 0; i < count; i++) {
            const rt_wire_pull pull = pull_at(in, from + i);
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
            if (status != RT_OK)
                return status;
        }
    }
    const uint64_t parked = ps_parked_count(shard->parked);
    ps_shard_statistics *statistics = &shard->statistics;
    statistics->pulls += in->count;
    statistics->pulls_parked_max = rt_max_u64(statistics->pulls_parked_max, parked);
    return RT_OK;
}

// ---- PUSH_ROW

static rt_status check_row(ps_shard *shard, const ps_request *in, uint32_t i, rt_error *error)
{
    const rt_wire_row row = row_at(in, i);
    rt_status status = ps_shard_check_key(shard, in, row.key, error);
    if (status != RT_OK)
        return status;
    if (row.version == 0)
        return reject(in, row.key, error, "version 0, which is never pushed");
    if (!ps_aggregates_count(shard->aggregates))
        return RT_OK;
    const ps_aggregate *one = NULL;
    while ((one = ps_aggregates_next(shard->aggregates, row.key, one)))
        if (rt_wire_is_for_ps(one->keeper) && one->base < row.version)
            return reject(in, row.key, error,
                          "version %u, while gradients of iteration %u wait for version %u",
                          row.version, one->iteration, one->base);
    return RT_OK;
}

static rt_status check_rows(ps_shard *shard, const ps_request *in, rt_error *error)
{
    rt_status status = RT_OK;
    for (uint32_t i = 0; status == RT_OK && i < in->count; i++)
        status = check_row(shard, in, i, error);
    return status == RT_OK ? ps_shard_reserve_rows(shard, in, error) : status;
}

static rt_status store_row(ps_shard *shard, const ps_request *in, uint32_t i, ps_found found,
                           rt_error *error)
{
    const rt_wire_row row = row_at(in, i);
    if (!found.entry) {
        found.entry = ps_table_find(shard->table, row.key); // twice in this message?
        if (!found.entry)
            found.entry = ps_table_insert(shard->table, row.key);
        found.row = ps_table_row(shard->table, found.entry);
    }
    if (row.version <= found.entry->version) {
        shard->statistics.row_pushes_ignored++;
        return RT_OK;
    }
    memcpy(found.row, ps_record_at(in, i) + sizeof row, shard->row_floats * sizeof(float));
    found.entry->version = row.version;
    return row_changed(shard, found.entry, error);
}

static rt_status apply_rows(ps_shard *shard, const ps_request *in, rt_error *error)
{
    ps_found block[BLOCK];
    for (uint32_t from = 0, count; from < in->count; from += count) {
        count = find_block(shard, in, from, block);
        for (uint32_t i = 0; i < count; i++) {
            rt_status status = store_row(shard, in, from + i, block[i], error);
            if (status != RT_OK)
                return status;
        }
    }
    shard->statistics.row_pushes += in->count;
    return ps_outbox_notify(shard->outbox, in->worker, RT_MESSAGE_PUSHED, in->iteration, error);
}

// ---- PUSH_GRAD, PULL_SUM

static rt_status check_iteration(const ps_request *in, rt_error *error)
{
    if (in->iteration > 0 && in->iteration <= UINT32_MAX)
        return RT_OK;
    return rt_fail(error, RT_WIRE, "worker %u: %s of iteration %llu, which no version can be",
                   in->worker, rt_message_type_name(in->type), (unsigned long long)in->iteration);
}

// What can be said of a gradient by itself.
static rt_status check_grad(const ps_shard *shard, const ps_request *in, const rt_wire_grad *grad,
                            rt_error *error)
{
    const unsigned long long mask = grad->mask;
    if (!(grad->mask & rt_bit(in->worker)))
        return reject(in, grad->key, error, "mask %llx lacks the sender", mask);
    if (grad->mask & ~shard->workers)
        return reject(in, grad->key, error, "mask %llx names workers beyond %u", mask,
                      shard->config.worker_count - 1);
    if (grad->base >= in->iteration)
        return reject(in, grad->key, error, "base %u is not an earlier iteration", grad->base);
    if (rt_wire_is_for_ps(grad->keeper))
        return RT_OK;
    if (grad->keeper >= shard->config.worker_count)
        return reject(in, grad->key, error, "keeper %u is not a worker of this run", grad->keeper);
    if (grad->mask & rt_bit(grad->keeper))
        return reject(in, grad->key, error, "mask %llx holds the keeper %u", mask, grad->keeper);
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
                return reject(in, grad->key, error, "sent twice");
            if (one->keeper != grad->keeper)
                return reject(in, grad->key, error, "keeper %d, others have %d", (int)grad->keeper,
                              (int)one->keeper);
            if (one->mask && (one->mask != grad->mask || one->base != grad->base))
                return reject(in, grad->key, error, "mask %llx base %u, others have %llx base %u",
                              (unsigned long long)grad->mask, grad->base,
                              (unsigned long long)one->mask, one->base);
        } else if (rt_wire_is_for_ps(one->keeper) && rt_wire_is_for_ps(grad->keeper) &&
                   one->base == grad->base) {
            return reject(in, grad->key, error, "base %u is that of iteration %u too", grad->base,
                          one->iteration);
        }
    }
    return RT_OK;
}

static rt_status check_grads(ps_shard *shard, const ps_request *in, rt_error *error)
{
    rt_status status = check_iteration(in, error);
    ps_found block[BLOCK];
    for (uint32_t from = 0, count; status == RT_OK && from < in->count; from += count) {
        count = find_block(shard, in, from, block);
        for (uint32_t i = 0; status == RT_OK && i < count; i++) {
            const rt_wire_grad grad = grad_at(in, from + i);
            status = ps_shard_check_key(shard, in, grad.key, error);
            if (status == RT_OK)
                status = check_grad(shard, in, &grad, error);
            if (status == RT_OK)
                status = check_against_sums(shard, in, &grad, error);
            if (status == RT_OK && rt_wire_is_for_ps(grad.keeper) && block[i].entry &&
                block[i].entry->version > grad.base)
                status = reject(in, grad.key, error, "base %u, but the row has version %u",
                                grad.base, block[i].entry->version);
        }
    }
    if (status != RT_OK)
        return status;
    const uint32_t waiting = ps_aggregates_gradients(shard->aggregates);
    if ((uint64_t)waiting + in->count > shard->gradients_max)
        return rt_fail(error, RT_LIMIT,
                       "worker %u: %u gradients while %u wait for other workers, at most %u fit "
                       "into %llu bytes",
                       in->worker, in->count, waiting, shard->gradients_max,
                       (unsigned long long)shard->config.gradient_bytes_max);
    if (ps_aggregates_reserve(shard->aggregates, in->count) != RT_OK)
        return rt_fail(error, RT_NO_MEMORY, "out of memory: gradients of worker %u", in->worker);
    return ps_shard_reserve_rows(shard, in, error);
}

static rt_status answer_sum(ps_shard *shard, ps_aggregate *aggregate, rt_error *error)
{
    const rt_wire_row head = {aggregate->key, aggregate->iteration, aggregate->pull_tag};
    const uint32_t keeper = aggregate->keeper;
    const uint64_t iteration = aggregate->pull_iteration;
    ps_aggregates_sum(shard->aggregates, aggregate, shard->sum);
    ps_aggregates_close(shard->aggregates, aggregate);
    shard->parked_counts[keeper]--;
    shard->statistics.sums_pulled++;
    return write_row(shard, keeper, RT_MESSAGE_SUM_ROWS, iteration, head, shard->sum,
                     shard->config.dim, error);
}

static rt_status add_gradient(ps_shard *shard, const ps_request *in, uint32_t i, rt_error *error)
{
    const rt_wire_grad grad = grad_at(in, i);
    ps_aggregates *aggregates = shard->aggregates;
    ps_aggregate *sum = ps_aggregates_find(aggregates, grad.key, (uint32_t)in->iteration);
    if (!sum)
        sum = ps_aggregates_open(aggregates, grad.key, (uint32_t)in->iteration);
    else if (sum->arrived & rt_bit(in->worker))
        return reject(in, grad.key, error, "twice in one message");
    sum->mask = grad.mask;
    sum->base = grad.base;
    sum->keeper = grad.keeper;
    ps_aggregates_add(aggregates, sum, in->worker, ps_record_at(in, i) + sizeof grad);
    if (sum->arrived != sum->mask)
        return RT_OK;
    if (!rt_wire_is_for_ps(sum->keeper))
        return sum->pulled ? answer_sum(shard, sum, error) : RT_OK;
    ps_entry *entry = ps_table_find(shard->table, grad.key);
    if (!entry && grad.base == 0)
        entry = ps_shard_create_row(shard, grad.key);
    if (!entry || entry->version != grad.base)
        return RT_OK;
    apply_sum(shard, sum, entry);
    return row_changed(shard, entry, error);
}

static rt_status apply_grads(ps_shard *shard, const ps_request *in, rt_error *error)
{
    for (uint32_t i = 0; i < in->count; i++) {
        rt_status status = add_gradient(shard, in, i, error);
        if (status != RT_OK)
            return status;
    }
    shard->statistics.gradients += in->count;
    return ps_outbox_notify(shard->outbox, in->worker, RT_MESSAGE_PUSHED, in->iteration, error);
}

static rt_status check_sum_pulls(ps_shard *shard, const ps_request *in, rt_error *error)
{
    rt_status status = check_parked(shard, in, error);
    for (uint32_t i = 0; status == RT_OK && i < in->count; i++) {
        const rt_wire_pull pull = pull_at(in, i);
        status = ps_shard_check_key(shard, in, pull.key, error);
        if (status != RT_OK)
            return status;
        if (pull.version == 0)
            return reject(in, pull.key, error, "version 0, which no sum makes");
        const ps_aggregate *sum = ps_aggregates_find(shard->aggregates, pull.key, pull.version);
        if (sum && sum->keeper != in->worker)
            return reject(in, pull.key, error, "the sum of iteration %u is for keeper %d",
                          pull.version, (int)sum->keeper);
        if (sum && sum->pulled)
            return reject(in, pull.key, error, "the sum of iteration %u is asked for twice",
                          pull.version);
    }
    if (status == RT_OK && ps_aggregates_reserve(shard->aggregates, in->count) != RT_OK)
        status = rt_fail(error, RT_NO_MEMORY, "out of memory: pulls of worker %u", in->worker);
    return status;
}

static rt_status apply_sum_pulls(ps_shard *shard, const ps_request *in, rt_error *error)
{
    for (uint32_t i = 0; i < in->count; i++) {
        const rt_wire_pull pull = pull_at(in, i);
        ps_aggregate *sum = ps_aggregates_find(shard->aggregates, pull.key, pull.version);
        if (!sum)
            sum = ps_aggregates_open(shard->aggregates, pull.key, pull.version);
        else if (sum->pulled)
            return reject(in, pull.key, error, "twice in one message");
        sum->keeper = in->worker;
        sum->pulled = true;
        sum->pull_tag = pull.tag;
        sum->pull_iteration = in->iteration;
        shard->parked_counts[in->worker]++;
        if (!sum->mask || sum->arrived != sum->mask)
            continue;
        rt_status status = answer_sum(shard, sum, error);
        if (status != RT_OK)
            return status;
    }
    return RT_OK;
}

// ---- Messages

static rt_status receive_dense(ps_shard *shard, uint32_t worker, rt_message *message,
                               rt_error *error)
{
    ps_dense_answer answer;
    rt_status status = ps_dense_receive(shard->dense, worker, message, &answer, error);
    if (status == RT_OK && answer.message.data) {
        const uint32_t type = rt_message_header(&answer.message)->type;
        shard->statistics.dense_sums += type != RT_MESSAGE_DENSE_JOINED;
        status = ps_outbox_send_to(shard->outbox, answer.workers, &answer.message, error);
    }
    while (status == RT_OK && (status = ps_dense_next(shard->dense, &answer)) == RT_OK) {
        shard->statistics.dense_pieces++;
        status = ps_outbox_send_to(shard->outbox, answer.workers, &answer.message, error);
    }
    if (status == RT_NO_MEMORY)
        rt_fail(error, status, "out of memory: dense sums and weights");
    return status == RT_AGAIN ? RT_OK : status;
}

typedef struct {
    rt_message_type type;
    size_t head_size;
    uint32_t floats; // after the head
    rt_status (*check)(ps_shard *shard, const ps_request *in, rt_error *error);
    rt_status (*apply)(ps_shard *shard, const ps_request *in, rt_error *error);
} handler;

static rt_status handle(ps_shard *shard, const handler *how, uint32_t worker,
                        const rt_message *message, rt_error *error)
{
    const rt_wire_header *header = rt_message_header(message);
    const ps_request in = {.type = how->type,
                        .worker = worker,
                        .iteration = header->iteration,
                        .count = header->count,
                        .record_size = how->head_size + how->floats * sizeof(float),
                        .records = rt_message_payload(message)};
    if ((uint64_t)in.count * in.record_size != header->payload_bytes)
        return rt_fail(error, RT_WIRE,
                       "worker %u: %s of iteration %llu: %u records of %zu bytes "
                       "do not make its payload of %llu bytes",
                       worker, rt_message_type_name(in.type), (unsigned long long)in.iteration,
                       in.count, in.record_size, (unsigned long long)header->payload_bytes);
    rt_status status = how->check(shard, &in, error);
    return status == RT_OK ? how->apply(shard, &in, error) : status;
}

static rt_status dispatch(ps_shard *shard, uint32_t worker, rt_message *message, rt_error *error)
{
    const handler handlers[] = {
        {RT_MESSAGE_PULL, sizeof(rt_wire_pull), 0, check_pulls, apply_pulls},
        {RT_MESSAGE_PUSH_ROW, sizeof(rt_wire_row), shard->row_floats, check_rows, apply_rows},
        {RT_MESSAGE_PUSH_GRAD, sizeof(rt_wire_grad), shard->config.dim, check_grads, apply_grads},
        {RT_MESSAGE_PUSH_DELTA, sizeof(rt_wire_delta), shard->row_floats, ps_shard_check_deltas,
         ps_shard_apply_deltas},
        {RT_MESSAGE_PULL_SUM, sizeof(rt_wire_pull), 0, check_sum_pulls, apply_sum_pulls},
        {RT_MESSAGE_FORGET, sizeof(rt_wire_pull), 0, ps_shard_check_forgets,
         ps_shard_apply_forgets},
    };
    const uint32_t type = rt_message_header(message)->type;
    if (ps_dense_takes(type))
        return receive_dense(shard, worker, message, error);
    for (size_t i = 0; i < RT_COUNT_OF(handlers); i++)
        if (handlers[i].type == type)
            return handle(shard, &handlers[i], worker, message, error);
    return rt_fail(error, RT_WIRE, "worker %u: a PS shard takes no %s", worker,
                   rt_message_type_name(type));
}

rt_status ps_shard_receive(ps_shard *shard, uint32_t peer, rt_message *message, rt_error *error)
{
    const uint32_t worker = rt_peer_rank(peer);
    rt_status status = RT_OK;
    char name[32];
    if (rt_peer_role(peer) != RT_ROLE_WORKER || worker >= shard->config.worker_count)
        status = rt_fail(error, RT_WIRE, "%s is not one of the %u workers of this run",
                         rt_peer_name(peer, name), shard->config.worker_count);
    else if (rt_message_header(message)->epoch != shard->config.epoch)
        shard->statistics.messages_discarded++;
    else
        status = dispatch(shard, worker, message, error);
    rt_message_release(message);
    *message = (rt_message){0};
    return status;
}

rt_status ps_shard_flush(ps_shard *shard, rt_error *error)
{
    return ps_outbox_flush(shard->outbox, error);
}

void ps_shard_get_statistics(const ps_shard *shard, ps_shard_statistics *statistics)
{
    *statistics = shard->statistics;
    statistics->rows = ps_table_count(shard->table);
    statistics->row_bytes = ps_table_bytes(shard->table);
    statistics->pulls_parked = ps_parked_count(shard->parked);
    statistics->gradients_waiting = ps_aggregates_gradients(shard->aggregates);
    statistics->deltas_waiting = shard->deltas ? ps_aggregates_gradients(shard->deltas) : 0;
}

const float *ps_shard_find(const ps_shard *shard, uint64_t key, uint32_t *version_p)
{
    const ps_entry *entry = ps_table_find(shard->table, key);
    if (!entry)
        return NULL;
    *version_p = entry->version;
    return ps_table_row(shard->table, entry);
}

// ---- Files

static ps_model_info info_of(const ps_shard *shard, uint64_t schema)
{
    const ps_shard_config *config = &shard->config;
    return (ps_model_info){.schema = schema,
                           .shard = config->rank,
                           .shard_count = config->shard_count,
                           .dim = config->dim,
                           .state_floats = shard->row_floats - config->dim,
                           .optimizer = config->optimizer.kind,
                           .homes = config->homes};
}

rt_status ps_shard_save(const ps_shard *shard, const rt_sink *sink, uint64_t schema,
                        const ps_cut *cut, ps_progress progress, void *context, rt_file_sum *sum_p,
                        rt_error *error)
{
    ps_model_info info = info_of(shard, schema);
    if (cut) {
        info.iteration = cut->iteration;
        info.base = cut->base;
        info.floor = cut->base ? shard->floor : 0;
        info.packed = true;
    }
    return ps_snapshot_write(shard->table, &info, sink, progress, context, sum_p, error);
}

rt_status ps_shard_load(ps_shard *shard, const char *path, uint64_t schema, ps_progress progress,
                        void *context, rt_file_sum *sum_p, rt_error *error)
{
    ps_model_info info = info_of(shard, schema);
    rt_status status =
        ps_snapshot_read(shard->table, &info, path, progress, context, sum_p, error);
    shard->floor = (uint32_t)rt_max_u64(shard->floor, info.floor);
    return status;
}

rt_status ps_shard_clear(ps_shard *shard)
{
    const ps_table_config config = table_config(shard);
    ps_table *empty;
    rt_status status = ps_table_create(&config, &empty);
    if (status != RT_OK)
        return status;
    ps_table_destroy(shard->table);
    shard->table = empty;
    shard->floor = 0;
    return RT_OK;
}

rt_status ps_shard_expire(ps_shard *shard, uint32_t floor, ps_progress progress, void *context,
                          uint64_t *ended_p, rt_error *error)
{
    const uint64_t before = ps_table_count(shard->table);
    uint64_t at = 0;
    rt_status status = RT_OK;
    if (ps_parked_count(shard->parked) || ps_aggregates_count(shard->aggregates) ||
        (shard->deltas && ps_aggregates_count(shard->deltas)))
        return rt_fail(error, RT_WIRE,
                       "coordinator: EXPIRE while %" PRIu32 " pulls and %" PRIu64
                       " gradients wait for their rows",
                       ps_parked_count(shard->parked),
                       (uint64_t)ps_aggregates_gradients(shard->aggregates));
    while (!status && ps_table_erase_below(shard->table, floor, &at))
        status = progress ? progress(context, -1, error) : RT_OK;
    shard->floor = (uint32_t)rt_max_u64(shard->floor, floor);
    *ended_p = before - ps_table_count(shard->table);
    shard->statistics.rows_ended += *ended_p;
    return status;
}

uint32_t ps_shard_keys(const ps_shard *shard, uint64_t from, uint32_t count_max,
                       rt_wire_key *records)
{
    uint32_t count = 0;
    for (uint64_t i = from; i < ps_table_count(shard->table) && count < count_max; i++) {
        const ps_entry *entry = ps_table_find(shard->table, ps_table_key(shard->table, i));
        records[count++] = (rt_wire_key){entry->key, entry->version, 0};
    }
    return count;
}

const ps_weights *ps_shard_weights(const ps_shard *shard)
{
    return ps_dense_weights(shard->dense);
}

void ps_shard_begin_epoch(ps_shard *shard, uint32_t epoch)
{
    shard->config.epoch = epoch;
    ps_outbox_begin_epoch(shard->outbox, epoch);
}
