
#include <string.h>

#include "edge_worker/model/ew_model_parts.h"

#define NONE UINT32_MAX

// ---- creation --------------------------------------------------------------------------------

static rt_status create_host(const ew_model_config *config, ew_split *s)
{
    const size_t lookups = s->lookup_count_max, samples = config->sample_count_max;
    const struct {
        size_t count;
        uint32_t **array_p;
    } wanted[] = {
        {config->row_count_max, &s->first},
        {lookups, &s->next},
        {lookups, &s->fields},
        {lookups, &s->lookup_rows},
        {samples * (config->field_count + 1) + 1, &s->bag_offsets},
        {lookups, &s->row_slots},
        {lookups, &s->parts},
        {config->row_count_max + (size_t)1, &s->part_offsets},
        {lookups, &s->sequence_rows},
        {lookups, &s->sequence_samples},
        {samples + 1, &s->sequence_offsets},
        {2 * samples + 1, &s->node_bags},
    };
    for (size_t i = 0; i < RT_COUNT_OF(wanted); i++) {
        *wanted[i].array_p = rt_alloc(wanted[i].count, sizeof(uint32_t));
        if (!*wanted[i].array_p)
            return RT_NO_MEMORY;
    }
    return RT_OK;
}

// 0, 1, 2 ... on the device: every row of a matrix by its number.
static rt_status create_numbers(ew_model *model, rt_error *error)
{
    const ew_device *device = model->device;
    ew_split *s = &model->split;
    rt_status status = ew_model_buffer(model, s->number_count, &s->numbers, error);
    if (status)
        return status;
    uint32_t *numbers = rt_alloc(s->number_count, sizeof *numbers);
    if (!numbers)
        return rt_fail(error, RT_NO_MEMORY, "no memory for the model");
    for (uint32_t i = 0; i < s->number_count; i++)
        numbers[i] = i;
    device->ops->copy(device->state, EW_COPY_IN, s->numbers, numbers,
                      s->number_count * sizeof *numbers);
    status = device->ops->finish(device->state, error);
    rt_free(numbers);
    return status;
}

static rt_status create_device(ew_model *model, rt_error *error)
{
    const ew_model_config *config = &model->config;
    ew_split *s = &model->split;
    const size_t lookups = s->lookup_count_max, samples = config->sample_count_max;
    size_t sequence = 0, offsets = 0, node_bags = 0; // 0: the model has none
    if (s->sequence_field != NONE) {
        sequence = lookups;
        offsets = samples + 1;
    }
    if (s->fan_out)
        node_bags = 2 * samples + 1;
    const struct {
        size_t count;
        void *buffer_p;
        bool host_too; // a device that computes in host memory uses the array that is there
    } wanted[] = {
        {(size_t)config->row_count_max * config->model.embedding_dim, &s->sums, false},
        {lookups, &s->parts_buffer, true},
        {config->row_count_max + (size_t)1, &s->part_offsets_buffer, true},
        {sequence, &s->rows_buffer, true},
        {sequence, &s->samples_buffer, true},
        {offsets, &s->offsets_buffer, true},
        {node_bags, &s->node_bags_buffer, true},
    };
    for (size_t i = 0; i < RT_COUNT_OF(wanted); i++) {
        if (wanted[i].count == 0 || (wanted[i].host_too && model->device->unified))
            continue;
        const rt_status status = ew_model_buffer(model, wanted[i].count, wanted[i].buffer_p, error);
        if (status)
            return status;
    }
    return create_numbers(model, error);
}

rt_status ew_split_create(ew_model *model, rt_error *error)
{
    const ew_model_config *config = &model->config;
    ew_split *s = &model->split;
    uint64_t lookups = config->lookup_count_max;
    s->sequence_field = NONE;
    if (model->kind->has_sequence)
        s->sequence_field = config->sequence_field;
    if (model->kind->has_hops)
        s->fan_out = config->model.fan_out;
    s->is_used = config->tables.are_shared || model->kind->has_sequence || s->fan_out;
    if (s->fan_out) // a neighbour's row is looked up twice: as a node, and as a neighbour
        lookups *= 2;
    const uint64_t nodes = config->sample_count_max * (s->fan_out + UINT64_C(1));
    const uint64_t numbers = rt_max_u64(2 * lookups, nodes);
    s->lookup_count_max = config->lookup_count_max;
    s->row_count_max = config->row_count_max;
    if (!s->is_used)
        return RT_OK;
    if (numbers > UINT32_MAX)
        return rt_fail(error, RT_NO_MEMORY, "no memory for the model");
    s->lookup_count_max = s->row_count_max = (uint32_t)lookups;
    s->node_count_max = (uint32_t)nodes;
    s->number_count = (uint32_t)numbers;
    if (create_host(config, s))
        return rt_fail(error, RT_NO_MEMORY, "no memory for the model");
    return create_device(model, error);
}

