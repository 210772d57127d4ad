#include "dispatch/coordinator/dp_holdout.h"

#include <math.h>

#include "runtime/metrics/rt_meter.h"
#include "runtime/stream/rt_stream.h"

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
    uint32_t label_count, class_count, output_count;
    rt_meter *meters[RT_LABELS_MAX]; // by label
    float *predictions;              // output_count of each sample of a batch
    float *of_label[3];              // predictions, labels, weights of one
} judging;

static void close_judging(judging *j)
{
    rt_stream_close(j->stream);
    rt_batch_fini(&j->batch);
    for (uint32_t l = 0; l < RT_LABELS_MAX; l++)
        rt_meter_destroy(j->meters[l]);
    rt_free(j->predictions);
    for (uint32_t i = 0; i < 3; i++)
        rt_free(j->of_label[i]);
}

static rt_status create_meters(judging *j)
{
    for (uint32_t l = 0; l < j->label_count; l++) {
        if (rt_meter_create(&j->meters[l]))
            return RT_NO_MEMORY;
        if (j->class_count)
            rt_meter_classify(j->meters[l], j->class_count);
        else
            rt_meter_weigh(j->meters[l]);
    }
    j->predictions = rt_alloc((size_t)SAMPLES_AT_ONCE * j->output_count, sizeof(float));
    for (uint32_t i = 0; i < 3; i++)
        j->of_label[i] = rt_alloc(SAMPLES_AT_ONCE, sizeof(float));
    if (!j->predictions || !j->of_label[0] || !j->of_label[1] || !j->of_label[2])
        return RT_NO_MEMORY;
    return RT_OK;
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
    j->label_count = schema->label_count;
    j->class_count = schema->class_count;
    j->output_count = schema->output_count;
    rt_batch_init(&j->batch, schema->dense_count);
    if (create_meters(j))
        return rt_fail(error, RT_NO_MEMORY, "out of memory");
    return RT_OK;
}

// Of samples that have the label.
static void add_label(judging *j, uint32_t label)
{
    const rt_batch *batch = &j->batch;
    uint32_t count = 0;
    for (uint32_t i = 0; i < batch->sample_count; i++) {
        const size_t at = (size_t)i * j->label_count + label;
        const float weight = batch->is_weighted ? batch->weights[at] : 1;
        if (weight == 0 && batch->labels[at] == 0)
            continue;
        j->of_label[0][count] = j->predictions[at];
        j->of_label[1][count] = batch->labels[at];
        j->of_label[2][count++] = weight;
    }
    rt_meter_add_weighted(j->meters[label], j->of_label[0], j->of_label[1], j->of_label[2], 1,
                          count);
}

static void add_batch(judging *j)
{
    if (j->class_count) {
        rt_meter_add_classes(j->meters[0], j->predictions, j->batch.labels, j->batch.sample_count);
        return;
    }
    for (uint32_t l = 0; l < j->label_count; l++)
        add_label(j, l);
}

static rt_status judge_all(judging *j, dp_recall recall, const char *folder, rt_error *error)
{
    for (;;) {
        rt_status status = rt_stream_read(j->stream, &j->batch, SAMPLES_AT_ONCE, error);
        if (status == RT_END)
            return RT_OK;
        if (!status)
            status = recall(folder, &j->batch, 0, j->output_count, j->predictions, error);
        if (status)
            return status;
        add_batch(j);
    }
}

// A label that no sample has says nothing.
static double mean_loss(const judging *j)
{
    double sum = 0;
    uint32_t count = 0;
    for (uint32_t l = 0; l < j->label_count; l++) {
        const double loss = rt_meter_total(j->meters[l]).log_loss;
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
    judging j = {.label_count = 0};
    rt_status status = open_judging(&j, config, error);
    if (!status)
        status = judge_all(&j, recall, folder, error);
    const double loss = status ? 0 : mean_loss(&j);
    close_judging(&j);
    if (!status && !isfinite(loss))
        return rt_fail(error, RT_NOT_FOUND, "stream.holdout: no sample is held out");
    if (!status)
        *log_loss_p = loss;
    return status;
}
