#include "runtime/stream/rt_scale.h"
#include "runtime/wire/rt_fields.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
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
// A feature so many times as far from zero as its values are from each other loses too much when it
// is rounded to 32 bits: less its offset it does not.
#define FAR 1024
// Below this share of a value others differ from it by what 64 bits round.
#define ROUNDING (1 / (double)(UINT64_C(1) << 46))
#define WITH_OFFSETS (UINT32_C(1) << 31) // of the state as bytes, in its first number
#define MEAN_NAME "scale.mean"
#define FACTOR_NAME "scale.factor"
// With offsets the mean has another name: who does not know offsets must not take it for all.
#define OFFSET_NAME "scale.offset"
#define REST_NAME "scale.mean_less_offset"

// Of values less the offset, which is 0 unless they are far from zero.
typedef struct {
    double mean;
    double squares; // of the distances from the mean, summed
} moments;

// One per feature; low and high bound what is learnt.
typedef struct {
    double low, high, mean, squares;
    bool is_one; // it has had one value, and has it in this batch
} learning;

struct rt_scale {
    uint32_t dense_count, sample_count_max;
    uint64_t sample_count, clipped_count;
    moments *features;    // dense_count, likewise below
    double *offset;       // a sum of two floats (offset_parts), of a feature that varies
    float *mean, *factor; // what apply uses, with offset
    float *offset_parts;  // two rows: offset rounded, and what that lost
    learning *learning;
    double *column; // sample_count_max: one feature of a batch
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
    scale->offset = rt_alloc(dense_count, sizeof *scale->offset);
    scale->offset_parts = rt_alloc(2 * (size_t)dense_count, sizeof *scale->offset_parts);
    scale->learning = rt_alloc(dense_count, sizeof *scale->learning);
    scale->column = rt_alloc(sample_count_max, sizeof *scale->column);
    if (!scale->features || !scale->mean || !scale->factor || !scale->offset ||
        !scale->offset_parts || !scale->learning || !scale->column) {
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
    rt_free(scale->offset_parts);
    rt_free(scale->offset);
    rt_free(scale->factor);
    rt_free(scale->mean);
    rt_free(scale->features);
    rt_free(scale);
}

// 0: none to speak of.
static double deviation_of(const rt_scale *scale, const moments *feature)
{
    if (scale->sample_count == 0)
        return 0;
    const double deviation = sqrt(feature->squares / (double)scale->sample_count);
    const bool is_rounding = deviation <= DEVIATION_SHARE_MIN * fabs(feature->mean);
    return is_rounding || deviation <= (double)FLT_MIN ? 0 : deviation;
}

// ---- offsets ---------------------------------------------------------------------------------

static int compare_doubles(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

// Where the values of a column are: bounds of the middle nine tenths; where those are all the same
// (a feature that is mostly missing) the median distance of the others from them; 0: there are none.
typedef struct {
    double low, high, distance;
} spread;

// column: of sample_count values in any order, which it uses up.
static spread spread_of(double *column, uint32_t count)
{
    const uint32_t last = count - 1;
    qsort(column, count, sizeof *column, compare_doubles);
    const uint32_t left_out = (uint32_t)rt_min_u64(rt_max_u64(count / 20, 1), last / 2);
    const double low = column[left_out], high = column[last - left_out];
    if (low < high)
        return (spread){low, high, high - low};
    uint32_t others = 0;
    for (uint32_t i = 0; i < count; i++) {
        const double distance = fabs(column[i] - low);
        if (distance > 0)
            column[others++] = distance;
    }
    qsort(column, others, sizeof *column, compare_doubles);
    return (spread){low, high, others ? column[others / 2] : 0};
}

static void set_offset(rt_scale *scale, uint32_t k, double offset)
{
    float *parts = scale->offset_parts;
    parts[k] = (float)offset;
    parts[scale->dense_count + k] = (float)(offset - (double)parts[k]);
    scale->offset[k] = (double)parts[k] + (double)parts[scale->dense_count + k];
}

static bool are_one(double a, double b)
{
    return fabs(a - b) <= ROUNDING * fabs(a);
}

// The values of a feature, as they were read, into the column.
static void gather(rt_scale *scale, const rt_batch *batch, uint32_t k)
{
    for (uint32_t i = 0; i < batch->sample_count; i++) {
        const double value = batch->read[(size_t)i * scale->dense_count + k];
        scale->column[i] = isnan(value) ? 0 : value;
    }
}

// The same without those that are next to zero beside most: empty cells, and what stands for them.
// Returns how many.
static uint32_t gather_far(rt_scale *scale, const rt_batch *batch, uint32_t k)
{
    uint32_t left = 0;
    gather(scale, batch, k);
    for (uint32_t i = 0; i < batch->sample_count; i++)
        scale->column[i] = fabs(scale->column[i]);
    qsort(scale->column, batch->sample_count, sizeof *scale->column, compare_doubles);
    const double most = scale->column[batch->sample_count - 1 - batch->sample_count / 10];
    gather(scale, batch, k);
    for (uint32_t i = 0; i < batch->sample_count; i++)
        if (fabs(scale->column[i]) > most / FAR)
            scale->column[left++] = scale->column[i];
    return left;
}

static double middle_of(const spread *s)
{
    return s->low + (s->high - s->low) / 2;
}

// Values that are far from zero, but for gaps.
static bool finds_far(rt_scale *scale, const rt_batch *batch, uint32_t k, spread *s)
{
    const uint32_t count = gather_far(scale, batch, k);
    if (count == 0)
        return false;
    *s = spread_of(scale->column, count);
    return !are_one(s->low, s->low + s->distance) && fabs(middle_of(s)) > FAR * s->distance;
}

static void move_away(rt_scale *scale, uint32_t k, double before, double middle, double distance)
{
    // What it had before counts as near as a wild value does.
    const double reach = (double)RT_SCALE_LIMIT * distance;
    set_offset(scale, k, middle);
    scale->features[k] = (moments){.mean = fmin(fmax(before - scale->offset[k], -reach), reach)};
}

// Of a feature without a deviation so far: false: it has had one value, and this batch has no other;
// true: it varies, and whether it is far from zero follows from this batch.
static bool begin_to_vary(rt_scale *scale, const rt_batch *batch, uint32_t k)
{
    moments *feature = &scale->features[k];
    const double before = scale->offset[k] + feature->mean;
    spread s;
    if (finds_far(scale, batch, k, &s)) {
        move_away(scale, k, before, middle_of(&s), s.distance);
        return true;
    }
    gather(scale, batch, k);
    s = spread_of(scale->column, batch->sample_count);
    const bool is_one = are_one(s.low, s.low + s.distance);
    if (is_one && (scale->sample_count == 0 || are_one(s.low, before))) {
        *feature = (moments){.mean = s.low}; // with all of its bits, for when it begins to vary
        set_offset(scale, k, 0);
        return false;
    }
    const double distance = is_one ? fabs(s.low - before) : s.distance;
    if (is_one && fabs(s.low) > FAR * distance) {
        move_away(scale, k, before, s.low, distance);
    } else if (feature->squares == 0) {
        *feature = (moments){.mean = (double)(float)before};
        set_offset(scale, k, 0);
    }
    return true;
}

// dense becomes what was read less the offset, of features that have one.
static void take_offsets(const rt_scale *scale, rt_batch *batch)
{
    const uint32_t count = scale->dense_count;
    for (uint32_t k = 0; k < count; k++) {
        const double offset = scale->offset[k];
        for (size_t at = k; offset != 0 && at < (size_t)batch->sample_count * count; at += count)
            batch->dense[at] = (float)(batch->read[at] - offset);
    }
}

// ---- learning --------------------------------------------------------------------------------

// Of what dense has: where values are far from zero, what is next to zero was an empty cell.
static bool is_gap(const rt_scale *scale, uint32_t k, float value)
{
    const double offset = scale->offset[k];
    return offset != 0 && fabs((double)value + offset) < fabs(offset) / FAR;
}

// Bounds of a feature without a deviation yet, from the batch's own values: as many times the range
// of the middle nine tenths beyond it, or of the median distance of the others.
static void bound_by_batch(rt_scale *scale, const rt_batch *batch, uint32_t feature,
                           learning *bounds)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < batch->sample_count; i++) {
        const float value = batch->dense[(size_t)i * scale->dense_count + feature];
        if (!is_gap(scale, feature, value))
            scale->column[count++] = isnan(value) ? 0 : (double)value;
    }
    if (count == 0)
        return;
    const spread s = spread_of(scale->column, count);
    const double distance = s.low < s.high ? s.distance : (double)(float)s.distance;
    bounds->low = s.low - (double)RT_SCALE_LIMIT * distance;
    bounds->high = s.high + (double)RT_SCALE_LIMIT * distance;
}

