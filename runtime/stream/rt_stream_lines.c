// Lines of a stream: what is parsed, what is malformed, what stands over several lines.
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "runtime/numbers/rt_negatives.h"
#include "runtime/rt_hash.h"
#include "runtime/rt_log.h"
#include "runtime/stream/rt_stream_parts.h"

#define MALFORMED_LOGGED_MAX 5
#define JUDGED_FROM_LINES 1000u
#define WINDOW_LINES 5000u // malformed lines are judged by the last one to two of these

const char *rt_stream_line_input(const rt_stream *stream, const rt_line *line)
{
    return stream->source_ops->input_name(stream->source, line->file);
}

// ---- malformed lines -------------------------------------------------------------------------

static rt_stream_line_counts judged(const rt_stream_state *s)
{
    return (rt_stream_line_counts){s->window[0].lines + s->window[1].lines,
                                   s->window[0].malformed + s->window[1].malformed};
}

rt_status rt_stream_judge(const rt_stream *stream, rt_error *error)
{
    const rt_stream_line_counts counts = judged(&stream->state);
    if ((double)counts.malformed <= stream->malformed_share_max * (double)counts.lines)
        return RT_OK;
    if (!stream->problem.text[0]) // what counts was read before the run went on
        return rt_fail(error, RT_DATA,
                       "%" PRIu64 " of the last %" PRIu64 " lines are malformed, "
                       "stream.malformed_share_max allows a share of %g; all of them came before "
                       "the run went on: its log from then says where and why",
                       counts.malformed, counts.lines, stream->malformed_share_max);
    return rt_fail(error, RT_DATA,
                   "%s:%" PRIu64 ": %" PRIu64 " of the last %" PRIu64 " lines are malformed,"
                   " stream.malformed_share_max allows a share of %g; the last one: %s",
                   rt_stream_line_input(stream, &stream->last_bad), stream->last_bad.number,
                   counts.malformed, counts.lines, stream->malformed_share_max,
                   stream->problem.text);
}

static void add_lines(rt_stream_state *s, uint64_t lines, uint64_t malformed)
{
    s->all.lines += lines;
    s->all.malformed += malformed;
    s->window[1].lines += lines;
    s->window[1].malformed += malformed;
}

// After the last one that is told.
static const char *rest_of_malformed(const rt_stream *stream)
{
    if (stream->bad_logged < MALFORMED_LOGGED_MAX)
        return "";
    return " (further malformed lines are only counted)";
}

// Counts the line; stream->problem says what is wrong with it.
static void note_malformed(rt_stream *stream, const rt_line *line)
{
    add_lines(&stream->state, 1, 1);
    stream->last_bad = *line;
    if (stream->bad_logged++ < MALFORMED_LOGGED_MAX)
        rt_warn("%s:%" PRIu64 ": %s%s", rt_stream_line_input(stream, line), line->number,
                stream->problem.text, rest_of_malformed(stream));
}

// Blank lines at the end of a file are nobody's fault, others are. In a file the number of the
// follower goes on from theirs; the first line of another has a smaller one.
static bool follows_blanks(const rt_stream_state *s, const rt_line *line)
{
    return line->number == s->first_blank + s->blank_lines;
}

static void settle_blanks(rt_stream *stream, const rt_line *follower)
{
    rt_stream_state *s = &stream->state;
    if (follows_blanks(s, follower)) {
        rt_line blank = {.file = follower->file, .number = s->first_blank};
        rt_line_reject(&stream->problem, "expected a sample, found an empty line");
        for (uint32_t i = 0; i < MALFORMED_LOGGED_MAX && s->blank_lines > 0; i++) {
            note_malformed(stream, &blank);
            blank.number++;
            s->blank_lines--;
        }
        add_lines(s, s->blank_lines, s->blank_lines);
        stream->last_bad.number += s->blank_lines;
    }
    s->blank_lines = 0;
}

