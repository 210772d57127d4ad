// dp_guard - whether the model that a run has now is fit to answer with (publish.guard).
//
// Keeps log loss, mean prediction and mean label of the last samples, every prediction made before
// its sample was trained: sums that fade, by a factor of e over publish.guard.samples samples. Log
// loss is judged as normalised entropy: divided by that of a model that always says the mean label
// (He et al., ADKDD 2014, section 3), so that days with more clicks are no worse than others; of
// several classes, by that of a model that gives all the same probability. A plain value, one
// thread.
#ifndef DP_GUARD_H
#define DP_GUARD_H

#include "runtime/config/rt_config.h"
#include "runtime/metrics/rt_meter.h"

typedef struct {
    double samples, loss, predicted, labels; // fading sums
    uint32_t class_count;                    // that a label is one of; 0: it is 0 or 1
    double good_entropy, good_calibration;   // of the last version that was published; 0: none was
} dp_guard;

typedef struct {
    double log_loss, normalised_entropy, calibration; // NAN: not known yet
    bool is_held;
    char why[256]; // where it is
} dp_verdict;

// The window of one iteration.
void dp_guard_add(dp_guard *guard, const rt_publish_config *config, const rt_quality *batch);

// Judges what is now, and takes it for the last good one if it is. A margin of 0 judges nothing.
void dp_guard_judge(dp_guard *guard, const rt_publish_config *config, dp_verdict *verdict);

#endif
