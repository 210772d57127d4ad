#include "runtime/stream/rt_stream.h"

#include <string.h>

#include "runtime/rt_log.h"
#include "runtime/stream/rt_criteo.h"
#include "runtime/stream/rt_keyset.h"
#include "runtime/stream/rt_source.h"
#include "runtime/stream/rt_synthetic.h"
#include "runtime/stream/rt_table.h"

#define MALFORMED_LOGGED_MAX 5
#define JUDGED_FROM_LINES 1000
#define COUNT_BATCH 4096u

struct rt_stream {
    rt_schema schema;
    uint64_t samples_max; // UINT64_MAX: none
    double malformed_share_max;
    bool has_header;
    rt_source *source; // of the parsers
    rt_criteo *criteo; // one of these three is there
    rt_table *table;
    rt_synthetic *synthetic;
    rt_stream_stats stats;
    uint64_t blank_lines;    // just read: malformed if another line of their file follows
    rt_line first_blank;     // its text is gone
    rt_line last_bad;        // the last malformed line; its text is gone
    rt_line_problem problem; // of it
    bool is_ended;
    rt_error failure; // a stream that failed stays failed
};

static rt_status open_source(rt_stream *stream, const rt_stream_config *config, rt_error *error)
{
    if (config->file_count == 0)
        return rt_fail(error, RT_CONFIG, "stream.files: expected at least one file");
    return rt_source_open(config->files, config->file_count, &stream->source, error);
}

static rt_status open_format(rt_stream *stream, const rt_stream_config *config, uint64_t seed,
                             rt_error *error)
{
    rt_status status = RT_OK;
    switch (config->format) {
    case RT_FORMAT_CRITEO:
        if (rt_criteo_create(&stream->criteo))
            return rt_fail(error, RT_NO_MEMORY, "out of memory for a stream");
        rt_criteo_schema(&stream->schema);
        return RT_OK;
    case RT_FORMAT_TABLE:
        status = rt_table_create(&config->table, &stream->table, error);
        if (status)
            return status;
        rt_table_schema(stream->table, &stream->schema);
        stream->has_header = config->table.has_header;
        return RT_OK;
    case RT_FORMAT_SYNTHETIC:
        status = rt_synthetic_create(config, seed, &stream->synthetic, error);
        if (status)
            return status;
        rt_synthetic_schema(stream->synthetic, &stream->schema);
        return RT_OK;
    }
    return rt_fail(error, RT_CONFIG, "stream.format: unknown value %d", (int)config->format);
}

rt_status rt_stream_open(const rt_stream_config *config, uint64_t seed, rt_stream **stream_p,
                         rt_error *error)
{
    rt_stream *stream = rt_alloc(1, sizeof *stream);
    if (!stream)
        return rt_fail(error, RT_NO_MEMORY, "out of memory for a stream");
    stream->samples_max = config->samples_max ? config->samples_max : UINT64_MAX;
    stream->malformed_share_max = config->malformed_share_max;
    rt_status status = open_format(stream, config, seed, error);
    if (!status && config->format != RT_FORMAT_SYNTHETIC)
        status = open_source(stream, config, error);
    if (status) {
        rt_stream_close(stream);
        return status;
    }
    *stream_p = stream;
    return RT_OK;
}

rt_status rt_stream_read_schema(const rt_stream_config *config, uint64_t seed, rt_schema *schema,
                                rt_error *error)
{
    rt_stream *stream = rt_alloc(1, sizeof *stream);
    if (!stream)
        return rt_fail(error, RT_NO_MEMORY, "out of memory for a stream");
    rt_status status = open_format(stream, config, seed, error);
    if (!status)
        *schema = stream->schema;
    rt_stream_close(stream);
    return status;
}

void rt_stream_close(rt_stream *stream)
{
    if (!stream)
        return;
    rt_source_close(stream->source);
    rt_criteo_destroy(stream->criteo);
    rt_table_destroy(stream->table);
    rt_synthetic_destroy(stream->synthetic);
    rt_free(stream);
}

void rt_stream_set_stop(rt_stream *stream, int fd)
{
    if (stream->source)
        rt_source_set_stop(stream->source, fd);
}

const rt_schema *rt_stream_schema(const rt_stream *stream)
{
    return &stream->schema;
}

rt_stream_stats rt_stream_statistics(const rt_stream *stream)
{
    rt_stream_stats stats = stream->stats;
    if (stream->source) {
        stats.bytes_read = rt_source_bytes_read(stream->source);
        stats.bytes_all = rt_source_bytes_all(stream->source);
    }
    return stats;
}

