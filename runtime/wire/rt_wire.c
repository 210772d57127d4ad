#include "runtime/wire/rt_wire.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// As RT_MESSAGE_MAP has them; of a number that no message has: zeros.
typedef enum {
    SHAPE_UNKNOWN,
    SHAPE_ANY,
    SHAPE_EMPTY,
    SHAPE_RECORDS,
    SHAPE_ROWS,
    SHAPE_STRIDES,
    SHAPE_FLOATS,
    SHAPE_HALVES,
} payload_shape;

typedef struct {
    const char *name;
    payload_shape shape;
    uint32_t record_bytes;
} message_rule;

static const message_rule rules[] = {
#define ANY SHAPE_ANY, 0
#define EMPTY SHAPE_EMPTY, 0
#define RECORDS(type) SHAPE_RECORDS, sizeof(type)
#define ROWS(type) SHAPE_ROWS, sizeof(type)
#define STRIDES(type) SHAPE_STRIDES, sizeof(type)
#define FLOATS(type) SHAPE_FLOATS, sizeof(type)
#define HALVES(type) SHAPE_HALVES, sizeof(type)
#define XX(name, number, payload, cause) [number] = {#name, payload},
    RT_MESSAGE_MAP(XX)
#undef XX
};

static const message_rule *rule_of(uint32_t type)
{
    static const message_rule unknown = {.name = "unknown"};
    if (type >= RT_COUNT_OF(rules) || rules[type].shape == SHAPE_UNKNOWN)
        return &unknown;
    return &rules[type];
}

const char *rt_message_type_name(uint32_t type)
{
    return rule_of(type)->name;
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

static bool payload_fits(const message_rule *rule, uint64_t count, uint64_t payload_bytes)
{
    uint64_t records_bytes = count * rule->record_bytes; // 32 bits x a few: no overflow
    switch (rule->shape) {
    case SHAPE_UNKNOWN:
        return false;
    case SHAPE_ANY:
        return true;
    case SHAPE_EMPTY:
        return payload_bytes == 0;
    case SHAPE_FLOATS:
        return payload_bytes >= rule->record_bytes &&
               (payload_bytes - rule->record_bytes) % sizeof(float) == 0;
    case SHAPE_HALVES:
        return payload_bytes >= rule->record_bytes &&
               (payload_bytes - rule->record_bytes) % sizeof(uint16_t) == 0;
    case SHAPE_RECORDS:
        return payload_bytes == records_bytes;
    case SHAPE_ROWS:
    case SHAPE_STRIDES:
        break;
    }
    if (count == 0 || payload_bytes < records_bytes)
        return payload_bytes == records_bytes;
    uint64_t floats_bytes = payload_bytes - records_bytes;
    if (rule->shape == SHAPE_STRIDES)
        return floats_bytes % (count * sizeof(float)) == 0;
    return floats_bytes % sizeof(float) == 0;
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
    const message_rule *rule = rule_of(header->type);
    if (rule->shape == SHAPE_UNKNOWN)
        return rt_fail(error, RT_WIRE, "%s sent a message of unknown type %u", name, header->type);
    const char *type = rule->name;
    if (!peer_is_known(header->sender))
        return rt_fail(error, RT_WIRE, "%s sent %s with the impossible sender %#" PRIx32, name,
                       type, header->sender);
    const bool has_place =
        header->type == RT_MESSAGE_PUSH_GRAD || header->type == RT_MESSAGE_PUSH_GRAD_CODED;
    if (header->stamp != 0 && rt_peer_role(header->sender) != RT_ROLE_PS && !has_place)
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
