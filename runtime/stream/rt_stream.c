#include "runtime/stream/rt_stream.h"

#include <inttypes.h>
#include <string.h>

#include "runtime/stream/rt_stream_parts.h"

#define IDS_AHEAD (1u << 21) // events that were read and are in no checkpoint's reach yet

// A new source is one line here.
static const rt_source_ops *const sources[] = {
    &rt_source_synthetic, &rt_source_files, &rt_source_live, &rt_source_follow,
#ifdef RT_HAS_KAFKA
    &rt_source_kafka,
#endif
};

// ---- opening ---------------------------------------------------------------------------------

const rt_source_ops *rt_source_of(const rt_stream_config *config)
{
    size_t i = 0;
    while (i < RT_COUNT_OF(sources) && !sources[i]->serves(config))
        i++;
    if (i == RT_COUNT_OF(sources))
        return NULL;
    return sources[i];
}

// What reads lines: the parser, and with_input the names of the last events (stream.id).
static rt_status open_lines(rt_stream *stream, const rt_stream_config *config, bool with_input,
                            rt_error *error)
{
    const rt_status status = rt_parser_open(config, &stream->parser_ops, &stream->parser, error);
    if (status)
        return status;
    stream->parser_ops->schema(stream->parser, &stream->schema);
    if (with_input && *config->id && !config->labels_optional &&
        rt_ids_create(config->id_window, IDS_AHEAD, &stream->ids))
        return rt_fail(error, RT_NO_MEMORY, "out of memory for stream.id_window");
    return RT_OK;
}

// with_input: of a source of lines, which the schema does not need.
static rt_status open_parts(rt_stream *stream, const rt_stream_config *config, uint64_t seed,
                            bool with_input, rt_error *error)
{
    rt_status status = RT_OK;
    stream->source_ops = rt_source_of(config);
    if (!stream->source_ops)
        return rt_fail(error, RT_UNSUPPORTED,
                       "stream.source: this build has no \"%s\" (docs/DEPENDENCIES.md)",
                       rt_config_choice_name("stream.source", (int)config->source));
    const bool gives_lines = stream->source_ops->line != NULL;
    if (gives_lines)
        status = open_lines(stream, config, with_input, error);
    if (status || (gives_lines && !with_input))
        return status;
    status = stream->source_ops->open(config, seed, &stream->source, error);
    if (!status && !gives_lines)
        stream->source_ops->schema(stream->source, &stream->schema);
    return status;
}

static rt_status open_join(rt_stream *stream, const rt_stream_config *config, rt_error *error)
{
    const rt_schema *schema = &stream->schema;
    stream->last.dense = rt_alloc(schema->dense_count + 1u, sizeof *stream->last.dense);
    stream->last.keys = rt_alloc(schema->keys_per_sample_max, sizeof *stream->last.keys);
    if (!stream->last.dense || !stream->last.keys)
        return rt_fail(error, RT_NO_MEMORY, "out of memory for a stream");
    return rt_joined_create(config, stream->seed, schema, &stream->joined, error);
}

static rt_status open_stream(const rt_stream_config *config, uint64_t seed, bool with_input,
                             rt_stream **stream_p, rt_error *error)
{
    rt_stream *stream = rt_alloc(1, sizeof *stream);
    if (!stream)
        return rt_fail(error, RT_NO_MEMORY, "out of memory for a stream");
    stream->samples_max = config->samples_max ? config->samples_max : UINT64_MAX;
    stream->malformed_share_max = config->malformed_share_max;
    stream->seed = seed;
    stream->negatives_keep = config->negatives_keep > 0 ? config->negatives_keep : 1;
    stream->holdout = config->holdout;
    stream->reads_held_out = config->reads_held_out;
    stream->holds_outcomes = config->holds_outcomes;
    const bool joins = rt_config_has_join(config) && !config->labels_optional;
    stream->sets_aside =
        config->holds_outcomes || joins || stream->negatives_keep < 1 || stream->holdout > 0;
    stream->ignores_labels = config->labels_optional;
    rt_status status = open_parts(stream, config, seed, with_input, error);
    stream->schema.has_weights |= rt_stream_is_weighted(config);
    if (!status)
        status = rt_parser_complete(config, &stream->schema, error);
    if (!joins && !config->labels_optional)
        stream->all_labels = rt_bits_below(stream->schema.label_count);
    if (!status && with_input && joins)
        status = open_join(stream, config, error);
    if (status) {
        rt_stream_close(stream);
        return status;
    }
    *stream_p = stream;
    return RT_OK;
}