void ew_split_destroy(ew_model *model)
{
    ew_split *s = &model->split;
    rt_free(s->first);
    rt_free(s->next);
    rt_free(s->fields);
    rt_free(s->lookup_rows);
    rt_free(s->bag_offsets);
    rt_free(s->row_slots);
    rt_free(s->parts);
    rt_free(s->part_offsets);
    rt_free(s->sequence_rows);
    rt_free(s->sequence_samples);
    rt_free(s->sequence_offsets);
    rt_free(s->node_bags);
}

// ---- a batch ---------------------------------------------------------------------------------

// The device's row of a row in a field. Chains are as long as the fields that share a table.
static uint32_t row_in(ew_split *s, const ew_micro_batch *batch, uint32_t row, uint32_t field)
{
    uint32_t *at = &s->first[row];
    while (*at != NONE && s->fields[*at] < field)
        at = &s->next[*at];
    if (*at != NONE && s->fields[*at] == field)
        return *at;
    const uint32_t own = s->row_count++;
    s->fields[own] = field;
    s->next[own] = *at;
    s->row_slots[own] = batch->row_slots[row];
    *at = own;
    return own;
}

static void set_parts(ew_split *s)
{
    uint32_t count = 0;
    for (uint32_t r = 0; r < s->batch_rows; r++) {
        s->part_offsets[r] = count;
        for (uint32_t at = s->first[r]; at != NONE; at = s->next[at]) {
            const bool is_of_sequence = s->fields[at] == s->sequence_field;
            s->parts[count++] = at + is_of_sequence * s->row_count_max;
        }
    }
    s->part_offsets[s->batch_rows] = count;
}

static void stage_sequence(ew_model *model, uint32_t sample_count)
{
    const ew_device *device = model->device;
    ew_split *s = &model->split;
    s->rows_there = ew_device_stage(device, s->rows_buffer, s->sequence_rows,
                                    s->sequence_count * sizeof(uint32_t));
    s->samples_there = ew_device_stage(device, s->samples_buffer, s->sequence_samples,
                                       s->sequence_count * sizeof(uint32_t));
    s->offsets_there = ew_device_stage(device, s->offsets_buffer, s->sequence_offsets,
                                       (sample_count + (size_t)1) * sizeof(uint32_t));
}

static void split_fields(ew_model *model, ew_micro_batch *batch)
{
    ew_split *s = &model->split;
    const uint32_t fields = model->config.field_count;
    uint32_t lookup = 0, kept = 0;
    for (uint32_t i = 0, bag = 0; i < batch->sample_count; i++) {
        s->sequence_offsets[i] = s->sequence_count;
        for (uint32_t f = 0; f < fields; f++, bag++) {
            const uint32_t end = ew_bag_begin(batch->bag_offsets, bag + 1);
            s->bag_offsets[bag] = kept;
            for (; lookup < end; lookup++) {
                const uint32_t own = row_in(s, batch, batch->lookup_rows[lookup], f);
                if (f != s->sequence_field) {
                    s->lookup_rows[kept++] = own;
                    continue;
                }
                s->sequence_samples[s->sequence_count] = i;
                s->sequence_rows[s->sequence_count++] = own;
            }
        }
    }
    s->bag_offsets[(size_t)batch->sample_count * fields] = kept;
    s->sequence_offsets[batch->sample_count] = s->sequence_count;
    if (s->sequence_field != NONE)
        stage_sequence(model, batch->sample_count);
    batch->lookup_count = kept;
    if (batch->bag_offsets || s->sequence_field != NONE)
        batch->bag_offsets = s->bag_offsets;
}

// ---- nodes of a graph ------------------------------------------------------------------------

