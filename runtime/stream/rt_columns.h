// rt_columns - what cells of text mean: label, numbers, ids; the columns of a configuration.
//
// A reader of lines (delimited text, JSON) finds a cell for every column that has one; here they
// become a sample, so that a column means the same in every format. One thread. How a cell becomes
// a number or an id: docs/MODEL_FORMAT.md, "A prediction".
#ifndef RT_COLUMNS_H
#define RT_COLUMNS_H

#include <string.h>

#include "runtime/config/rt_config.h"
#include "runtime/stream/rt_line.h"
#include "runtime/stream/rt_stream.h"
#include "runtime/stream/rt_value_names.h"

#define RT_KEYS_PER_SAMPLE_MAX (1u << 16)

typedef enum {
    RT_COLUMNS_SAMPLES,
    RT_COLUMNS_EVENTS,   // without a label
    RT_COLUMNS_OUTCOMES, // an id, perhaps a time and a label
    RT_COLUMNS_QUESTIONS // of samples or events: nothing is read but what a prediction needs
} rt_columns_purpose;

// What the cell of a column is to a question. This is decided here and nowhere else.
typedef enum {
    RT_CELL_NONE,   // there is none: the column is made of the cells of others
    RT_CELL_NEEDED, // the column is a feature, or one is made of it
    RT_CELL_LABEL,  // a label, or what only labels are made of: a line may lack it
    RT_CELL_BESIDE  // weight, id, time, what is ignored: it stands in lines and is not looked at
} rt_cell_use;

// Followed by a byte that belongs to no number. Empty: missing.
typedef struct {
    const char *text;
    size_t length;
} rt_cell;

#define RT_COLUMN_PLAIN (RT_COLUMN_TIME + 1) // a categorical column that is_plain and not wanted

// What every cell asks for stands first, in one cache line.
typedef struct {
    int kind;       // rt_column_kind, or RT_COLUMN_PLAIN
    uint32_t field; // categorical, multi; of a label its number
    bool id_is_number;
    bool is_label_number; // label_value is a number
    bool is_label_one;    // it is 1, so that 0 is what other labels should be
    bool is_plain;        // no transform, nothing for what is missing, not made of others
    bool is_dated;        // a transform of times
    bool is_wanted;       // others are a cross of it
    bool is_noted;        // its values are
    bool is_source;       // others are made of it
    bool is_feature;      // or features are made of it
    bool is_of_labels;    // likewise of labels
    double label_number;
    uint32_t from[RT_COLUMN_FROM_MAX];
    rt_cell missing; // length 0: nothing stands for an empty cell
    rt_column column;
} rt_columns_one;

// Readable by all, changed by none.
typedef struct {
    uint32_t count;
    uint32_t derived_count; // that have no cell
    rt_columns_one *items;
    uint64_t *ids;         // of the line at hand, of those that are wanted
    bool are_questions;    // every label is 0; its cell may hold anything, or be left out
    rt_value_names *names; // NULL: nothing is noted
    rt_schema schema;
} rt_columns;

// Copies config; list is its key, for messages. RT_CONFIG names the column, RT_NO_MEMORY.
rt_status rt_columns_create(const rt_table_config *config, rt_columns_purpose purpose,
                            const char *list, rt_columns **columns_p, rt_error *error);
void rt_columns_destroy(rt_columns *columns); // NULL is fine

// From now on the values of the column that names are of are noted there. NULL: of none.
void rt_columns_note(rt_columns *columns, rt_value_names *names);

rt_columns_purpose rt_columns_purpose_of(const rt_stream_config *config);

// Before the first cell of a line.
static inline void rt_columns_begin(const rt_columns *columns, rt_line_sample *sample)
{
    sample->key_count = 0;
    memset(sample->labels, 0, sizeof sample->labels);
    sample->label = !columns->are_questions; // of an outcome that says no more
    sample->weight = 1;
    sample->odd_labels = 0;
}

// Puts one cell into the sample: the columns in their order, which is that of the fields, without
// those that are derived. *dense_count: of the sample so far. False: it cannot be,
// rt_columns_expected says what was.
bool rt_columns_take(rt_columns *columns, uint32_t index, rt_cell cell, rt_line_sample *sample,
                     uint32_t *dense_count);

// All columns, from cells by column (of derived ones not looked at). False: *bad_p cannot be.
bool rt_columns_take_all(rt_columns *columns, const rt_cell *cells, rt_line_sample *sample,
                         uint32_t *bad_p);

// cell: what was found.
const char *rt_columns_expected(const rt_columns *columns, uint32_t index, rt_cell cell);

rt_cell_use rt_columns_use(const rt_columns *columns, uint32_t index);

// How a column is called by who asks: its name; without one its path, or the number of its cell in
// a line, from 1.
void rt_columns_name(const rt_columns *columns, uint32_t index, char name[RT_NAME_MAX]);

// Whether the column has a cell that is read, for what these columns are for.
bool rt_columns_reads(const rt_columns *columns, uint32_t index);

// [sign] digits [. digits] [e [sign] digits], correctly rounded, finite; blanks around it, $, EUR's,
// pound's, yen's and percent's signs are no part of it.
bool rt_columns_number(rt_cell number, double *value_p);
bool rt_columns_number_as(rt_number_format format, rt_cell number, double *value_p);

#endif
