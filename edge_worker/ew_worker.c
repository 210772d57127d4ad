#include "edge_worker/ew_worker.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "edge_worker/ew_run.h"
#include "runtime/numbers/rt_optimizer.h"
#include "runtime/rt_thread.h"
#include "runtime/stream/rt_parser.h"

#define PUSH_CREDITS 64u
#define LINGER_MS 1000u

// ---- joining ---------------------------------------------------------------------------------

static rt_status send_to_shard(void *context, uint32_t shard, rt_message *message)
{
    ew_run *w = context;
    const size_t size = message->size;
    const uint32_t type = rt_message_header(message)->type;
    const uint64_t now_us = rt_now_ns() / 1000; // sending may wake others, who then run first
    rt_message_header(message)->epoch = w->member.welcome.epoch;
    rt_status status =
        rt_transport_send(w->config->ops, w->endpoints[1 + shard], ew_run_shard(w, shard), message);
    if (!status)
        bw_passive_sent(&w->link, shard, size, rt_message_is_push(type), now_us);
    return status;
}

// What the executor sends: to a shard, or behind those to another worker.
static rt_status send_rows(void *context, uint32_t partner, rt_message *message)
{
    ew_run *w = context;
    const size_t size = message->size;
    const uint64_t now_us = rt_now_ns() / 1000;
    if (partner < w->shard_count)
        return send_to_shard(w, partner, message);
    rt_status status = ew_peers_send(&w->peers, partner - w->shard_count, message);
    if (!status) // it shares the link with what goes to the shards
        bw_passive_sent(&w->link, 0, size, false, now_us);
    return status;
}

static rt_status greet_shard(ew_run *w, uint32_t shard, rt_error *error)
{
    rt_message message;
    const rt_wire_hello hello = rt_control_greet(ew_run_self_to_shards(w), &w->config->identity);
    rt_status status =
        rt_message_create(&message, RT_MESSAGE_HELLO, ew_run_self_to_shards(w), 0, 1, sizeof hello);
    if (!status) {
        memcpy(rt_message_payload(&message), &hello, sizeof hello);
        status = send_to_shard(w, shard, &message);
        rt_message_release(&message);
    }
    return status ? rt_fail(error, status, "cannot send to PS shard %" PRIu32, shard) : RT_OK;
}

static rt_status connect_shards(ew_run *w, rt_error *error)
{
    for (uint32_t s = 0; s < w->member.welcome.shard_count; s++) {
        rt_status status = w->config->ops->trust(w->transport, ew_run_shard(w, s),
                                                 w->member.welcome.shard_keys[s], error);
        if (status)
            return status;
        status = w->config->ops->connect(w->transport, ew_run_self_to_shards(w), ew_run_shard(w, s),
                                         w->member.welcome.shards[s], &w->endpoints[1 + s], error);
        if (status)
            return status;
        w->shard_count++;
        status = greet_shard(w, s, error);
        if (status)
            return status;
    }
    return RT_OK;
}

// The samples by which gradients are divided.
static uint32_t full_batch(const rt_config *config, const rt_wire_welcome *welcome)
{
    return rt_config_batch(config, welcome->worker_count);
}

// Of rows that this worker trains alone, and of those whose gradients it sums.
static rt_optimizer_config row_optimizer(const ew_run *w)
{
    const rt_config *config = w->config->config;
    const rt_wire_welcome *welcome = &w->member.welcome;
    return rt_optimizer_in_run(&config->optimizer_rows, welcome->row_rate,
                               full_batch(config, welcome));
}

static rt_status create_rows(ew_run *w, rt_error *error)
{
    const rt_config *config = w->config->config;
    const rt_optimizer_config optimizer = row_optimizer(w);
    uint32_t slots = w->member.welcome.slot_count, dim = config->model.embedding_dim;
    rt_status status;
    if (w->device.unified)
        status = ew_host_rows_init(&w->rows, slots, dim, &optimizer, config->seed,
                                   (float)config->model.init_scale);
    else
        status = ew_device_rows_init(&w->device_rows, &w->device, slots, dim, &optimizer,
                                     config->seed, (float)config->model.init_scale);
    if (!status && config->consistency.staleness > 0)
        status = ew_bases_init(&w->bases, slots, dim, &optimizer, config->seed,
                               (float)config->model.init_scale);
    if (!status && config->row_wire != RT_CODING_FP32)
        status = ew_codes_init(&w->codes, config->row_wire, w->bases.rows ? 0 : slots, dim,
                               config->seed, (float)config->model.init_scale);
    return status ? rt_fail(error, status, "out of memory for a cache of %" PRIu32 " rows", slots)
                  : RT_OK;
}

