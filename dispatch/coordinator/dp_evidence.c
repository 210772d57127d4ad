#include "dispatch/coordinator/dp_evidence.h"

#include <math.h>
#include <string.h>

#define LEAST 1e-7 // that a probability is taken for: no loss is infinite

// ---- samples of a batch ----------------------------------------------------------------------

void dp_heard_init(dp_heard *heard, uint32_t dense_count)
{
    *heard = (dp_heard){0};
    rt_batch_init(&heard->batch, dense_count);
}

void dp_heard_fini(dp_heard *heard)
{
    rt_batch_fini(&heard->batch);
    rt_free(heard->from);
    rt_free(heard->at);
    *heard = (dp_heard){0};
}

static rt_status take_one(dp_heard *heard, const rt_batch *batch, uint32_t i)
{
    const size_t label = (size_t)i * batch->label_count;
    const uint32_t first = batch->key_offsets[i], count = batch->key_offsets[i + 1] - first;
    const float weight = batch->is_weighted ? batch->weights[label] : 1;
    const float value = batch->labels[label];
    rt_batch *to = &heard->batch;
    if (!(weight > 0) || (batch->is_weighted && value > weight))
        return RT_OK; // it lacks the label, or corrects one that was trained before
    uint32_t capacity = heard->capacity;
    if (rt_grow(&heard->from, &capacity, to->sample_count + 1u, sizeof *heard->from) ||
        rt_grow(&heard->at, &heard->capacity, to->sample_count + 1u, sizeof *heard->at) ||
        rt_batch_append_read(to, 0, batch->read + (size_t)i * batch->dense_count,
                             batch->keys + first, count))
        return RT_NO_MEMORY;
    heard->from[to->sample_count - 1] = i;
    to->labels[to->sample_count - 1] = batch->is_weighted ? (float)(value > 0) : value;
    to->weights[to->sample_count - 1] = weight;
    return RT_OK;
}

rt_status dp_heard_take(dp_heard *heard, const rt_batch *batch, uint64_t every, uint64_t *passed)
{
    rt_batch_begin(&heard->batch, 1, true);
    for (uint32_t i = 0; i < batch->sample_count; i++)
        if ((*passed)++ % every == 0 && take_one(heard, batch, i))
            return RT_NO_MEMORY;
    return RT_OK;
}

// ---- of the last while -----------------------------------------------------------------------

uint64_t dp_evidence_every(const rt_publish_config *config)
{
    return rt_max_u64((config->guard_samples + DP_EVIDENCE_MAX - 1) / DP_EVIDENCE_MAX, 1);
}

void dp_evidence_init(dp_evidence *evidence, const rt_config *config, uint32_t dense_count)
{
    const double keep = config->stream.negatives_keep;
    *evidence = (dp_evidence){.class_count = rt_config_class_count(&config->stream),
                              .negatives_weigh = keep > 0 ? 1 / keep : 1};
    rt_batch_init(&evidence->batch, dense_count);
    rt_batch_begin(&evidence->batch, 1, true);
}

void dp_evidence_fini(dp_evidence *evidence)
{
    rt_batch_fini(&evidence->batch);
    rt_free(evidence->predictions);
    rt_free(evidence->iterations);
    *evidence = (dp_evidence){0};
}

static rt_status append(rt_batch *to, const rt_batch *from, uint32_t i)
{
    const uint32_t first = from->key_offsets[i];
    if (rt_batch_append_read(to, 0, from->read + (size_t)i * from->dense_count, from->keys + first,
                             from->key_offsets[i + 1] - first))
        return RT_NO_MEMORY;
    to->labels[to->sample_count - 1] = from->labels[i];
    to->weights[to->sample_count - 1] = from->weights[i];
    return RT_OK;
}

