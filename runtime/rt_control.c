#include "runtime/rt_control.h"

#include <string.h>

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
