#include "dispatch/coordinator/dp_columns.h"

#include "runtime/rt_hash.h"

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