rt_status rt_stream_open(const rt_stream_config *config, uint64_t seed, rt_stream **stream_p,
                         rt_error *error)
{
    return open_stream(config, seed, true, stream_p, error);
}

rt_status rt_stream_read_schema(const rt_stream_config *config, uint64_t seed, rt_schema *schema,
                                rt_error *error)
{
    rt_stream *stream;
    rt_status status = open_stream(config, seed, false, &stream, error);
    if (status)
        return status;
    *schema = stream->schema;
    rt_stream_close(stream);
    return RT_OK;
}

void rt_stream_close(rt_stream *stream)
{
    if (!stream)
        return;
    if (stream->source)
        stream->source_ops->close(stream->source);
    if (stream->parser)
        stream->parser_ops->destroy(stream->parser);
    rt_joined_destroy(stream->joined);
    if (!stream->holds_outcomes) {
        rt_free(stream->last.dense);
        rt_free(stream->last.keys);
    }
    rt_ids_destroy(stream->ids);
    rt_free(stream->arrivals);
    rt_free(stream);
}

void rt_stream_watch(rt_stream *stream, int stop, int ledger)
{
    const rt_source_watch watch = {stop, ledger};
    if (stream->source_ops->watch)
        stream->source_ops->watch(stream->source, &watch);
    if (stream->joined)
        rt_joined_watch(stream->joined, stop);
}

void rt_stream_set_wait(rt_stream *stream, uint64_t wait_ns)
{
    stream->wait_ns = wait_ns;
}

void rt_stream_end_batches(rt_stream *stream, rt_repeats *repeats)
{
    if (!stream->source_ops->samples)
        stream->repeats = repeats;
}

void rt_stream_keep_places(rt_stream *stream)
{
    stream->keeps_places = true;
}

const rt_schema *rt_stream_schema(const rt_stream *stream)
{
    return &stream->schema;
}

static void find_doubtful(const rt_stream *stream, rt_stream_stats *stats)
{
    for (uint32_t l = 0; l < stream->schema.label_count && stats->doubtful == 0; l++) {
        if (stream->zeros & rt_bit(l) || stream->odd_values[l] <= 1)
            continue;
        stats->doubtful = stream->odd_values[l];
        stats->doubtful_label = l;
    }
}

rt_stream_stats rt_stream_statistics(const rt_stream *stream)
{
    const rt_stream_state *s = &stream->state;
    rt_source_counts counts = {0};
    stream->source_ops->counts(stream->source, &counts);
    rt_stream_stats stats = {.samples = s->samples,
                             .lines = s->all.lines,
                             .malformed = s->all.malformed,
                             .positive = s->positive,
                             .odd_labels = s->odd_labels,
                             .left_out = stream->left_out,
                             .held_out = stream->held_out,
                             .bytes_read = counts.bytes_read,
                             .bytes_all = counts.bytes_all,
                             .bytes_lost = counts.taken - rt_min_u64(counts.given, counts.taken),
                             .events_lost = counts.lost,
                             .breaks = counts.breaks,
                             .inputs_read = counts.inputs};
    find_doubtful(stream, &stats);
    if (stream->joined) {
        const rt_stream_stats outcomes = rt_joined_outcomes(stream->joined);
        stats.doubtful = outcomes.doubtful;
        stats.doubtful_label = outcomes.doubtful_label;
        stats.join = rt_joined_counts(stream->joined);
        stats.events_lost += outcomes.events_lost;
        stats.breaks += outcomes.breaks;
    }
    if (stream->ids)
        stats.duplicates = rt_ids_repeated(stream->ids);
    return stats;
}

