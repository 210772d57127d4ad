#include "edge_worker/ew_worker.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "bandwidth_probe/bw_passive.h"
#include "edge_worker/executor/ew_device_rows.h"
#include "edge_worker/ew_exchange.h"
#include "edge_worker/ew_links.h"
#include "edge_worker/ew_planner.h"
#include "edge_worker/ew_saving.h"
#include "edge_worker/ew_trainer.h"
#include "runtime/rt_thread.h"
#include "runtime/transport/rt_member.h"

#define PUSH_CREDITS 64u
#define RECEIVE_MAX 256u // messages of one endpoint before the others have their turn
#define LINGER_MS 1000u

// Of the job. Rows are stepped, and gradients sent, once every worker's verdict is known.
typedef enum { PHASE_NONE, PHASE_TRAINS, PHASE_AWAITS_VERDICT, PHASE_STEPS_ROWS } phase;

typedef struct {
    const ew_worker_config *config;
    rt_transport *transport;
    rt_member member;
    rt_endpoint *endpoints[1 + RT_SHARDS_MAX]; // coordinator, then shards
    uint32_t shard_count;
    uint32_t rank; // among the workers that take part
    ew_device device;
    bool device_open;
    ew_model *model;
    ew_host_rows rows;          // of a device that computes in host memory
    ew_device_rows device_rows; // of any other
    ew_executor *executor;
    ew_trainer *trainer;
    ew_planner *planner; // planner.placement "worker", else NULL
    ew_exchange *exchange;
    bool joined;                    // the exchange
    uint64_t trained_ns, summed_ns; // of the last iteration: its gradients, and their sum
    phase phase;
    ew_job job;
    bool apply;         // the job's iteration counts
    uint64_t iteration; // of the job
    bool finishing, finish_answered, ended;
    bool marked;       // a MARK waits for its answer
    uint64_t mark;     // its number
    bool mark_dense;   // the dense part goes before the answer
    bool probes;       // the coordinator asked for a LINK
    ew_saving saving;  // of the model, when the coordinator asks for it
    rt_bytes restored; // dense part of a checkpoint, as far as it has come
    int wake_fd;
    uint64_t idle_ns;   // since when there is nothing to train; 0: nothing was trained yet
    uint64_t looked_ns; // until then the waiting is in waited_ns
    uint64_t waited_ns[EW_WAIT_COUNT];
    bw_passive link;
    bool prompt; // the next message was waited for
    uint64_t stale_reported;
    uint64_t fingerprint; // of the plan of the job
    rt_counts reported;   // sum over all reports
    rt_wire_report report;
} worker;

// As the coordinator knows this worker; among those that take part its rank is w->rank.
static uint32_t self(const worker *w)
{
    return rt_peer(RT_ROLE_WORKER, w->config->rank);
}

static uint32_t self_to_shards(const worker *w)
{
    return rt_peer(RT_ROLE_WORKER, w->rank);
}

// ---- joining ---------------------------------------------------------------------------------

static rt_status send_to_shard(void *context, uint32_t shard, rt_message *message)
{
    worker *w = context;
    const size_t size = message->size;
    const uint32_t type = rt_message_header(message)->type;
    const uint64_t now_us = rt_now_ns() / 1000; // sending may wake others, who then run first
    rt_message_header(message)->epoch = w->member.welcome.epoch;
    rt_status status =
        w->config->ops->send(w->endpoints[1 + shard], rt_peer(RT_ROLE_PS, shard), message);
    if (!status)
        bw_passive_sent(&w->link, shard, size,
                        type == RT_MESSAGE_PUSH_ROW || type == RT_MESSAGE_PUSH_GRAD, now_us);
    return status;
}

static rt_status greet_shard(worker *w, uint32_t shard, rt_error *error)
{
    rt_message message;
    const rt_wire_hello hello = rt_control_greet(self_to_shards(w), &w->config->identity);
    rt_status status =
        rt_message_create(&message, RT_MESSAGE_HELLO, self_to_shards(w), 0, 1, sizeof hello);
    if (!status) {
        memcpy(rt_message_payload(&message), &hello, sizeof hello);
        status = send_to_shard(w, shard, &message);
        rt_message_release(&message);
    }
    return status ? rt_fail(error, status, "cannot send to PS shard %" PRIu32, shard) : RT_OK;
}

