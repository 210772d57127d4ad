#include "runtime/stream/rt_scale.h"
#include "runtime/wire/rt_fields.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// The same bits on every machine: see rt_optimizer.c.
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC optimize("O3", "fp-contract=off")
#endif

// Below this share of the mean a deviation is what rounding to 32 bits makes of one value.
#define DEVIATION_SHARE_MIN 1e-6
#define MEAN_NAME "scale.mean"
#define FACTOR_NAME "scale.factor"

typedef struct {
    double mean;
    double squares; // of the distances from the mean, summed
} moments;

// One per feature; low and high bound what is learnt.
typedef struct {
    double low, high, mean, squares;
} learning;

struct rt_scale {
    uint32_t dense_count, sample_count_max;
    uint64_t sample_count, clipped_count;
    moments *features;    // dense_count, likewise below
    float *mean, *factor; // what apply uses
    learning *learning;
    float *column; // sample_count_max: one feature of a batch
};

rt_status rt_scale_create(uint32_t dense_count, uint32_t sample_count_max, rt_scale **scale_p)
{
    rt_scale *scale = rt_alloc(1, sizeof *scale);
    if (!scale)
        return RT_NO_MEMORY;
    scale->dense_count = dense_count;
    scale->sample_count_max = sample_count_max;
    scale->features = rt_alloc(dense_count, sizeof *scale->features);
    scale->mean = rt_alloc(dense_count, sizeof *scale->mean);
    scale->factor = rt_alloc(dense_count, sizeof *scale->factor);
    scale->learning = rt_alloc(dense_count, sizeof *scale->learning);
    scale->column = rt_alloc(sample_count_max, sizeof *scale->column);
    if (!scale->features || !scale->mean || !scale->factor || !scale->learning || !scale->column) {
        rt_scale_destroy(scale);
        return RT_NO_MEMORY;
    }
    *scale_p = scale;
    return RT_OK;
}

void rt_scale_destroy(rt_scale *scale)
{
    if (!scale)
        return;
    rt_free(scale->column);
    rt_free(scale->learning);
    rt_free(scale->factor);
    rt_free(scale->mean);
    rt_free(scale->features);
    rt_free(scale);
}

// ---- learning --------------------------------------------------------------------------------

// 0: none to speak of.
static double deviation_of(const rt_scale *scale, const moments *feature)
{
    if (scale->sample_count == 0)
        return 0;
    const double deviation = sqrt(feature->squares / (double)scale->sample_count);
    const bool is_rounding = deviation <= DEVIATION_SHARE_MIN * fabs(feature->mean);
    return is_rounding || deviation <= (double)FLT_MIN ? 0 : deviation;
}

static int compare_floats(const void *left, const void *right)
{
    const float a = *(const float *)left, b = *(const float *)right;
    return (a > b) - (a < b);
}

// Bounds of a feature without a deviation yet, from the batch's own values: as many times the range
// of the middle nine tenths beyond it. Where those are all the same (a feature that is mostly
// missing) the median distance of the others takes the place of the range.
static void bound_by_batch(rt_scale *scale, const rt_batch *batch, uint32_t feature,
                           learning *bounds)
{
    const uint32_t count = batch->sample_count, last = count - 1;
    float *column = scale->column;
    for (uint32_t i = 0; i < count; i++) {
        const float value = batch->dense[(size_t)i * scale->dense_count + feature];
        column[i] = isnan(value) ? 0 : value;
    }
    qsort(column, count, sizeof *column, compare_floats);
    const uint32_t left_out = (uint32_t)rt_min_u64(rt_max_u64(count / 20, 1), last / 2);
    const double low = (double)column[left_out], high = (double)column[last - left_out];
    double range = high - low;
    if (range == 0) {
        uint32_t others = 0;
        for (uint32_t i = 0; i < count; i++) {
            const float distance = fabsf(column[i] - (float)low);
            if (distance > 0)
                column[others++] = distance;
        }
        qsort(column, others, sizeof *column, compare_floats);
        range = others ? (double)column[others / 2] : 0;
    }
    bounds->low = low - (double)RT_SCALE_LIMIT * range;
    bounds->high = high + (double)RT_SCALE_LIMIT * range;
}