// The older half goes, once there is twice as much as is wanted.
static void make_room(dp_evidence *e)
{
    rt_batch kept;
    rt_status status = RT_OK;
    if (e->batch.sample_count < 2 * DP_EVIDENCE_MAX)
        return;
    rt_batch_init(&kept, e->batch.dense_count);
    rt_batch_begin(&kept, 1, true);
    for (uint32_t i = DP_EVIDENCE_MAX; i < e->batch.sample_count && !status; i++)
        status = append(&kept, &e->batch, i);
    const uint32_t count = kept.sample_count;
    memmove(e->predictions, e->predictions + DP_EVIDENCE_MAX, count * sizeof *e->predictions);
    memmove(e->iterations, e->iterations + DP_EVIDENCE_MAX, count * sizeof *e->iterations);
    rt_batch_fini(&e->batch);
    e->batch = kept;
}

static float prediction_of(const dp_evidence *e, float label, const float *outputs)
{
    if (e->class_count)
        return outputs[(uint32_t)label];
    return outputs[0];
}

static bool reserve(dp_evidence *e, uint32_t count)
{
    uint32_t capacity = e->capacity;
    if (rt_grow(&e->predictions, &capacity, count, sizeof *e->predictions))
        return false;
    return rt_grow(&e->iterations, &e->capacity, count, sizeof *e->iterations) == RT_OK;
}

void dp_evidence_add(dp_evidence *e, const dp_heard *heard, const float *predictions,
                     uint32_t output_count, uint32_t iteration)
{
    const rt_batch *batch = &heard->batch;
    make_room(e);
    for (uint32_t i = 0; i < batch->sample_count; i++) {
        const uint32_t at = e->batch.sample_count;
        if (!reserve(e, at + 1) || append(&e->batch, batch, i))
            return;
        const float *outputs = predictions + (size_t)heard->at[i] * output_count;
        e->predictions[at] = prediction_of(e, batch->labels[i], outputs);
        e->iterations[at] = iteration;
    }
}

uint32_t dp_evidence_first(const dp_evidence *e, uint32_t after)
{
    const uint32_t count = e->batch.sample_count;
    uint32_t first = count > DP_EVIDENCE_MAX ? count - DP_EVIDENCE_MAX : 0;
    while (first < count && e->iterations[first] <= after)
        first++;
    return first;
}

static double loss_of(const dp_evidence *e, float label, double p)
{
    if (!isfinite(p))
        return -log(LEAST);
    if (!e->class_count && label <= 0)
        p = 1 - p;
    return -log(fmin(fmax(p, LEAST), 1));
}

void dp_evidence_compare(const dp_evidence *e, uint32_t first, const float *theirs,
                         uint32_t output_count, dp_comparison *comparison)
{
    double weights = 0, squares = 0, ones = 0, loss[2] = {0}, predicted[2] = {0};
    double sum = 0, sum_of_squares = 0;
    uint32_t positives = 0;
    *comparison = (dp_comparison){.count = e->batch.sample_count - first};
    for (uint32_t i = first; i < e->batch.sample_count; i++) {
        const float label = e->batch.labels[i];
        const float *outputs = theirs + (size_t)(i - first) * output_count;
        double weight = (double)e->batch.weights[i], of[2];
        const double p[2] = {(double)e->predictions[i], (double)prediction_of(e, label, outputs)};
        if (!e->class_count && label <= 0)
            weight *= e->negatives_weigh;
        for (int who = 0; who < 2; who++) {
            of[who] = loss_of(e, label, p[who]);
            loss[who] += weight * of[who];
            predicted[who] += weight * p[who];
        }
        sum += weight * (of[DP_OURS] - of[DP_THEIRS]);
        sum_of_squares +=
            weight * weight * (of[DP_OURS] - of[DP_THEIRS]) * (of[DP_OURS] - of[DP_THEIRS]);
        weights += weight;
        squares += weight * weight;
        ones += label > 0 ? weight : 0;
        positives += label > 0;
    }
    comparison->rarer = (uint32_t)rt_min_u64(positives, comparison->count - positives);
    if (e->class_count)
        comparison->rarer = comparison->count;
    const double mean = sum / weights;
    comparison->ones = ones;
    comparison->difference_deviation =
        sqrt(fmax(sum_of_squares - mean * mean * squares, 0)) / weights;
    for (int who = 0; who < 2; who++) {
        comparison->log_loss[who] = loss[who] / weights;
        comparison->calibration[who] = NAN;
        if (!e->class_count && ones > 0)
            comparison->calibration[who] = predicted[who] / ones;
    }
}
