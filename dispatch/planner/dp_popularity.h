// dp_popularity - which rows a stream looks up most: FAE's pass over a sample of the input.
//
// Every count is exact, for the samples that the profile says: when the table that counts is full,
// counting ends there. One thread.
#ifndef DP_POPULARITY_H
#define DP_POPULARITY_H

#include "runtime/config/rt_config.h"
#include "runtime/stream/rt_stream.h"

// A row by its key (rt_tables_row_key), and how many samples look it up.
typedef struct {
    uint64_t key, uses;
} dp_popular;

#define DP_POPULARITY_MEMORY_MIN 131072u // bytes

typedef enum {
    DP_POPULARITY_INPUT,   // the stream ended
    DP_POPULARITY_SAMPLES, // samples_max were read
    DP_POPULARITY_MEMORY   // the next sample might not have fitted into the table
} dp_popularity_end;

typedef struct {
    uint64_t samples_max; // 0: to the end of the stream
    uint64_t memory_max;  // bytes, of the table, while it grows and is sorted
    bool progress;        // a line on standard error while it counts
} dp_popularity_config;

typedef struct {
    dp_popular *uses; // row_count, the most used first, of equal ones the smallest key
    uint64_t row_count, lookups, samples;
    dp_popularity_end end;
} dp_popularity;

// The word for an end in files: "input", "samples", "memory".
const char *dp_popularity_end_name(dp_popularity_end end);

// Reads the stream of config from its start. memory_max: at least DP_POPULARITY_MEMORY_MIN.
// RT_DATA: the stream has no sample; RT_NO_MEMORY; the stream's errors. On failure *profile is
// empty.
rt_status dp_popularity_take(const rt_config *config, const dp_popularity_config *settings,
                             dp_popularity *profile, rt_error *error);
void dp_popularity_fini(dp_popularity *profile);

// ---- the file of hot rows --------------------------------------------------------------------
//
// Text. The first line is an object of JSON: "version" 1, "kind" "profile", "schema" (an object:
// the keys of the configuration that say what a row's key means, "stream.format" by its word and
// the others by a hash), "dim" (model.embedding_dim), "samples", "lookups", "rows", "end",
// "hot_rows", and "xxh3" of all bytes after this line. Then hot_rows lines, the most used row
// first: its key, 16 digits of hexadecimal, a space, its uses. Readers ignore members that they do
// not know.

// Writes the first hot_rows rows (at most row_count). The file is there as a whole or not at all.
// RT_IO, RT_NO_MEMORY.
rt_status dp_popularity_write(const dp_popularity *profile, const rt_config *config,
                              const rt_schema *schema, uint64_t hot_rows, const char *path,
                              rt_error *error);

// The rows of such a file; *uses_p is the caller's (rt_free), and untouched on failure. schema: of
// config's stream. RT_DATA: no such file, a damaged one, or one of another schema: error names the
// key of the configuration that differs, or the line. RT_IO, RT_NO_MEMORY.
rt_status dp_popularity_read(const char *path, const rt_config *config, const rt_schema *schema,
                             dp_popular **uses_p, uint64_t *count_p, rt_error *error);

#endif