static rt_status judge(const rt_stream *stream, rt_error *error)
{
    const rt_stream_stats *stats = &stream->stats;
    if ((double)stats->malformed <= stream->malformed_share_max * (double)stats->lines)
        return RT_OK;
    return rt_fail(error, RT_DATA,
                   "%s:%llu: %llu of %llu lines are malformed, stream.malformed_share_max allows a"
                   " share of %g; the last one: %s",
                   rt_source_path(stream->source, stream->last_bad.file),
                   (unsigned long long)stream->last_bad.number,
                   (unsigned long long)stats->malformed, (unsigned long long)stats->lines,
                   stream->malformed_share_max, stream->problem.text);
}

// Counts the line; stream->problem says what is wrong with it.
static void note_malformed(rt_stream *stream, const rt_line *line)
{
    stream->stats.lines++;
    stream->stats.malformed++;
    stream->last_bad = *line;
    if (stream->stats.malformed <= MALFORMED_LOGGED_MAX)
        rt_warn("%s:%llu: %s%s", rt_source_path(stream->source, line->file),
                (unsigned long long)line->number, stream->problem.text,
                stream->stats.malformed == MALFORMED_LOGGED_MAX
                    ? " (further malformed lines are only counted)"
                    : "");
}

// Blank lines at the end of a file are nobody's fault, others are.
static void settle_blanks(rt_stream *stream, const rt_line *follower)
{
    if (follower->file == stream->first_blank.file) {
        rt_line blank = stream->first_blank;
        rt_line_reject(&stream->problem, "expected a sample, found an empty line");
        for (uint32_t i = 0; i < MALFORMED_LOGGED_MAX && stream->blank_lines > 0; i++) {
            note_malformed(stream, &blank);
            blank.number++;
            stream->blank_lines--;
        }
        stream->stats.lines += stream->blank_lines;
        stream->stats.malformed += stream->blank_lines;
        stream->last_bad.number += stream->blank_lines;
    }
    stream->blank_lines = 0;
}

// Parses the line into the next place of the batch, which has room.
static bool parse(rt_stream *stream, const rt_line *line, rt_batch *batch)
{
    uint32_t i = batch->sample_count;
    rt_line_sample sample = {
        .dense = batch->dense + (size_t)i * batch->dense_count,
        .keys = batch->keys + batch->key_count,
    };
    if (RT_UNLIKELY(line->is_too_long))
        return rt_line_reject(&stream->problem, "expected a line of at most %u bytes, found more",
                              RT_LINE_MAX);
    bool is_good = stream->criteo ? rt_criteo_parse(stream->criteo, line, &sample, &stream->problem)
                                  : rt_table_parse(stream->table, line, &sample, &stream->problem);
    if (RT_UNLIKELY(!is_good))
        return false;
    batch->labels[i] = sample.label;
    batch->key_offsets[i] = batch->key_count;
    batch->key_count += sample.key_count;
    batch->key_offsets[i + 1] = batch->key_count;
    batch->sample_count++;
    return true;
}

static rt_status take_line(rt_stream *stream, const rt_line *line, rt_batch *batch, rt_error *error)
{
    if (stream->has_header && line->number == 1)
        return RT_OK;
    if (line->length == 0 && !line->is_too_long) {
        if (stream->blank_lines > 0 && stream->first_blank.file != line->file)
            stream->blank_lines = 0;
        if (stream->blank_lines++ == 0)
            stream->first_blank = *line;
        return RT_OK;
    }
    const rt_stream_stats before = stream->stats;
    if (RT_UNLIKELY(stream->blank_lines > 0))
        settle_blanks(stream, line);
    if (RT_LIKELY(parse(stream, line, batch)))
        stream->stats.lines++;
    else
        note_malformed(stream, line);
    // The share can pass its limit only at a malformed line, or when judging starts.
    bool is_due = stream->stats.malformed > before.malformed || before.lines < JUDGED_FROM_LINES;
    if (RT_UNLIKELY(is_due && stream->stats.lines >= JUDGED_FROM_LINES))
        return judge(stream, error);
    return RT_OK;
}

static rt_status read_lines(rt_stream *stream, rt_batch *batch, uint32_t sample_count,
                            rt_error *error)
{
    while (batch->sample_count < sample_count) {
        rt_line line;
        rt_status status = rt_source_line(stream->source, &line, error);
        if (status == RT_END || status == RT_STOPPED) {
            stream->is_ended = true;
            return RT_OK;
        }
        if (!status)
            status = take_line(stream, &line, batch, error);
        if (RT_UNLIKELY(status))
            return status;
    }
    return RT_OK;
}

