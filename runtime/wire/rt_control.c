#include "runtime/wire/rt_control.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/rt_hash.h"
#include "runtime/rt_log.h"

rt_status rt_control_hello(const rt_message *message, uint32_t peer, uint32_t self,
                           rt_wire_hello *hello, rt_error *error)
{
    char name[32], own[32];
    const rt_wire_header *header = rt_message_header(message);
    const size_t size = message->size - sizeof *header;
    rt_peer_name(peer, name);
    *hello = (rt_wire_hello){0};
    if (size < offsetof(rt_wire_hello, address))
        return rt_fail(error, RT_WIRE, "%s: a HELLO of %zu bytes, expected %zu", name, size,
                       sizeof *hello);
    memcpy(hello, rt_message_payload(message), rt_min_u64(size, sizeof *hello));
    if (hello->program[sizeof hello->program - 1] || hello->address[RT_ADDRESS_MAX - 1])
        return rt_fail(error, RT_WIRE, "%s: HELLO with text that does not end", name);
    for (char *c = hello->program; *c; c++)
        if (*c < ' ' || *c > '~')
            *c = '?'; // it goes to a terminal
    if (header->version != RT_WIRE_VERSION)
        return rt_fail(error, RT_CONFIG,
                       "%s runs lanyard %s (protocol %u), the %s lanyard %s (protocol %u): install "
                       "one build on all boxes",
                       name, hello->program, header->version, rt_peer_name(self, own), rt_build(),
                       RT_WIRE_VERSION);
    if (size != sizeof *hello)
        return rt_fail(error, RT_WIRE, "%s: a HELLO of %zu bytes, expected %zu", name, size,
                       sizeof *hello);
    return RT_OK;
}

rt_wire_hello rt_control_greet(uint32_t self, const rt_identity *identity)
{
    rt_wire_hello hello = {.role = rt_peer_role(self),
                           .rank = rt_peer_rank(self),
                           .pid = (uint64_t)getpid(),
                           .config_hash = identity->config_hash,
                           .given_hash = identity->given_hash,
                           .format = identity->format};
    rt_control_put_text(hello.program, sizeof hello.program, rt_build());
    return hello;
}

rt_status rt_control_agree(const rt_wire_hello *hello, const rt_identity *own, const char *name,
                           rt_error *error)
{
    const bool same_build = strcmp(hello->program, rt_build()) == 0;
    if (hello->format != own->format)
        return rt_fail(error, RT_CONFIG,
                       "%s runs lanyard %s, this is lanyard %s: their files have format %" PRIu32
                       " and %" PRIu32 ": install one build on all boxes",
                       name, hello->program, rt_build(), hello->format, own->format);
    if (hello->config_hash == own->config_hash) {
        if (!same_build)
            rt_info("%s runs lanyard %s, here is lanyard %s: they fit, both have protocol %u", name,
                    hello->program, rt_build(), RT_WIRE_VERSION);
        return RT_OK;
    }
    if (!same_build && hello->given_hash == own->given_hash)
        return rt_fail(error, RT_CONFIG,
                       "%s runs lanyard %s, this is lanyard %s; the configuration is the same, but "
                       "keys or defaults of the builds differ: install one build on all boxes",
                       name, hello->program, rt_build());
    if (same_build)
        return rt_fail(error, RT_CONFIG,
                       "%s runs with another configuration (hash %016" PRIx64 ", here %016" PRIx64
                       "): all need the same file",
                       name, hello->config_hash, own->config_hash);
    return rt_fail(error, RT_CONFIG,
                   "%s runs with another configuration (hash %016" PRIx64 ", here %016" PRIx64
                   "): all need the same file; and another build: lanyard %s, here %s",
                   name, hello->config_hash, own->config_hash, hello->program, rt_build());
}

rt_status rt_control_text(const rt_message *message, char *text, size_t size)
{
    size_t length = message->size - sizeof(rt_wire_header);
    if (length >= size || memchr(rt_message_payload(message), 0, length))
        return RT_WIRE;
    memcpy(text, rt_message_payload(message), length);
    text[length] = '\0';
    return RT_OK;
}

rt_status rt_control_create_text(rt_message *message, rt_message_type type, uint32_t sender,
                                 const char *text)
{
    size_t length = strlen(text);
    rt_status status = rt_message_create(message, type, sender, 0, 0, length);
    if (!status)
        memcpy(rt_message_payload(message), text, length);
    return status;
}

#define TAKEN "is connected already"

rt_status rt_control_create_taken(rt_message *message, uint32_t sender, uint32_t peer)
{
    char text[96], name[32];
    snprintf(text, sizeof text, "another %s " TAKEN, rt_peer_name(peer, name));
    const rt_status status = rt_control_create_text(message, RT_MESSAGE_STOP, sender, text);
    if (!status)
        rt_message_header(message)->iteration = RT_REASON_TAKEN;
    return status;
}

bool rt_control_says_taken(const char *text)
{
    const size_t size = strlen(text), end = strlen(TAKEN);
    return size >= end && strcmp(text + size - end, TAKEN) == 0;
}

bool rt_control_is_taken(const rt_message *message)
{
    char text[96];
    return rt_message_header(message)->type == RT_MESSAGE_STOP &&
           rt_control_text(message, text, sizeof text) == RT_OK && rt_control_says_taken(text);
}

static rt_reason reason_of(rt_status status)
{
    if (!status)
        return RT_REASON_COMPLETE;
    if (rt_status_lasts(status))
        return RT_REASON_LASTS;
    return RT_REASON_FAILED;
}

rt_status rt_control_create_end(rt_message *message, rt_message_type type, uint32_t sender,
                                rt_status status, const char *text)
{
    const rt_reason reason = reason_of(status);
    rt_status created = rt_control_create_text(message, type, sender, text);
    if (!created)
        rt_message_header(message)->iteration = reason;
    return created;
}

rt_status rt_control_create_struct(rt_message *message, rt_message_type type, uint32_t sender,
                                   uint64_t iteration, const void *bytes, size_t size,
                                   const char *text)
{
    size_t length = text ? strlen(text) : 0;
    rt_status status = rt_message_create(message, type, sender, iteration, 1, size + length);
    if (status)
        return status;
    memcpy(rt_message_payload(message), bytes, size);
    if (length)
        memcpy(rt_message_payload(message) + size, text, length);
    return RT_OK;
}

rt_status rt_control_create(rt_message *message, rt_message_type type, uint32_t sender)
{
    return rt_message_create(message, type, sender, 0, 0, 0);
}

bool rt_control_has(const rt_message *message, size_t size)
{
    return message->size == sizeof(rt_wire_header) + size;
}

bool rt_control_put_text(char *field, size_t size, const char *text)
{
    size_t length = strlen(text);
    memset(field, 0, size);
    if (length >= size)
        return false;
    memcpy(field, text, length);
    return true;
}

uint64_t rt_control_lineage(uint64_t base, uint64_t bytes, uint64_t hash)
{
    const uint64_t all[] = {base, bytes, hash};
    if (base == 0)
        return 0;
    return rt_max_u64(rt_hash_bytes(all, sizeof all), RT_LINEAGE_ALL_ROWS + 1);
}
