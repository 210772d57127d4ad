// rt_line - one line of input, and the sample that a line parser makes of it.
//
// Plain values: a line borrows the bytes of its source until the next line is read, a sample
// borrows storage of the caller.
#ifndef RT_LINE_H
#define RT_LINE_H

#include "runtime/config/rt_config.h"

#define RT_LINE_MAX (1u << 20)  // bytes; a longer line is skipped and counts as malformed
#define RT_LINE_PAD 16u         // bytes that can be read behind text[length]
#define RT_LINES_JOINED_MAX 64u // of one record whose quotes hold line feeds
#define RT_LINES_JOINED_BYTES (64u << 10)

// Whose clock says when a line came.
typedef enum {
    RT_CLOCK_READER, // this process, as it read: another time when it is read again
    RT_CLOCK_KEPT,   // the one who took it; kept with the line
    RT_CLOCK_SENDER, // of the one who sent it, as a word in the line is
} rt_line_clock;

typedef struct {
    const char *text; // length bytes; text[length] is a line end: '\n' or '\r'; others are inside
                      // only where quotes hold several lines together
    uint32_t length;
    uint32_t file;       // index of the file that it stands in
    uint64_t number;     // in that file, from 1
    uint64_t arrival_ns; // since 1970 (rt_arrival_ns): when it came from elsewhere; 0: unknown
    uint64_t origin;     // who sent it (rt_journal.h); 0: not known
    rt_line_clock clock; // of arrival_ns
    bool is_too_long;    // text is empty then
} rt_line;

// Where a parser puts a sample; all of it is undefined after a failure.
// id and time are there where the schema says so.
typedef struct {
    union {
        float label;                 // the only one, or the first
        float labels[RT_LABELS_MAX]; // the schema's label_count; of several, NAN: it is absent
    };
    float weight;
    uint64_t odd_labels; // mask of those that are neither 0 nor 1, and were taken for one of them
    double odd_value;    // what one of them was
    uint32_t key_count;
    uint64_t id;        // a hash of it
    int64_t time_ms;    // since 1970-01-01 UTC
    int64_t arrival_ms; // as kept with the line; 0: it is not. Of events and outcomes alone, as:
    uint64_t origin;    // who sent it; 0: not known
    bool is_word;       // time_ms is what its sender says, not when it came
    double *dense;      // schema's dense_count, each within what 32 bits hold
    uint64_t *keys;     // room for schema's keys_per_sample_max
} rt_line_sample;

// What is wrong with a line: which column, what was expected there, what was found.
typedef struct {
    char text[256];
    bool goes_on; // a quote is open where the line ends: it may be whole with those that follow
} rt_line_problem;

// Both write problem and return false, so that a parser can end in them. column counts from 0; the
// cell is shown shortened, with bytes that do not print as \xNN.
bool rt_line_reject_cell(rt_line_problem *problem, uint32_t column, const char *name,
                         const char *expected, const char *cell, size_t cell_length);
bool rt_line_reject(rt_line_problem *problem, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
