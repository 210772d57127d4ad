// What coordinator and shards say to a worker, and what it answers. See ew_run.h.
#include <inttypes.h>
#include <string.h>

#include "edge_worker/ew_run.h"

#define RECEIVE_MAX 256u // messages of one endpoint before the others have their turn

// The dense part of a checkpoint, or (iteration 0) of the model that a run begins with; once all of
// it is there it takes the place of the model's.
static rt_status take_part(ew_run *w, const rt_message *message, rt_error *error)
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
    const uint64_t iteration = rt_message_header(message)->iteration;
    rt_status status = ew_trainer_set_state(w->trainer, &w->restored, iteration == 0, error);
    ew_weights_resume(&w->weights, iteration);
    rt_bytes_fini(&w->restored);
    return status;
}

static rt_status send_parts(ew_run *w, const rt_bytes *bytes, rt_error *error)
{
    for (size_t at = 0; at < bytes->size; at += RT_WIRE_PART_BYTES_MAX) {
        rt_message message;
        const size_t size = rt_min_u64(RT_WIRE_PART_BYTES_MAX, bytes->size - at);
        const rt_wire_part part = {at, bytes->size};
        if (rt_message_create(&message, RT_MESSAGE_PART, ew_run_self(w), w->mark.number, 1,
                              sizeof part + size))
            return rt_fail(error, RT_NO_MEMORY, "out of memory");
        memcpy(rt_message_payload(&message), &part, sizeof part);
        memcpy(rt_message_payload(&message) + sizeof part, bytes->data + at, size);
        const rt_status status = rt_member_send(&w->member, &message, error);
        if (status)
            return status;
    }
    return RT_OK;
}

static rt_status send_state(ew_run *w, rt_error *error)
{
    rt_bytes bytes = {0};
    rt_status status = ew_trainer_get_state(w->trainer, &bytes, error);
    if (!status)
        status = send_parts(w, &bytes, error);
    rt_bytes_fini(&bytes);
    return status;
}

static void take_mark(ew_run *w, const rt_wire_header *header)
{
    w->mark =
        (ew_mark){.waits = true, .wants_dense = header->count > 0, .number = header->iteration};
    if (w->mark.wants_dense)
        w->giver = header->count - 1;
}

static rt_status take_from_coordinator(ew_run *w, rt_message *message, rt_error *error)
{
    const rt_wire_header *header = rt_message_header(message);
    switch (header->type) {
    case RT_MESSAGE_SLICE:
        return ew_executor_receive(w->executor, rt_peer(RT_ROLE_COORDINATOR, 0), message, error);
    case RT_MESSAGE_FINISH:
        if (w->finish == EW_FINISH_NONE)
            w->finish = EW_FINISH_ASKED;
        w->giver = header->count;
        return RT_OK;
    case RT_MESSAGE_PART:
        return take_part(w, message, error);
    case RT_MESSAGE_MARK:
        take_mark(w, header);
        return RT_OK;
    case RT_MESSAGE_LINK:
        w->probes = true;
        return RT_OK;
    case RT_MESSAGE_PEERS:
        return ew_peers_connect(&w->peers, message, error);
    case RT_MESSAGE_SAVE:
        return ew_saving_begin(&w->saving, &w->member, ew_run_self(w), w->trainer, error);
    case RT_MESSAGE_TAKEN:
        return ew_saving_take(&w->saving, message, error);
    default:
        return rt_fail(error, RT_WIRE, "coordinator: a worker takes no %s",
                       rt_message_type_name(header->type));
    }
}

rt_status ew_run_drain_coordinator(ew_run *w, rt_error *error)
{
    for (uint32_t i = 0; i < RECEIVE_MAX; i++) {
        rt_message message = {0};
        rt_status status = rt_member_receive(&w->member, &message, error);
        if (status == RT_AGAIN)
            return RT_OK;
        if (status)
            return status;
        // It shares the link with what comes from the shards.
        bw_passive_received(&w->link, 0, message.size, 0, rt_now_ns() / 1000, false);
        status = take_from_coordinator(w, &message, error);
        rt_message_release(&message);
        if (status)
            return status;
    }
    return RT_OK;
}

