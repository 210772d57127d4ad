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
    rt_bytes_clear(position);
    if (rt_reader_u64(&head) != RT_POSITION_MAGIC)
        return take(reader, sizeof(rt_position_old), position);
    const uint32_t version = rt_reader_u32(&head), size = rt_reader_u32(&head);
    if (head.failed || version != RT_POSITION_VERSION ||
        size > RT_POSITION_BYTES_MAX - RT_POSITION_HEAD_BYTES)
        return false;
    return take(reader, RT_POSITION_HEAD_BYTES + size, position);
}

// Of a position that ends here.
static uint64_t event_before(const uint8_t *end, size_t size)
{
    static const char name[RT_POSITION_NAME_BYTES] = RT_POSITION_JOURNAL;
    uint64_t event;
    if (size < sizeof name + sizeof event)
        return 0;
    memcpy(&event, end - sizeof event, sizeof event);
    return memcmp(end - sizeof event - sizeof name, name, sizeof name) == 0 ? event : 0;
}

// The position of outcomes ends what is between the stream's counts and the source's name, before
// the size of what is the parser's.
rt_position_events rt_position_find_events(const rt_bytes *position)
{
    rt_position_events events = {{0}};
    rt_reader reader = rt_bytes_reader(position);
    rt_reader_take(&reader, RT_POSITION_HEAD_BYTES + RT_POSITION_COUNTS_BYTES, 1);
    const uint64_t size = rt_reader_u64(&reader);
    const uint8_t *parser = rt_reader_take(&reader, size, 1);
    events.next[RT_FLOW_EVENTS] = event_before(position->data + position->size, position->size);
    if (parser && size > sizeof(uint64_t))
        events.next[RT_FLOW_OUTCOMES] =
            event_before(parser + size - sizeof(uint64_t), size - sizeof(uint64_t));
    return events;
}