// What the stream's fields are, where that matters: the configuration says it.
static rt_status read_fields(ew_run *w, rt_error *error)
{
    const rt_config *config = w->config->config;
    if (config->stream.shared_count == 0)
        return RT_OK; // and no model has names of fields
    rt_schema *schema = rt_alloc(1, sizeof *schema);
    if (!schema)
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    rt_status status = rt_parser_read_schema(&config->stream, config->seed, schema, error);
    if (!status && schema->field_count != w->member.welcome.field_count)
        status = rt_fail(error, RT_CONFIG,
                         "stream: %" PRIu32 " fields here, the coordinator has %" PRIu32,
                         schema->field_count, w->member.welcome.field_count);
    w->tables = schema->tables;
    w->sequence_field = rt_schema_field(schema, config->model.sequence);
    w->target_field = rt_schema_field(schema, config->model.target);
    rt_free(schema);
    return status;
}

static rt_status create_model(ew_run *w, rt_error *error)
{
    const rt_config *config = w->config->config;
    const rt_wire_welcome *welcome = &w->member.welcome;
    ew_model_config model = {
        .model = config->model,
        .optimizer = rt_optimizer_in_run(&config->optimizer_dense, welcome->dense_rate,
                                         full_batch(config, welcome)),
        .seed = config->seed,
        .dense_count = welcome->dense_count,
        .field_count = welcome->field_count,
        .tables = w->tables,
        .sequence_field = w->sequence_field,
        .target_field = w->target_field,
        .sample_count_max = welcome->sample_count_max,
        .lookup_count_max = welcome->sample_count_max * welcome->keys_per_sample_max};
    ew_model_labels(&model, &config->stream);
    model.row_count_max = (uint32_t)rt_min_u64(model.lookup_count_max, welcome->slot_count);
    rt_status status = ew_model_create(&model, &w->device, &w->model, error);
    if (status)
        return status;
    status = create_rows(w, error);
    if (status)
        return status;
    bool unified = w->device.unified;
    ew_trainer_config trainer = {.device = &w->device,
                                 .model = w->model,
                                 .row_optimizer = row_optimizer(w),
                                 .slab = unified ? w->rows.slab : w->device_rows.slab,
                                 .slot_count = welcome->slot_count,
                                 .row_stride = unified ? w->rows.stride : w->device_rows.stride,
                                 .dim = config->model.embedding_dim,
                                 .row_count_max = model.row_count_max,
                                 .wake_fd = w->wake_fd};
    return ew_trainer_create(&trainer, &w->trainer, error);
}

static dp_slice_limits slice_limits(const rt_config *config, const rt_wire_welcome *welcome,
                                    uint32_t rank)
{
    const bool planned = config->ps_homes == RT_HOMES_PLANNED;
    return (dp_slice_limits){.dense_count = welcome->dense_count,
                             .more_labels = rt_config_label_count(&config->stream) - 1,
                             .field_count = welcome->field_count,
                             .worker_count = welcome->worker_count,
                             .rank = rank,
                             .batch_samples = full_batch(config, welcome),
                             .sample_count_max = welcome->sample_count_max,
                             .lookup_count_max =
                                 welcome->sample_count_max * welcome->keys_per_sample_max,
                             .slot_count = welcome->slot_count,
                             .shard_count = planned ? welcome->shard_count : 0,
                             .hands = config->dispatch.hand_over,
                             .sums = config->dispatch.reduce};
}