typedef enum { ROLE_OWN, ROLE_NEIGHBOUR, ROLE_COUNT } role;

// What a batch's bag holds goes behind the last look-up, in this role. Returns how many there are.
static uint32_t add_bag(ew_split *s, const ew_micro_batch *batch, uint32_t bag, role as,
                        uint32_t kept)
{
    const uint32_t end = ew_bag_begin(batch->bag_offsets, bag + 1);
    for (uint32_t lookup = ew_bag_begin(batch->bag_offsets, bag); lookup < end; lookup++)
        s->lookup_rows[kept++] = row_in(s, batch, batch->lookup_rows[lookup], as);
    return kept;
}

// The node of a bag, and its neighbours: those of bag_count bags from another one on.
static uint32_t add_node(ew_split *s, const ew_micro_batch *batch, uint32_t bag, uint32_t from,
                         uint32_t bag_count, uint32_t kept)
{
    uint32_t *offsets = s->bag_offsets + (size_t)s->node_count++ * ROLE_COUNT;
    offsets[ROLE_OWN] = kept;
    offsets[ROLE_NEIGHBOUR] = kept = add_bag(s, batch, bag, ROLE_OWN, kept);
    for (uint32_t k = 0; k < bag_count; k++)
        kept = add_bag(s, batch, from + k, ROLE_NEIGHBOUR, kept);
    return kept;
}

static bool is_there(const ew_micro_batch *batch, uint32_t bag)
{
    return !batch->bag_offsets || batch->bag_offsets[bag] < batch->bag_offsets[bag + 1];
}

static void split_nodes(ew_model *model, ew_micro_batch *batch)
{
    ew_split *s = &model->split;
    const uint32_t fan_out = s->fan_out;
    uint32_t kept = 0;
    s->node_count = 0;
    for (uint32_t i = 0; i < batch->sample_count; i++) {
        const uint32_t bag = i * model->config.field_count;
        s->node_bags[2 * i] = s->node_count;
        kept = add_node(s, batch, bag, bag + 1, fan_out, kept);
        s->node_bags[2 * i + 1] = s->node_count;
        for (uint32_t k = 1; k <= fan_out; k++)
            if (is_there(batch, bag + k))
                kept = add_node(s, batch, bag + k, bag + fan_out + k, 1, kept);
    }
    s->node_bags[(size_t)2 * batch->sample_count] = s->node_count;
    s->bag_offsets[(size_t)s->node_count * ROLE_COUNT] = kept;
    s->node_bags_there =
        ew_device_stage(model->device, s->node_bags_buffer, s->node_bags,
                        ((size_t)2 * batch->sample_count + 1) * sizeof *s->node_bags);
    batch->lookup_count = kept;
    batch->bag_offsets = s->bag_offsets;
}

// ---- a batch, either way ---------------------------------------------------------------------

void ew_split_batch(ew_model *model, ew_micro_batch *batch)
{
    ew_split *s = &model->split;
    s->row_count = s->sequence_count = 0;
    s->batch_rows = batch->row_count;
    memset(s->first, 0xff, batch->row_count * sizeof *s->first); // NONE
    if (s->fan_out)
        split_nodes(model, batch);
    else
        split_fields(model, batch);
    set_parts(s);
    batch->lookup_rows = s->lookup_rows;
    batch->row_slots = s->row_slots;
    batch->row_count = s->row_count;
}

const float *ew_split_sum(ew_model *model)
{
    const ew_device *device = model->device;
    ew_split *s = &model->split;
    const uint32_t dim = model->config.model.embedding_dim;
    const ew_lookups parts = {
        .sample_count = s->batch_rows,
        .field_count = 1,
        .lookup_count = s->row_count,
        .row_count = s->row_count_max * 2,
        .dim = dim,
        .row_stride = dim,
        .pooling = RT_POOL_SUM,
        .lookup_rows =
            ew_device_stage(device, s->parts_buffer, s->parts, s->row_count * sizeof(uint32_t)),
        .bag_offsets = ew_device_stage(device, s->part_offsets_buffer, s->part_offsets,
                                       (s->batch_rows + (size_t)1) * sizeof(uint32_t)),
        .row_slots = s->numbers,
        .slab = model->row_gradients,
    };
    device->layers->pool(device->state, &parts, NULL, 0, s->sums, dim);
    return s->sums;
}
