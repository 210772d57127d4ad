// The checkpoint at the end of an epoch is judged by the samples that are held out.
#include <inttypes.h>
#include <string.h>

#include "dispatch/coordinator/dp_checkpoint_parts.h"
#include "runtime/files/rt_checkpoint.h"
#include "runtime/files/rt_manifest.h"
#include "runtime/rt_log.h"

#define JUDGE_LIMIT_S 86400.0 // as many samples as there are: nobody knows how long it takes

const dp_holdout *dp_checkpoint_judgements(const dp_checkpoint *c)
{
    return &c->holdout;
}

// In the forked copy.
static void judge(void *context, rt_child_result *result)
{
    const dp_checkpoint *c = context;
    double loss = 0;
    if (!dp_holdout_judge(c->config.config, c->config.recall, c->folder, &loss, &result->error))
        memcpy(result->values, &loss, sizeof loss);
}

void dp_checkpoint_judge(dp_checkpoint *c)
{
    rt_child_result failed = {0};
    const uint32_t patience = c->config.config->stream.patience;
    if (!c->content.epochs || !c->config.recall || dp_holdout_since_best(&c->holdout) >= patience)
        return; // one that ends early knows enough
    c->step = STEP_JUDGING;
    if (rt_child_start(&c->child, judge, c, JUDGE_LIMIT_S, &failed.error))
        dp_checkpoint_judged(c, &failed);
}

static void tell(const dp_checkpoint *c, const dp_judgement *own)
{
    const dp_judgement *best = dp_holdout_best(&c->holdout);
    const uint32_t since = dp_holdout_since_best(&c->holdout);
    rt_json *json = rt_metrics_begin(c->config.metrics, "holdout");
    rt_json_u64(json, "iteration", own->iteration);
    rt_json_u64(json, "epochs", own->epochs);
    rt_json_double(json, "logloss", own->log_loss);
    rt_json_u64(json, "best_iteration", best->iteration);
    rt_json_double(json, "best_logloss", best->log_loss);
    rt_json_u64(json, "since_best", since);
    rt_metrics_end(c->config.metrics);
    if (since)
        rt_info("epoch %" PRIu32
                ": held-out log loss %.4f, not better than %.4f after epoch %" PRIu32 " (%" PRIu32
                " of stream.patience %" PRIu32 ")",
                own->epochs, own->log_loss, best->log_loss, best->epochs, since,
                c->config.config->stream.patience);
    else
        rt_info("epoch %" PRIu32 ": held-out log loss %.4f, the best so far", own->epochs,
                own->log_loss);
}

// What cannot be judged counts neither way.
void dp_checkpoint_judged(dp_checkpoint *c, const rt_child_result *result)
{
    dp_judgement own = {.iteration = c->content.iteration, .epochs = c->content.epochs};
    c->step = STEP_IDLE;
    if (result->error.status) {
        rt_warn("the model of epoch %" PRIu32 " cannot be judged, training goes on: %s", own.epochs,
                result->error.text);
        return;
    }
    memcpy(&own.log_loss, result->values, sizeof own.log_loss);
    dp_holdout_add(&c->holdout, &own);
    tell(c, &own);
}

uint32_t dp_checkpoint_best_needs(const dp_checkpoint *c)
{
    const dp_judgement *best = dp_holdout_best(&c->holdout);
    uint32_t at = c->past_count;
    while (best && at > 0 && c->past[at - 1].iteration != best->iteration)
        at--;
    if (!best || at == 0)
        return UINT32_MAX;
    for (at--; at > 0 && c->past[at].base;)
        at--;
    return c->past[at].iteration;
}

rt_status dp_checkpoint_begin_judging(dp_checkpoint *c, rt_error *error)
{
    cJSON *root = NULL;
    uint32_t epochs = 0;
    const uint32_t newest = dp_checkpoint_newest(c);
    if (!c->config.config->stream.patience || !newest)
        return RT_OK;
    rt_status status = rt_checkpoint_path(c->directory, newest, c->folder, sizeof c->folder, error);
    if (!status)
        status = rt_manifest_read(c->folder, &root, error);
    if (status)
        return status;
    if (dp_holdout_take(&c->holdout, root))
        status = rt_fail(error, RT_DATA,
                         "%s/manifest.json: judged: expected iteration, epoch and log loss of each",
                         c->folder);
    if (!rt_manifest_u32(root, "epochs", UINT32_MAX, &epochs))
        epochs = 0;
    cJSON_Delete(root);
    c->content.iteration = newest;
    c->content.epochs = epochs;
    if (!status)
        dp_checkpoint_judge(c); // it may have been under way when the run before ended
    return status;
}
