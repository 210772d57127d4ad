// rt_source - the table of operations of those that samples come from.
//
// To add a source (a broker, an object store): one file with its operations and one line in the
// list of rt_stream.c. A source gives lines, which a parser (rt_parser.h) makes samples of, or
// samples. One thread uses one. Every wait ends at its deadline, and when rt_source_watch.stop is
// readable.
#ifndef RT_SOURCE_H
#define RT_SOURCE_H

#include "runtime/config/rt_config.h"
#include "runtime/stream/rt_batch.h"
#include "runtime/stream/rt_lines.h"
#include "runtime/stream/rt_stream.h"
#include "runtime/wire/rt_bytes.h"

// Of a position that a checkpoint of the first format holds: which file of the list, how far.
typedef struct {
    uint64_t offset, line; // of a generator: offset is the number of the next sample
    uint32_t file;
} rt_source_place;

typedef struct {
    uint64_t bytes_read; // of the files, before unpacking
    uint64_t bytes_all;  // of all files together; 0 where unknown
    uint64_t taken;      // bytes that pipes gave: of this run, and of those that it goes on from
    uint64_t given;      // of them, those that were given out in lines
    uint64_t lost;       // events that were there to be read, and are not any more
    uint64_t breaks;     // times that an input was found not to be the one that was read
    uint32_t inputs;     // that were read to their ends: files, once for every epoch
} rt_source_counts;

typedef struct {
    const char *name; // in positions: another source's are refused by it

    // Whether this source is the one of the configuration. The first of the list that says so is.
    bool (*serves)(const rt_stream_config *config);

    // config stays as it is while the source lives. RT_IO, RT_CONFIG, RT_NO_MEMORY: error names the
    // key or the input.
    rt_status (*open)(const rt_stream_config *config, uint64_t seed, void **source_p,
                      rt_error *error);
    void (*close)(void *source);

    // NULL: it never waits.
    void (*watch)(void *source, const rt_source_watch *watch);

    // As rt_lines_next, over all of the source's inputs. NULL: it gives samples.
    rt_status (*line)(void *source, uint64_t deadline_ns, uint32_t line_feeds, rt_line *line,
                      rt_error *error);
    void (*back)(void *source); // as rt_lines_back

    // Whether lines that came before now may not have been given out, though `line` said RT_AGAIN:
    // they are on their way. NULL: what is there is always given out.
    bool (*is_behind)(void *source);

    // Whether there was a time when nobody took what was sent here: it may come now. NULL: none is
    // sent.
    bool (*was_away)(const void *source);

    // Samples, in place of lines: appends sample_count of them, fewer at the end (RT_END: none).
    // The batch has room. Opening such a source opens no input.
    rt_status (*samples)(void *source, rt_batch *batch, uint32_t sample_count, rt_error *error);
    void (*schema)(const void *source, rt_schema *schema);

    // Appends where the source stands between two lines or samples, at most
    // RT_POSITION_SOURCE_BYTES_MAX.
    void (*tell)(const void *source, rt_bytes *bytes);

    // Before the first line or sample: goes on there. `bytes` is what tell wrote; where it is NULL,
    // place is meant. RT_DATA: these bytes are none of this source's, or the input is not what it
    // was; error names it. RT_STOPPED, RT_IO.
    rt_status (*seek)(void *source, rt_reader *bytes, const rt_source_place *place,
                      rt_error *error);

    const char *(*input_name)(const void *source, uint32_t input); // of a line's file; for messages
    void (*counts)(const void *source, rt_source_counts *counts);

    // What was read of one input; false: there are not so many. NULL: there is nothing to tell.
    bool (*report)(const void *source, uint32_t input, rt_stream_input *report);
} rt_source_ops;

extern const rt_source_ops rt_source_files, rt_source_synthetic, rt_source_live, rt_source_follow;
#ifdef RT_HAS_KAFKA
extern const rt_source_ops rt_source_kafka;
#endif

// The source of a configuration; NULL: this build has none.
const rt_source_ops *rt_source_of(const rt_stream_config *config);

#endif
