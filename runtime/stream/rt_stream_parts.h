// rt_stream_parts - inside a stream: what reads lines, joins events and tells positions shares.
#ifndef RT_STREAM_PARTS_H
#define RT_STREAM_PARTS_H

#include "runtime/stream/rt_ids.h"
#include "runtime/stream/rt_joined.h"
#include "runtime/stream/rt_parser.h"
#include "runtime/stream/rt_position.h"
#include "runtime/stream/rt_source.h"
#include "runtime/wire/rt_fields.h"

typedef struct {
    uint64_t lines, malformed;
} rt_stream_line_counts;

// What the stream itself remembers in a position; in its order there.
typedef struct {
    uint64_t samples;
    rt_stream_line_counts all;
    rt_stream_line_counts window[2]; // the last full one, and the one that fills
    uint64_t blank_lines;            // just read: malformed if another line of their file follows
    uint64_t first_blank;            // number of the first
    uint64_t positive, odd_labels;
} rt_stream_state;

extern const rt_fields rt_stream_state_fields; // as a position keeps it

// One label, over the samples that this process has read.
typedef struct {
    uint64_t count;
    float value; // of the first
    bool varies, is_told;
} rt_stream_label;

struct rt_stream {
    rt_schema schema;
    const rt_source_ops *source_ops;
    const rt_parser_ops *parser_ops; // NULL: the source gives samples
    void *source, *parser;
    uint64_t samples_max; // UINT64_MAX: none
    double malformed_share_max;
    uint64_t wait_ns;    // 0: a batch waits until it is full
    rt_repeats *repeats; // NULL: no key ends one
    uint64_t seed;
    double negatives_keep;
    uint64_t left_out;   // negatives, by negatives_keep
    double holdout;      // share that who trains leaves to who judges
    bool reads_held_out; // this is who judges
    uint64_t held_out;   // samples that are the other one's
    bool holds_outcomes; // it is the second input of a join
    bool sets_aside;     // one of these: samples are not for the batch at once, or not at all
    rt_joined *joined;   // NULL: samples have their labels with them
    rt_line_sample last; // with joined: the event at hand, in storage of its own; of outcomes: it
    bool has_event, has_stopped;
    double odd_values[RT_LABELS_MAX]; // of each label, one that is neither 0 nor 1; 0: none came
    uint64_t zeros, all_labels;       // masks: of labels that were 0; of those that lines have
    rt_stream_state state;
    rt_line last_bad;        // the last malformed line; its text is gone
    rt_line_problem problem; // of it
    uint64_t bad_logged;     // of this process
    rt_ids *ids;             // NULL: events have no names
    uint64_t *arrivals;      // of the batch that is read, by sample; NULL: nobody asks
    uint32_t arrival_count, arrival_capacity;
    rt_stream_state begun; // as the state was when this process began to read
    rt_stream_label seen[RT_LABELS_MAX];
    bool ignores_labels; // nobody wants to know
    bool keeps_places;
    bool is_ended;
    rt_error failure; // a stream that failed stays failed
};

// The name of a line's input, for messages.
const char *rt_stream_line_input(const rt_stream *stream, const rt_line *line);

// RT_DATA: too many of the last lines are malformed.
rt_status rt_stream_judge(const rt_stream *stream, rt_error *error);

// A stream whose labels are all the same teaches a model to say that always: it is told, once.
void rt_stream_look_at_labels(rt_stream *stream, const rt_batch *batch);

// The next line, its sample in stream->last, where samples are set aside. RT_AGAIN, RT_STOPPED,
// RT_END: as of a line.
rt_status rt_stream_read_one(rt_stream *stream, rt_batch *batch, uint64_t deadline_ns,
                             rt_error *error);

// Whether a batch ends with the sample that it has got: it is full, or a key has come too often.
static inline bool rt_stream_ends_batch(rt_stream *stream, const rt_batch *batch,
                                        uint32_t sample_count)
{
    const bool is_often =
        stream->repeats && rt_repeats_end_with(stream->repeats, &stream->schema.tables, batch);
    return is_often || batch->sample_count == sample_count;
}

// Fill a batch, which has room, with samples of lines, or with those that a join gives. RT_OK also
// where the input ended or stopped (stream->is_ended), or the time of a batch.
rt_status rt_stream_read_lines(rt_stream *stream, rt_batch *batch, uint32_t sample_count,
                               rt_error *error);
rt_status rt_stream_read_joined(rt_stream *stream, rt_batch *batch, uint32_t sample_count,
                                rt_error *error);

#endif
