// rt_stream - samples from files, pipes or a generator, in order.
//
// A source (rt_source.h) gives lines or samples, a parser (rt_parser.h) makes samples of lines. A
// stream is read by one thread. Lines that cannot be parsed are counted and left out, the first few
// logged with file and line; where more than stream.malformed_share_max of the last 5,000 to 10,000
// cannot, reading fails (RT_DATA), after the samples that came before.
#ifndef RT_STREAM_H
#define RT_STREAM_H

#include <string.h>

#include "runtime/config/rt_config.h"
#include "runtime/stream/rt_batch.h"
#include "runtime/stream/rt_join.h"
#include "runtime/stream/rt_repeats.h"
#include "runtime/stream/rt_tables.h"
#include "runtime/wire/rt_bytes.h"

typedef struct {
    uint32_t dense_count;
    uint32_t field_count;                 // at most RT_FIELDS_MAX
    uint32_t label_count;                 // at least 1
    uint32_t class_count;                 // of the one label; 0: it is 0 or 1
    uint32_t output_count;                // predictions of a sample: labels, or classes
    uint32_t keys_per_sample_max;         // the caps of multi-valued columns added up
    bool has_weights, has_ids, has_times; // what lines say of their samples
    char field_names[RT_FIELDS_MAX][RT_NAME_MAX];
    char label_names[RT_LABELS_MAX][RT_NAME_MAX];
    rt_tables tables; // that fields share
} rt_schema;

// What a prediction of a sample is of: a label's name, or a class by its number.
void rt_schema_output_name(const rt_schema *schema, uint32_t output, char name[RT_NAME_MAX]);

// The number of a field; field_count: it has none of that name.
static inline uint32_t rt_schema_field(const rt_schema *schema, const char *name)
{
    uint32_t f = 0;
    while (f < schema->field_count && strcmp(schema->field_names[f], name) != 0)
        f++;
    return f;
}

typedef struct {
    uint64_t samples;
    uint64_t lines; // records of text: one that quotes hold together over several lines is one
    uint64_t malformed;
    uint64_t positive;       // samples whose first label is 1
    uint64_t duplicates;     // events whose name (stream.id) had come before: in no sample
    uint64_t odd_labels;     // labels that were neither 0 nor 1 and became one of them
    double doubtful;         // what one of them was, of a label that this process has never read
                             // as 0: who can say which is label 1; 0: there is no such label
    uint32_t doubtful_label; // which label
    uint64_t left_out;       // negatives, by stream.negatives_keep
    uint64_t held_out;       // samples, by stream.holdout, of all epochs
    rt_join_counts join;
    uint64_t bytes_read; // of the files, before unpacking
    uint64_t bytes_all;  // of all files together; 0 where unknown (standard input, generator)
    uint64_t bytes_lost; // that pipes gave, and that are in no sample: a restart lost them, or they
                         // were not wanted any more; while reading also those still to be parsed
    uint64_t events_lost;   // that were there to be read, or had been acknowledged, and are gone
    uint64_t breaks;        // times that an input was not the one any more that had been read
    uint32_t inputs_read;   // files that were read to their ends, once for every epoch
    uint64_t dense_clipped; // filled in by who scales the samples (rt_scale); 0 here
} rt_stream_stats;

typedef enum {
    RT_INPUT_UNREAD,    // it was not reached
    RT_INPUT_READ,      // from its start
    RT_INPUT_CONTINUED, // from where an earlier run stood in it
    RT_INPUT_GROWN,     // from where it ended when an earlier run read it
    RT_INPUT_PASSED     // an earlier run read it to its end
} rt_input_state;

// What was read of one file, pipe or standard input.
typedef struct {
    const char *name;
    rt_input_state state;
    uint64_t from, to; // bytes, unpacked
    uint64_t lines;
} rt_stream_input;

typedef struct rt_stream rt_stream;

// Opens the first input, so a missing file is found here; error names it. config stays as it is
// while the stream is open.
rt_status rt_stream_open(const rt_stream_config *config, uint64_t seed, rt_stream **stream_p,
                         rt_error *error);
void rt_stream_close(rt_stream *stream);

// The schema alone, which follows from the configuration: no input is opened, so a pipe's writer is
// not let go.
rt_status rt_stream_read_schema(const rt_stream_config *config, uint64_t seed, rt_schema *schema,
                                rt_error *error);

// Constant for the life of the stream.
const rt_schema *rt_stream_schema(const rt_stream *stream);

// From now on the stream ends when it waits for bytes (of standard input, of a pipe), or unpacks a
// file up to a position, and stop is readable; it is not read. -1: it waits. ledger: a file whose
// first 8 bytes count what pipes gave, of this run and those before; -1: nobody counts.
void rt_stream_watch(rt_stream *stream, int stop, int ledger);