static rt_status connect_shards(worker *w, rt_error *error)
{
    for (uint32_t s = 0; s < w->member.welcome.shard_count; s++) {
        rt_status status = w->config->ops->trust(w->transport, rt_peer(RT_ROLE_PS, s),
                                                 w->member.welcome.shard_keys[s], error);
        if (status)
            return status;
        status = w->config->ops->connect(w->transport, self_to_shards(w), rt_peer(RT_ROLE_PS, s),
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

static rt_status create_rows(worker *w, rt_error *error)
{
    const rt_config *config = w->config->config;
    uint32_t slots = w->member.welcome.slot_count, dim = config->model.embedding_dim;
    rt_status status;
    if (w->device.unified)
        status = ew_host_rows_init(&w->rows, slots, dim, &config->optimizer_rows, config->seed,
                                   (float)config->model.init_scale);
    else
        status =
            ew_device_rows_init(&w->device_rows, &w->device, slots, dim, &config->optimizer_rows,
                                config->seed, (float)config->model.init_scale);
    return status ? rt_fail(error, status, "out of memory for a cache of %" PRIu32 " rows", slots)
                  : RT_OK;
}

static rt_status create_model(worker *w, rt_error *error)
{
    const rt_config *config = w->config->config;
    const rt_wire_welcome *welcome = &w->member.welcome;
    ew_model_config model = {.model = config->model,
                             .optimizer = config->optimizer_dense,
                             .seed = config->seed,
                             .dense_count = welcome->dense_count,
                             .field_count = welcome->field_count,
                             .sample_count_max = welcome->sample_count_max,
                             .lookup_count_max =
                                 welcome->sample_count_max * welcome->keys_per_sample_max};
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
                                 .row_optimizer = config->optimizer_rows,
                                 .slab = unified ? w->rows.slab : w->device_rows.slab,
                                 .slot_count = welcome->slot_count,
                                 .row_stride = unified ? w->rows.stride : w->device_rows.stride,
                                 .dim = config->model.embedding_dim,
                                 .row_count_max = model.row_count_max,
                                 .wake_fd = w->wake_fd};
    return ew_trainer_create(&trainer, &w->trainer, error);
}

static dp_slice_limits slice_limits(const rt_wire_welcome *welcome)
{
    return (dp_slice_limits){.dense_count = welcome->dense_count,
                             .field_count = welcome->field_count,
                             .worker_count = welcome->worker_count,
                             .sample_count_max = welcome->sample_count_max,
                             .lookup_count_max =
                                 welcome->sample_count_max * welcome->keys_per_sample_max,
                             .slot_count = welcome->slot_count};
}

static rt_status create_planner(worker *w, rt_error *error)
{
    const ew_planner_config planner = {.config = w->config->config,
                                       .welcome = &w->member.welcome,
                                       .limits = slice_limits(&w->member.welcome),
                                       .rank = w->rank,
                                       .wake_fd = w->wake_fd};
    if (w->config->config->placement == RT_PLACEMENT_COORDINATOR)
        return RT_OK;
    return ew_planner_create(&planner, &w->planner, error);
}

static rt_status create_exchange(worker *w, rt_error *error)
{
    const rt_config *config = w->config->config;
    uint32_t count;
    ew_exchange_config exchange = {.collective = config->collective,
                                   .wire = config->dense_wire,
                                   .overlap = config->dense_overlap,
                                   .rank = w->rank,
                                   .worker_count = w->member.welcome.worker_count,
                                   .device_state = w->device.unified ? NULL : w->device.state,
                                   .keyed = w->config->keys != NULL,
                                   .timeout_s = config->timeout_start_s,
                                   .wake_fd = w->wake_fd,
                                   .send = send_to_shard,
                                   .send_context = w};
    exchange.gradients = ew_trainer_dense_gradients(w->trainer, &exchange.count);
    exchange.device_gradients = ew_model_dense(w->model, EW_GRADIENTS, &count);
    rt_status status = ew_exchange_create(&exchange, &w->exchange, error);
    if (!status)
        ew_trainer_attach(w->trainer, w->exchange);
    return status;
}

static rt_status create_executor(worker *w, rt_error *error)
{
    const rt_wire_welcome *welcome = &w->member.welcome;
    ew_executor_config executor = {
        .rank = w->rank,
        .shard_count = welcome->shard_count,
        .epoch = welcome->epoch,
        .slice_count_max = welcome->run_ahead + 1,
        .push_credits = PUSH_CREDITS,
        .message_bytes = w->config->config->network_message_bytes,
        .one_at_a_time = !w->config->config->network_overlap,
        .limits = slice_limits(welcome),
        .values = w->config->config->model.embedding_dim,
        .state = rt_optimizer_state_floats(&w->config->config->optimizer_rows,
                                           w->config->config->model.embedding_dim),
        .rows = w->device.unified ? &ew_host_rows_ops : &ew_device_rows_ops,
        .rows_context = w->device.unified ? (void *)&w->rows : (void *)&w->device_rows,
        .send = send_to_shard,
        .send_context = w,
    };
    if (ew_executor_create(&executor, &w->executor))
        return rt_fail(error, RT_NO_MEMORY, "out of memory for the executor");
    return RT_OK;
}

// Measures the links and tells the coordinator.
static rt_status measure_links(worker *w, double silence_s,
                               rt_status (*progress)(void *, rt_error *), rt_error *error)
{
    rt_message message;
    rt_wire_link links[RT_SHARDS_MAX];
    uint32_t count;
    const ew_links_config config = {.ops = w->config->ops,
                                    .shards = w->endpoints + 1,
                                    .shard_count = w->shard_count,
                                    .passive = &w->link,
                                    .self = self_to_shards(w),
                                    .addresses = w->member.welcome.shards,
                                    .turn_s = w->config->config->timeout_start_s,
                                    .silence_s = silence_s,
                                    .progress = progress,
                                    .context = w};
    rt_status status = ew_links_measure(&config, links, &count, error);
    if (status)
        return status;
    if (rt_message_create(&message, RT_MESSAGE_LINK, self(w), 0, count, count * sizeof *links))
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    memcpy(rt_message_payload(&message), links, count * sizeof *links);
    return rt_member_send(&w->member, &message, error);
}

// What the coordinator says meanwhile waits.
static rt_status beat(void *context, rt_error *error)
{
    worker *w = context;
    return rt_member_beat(&w->member, error);
}

static rt_status probe_to_join(worker *w, rt_error *error)
{
    return w->config->config->links.pin ? RT_OK : measure_links(w, 0, beat, error);
}

// NCCL connects over what this names; what the user has set stays. Before other threads start.
static uint32_t thread_count(const ew_worker_config *config)
{
    const uint32_t wanted = config->config->compute.threads;
    const uint32_t sharers = config->box_workers ? config->box_workers : 1;
    return wanted ? wanted : rt_thread_share(rt_thread_cores(), sharers, config->rank);
}

static void name_interface_to_nccl(const rt_config *config)
{
    char name[1 + sizeof config->network_interface];
    snprintf(name, sizeof name, "=%s", config->network_interface); // this one, not what begins so
    if (config->network_interface[0] && config->collective != RT_COLLECTIVE_PS)
        (void)setenv("NCCL_SOCKET_IFNAME", name, 0);
}

static rt_status join(worker *w, rt_error *error)
{
    const ew_worker_config *config = w->config;
    rt_member_config member = {.ops = config->ops,
                               .self = self(w),
                               .coordinator = config->coordinator,
                               .address = "",
                               .keys = config->keys,
                               .identity = config->identity,
                               .timeout_start_s = config->config->timeout_start_s,
                               .timeout_peer_s = config->config->timeout_peer_s,
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
        status = rt_member_join(&w->member, &member, error);
    w->endpoints[0] = w->member.endpoint;
    w->rank = rt_member_rank(&w->member);
    if (!status)
        status = connect_shards(w, error);
    if (!status)
        status = create_model(w, error);
    if (!status)
        status = create_exchange(w, error);
    if (!status)
        status = create_executor(w, error);
    if (!status)
        status = create_planner(w, error);
    if (!status)
        status = probe_to_join(w, error);
    return status ? status : ew_exchange_join(w->exchange, error);
}

// ---- training --------------------------------------------------------------------------------

static rt_status send_report(worker *w, const ew_trained *trained, const rt_counts *done,
                             uint32_t sample_count, uint64_t sequence, rt_error *error)
{
    rt_message message;
    uint64_t stale = ew_executor_get_statistics(w->executor).stale_reads;
    rt_wire_report *report = &w->report;
    report->sample_count = sample_count;
    report->stale_reads = (uint32_t)(stale - w->stale_reported);
    w->stale_reported = stale;
    report->up_bytes_per_s = bw_passive_estimate(&w->link, BW_UP);
    report->down_bytes_per_s = bw_passive_estimate(&w->link, BW_DOWN);
    report->up_at_least = bw_passive_at_least(&w->link, BW_UP);
    report->down_at_least = bw_passive_at_least(&w->link, BW_DOWN);
    report->loss_sum = trained ? trained->loss_sum : 0;
    report->skipped = !w->apply;
    report->done = *done;
    rt_counts_add(&w->reported, done);
    report->fingerprint = w->fingerprint;
    report->dense_early_bytes = ew_exchange_early_bytes(w->exchange);
    rt_status status = rt_message_create(&message, RT_MESSAGE_REPORT, self(w), sequence, 1,
                                         sizeof *report + sample_count * sizeof(float));
    if (status)
        return rt_fail(error, status, "out of memory");
    memcpy(rt_message_payload(&message), report, sizeof *report);
    if (sample_count)
        memcpy(rt_message_payload(&message) + sizeof *report, trained->predictions,
               sample_count * sizeof(float));
    return rt_member_send(&w->member, &message, error);
}

// The time since the last look went into what the executor waited for since then: between two
// looks nothing arrives.
static void account_wait(worker *w)
{
    const uint64_t now = rt_now_ns();
    if (!w->phase && !ew_exchange_busy(w->exchange) && w->idle_ns)
        w->waited_ns[ew_executor_waits_for(w->executor)] +=
            now - rt_max_u64(w->idle_ns, w->looked_ns);
    w->looked_ns = now;
}

// Whether iterations can begin: whoever trains needs the others' gradients.
static rt_status await_others(worker *w, rt_error *error)
{
    rt_status status = w->joined ? RT_OK : ew_exchange_ready(w->exchange, error);
    if (status || w->joined)
        return status;
    w->joined = true;
    if (w->rank == 0)
        rt_info("dense gradients are summed by %s", ew_exchange_name(w->exchange));
    return RT_OK;
}

static rt_status start_job(worker *w, rt_error *error)
{
    rt_status status = await_others(w, error);
    if (status)
        return status == RT_AGAIN ? RT_OK : status;
    if (w->phase || ew_exchange_busy(w->exchange) ||
        ew_executor_next_job(w->executor, &w->job) != RT_OK)
        return RT_OK;
    const rt_wire_slice *slice = &w->job.slice->counts;
    account_wait(w);
    w->phase = PHASE_TRAINS;
    w->fingerprint = slice->fingerprint;
    w->iteration = slice->iteration;
    w->report.times.plan_ns = w->waited_ns[EW_WAIT_PLAN];
    w->report.times.push_ns = w->waited_ns[EW_WAIT_PUSH];
    w->report.times.pull_ns = w->waited_ns[EW_WAIT_PULL];
    memset(w->waited_ns, 0, sizeof w->waited_ns);
    w->report.times.dense_ns = w->summed_ns - w->trained_ns;
    if (!w->device.unified)
        ew_device_rows_flush(&w->device_rows);
    ew_exchange_begin(w->exchange, slice->iteration, slice->dense_chunk_floats);
    ew_trainer_train(w->trainer, w->job.slice);
    return RT_OK;
}

static void step_rows(worker *w, bool apply)
{
    w->phase = PHASE_STEPS_ROWS;
    w->apply = apply;
    ew_trainer_rows(w->trainer, w->job.slice, apply);
}

static rt_status take_result(worker *w, rt_error *error)
{
    const ew_trained *trained;
    eventfd_t count;
    rt_counts done = {0};
    (void)eventfd_read(w->wake_fd, &count); // another wake-up may have emptied it
    if (!w->phase || ew_trainer_result(w->trainer, &trained) != RT_OK)
        return RT_OK;
    uint64_t sequence = w->job.sequence;
    uint32_t samples = w->job.slice->counts.sample_count;
    if (trained->status) {
        *error = trained->error;
        return trained->status;
    }
    if (w->phase == PHASE_TRAINS) {
        w->phase = PHASE_AWAITS_VERDICT;
        w->trained_ns = rt_now_ns();
        ew_exchange_trained(w->exchange);
        rt_status status = ew_exchange_advance(w->exchange, error);
        if (!status && !w->config->config->guard_skip_bad_batches)
            step_rows(w, true);
        return status;
    }
    w->phase = PHASE_NONE;
    w->report.times.compute_ns = trained->compute_ns;
    rt_status status =
        ew_executor_trained(w->executor, trained->row_gradients, w->apply, &done, error);
    return status ? status : send_report(w, trained, &done, samples, sequence, error);
}

// The verdict is the last float of the vector: its sum can be there before the others.
static rt_status take_sums(worker *w, rt_error *error)
{
    float verdict;
    if (w->phase == PHASE_AWAITS_VERDICT && ew_exchange_last(w->exchange, &verdict))
        step_rows(w, verdict == 0);
    rt_status status = ew_exchange_take(w->exchange, error);
    if (status)
        return status == RT_AGAIN ? RT_OK : status;
    w->summed_ns = rt_now_ns();
    w->idle_ns = w->summed_ns;
    ew_trainer_dense(w->trainer, w->iteration, w->apply);
    return RT_OK;
}

// ---- messages --------------------------------------------------------------------------------

// A checkpoint's dense part; once all of it is there it takes the place of the model's.
static rt_status take_part(worker *w, const rt_message *message, rt_error *error)
{
    rt_wire_part part;
    rt_reader reader = rt_message_reader(message);
    if (!rt_reader_get(&reader, &part, 1, sizeof part) || part.offset != w->restored.size ||
        part.total > RT_WIRE_PAYLOAD_BYTES_MAX || reader.left > part.total - part.offset)
        return rt_fail(error, RT_WIRE, "coordinator: a PART that does not fit the one before");
    rt_bytes_put(&w->restored, reader.next, reader.left);
    if (w->restored.failed)
        return rt_fail(error, RT_NO_MEMORY, "out of memory for the dense part");
    if (w->restored.size < part.total)
        return RT_OK;
    rt_status status = ew_trainer_set_state(w->trainer, &w->restored, error);
    rt_bytes_fini(&w->restored);
    return status;
}

static rt_status send_state(worker *w, rt_error *error)
{
    rt_bytes bytes = {0};
    rt_status status = ew_trainer_get_state(w->trainer, &bytes, error);
    for (size_t at = 0; at < bytes.size && !status; at += RT_WIRE_PART_BYTES_MAX) {
        rt_message message;
        const size_t size = rt_min_u64(RT_WIRE_PART_BYTES_MAX, bytes.size - at);
        const rt_wire_part part = {at, bytes.size};
        status =
            rt_message_create(&message, RT_MESSAGE_PART, self(w), w->mark, 1, sizeof part + size);
        if (status) {
            rt_fail(error, status, "out of memory");
            break;
        }
        memcpy(rt_message_payload(&message), &part, sizeof part);
        memcpy(rt_message_payload(&message) + sizeof part, bytes.data + at, size);
        status = rt_member_send(&w->member, &message, error);
    }
    rt_bytes_fini(&bytes);
    return status;
}

static rt_status take_from_coordinator(worker *w, rt_message *message, rt_error *error)
{
    switch (rt_message_header(message)->type) {
    case RT_MESSAGE_SLICE:
    case RT_MESSAGE_BATCH:
        if ((rt_message_header(message)->type == RT_MESSAGE_BATCH) != (w->planner != NULL))
            return rt_fail(error, RT_WIRE, "coordinator: a %s, but planner.placement is another",
                           rt_message_type_name(rt_message_header(message)->type));
        if (w->planner)
            return ew_planner_give(w->planner, message, error);
        return ew_executor_receive(w->executor, rt_peer(RT_ROLE_COORDINATOR, 0), message, error);
    case RT_MESSAGE_FINISH:
        w->finishing = true;
        return RT_OK;
    case RT_MESSAGE_PART:
        return take_part(w, message, error);
    case RT_MESSAGE_MARK:
        w->marked = true;
        w->mark = rt_message_header(message)->iteration;
        w->mark_dense = rt_message_header(message)->count;
        return RT_OK;
    case RT_MESSAGE_LINK:
        w->probes = true;
        return RT_OK;
    case RT_MESSAGE_SAVE:
        return ew_saving_begin(&w->saving, &w->member, self(w), w->trainer, error);
    case RT_MESSAGE_TAKEN:
        return ew_saving_take(&w->saving, message, error);
    default:
        return rt_fail(error, RT_WIRE, "coordinator: a worker takes no %s",
                       rt_message_type_name(rt_message_header(message)->type));
    }
}

static rt_status drain_coordinator(worker *w, rt_error *error)
{
    for (uint32_t i = 0; i < RECEIVE_MAX; i++) {
        rt_message message = {0};
        rt_status status = rt_member_receive(&w->member, &message, error);
        if (!status) // shares the link with what comes from the shards
            bw_passive_received(&w->link, 0, message.size, 0, rt_now_ns() / 1000, false);
        if (!status)
            status = take_from_coordinator(w, &message, error);
        rt_message_release(&message);
        if (status)
            return status == RT_AGAIN ? RT_OK : status;
    }
    return RT_OK;
}

static rt_status drain_planner(worker *w, rt_error *error)
{
    while (w->planner) {
        rt_message slice = {0};
        rt_status status = ew_planner_take(w->planner, &slice, error);
        if (status == RT_AGAIN)
            break;
        if (!status)
            status =
                ew_executor_receive(w->executor, rt_peer(RT_ROLE_COORDINATOR, 0), &slice, error);
        if (status)
            return status;
    }
    return RT_OK;
}

static void watch_link(worker *w, uint32_t shard, const rt_message *message)
{
    const rt_wire_header *header = rt_message_header(message);
    const uint64_t now_us = rt_now_ns() / 1000;
    bw_passive_received(&w->link, shard, message->size,
                        header->type == RT_MESSAGE_PUSHED ? 0 : header->stamp, now_us, w->prompt);
    if (header->type == RT_MESSAGE_PUSHED)
        bw_passive_confirmed(&w->link, shard, header->stamp, now_us);
    w->prompt = false;
}

static rt_status drain_shard(worker *w, uint32_t shard, rt_error *error)
{
    for (uint32_t i = 0; i < RECEIVE_MAX; i++) {
        uint32_t peer;
        rt_message message = {0};
        rt_status status = w->config->ops->receive(w->endpoints[1 + shard], &peer, &message, error);
        if (status == RT_AGAIN)
            return RT_OK;
        if (status == RT_NOT_FOUND && w->finish_answered)
            return RT_OK; // nothing is expected of it; that the run is complete is on its way
        if (status == RT_NOT_FOUND)
            return rt_fail(error, RT_PEER, "PS shard %" PRIu32 " is gone", shard);
        if (!status)
            watch_link(w, shard, &message);
        if (!status && ew_exchange_takes(rt_message_header(&message)->type))
            status = ew_exchange_receive(w->exchange, &message, error);
        else if (!status)
            status = ew_executor_receive(w->executor, peer, &message, error);
        rt_message_release(&message);
        if (status)
            return status;
    }
    return RT_OK;
}

static bool is_idle(const worker *w)
{
    return !w->phase && !ew_exchange_busy(w->exchange) &&
           (!w->planner || ew_planner_idle(w->planner)) && ew_executor_idle(w->executor);
}

// Everything that came before the MARK is carried out, and the shards have confirmed every push.
static rt_status answer_mark_if_idle(worker *w, rt_error *error)
{
    rt_message message;
    if (!w->marked || !is_idle(w))
        return RT_OK;
    w->marked = false;
    if (w->mark_dense) {
        rt_status status = send_state(w, error);
        if (status)
            return status;
    }
    if (rt_message_create(&message, RT_MESSAGE_MARK, self(w), w->mark, 0, 0))
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    return rt_member_send(&w->member, &message, error);
}

// Nothing but the end of the run comes from a coordinator that waits for a LINK.
static rt_status listen_meanwhile(void *context, rt_error *error)
{
    worker *w = context;
    rt_message message = {0};
    rt_status status = rt_member_receive(&w->member, &message, error);
    if (!status)
        status = rt_fail(error, RT_WIRE, "coordinator: a %s while it waits for a LINK",
                         rt_message_type_name(rt_message_header(&message)->type));
    rt_message_release(&message);
    return status == RT_AGAIN ? rt_member_beat(&w->member, error) : status;
}

// No worker has anything under way: the coordinator saw to it. A link that is silent for a while is
// given as long as at any other time.
static rt_status probe_if_idle(worker *w, rt_error *error)
{
    if (!w->probes || !is_idle(w))
        return RT_OK;
    w->probes = false;
    rt_status status = measure_links(w, w->config->config->timeout_peer_s, listen_meanwhile, error);
    w->looked_ns = rt_now_ns(); // not a time that training waited for rows
    return status;
}

// The flush has no training; its report goes out once everything is done.
static rt_status finish_if_idle(worker *w, rt_error *error)
{
    rt_message message;
    if (!w->finishing || w->finish_answered || !is_idle(w))
        return RT_OK;
    w->finish_answered = true;
    const rt_counts all = ew_executor_get_statistics(w->executor).done;
    const rt_wire_report report = {.done = rt_counts_less(&all, &w->reported)};
    if (rt_message_create(&message, RT_MESSAGE_FINISHED, self(w), 0, 1, sizeof report))
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    memcpy(rt_message_payload(&message), &report, sizeof report);
    return rt_member_send(&w->member, &message, error);
}

// One turn: waits for messages, then each part does what it can without waiting, in the order in
// which an iteration passes through them, so that what one part hands on is taken up in the same
// turn:
//
//     the trainer's result -> dense exchange -> rows and confirmations of the shards -> slices and
//     words of the coordinator -> plans of its own -> sums of the exchange -> operations that have
//     become possible -> messages out -> the next training, if all its rows are here
//
// and where nothing is left to do the questions of the coordinator: a mark, a probe, the end.
// Training itself is in a thread of its own (ew_trainer), which ends the wait when it is done.
static rt_status turn(worker *w, rt_error *error)
{
    bool ready[1 + RT_SHARDS_MAX] = {false};
    // The transport does not tell when it has room again.
    const uint32_t wait_ms =
        ew_exchange_is_held_up(w->exchange) ? 1 : rt_member_wait_ms(&w->member);
    const uint64_t begin_ns = rt_now_ns();
    rt_status status =
        w->config->ops->wait(w->endpoints, 1 + w->shard_count, w->wake_fd, wait_ms, ready);
    if (status)
        return rt_fail(error, status, "waiting for messages: %s", rt_status_text(status));
    w->prompt = rt_now_ns() - begin_ns >= BW_PROMPT_NS;
    account_wait(w);
    status = take_result(w, error);
    if (!status)
        status = ew_exchange_advance(w->exchange, error);
    for (uint32_t s = 0; s < w->shard_count && !status; s++)
        if (ready[1 + s])
            status = drain_shard(w, s, error);
    if (!status)
        status = ready[0] ? drain_coordinator(w, error) : rt_member_check(&w->member, error);
    if (!status)
        status = drain_planner(w, error);
    if (!status)
        status = take_sums(w, error);
    if (!status && !ew_exchange_busy(w->exchange))
        status = ew_executor_begin(w->executor, error);
    if (!status)
        status = ew_executor_flush(w->executor, error);
    if (!status)
        status = start_job(w, error);
    if (!status)
        status = answer_mark_if_idle(w, error);
    if (!status)
        status = probe_if_idle(w, error);
    if (!status)
        status = finish_if_idle(w, error);
    return status ? status : rt_member_beat(&w->member, error);
}

static void leave(worker *w, rt_status status, const rt_error *error)
{
    ew_planner_destroy(w->planner);
    ew_trainer_stop(w->trainer);
    ew_exchange_destroy(w->exchange, w->finish_answered && status == RT_STOPPED);
    ew_trainer_destroy(w->trainer);
    rt_member_leave(&w->member, status == RT_STOPPED || status == RT_REFUSED ? NULL : error);
    for (uint32_t s = 0; s < w->shard_count; s++)
        w->config->ops->end(w->endpoints[1 + s], LINGER_MS);
    if (w->transport)
        w->config->ops->close(w->transport);
    ew_saving_fini(&w->saving);
    rt_bytes_fini(&w->restored);
    ew_executor_destroy(w->executor);
    ew_model_destroy(w->model);
    ew_host_rows_fini(&w->rows);
    ew_device_rows_fini(&w->device_rows);
    if (w->device_open)
        ew_device_close(&w->device);
    if (w->wake_fd >= 0)
        close(w->wake_fd);
}

rt_status ew_worker_run(const ew_worker_config *config, rt_error *error)
{
    worker w = {.config = config, .wake_fd = -1};
    rt_status status = join(&w, error);
    if (!status)
        rt_info("device %s", w.device.description);
    while (!status)
        status = turn(&w, error);
    if (status == RT_PEER || status == RT_NOT_FOUND) // the shard may have been told before us
        status = rt_member_give_up(&w.member, error);
    leave(&w, status, error);
    return status;
}