static void find_bounds(rt_scale *scale, const rt_batch *batch)
{
    for (uint32_t k = 0; k < scale->dense_count; k++) {
        learning *own = &scale->learning[k];
        const double mean = scale->features[k].mean;
        const double deviation = deviation_of(scale, &scale->features[k]);
        *own = (learning){.low = mean - (double)RT_SCALE_LIMIT * deviation,
                          .high = mean + (double)RT_SCALE_LIMIT * deviation};
        if (deviation == 0)
            bound_by_batch(scale, batch, k, own);
    }
}

// What is no number teaches nothing; the guard against bad batches sees it.
static double bounded(const learning *bounds, float value)
{
    if (isnan(value))
        return (bounds->low + bounds->high) / 2;
    if ((double)value < bounds->low)
        return bounds->low;
    if ((double)value > bounds->high)
        return bounds->high;
    return (double)value;
}

// Mean and squares of the batch alone: two passes, samples in order.
static void measure(rt_scale *scale, const rt_batch *batch)
{
    const uint32_t count = scale->dense_count;
    for (uint32_t i = 0; i < batch->sample_count; i++)
        for (uint32_t k = 0; k < count; k++)
            scale->learning[k].mean +=
                bounded(&scale->learning[k], batch->dense[(size_t)i * count + k]);
    for (uint32_t k = 0; k < count; k++)
        scale->learning[k].mean /= (double)batch->sample_count;
    for (uint32_t i = 0; i < batch->sample_count; i++)
        for (uint32_t k = 0; k < count; k++) {
            learning *own = &scale->learning[k];
            const double x = bounded(own, batch->dense[(size_t)i * count + k]) - own->mean;
            own->squares += x * x;
        }
}

static void set_factors(rt_scale *scale)
{
    for (uint32_t k = 0; k < scale->dense_count; k++) {
        const double deviation = deviation_of(scale, &scale->features[k]);
        scale->mean[k] = (float)scale->features[k].mean;
        scale->factor[k] = deviation > 0 ? (float)(1 / deviation) : 0;
    }
}

// Chan, Golub, LeVeque, "Updating formulae and a pairwise algorithm" (1979).
void rt_scale_learn(rt_scale *scale, const rt_batch *batch)
{
    rt_assert(batch->dense_count == scale->dense_count);
    rt_assert(batch->sample_count <= scale->sample_count_max);
    if (batch->sample_count == 0)
        return;
    find_bounds(scale, batch);
    measure(scale, batch);
    const double before = (double)scale->sample_count, more = (double)batch->sample_count;
    const double all = before + more;
    for (uint32_t k = 0; k < scale->dense_count; k++) {
        moments *feature = &scale->features[k];
        const learning *own = &scale->learning[k];
        const double distance = own->mean - feature->mean;
        feature->mean += distance * (more / all);
        feature->squares += own->squares + distance * distance * (before * more / all);
    }
    scale->sample_count += batch->sample_count;
    set_factors(scale);
}

uint64_t rt_scale_samples(const rt_scale *scale)
{
    return scale->sample_count;
}

uint64_t rt_scale_clipped(const rt_scale *scale)
{
    return scale->clipped_count;
}

uint64_t rt_scale_apply(rt_scale *scale, rt_batch *batch)
{
    const uint32_t count = scale->dense_count;
    const float *restrict mean = scale->mean, *restrict factor = scale->factor;
    const float limit = RT_SCALE_LIMIT;
    uint64_t beyond = 0;
    rt_assert(batch->dense_count == count);
    for (uint32_t i = 0; i < batch->sample_count; i++) {
        float *restrict dense = batch->dense + (size_t)i * count;
        for (uint32_t k = 0; k < count; k++) {
            const float x = factor[k] > 0 ? (dense[k] - mean[k]) * factor[k] : 0;
            beyond += x > limit || x < -limit;
            dense[k] = x > limit ? limit : x < -limit ? -limit : x;
        }
    }
    scale->clipped_count += beyond;
    return beyond;
}

// ---- state -----------------------------------------------------------------------------------

void rt_scale_copy(const rt_scale *scale, rt_scale *copy)
{
    rt_assert(scale->dense_count == copy->dense_count);
    copy->sample_count = scale->sample_count;
    copy->clipped_count = scale->clipped_count;
    for (uint32_t k = 0; k < scale->dense_count; k++) {
        copy->features[k] = scale->features[k];
        copy->mean[k] = scale->mean[k];
        copy->factor[k] = scale->factor[k];
    }
}

