// Bytes of a peer: whatever passes validation has records that lie within the message.
#include <stdlib.h>
#include <string.h>

#include "runtime/wire/rt_control.h"
#include "runtime/wire/rt_wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

// All that there are, so that none is forgotten, and one that is none.
static const uint16_t types[] = {
#define XX(name, number, ...) number,
    RT_MESSAGE_MAP(XX)
#undef XX
        0};

// Random bytes hardly ever guess magic, version and length: for odd inputs they are set right.
static void mend(rt_message *message)
{
    rt_wire_header *header = rt_message_header(message);
    header->magic = RT_WIRE_MAGIC;
    header->version = RT_WIRE_VERSION;
    header->type = types[header->type % RT_COUNT_OF(types)];
    header->sender = rt_peer((rt_role)(1 + header->sender % RT_ROLES), 0);
    header->stamp = 0;
    header->payload_bytes = message->size - sizeof *header;
}

static void read_all(const rt_message *message)
{
    const rt_wire_header *header = rt_message_header(message);
    rt_reader reader = rt_message_reader(message);
    volatile uint8_t last = 0;
    _Static_assert(sizeof(rt_wire_delta) == sizeof(rt_wire_grad), "one size below");
    _Static_assert(sizeof(rt_wire_change) == sizeof(rt_wire_pull), "likewise");
    const bool is_delta =
        header->type == RT_MESSAGE_PUSH_DELTA || header->type == RT_MESSAGE_PUSH_DELTA_CODED ||
        header->type == RT_MESSAGE_PUSH_GRAD_CODED || header->type == RT_MESSAGE_GRADS;
    const bool is_coded =
        header->type == RT_MESSAGE_ROWS_CODED || header->type == RT_MESSAGE_PUSH_CHANGE;
    size_t record_bytes = is_delta || header->type == RT_MESSAGE_PUSH_GRAD ? sizeof(rt_wire_grad)
                                                                           : sizeof(rt_wire_pull);
    bool has_records = (header->type >= RT_MESSAGE_PULL && header->type <= RT_MESSAGE_PUSH_GRAD) ||
                       is_delta || is_coded || header->type == RT_MESSAGE_HANDED;
    const uint8_t *records = rt_reader_take(&reader, header->count, record_bytes);
    rt_assert(records || !has_records); // validation has compared count and size
    if (records && header->count)
        last = records[header->count * record_bytes - 1];
    (void)last;
    rt_wire_hello hello;
    rt_error error;
    char text[256];
    if (rt_control_hello(message, header->sender, header->sender, &hello, &error) == RT_OK)
        rt_assert(strlen(hello.address) < sizeof hello.address);
    if (rt_control_text(message, text, sizeof text) == RT_OK)
        rt_assert(strlen(text) < sizeof text);
    (void)rt_message_type_name(header->type);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    rt_error error;
    uint8_t *copy = malloc(size + 1);
    if (!copy)
        return 0;
    memcpy(copy, bytes, size);
    rt_message message = {copy, size, free, copy};
    if (size > sizeof(rt_wire_header) && bytes[size - 1] % 2)
        mend(&message);
    if (rt_message_validate(&message, rt_peer(RT_ROLE_WORKER, 1), &error) == RT_OK)
        read_all(&message);
    rt_message_release(&message);
    return 0;
}
