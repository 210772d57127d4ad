#include "runtime/wire/rt_wire.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// What a payload consists of, as far as its type and count tell.
typedef enum {
    SHAPE_UNKNOWN, // no such message type
    SHAPE_ANY,     // the receiver reads it with an rt_reader
    SHAPE_EMPTY,
    SHAPE_RECORDS, // count records
    SHAPE_ROWS,    // count records, each followed by floats; the numbers of floats may differ
    SHAPE_STRIDES, // count records, each followed by the same number of floats
    SHAPE_FLOATS,  // one record, floats
    SHAPE_HALVES,  // one record, bf16
} payload_shape;

typedef struct {
    payload_shape shape;
    uint32_t record_bytes;
} payload_rule;

static payload_rule rule_of(uint32_t type)
{
    switch ((rt_message_type)type) {
    case RT_MESSAGE_HEARTBEAT:
    case RT_MESSAGE_FINISH:
    case RT_MESSAGE_SAVE:
    case RT_MESSAGE_MARK:
    case RT_MESSAGE_DENSE_PULL:
        return (payload_rule){SHAPE_EMPTY, 0};
    case RT_MESSAGE_HELLO:
    case RT_MESSAGE_WELCOME:
    case RT_MESSAGE_SLICE:
    case RT_MESSAGE_BATCH:
    case RT_MESSAGE_REPORT:
    case RT_MESSAGE_STOP:
    case RT_MESSAGE_FAILED:
    case RT_MESSAGE_FINISHED:
    case RT_MESSAGE_PIECE:
    case RT_MESSAGE_TAKEN:
    case RT_MESSAGE_PUSHED:
    case RT_MESSAGE_FETCH:
    case RT_MESSAGE_FETCHED:
    case RT_MESSAGE_LOOK_UP:
    case RT_MESSAGE_LOOKED_UP:
    case RT_MESSAGE_EXPIRE:
    case RT_MESSAGE_CONTROL:
    case RT_MESSAGE_CONTROLLED:
    case RT_MESSAGE_PROBE:
    case RT_MESSAGE_PROBED:
    case RT_MESSAGE_PART:
    case RT_MESSAGE_CUT:
    case RT_MESSAGE_WRITTEN:
    case RT_MESSAGE_LOAD:
    case RT_MESSAGE_LOADED:
    case RT_MESSAGE_KEYS:
    case RT_MESSAGE_EVENTS:
    case RT_MESSAGE_KEPT:
    case RT_MESSAGE_DENSE_GRAD_INT8:
    case RT_MESSAGE_DENSE_SUM_INT8:
    case RT_MESSAGE_VITALS:
    case RT_MESSAGE_OUTCOMES:
    case RT_MESSAGE_PEERS:
    case RT_MESSAGE_MIRROR:
    case RT_MESSAGE_MIRRORED:
    case RT_MESSAGE_ALLOW:
        return (payload_rule){SHAPE_ANY, 0};
    case RT_MESSAGE_PULL:
    case RT_MESSAGE_PULL_SUM:
    case RT_MESSAGE_FORGET:
        return (payload_rule){SHAPE_RECORDS, sizeof(rt_wire_pull)};
    case RT_MESSAGE_LINK:
        return (payload_rule){SHAPE_RECORDS, sizeof(rt_wire_link)};
    case RT_MESSAGE_ROWS_CODED:
    case RT_MESSAGE_ROWS: // with state or without, as each pull's tag asked
        return (payload_rule){SHAPE_ROWS, sizeof(rt_wire_row)};
    case RT_MESSAGE_PUSH_ROW:
    case RT_MESSAGE_SUM_ROWS:
    case RT_MESSAGE_SUM_ROWS_CODED:
    case RT_MESSAGE_HANDED:
        return (payload_rule){SHAPE_STRIDES, sizeof(rt_wire_row)};
    case RT_MESSAGE_PUSH_CHANGE:
        return (payload_rule){SHAPE_STRIDES, sizeof(rt_wire_change)};
    case RT_MESSAGE_PUSH_GRAD:
    case RT_MESSAGE_PUSH_GRAD_CODED:
    case RT_MESSAGE_GRADS:
        return (payload_rule){SHAPE_STRIDES, sizeof(rt_wire_grad)};
    case RT_MESSAGE_PUSH_DELTA:
    case RT_MESSAGE_PUSH_DELTA_CODED:
        return (payload_rule){SHAPE_STRIDES, sizeof(rt_wire_delta)};
    case RT_MESSAGE_DENSE_GRAD:
    case RT_MESSAGE_DENSE_SUM:
        return (payload_rule){SHAPE_FLOATS, sizeof(rt_wire_dense)};
    case RT_MESSAGE_DENSE_GRAD_BF16:
    case RT_MESSAGE_DENSE_SUM_BF16:
        return (payload_rule){SHAPE_HALVES, sizeof(rt_wire_dense)};
    case RT_MESSAGE_DENSE_STATE:
        return (payload_rule){SHAPE_FLOATS, sizeof(rt_wire_dense_state)};
    case RT_MESSAGE_DENSE_STEP:
        return (payload_rule){SHAPE_RECORDS, sizeof(rt_wire_dense_step)};
    case RT_MESSAGE_DENSE_JOIN:
    case RT_MESSAGE_DENSE_JOINED:
        return (payload_rule){SHAPE_RECORDS, sizeof(rt_wire_dense_join)};
    }
    return (payload_rule){SHAPE_UNKNOWN, 0};
}