// A batch that has a sample is given out after so long though it is not full. 0: it waits.
void rt_stream_set_wait(rt_stream *stream, uint64_t wait_ns);

// From now on batches of lines also end where repeats says, and are counted there; repeats is the
// caller's, for as long as the stream is read. Generated samples have no visits: they are not
// counted.
void rt_stream_end_batches(rt_stream *stream, rt_repeats *repeats);

// From now on a line that is no sample (malformed, blank) stands in its place in a batch all the
// same: as one whose label is NaN, with the missing id in every field. Headers do not.
void rt_stream_keep_places(rt_stream *stream);

// Clears batch and fills it with up to sample_count_max samples; fewer at the end of the input,
// before a failure, after rt_stream_set_wait's time, and by rt_stream_end_batches. RT_END: nothing
// left, batch is empty. RT_DATA, RT_IO: error names file and line.
rt_status rt_stream_read(rt_stream *stream, rt_batch *batch, uint32_t sample_count_max,
                         rt_error *error);

// Where reading goes on (rt_position.h); position is cleared first. position->failed: no memory.
void rt_stream_tell(const rt_stream *stream, rt_bytes *position);

// Before the first read: goes on from there; a stream from a pipe, with what comes. Files that were
// read before are known again (rt_file_mark.h): what was read to its end is passed over, what is
// new is read from its start. RT_DATA: an input is not what it was, or these bytes are no position
// of this source; error names it. RT_IO.
rt_status rt_stream_seek(rt_stream *stream, const rt_bytes *position, rt_error *error);

// ---- events that wait for their outcomes (stream.join), which positions do not hold ----------

// Before the first read: rt_stream_save will be asked for.
void rt_stream_remember(rt_stream *stream);

// Appends what waits at a position of this stream; nothing without a join. Any thread.
void rt_stream_save(rt_stream *stream, const rt_bytes *position, rt_bytes *waiting);

// Positions before this one will not be asked for. Any thread.
void rt_stream_settle(rt_stream *stream, const rt_bytes *position);

// Whether it is what rt_stream_save wrote that the reader gives next; takes it out of what it
// wrote, if it is. False: it is cut off, or there is no memory.
bool rt_stream_waiting_is_next(const rt_reader *reader);
bool rt_stream_take_waiting(rt_reader *reader, rt_bytes *waiting);

// How many samples will have label 0 unless an outcome comes for them: of the events that are in a
// join, as the last read left them. 0: without a join, and where they are dropped.
double rt_stream_pending(const rt_stream *stream);

// After rt_stream_seek: what rt_stream_take_waiting took. RT_DATA, RT_NO_MEMORY.
rt_status rt_stream_restore(rt_stream *stream, const rt_bytes *waiting, rt_error *error);

// Of a stream of outcomes: the next one. RT_AGAIN: none came until the deadline; RT_STOPPED,
// RT_END; RT_DATA, RT_IO. batch is scratch.
rt_status rt_stream_next(rt_stream *stream, rt_batch *batch, uint64_t deadline_ns,
                         rt_line_sample *sample, rt_error *error);

// As rt_source_ops.is_behind, after RT_AGAIN.
bool rt_stream_is_behind(const rt_stream *stream);
// As rt_source_ops.was_away.
bool rt_stream_was_away(const rt_stream *stream);

// Whether its samples have weights (rt_batch.h).
bool rt_stream_is_weighted(const rt_stream_config *config);
// Names of events (stream.id): the window as it was at a position that was told less than 2 million
// samples ago, appended to bytes; nothing where events have no names. Any thread. And back, before
// the first read, after rt_stream_seek. RT_DATA: no such bytes.
void rt_stream_save_ids(const rt_stream *stream, const rt_bytes *position, rt_bytes *bytes);
rt_status rt_stream_load_ids(rt_stream *stream, const rt_bytes *bytes, rt_error *error);

// From now on it is noted when samples arrived. RT_NO_MEMORY.
rt_status rt_stream_keep_arrivals(rt_stream *stream);
// Of the batch that was read last, in nanoseconds of the clock of the day (0: unknown), of its
// first *count_p samples: the others are unknown, too.
const uint64_t *rt_stream_arrivals(const rt_stream *stream, uint32_t *count_p);

rt_stream_stats rt_stream_statistics(const rt_stream *stream);

// By number, in the order of the list. False: there are not so many.
bool rt_stream_report(const rt_stream *stream, uint32_t number, rt_stream_input *input);

// The input has an end and can be read twice: its keys can be counted.
bool rt_stream_is_countable(const rt_stream_config *config);

// Reads a whole stream of this config and counts its distinct keys, exactly. RT_CONFIG: it is not
// countable.
rt_status rt_stream_count_keys(const rt_stream_config *config, uint64_t seed,
                               uint64_t *distinct_keys_p, rt_error *error);

#endif
