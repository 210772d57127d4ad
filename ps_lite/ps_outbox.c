#include "ps_lite/ps_shard_parts.h"

// Pulls in flight belong to few iterations; with more, the oldest open message goes out unfilled.
#define OPEN_MAX 4

typedef struct {
    rt_message message; // empty: no open message here
    uint32_t count;
    size_t used;
    size_t room;
} open_message;

typedef struct {
    open_message open[OPEN_MAX];
    uint32_t oldest; // next to give way
    uint32_t latest; // that took the last record
    rt_message *queue;
    uint32_t queue_first;
    uint32_t queue_count;
} outlet;

struct ps_outbox {
    ps_outbox_config config;
    outlet *outlets; // worker_count
};

// False: out of memory.
static bool create_queues(ps_outbox *outbox)
{
    for (uint32_t i = 0; i < outbox->config.worker_count; i++) {
        outlet *out = &outbox->outlets[i];
        out->queue = rt_alloc(outbox->config.queue_messages_max, sizeof *out->queue);
        if (!out->queue)
            return false;
    }
    return true;
}

rt_status ps_outbox_create(const ps_outbox_config *config, ps_outbox **outbox_p)
{
    rt_assert(config->worker_count <= RT_WORKERS_MAX && config->queue_messages_max > 0);
    ps_outbox *outbox = rt_alloc(1, sizeof *outbox);
    if (!outbox)
        return RT_NO_MEMORY;
    outbox->config = *config;
    outbox->outlets = rt_alloc(config->worker_count, sizeof *outbox->outlets);
    if (!outbox->outlets || !create_queues(outbox)) {
        ps_outbox_destroy(outbox);
        return RT_NO_MEMORY;
    }
    *outbox_p = outbox;
    return RT_OK;
}

void ps_outbox_begin_epoch(ps_outbox *outbox, uint32_t epoch)
{
    outbox->config.epoch = epoch;
}

void ps_outbox_destroy(ps_outbox *outbox)
{
    if (!outbox)
        return;
    for (uint32_t w = 0; outbox->outlets && w < outbox->config.worker_count; w++) {
        outlet *out = &outbox->outlets[w];
        for (uint32_t i = 0; i < OPEN_MAX; i++)
            rt_message_release(&out->open[i].message);
        for (; out->queue_count; out->queue_count--) {
            rt_message_release(&out->queue[out->queue_first]);
            out->queue_first = (out->queue_first + 1) % outbox->config.queue_messages_max;
        }
        rt_free(out->queue);
    }
    rt_free(outbox->outlets);
    rt_free(outbox);
}

static rt_status give(ps_outbox *outbox, uint32_t worker, rt_message *message, rt_error *error)
{
    const uint32_t peer = rt_peer(RT_ROLE_WORKER, worker);
    rt_status status = outbox->config.send(outbox->config.context, peer, message);
    char name[32];
    if (status && status != RT_AGAIN)
        rt_fail(error, status, "cannot send to %s: %s", rt_peer_name(peer, name),
                rt_status_text(status));
    return status;
}

// RT_AGAIN: some are left.
static rt_status send_queue(ps_outbox *outbox, uint32_t worker, rt_error *error)
{
    outlet *out = &outbox->outlets[worker];
    while (out->queue_count) {
        rt_status status = give(outbox, worker, &out->queue[out->queue_first], error);
        if (status)
            return status;
        out->queue[out->queue_first] = (rt_message){0};
        out->queue_first = (out->queue_first + 1) % outbox->config.queue_messages_max;
        out->queue_count--;
    }
    return RT_OK;
}

// Messages already waiting go first, so that a worker gets everything in order.
rt_status ps_outbox_send(ps_outbox *outbox, uint32_t worker, rt_message *message, rt_error *error)
{
    outlet *out = &outbox->outlets[worker];
    rt_status status = send_queue(outbox, worker, error);
    if (!status)
        status = give(outbox, worker, message, error); // else it waits behind those
    if (status == RT_AGAIN && out->queue_count < outbox->config.queue_messages_max) {
        const uint32_t at =
            (out->queue_first + out->queue_count++) % outbox->config.queue_messages_max;
        out->queue[at] = *message;
        *message = (rt_message){0};
        return RT_OK;
    }
    if (status == RT_AGAIN)
        status = rt_fail(error, RT_LIMIT, "worker %u does not read its messages: %u wait", worker,
                         out->queue_count);
    if (status)
        rt_message_release(message);
    return status;
}

static rt_status close_open(ps_outbox *outbox, uint32_t worker, open_message *open, rt_error *error)
{
    if (!open->message.data)
        return RT_OK;
    rt_message message = open->message;
    open->message = (rt_message){0};
    rt_message_finish(&message, open->count, open->used);
    return ps_outbox_send(outbox, worker, &message, error);
}

