// rt_crosses - which two categorical columns say more together than each for itself.
//
// Reads the first samples of a stream once. Every pair of columns is judged by rows that it has not
// learnt from yet: a logistic of all columns predicts each sample before it is learnt, a correction
// for each value of the two columns is learnt on top of it, and one for each pair of values on top
// of both. What the last one gains on the second half of the samples is the gain of the cross.
// Weights of samples are not looked at, and of several labels only the first. One thread.
#ifndef RT_CROSSES_H
#define RT_CROSSES_H

#include "runtime/config/rt_config.h"
#include "runtime/stream/rt_stream.h"

#define RT_CROSSES_MAX 5u
#define RT_CROSSES_SAMPLES_MIN 2000u // with fewer nothing can be said

typedef struct {
    uint64_t samples_max;
    uint64_t memory_max; // bytes; where they are full, reading ends
    uint32_t admit;      // a pair of values counts once it was seen so often (rows.admit)
    bool progress;       // a line on standard error
} rt_crosses_settings;

typedef struct {
    char from[2][RT_NAME_MAX]; // columns
    char name[RT_NAME_MAX];    // of the new one
    double gain;               // of log loss, with the crosses before it already there
    double error;              // its standard error, from blocks of time
    uint64_t values;           // distinct pairs of values among the samples
    uint64_t rows;             // of these, seen at least `admit` times
} rt_crosses_one;

typedef enum { RT_CROSSES_INPUT, RT_CROSSES_SAMPLES, RT_CROSSES_MEMORY } rt_crosses_end;

typedef struct {
    rt_crosses_one items[RT_CROSSES_MAX]; // count: in the order in which they were chosen
    uint32_t count;
    rt_crosses_one refused; // the best of those that gain too little; name "": none gains
    uint32_t columns;       // that were paired
    uint32_t left_out_many, left_out_one; // columns of ids that do not come again, of one value
    uint32_t left_out_same;  // columns that tell the same values apart as one before them
    uint32_t left_out_other; // columns of several values, crosses, ones without name
    uint32_t pairs;          // tried
    uint64_t screened;       // samples that all pairs saw; the best saw all
    uint64_t samples, held_out;
    double log_loss; // of the held out ones, by the columns alone
    rt_crosses_end end;
} rt_crosses;

// Reads the stream of config from its start. RT_CONFIG: it has no columns to cross; RT_DATA: too
// few samples, or labels that are all alike; RT_NO_MEMORY; the stream's errors.
rt_status rt_crosses_find(const rt_config *config, const rt_crosses_settings *settings,
                          rt_crosses *crosses, rt_error *error);

#endif