static void find_bounds(rt_scale *scale, const rt_batch *batch)
{
    for (uint32_t k = 0; k < scale->dense_count; k++) {
        learning *own = &scale->learning[k];
        const double mean = scale->features[k].mean;
        const double deviation = deviation_of(scale, &scale->features[k]);
        *own = (learning){.is_one = own->is_one,
                          .low = mean - (double)RT_SCALE_LIMIT * deviation,
                          .high = mean + (double)RT_SCALE_LIMIT * deviation};
        if (deviation == 0)
            bound_by_batch(scale, batch, k, own);
    }
}

// What is no number teaches nothing; the guard against bad batches sees it. Nor does a gap.
static double bounded(const rt_scale *scale, uint32_t k, float value)
{
    const learning *bounds = &scale->learning[k];
    if (isnan(value) || is_gap(scale, k, value))
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
            scale->learning[k].mean += bounded(scale, k, batch->dense[(size_t)i * count + k]);
    for (uint32_t k = 0; k < count; k++)
        scale->learning[k].mean /= (double)batch->sample_count;
    for (uint32_t i = 0; i < batch->sample_count; i++)
        for (uint32_t k = 0; k < count; k++) {
            learning *own = &scale->learning[k];
            const double x = bounded(scale, k, batch->dense[(size_t)i * count + k]) - own->mean;
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
void rt_scale_learn(rt_scale *scale, rt_batch *batch)
{
    rt_assert(batch->dense_count == scale->dense_count);
    rt_assert(batch->sample_count <= scale->sample_count_max);
    if (batch->sample_count == 0)
        return;
    for (uint32_t k = 0; k < scale->dense_count; k++)
        scale->learning[k].is_one =
            deviation_of(scale, &scale->features[k]) == 0 && !begin_to_vary(scale, batch, k);
    take_offsets(scale, batch);
    find_bounds(scale, batch);
    measure(scale, batch);
    const double before = (double)scale->sample_count, more = (double)batch->sample_count;
    const double all = before + more;
    for (uint32_t k = 0; k < scale->dense_count; k++) {
        moments *feature = &scale->features[k];
        const learning *own = &scale->learning[k];
        if (own->is_one)
            continue;
        const double distance = own->mean - feature->mean;
        feature->mean += distance * (more / all);
        feature->squares += own->squares + distance * distance * (before * more / all);
    }
    scale->sample_count += batch->sample_count;
    set_factors(scale);
}

bool rt_scale_is_one(const rt_scale *scale, uint32_t feature, double *value_p)
{
    *value_p = scale->offset[feature] + scale->features[feature].mean;
    return scale->sample_count > 0 && deviation_of(scale, &scale->features[feature]) == 0;
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
    take_offsets(scale, batch);
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
        set_offset(copy, k, scale->offset[k]);
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

// Without offsets, which most streams need none of, the bytes are those of before there were any.
static bool has_offsets(const rt_scale *scale)
{
    bool has = false;
    for (uint32_t k = 0; k < scale->dense_count; k++)
        has |= scale->offset[k] != 0;
    return has;
}

void rt_scale_save(const rt_scale *scale, rt_bytes *bytes)
{
    const bool with_offsets = has_offsets(scale);
    const saved_head head = {.sample_count = scale->sample_count,
                             .clipped_count = scale->clipped_count,
                             .dense_count = scale->dense_count | (with_offsets ? WITH_OFFSETS : 0)};
    rt_fields_put(bytes, &head_fields, &head, 1);
    rt_fields_put(bytes, &moments_fields, scale->features, scale->dense_count);
    if (with_offsets)
        rt_bytes_put(bytes, scale->offset, scale->dense_count * sizeof *scale->offset);
}

rt_status rt_scale_load(rt_scale *scale, rt_reader *reader, rt_error *error)
{
    saved_head head = {0};
    const bool is_read = rt_fields_get(reader, &head_fields, &head, 1);
    const uint32_t dense_count = head.dense_count & ~WITH_OFFSETS;
    if (is_read && dense_count != scale->dense_count)
        return rt_fail(error, RT_DATA, "the scale of %u dense features, expected %u", dense_count,
                       scale->dense_count);
    scale->sample_count = head.sample_count;
    scale->clipped_count = head.clipped_count;
    if (!is_read || !rt_fields_get(reader, &moments_fields, scale->features, dense_count) ||
        ((head.dense_count & WITH_OFFSETS) &&
         !rt_reader_get(reader, scale->offset, dense_count, sizeof *scale->offset)))
        return rt_fail(error, RT_DATA, "the scale of the dense features is cut short");
    for (uint32_t k = 0; k < dense_count; k++) {
        if (!isfinite(scale->features[k].mean) || !isfinite(scale->features[k].squares) ||
            scale->features[k].squares < 0 || !isfinite((float)scale->offset[k]))
            return rt_fail(error, RT_DATA, "the scale of dense feature %u is no number", k);
        set_offset(scale, k, scale->offset[k]);
    }
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

uint32_t rt_scale_tensors(const rt_scale *scale, rt_tensor tensors[RT_SCALE_TENSORS])
{
    const bool with_offsets = has_offsets(scale);
    tensors[0] = (rt_tensor){
        .name = MEAN_NAME, .rank = 1, .shape = {scale->dense_count}, .values = scale->mean};
    tensors[1] = tensors[0];
    snprintf(tensors[1].name, sizeof tensors[1].name, "%s", FACTOR_NAME);
    tensors[1].values = scale->factor;
    if (!with_offsets)
        return 2;
    snprintf(tensors[0].name, sizeof tensors[0].name, "%s", REST_NAME);
    tensors[2] = (rt_tensor){.name = OFFSET_NAME,
                             .rank = 2,
                             .shape = {2, scale->dense_count},
                             .values = scale->offset_parts};
    return 3;
}

// rows x count values.
static bool take(const rt_tensor *tensor, uint32_t rows, uint32_t count, float *values)
{
    if (!tensor || tensor->rank != (rows > 1 ? 2 : 1) || tensor->shape[tensor->rank - 1] != count ||
        (rows > 1 && tensor->shape[0] != rows))
        return false;
    for (size_t k = 0; k < (size_t)rows * count; k++) {
        values[k] = tensor->values[k];
        if (!isfinite(values[k]))
            return false;
    }
    return true;
}

rt_status rt_scale_open(const rt_tensors *tensors, uint32_t dense_count, rt_scale **scale_p,
                        rt_error *error)
{
    const rt_tensor *offset = rt_tensors_find(tensors, OFFSET_NAME);
    const char *mean = offset ? REST_NAME : MEAN_NAME;
    rt_scale *scale;
    if (rt_scale_create(dense_count, 0, &scale))
        return rt_fail(error, RT_NO_MEMORY, "out of memory for the scale of the dense features");
    if (!take(rt_tensors_find(tensors, mean), 1, dense_count, scale->mean) ||
        !take(rt_tensors_find(tensors, FACTOR_NAME), 1, dense_count, scale->factor) ||
        (offset && !take(offset, 2, dense_count, scale->offset_parts))) {
        rt_scale_destroy(scale);
        return rt_fail(error, RT_DATA,
                       "\"%s\"%s and \"" FACTOR_NAME "\": expected %u finite values each", mean,
                       offset ? ", \"" OFFSET_NAME "\" (two rows)" : "", dense_count);
    }
    for (uint32_t k = 0; k < dense_count; k++)
        set_offset(scale, k,
                   (double)scale->offset_parts[k] + (double)scale->offset_parts[dense_count + k]);
    *scale_p = scale;
    return RT_OK;
}