rt_status rt_stream_read(rt_stream *stream, rt_batch *batch, uint32_t sample_count_max,
                         rt_error *error)
{
    rt_assert(sample_count_max > 0 && batch->dense_count == stream->schema.dense_count);
    rt_batch_clear(batch);
    if (stream->failure.status)
        return rt_fail(error, stream->failure.status, "%s", stream->failure.text);
    if (stream->is_ended)
        return RT_END;
    uint64_t left = stream->samples_max - stream->stats.samples;
    uint32_t sample_count = (uint32_t)rt_min_u64(sample_count_max, left);
    if (rt_batch_reserve(batch, sample_count,
                         (uint64_t)sample_count * stream->schema.keys_per_sample_max))
        return rt_fail(error, RT_NO_MEMORY, "out of memory for a batch of %u samples",
                       sample_count);
    rt_status status = RT_OK;
    if (stream->synthetic)
        rt_synthetic_fill(stream->synthetic, batch, sample_count);
    else
        status = read_lines(stream, batch, sample_count, &stream->failure);
    stream->stats.samples += batch->sample_count;
    stream->is_ended = stream->is_ended || stream->stats.samples == stream->samples_max;
    if (!status && stream->is_ended && stream->source)
        status = judge(stream, &stream->failure);
    if (status)
        return rt_fail(error, status, "%s", stream->failure.text);
    return batch->sample_count > 0 ? RT_OK : RT_END;
}

rt_stream_position rt_stream_tell(const rt_stream *stream)
{
    rt_stream_position position = {.samples = stream->stats.samples,
                                   .lines = stream->stats.lines,
                                   .malformed = stream->stats.malformed};
    if (stream->synthetic) {
        position.offset = rt_synthetic_position(stream->synthetic);
        return position;
    }
    const rt_source_position source = rt_source_tell(stream->source);
    position.file = source.file;
    position.offset = source.offset;
    position.line = source.line;
    position.blank_lines = stream->blank_lines;
    position.blank_file = stream->first_blank.file;
    position.first_blank = stream->first_blank.number;
    return position;
}

rt_status rt_stream_seek(rt_stream *stream, const rt_stream_position *position, rt_error *error)
{
    rt_assert(stream->stats.samples == 0 && !stream->is_ended);
    stream->stats.samples = position->samples;
    stream->stats.lines = position->lines;
    stream->stats.malformed = position->malformed;
    stream->is_ended = position->samples >= stream->samples_max;
    if (stream->synthetic) {
        rt_synthetic_seek(stream->synthetic, position->offset);
        return RT_OK;
    }
    if (position->malformed > position->lines ||
        position->samples != position->lines - position->malformed)
        return rt_fail(error, RT_DATA, "reading is to go on after %llu samples of %llu lines",
                       (unsigned long long)position->samples, (unsigned long long)position->lines);
    const rt_source_position source = {position->file, position->offset, position->line};
    stream->blank_lines = position->blank_lines;
    stream->first_blank = (rt_line){.file = position->blank_file, .number = position->first_blank};
    rt_status status = rt_source_seek(stream->source, &source, error);
    stream->is_ended |= status == RT_STOPPED;
    return status == RT_STOPPED ? RT_OK : status;
}

static rt_status count_batches(rt_stream *stream, rt_keyset *set, rt_error *error)
{
    rt_batch batch;
    rt_batch_init(&batch, stream->schema.dense_count);
    rt_status status;
    while (!(status = rt_stream_read(stream, &batch, COUNT_BATCH, error))) {
        if (rt_keyset_add(set, batch.keys, batch.key_count)) {
            status = rt_fail(error, RT_NO_MEMORY, "out of memory after %llu distinct keys",
                             (unsigned long long)rt_keyset_count(set));
            break;
        }
    }
    rt_batch_fini(&batch);
    return status == RT_END ? RT_OK : status;
}

// A count that would never end, or leave nothing to train on.
static rt_status check_countable(const rt_stream_config *config, rt_error *error)
{
    if (config->format == RT_FORMAT_SYNTHETIC) {
        if (config->samples_max == 0)
            return rt_fail(error, RT_CONFIG,
                           "the keys of an endless stream cannot be counted: set"
                           " cache.distinct_keys or stream.samples_max");
        return RT_OK;
    }
    for (uint32_t i = 0; i < config->file_count; i++) {
        if (strcmp(config->files[i], "-") == 0)
            return rt_fail(error, RT_CONFIG,
                           "the keys of standard input cannot be counted, it is read only once:"
                           " set cache.distinct_keys");
    }
    return RT_OK;
}

rt_status rt_stream_count_keys(const rt_stream_config *config, uint64_t seed,
                               uint64_t *distinct_keys_p, rt_error *error)
{
    rt_stream *stream;
    rt_keyset set;
    rt_status status = check_countable(config, error);
    if (!status)
        status = rt_stream_open(config, seed, &stream, error);
    if (status)
        return status;
    if (rt_keyset_init(&set)) {
        status = rt_fail(error, RT_NO_MEMORY, "out of memory for counting keys");
    } else {
        status = count_batches(stream, &set, error);
        if (!status)
            *distinct_keys_p = rt_keyset_count(&set);
        rt_keyset_fini(&set);
    }
    rt_stream_close(stream);
    return status;
}