const char *rt_message_type_name(uint32_t type)
{
    switch ((rt_message_type)type) {
#define XX(name, number)    \
    case RT_MESSAGE_##name: \
        return #name;
        RT_MESSAGE_MAP(XX)
#undef XX
    }
    return "unknown";
}

const char *rt_peer_name(uint32_t peer, char text[32])
{
    switch (rt_peer_role(peer)) {
    case RT_ROLE_COORDINATOR:
        if (rt_peer_rank(peer) == 0)
            return strcpy(text, "coordinator");
        break;
    case RT_ROLE_WORKER:
        snprintf(text, 32, "worker %" PRIu32, rt_peer_rank(peer));
        return text;
    case RT_ROLE_PS:
        snprintf(text, 32, "ps %" PRIu32, rt_peer_rank(peer));
        return text;
    case RT_ROLE_VISITOR:
        snprintf(text, 32, "visitor %" PRIu32, rt_peer_rank(peer));
        return text;
    }
    snprintf(text, 32, "unknown peer %#" PRIx32, peer);
    return text;
}

rt_status rt_message_create(rt_message *message, rt_message_type type, uint32_t sender,
                            uint64_t iteration, uint32_t count, uint64_t payload_bytes)
{
    if (payload_bytes > RT_WIRE_PAYLOAD_BYTES_MAX)
        return RT_LIMIT;
    size_t size = sizeof(rt_wire_header) + (size_t)payload_bytes;
    uint8_t *data = malloc(size); // not rt_alloc: the payload is written once, by the caller
    if (!data)
        return RT_NO_MEMORY;
    *message = (rt_message){data, size, free, data};
    *rt_message_header(message) = (rt_wire_header){
        .magic = RT_WIRE_MAGIC,
        .version = RT_WIRE_VERSION,
        .type = (uint16_t)type,
        .sender = sender,
        .iteration = iteration,
        .count = count,
        .payload_bytes = payload_bytes,
    };
    return RT_OK;
}

typedef struct {
    atomic_uint users;
    rt_message message;
} shared_bytes;

static void release_shared(void *hint)
{
    shared_bytes *shared = hint;
    if (atomic_fetch_sub(&shared->users, 1) != 1)
        return;
    rt_message_release(&shared->message);
    rt_free(shared);
}

rt_status rt_message_share(rt_message *message, uint32_t count, rt_message *copies)
{
    shared_bytes *shared = rt_alloc(1, sizeof *shared);
    if (!shared)
        return RT_NO_MEMORY;
    rt_assert(count > 0);
    atomic_init(&shared->users, count);
    shared->message = *message;
    for (uint32_t i = 0; i < count; i++)
        copies[i] = (rt_message){message->data, message->size, release_shared, shared};
    *message = (rt_message){0};
    return RT_OK;
}

void rt_message_release(rt_message *message)
{
    if (message->release)
        message->release(message->hint);
    *message = (rt_message){0};
}

void rt_message_finish(rt_message *message, uint32_t count, uint64_t payload_bytes)
{
    rt_wire_header *header = rt_message_header(message);
    rt_assert(payload_bytes <= header->payload_bytes);
    header->count = count;
    header->payload_bytes = payload_bytes;
    message->size = sizeof *header + (size_t)payload_bytes;
}

