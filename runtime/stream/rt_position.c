#include "runtime/stream/rt_position.h"

#include <string.h>

static bool take(rt_reader *reader, size_t size, rt_bytes *position)
{
    const void *bytes = rt_reader_take(reader, size, 1);
    if (bytes)
        rt_bytes_put(position, bytes, size);
    return bytes != NULL && !position->failed;
}

bool rt_position_take(rt_reader *reader, rt_bytes *position)
{
    rt_reader head = *reader;
    position->size = 0;
    if (rt_reader_u64(&head) != RT_POSITION_MAGIC)
        return take(reader, sizeof(rt_position_old), position);
    const uint32_t version = rt_reader_u32(&head), size = rt_reader_u32(&head);
    if (head.failed || version != RT_POSITION_VERSION ||
        size > RT_POSITION_BYTES_MAX - RT_POSITION_HEAD_BYTES)
        return false;
    return take(reader, RT_POSITION_HEAD_BYTES + size, position);
}

uint64_t rt_position_event(const rt_bytes *position)
{
    static const char name[RT_POSITION_NAME_BYTES] = RT_POSITION_JOURNAL;
    uint64_t event;
    if (position->size < sizeof name + sizeof event)
        return 0;
    const uint8_t *end = position->data + position->size;
    memcpy(&event, end - sizeof event, sizeof event);
    return memcmp(end - sizeof event - sizeof name, name, sizeof name) == 0 ? event : 0;
}