static void note_blank(rt_stream_state *s, const rt_line *line)
{
    if (!follows_blanks(s, line))
        s->blank_lines = 0;
    if (s->blank_lines++ == 0)
        s->first_blank = line->number;
}

// The share can pass its limit only at a malformed line, when judging starts, or when good lines
// leave the window.
static rt_status judge_when_due(rt_stream *stream, const rt_stream_line_counts *before,
                                rt_error *error)
{
    rt_stream_state *s = &stream->state;
    bool is_due = s->all.malformed > before->malformed || before->lines < JUDGED_FROM_LINES;
    if (s->window[1].lines >= WINDOW_LINES) {
        s->window[0] = s->window[1];
        s->window[1] = (rt_stream_line_counts){0};
        is_due = true;
    }
    if (RT_UNLIKELY(is_due && s->all.lines >= JUDGED_FROM_LINES))
        return rt_stream_judge(stream, error);
    return RT_OK;
}

// ---- lines -----------------------------------------------------------------------------------

static void note_odd_label(rt_stream *stream, const rt_line *line, const rt_line_sample *sample)
{
    const float label = sample->labels[rt_lowest_bit(sample->odd_labels)];
    for (uint64_t rest = sample->odd_labels; rest; rest &= rest - 1)
        stream->odd_values[rt_lowest_bit(rest)] = sample->odd_value;
    if (stream->state.odd_labels++ == 0)
        rt_warn("%s:%" PRIu64
                ": the label is neither 0 nor 1 and is taken for %g (further ones are only"
                " counted)",
                rt_stream_line_input(stream, line), line->number, (double)label);
}

// Labels that are 0 as they stand, once each.
static void note_zeros(rt_stream *stream, const rt_line_sample *sample)
{
    for (uint32_t l = 0; l < stream->schema.label_count; l++)
        if (sample->labels[l] == 0 && !(sample->odd_labels & rt_bit(l)))
            stream->zeros |= rt_bit(l);
}

// A negative that negatives_keep leaves out; its number is that of the samples before it.
static bool is_left_out(const rt_stream *stream, const rt_line_sample *sample)
{
    const rt_stream_state *s = &stream->state;
    uint64_t number = s->all.lines - s->all.malformed;
    if (stream->schema.has_ids)
        number = sample->id;
    return sample->label == 0 && !rt_negatives_keeps(stream->seed, number, stream->negatives_keep);
}

// Lines that are the same are on the same side, in every epoch.
static bool is_held_out(const rt_stream *stream, const rt_line *line)
{
    rt_random random = {rt_hash_bytes(line->text, line->length) ^ rt_mix(stream->seed)};
    return rt_random_unit(&random) < stream->holdout;
}

// What only some streams do with a sample. True: it is not for the batch.
static __attribute__((noinline)) bool set_aside(rt_stream *stream, const rt_line *line,
                                                rt_line_sample *sample)
{
    if (stream->joined || stream->holds_outcomes) {
        if (!stream->schema.has_times)
            sample->time_ms = rt_joined_arrival_ms(line->arrival_ns);
        sample->arrival_ms = 0;
        if (line->clock == RT_CLOCK_KEPT)
            sample->arrival_ms = rt_joined_arrival_ms(line->arrival_ns);
        sample->origin = line->origin;
        sample->is_word = stream->schema.has_times || line->clock == RT_CLOCK_SENDER;
        stream->last = *sample;
        stream->has_event = true;
        return true;
    }
    if (stream->holdout > 0 && is_held_out(stream, line) != stream->reads_held_out) {
        stream->held_out++;
        return true;
    }
    if (stream->negatives_keep == 1 || !is_left_out(stream, sample))
        return false;
    stream->left_out++;
    return true;
}

