#include "runtime/wire/rt_control.h"

#include <string.h>

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
        *c = *c < ' ' || *c > '~' ? '?' : *c; // it goes to a terminal
    if (header->version != RT_WIRE_VERSION || strcmp(hello->program, RT_PROGRAM_VERSION) != 0)
        return rt_fail(error, RT_CONFIG,
                       "%s runs lanyard %s (protocol %u), the %s lanyard %s (protocol %u)", name,
                       hello->program, header->version, rt_peer_name(self, own), RT_PROGRAM_VERSION,
                       RT_WIRE_VERSION);
    if (size != sizeof *hello)
        return rt_fail(error, RT_WIRE, "%s: a HELLO of %zu bytes, expected %zu", name, size,
                       sizeof *hello);
    return RT_OK;
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
    if (status == RT_OK)
        memcpy(rt_message_payload(message), text, length);
    return status;
}

rt_status rt_control_create_end(rt_message *message, rt_message_type type, uint32_t sender,
                                rt_status status, const char *text)
{
    const rt_reason reason = status == RT_OK           ? RT_REASON_COMPLETE
                             : rt_status_lasts(status) ? RT_REASON_LASTS
                                                       : RT_REASON_FAILED;
    rt_status created = rt_control_create_text(message, type, sender, text);
    if (created == RT_OK)
        rt_message_header(message)->iteration = reason;
    return created;
}

rt_status rt_control_create_struct(rt_message *message, rt_message_type type, uint32_t sender,
                                   uint64_t iteration, const void *bytes, size_t size,
                                   const char *text)
{
    size_t length = text ? strlen(text) : 0;
    rt_status status = rt_message_create(message, type, sender, iteration, 1, size + length);
    if (status != RT_OK)
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
