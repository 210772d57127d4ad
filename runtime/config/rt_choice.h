// rt_choice - what a user chooses by name and a programmer adds: one line in one list each.
//
// rt_policies.h, rt_solvers.h, rt_sources.h, rt_formats.h, rt_models.h, rt_optimizers.h: XX(
// ENUMERATOR, name, help); formats, models and optimizers also have traits. From a line come the enumerator,
// the name in a configuration file and its line of docs/CONFIG.md (rt_config_choices.c), and the
// entry in the table of those who do the work. A new line without its table of operations does not
// build. Only who names an entry or goes through all of them includes a list: what a configuration
// holds is a number, so that a new line rebuilds little.
#ifndef RT_CHOICE_H
#define RT_CHOICE_H

#include "runtime/rt_base.h"

typedef uint32_t rt_policy_kind, rt_solver_kind, rt_source_kind, rt_format, rt_model_kind,
    rt_optimizer_kind;

// How many lines a list has: (0 RT_POLICY_MAP(RT_CHOICE_ONE)).
#define RT_CHOICE_ONE(...) +1
#define RT_CHOICE_NONE(...)

// What others ask an entry instead of asking which one it is; 0: nothing of all that.
typedef enum {
    RT_HAS_COLUMNS = 1,   // "stream.table.columns" says what is in a line
    RT_HAS_DELIMITER = 2, // a line is cells; the first one of a file may be a header
    RT_HAS_INDICES = 4    // "stream.libsvm" says what they mean
} rt_format_trait;
typedef enum {
    RT_TAKES_SEQUENCE = 1, // "model.sequence" and "model.target" name its fields
    RT_TAKES_NODES = 2,    // its fields are a node, "model.fan_out" neighbours, and theirs
    RT_TAKES_LENGTHS = 4   // rows may differ in length, as they stand side by side
} rt_model_trait;
typedef enum {
    RT_ADDS_UP = 1,  // what several workers changed of values and state can be added
    RT_OWN_RATES = 2 // of every weight: the learning rate may not change by itself
} rt_optimizer_trait;

// Of a value that is none: false.
bool rt_format_has(rt_format format, rt_format_trait trait);
bool rt_format_is_generated(rt_format format);
bool rt_model_takes(rt_model_kind kind, rt_model_trait trait);
bool rt_optimizer_is(rt_optimizer_kind kind, rt_optimizer_trait trait);
bool rt_source_is_live(rt_source_kind source);  // who sends events is told what is kept of them
bool rt_source_is_built(rt_source_kind source); // with the library that it needs

#endif
