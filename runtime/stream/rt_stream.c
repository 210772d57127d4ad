#include "runtime/stream/rt_stream.h"

#include <math.h>
#include <string.h>

#include "runtime/numbers/rt_negatives.h"
#include "runtime/rt_hash.h"
#include "runtime/rt_log.h"
#include "runtime/stream/rt_event_id.h"
#include "runtime/stream/rt_ids.h"
#include "runtime/stream/rt_joined.h"
#include "runtime/stream/rt_parser.h"
#include "runtime/stream/rt_position.h"
#include "runtime/stream/rt_source.h"

#define MALFORMED_LOGGED_MAX 5
#define JUDGED_FROM_LINES 1000u
#define WINDOW_LINES 5000u // malformed lines are judged by the last one to two of these
#define ONE_CLASS_SAMPLES 10000u
#define JOINED_LINES_MAX 64u // of one record whose quotes hold line feeds
#define JOINED_BYTES_MAX (64u << 10)
#define IDLE_NS UINT64_C(50000000) // without an event, until outcomes are looked at
#define IDS_AHEAD (1u << 21) // events that were read and are in no checkpoint's reach yet
#define WAITING_MAGIC UINT64_C(0x474e4954494157) // "WAITING"

// A new source is one line here.
static const rt_source_ops *const sources[] = {
    &rt_source_synthetic, &rt_source_files, &rt_source_live, &rt_source_follow,
#ifdef RT_HAS_KAFKA
    &rt_source_kafka,
#endif
};

typedef struct {
    uint64_t lines, malformed;
} line_counts;

// What the stream itself remembers in a position; in its order there.
typedef struct {
    uint64_t samples;
    line_counts all;
    line_counts window[2]; // the last full one, and the one that fills
    uint64_t blank_lines;  // just read: malformed if another line of their file follows
    uint64_t first_blank;  // number of the first
    uint64_t positive, odd_labels;
} state;
_Static_assert(sizeof(state) == 11 * sizeof(uint64_t), "no padding: it goes into files");

struct rt_stream {
    rt_schema schema;
    const rt_source_ops *source_ops;
    const rt_parser_ops *parser_ops; // NULL: the source gives samples
    void *source, *parser;
    uint64_t samples_max; // UINT64_MAX: none
    double malformed_share_max;
    uint64_t wait_ns; // 0: a batch waits until it is full
    uint64_t seed;
    double negatives_keep;
    uint64_t left_out;   // negatives, by negatives_keep
    bool holds_outcomes; // it is the second input of a join
    bool sets_aside;     // one of these: samples are not for the batch at once, or not at all
    rt_joined *joined;   // NULL: samples have their labels with them
    rt_line_sample last; // with joined: the event at hand, in storage of its own; of outcomes: it
    bool has_event, has_stopped;
    state state;
    rt_line last_bad;        // the last malformed line; its text is gone
    rt_line_problem problem; // of it
    uint64_t bad_logged;     // of this process
    rt_event_id event_id;
    rt_ids *ids;        // NULL: events have no names
    uint64_t *arrivals; // of the batch that is read, by sample; NULL: nobody asks
    uint32_t arrival_count, arrival_capacity;
    bool one_class_told;     // or nobody wants to know
    bool keeps_places;
    bool is_ended;
    rt_error failure; // a stream that failed stays failed
};

// ---- opening ---------------------------------------------------------------------------------

const rt_source_ops *rt_source_of(const rt_stream_config *config)
{
    size_t i = 0;
    while (i < RT_COUNT_OF(sources) && !sources[i]->serves(config))
        i++;
    return i < RT_COUNT_OF(sources) ? sources[i] : NULL;
}

