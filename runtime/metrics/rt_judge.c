#include "runtime/metrics/rt_judge.h"

rt_status rt_judge_init(rt_judge *judge, const rt_schema *schema, bool is_weighted,
                        uint32_t samples_max)
{
    *judge = (rt_judge){.label_count = schema->label_count,
                        .class_count = schema->class_count,
                        .samples_max = samples_max,
                        .is_weighted = is_weighted};
    for (uint32_t l = 0; l < judge->label_count; l++) {
        if (rt_meter_create(&judge->meters[l]))
            return RT_NO_MEMORY;
        if (is_weighted)
            rt_meter_weigh(judge->meters[l]);
        if (judge->class_count)
            rt_meter_classify(judge->meters[l], judge->class_count);
    }
    for (uint32_t i = 0; i < RT_COUNT_OF(judge->of_label) && judge->label_count > 1; i++) {
        judge->of_label[i] = rt_alloc(samples_max, sizeof(float));
        if (!judge->of_label[i])
            return RT_NO_MEMORY;
    }
    return RT_OK;
}

void rt_judge_fini(rt_judge *judge)
{
    for (uint32_t l = 0; l < RT_LABELS_MAX; l++)
        rt_meter_destroy(judge->meters[l]);
    for (uint32_t i = 0; i < RT_COUNT_OF(judge->of_label); i++)
        rt_free(judge->of_label[i]);
    *judge = (rt_judge){.label_count = 0};
}

// Of samples that have the label.
static void add_label(rt_judge *judge, const rt_batch *batch, const float *probabilities,
                      uint32_t label)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < batch->sample_count; i++) {
        const size_t at = (size_t)i * batch->label_count + label;
        if (batch->weights[at] == 0 && batch->labels[at] == 0)
            continue;
        judge->of_label[0][count] = probabilities[at];
        judge->of_label[1][count] = batch->labels[at];
        judge->of_label[2][count++] = batch->weights[at];
    }
    rt_meter_add_weighted(judge->meters[label], judge->of_label[0], judge->of_label[1],
                          judge->of_label[2], 1, count);
}

void rt_judge_add(rt_judge *judge, const rt_batch *batch, const float *predictions)
{
    rt_assert(batch->sample_count <= judge->samples_max);
    if (judge->class_count)
        rt_meter_add_classes(judge->meters[0], predictions, batch->labels, batch->sample_count);
    else if (judge->label_count > 1)
        for (uint32_t l = 0; l < judge->label_count; l++)
            add_label(judge, batch, predictions, l);
    else if (batch->is_weighted)
        rt_meter_add_weighted(judge->meters[0], predictions, batch->labels, batch->weights, 1,
                              batch->sample_count);
    else
        rt_meter_add(judge->meters[0], predictions, batch->labels, batch->sample_count);
}
