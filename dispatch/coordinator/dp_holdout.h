// dp_holdout - when to stop by samples that are not trained (stream.holdout, stream.patience).
//
// The checkpoint at the end of each epoch is judged by the held-out samples. Training ends once
// stream.patience judgements in a row are no better than the best one. The judgements before a
// checkpoint stand in its manifest, so a run that goes on from it counts on. A plain value; one
// thread.
#ifndef DP_HOLDOUT_H
#define DP_HOLDOUT_H

#include <cjson/cJSON.h>

#include "dispatch/coordinator/dp_evidence.h"
#include "runtime/rt_json.h"

#define DP_HOLDOUT_MAX 256u // as many epochs as there may be

typedef struct {
    uint32_t iteration, epochs; // of the checkpoint; epochs that it has seen
    double log_loss;
} dp_judgement;

typedef struct {
    dp_judgement list[DP_HOLDOUT_MAX];
    uint32_t count;
} dp_holdout;

// Takes one that is later than those before; one of the same checkpoint takes its place.
void dp_holdout_add(dp_holdout *holdout, const dp_judgement *judgement);

// The first of those with the smallest log loss; NULL: none was made.
const dp_judgement *dp_holdout_best(const dp_holdout *holdout);

// How many in a row, up to the newest, are no better than the best one.
uint32_t dp_holdout_since_best(const dp_holdout *holdout);

// The member "judged" of a manifest; nothing where none was made. take: RT_DATA: it is none of ours.
void dp_holdout_put(const dp_holdout *holdout, rt_json *json);
rt_status dp_holdout_take(dp_holdout *holdout, const cJSON *manifest);

// Log loss of all held-out samples, the mean over labels, by the model in a folder. RT_NOT_FOUND:
// no sample is held out. What the stream and recall return.
rt_status dp_holdout_judge(const rt_config *config, dp_recall recall, const char *folder,
                           double *log_loss_p, rt_error *error);

#endif
