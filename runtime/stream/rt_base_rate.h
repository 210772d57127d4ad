// rt_base_rate - the share of label 1 as it becomes known, and what may be learnt from a batch.
//
// A run begins without knowing how many of its samples have label 1, and its first labels come in
// an order that says little about it: a log begins with hours of one class, and in a join
// (rt_join.h) label 1 comes at once and label 0 when a window is over. So every batch is noted
// before it is planned, and says what follows (rt_batch_learning):
//
//   - A label trains nothing before its rate is known: once both classes have come, and then
//     RT_RATE_KNOWN more of each, unless the output's bias is not this file's to move. A batch that
//     trains no label is predicted only.
//   - Until then the bias follows: it is shifted by as much as the log odds have changed, so that
//     predictions say the rate so far. From then on the training alone moves it.
//
// The rate so far is that of the samples since both classes are there. Those before, all of one
// class, count less the more is known, down to nothing; so do events that wait for their outcome,
// which are taken for label 0.
//
// In a join label 1 goes on coming at once and label 0 a window later. When more events come than a
// window before, samples have too much of label 1; when fewer come, and at the end of the input,
// too little. So the class of which there is too much counts less in training: by the samples of
// label 0 that came, over those that would have come if all were known at once, which are these and
// what waits more than before, both over the last samples. (Several labels of an event are known
// together, when its window ends: nothing is ahead of anything.)
//
// Everything follows from the batches and what waits. A plain value, one owner.
#ifndef RT_BASE_RATE_H
#define RT_BASE_RATE_H

#include "runtime/config/rt_config.h"
#include "runtime/stream/rt_batch.h"
#include "runtime/wire/rt_bytes.h"

#define RT_RATE_KNOWN 4.0
#define RT_RATE_SEEN 255u     // more are not counted
#define RT_RATE_SAMPLES 256.0 // at least so many are the last ones
#define RT_RATE_LEAST 0.0625  // a sample that is trained counts at least so much

typedef struct {
    double alone[2];  // weight of label 0 and of label 1 until both had come
    double both[2];   // since then
    double log_odds;  // by which the bias was shifted
    uint32_t seen[2]; // samples since then, whatever they weigh
    bool is_known;
} rt_label_rate;

typedef struct {
    bool follows;         // the bias is to follow: model.base_rate "auto"
    bool is_joined;       // label 1 is ahead of label 0
    uint32_t label_count; // 0: of several classes, which have no such rate
    rt_label_rate labels[RT_LABELS_MAX];
    double pending, zeros, owed; // of a join: what waited last, less than 0: that is not known; of
                                 // label 0, that fade: those that came, and would have come
} rt_base_rate;

// has_model: the run begins with one, whose bias stands. Then only a join keeps it from training at
// once: what comes of one first says label 1, whatever the model knows.
void rt_base_rate_init(rt_base_rate *rate, const rt_config *config, bool has_model);

// Notes a batch and says in it what may be learnt from it. pending: samples that will have label 0
// unless an outcome comes; 0: there is no join.
void rt_base_rate_note(rt_base_rate *rate, rt_batch *batch, double pending);

bool rt_base_rate_is_known(const rt_base_rate *rate);  // of all labels: nothing is left to note
bool rt_base_rate_is_learnt(const rt_base_rate *rate); // of one: batches are trained

// For a checkpoint: without a join nothing is saved where all is known. load, after init: where
// nothing was saved all is known, and reader stays where it is. RT_DATA: no such state.
void rt_base_rate_save(const rt_base_rate *rate, rt_bytes *bytes);
rt_status rt_base_rate_load(rt_base_rate *rate, rt_reader *reader, rt_error *error);
bool rt_base_rate_is_next(const rt_reader *reader);

#endif
