#include "dispatch/coordinator/dp_holdout.h"

#include <math.h>

#include "runtime/metrics/rt_judge.h"

// The files of rows are read once for so many samples.
#define SAMPLES_AT_ONCE 65536u

void dp_holdout_add(dp_holdout *h, const dp_judgement *judgement)
{
    while (h->count && h->list[h->count - 1].iteration >= judgement->iteration)
        h->count--;
    if (h->count < DP_HOLDOUT_MAX)
        h->list[h->count++] = *judgement;
}

const dp_judgement *dp_holdout_best(const dp_holdout *h)
{
    const dp_judgement *best = NULL;
    for (uint32_t i = 0; i < h->count; i++)
        if (!best || h->list[i].log_loss < best->log_loss)
            best = &h->list[i];
    return best;
}

uint32_t dp_holdout_since_best(const dp_holdout *h)
{
    const dp_judgement *best = dp_holdout_best(h);
    return best ? h->count - 1 - (uint32_t)(best - h->list) : 0;
}

// Three numbers each.
void dp_holdout_put(const dp_holdout *h, rt_json *json)
{
    double numbers[3 * DP_HOLDOUT_MAX];
    for (uint32_t i = 0; i < h->count; i++) {
        numbers[3 * i] = h->list[i].iteration;
        numbers[3 * i + 1] = h->list[i].epochs;
        numbers[3 * i + 2] = h->list[i].log_loss;
    }
    if (h->count)
        rt_json_doubles(json, "judged", numbers, 3 * h->count);
}

rt_status dp_holdout_take(dp_holdout *h, const cJSON *manifest)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(manifest, "judged"), *item;
    double numbers[3];
    uint32_t count = 0;
    *h = (dp_holdout){.count = 0};
    if (!list)
        return RT_OK;
    cJSON_ArrayForEach(item, list)
    {
        if (!cJSON_IsNumber(item))
            return RT_DATA;
        numbers[count % 3] = item->valuedouble;
        if (++count % 3)
            continue;
        if (!(numbers[0] >= 0 && numbers[0] <= UINT32_MAX) ||
            !(numbers[1] >= 0 && numbers[1] <= UINT32_MAX))
            return RT_DATA;
        dp_holdout_add(h, &(dp_judgement){(uint32_t)numbers[0], (uint32_t)numbers[1], numbers[2]});
    }
    return count % 3 ? RT_DATA : RT_OK;
}

// ---- judging ---------------------------------------------------------------------------------

typedef struct {
    rt_stream_config input;
    rt_stream *stream;
    rt_batch batch;
    rt_judge judge;
    float *predictions; // of each output of a batch's samples
} judging;

static void close_judging(judging *j)
{
    rt_stream_close(j->stream);
    rt_batch_fini(&j->batch);
    rt_judge_fini(&j->judge);
    rt_free(j->predictions);
}

// As `lanyard eval` reads it: all held-out samples, once. What was left out of training by
// stream.negatives_keep is judged all the same, by predictions that are corrected for it.
static rt_status open_judging(judging *j, const rt_config *config, rt_error *error)
{
    j->input = config->stream;
    j->input.negatives_keep = 1;
    j->input.epochs = 1;
    j->input.reads_held_out = true;
    rt_status status = rt_stream_open(&j->input, config->seed, &j->stream, error);
    if (status)
        return status;
    const rt_schema *schema = rt_stream_schema(j->stream);
    rt_batch_init(&j->batch, schema->dense_count);
    j->predictions = rt_alloc((size_t)SAMPLES_AT_ONCE * schema->output_count, sizeof(float));
    if (!j->predictions ||
        rt_judge_init(&j->judge, schema, rt_stream_is_weighted(&j->input), SAMPLES_AT_ONCE))
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    return RT_OK;
}

static rt_status judge_all(judging *j, dp_recall recall, const char *folder, rt_error *error)
{
    const uint32_t outputs = rt_stream_schema(j->stream)->output_count;
    for (;;) {
        rt_status status = rt_stream_read(j->stream, &j->batch, SAMPLES_AT_ONCE, error);
        if (status == RT_END)
            return RT_OK;
        if (!status)
            status = recall(folder, &j->batch, 0, outputs, j->predictions, error);
        if (status)
            return status;
        rt_judge_add(&j->judge, &j->batch, j->predictions);
    }
}

// A label that no sample has says nothing.
static double mean_loss(const rt_judge *judge)
{
    double sum = 0;
    uint32_t count = 0;
    for (uint32_t l = 0; l < judge->label_count; l++) {
        const double loss = rt_meter_total(judge->meters[l]).log_loss;
        if (!isfinite(loss))
            continue;
        sum += loss;
        count++;
    }
    return sum / count;
}

rt_status dp_holdout_judge(const rt_config *config, dp_recall recall, const char *folder,
                           double *log_loss_p, rt_error *error)
{
    judging j = {.stream = NULL};
    rt_status status = open_judging(&j, config, error);
    if (!status)
        status = judge_all(&j, recall, folder, error);
    const double loss = status ? 0 : mean_loss(&j.judge);
    close_judging(&j);
    if (!status && !isfinite(loss))
        return rt_fail(error, RT_NOT_FOUND, "stream.holdout: no sample is held out");
    if (!status)
        *log_loss_p = loss;
    return status;
}
