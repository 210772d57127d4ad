// rt_stream - samples from files, standard input or a generator, in order.
//
// A stream is read by one thread. Lines that cannot be parsed are counted and skipped, the first
// few logged with file and line; past stream.malformed_share_max reading fails (RT_DATA).
#ifndef RT_STREAM_H
#define RT_STREAM_H

#include "runtime/stream/rt_batch.h"
#include "runtime/config/rt_config.h"

typedef struct {
    uint32_t dense_count;
    uint32_t field_count;         // at most RT_FIELDS_MAX
    uint32_t keys_per_sample_max; // the caps of multi-valued columns added up
    char field_names[RT_FIELDS_MAX][RT_NAME_MAX];
} rt_schema;

typedef struct {
    uint64_t samples;
    uint64_t lines;
    uint64_t malformed;
    uint64_t bytes_read; // of the files, before unpacking
    uint64_t bytes_all;  // of all files together; 0 where unknown (standard input, generator)
    uint64_t dense_clipped; // filled in by who scales the samples (rt_scale); 0 here
} rt_stream_stats;

typedef struct rt_stream rt_stream;

// Between two batches: what was read, and where reading goes on. Plain numbers, for files.
typedef struct {
    uint64_t samples, lines, malformed;
    uint64_t offset; // of the next line in its unpacked file; of a generator: the next sample
    uint64_t line;   // lines of the file before it
    uint64_t blank_lines, first_blank; // just read, not judged yet, and the number of the first
    uint32_t file, blank_file;
} rt_stream_position;
_Static_assert(sizeof(rt_stream_position) == 64, "file layout");

// Opens the first input, so a missing file is found here; error names it.
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
// file up to a position, and fd is readable; fd is not read. -1: it waits.
void rt_stream_set_stop(rt_stream *stream, int fd);

// Clears batch and fills it with up to sample_count_max samples; fewer only at the end of the
// input. RT_END: nothing left, batch is empty. RT_DATA, RT_IO: error names file and line.
rt_status rt_stream_read(rt_stream *stream, rt_batch *batch, uint32_t sample_count_max,
                         rt_error *error);

rt_stream_position rt_stream_tell(const rt_stream *stream);

// Before the first read: goes on from there; a stream from a pipe, with what comes. RT_DATA: the
// input is shorter; error names it. RT_IO.
rt_status rt_stream_seek(rt_stream *stream, const rt_stream_position *position, rt_error *error);

rt_stream_stats rt_stream_statistics(const rt_stream *stream);

// Reads a whole stream of this config and counts its distinct keys, exactly.
rt_status rt_stream_count_keys(const rt_stream_config *config, uint64_t seed,
                               uint64_t *distinct_keys_p, rt_error *error);

#endif
