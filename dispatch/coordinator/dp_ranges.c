#include "dispatch/coordinator/dp_ranges.h"

#include <math.h>

rt_status dp_ranges_init(dp_ranges *ranges, uint32_t dense_count, bool has_classes)
{
    *ranges = (dp_ranges){.dense_count = dense_count, .has_classes = has_classes};
    ranges->dense_min = rt_alloc(dense_count, sizeof(float));
    ranges->dense_max = rt_alloc(dense_count, sizeof(float));
    if (!ranges->dense_min || !ranges->dense_max) {
        dp_ranges_fini(ranges);
        return RT_NO_MEMORY;
    }
    dp_ranges_clear(ranges);
    return RT_OK;
}

void dp_ranges_fini(dp_ranges *ranges)
{
    rt_free(ranges->dense_min);
    rt_free(ranges->dense_max);
    *ranges = (dp_ranges){0};
}

void dp_ranges_clear(dp_ranges *ranges)
{
    ranges->sample_count = ranges->not_finite = 0;
    ranges->label_sum = 0;
    ranges->label_min = INFINITY;
    ranges->label_max = -INFINITY;
    for (uint32_t k = 0; k < ranges->dense_count; k++) {
        ranges->dense_min[k] = INFINITY;
        ranges->dense_max[k] = -INFINITY;
    }
}

static void widen(float *min, float *max, float low, float high)
{
    if (low < *min)
        *min = low;
    if (high > *max)
        *max = high;
}

void dp_ranges_add(dp_ranges *ranges, const rt_batch *batch)
{
    const uint32_t count = ranges->dense_count;
    ranges->sample_count += batch->sample_count;
    for (uint32_t i = 0; i < batch->sample_count; i++) {
        const float *dense = batch->dense + (size_t)i * count;
        const float given = batch->labels[(size_t)i * batch->label_count];
        const float label = ranges->has_classes ? given : (float)(given > 0);
        ranges->label_sum += (double)label;
        widen(&ranges->label_min, &ranges->label_max, label, label);
        for (uint32_t k = 0; k < count; k++) {
            if (isfinite(dense[k]))
                widen(&ranges->dense_min[k], &ranges->dense_max[k], dense[k], dense[k]);
            else
                ranges->not_finite++;
        }
    }
}

void dp_ranges_merge(dp_ranges *ranges, const dp_ranges *more)
{
    rt_assert(ranges->dense_count == more->dense_count);
    ranges->sample_count += more->sample_count;
    ranges->not_finite += more->not_finite;
    ranges->label_sum += more->label_sum;
    widen(&ranges->label_min, &ranges->label_max, more->label_min, more->label_max);
    for (uint32_t k = 0; k < ranges->dense_count; k++)
        widen(&ranges->dense_min[k], &ranges->dense_max[k], more->dense_min[k], more->dense_max[k]);
}

void dp_ranges_save(const dp_ranges *ranges, rt_bytes *bytes)
{
    rt_bytes_put_u32(bytes, ranges->dense_count);
    rt_bytes_put_u64(bytes, ranges->sample_count);
    rt_bytes_put_u64(bytes, ranges->not_finite);
    rt_bytes_put_double(bytes, ranges->label_sum);
    rt_bytes_put(bytes, &ranges->label_min, sizeof ranges->label_min);
    rt_bytes_put(bytes, &ranges->label_max, sizeof ranges->label_max);
    rt_bytes_put(bytes, ranges->dense_min, ranges->dense_count * sizeof *ranges->dense_min);
    rt_bytes_put(bytes, ranges->dense_max, ranges->dense_count * sizeof *ranges->dense_max);
}

bool dp_ranges_load(dp_ranges *ranges, rt_reader *reader)
{
    const bool fits = rt_reader_u32(reader) == ranges->dense_count;
    ranges->sample_count = rt_reader_u64(reader);
    ranges->not_finite = rt_reader_u64(reader);
    ranges->label_sum = rt_reader_double(reader);
    rt_reader_get(reader, &ranges->label_min, 1, sizeof ranges->label_min);
    rt_reader_get(reader, &ranges->label_max, 1, sizeof ranges->label_max);
    rt_reader_get(reader, ranges->dense_min, ranges->dense_count, sizeof *ranges->dense_min);
    rt_reader_get(reader, ranges->dense_max, ranges->dense_count, sizeof *ranges->dense_max);
    if (fits && !reader->failed)
        return true;
    dp_ranges_clear(ranges);
    return false;
}

static void write_all(rt_json *json, const char *name, const float *values, uint32_t count)
{
    rt_json_begin_array(json, name);
    for (uint32_t k = 0; k < count; k++)
        rt_json_float(json, NULL, values[k]);
    rt_json_end_array(json);
}

void dp_ranges_write(const dp_ranges *ranges, rt_json *json, const char *name)
{
    rt_json_begin_object(json, name);
    rt_json_float(json, "label_min", ranges->label_min);
    rt_json_float(json, "label_max", ranges->label_max);
    double mean = (double)NAN; // of classes there is none
    if (!ranges->has_classes)
        mean = ranges->label_sum / (double)ranges->sample_count;
    rt_json_double(json, "label_mean", mean);
    write_all(json, "dense_min", ranges->dense_min, ranges->dense_count);
    write_all(json, "dense_max", ranges->dense_max, ranges->dense_count);
    rt_json_u64(json, "dense_not_finite", ranges->not_finite);
    rt_json_end_object(json);
}