// The stamp of a PUSHED is when the push came, of all others when they were sent.
static void watch_link(ew_run *w, uint32_t shard, const rt_message *message)
{
    const rt_wire_header *header = rt_message_header(message);
    const uint64_t now_us = rt_now_ns() / 1000;
    if (header->type == RT_MESSAGE_PUSHED) {
        bw_passive_received(&w->link, shard, message->size, 0, now_us, w->prompt);
        bw_passive_confirmed(&w->link, shard, header->stamp, now_us);
    } else {
        bw_passive_received(&w->link, shard, message->size, header->stamp, now_us, w->prompt);
    }
    w->prompt = false;
}

static rt_status take_from_shard(ew_run *w, uint32_t shard, rt_message *message, rt_error *error)
{
    const uint32_t type = rt_message_header(message)->type;
    rt_message_header(message)->sender = rt_peer(RT_ROLE_PS, shard);
    watch_link(w, shard, message);
    if (ew_exchange_takes(type))
        return ew_exchange_receive(w->exchange, message, error);
    if (type == RT_MESSAGE_DENSE_STATE)
        return ew_weights_receive(&w->weights, message, error);
    return ew_executor_receive(w->executor, rt_peer(RT_ROLE_PS, shard), message, error);
}

rt_status ew_run_drain_shard(ew_run *w, uint32_t shard, rt_error *error)
{
    for (uint32_t i = 0; i < RECEIVE_MAX; i++) {
        uint32_t peer;
        rt_message message = {0};
        rt_status status =
            rt_transport_receive(w->config->ops, w->endpoints[1 + shard], &peer, &message, error);
        if (status == RT_AGAIN)
            return RT_OK;
        if (status == RT_NOT_FOUND && w->finish == EW_FINISH_ANSWERED)
            return RT_OK; // nothing is expected of it; that the run is complete is on its way
        if (status == RT_NOT_FOUND)
            return rt_fail(error, RT_PEER, "PS shard %" PRIu32 " is gone", shard);
        if (status)
            return status;
        status = take_from_shard(w, shard, &message, error);
        rt_message_release(&message);
        if (status)
            return status;
    }
    return RT_OK;
}

rt_status ew_run_drain_peers(ew_run *w, rt_error *error)
{
    rt_status status = RT_OK;
    if (w->finish != EW_FINISH_ANSWERED) // then they may leave
        status = ew_peers_look(&w->peers, error);
    if (status)
        return status;
    for (uint32_t i = 0; i < RECEIVE_MAX; i++) {
        uint32_t peer;
        rt_message message = {0};
        status = ew_peers_receive(&w->peers, &peer, &message, error);
        if (status == RT_AGAIN)
            return RT_OK;
        if (status)
            return status;
        // It shares the link with what comes from the shards.
        bw_passive_received(&w->link, 0, message.size, 0, rt_now_ns() / 1000, false);
        status = ew_executor_receive(w->executor, peer, &message, error);
        if (status)
            return status;
    }
    return RT_OK;
}

// ---- answers ---------------------------------------------------------------------------------

bool ew_run_is_idle(const ew_run *w)
{
    return !w->phase && !ew_exchange_busy(w->exchange) && !ew_weights_busy(&w->weights) &&
           ew_executor_idle(w->executor);
}

// Everything that came before the MARK is carried out, and the shards have confirmed every push.
static rt_status answer_mark_if_idle(ew_run *w, rt_error *error)
{
    rt_message message;
    if (!w->mark.waits || !ew_run_is_idle(w))
        return RT_OK;
    w->mark.waits = false;
    rt_status status = ew_trainer_settle(w->trainer, error);
    if (status)
        return status;
    if (w->mark.wants_dense && w->rank == w->giver) {
        status = send_state(w, error);
        if (status)
            return status;
    }
    const uint32_t giver = w->mark.wants_dense ? 1 + w->giver : 0; // as the question had it
    if (rt_message_create(&message, RT_MESSAGE_MARK, ew_run_self(w), w->mark.number, giver, 0))
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    return rt_member_send(&w->member, &message, error);
}