bool rt_stream_report(const rt_stream *stream, uint32_t number, rt_stream_input *input)
{
    return stream->source_ops->report && stream->source_ops->report(stream->source, number, input);
}

bool rt_stream_is_weighted(const rt_stream_config *config)
{
    const bool has_columns = rt_format_has(config->format, RT_HAS_COLUMNS);
    if (rt_config_has_join(config) && config->join.late == RT_LATE_TRAIN)
        return true;
    if (rt_config_label_count(config) > 1)
        return !config->holds_outcomes;
    for (uint32_t i = 0; has_columns && i < config->table.column_count; i++) {
        if (config->table.columns[i].kind == RT_COLUMN_WEIGHT)
            return !config->holds_outcomes;
    }
    return false;
}

// ---- batches ---------------------------------------------------------------------------------

static void count_samples(rt_stream_state *s, const rt_batch *batch)
{
    for (uint32_t i = 0; i < batch->sample_count; i++)
        s->positive += batch->labels[(size_t)i * batch->label_count] > 0;
    s->samples += batch->sample_count;
}

static rt_status fill(rt_stream *stream, rt_batch *batch, uint32_t sample_count, rt_error *error)
{
    rt_status status = RT_OK;
    if (stream->source_ops->samples) {
        status = stream->source_ops->samples(stream->source, batch, sample_count, error);
        stream->is_ended = status == RT_END;
        if (stream->is_ended)
            status = RT_OK;
    } else if (stream->joined) {
        status = rt_stream_read_joined(stream, batch, sample_count, error);
    } else {
        status = rt_stream_read_lines(stream, batch, sample_count, error);
    }
    count_samples(&stream->state, batch);
    if (stream->repeats)
        rt_repeats_add(stream->repeats, &stream->schema.tables, batch);
    rt_stream_look_at_labels(stream, batch);
    stream->is_ended |= stream->state.samples == stream->samples_max;
    if (!status && stream->is_ended && stream->parser)
        status = rt_stream_judge(stream, error);
    return status;
}

rt_status rt_stream_read(rt_stream *stream, rt_batch *batch, uint32_t sample_count_max,
                         rt_error *error)
{
    rt_assert(sample_count_max > 0 && batch->dense_count == stream->schema.dense_count);
    rt_batch_begin(batch, stream->schema.label_count, stream->schema.has_weights);
    if (stream->joined)
        rt_joined_step(stream->joined);
    if (stream->failure.status)
        return rt_fail(error, stream->failure.status, "%s", stream->failure.text);
    if (stream->is_ended)
        return RT_END;
    uint64_t left = stream->samples_max - stream->state.samples;
    uint32_t sample_count = (uint32_t)rt_min_u64(sample_count_max, left);
    if (rt_batch_reserve(batch, sample_count,
                         (uint64_t)sample_count * stream->schema.keys_per_sample_max))
        return rt_fail(error, RT_NO_MEMORY, "out of memory for a batch of %u samples",
                       sample_count);
    if (stream->arrivals && rt_grow(&stream->arrivals, &stream->arrival_capacity, sample_count,
                                    sizeof *stream->arrivals))
        return rt_fail(error, RT_NO_MEMORY, "out of memory for a batch");
    stream->arrival_count = 0;
    rt_error failure = {0};
    rt_status status = fill(stream, batch, sample_count, &failure);
    if (status)
        rt_fail(&stream->failure, status, "%s", failure.text);
    if (batch->sample_count > 0)
        return RT_OK;
    if (status)
        return rt_fail(error, status, "%s", failure.text);
    return RT_END;
}

rt_status rt_stream_keep_arrivals(rt_stream *stream)
{
    return rt_grow(&stream->arrivals, &stream->arrival_capacity, 1, sizeof *stream->arrivals);
}

const uint64_t *rt_stream_arrivals(const rt_stream *stream, uint32_t *count_p)
{
    *count_p = stream->arrival_count;
    return stream->arrivals;
}