static rt_status create_exchange(ew_run *w, rt_error *error)
{
    const rt_config *config = w->config->config;
    uint32_t count;
    const bool keeps = rt_stripes_keep(config); // then it is ps, whatever there is
    ew_exchange_config exchange = {.collective = keeps ? RT_COLLECTIVE_PS : config->collective,
                                   .wire = config->dense_wire,
                                   .overlap = true,
                                   .rank = w->rank,
                                   .worker_count = w->member.welcome.worker_count,
                                   .shard_count =
                                       rt_stripes_shards(config, w->member.welcome.shard_count),
                                   .device_state = w->device.unified ? NULL : w->device.state,
                                   .keyed = w->config->keys != NULL,
                                   .timeout_s = config->timeout_start_s,
                                   .wake_fd = w->wake_fd,
                                   .send = send_to_shard,
                                   .send_context = w};
    exchange.gradients = ew_trainer_dense_gradients(w->trainer, &exchange.count);
    exchange.device_gradients = ew_model_dense(w->model, EW_GRADIENTS, &count);
    rt_status status = ew_exchange_create(&exchange, &w->exchange, error);
    if (status)
        return status;
    ew_trainer_attach(w->trainer, w->exchange);
    w->weights = (ew_weights){
        .shared = keeps,
        .stripes = {exchange.count - 1, exchange.shard_count},
        .optimizer = rt_optimizer_in_run(&config->optimizer_dense, w->member.welcome.dense_rate,
                                         full_batch(config, &w->member.welcome)),
        .sender = ew_run_self_to_shards(w),
        .exchange = w->exchange,
        .ops = &ew_trainer_weights,
        .context = w->trainer};
    return ew_weights_init(&w->weights, error);
}

static rt_status create_executor(ew_run *w, rt_error *error)
{
    const rt_wire_welcome *welcome = &w->member.welcome;
    ew_executor_config executor = {
        .rank = w->rank,
        .shard_count = welcome->shard_count,
        .epoch = welcome->epoch,
        .slice_count_max = welcome->run_ahead + 1,
        .push_credits = PUSH_CREDITS,
        .message_bytes = w->config->config->network_message_bytes,
        .limits = slice_limits(w->config->config, welcome, w->rank),
        .values = w->config->config->model.embedding_dim,
        .state = rt_optimizer_state_floats(&w->config->config->optimizer_rows,
                                           w->config->config->model.embedding_dim),
        .rows = w->device.unified ? &ew_host_rows_ops : &ew_device_rows_ops,
        .rows_context = w->device.unified ? (void *)&w->rows : (void *)&w->device_rows,
        .bases = w->bases.rows ? &w->bases : NULL,
        .codes = w->codes.rows ? &w->codes : NULL,
        .send = send_rows,
        .send_context = w,
    };
    if (ew_executor_create(&executor, &w->executor))
        return rt_fail(error, RT_NO_MEMORY, "out of memory for the executor");
    return RT_OK;
}

// The places of shards on the box of this worker, where boxes are told. rank: of the configuration.
static uint32_t local_shards(const rt_config *config, const rt_wire_welcome *welcome, uint32_t rank)
{
    uint32_t local = 0;
    if (!config->box_count)
        return 0;
    const uint32_t box = rt_config_box_of_worker(config, rank);
    for (uint32_t s = 0; s < welcome->shard_count; s++) {
        const uint32_t shard = rt_bit_at(welcome->shards_in, s);
        local |= rt_config_box_of_shard(config, shard) == box ? 1u << s : 0;
    }
    return local;
}

// What the coordinator says meanwhile waits.
static rt_status beat(void *context, rt_error *error)
{
    ew_run *w = context;
    return rt_member_beat(&w->member, error);
}

static rt_status probe_to_join(ew_run *w, rt_error *error)
{
    return w->config->config->links.pin ? RT_OK : ew_run_measure_links(w, 0, beat, error);
}

// The cores that this process may use, shared fairly by the workers of the box.
static uint32_t thread_count(const ew_worker_config *config)
{
    const uint32_t wanted = config->config->compute.threads;
    const uint32_t sharers = config->box_workers ? config->box_workers : 1;
    return wanted ? wanted : rt_thread_share(rt_thread_cores(), sharers, config->rank);
}

// NCCL connects over what this names; what the user has set stays. Before other threads start.
static void name_interface_to_nccl(const rt_config *config)
{
    char name[1 + sizeof config->network_interface];
    snprintf(name, sizeof name, "=%s", config->network_interface); // this one, not what begins so
    if (config->network_interface[0] && config->collective != RT_COLLECTIVE_PS)
        (void)setenv("NCCL_SOCKET_IFNAME", name, 0);
}

