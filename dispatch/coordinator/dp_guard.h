// dp_guard - whether the model that a run has now is fit to answer with (publish.guard).
//
// Two looks. The first costs nothing: log loss, mean prediction and mean label of the last samples,
// every prediction made before its sample was trained: sums that fade, by a factor of e over
// guard_samples samples. Log loss is judged as normalised entropy: divided by that of a
// model that always says the mean label (He et al., ADKDD 2014, section 3), so that days with more
// clicks are no worse than others; of several classes, by that of a model that gives all the same
// probability. What passes it, by the base rate and by how the last good version stood, is
// published.
//
// What does not is no worse for that: the stream may have become harder for every model. So it is
// held against the version in force, on the same labelled samples (dp_evidence.h), and is held back
// only where it does worse there. When none has passed for publish.guard.hold_s, the better of the
// two is published whatever the margins.
//
// Nothing is judged before something was learnt, nor by samples of one class: the ratio to the base
// rate is undefined then, and such a version is held back without an alert. A plain value, one
// thread.
#ifndef DP_GUARD_H
#define DP_GUARD_H

#include "dispatch/coordinator/dp_evidence.h"
#include "runtime/metrics/rt_meter.h"

typedef struct {
    double samples, loss, predicted, labels; // fading sums
    uint32_t class_count;                    // that a label is one of; 0: it is 0 or 1
    double good_entropy, good_calibration;   // of the last version that was published; 0: none was
} dp_guard;

typedef struct {
    double log_loss, normalised_entropy, calibration; // NAN: not known yet
    bool is_held;
    bool is_early;  // is_held, as too little is known: nobody has to look
    bool is_chosen; // it is not held, though it is worse than the margins allow: the better of two
    char why[320];  // is_held, is_chosen
} dp_verdict;

// The window of one iteration that was trained after another one.
void dp_guard_add(dp_guard *guard, const rt_publish_config *config, const rt_quality *batch);

// The first look. is_learnt: the model has been trained on something. A margin of 0 judges nothing.
void dp_guard_judge(const dp_guard *guard, const rt_publish_config *config, bool is_learnt,
                    dp_verdict *verdict);

// The second one, where the first held it back and a version is in force, of this iteration.
// held_s: since when no version has passed.
void dp_guard_compare(const rt_publish_config *config, const dp_comparison *comparison,
                      uint32_t in_force, double held_s, dp_verdict *verdict);

// The version of this verdict is in force: the next ones are measured by it.
void dp_guard_pass(dp_guard *guard, const dp_verdict *verdict);

#endif
