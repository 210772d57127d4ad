// rt_meter - how good predictions are, judged before their samples are trained on.
//
// Progressive validation (Blum, Kalai, Langford, COLT 1999): every prediction of an on-line run is
// made by a model that has not seen its label, so loss and AUC need no held-out set. Kept over the
// whole run, over a window (the last batch), and over the last fifth of a run whose length is not
// known in advance.
//
// Fixed memory (10 MiB), nothing allocated after create, no locking. Resolution:
// - The AUC comes from a histogram of the logit, 16,384 bins over [-16, 16), so 1/512 wide. Pairs
//   within one bin get half credit, as ties do: the error is at most half the share of
//   (positive, negative) pairs that lie in one bin without being equal.
// - The log loss clips predictions to [1e-7, 1 - 1e-7].
// - The last fifth starts at most 0.65% of the run away from four fifths of it (exactly there in
//   runs of up to 150 samples).
//
// Of a label of several classes (rt_meter_classify) the log loss is that of the class that it was;
// the AUC is over all pairs of a probability of a class that it was and one of a class that it was
// not (one against the rest, all classes together); the mean label is the share of samples whose
// likeliest class was the right one, the mean prediction the mean probability of the likeliest; and
// the entropy that a loss is divided by that of giving all classes the same probability.
//
// Where samples have weights (rt_meter_weigh) all numbers but counts of samples are by weight, in
// units of 2^-20.
#ifndef RT_METER_H
#define RT_METER_H

#include "runtime/wire/rt_bytes.h"

#define RT_METER_CLIP 1e-7

typedef struct rt_meter rt_meter;

// NAN where a number is not defined: everything without samples, AUC without both labels, ...
typedef struct {
    uint64_t first_sample;  // index in the run of the first sample judged here
    uint64_t sample_count;  // judged
    uint64_t invalid_count; // predictions that are no probability (NaN, outside [0, 1]), left out
    double log_loss;        // mean, natural logarithm
    double auc;
    // log_loss / entropy of the mean label: below 1 is better than predicting the mean
    // (He et al., ADKDD 2014, section 3)
    double normalised_entropy;
    double calibration; // mean prediction / mean label (ibid.)
    double mean_label;
    double mean_prediction;
    uint32_t class_count; // 0: the label is 0 or 1
} rt_quality;

// One of these numbers as people read it: "undefined" where it is NAN.
#define RT_QUALITY_TEXT 32u
const char *rt_quality_show(double value, int decimals, char text[RT_QUALITY_TEXT]);

// On RT_OK *meter_p is the caller's. RT_NO_MEMORY.
rt_status rt_meter_create(rt_meter **meter_p);
void rt_meter_destroy(rt_meter *meter);

// Adds count predicted probabilities and their labels (0 or 1), in the order of the run.
void rt_meter_add(rt_meter *meter, const float *predictions, const float *labels, uint32_t count);

// From now on, and before anything is added: one of class_count classes.
void rt_meter_classify(rt_meter *meter, uint32_t class_count);

// Adds count samples of a meter of classes: so many probabilities each, and which class it was.
void rt_meter_add_classes(rt_meter *meter, const float *predictions, const float *labels,
                          uint32_t count);

// From now on there are weights; what was added before weighs 1 each.
void rt_meter_weigh(rt_meter *meter);

// The same for a meter that weighs: labels and weights as in rt_batch.h; what has label 0 counts
// negative_weight times (rt_negatives.h).
void rt_meter_add_weighted(rt_meter *meter, const float *predictions, const float *labels,
                           const float *weights, double negative_weight, uint32_t count);

// Forgets the window; what is added from now on is the next one.
void rt_meter_begin_window(rt_meter *meter);

// Everything but the window, and back into a new one. RT_DATA: no such state; the meter is empty.
void rt_meter_save(const rt_meter *meter, rt_bytes *bytes);
rt_status rt_meter_load(rt_meter *meter, rt_reader *reader);

// The window joins those of the last `sample_count` samples; at most one in 20 more is in them.
// What was rolled is no part of what is saved.
void rt_meter_roll(rt_meter *meter, uint64_t sample_count);

// Of what was rolled; the AUC from bins of 1/64.
rt_quality rt_meter_rolled(const rt_meter *meter);

rt_quality rt_meter_total(const rt_meter *meter);
rt_quality rt_meter_window(const rt_meter *meter);

// Adds up to 32 histograms (about a millisecond): for log lines and the end of a run.
rt_quality rt_meter_last_fifth(rt_meter *meter);

#endif