static bool is_open_for(const open_message *open, rt_message_type type, uint64_t iteration)
{
    if (!open->message.data)
        return false;
    const rt_wire_header *header = rt_message_header(&open->message);
    return header->type == type && header->iteration == iteration;
}

// Records come in runs.
static open_message *find_open(outlet *out, rt_message_type type, uint64_t iteration)
{
    if (RT_LIKELY(is_open_for(&out->open[out->latest], type, iteration)))
        return &out->open[out->latest];
    for (uint32_t i = 0; i < OPEN_MAX; i++)
        if (is_open_for(&out->open[i], type, iteration))
            return &out->open[i];
    return NULL;
}

static rt_status start_open(ps_outbox *outbox, uint32_t worker, rt_message_type type,
                            uint64_t iteration, size_t size, open_message **open_p, rt_error *error)
{
    outlet *out = &outbox->outlets[worker];
    open_message *open = &out->open[out->oldest];
    out->oldest = (out->oldest + 1) % OPEN_MAX;
    rt_status status = close_open(outbox, worker, open, error);
    if (status)
        return status;
    const size_t room = (size_t)rt_max_u64(outbox->config.message_bytes, size);
    status = rt_message_create(&open->message, type, outbox->config.self, iteration, 0, room);
    if (status)
        return rt_fail(error, status, "out of memory: a message of %zu bytes", room);
    rt_message_header(&open->message)->epoch = outbox->config.epoch;
    open->count = 0;
    open->used = 0;
    open->room = room;
    *open_p = open;
    return RT_OK;
}

rt_status ps_outbox_record(ps_outbox *outbox, uint32_t worker, rt_message_type type,
                           uint64_t iteration, size_t size, uint8_t **record_p, rt_error *error)
{
    rt_status status = RT_OK;
    open_message *open = find_open(&outbox->outlets[worker], type, iteration);
    if (open && open->used + size > open->room) {
        status = close_open(outbox, worker, open, error);
        open = NULL;
    }
    if (status)
        return status;
    if (!open)
        status = start_open(outbox, worker, type, iteration, size, &open, error);
    if (status)
        return status;
    outbox->outlets[worker].latest = (uint32_t)(open - outbox->outlets[worker].open);
    *record_p = rt_message_payload(&open->message) + open->used;
    open->used += size;
    open->count++;
    return RT_OK;
}

rt_status ps_outbox_notify(ps_outbox *outbox, uint32_t worker, rt_message_type type,
                           uint64_t iteration, rt_error *error)
{
    rt_message message = {0};
    rt_status status = rt_message_create(&message, type, outbox->config.self, iteration, 0, 0);
    if (status)
        return rt_fail(error, status, "out of memory: a message");
    rt_message_header(&message)->epoch = outbox->config.epoch;
    return ps_outbox_send(outbox, worker, &message, error);
}

rt_status ps_outbox_send_to(ps_outbox *outbox, uint64_t workers, rt_message *message,
                            rt_error *error)
{
    rt_message copies[RT_WORKERS_MAX];
    rt_wire_header *header = rt_message_header(message);
    header->sender = outbox->config.self;
    header->epoch = outbox->config.epoch;
    if (rt_message_share(message, rt_bit_count(workers), copies)) {
        rt_message_release(message);
        return rt_fail(error, RT_NO_MEMORY, "out of memory: a message");
    }
    rt_status status = RT_OK;
    for (rt_message *copy = copies; workers; workers &= workers - 1, copy++) {
        if (!status)
            status = ps_outbox_send(outbox, rt_lowest_bit(workers), copy, error);
        else
            rt_message_release(copy);
    }
    return status;
}

static rt_status flush_outlet(ps_outbox *outbox, uint32_t worker, rt_error *error)
{
    outlet *out = &outbox->outlets[worker];
    rt_status status = send_queue(outbox, worker, error);
    if (status)
        return status;
    for (uint32_t i = 0; i < OPEN_MAX; i++) {
        open_message *oldest = &out->open[(out->oldest + i) % OPEN_MAX];
        status = close_open(outbox, worker, oldest, error);
        if (status)
            return status;
    }
    return out->queue_count ? RT_AGAIN : RT_OK;
}

rt_status ps_outbox_flush(ps_outbox *outbox, rt_error *error)
{
    rt_status all = RT_OK;
    for (uint32_t worker = 0; worker < outbox->config.worker_count; worker++) {
        rt_status status = flush_outlet(outbox, worker, error);
        if (status == RT_AGAIN)
            all = RT_AGAIN;
        else if (status)
            return status;
    }
    return all;
}