static rt_status create_parser(rt_stream *stream, const rt_stream_config *config, rt_error *error)
{
    stream->parser_ops = rt_parser_find(config->format);
    if (!stream->parser_ops)
        return rt_fail(error, RT_CONFIG, "stream.format: unknown value %d", (int)config->format);
    rt_status status = stream->parser_ops->create(config, &stream->parser, error);
    if (!status)
        stream->parser_ops->schema(stream->parser, &stream->schema);
    return status;
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
        status = create_parser(stream, config, error);
    if (!status && gives_lines && *config->id)
        status = rt_event_id_init(config, &stream->event_id, error);
    if (!status && gives_lines && *config->id && with_input &&
        rt_ids_create(config->id_window, IDS_AHEAD, &stream->ids))
        status = rt_fail(error, RT_NO_MEMORY, "out of memory for stream.id_window");
    if (!status && (with_input || !gives_lines))
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
    stream->holds_outcomes = config->holds_outcomes;
    stream->sets_aside =
        config->holds_outcomes || config->join.file_count > 0 || stream->negatives_keep < 1;
    stream->one_class_told = config->labels_optional;
    rt_status status = open_parts(stream, config, seed, with_input, error);
    stream->schema.has_weights |= rt_stream_is_weighted(config);
    if (!status && with_input && config->join.file_count > 0)
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

void rt_stream_keep_places(rt_stream *stream)
{
    stream->keeps_places = true;
}

const rt_schema *rt_stream_schema(const rt_stream *stream)
{
    return &stream->schema;
}

rt_stream_stats rt_stream_statistics(const rt_stream *stream)
{
    const state *s = &stream->state;
    rt_source_counts counts = {0};
    stream->source_ops->counts(stream->source, &counts);
    const rt_join_counts none = {0};
    return (rt_stream_stats){.samples = s->samples,
                             .lines = s->all.lines,
                             .malformed = s->all.malformed,
                             .positive = s->positive,
                             .odd_labels = s->odd_labels,
                             .left_out = stream->left_out,
                             .join = stream->joined ? rt_joined_counts(stream->joined) : none,
                             .bytes_read = counts.bytes_read,
                             .bytes_all = counts.bytes_all,
                             .duplicates = stream->ids ? rt_ids_repeated(stream->ids) : 0,
                             .bytes_lost = counts.taken - rt_min_u64(counts.given, counts.taken)};
}

bool rt_stream_report(const rt_stream *stream, uint32_t number, rt_stream_input *input)
{
    return stream->source_ops->report && stream->source_ops->report(stream->source, number, input);
}

static const char *name_of(const rt_stream *stream, const rt_line *line)
{
    return stream->source_ops->input_name(stream->source, line->file);
}

// ---- malformed lines -------------------------------------------------------------------------

static line_counts judged(const state *s)
{
    return (line_counts){s->window[0].lines + s->window[1].lines,
                         s->window[0].malformed + s->window[1].malformed};
}

static rt_status judge(const rt_stream *stream, rt_error *error)
{
    const line_counts counts = judged(&stream->state);
    if ((double)counts.malformed <= stream->malformed_share_max * (double)counts.lines)
        return RT_OK;
    return rt_fail(error, RT_DATA,
                   "%s:%llu: %llu of the last %llu lines are malformed,"
                   " stream.malformed_share_max allows a share of %g; the last one: %s",
                   name_of(stream, &stream->last_bad), (unsigned long long)stream->last_bad.number,
                   (unsigned long long)counts.malformed, (unsigned long long)counts.lines,
                   stream->malformed_share_max, stream->problem.text);
}

static void add_lines(state *s, uint64_t lines, uint64_t malformed)
{
    s->all.lines += lines;
    s->all.malformed += malformed;
    s->window[1].lines += lines;
    s->window[1].malformed += malformed;
}

// Counts the line; stream->problem says what is wrong with it.
static void note_malformed(rt_stream *stream, const rt_line *line)
{
    add_lines(&stream->state, 1, 1);
    stream->last_bad = *line;
    if (stream->bad_logged++ < MALFORMED_LOGGED_MAX)
        rt_warn("%s:%llu: %s%s", name_of(stream, line), (unsigned long long)line->number,
                stream->problem.text,
                stream->bad_logged == MALFORMED_LOGGED_MAX
                    ? " (further malformed lines are only counted)"
                    : "");
}

// Blank lines at the end of a file are nobody's fault, others are. In a file the number of the
// follower goes on from theirs; the first line of another has a smaller one.
static bool follows_blanks(const state *s, const rt_line *line)
{
    return line->number == s->first_blank + s->blank_lines;
}

static void settle_blanks(rt_stream *stream, const rt_line *follower)
{
    state *s = &stream->state;
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

static void note_blank(state *s, const rt_line *line)
{
    if (!follows_blanks(s, line))
        s->blank_lines = 0;
    if (s->blank_lines++ == 0)
        s->first_blank = line->number;
}

// The share can pass its limit only at a malformed line, when judging starts, or when good lines
// leave the window.
static rt_status judge_when_due(rt_stream *stream, const line_counts *before, rt_error *error)
{
    state *s = &stream->state;
    bool is_due = s->all.malformed > before->malformed || before->lines < JUDGED_FROM_LINES;
    if (s->window[1].lines >= WINDOW_LINES) {
        s->window[0] = s->window[1];
        s->window[1] = (line_counts){0};
        is_due = true;
    }
    if (RT_UNLIKELY(is_due && s->all.lines >= JUDGED_FROM_LINES))
        return judge(stream, error);
    return RT_OK;
}

// ---- lines -----------------------------------------------------------------------------------

static void note_odd_label(rt_stream *stream, const rt_line *line, float label)
{
    if (stream->state.odd_labels++ == 0)
        rt_warn("%s:%llu: the label is neither 0 nor 1 and is taken for %g (further ones are only"
                " counted)",
                name_of(stream, line), (unsigned long long)line->number, (double)label);
}

// A negative that negatives_keep leaves out; its number is that of the samples before it.
static bool is_left_out(const rt_stream *stream, const rt_line_sample *sample)
{
    const state *s = &stream->state;
    return sample->label == 0 &&
           !rt_negatives_keeps(
               stream->seed, stream->schema.has_ids ? sample->id : s->all.lines - s->all.malformed,
               stream->negatives_keep);
}

// What only some streams do with a sample. True: it is not for the batch.
static __attribute__((noinline)) bool set_aside(rt_stream *stream, const rt_line *line,
                                                rt_line_sample *sample)
{
    if (stream->joined || stream->holds_outcomes) {
        if (!stream->schema.has_times)
            sample->time_ms = rt_joined_arrival_ms(line->arrival_ns);
        stream->last = *sample;
        stream->has_event = true;
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
    sample.is_label_odd = false;
    sample.dense = batch->dense + (size_t)i * batch->dense_count;
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
    if (RT_UNLIKELY(sample.is_label_odd))
        note_odd_label(stream, line, sample.label);
    if (RT_UNLIKELY(stream->sets_aside) && set_aside(stream, line, &sample))
        return true;
    batch->labels[i] = sample.label;
    if (RT_UNLIKELY(batch->is_weighted)) {
        batch->weights[i] = sample.weight;
        batch->labels[i] *= sample.weight;
    }
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
    batch->labels[i] = NAN;
    batch->key_offsets[i] = batch->key_count;
    for (uint32_t k = 0; k < dense_count; k++)
        batch->dense[(size_t)i * dense_count + k] = 0;
    for (uint32_t f = 0; f < stream->schema.field_count; f++)
        batch->keys[batch->key_count++] = rt_key(f, RT_ID_MISSING);
    batch->key_offsets[i + 1] = batch->key_count;
    batch->sample_count++;
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
    for (uint32_t feeds = 1; feeds < JOINED_LINES_MAX && line.length < JOINED_BYTES_MAX; feeds++) {
        ops->back(stream->source);
        status = ops->line(stream->source, deadline_ns, feeds, &line, error);
        if (status)
            break;
        *is_good_p = parse(stream, &line, batch);
        if (*is_good_p || !stream->problem.goes_on)
            break;
    }
    if (*is_good_p)
        return RT_OK;
    if (status && status != RT_END && status != RT_LIMIT)
        return status;
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

static rt_status take_line(rt_stream *stream, const rt_line *line, uint64_t deadline_ns,
                           rt_batch *batch, rt_error *error)
{
    const rt_parser_ops *parser = stream->parser_ops;
    const line_counts before = stream->state.all;
    const uint32_t samples = batch->sample_count;
    if (line->number == 1 && parser->header) {
        bool is_header = false;
        rt_status status =
            parser->header(stream->parser, name_of(stream, line), line, &is_header, error);
        if (is_header)
            stream->state.blank_lines = 0; // of the file before
        if (status || is_header)
            return status;
    }
    if (line->length == 0 && !line->is_too_long) {
        note_blank(&stream->state, line);
        keep_place(stream, batch);
        return RT_OK;
    }
    const bool drops = stream->ids && !stream->keeps_places; // else a line would lose its place
    const uint64_t id = drops ? rt_event_id_find(&stream->event_id, line) : 0;
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

static rt_status read_lines(rt_stream *stream, rt_batch *batch, uint32_t sample_count,
                            rt_error *error)
{
    uint64_t deadline_ns = 0;
    while (batch->sample_count < sample_count) {
        rt_line line;
        if (deadline_ns == 0 && stream->wait_ns > 0 && batch->sample_count > 0)
            deadline_ns = rt_now_ns() + stream->wait_ns;
        rt_status status = stream->source_ops->line(stream->source, deadline_ns, 0, &line, error);
        if (!status)
            status = take_line(stream, &line, deadline_ns, batch, error);
        if (RT_LIKELY(!status))
            continue;
        if (status == RT_AGAIN)
            return RT_OK;
        if (status != RT_END && status != RT_STOPPED)
            return status;
        stream->is_ended = true;
        return RT_OK;
    }
    return RT_OK;
}

// The next line, its sample in stream->last; RT_AGAIN, RT_STOPPED, RT_END: as of a line.
static rt_status read_one(rt_stream *stream, rt_batch *batch, uint64_t deadline_ns, rt_error *error)
{
    rt_line line;
    rt_status status = RT_OK;
    stream->has_event = false;
    while (!status && !stream->has_event) {
        status = stream->source_ops->line(stream->source, deadline_ns, 0, &line, error);
        if (!status)
            status = take_line(stream, &line, deadline_ns, batch, error);
    }
    return status;
}

rt_status rt_stream_next(rt_stream *stream, rt_batch *batch, uint64_t deadline_ns,
                         rt_line_sample *sample, rt_error *error)
{
    rt_batch_clear(batch);
    if (stream->failure.status)
        return rt_fail(error, stream->failure.status, "%s", stream->failure.text);
    rt_status status = rt_batch_reserve(batch, 1, 1);
    if (status)
        return rt_fail(error, status, "out of memory for an outcome");
    status = read_one(stream, batch, deadline_ns, error);
    if (status == RT_END && judge(stream, error))
        status = RT_DATA;
    if (status == RT_DATA || status == RT_IO)
        rt_fail(&stream->failure, status, "%s", error->text);
    *sample = stream->last;
    stream->state.samples += !status;
    return status;
}

// Reads an event for the join. Outcomes are looked at where none comes for a while.
static rt_status read_event(rt_stream *stream, rt_joined_events *events, rt_batch *batch,
                            rt_error *error)
{
    const uint64_t soon = rt_now_ns() + IDLE_NS, deadline_ns = events->deadline_ns;
    const bool is_last = deadline_ns != 0 && deadline_ns <= soon;
    rt_status status = read_one(stream, batch, is_last ? deadline_ns : soon, error);
    events->idle = status == RT_AGAIN;
    if (!status)
        return rt_joined_offer(stream->joined, &stream->last, error);
    if (status == RT_END || status == RT_STOPPED) {
        events->ended = status == RT_END;
        stream->has_stopped = status == RT_STOPPED;
        return RT_OK;
    }
    return status == RT_AGAIN && !is_last ? RT_OK : status;
}

// What waits stays with the join when the stream is stopped.
static rt_status read_joined(rt_stream *stream, rt_batch *batch, uint32_t sample_count,
                             rt_error *error)
{
    rt_joined_events events = {.dated = stream->schema.has_times};
    while (!stream->has_stopped) {
        if (events.deadline_ns == 0 && stream->wait_ns > 0 && batch->sample_count > 0)
            events.deadline_ns = rt_now_ns() + stream->wait_ns;
        rt_status status = rt_joined_fill(stream->joined, &events, batch, sample_count, error);
        if (!status)
            return RT_OK;
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

// ---- batches ---------------------------------------------------------------------------------

// A stream of one class teaches a model to say it always.
static void look_at_labels(rt_stream *stream, const rt_batch *batch)
{
    state *s = &stream->state;
    uint64_t positive = 0;
    for (uint32_t i = 0; i < batch->sample_count; i++)
        positive += batch->labels[i] > 0;
    s->positive += positive;
    s->samples += batch->sample_count;
    if (stream->one_class_told || s->samples < ONE_CLASS_SAMPLES ||
        (s->positive > 0 && s->positive < s->samples))
        return;
    stream->one_class_told = true;
    rt_warn("all labels of the first %llu samples are %d: is the label column the right one?",
            (unsigned long long)s->samples, s->positive > 0);
}

static rt_status fill(rt_stream *stream, rt_batch *batch, uint32_t sample_count, rt_error *error)
{
    rt_status status = RT_OK;
    if (stream->source_ops->samples) {
        status = stream->source_ops->samples(stream->source, batch, sample_count, error);
        stream->is_ended = status == RT_END;
        status = status == RT_END ? RT_OK : status;
    } else {
        status = (stream->joined ? read_joined : read_lines)(stream, batch, sample_count, error);
    }
    look_at_labels(stream, batch);
    stream->is_ended |= stream->state.samples == stream->samples_max;
    if (!status && stream->is_ended && stream->parser)
        status = judge(stream, error);
    return status;
}

rt_status rt_stream_read(rt_stream *stream, rt_batch *batch, uint32_t sample_count_max,
                         rt_error *error)
{
    rt_assert(sample_count_max > 0 && batch->dense_count == stream->schema.dense_count);
    rt_batch_clear(batch);
    batch->is_weighted = stream->schema.has_weights;
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
    return status ? rt_fail(error, status, "%s", failure.text) : RT_END;
}

// ---- positions -------------------------------------------------------------------------------

// Beside the counts that every position has: behind what the parser keeps, with its size.
static bool keeps_more(const rt_stream *stream)
{
    return stream->joined || stream->negatives_keep < 1;
}

static void tell_more(const rt_stream *stream, rt_bytes *bytes)
{
    const uint64_t parser_size = bytes->size;
    rt_bytes_put_u64(bytes, stream->left_out);
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
                       "the position is one without stream.join and stream.negatives_keep");
    rt_reader more = {bytes->next + parser_size, bytes->left - parser_size - sizeof parser_size,
                      false};
    bytes->left = parser_size;
    stream->left_out = rt_reader_u64(&more);
    return stream->joined ? rt_joined_seek(stream->joined, &more, error) : RT_OK;
}

void rt_stream_tell(const rt_stream *stream, rt_bytes *position)
{
    char name[RT_POSITION_NAME_BYTES] = {0};
    state s = stream->state;
    rt_bytes parser = {0};
    position->size = 0;
    position->failed = false;
    strncpy(name, stream->source_ops->name, sizeof name - 1);
    rt_bytes_put_u64(position, RT_POSITION_MAGIC);
    rt_bytes_put_u32(position, RT_POSITION_VERSION);
    rt_bytes_put_u32(position, 0);
    rt_bytes_put(position, &s, sizeof s);
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
    const state *s = &stream->state;
    if (!stream->parser || stream->joined ||
        (s->all.malformed <= s->all.lines &&
         s->samples + stream->left_out == s->all.lines - s->all.malformed))
        return RT_OK;
    return rt_fail(error, RT_DATA, "reading is to go on after %llu samples of %llu lines",
                   (unsigned long long)s->samples, (unsigned long long)s->all.lines);
}

static rt_status seek_old(rt_stream *stream, const rt_bytes *position, rt_error *error)
{
    rt_position_old old;
    memcpy(&old, position->data, sizeof old);
    stream->state = (state){.samples = old.samples,
                            .all = {old.lines, old.malformed},
                            .window[1] = {old.lines, old.malformed},
                            .blank_lines = old.blank_lines,
                            .first_blank = old.first_blank};
    stream->one_class_told = true; // it did not count labels
    const rt_source_place place = {.offset = old.offset, .line = old.line, .file = old.file};
    rt_status status = check_counts(stream, error);
    return status ? status : stream->source_ops->seek(stream->source, NULL, &place, error);
}

static rt_status seek_new(rt_stream *stream, const rt_bytes *position, rt_error *error)
{
    char name[RT_POSITION_NAME_BYTES];
    rt_reader reader = rt_bytes_reader(position);
    rt_reader_take(&reader, RT_POSITION_HEAD_BYTES, 1);
    rt_reader_get(&reader, &stream->state, 1, sizeof stream->state);
    const uint64_t parser_size = rt_reader_u64(&reader);
    const void *bytes = rt_reader_take(&reader, parser_size, 1);
    if (!rt_reader_get(&reader, name, 1, sizeof name) || reader.failed)
        return rt_fail(error, RT_DATA, "the position in the input is damaged");
    name[sizeof name - 1] = '\0';
    if (strcmp(name, stream->source_ops->name) != 0)
        return rt_fail(error, RT_DATA, "the position is one of another source (%s), this one is %s",
                       name, stream->source_ops->name);
    rt_reader parser = {bytes, parser_size, false};
    rt_status status = keeps_more(stream) ? seek_more(stream, &parser, error) : RT_OK;
    if (status)
        return status;
    const bool keeps = stream->parser_ops && stream->parser_ops->seek;
    if (keeps ? !stream->parser_ops->seek(stream->parser, &parser) : parser.left > 0)
        return rt_fail(error, RT_DATA, "the position is one of another format of lines");
    status = check_counts(stream, error);
    return status ? status : stream->source_ops->seek(stream->source, &reader, NULL, error);
}

rt_status rt_stream_seek(rt_stream *stream, const rt_bytes *position, rt_error *error)
{
    rt_assert(stream->state.samples == 0 && !stream->is_ended);
    const bool is_old = position->size == sizeof(rt_position_old) &&
                        memcmp(position->data, &(uint64_t){RT_POSITION_MAGIC}, 8) != 0;
    rt_status status =
        is_old ? seek_old(stream, position, error) : seek_new(stream, position, error);
    stream->is_ended = status == RT_STOPPED || stream->state.samples >= stream->samples_max;
    return status == RT_STOPPED ? RT_OK : status;
}

// ---- names and arrivals of events ------------------------------------------------------------

rt_status rt_stream_keep_arrivals(rt_stream *stream)
{
    return rt_grow(&stream->arrivals, &stream->arrival_capacity, 1, sizeof *stream->arrivals);
}

const uint64_t *rt_stream_arrivals(const rt_stream *stream, uint32_t *count_p)
{
    *count_p = stream->arrival_count;
    return stream->arrivals;
}

void rt_stream_save_ids(const rt_stream *stream, const rt_bytes *position, rt_bytes *bytes)
{
    rt_reader reader = rt_bytes_reader(position);
    state s;
    rt_reader_take(&reader, RT_POSITION_HEAD_BYTES, 1);
    if (stream->ids && rt_reader_get(&reader, &s, 1, sizeof s))
        rt_ids_save(stream->ids, s.all.lines - s.all.malformed, bytes);
}

rt_status rt_stream_load_ids(rt_stream *stream, const rt_bytes *bytes, rt_error *error)
{
    rt_reader reader = rt_bytes_reader(bytes);
    if (!stream->ids || bytes->size == 0)
        return RT_OK;
    return rt_ids_load(stream->ids, &reader, error);
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
    rt_reader_take(&reader, RT_POSITION_HEAD_BYTES + sizeof(state), 1);
    const uint64_t size = rt_reader_u64(&reader);
    const uint8_t *bytes = rt_reader_take(&reader, size, 1);
    if (!stream->joined || !bytes)
        return false;
    memcpy(&parser_size, bytes + size - sizeof parser_size, sizeof parser_size);
    memcpy(step_p, bytes + parser_size + sizeof stream->left_out, sizeof *step_p);
    return true;
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
    return stream->joined ? rt_joined_load(stream->joined, &reader, error) : RT_OK;
}

bool rt_stream_is_weighted(const rt_stream_config *config)
{
    const bool has_columns = config->format == RT_FORMAT_TABLE || config->format == RT_FORMAT_JSON;
    if (config->join.file_count > 0 && config->join.late == RT_LATE_TRAIN)
        return true;
    for (uint32_t i = 0; has_columns && i < config->table.column_count; i++) {
        if (config->table.columns[i].kind == RT_COLUMN_WEIGHT)
            return !config->holds_outcomes;
    }
    return false;
}