static bool payload_fits(payload_rule rule, uint64_t count, uint64_t payload_bytes)
{
    uint64_t records_bytes = count * rule.record_bytes; // 32 bits x a few: no overflow
    switch (rule.shape) {
    case SHAPE_UNKNOWN:
        return false;
    case SHAPE_ANY:
        return true;
    case SHAPE_EMPTY:
        return payload_bytes == 0;
    case SHAPE_FLOATS:
        return payload_bytes >= rule.record_bytes &&
               (payload_bytes - rule.record_bytes) % sizeof(float) == 0;
    case SHAPE_HALVES:
        return payload_bytes >= rule.record_bytes &&
               (payload_bytes - rule.record_bytes) % sizeof(uint16_t) == 0;
    case SHAPE_RECORDS:
        return payload_bytes == records_bytes;
    case SHAPE_ROWS:
    case SHAPE_STRIDES:
        break;
    }
    if (count == 0 || payload_bytes < records_bytes)
        return payload_bytes == records_bytes;
    uint64_t floats_bytes = payload_bytes - records_bytes;
    uint64_t unit = rule.shape == SHAPE_STRIDES ? count * sizeof(float) : sizeof(float);
    return floats_bytes % unit == 0;
}

static bool peer_is_known(uint32_t peer)
{
    switch (rt_peer_role(peer)) {
    case RT_ROLE_COORDINATOR:
        return rt_peer_rank(peer) == 0;
    case RT_ROLE_WORKER:
        return rt_peer_rank(peer) < RT_WORKERS_MAX;
    case RT_ROLE_PS:
    case RT_ROLE_VISITOR:
        return true;
    }
    return false;
}

rt_status rt_message_validate(const rt_message *message, uint32_t peer, rt_error *error)
{
    char name[32];
    rt_peer_name(peer, name);
    if (message->size < sizeof(rt_wire_header))
        return rt_fail(error, RT_WIRE, "%s sent %zu bytes, a message has at least %zu", name,
                       message->size, sizeof(rt_wire_header));
    const rt_wire_header *header = rt_message_header(message);
    if (header->magic != RT_WIRE_MAGIC)
        return rt_fail(error, RT_WIRE, "%s sent %#" PRIx32 " where a message starts with %#x", name,
                       header->magic, RT_WIRE_MAGIC);
    if (header->version != RT_WIRE_VERSION && header->type != RT_MESSAGE_HELLO &&
        header->type != RT_MESSAGE_STOP)
        return rt_fail(error, RT_WIRE, "%s speaks version %u of the protocol, expected %u", name,
                       header->version, RT_WIRE_VERSION);
    payload_rule rule = rule_of(header->type);
    if (rule.shape == SHAPE_UNKNOWN)
        return rt_fail(error, RT_WIRE, "%s sent a message of unknown type %u", name, header->type);
    const char *type = rt_message_type_name(header->type);
    if (!peer_is_known(header->sender))
        return rt_fail(error, RT_WIRE, "%s sent %s with the impossible sender %#" PRIx32, name,
                       type, header->sender);
    if (header->stamp != 0 && rt_peer_role(header->sender) != RT_ROLE_PS)
        return rt_fail(error, RT_WIRE, "%s sent %s with the time stamp %#" PRIx32 " of a shard",
                       name, type, header->stamp);
    uint64_t arrived_bytes = message->size - sizeof *header;
    if (header->payload_bytes > RT_WIRE_PAYLOAD_BYTES_MAX || header->payload_bytes != arrived_bytes)
        return rt_fail(error, RT_WIRE,
                       "%s sent %s with %" PRIu64 " payload bytes, its header says %" PRIu64, name,
                       type, arrived_bytes, header->payload_bytes);
    if (!payload_fits(rule, header->count, header->payload_bytes))
        return rt_fail(error, RT_WIRE,
                       "%s sent %s whose %" PRIu64 " payload bytes cannot be %" PRIu32 " records",
                       name, type, header->payload_bytes, header->count);
    return RT_OK;
}

const void *rt_reader_take(rt_reader *reader, uint64_t count, size_t size)
{
    uint64_t bytes;
    if (reader->failed || __builtin_mul_overflow(count, size, &bytes) || bytes > reader->left) {
        reader->failed = true;
        return NULL;
    }
    const uint8_t *taken = reader->next;
    reader->next += bytes;
    reader->left -= (size_t)bytes;
    return taken;
}