static rt_status join(ew_run *w, rt_error *error)
{
    const ew_worker_config *config = w->config;
    rt_member_config member = {
        .ops = config->ops,
        .self = ew_run_self(w),
        .coordinator = config->coordinator,
        .standby = config->standby,
        .leader = config->leader,
        .address = w->peers.address,
        .keys = config->keys,
        .identity = config->identity,
        .box = rt_config_hash_box(config->config,
                                  rt_config_box_of_worker(config->config, config->rank)),
        .timeout_start_s = config->config->timeout_start_s,
        .timeout_peer_s = config->config->timeout_peer_s,
        .notify = config->notify};
    const ew_peers_config peers = {.config = config->config,
                                   .identity = config->identity,
                                   .rank = config->rank,
                                   .coordinator = config->coordinator,
                                   .notify = config->notify};
    w->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (w->wake_fd < 0)
        return rt_fail(error, RT_LIMIT, "cannot create an event descriptor");
    name_interface_to_nccl(config->config);
    const ew_device_wish wish = {.name = config->config->device,
                                 .rank = config->rank,
                                 .threads = thread_count(config),
                                 .tf32 = config->config->compute.tf32};
    rt_status status = ew_device_open_as(&wish, &w->device, error);
    w->device_open = status == RT_OK;
    if (status)
        status = rt_fail_in(error, "device: \"%s\"", config->config->device);
    if (!status)
        status = rt_transport_open(config->ops, config->keys, &w->transport, error);
    member.transport = w->transport;
    if (!status)
        status = ew_peers_listen(&w->peers, config->ops, w->transport, &peers, error);
    if (!status)
        status = rt_member_join(&w->member, &member, error);
    w->endpoints[0] = w->member.endpoint;
    w->rank = rt_member_rank(&w->member);
    ew_peers_welcome(&w->peers, &w->member.welcome, w->rank);
    if (!status)
        status = connect_shards(w, error);
    if (!status)
        w->link.local = local_shards(config->config, &w->member.welcome, config->rank);
    if (!status)
        status = read_fields(w, error);
    if (!status)
        status = create_model(w, error);
    if (!status)
        status = create_exchange(w, error);
    if (!status)
        status = create_executor(w, error);
    if (!status)
        status = probe_to_join(w, error);
    return status ? status : ew_exchange_join(w->exchange, error);
}

// ---- leaving ---------------------------------------------------------------------------------

static void leave(ew_run *w, rt_status status, const rt_error *error)
{
    ew_trainer_stop(w->trainer);
    ew_exchange_destroy(w->exchange, w->finish == EW_FINISH_ANSWERED && status == RT_STOPPED);
    ew_trainer_destroy(w->trainer);
    rt_member_leave(&w->member, status == RT_STOPPED || status == RT_REFUSED ? NULL : error);
    for (uint32_t s = 0; s < w->shard_count; s++)
        w->config->ops->end(w->endpoints[1 + s], LINGER_MS);
    ew_peers_end(&w->peers, LINGER_MS);
    if (w->transport)
        w->config->ops->close(w->transport);
    ew_weights_fini(&w->weights);
    ew_saving_fini(&w->saving);
    rt_bytes_fini(&w->restored);
    ew_executor_destroy(w->executor);
    ew_model_destroy(w->model);
    ew_host_rows_fini(&w->rows);
    ew_device_rows_fini(&w->device_rows);
    ew_bases_fini(&w->bases);
    ew_codes_fini(&w->codes);
    if (w->device_open)
        ew_device_close(&w->device);
    if (w->wake_fd >= 0)
        close(w->wake_fd);
}

rt_status ew_worker_run(const ew_worker_config *config, rt_error *error)
{
    ew_run w = {.config = config, .wake_fd = -1};
    rt_status status = join(&w, error);
    if (!status)
        rt_info("device %s", w.device.description);
    while (!status)
        status = ew_run_turn(&w, error);
    if (status == RT_PEER || status == RT_NOT_FOUND) // the shard may have been told before us
        status = rt_member_give_up(&w.member, error);
    leave(&w, status, error);
    if (config->is_anew)
        *config->is_anew = status == RT_STOPPED && w.member.is_anew;
    return status;
}
