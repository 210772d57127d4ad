#include "dispatch/coordinator/dp_quality.h"

#include <math.h>
#include <string.h>
#include <stdio.h>

static dp_slice_sums *place_of(dp_slices *slices, uint64_t key)
{
    uint32_t rarest = 0;
    for (uint32_t i = 0; i < slices->count; i++) {
        if (slices->sums[i].key == key)
            return &slices->sums[i];
        if (slices->sums[i].samples < slices->sums[rarest].samples)
            rarest = i;
    }
    uint32_t at = rarest;
    if (slices->count < DP_SLICES_MAX)
        at = slices->count++;
    slices->sums[at] = (dp_slice_sums){.key = key};
    return &slices->sums[at];
}

static void fade(dp_slices *slices, uint32_t count)
{
    const double factor = exp(-(double)count / slices->window_samples);
    for (uint32_t i = 0; i < slices->count; i++) {
        slices->sums[i].samples *= factor;
        slices->sums[i].positives *= factor;
        slices->sums[i].loss *= factor;
        slices->sums[i].predicted *= factor;
    }
}

void dp_slices_add(dp_slices *slices, const float *predictions, const float *labels,
                   const float *weights, const uint64_t *keys, uint32_t count)
{
    fade(slices, count);
    for (uint32_t i = 0; i < count; i++) {
        const double p = (double)predictions[i], weight = (double)weights[i];
        const double positive = (double)labels[i];
        if (!(p >= 0 && p <= 1))
            continue;
        const double clipped = fmin(fmax(p, RT_METER_CLIP), 1 - RT_METER_CLIP);
        dp_slice_sums *one = place_of(slices, keys[i]);
        one->samples += weight;
        one->positives += positive;
        one->predicted += weight * p;
        one->loss -= positive * log(clipped) + (weight - positive) * log1p(-clipped);
    }
}

// The ones with the most samples first.
static uint32_t choose(const dp_slices *slices, uint32_t chosen[DP_SLICES_TOLD])
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < slices->count; i++) {
        uint32_t at = count;
        while (at > 0 && slices->sums[chosen[at - 1]].samples < slices->sums[i].samples)
            at--;
        if (at == DP_SLICES_TOLD)
            continue;
        count += count < DP_SLICES_TOLD;
        memmove(chosen + at + 1, chosen + at, (count - 1 - at) * sizeof *chosen);
        chosen[at] = i;
    }
    return count;
}

static double ratio(double part, double whole)
{
    return whole > 0 ? part / whole : (double)NAN;
}

static void write_one(const dp_slices *slices, const dp_slice_sums *one, rt_json *json)
{
    char name[RT_VALUE_NAME_BYTES];
    rt_json_begin_object(json, NULL);
    rt_json_string(json, "value", rt_value_names_find(slices->names, one->key, name));
    rt_json_double(json, "samples", one->samples);
    rt_json_double(json, "log_loss", ratio(one->loss, one->samples));
    rt_json_double(json, "calibration", ratio(one->predicted, one->positives));
    rt_json_double(json, "mean_label", ratio(one->positives, one->samples));
    rt_json_end_object(json);
}

void dp_slices_record(const dp_slices *slices, uint32_t iteration, rt_metrics *metrics)
{
    uint32_t chosen[DP_SLICES_TOLD];
    const uint32_t count = choose(slices, chosen);
    if (count == 0)
        return;
    rt_json *json = rt_metrics_begin(metrics, "slices");
    rt_json_u64(json, "iteration", iteration);
    rt_json_string(json, "column", slices->column);
    rt_json_begin_array(json, "values");
    for (uint32_t i = 0; i < count; i++)
        write_one(slices, &slices->sums[chosen[i]], json);
    rt_json_end_array(json);
    rt_metrics_end(metrics);
}

// ---- label by label --------------------------------------------------------------------------

struct dp_labels {
    const rt_config *config;
    uint32_t count;
    rt_meter *meters[RT_LABELS_MAX];       // of the first: NULL
    rt_quality first;                      // of the iteration
    float *predictions, *labels, *weights; // of one label: samples of a batch
};

static rt_status create_meters(dp_labels *labels)
{
    for (uint32_t l = 1; l < labels->count; l++) {
        const rt_status status = rt_meter_create(&labels->meters[l]);
        if (status)
            return status;
        rt_meter_weigh(labels->meters[l]);
    }
    return RT_OK;
}

