#include "dispatch/coordinator/dp_columns.h"

#include <math.h>

#include "runtime/rt_hash.h"
#include "runtime/wire/rt_fields.h"

// As dp_counts_add_op counts first touches.
static bool is_first_touch(const dp_op *op)
{
    return op->kind == DP_OP_INIT || (op->kind == DP_OP_PULL && op->version == 0);
}

static void count_key(dp_columns *columns, uint32_t field, uint64_t key)
{
    columns->values[field]++;
    columns->empty[field] += (key & RT_ID_MASK) == RT_ID_MISSING;
}

static void count_lookups(dp_columns *columns, const rt_batch *batch)
{
    const uint32_t fields = batch->tables->field_count;
    uint32_t at = 0;
    for (size_t bag = 0; bag < (size_t)batch->sample_count * fields; bag++) {
        const uint32_t field = (uint32_t)(bag % fields);
        if (batch->tables->borrows[field] && at == batch->bag_offsets[bag + 1])
            count_key(columns, field, RT_ID_MISSING);
        for (; at < batch->bag_offsets[bag + 1]; at++)
            count_key(columns, field, batch->keys[batch->lookups[at]]);
    }
}

void dp_columns_count(dp_columns *columns, const rt_batch *batch, const dp_plan *plan)
{
    if (batch->tables)
        count_lookups(columns, batch);
    for (uint32_t i = 0; i < batch->key_count && !batch->tables; i++)
        count_key(columns, rt_key_field(batch->keys[i]), batch->keys[i]);
    for (uint32_t w = 0; w < plan->worker_count; w++) {
        const dp_ops *fill = &plan->slices[w].fill;
        for (uint32_t i = 0; i < fill->count; i++)
            columns->fresh[rt_key_field(fill->items[i].key)] += is_first_touch(&fill->items[i]);
    }
}

// The first key of a sample in a field: there is one in each.
static uint64_t key_in(const rt_batch *batch, uint32_t sample, uint32_t field)
{
    uint32_t at = batch->key_offsets[sample];
    if (batch->tables) {
        const size_t bag = (size_t)sample * batch->tables->field_count + field;
        at = batch->bag_offsets[bag];
        if (at == batch->bag_offsets[bag + 1])
            return rt_key(field, RT_ID_MISSING);
        return rt_tables_field_key(batch->tables, field, batch->keys[batch->lookups[at]]);
    }
    while (at + 1 < batch->key_offsets[sample + 1] && rt_key_field(batch->keys[at]) != field)
        at++;
    return batch->keys[at];
}

void dp_columns_keys(const rt_batch *batch, const dp_plan *plan, uint32_t field, uint64_t *keys)
{
    uint32_t at = 0;
    for (uint32_t w = 0; w < plan->worker_count; w++) {
        const dp_slice *slice = &plan->slices[w];
        for (uint32_t k = 0; k < slice->sample_count; k++)
            keys[at++] = key_in(batch, slice->samples[k], field);
    }
}

void dp_columns_merge(dp_columns *to, const dp_columns *from, uint32_t field_count)
{
    for (uint32_t f = 0; f < field_count; f++) {
        to->values[f] += from->values[f];
        to->empty[f] += from->empty[f];
        to->fresh[f] += from->fresh[f];
    }
}

void dp_columns_record(const dp_columns *columns, const rt_schema *schema, uint32_t iteration,
                       rt_metrics *metrics)
{
    rt_json *json = rt_metrics_begin(metrics, "columns");
    rt_json_u64(json, "iteration", iteration);
    rt_json_begin_array(json, "columns");
    for (uint32_t f = 0; f < schema->field_count; f++) {
        rt_json_begin_object(json, NULL);
        rt_json_string(json, "name", schema->field_names[f]);
        rt_json_u64(json, "values", columns->values[f]);
        rt_json_u64(json, "empty", columns->empty[f]);
        rt_json_u64(json, "new", columns->fresh[f]);
        rt_json_end_object(json);
    }
    rt_json_end_array(json);
    rt_metrics_end(metrics);
}

// ---- labels and dense features ---------------------------------------------------------------

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

// Before the smallest and largest values.
typedef struct {
    uint64_t sample_count, not_finite;
    double label_sum;
    float label_min, label_max;
    uint32_t dense_count, unused;
} saved_head;

#define HEAD(XX, PART, NONE, T) \
    XX(T, dense_count)          \
    XX(T, sample_count)         \
    XX(T, not_finite)           \
    XX(T, label_sum)            \
    XX(T, label_min)            \
    XX(T, label_max)            \
    NONE(T, unused)
RT_FIELDS(head_fields, saved_head, HEAD,
          "dense_count:4 sample_count:8 not_finite:8 label_sum:8 label_min:4 label_max:4");

void dp_ranges_save(const dp_ranges *ranges, rt_bytes *bytes)
{
    const saved_head head = {.sample_count = ranges->sample_count,
                             .not_finite = ranges->not_finite,
                             .label_sum = ranges->label_sum,
                             .label_min = ranges->label_min,
                             .label_max = ranges->label_max,
                             .dense_count = ranges->dense_count};
    rt_fields_put(bytes, &head_fields, &head, 1);
    rt_bytes_put(bytes, ranges->dense_min, ranges->dense_count * sizeof *ranges->dense_min);
    rt_bytes_put(bytes, ranges->dense_max, ranges->dense_count * sizeof *ranges->dense_max);
}

bool dp_ranges_load(dp_ranges *ranges, rt_reader *reader)
{
    saved_head head;
    const bool fits =
        rt_fields_get(reader, &head_fields, &head, 1) && head.dense_count == ranges->dense_count;
    rt_reader_get(reader, ranges->dense_min, ranges->dense_count, sizeof *ranges->dense_min);
    rt_reader_get(reader, ranges->dense_max, ranges->dense_count, sizeof *ranges->dense_max);
    if (!fits || reader->failed) {
        dp_ranges_clear(ranges);
        return false;
    }
    ranges->sample_count = head.sample_count;
    ranges->not_finite = head.not_finite;
    ranges->label_sum = head.label_sum;
    ranges->label_min = head.label_min;
    ranges->label_max = head.label_max;
    return true;
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
