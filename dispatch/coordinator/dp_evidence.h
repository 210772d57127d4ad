// dp_evidence - labelled samples of the last while, by which a run judges what it publishes.
//
// Some of the samples that a run trains, as they were read, each with the prediction that was made
// before it was trained: evenly spread over the last guard_samples of them, at most
// DP_EVIDENCE_MAX. By them the model that a run has now is held against the version in force, on
// the same samples, none of which either has been trained on. One thread.
#ifndef DP_EVIDENCE_H
#define DP_EVIDENCE_H

#include "runtime/config/rt_config.h"
#include "runtime/stream/rt_batch.h"

#define DP_EVIDENCE_MAX 4096u

// Samples of one batch that are kept. `batch` has them as they were read, dense features not
// scaled, keys not folded; with weights, and of labels the first alone (0, 1, or a class).
typedef struct {
    rt_batch batch;
    uint32_t *from; // of each: its number in the batch that was read
    uint32_t *at;   // of each: its place in the order of slices
    uint32_t capacity;
} dp_heard;

void dp_heard_init(dp_heard *heard, uint32_t dense_count);
void dp_heard_fini(dp_heard *heard);

// Takes every n-th sample of a batch that was just read. passed: of the stream before; it is moved.
// RT_NO_MEMORY.
rt_status dp_heard_take(dp_heard *heard, const rt_batch *batch, uint64_t every, uint64_t *passed);

// Every how many samples are kept.
uint64_t dp_evidence_every(const rt_publish_config *config);

typedef struct {
    rt_batch batch;       // as dp_heard
    float *predictions;   // of label 1, or of the class that it was
    uint32_t *iterations; // in which each was trained
    uint32_t capacity;
    uint32_t class_count;   // 0: labels are 0 or 1
    double negatives_weigh; // 1 / stream.negatives_keep
} dp_evidence;

void dp_evidence_init(dp_evidence *evidence, const rt_config *config, uint32_t dense_count);
void dp_evidence_fini(dp_evidence *evidence);

// Those of one iteration. predictions: output_count of each sample, in the order of slices. Without
// memory they are left out.
void dp_evidence_add(dp_evidence *evidence, const dp_heard *heard, const float *predictions,
                     uint32_t output_count, uint32_t iteration);

// Predictions of samples, from one on, by the model in a folder: output_count of each. What the
// layers above lend.
typedef rt_status (*dp_recall)(const char *folder, const rt_batch *batch, uint32_t first,
                               uint32_t output_count, float *predictions, rt_error *error);

// How two models do on the same samples: the run's, and another one.
typedef struct {
    uint32_t count;
    uint32_t rarer;              // of them, those of the label that fewer have; of classes: all
    double ones;                 // weight of label 1
    double log_loss[2];          // means
    double difference_deviation; // of the difference of the two means
    double calibration[2];       // mean prediction over mean label; NAN: of classes, or no label 1
} dp_comparison;

enum { DP_OURS, DP_THEIRS };

// The samples that were trained after an iteration, up to another one.
uint32_t dp_evidence_first(const dp_evidence *evidence, uint32_t after);

// From that one on. theirs: output_count predictions of each.
void dp_evidence_compare(const dp_evidence *evidence, uint32_t first, const float *theirs,
                         uint32_t output_count, dp_comparison *comparison);

#endif
