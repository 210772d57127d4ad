// Where a stream stands, as bytes (rt_position.h), and names of events at a position.
#include <inttypes.h>
#include <string.h>

#include "runtime/stream/rt_stream_parts.h"

#define COUNTS(XX, PART, NONE, T) \
    XX(T, lines)                  \
    XX(T, malformed)
RT_FIELDS(counts_fields, rt_stream_line_counts, COUNTS, "lines:8 malformed:8");
#define STATE(XX, PART, NONE, T)                                                    \
    XX(T, samples)                                                                  \
    PART(T, all, &counts_fields) PART(T, window, &counts_fields) XX(T, blank_lines) \
    XX(T, first_blank)                                                              \
    XX(T, positive)                                                                 \
    XX(T, odd_labels)
RT_FIELDS_SHARED(rt_stream_state_fields, rt_stream_state, STATE,
                 "samples:8 all*1{lines:8 malformed:8} window*2{lines:8 malformed:8} blank_lines:8 "
                 "first_blank:8 positive:8 odd_labels:8");

// ---- positions -------------------------------------------------------------------------------

// Beside the counts that every position has: behind what the parser keeps, with its size.
static bool keeps_more(const rt_stream *stream)
{
    return stream->joined || stream->negatives_keep < 1 || stream->holdout > 0;
}

// Which samples are held out follows from both.
static rt_status check_holdout(const rt_stream *stream, rt_reader *more, rt_error *error)
{
    double share = 0;
    rt_reader_get(more, &share, sizeof share, 1);
    const uint64_t seed = rt_reader_u64(more);
    if (more->failed)
        return rt_fail(error, RT_DATA, "the position is one without stream.holdout, or damaged");
    if (share == stream->holdout && seed == stream->seed)
        return RT_OK;
    return rt_fail(error, RT_DATA,
                   "stream.holdout was %g with seed %" PRIu64 ", it is %g with seed %" PRIu64
                   ": what was trained before would be held out now; a run goes on with what it "
                   "began with",
                   share, seed, stream->holdout, stream->seed);
}

static void tell_held_out(const rt_stream *stream, rt_bytes *bytes)
{
    rt_bytes_put_u64(bytes, stream->held_out);
    rt_bytes_put(bytes, &stream->holdout, sizeof stream->holdout);
    rt_bytes_put_u64(bytes, stream->seed);
}

static void tell_more(const rt_stream *stream, rt_bytes *bytes)
{
    const uint64_t parser_size = bytes->size;
    rt_bytes_put_u64(bytes, stream->left_out);
    if (stream->holdout > 0)
        tell_held_out(stream, bytes);
    if (stream->joined)
        rt_joined_tell(stream->joined, bytes);
    rt_bytes_put_u64(bytes, parser_size);
}

// Leaves what is the parser's.
static rt_status seek_more(rt_stream *stream, rt_reader *bytes, rt_error *error)
{
    uint64_t parser_size = UINT64_MAX;
    if (bytes->left >= sizeof parser_size)
        memcpy(&parser_size, bytes->next + bytes->left - sizeof parser_size, sizeof parser_size);
    if (bytes->left < 2 * sizeof parser_size || parser_size > bytes->left - 2 * sizeof parser_size)
        return rt_fail(error, RT_DATA,
                       "the position is one without stream.join, stream.negatives_keep and "
                       "stream.holdout");
    rt_reader more = {bytes->next + parser_size, bytes->left - parser_size - sizeof parser_size,
                      false};
    bytes->left = parser_size;
    stream->left_out = rt_reader_u64(&more);
    if (stream->holdout > 0)
        stream->held_out = rt_reader_u64(&more);
    rt_status status = stream->holdout > 0 ? check_holdout(stream, &more, error) : RT_OK;
    if (!status && stream->joined)
        return rt_joined_seek(stream->joined, &more, error);
    return status;
}

void rt_stream_tell(const rt_stream *stream, rt_bytes *position)
{
    char name[RT_POSITION_NAME_BYTES] = {0};
    rt_stream_state s = stream->state;
    rt_bytes parser = {0};
    rt_bytes_clear(position);
    strncpy(name, stream->source_ops->name, sizeof name - 1);
    rt_bytes_put_u64(position, RT_POSITION_MAGIC);
    rt_bytes_put_u32(position, RT_POSITION_VERSION);
    rt_bytes_put_u32(position, 0);
    rt_fields_put(position, &rt_stream_state_fields, &s, 1);
    if (stream->parser_ops && stream->parser_ops->tell)
        stream->parser_ops->tell(stream->parser, &parser);
    if (keeps_more(stream))
        tell_more(stream, &parser);
    rt_bytes_put_u64(position, parser.size);
    rt_bytes_put(position, parser.data, parser.size);
    rt_bytes_put(position, name, sizeof name);
    stream->source_ops->tell(stream->source, position);
    position->failed |= parser.failed;
    rt_bytes_fini(&parser);
    if (position->failed)
        return;
    rt_assert(position->size <= RT_POSITION_BYTES_MAX);
    const uint32_t size = (uint32_t)(position->size - RT_POSITION_HEAD_BYTES);
    memcpy(position->data + RT_POSITION_HEAD_BYTES - sizeof size, &size, sizeof size);
}

