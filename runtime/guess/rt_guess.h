// rt_guess - what a file of rows holds: its layout, and what each column is to a model.
//
// Reads the first rows, asks nobody, and says of each column why it takes it for what it does. A
// guess is a proposal: whoever knows better edits the configuration that is written of it.
#ifndef RT_GUESS_H
#define RT_GUESS_H

#include "runtime/config/rt_config.h"
#include "runtime/rt_json.h"

#define RT_GUESS_WHY 160u

typedef struct {
    char *name;       // as the file has it; of a table without a header "c1", "c2", ...
    rt_column column; // kind and what belongs to it
    bool is_left_out; // has no place in the configuration: its name cannot be used, or is none
    bool has_hours;   // a time: with an hour of the day, and days of the week, for others to be
    bool has_days;    // made of it
    bool is_person;   // its values look as if each names a person
    char why[RT_GUESS_WHY];
} rt_guess_column;

typedef struct {
    rt_format format;
    char delimiter;
    bool has_header;
    rt_quotes quotes;
    const char *layout; // in words
    uint64_t row_count; // that were looked at
    bool is_whole;      // they are all
    uint32_t column_count;
    rt_guess_column *columns;
    double unlabelled; // share of the rows
    uint32_t label;    // its column; of formats that have no columns 0
} rt_guess;

// path: "-" is standard input. label: a column's name or number, with "=VALUE" behind it where that
// is the text for label 1; NULL: it is found. RT_DATA: no guess can be made, error says why; RT_IO,
// RT_NO_MEMORY.
rt_status rt_guess_make(const char *path, const char *label, rt_guess **guess_p, rt_error *error);
void rt_guess_destroy(rt_guess *guess); // NULL is fine

// The configuration of a run on this file.
void rt_guess_write(const rt_guess *guess, const char *path, rt_json *json);

// The same, over the values of config. RT_CONFIG, RT_NO_MEMORY.
rt_status rt_guess_configure(const rt_guess *guess, const char *path, rt_config *config,
                             rt_error *error);

#endif