rt_status dp_labels_create(const rt_config *config, dp_labels **labels_p)
{
    const uint32_t count = rt_config_label_count(&config->stream);
    const size_t samples = (size_t)rt_config_batch(config, config->worker_count);
    *labels_p = NULL;
    if (count == 1)
        return RT_OK;
    dp_labels *labels = rt_alloc(1, sizeof *labels);
    if (!labels)
        return RT_NO_MEMORY;
    labels->config = config;
    labels->count = count;
    labels->predictions = rt_alloc(samples, sizeof(float));
    labels->labels = rt_alloc(samples, sizeof(float));
    labels->weights = rt_alloc(samples, sizeof(float));
    rt_status status = RT_NO_MEMORY;
    if (labels->predictions && labels->labels && labels->weights)
        status = create_meters(labels);
    if (status)
        dp_labels_destroy(labels);
    else
        *labels_p = labels;
    return status;
}

void dp_labels_destroy(dp_labels *labels)
{
    if (!labels)
        return;
    for (uint32_t l = 1; l < labels->count; l++)
        rt_meter_destroy(labels->meters[l]);
    rt_free(labels->predictions);
    rt_free(labels->labels);
    rt_free(labels->weights);
    rt_free(labels);
}

uint32_t dp_labels_count(const dp_labels *labels)
{
    return labels->count;
}

rt_meter *dp_labels_meter(const dp_labels *labels, uint32_t label)
{
    return labels->meters[label];
}

// One label of all samples, or of those that have it. Returns how many.
static uint32_t take(dp_labels *labels, const dp_planned *planned, const float *predictions,
                     uint32_t label, bool all)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < planned->sample_count; i++) {
        const size_t at = (size_t)i * labels->count + label;
        if (!all && planned->weights[at] == 0 && planned->labels[at] == 0)
            continue;
        labels->predictions[count] = predictions[at];
        labels->labels[count] = planned->labels[at];
        labels->weights[count++] = planned->weights[at];
    }
    return count;
}

void dp_labels_add(dp_labels *labels, rt_meter *first, dp_slices *slices, const dp_planned *planned,
                   const float *predictions)
{
    for (uint32_t l = 0; l < labels->count; l++) {
        rt_meter *meter = first;
        const uint32_t count = take(labels, planned, predictions, l, false);
        if (l > 0) {
            meter = labels->meters[l];
            rt_meter_begin_window(meter);
        }
        rt_meter_add_weighted(meter, labels->predictions, labels->labels, labels->weights, 1,
                              count);
    }
    labels->first = rt_meter_window(first);
    if (!slices)
        return;
    take(labels, planned, predictions, 0, true);
    dp_slices_add(slices, labels->predictions, labels->labels, labels->weights, planned->slice_keys,
                  planned->sample_count);
}

void dp_labels_save(const dp_labels *labels, rt_bytes *bytes)
{
    for (uint32_t l = 1; l < labels->count; l++)
        rt_meter_save(labels->meters[l], bytes);
}

rt_status dp_labels_load(dp_labels *labels, rt_reader *reader)
{
    for (uint32_t l = 1; l < labels->count; l++) {
        const rt_status status = rt_meter_load(labels->meters[l], reader);
        if (status)
            return status;
    }
    return RT_OK;
}

void dp_labels_write(const dp_labels *labels, rt_json *json)
{
    rt_json_begin_object(json, "labels");
    for (uint32_t l = 0; l < labels->count; l++) {
        const rt_quality own = l > 0 ? rt_meter_window(labels->meters[l]) : labels->first;
        rt_metrics_quality(json, rt_config_label(&labels->config->stream, l), &own);
    }
    rt_json_end_object(json);
}

void dp_labels_print(const dp_labels *labels, const rt_quality *first)
{
    for (uint32_t l = 0; l < labels->count; l++) {
        const rt_quality own = l > 0 ? rt_meter_total(labels->meters[l]) : *first;
        char loss[RT_QUALITY_TEXT], auc[RT_QUALITY_TEXT], calibration[RT_QUALITY_TEXT];
        printf("%s: log loss %s, AUC %s, calibration %s\n",
               rt_config_label(&labels->config->stream, l), rt_quality_show(own.log_loss, 4, loss),
               rt_quality_show(own.auc, 4, auc), rt_quality_show(own.calibration, 3, calibration));
    }
}