rt_status ew_run_measure_links(ew_run *w, double silence_s,
                               rt_status (*progress)(void *, rt_error *), rt_error *error)
{
    rt_message message;
    rt_wire_link links[RT_SHARDS_MAX];
    uint32_t count;
    const ew_links_config config = {.ops = w->config->ops,
                                    .shards = w->endpoints + 1,
                                    .shard_count = w->shard_count,
                                    .passive = &w->link,
                                    .self = ew_run_self_to_shards(w),
                                    .shards_in = w->member.welcome.shards_in,
                                    .addresses = w->member.welcome.shards,
                                    .turn_s = w->config->config->timeout_start_s,
                                    .silence_s = silence_s,
                                    .progress = progress,
                                    .context = w};
    rt_status status = ew_links_measure(&config, links, &count, error);
    if (status)
        return status;
    if (rt_message_create(&message, RT_MESSAGE_LINK, ew_run_self(w), 0, count,
                          count * sizeof *links))
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    memcpy(rt_message_payload(&message), links, count * sizeof *links);
    return rt_member_send(&w->member, &message, error);
}

// Nothing but the end of the run comes from a coordinator that waits for a LINK.
static rt_status listen_meanwhile(void *context, rt_error *error)
{
    ew_run *w = context;
    rt_message message = {0};
    const rt_status status = rt_member_receive(&w->member, &message, error);
    if (status == RT_AGAIN)
        return rt_member_beat(&w->member, error);
    if (status)
        return status;
    const uint32_t type = rt_message_header(&message)->type;
    rt_message_release(&message);
    return rt_fail(error, RT_WIRE, "coordinator: a %s while it waits for a LINK",
                   rt_message_type_name(type));
}

// No worker has anything under way: the coordinator saw to it. A link that is silent for a while is
// given as long as at any other time.
static rt_status probe_if_idle(ew_run *w, rt_error *error)
{
    if (!w->probes || !ew_run_is_idle(w))
        return RT_OK;
    w->probes = false;
    rt_status status =
        ew_run_measure_links(w, w->config->config->timeout_peer_s, listen_meanwhile, error);
    w->looked_ns = rt_now_ns(); // not a time that training waited for rows
    return status;
}

rt_status ew_run_tell_vitals(ew_run *w, rt_error *error)
{
    rt_wire_vitals vitals = {0};
    rt_traffic_share(RT_ROLE_WORKER, &vitals.traffic);
    return rt_member_tell_vitals(&w->member, &vitals, 0, error);
}

// The flush has no training; its report goes out once everything is done.
static rt_status finish_if_idle(ew_run *w, rt_error *error)
{
    rt_message message;
    if (w->finish != EW_FINISH_ASKED || !ew_run_is_idle(w))
        return RT_OK;
    w->finish = EW_FINISH_ANSWERED;
    rt_status status = ew_trainer_settle(w->trainer, error);
    if (!status)
        status = ew_run_tell_vitals(w, error); // all that it has moved, for the summary
    if (status)
        return status;
    const ew_executor_statistics all = ew_executor_get_statistics(w->executor);
    const rt_wire_report report = {.done = rt_counts_less(&all.done, &w->reported),
                                   .handed = (uint32_t)(all.handed - w->so_far.handed)};
    if (rt_message_create(&message, RT_MESSAGE_FINISHED, ew_run_self(w), 0, 1, sizeof report))
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    memcpy(rt_message_payload(&message), &report, sizeof report);
    return rt_member_send(&w->member, &message, error);
}

rt_status ew_run_answer_if_idle(ew_run *w, rt_error *error)
{
    rt_status status = answer_mark_if_idle(w, error);
    if (status)
        return status;
    status = probe_if_idle(w, error);
    if (status)
        return status;
    return finish_if_idle(w, error);
}