static rt_status check_counts(const rt_stream *stream, rt_error *error)
{
    const rt_stream_state *s = &stream->state;
    if (!stream->parser || stream->joined ||
        (s->all.malformed <= s->all.lines &&
         s->samples + stream->left_out + stream->held_out == s->all.lines - s->all.malformed))
        return RT_OK;
    return rt_fail(error, RT_DATA,
                   "reading is to go on after %" PRIu64 " samples of %" PRIu64 " lines", s->samples,
                   s->all.lines);
}

static rt_status seek_old(rt_stream *stream, const rt_bytes *position, rt_error *error)
{
    rt_position_old old;
    memcpy(&old, position->data, sizeof old);
    stream->state = (rt_stream_state){.samples = old.samples,
                                      .all = {old.lines, old.malformed},
                                      .window[1] = {old.lines, old.malformed},
                                      .blank_lines = old.blank_lines,
                                      .first_blank = old.first_blank};
    const rt_source_place place = {.offset = old.offset, .line = old.line, .file = old.file};
    rt_status status = check_counts(stream, error);
    if (status)
        return status;
    return stream->source_ops->seek(stream->source, NULL, &place, error);
}

static rt_status seek_new(rt_stream *stream, const rt_bytes *position, rt_error *error)
{
    char name[RT_POSITION_NAME_BYTES];
    rt_reader reader = rt_bytes_reader(position);
    rt_status status = rt_position_check(position, error);
    if (status)
        return status;
    rt_reader_take(&reader, RT_POSITION_HEAD_BYTES, 1);
    rt_fields_get(&reader, &rt_stream_state_fields, &stream->state, 1);
    const uint64_t parser_size = rt_reader_u64(&reader);
    const void *bytes = rt_reader_take(&reader, parser_size, 1);
    if (!rt_reader_get(&reader, name, 1, sizeof name) || reader.failed)
        return rt_fail(error, RT_DATA, "the position in the input is damaged");
    name[sizeof name - 1] = '\0';
    if (strcmp(name, stream->source_ops->name) != 0)
        return rt_fail(error, RT_DATA, "the position is one of another source (%s), this one is %s",
                       name, stream->source_ops->name);
    rt_reader parser = {bytes, parser_size, false};
    if (keeps_more(stream))
        status = seek_more(stream, &parser, error);
    if (status)
        return status;
    bool is_ours = parser.left == 0;
    if (stream->parser_ops && stream->parser_ops->seek)
        is_ours = stream->parser_ops->seek(stream->parser, &parser);
    if (!is_ours)
        return rt_fail(error, RT_DATA,
                       "the position is one of another format of lines, or one with stream.join, "
                       "stream.negatives_keep or stream.holdout");
    status = check_counts(stream, error);
    if (status)
        return status;
    return stream->source_ops->seek(stream->source, &reader, NULL, error);
}

rt_status rt_stream_seek(rt_stream *stream, const rt_bytes *position, rt_error *error)
{
    rt_assert(stream->state.samples == 0 && !stream->is_ended);
    const bool is_old = position->size == sizeof(rt_position_old) &&
                        memcmp(position->data, &(uint64_t){RT_POSITION_MAGIC}, 8) != 0;
    rt_status status;
    if (is_old)
        status = seek_old(stream, position, error);
    else
        status = seek_new(stream, position, error);
    stream->begun = stream->state;
    stream->is_ended = status == RT_STOPPED || stream->state.samples >= stream->samples_max;
    if (status == RT_STOPPED)
        return RT_OK;
    return status;
}

void rt_stream_save_ids(const rt_stream *stream, const rt_bytes *position, rt_bytes *bytes)
{
    rt_reader reader = rt_bytes_reader(position);
    rt_stream_state s;
    rt_reader_take(&reader, RT_POSITION_HEAD_BYTES, 1);
    if (stream->ids && rt_fields_get(&reader, &rt_stream_state_fields, &s, 1))
        rt_ids_save(stream->ids, s.all.lines - s.all.malformed, bytes);
}

rt_status rt_stream_load_ids(rt_stream *stream, const rt_bytes *bytes, rt_error *error)
{
    rt_reader reader = rt_bytes_reader(bytes);
    if (!stream->ids || bytes->size == 0)
        return RT_OK;
    return rt_ids_load(stream->ids, &reader, error);
}