// Parses the line into the next place of the batch, which has room; with a join: into `last`.
static bool parse(rt_stream *stream, const rt_line *line, rt_batch *batch)
{
    uint32_t i = batch->sample_count;
    rt_line_sample sample;
    sample.odd_labels = 0;
    sample.dense = batch->read + (size_t)i * batch->dense_count;
    sample.keys = batch->keys + batch->key_count;
    if (RT_UNLIKELY(stream->joined != NULL)) {
        sample.dense = stream->last.dense;
        sample.keys = stream->last.keys;
    }
    stream->problem.goes_on = false;
    if (RT_UNLIKELY(line->is_too_long))
        return rt_line_reject(&stream->problem, "expected a line of at most %u bytes, found more",
                              RT_LINE_MAX);
    if (RT_UNLIKELY(!stream->parser_ops->parse(stream->parser, line, &sample, &stream->problem)))
        return false;
    if (RT_UNLIKELY(sample.odd_labels))
        note_odd_label(stream, line, &sample);
    if (RT_UNLIKELY(stream->zeros != stream->all_labels))
        note_zeros(stream, &sample);
    if (RT_UNLIKELY(stream->sets_aside) && set_aside(stream, line, &sample))
        return true;
    if (RT_UNLIKELY(batch->is_weighted))
        rt_batch_set_labels(batch, i, sample.labels, sample.weight);
    else
        batch->labels[i] = sample.label;
    rt_batch_round(batch, i);
    batch->key_offsets[i] = batch->key_count;
    batch->key_count += sample.key_count;
    batch->key_offsets[i + 1] = batch->key_count;
    batch->sample_count++;
    return true;
}

// The place of a line that is no sample.
static void keep_place(const rt_stream *stream, rt_batch *batch)
{
    const uint32_t i = batch->sample_count, dense_count = batch->dense_count;
    if (!stream->keeps_places)
        return;
    batch->labels[(size_t)i * batch->label_count] = NAN;
    batch->key_offsets[i] = batch->key_count;
    for (uint32_t k = 0; k < dense_count; k++)
        batch->read[(size_t)i * dense_count + k] = 0;
    rt_batch_round(batch, i);
    for (uint32_t f = 0; f < stream->schema.field_count; f++)
        batch->keys[batch->key_count++] = rt_key(f, RT_ID_MISSING);
    batch->key_offsets[i + 1] = batch->key_count;
    batch->sample_count++;
}

// Some programs begin a file with the mark of UTF-8: it is no part of the first cell. (A header is
// known by its bytes, in checkpoints, too: it passes over the mark by itself.)
static void pass_mark(rt_line *line)
{
    static const char mark[] = "\xef\xbb\xbf";
    const uint32_t length = sizeof mark - 1;
    if (line->number != 1 || line->length < length || memcmp(line->text, mark, length) != 0)
        return;
    line->text += length;
    line->length -= length;
}

// A quote that is open at the end of a line may be closed on one that follows. If none does, the
// line stands alone again, and is malformed. *is_good_p: the record was parsed. RT_AGAIN,
// RT_STOPPED: what follows is not there; the line will come again.
static rt_status parse_joined(rt_stream *stream, uint64_t deadline_ns, rt_batch *batch,
                              bool *is_good_p, rt_error *error)
{
    const rt_line_problem first = stream->problem;
    const rt_source_ops *ops = stream->source_ops;
    rt_status status = RT_OK;
    rt_line line = {0};
    for (uint32_t feeds = 1; feeds < RT_LINES_JOINED_MAX && line.length < RT_LINES_JOINED_BYTES;
         feeds++) {
        ops->back(stream->source);
        status = ops->line(stream->source, deadline_ns, feeds, &line, error);
        if (status)
            break; // nothing was given out: what was is back already
        pass_mark(&line);
        *is_good_p = parse(stream, &line, batch);
        if (*is_good_p || !stream->problem.goes_on)
            break;
    }
    if (*is_good_p)
        return RT_OK;
    if (status && status != RT_END && status != RT_LIMIT)
        return status;
    if (!status)
        ops->back(stream->source);
    stream->problem = first;
    return ops->line(stream->source, 0, 0, &line, error);
}

