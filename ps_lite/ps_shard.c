#include "ps_lite/ps_shard.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "ps_lite/ps_shard_parts.h"

#define GRADIENT_OVERHEAD 104u // bytes of bookkeeping, about, per gradient that waits

// ---- Creation --------------------------------------------------------------------------------

// All of it at the start: while it serves, a shard allocates messages, and rows as they come.
static rt_status create_parts(ps_shard *shard)
{
    const ps_shard_config *config = &shard->config;
    const ps_table_config table = ps_shard_table_config(shard);
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
    if (ps_table_create(&table, &shard->table) || ps_parked_create(&shard->parked) ||
        ps_aggregates_create(config->dim, &shard->aggregates) ||
        (config->adds_deltas && ps_aggregates_create(shard->row_floats, &shard->deltas)) ||
        ps_dense_create(&dense, &shard->dense) || ps_outbox_create(&outbox, &shard->outbox))
        return RT_NO_MEMORY;
    shard->sum = rt_alloc(shard->row_floats, sizeof *shard->sum);
    shard->parked_counts = rt_alloc(config->worker_count, sizeof *shard->parked_counts);
    if (!shard->sum || !shard->parked_counts)
        return RT_NO_MEMORY;
    return RT_OK;
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
    if (!config->adds_deltas) // numbers of pulls are in no file
        ps_images_init(&shard->images, shard->row_floats, config->image_bytes_max);
    rt_status status = create_parts(shard);
    if (status) {
        ps_shard_destroy(shard);
        return status;
    }
    *shard_p = shard;
    return RT_OK;
}

ps_store *ps_shard_store(const ps_shard *shard)
{
    return shard->config.store;
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
    ps_left_fini(&shard->left);
    ps_images_give_up(&shard->images);
    rt_free(shard);
}

// ---- Messages --------------------------------------------------------------------------------

// Weights that workers wait for, as far as they are there by now.
static rt_status send_weights(ps_shard *shard, rt_error *error)
{
    ps_dense_answer answer;
    for (;;) {
        rt_status status = ps_dense_next(shard->dense, &answer);
        if (status == RT_AGAIN)
            return RT_OK;
        if (status)
            return status;
        shard->statistics.dense_pieces++;
        status = ps_outbox_send_to(shard->outbox, answer.workers, &answer.message, error);
        if (status)
            return status;
    }
}

static rt_status take_dense(ps_shard *shard, uint32_t worker, rt_message *message, rt_error *error)
{
    ps_dense_answer answer;
    rt_status status = ps_dense_receive(shard->dense, worker, message, &answer, error);
    if (status)
        return status;
    if (answer.message.data) {
        const uint32_t type = rt_message_header(&answer.message)->type;
        shard->statistics.dense_sums += type != RT_MESSAGE_DENSE_JOINED;
        status = ps_outbox_send_to(shard->outbox, answer.workers, &answer.message, error);
        if (status)
            return status;
    }
    return send_weights(shard, error);
}

static rt_status receive_dense(ps_shard *shard, uint32_t worker, rt_message *message,
                               rt_error *error)
{
    const rt_status status = take_dense(shard, worker, message, error);
    if (status == RT_NO_MEMORY)
        return rt_fail(error, status, "out of memory: dense sums and weights");
    return status;
}

// What a message of rows is made of. All of it is checked before any of it is applied, so that one
// that is refused has changed nothing.
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
    ps_request in = {.type = how->type,
                     .worker = worker,
                     .iteration = header->iteration,
                     .count = header->count,
                     .record_size = how->head_size + how->floats * sizeof(float),
                     .records = rt_message_payload(message)};
    if (in.type == RT_MESSAGE_PUSH_GRAD) {
        in.iteration = (uint32_t)header->iteration;
        in.place = header->iteration - in.iteration + ((uint32_t)in.iteration - header->stamp);
    }
    if ((uint64_t)in.count * in.record_size != header->payload_bytes)
        return rt_fail(error, RT_WIRE,
                       "worker %u: %s of iteration %" PRIu64 ": %u records of %zu bytes "
                       "do not make its payload of %" PRIu64 " bytes",
                       worker, rt_message_type_name(in.type), in.iteration, in.count,
                       in.record_size, header->payload_bytes);
    ps_shard_announce_rows(shard, &in);
    const rt_status status = how->check(shard, &in, error);
    if (status)
        return status;
    return how->apply(shard, &in, error);
}

static rt_status dispatch(ps_shard *shard, uint32_t worker, rt_message *message, rt_error *error)
{
    const handler handlers[] = {
        {RT_MESSAGE_PULL, sizeof(rt_wire_pull), 0, ps_shard_check_pulls, ps_shard_apply_pulls},
        {RT_MESSAGE_PUSH_ROW, sizeof(rt_wire_row), shard->row_floats, ps_shard_check_rows,
         ps_shard_apply_rows},
        {RT_MESSAGE_PUSH_GRAD, sizeof(rt_wire_grad), shard->config.dim, ps_shard_check_grads,
         ps_shard_apply_grads},
        {RT_MESSAGE_PUSH_DELTA, sizeof(rt_wire_delta), shard->row_floats, ps_shard_check_deltas,
         ps_shard_apply_deltas},
        {RT_MESSAGE_FORGET, sizeof(rt_wire_pull), 0, ps_shard_check_forgets,
         ps_shard_apply_forgets},
        {RT_MESSAGE_PUSH_CHANGE, sizeof(rt_wire_change), ps_shard_change_floats(shard),
         ps_shard_check_changes, ps_shard_apply_changes},
    };
    const uint32_t type = rt_message_header(message)->type;
    if (ps_dense_takes(type))
        return receive_dense(shard, worker, message, error);
    if (type == RT_MESSAGE_PUSH_GRAD_CODED || type == RT_MESSAGE_PUSH_DELTA_CODED) {
        rt_message whole;
        rt_status status = ps_shard_decode_push(shard, worker, message, &whole, error);
        if (status)
            return status;
        rt_message_release(message);
        *message = whole;
        return dispatch(shard, worker, message, error);
    }
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
    statistics->image_bytes = shard->images.bytes;
    statistics->pulls_parked = ps_parked_count(shard->parked);
    statistics->gradients_waiting = ps_aggregates_gradients(shard->aggregates);
    statistics->deltas_waiting = 0;
    if (shard->deltas)
        statistics->deltas_waiting = ps_aggregates_gradients(shard->deltas);
}

const float *ps_shard_find(const ps_shard *shard, uint64_t key, uint32_t *version_p)
{
    const ps_entry *entry = ps_table_find(shard->table, key);
    if (!entry)
        return NULL;
    *version_p = entry->version;
    return ps_table_row(shard->table, entry);
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
