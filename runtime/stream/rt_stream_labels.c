// What a stream says of its labels, and only what it has seen.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "runtime/rt_log.h"
#include "runtime/stream/rt_stream_parts.h"

#define JUDGED_FROM_LABELS 10000u

// Of one sample; NAN: it has none. Labels count by weight, and corrections have no other.
static float label_of(const rt_stream *stream, const rt_batch *batch, size_t at)
{
    const float label = batch->labels[at];
    if (stream->schema.class_count || isnan(label))
        return label;
    if (batch->is_weighted && batch->weights[at] == 0 && label == 0)
        return NAN;
    return label > 0;
}

static void note(rt_stream *stream, const rt_batch *batch, uint32_t l)
{
    rt_stream_label *seen = &stream->seen[l];
    for (uint32_t i = 0; i < batch->sample_count && !seen->varies; i++) {
        const float label = label_of(stream, batch, (size_t)i * batch->label_count + l);
        if (isnan(label))
            continue;
        if (seen->count++ == 0)
            seen->value = label;
        seen->varies = label != seen->value;
    }
}

// What of the input is not among those labels, or stands there as something else.
static void describe_rest(const rt_stream *stream, char *text, size_t size)
{
    const uint64_t malformed = stream->state.all.malformed - stream->begun.all.malformed;
    const uint64_t odd = stream->state.odd_labels - stream->begun.odd_labels;
    int length = 0;
    text[0] = '\0';
    if (malformed)
        length = snprintf(text, size, "; %" PRIu64 " lines were malformed and left out", malformed);
    if (odd)
        (void)snprintf(text + length, size - (size_t)length,
                       "; %" PRIu64 " labels were neither 0 nor 1", odd);
}

static void tell(rt_stream *stream, uint32_t l)
{
    const rt_stream_label *seen = &stream->seen[l];
    char rest[160], name[RT_NAME_MAX + 16] = "";
    describe_rest(stream, rest, sizeof rest);
    if (stream->schema.label_count > 1)
        snprintf(name, sizeof name, " \"%s\"", stream->schema.label_names[l]);
    const char *question = "is it the right column?";
    if (stream->joined)
        question = "do the outcomes have the ids of the events?";
    rt_warn("all %" PRIu64 " labels%s that were read since the start%s are taken for %g%s: %s",
            seen->count, name, stream->schema.has_weights ? " and have a weight" : "",
            (double)seen->value, rest, question);
}

void rt_stream_look_at_labels(rt_stream *stream, const rt_batch *batch)
{
    if (stream->ignores_labels)
        return;
    for (uint32_t l = 0; l < batch->label_count; l++) {
        rt_stream_label *seen = &stream->seen[l];
        if (seen->varies)
            continue;
        note(stream, batch, l);
        // Others are 0 that negatives_keep left out, or that still wait for what they will be.
        const bool lacks_others =
            seen->value > 0 && (stream->left_out || stream->held_out || stream->joined);
        if (seen->varies || seen->is_told || seen->count < JUDGED_FROM_LABELS || lacks_others)
            continue;
        seen->is_told = true;
        tell(stream, l);
    }
}
