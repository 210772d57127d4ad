#include "runtime/stream/rt_position.h"

#include <string.h>

#include "runtime/rt_build.h"
#include "runtime/wire/rt_fields.h"

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
    if (head.failed || version < 2 || size > RT_POSITION_BYTES_MAX - RT_POSITION_HEAD_BYTES)
        return false;
    return take(reader, RT_POSITION_HEAD_BYTES + size, position);
}

rt_status rt_position_check(const rt_bytes *position, rt_error *error)
{
    rt_reader reader = rt_bytes_reader(position);
    if (rt_reader_u64(&reader) != RT_POSITION_MAGIC)
        return RT_OK;
    const uint32_t version = rt_reader_u32(&reader);
    if (version <= RT_POSITION_VERSION)
        return RT_OK;
    return rt_fail_format(error, "the position in the input", version, RT_POSITION_VERSION, NULL);
}

// Reads a position as rt_stream_tell writes it: what is the parser's, and the event that a journal
// goes on with. 0: its source is no journal, or these bytes are no position. The first version had
// no journals.
static uint64_t next_event(rt_reader *position, rt_reader *parser)
{
    char name[RT_POSITION_NAME_BYTES];
    if (rt_reader_u64(position) != RT_POSITION_MAGIC)
        return 0;
    rt_reader_take(position, RT_POSITION_HEAD_BYTES - sizeof(uint64_t), 1);
    rt_fields_pass(position, RT_POSITION_COUNTS_BYTES);
    const uint64_t size = rt_reader_u64(position);
    const void *bytes = rt_reader_take(position, size, 1);
    rt_reader_get(position, name, 1, sizeof name);
    const uint64_t event = rt_reader_u64(position);
    if (position->failed)
        return 0;
    *parser = (rt_reader){bytes, size, false};
    if (memcmp(name, (const char[RT_POSITION_NAME_BYTES]){RT_POSITION_JOURNAL}, sizeof name) != 0)
        return 0;
    return event;
}

// What the parser keeps, what the join does (RT_POSITION_JOIN_BYTES behind the samples left out;
// size and bytes of the position of outcomes; the same of what only newer builds have), and the
// size of the first. A position without a join says nothing of that: then sizes, or the magic
// number, do not fit.
static bool find_outcomes(const rt_reader *parser, rt_reader *outcomes)
{
    uint64_t own, size;
    if (parser->left < sizeof own)
        return false;
    rt_reader rest = {parser->next, parser->left - sizeof own, false};
    memcpy(&own, rest.next + rest.left, sizeof own);
    rt_reader_take(&rest, own, 1);
    (void)rt_reader_u64(&rest); // samples left out
    rt_fields_pass(&rest, RT_POSITION_JOIN_BYTES);
    rt_fields_pass(&rest, RT_POSITION_OUTCOME_BYTES);
    size = rt_reader_u64(&rest);
    *outcomes = (rt_reader){rest.next, size, false};
    rt_reader_take(&rest, size, 1);
    if (rest.left > 0)
        size = rt_reader_u64(&rest);
    else
        size = 0;
    return !rest.failed && size == rest.left;
}

rt_position_events rt_position_find_events(const rt_bytes *position)
{
    rt_position_events events = {{0}};
    rt_reader reader = rt_bytes_reader(position), parser = {0}, outcomes, unused;
    events.next[RT_FLOW_EVENTS] = next_event(&reader, &parser);
    if (find_outcomes(&parser, &outcomes))
        events.next[RT_FLOW_OUTCOMES] = next_event(&outcomes, &unused);
    return events;
}
