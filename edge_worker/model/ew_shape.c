
#include "edge_worker/model/ew_model_parts.h"

#define SHAPES 32u          // different numbers of a kind
#define LOOKUPS_PER_ROW 32u // of a row that is none

static uint32_t groups(uint32_t count, uint32_t size)
{
    return (uint32_t)((count + (uint64_t)size - 1) / size);
}

static uint32_t round_up(uint32_t count, uint32_t step, uint32_t most)
{
    return (uint32_t)rt_min_u64((uint64_t)groups(count, step) * step, most);
}

// At least count.
static uint32_t power_of_two(uint32_t count, uint32_t most)
{
    uint64_t power = 1;
    while (power < count)
        power *= 2;
    return (uint32_t)rt_min_u64(power, most);
}

static uint32_t rows_for(const ew_model *model, uint32_t sample_count)
{
    return groups(sample_count, LOOKUPS_PER_ROW) * model->config.field_count;
}

rt_status ew_shape_create(ew_model *model, rt_error *error)
{
    const ew_model_config *config = &model->config;
    ew_shape *s = &model->shape;
    s->is_used = model->device->ops->repeat && !model->device->unified && !model->split.is_used;
    if (!s->is_used)
        return RT_OK;
    s->sample_step = groups(config->sample_count_max, SHAPES); // equal shares are often multiples
    s->row_step = config->row_count_max / SHAPES + 1;
    s->spare_rows = rows_for(model, s->sample_step);
    const size_t bags = (size_t)s->sample_step * config->field_count;
    s->words = rt_alloc(rt_max_u64(bags, s->row_step + s->spare_rows), sizeof *s->words);
    s->zeros = rt_alloc((size_t)s->sample_step * config->dense_count + 1, sizeof *s->zeros);
    if (!s->words || !s->zeros)
        return rt_fail(error, RT_NO_MEMORY, "no memory for the model");
    return RT_OK;
}

void ew_shape_destroy(ew_model *model)
{
    rt_free(model->shape.words);
    rt_free(model->shape.zeros);
}

void ew_shape_round(ew_model *model, const ew_micro_batch *batch)
{
    const ew_model_config *config = &model->config;
    ew_shape *s = &model->shape;
    s->sample_count = batch->sample_count;
    s->lookup_count = batch->lookup_count;
    s->row_count = batch->row_count;
    s->looked_up = 0;
    if (!s->is_used || batch->row_count == 0)
        return;
    if (batch->labels && !config->class_count)
        s->sample_count = round_up(batch->sample_count, s->sample_step, config->sample_count_max);
    if (batch->bag_offsets) {
        s->lookup_count = power_of_two(batch->lookup_count, config->lookup_count_max);
    } else {
        const uint32_t most = config->lookup_count_max / config->field_count;
        s->sample_count = (uint32_t)rt_min_u64(s->sample_count, most);
        s->lookup_count = s->sample_count * config->field_count;
        s->looked_up = rows_for(model, s->sample_count - batch->sample_count);
    }
    s->row_count = round_up(batch->row_count + s->looked_up, s->row_step,
                            config->row_count_max + s->spare_rows);
}

static void put(ew_model *model, uint32_t *to, const void *words, size_t count)
{
    model->device->ops->copy(model->device->state, EW_COPY_IN, to, words, count * sizeof *to);
}

static void fill_slots(ew_model *model, const ew_micro_batch *batch)
{
    const ew_shape *s = &model->shape;
    const uint32_t count = s->row_count - batch->row_count;
    for (uint32_t k = 0; k < count; k++)
        s->words[k] = batch->row_slots[0];
    put(model, model->slots_buffer + batch->row_count, s->words, count);
}

static void fill_bags(ew_model *model, const ew_micro_batch *batch)
{
    const ew_shape *s = &model->shape;
    const uint32_t fields = model->config.field_count, first = s->row_count - s->looked_up;
    const uint32_t bags = batch->sample_count * fields;
    const uint32_t count = s->sample_count * fields - bags;
    if (batch->bag_offsets) {
        for (uint32_t k = 0; k < count; k++)
            s->words[k] = batch->lookup_count;
        put(model, model->bags_buffer + bags + 1, s->words, count);
        return;
    }
    for (uint32_t k = 0; k < count; k++)
        s->words[k] = first + k / fields / LOOKUPS_PER_ROW * fields + k % fields;
    put(model, model->rows_buffer + bags, s->words, count);
}

void ew_shape_fill(ew_model *model, const ew_micro_batch *batch)
{
    const ew_shape *s = &model->shape;
    const size_t dense = model->config.dense_count;
    if (s->row_count > batch->row_count)
        fill_slots(model, batch);
    if (s->sample_count == batch->sample_count)
        return;
    fill_bags(model, batch);
    put(model, (uint32_t *)(void *)model->dense_buffer + batch->sample_count * dense, s->zeros,
        (s->sample_count - batch->sample_count) * dense);
}