// samples: of the batch before the line, which need not be for it.
static void note_good(rt_stream *stream, uint64_t id, uint64_t arrival_ns, uint32_t samples,
                      const rt_batch *batch)
{
    add_lines(&stream->state, 1, 0);
    if (stream->ids)
        rt_ids_add(stream->ids, id);
    if (!stream->arrivals || arrival_ns == 0 || batch->sample_count == samples ||
        batch->sample_count > stream->arrival_capacity)
        return;
    stream->arrivals[samples] = arrival_ns;
    stream->arrival_count = batch->sample_count;
}

static rt_status take_line(rt_stream *stream, rt_line *line, uint64_t deadline_ns, rt_batch *batch,
                           rt_error *error)
{
    const rt_parser_ops *parser = stream->parser_ops;
    const rt_stream_line_counts before = stream->state.all;
    const uint32_t samples = batch->sample_count;
    if (line->number == 1 && parser->header) {
        bool is_header = false;
        rt_status status = parser->header(stream->parser, rt_stream_line_input(stream, line), line,
                                          &is_header, error);
        if (is_header)
            stream->state.blank_lines = 0; // of the file before
        if (status || is_header)
            return status;
    }
    pass_mark(line);
    if (line->length == 0 && !line->is_too_long) {
        note_blank(&stream->state, line);
        keep_place(stream, batch);
        return RT_OK;
    }
    const bool drops = stream->ids && !stream->keeps_places; // else a line would lose its place
    const uint64_t id = drops ? parser->name(stream->parser, line) : 0;
    if (RT_UNLIKELY(id && rt_ids_has(stream->ids, id))) {
        rt_ids_note(stream->ids);
        return RT_OK;
    }
    bool is_good = parse(stream, line, batch);
    if (RT_UNLIKELY(!is_good && parser->is_header && parser->is_header(stream->parser, line)))
        return RT_OK; // of the next one who writes to a pipe
    if (RT_UNLIKELY(!is_good && stream->problem.goes_on)) {
        rt_status status = parse_joined(stream, deadline_ns, batch, &is_good, error);
        if (status)
            return status;
    }
    if (RT_UNLIKELY(stream->state.blank_lines > 0)) {
        const rt_line_problem problem = stream->problem;
        settle_blanks(stream, line);
        if (!is_good)
            stream->problem = problem;
    }
    if (RT_LIKELY(is_good)) {
        note_good(stream, id, line->arrival_ns, samples, batch);
    } else {
        note_malformed(stream, line);
        keep_place(stream, batch);
    }
    return judge_when_due(stream, &before, error);
}

rt_status rt_stream_read_lines(rt_stream *stream, rt_batch *batch, uint32_t sample_count,
                               rt_error *error)
{
    uint64_t deadline_ns = 0;
    for (;;) {
        rt_line line;
        const uint32_t before = batch->sample_count;
        if (deadline_ns == 0 && stream->wait_ns > 0 && batch->sample_count > 0)
            deadline_ns = rt_now_ns() + stream->wait_ns;
        rt_status status = stream->source_ops->line(stream->source, deadline_ns, 0, &line, error);
        if (!status)
            status = take_line(stream, &line, deadline_ns, batch, error);
        if (RT_LIKELY(!status)) {
            if (batch->sample_count > before && rt_stream_ends_batch(stream, batch, sample_count))
                return RT_OK;
            continue;
        }
        if (status == RT_AGAIN)
            return RT_OK;
        if (status != RT_END && status != RT_STOPPED)
            return status;
        stream->is_ended = true;
        return RT_OK;
    }
}

rt_status rt_stream_read_one(rt_stream *stream, rt_batch *batch, uint64_t deadline_ns,
                             rt_error *error)
{
    rt_line line;
    stream->has_event = false;
    while (!stream->has_event) {
        rt_status status = stream->source_ops->line(stream->source, deadline_ns, 0, &line, error);
        if (!status)
            status = take_line(stream, &line, deadline_ns, batch, error);
        if (status)
            return status;
    }
    return RT_OK;
}
