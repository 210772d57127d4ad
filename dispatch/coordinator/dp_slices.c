#include "dispatch/coordinator/dp_slices.h"

#include <math.h>
#include <string.h>

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