#define MOMENTS(XX, PART, NONE, T) \
    XX(T, mean)                    \
    XX(T, squares)
RT_FIELDS(moments_fields, moments, MOMENTS, "mean:8 squares:8");

// Before those of the features.
typedef struct {
    uint64_t sample_count, clipped_count;
    uint32_t dense_count, unused;
} saved_head;

#define HEAD(XX, PART, NONE, T) \
    XX(T, dense_count)          \
    XX(T, sample_count)         \
    XX(T, clipped_count)        \
    NONE(T, unused)
RT_FIELDS(head_fields, saved_head, HEAD, "dense_count:4 sample_count:8 clipped_count:8");

void rt_scale_save(const rt_scale *scale, rt_bytes *bytes)
{
    const saved_head head = {.sample_count = scale->sample_count,
                             .clipped_count = scale->clipped_count,
                             .dense_count = scale->dense_count};
    rt_fields_put(bytes, &head_fields, &head, 1);
    rt_fields_put(bytes, &moments_fields, scale->features, scale->dense_count);
}

rt_status rt_scale_load(rt_scale *scale, rt_reader *reader, rt_error *error)
{
    saved_head head = {0};
    const bool is_read = rt_fields_get(reader, &head_fields, &head, 1);
    const uint32_t dense_count = head.dense_count;
    if (is_read && dense_count != scale->dense_count)
        return rt_fail(error, RT_DATA, "the scale of %u dense features, expected %u", dense_count,
                       scale->dense_count);
    scale->sample_count = head.sample_count;
    scale->clipped_count = head.clipped_count;
    if (!is_read || !rt_fields_get(reader, &moments_fields, scale->features, dense_count))
        return rt_fail(error, RT_DATA, "the scale of the dense features is cut short");
    for (uint32_t k = 0; k < dense_count; k++)
        if (!isfinite(scale->features[k].mean) || !isfinite(scale->features[k].squares) ||
            scale->features[k].squares < 0)
            return rt_fail(error, RT_DATA, "the scale of dense feature %u is no number", k);
    set_factors(scale);
    return RT_OK;
}

void rt_scale_go_on(rt_scale *scale, uint64_t sample_count)
{
    scale->sample_count = rt_max_u64(sample_count, 1);
    for (uint32_t k = 0; k < scale->dense_count; k++) {
        const double factor = (double)scale->factor[k];
        scale->features[k] =
            (moments){.mean = (double)scale->mean[k],
                      .squares = factor > 0 ? (double)scale->sample_count / (factor * factor) : 0};
    }
}

void rt_scale_tensors(const rt_scale *scale, rt_tensor tensors[RT_SCALE_TENSORS])
{
    tensors[0] = (rt_tensor){
        .name = MEAN_NAME, .rank = 1, .shape = {scale->dense_count}, .values = scale->mean};
    tensors[1] = (rt_tensor){
        .name = FACTOR_NAME, .rank = 1, .shape = {scale->dense_count}, .values = scale->factor};
}

static bool take(const rt_tensor *tensor, uint32_t count, float *values)
{
    if (!tensor || tensor->rank != 1 || tensor->shape[0] != count)
        return false;
    for (uint32_t k = 0; k < count; k++) {
        values[k] = tensor->values[k];
        if (!isfinite(values[k]))
            return false;
    }
    return true;
}

rt_status rt_scale_open(const rt_tensors *tensors, uint32_t dense_count, rt_scale **scale_p,
                        rt_error *error)
{
    const rt_tensor *mean = rt_tensors_find(tensors, MEAN_NAME);
    const rt_tensor *factor = rt_tensors_find(tensors, FACTOR_NAME);
    rt_scale *scale;
    if (rt_scale_create(dense_count, 0, &scale))
        return rt_fail(error, RT_NO_MEMORY, "out of memory for the scale of the dense features");
    if (!take(mean, dense_count, scale->mean) || !take(factor, dense_count, scale->factor)) {
        rt_scale_destroy(scale);
        return rt_fail(error, RT_DATA,
                       "\"" MEAN_NAME "\" and \"" FACTOR_NAME "\": expected %u finite values each",
                       dense_count);
    }
    *scale_p = scale;
    return RT_OK;
}
