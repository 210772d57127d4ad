// A stream with a join (stream.join): events and outcomes that are read for it, and what waits.
#include <string.h>

#include "runtime/stream/rt_stream_parts.h"

#define IDLE_NS UINT64_C(50000000)               // without an event, until outcomes are looked at
#define WAITING_MAGIC UINT64_C(0x474e4954494157) // "WAITING"

rt_status rt_stream_next(rt_stream *stream, rt_batch *batch, uint64_t deadline_ns,
                         rt_line_sample *sample, rt_error *error)
{
    rt_batch_clear(batch);
    if (stream->failure.status)
        return rt_fail(error, stream->failure.status, "%s", stream->failure.text);
    rt_status status = rt_batch_reserve(batch, 1, 1);
    if (status)
        return rt_fail(error, status, "out of memory for an outcome");
    status = rt_stream_read_one(stream, batch, deadline_ns, error);
    if (status == RT_END && rt_stream_judge(stream, error))
        status = RT_DATA;
    if (status == RT_DATA || status == RT_IO)
        rt_fail(&stream->failure, status, "%s", error->text);
    *sample = stream->last;
    stream->state.samples += !status;
    return status;
}

bool rt_stream_is_behind(const rt_stream *stream)
{
    const rt_source_ops *ops = stream->source_ops;
    return ops->is_behind && ops->is_behind(stream->source);
}

bool rt_stream_was_away(const rt_stream *stream)
{
    const rt_source_ops *ops = stream->source_ops;
    return ops->was_away && ops->was_away(stream->source);
}

// Reads an event for the join. Outcomes are looked at where none comes for a while.
static rt_status read_event(rt_stream *stream, rt_joined_events *events, rt_batch *batch,
                            rt_error *error)
{
    const uint64_t soon = rt_now_ns() + IDLE_NS, deadline_ns = events->deadline_ns;
    const bool is_last = deadline_ns != 0 && deadline_ns <= soon;
    rt_status status = rt_stream_read_one(stream, batch, is_last ? deadline_ns : soon, error);
    events->idle = status == RT_AGAIN;
    events->behind = events->idle && rt_stream_is_behind(stream);
    if (!status)
        return rt_joined_offer(stream->joined, &stream->last, error);
    if (status == RT_END || status == RT_STOPPED) {
        events->ended = status == RT_END;
        stream->has_stopped = status == RT_STOPPED;
        return RT_OK;
    }
    if (status == RT_AGAIN && !is_last)
        return RT_OK;
    return status;
}

// What waits stays with the join when the stream is stopped.
rt_status rt_stream_read_joined(rt_stream *stream, rt_batch *batch, uint32_t sample_count,
                                rt_error *error)
{
    rt_joined_events events = {.dated = stream->schema.has_times};
    while (!stream->has_stopped) {
        if (events.deadline_ns == 0 && stream->wait_ns > 0 && batch->sample_count > 0)
            events.deadline_ns = rt_now_ns() + stream->wait_ns;
        const uint32_t wanted = stream->repeats ? batch->sample_count + 1 : sample_count;
        rt_status status = rt_joined_fill(stream->joined, &events, batch, wanted, error);
        if (!status && rt_stream_ends_batch(stream, batch, sample_count))
            return RT_OK;
        if (!status)
            continue;
        if (status == RT_AGAIN && rt_joined_is_held(stream->joined)) {
            if (events.deadline_ns && rt_now_ns() >= events.deadline_ns)
                return RT_OK;
            continue;
        }
        if (status == RT_AGAIN && events.ended)
            return RT_OK;
        if (status == RT_AGAIN) {
            status = read_event(stream, &events, batch, error);
            if (status == RT_AGAIN)
                return RT_OK;
        } else if (status == RT_END || status == RT_STOPPED) {
            break;
        }
        if (status)
            return status;
    }
    stream->is_ended = true;
    return RT_OK;
}

double rt_stream_pending(const rt_stream *stream)
{
    return stream->joined ? rt_joined_pending(stream->joined) : 0;
}

// ---- events that wait ------------------------------------------------------------------------

void rt_stream_remember(rt_stream *stream)
{
    if (stream->joined)
        rt_joined_remember(stream->joined);
}

// The step of a join in a position; false: it has none.
static bool find_step(const rt_stream *stream, const rt_bytes *position, uint64_t *step_p)
{
    rt_reader reader = rt_bytes_reader(position);
    uint64_t parser_size;
    rt_reader_take(&reader, RT_POSITION_HEAD_BYTES, 1);
    rt_fields_pass(&reader, RT_POSITION_COUNTS_BYTES);
    const uint64_t size = rt_reader_u64(&reader);
    const uint8_t *bytes = rt_reader_take(&reader, size, 1);
    if (!stream->joined || !bytes)
        return false;
    memcpy(&parser_size, bytes + size - sizeof parser_size, sizeof parser_size);
    rt_reader own = {bytes + parser_size, size - parser_size, false};
    (void)rt_reader_u64(&own); // samples left out
    return rt_join_find_step(&own, step_p);
}

void rt_stream_save(rt_stream *stream, const rt_bytes *position, rt_bytes *waiting)
{
    uint64_t step;
    rt_bytes bytes = {0};
    if (!find_step(stream, position, &step))
        return;
    rt_joined_save(stream->joined, step, &bytes);
    rt_bytes_put_u64(waiting, WAITING_MAGIC);
    rt_bytes_put_u64(waiting, bytes.size);
    rt_bytes_put(waiting, bytes.data, bytes.size);
    waiting->failed |= bytes.failed;
    rt_bytes_fini(&bytes);
}

bool rt_stream_waiting_is_next(const rt_reader *reader)
{
    rt_reader head = *reader;
    return rt_reader_u64(&head) == WAITING_MAGIC && !head.failed;
}

bool rt_stream_take_waiting(rt_reader *reader, rt_bytes *waiting)
{
    if (!rt_stream_waiting_is_next(reader))
        return true;
    (void)rt_reader_u64(reader);
    const uint64_t size = rt_reader_u64(reader);
    const void *bytes = rt_reader_take(reader, size, 1);
    if (bytes)
        rt_bytes_put(waiting, bytes, size);
    return bytes != NULL && !waiting->failed;
}

void rt_stream_settle(rt_stream *stream, const rt_bytes *position)
{
    uint64_t step;
    if (find_step(stream, position, &step))
        rt_joined_settle(stream->joined, step);
}

rt_status rt_stream_restore(rt_stream *stream, const rt_bytes *waiting, rt_error *error)
{
    rt_reader reader = rt_bytes_reader(waiting);
    if (stream->joined)
        return rt_joined_load(stream->joined, &reader, error);
    return RT_OK;
}
