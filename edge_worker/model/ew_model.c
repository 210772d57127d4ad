#include "edge_worker/model/ew_model.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "edge_worker/model/ew_model_parts.h"
#include "runtime/config/rt_models.h"
#include "runtime/rt_hash.h"

#define XX(kind, name, traits, help) &ew_##name,
static const ew_model_kind *const kinds[] = {RT_MODEL_MAP(XX)};
#undef XX

uint32_t ew_model_parameter(ew_model *model, const char *name, uint32_t row_count,
                            uint32_t column_count, uint32_t fan_in)
{
    rt_assert(model->parameter_count < EW_TENSORS_MAX);
    ew_parameter *parameter = &model->parameters[model->parameter_count++];
    snprintf(parameter->name, sizeof parameter->name, "%s", name);
    parameter->is_vector = row_count == 0;
    parameter->row_count = row_count ? row_count : 1;
    parameter->column_count = column_count;
    parameter->offset = model->float_count;
    parameter->bound = 1 / sqrtf((float)fan_in);
    uint64_t count = model->float_count + (uint64_t)parameter->row_count * column_count;
    rt_assert(count <= INT32_MAX); // models check what the config can make large
    model->float_count = (uint32_t)count;
    return parameter->offset;
}

rt_status ew_model_buffer(ew_model *model, size_t count, void *buffer_p, rt_error *error)
{
    rt_assert(model->buffer_count < EW_BUFFERS_MAX);
    void *buffer = model->device->ops->alloc(model->device->state, count);
    if (!buffer)
        return rt_fail(error, RT_NO_MEMORY, "no memory for %zu floats of the model on the device",
                       count);
    model->buffers[model->buffer_count++] = buffer;
    memcpy(buffer_p, &buffer, sizeof buffer);
    return RT_OK;
}

rt_status ew_model_buffers(ew_model *model, const ew_model_wanted *wanted, size_t wanted_count,
                           rt_error *error)
{
    rt_status status = RT_OK;
    for (size_t i = 0; i < wanted_count && !status; i++)
        status = ew_model_buffer(model, wanted[i].count, wanted[i].buffer_p, error);
    return status;
}

void ew_model_done(ew_model *model, uint32_t offset)
{
    rt_assert(offset <= model->done_from);
    if (model->layer_done && offset < model->done_from)
        model->layer_done(model->layer_context, offset, model->done_from - offset);
    model->done_from = offset;
}

// Every model has one, a value for every label.
static const ew_parameter *output_bias(const ew_model *model)
{
    for (uint32_t i = 0; i < model->parameter_count; i++)
        if (strcmp(model->parameters[i].name, "output.bias") == 0)
            return &model->parameters[i];
    rt_assert_failed("output.bias", __FILE__, __LINE__);
}

// A uniform 24-bit integer is exact in a float, so each value is rounded once, in the product.
static void init_values(const ew_model *model, float *values)
{
    for (uint32_t i = 0; i < model->parameter_count; i++) {
        const ew_parameter *parameter = &model->parameters[i];
        rt_random random = {rt_mix(rt_mix(model->config.seed) + i)};
        size_t count = (size_t)parameter->row_count * parameter->column_count;
        for (size_t k = 0; k < count; k++) {
            int32_t integer = (int32_t)(rt_random_u64(&random) >> 40) - (1 << 23);
            values[parameter->offset + k] = (float)integer * (parameter->bound * 0x1p-23f);
        }
    }
    const double rate = model->config.model.base_rate;
    const bool has_rate = !model->config.model.base_rate_auto && rate > 0;
    for (uint32_t l = 0; has_rate && !model->config.class_count && l < model->label_count; l++)
        values[output_bias(model)->offset + l] += (float)log(rate / (1 - rate));
}

// The buffers of the batch and its results, whatever the model.
static rt_status create_buffers(ew_model *model, rt_error *error)
{
    const ew_model_config *config = &model->config;
    const size_t samples = config->sample_count_max;
    const size_t rows = model->split.row_count_max + (size_t)model->shape.spare_rows;
    const size_t lookups = model->split.lookup_count_max;
    const size_t outputs = samples * model->label_count, truths = samples * model->truth_count;
    const struct {
        size_t count;
        void *buffer_p;
        bool host_too; // unified devices read the host's
    } wanted[] = {
        {outputs, &model->logits, false},
        {outputs, &model->logit_gradients, false},
        {outputs, &model->predictions_buffer, false},
        {2, &model->loss_buffer, false},
        {rows * config->model.embedding_dim * (model->kind->has_sequence ? 2 : 1),
         &model->row_gradients, false},
        {rows + 1, &model->lookups.row_starts, false},
        {rows, &model->lookups.row_fields, false},
        {rows, &model->lookups.row_scalars, false},
        {lookups, &model->lookups.row_samples, false},
        {truths, &model->labels_buffer, true},
        {truths, &model->weights_buffer, true},
        {samples * config->dense_count, &model->dense_buffer, true},
        {lookups, &model->rows_buffer, true},
        {samples * (config->field_count + 1) + 1, &model->bags_buffer, true}, // a graph's: one more
        {rows, &model->slots_buffer, true},
    };
    rt_status status = RT_OK;
    for (size_t i = 0; i < RT_COUNT_OF(wanted) && !status; i++)
        if (!wanted[i].host_too || !model->device->unified)
            status = ew_model_buffer(model, wanted[i].count, wanted[i].buffer_p, error);
    if (!status && model->label_count > 1)
        status = ew_labels_create(model, error);
    model->lookups.field_count = model->split.fan_out ? 2 : config->field_count;
    model->lookups.dim = config->model.embedding_dim;
    model->lookups.pooling = config->model.pooling;
    return status;
}

// The dense block, once all parameters are declared.
static rt_status create_block(ew_model *model, rt_error *error)
{
    uint32_t state_count = rt_optimizer_state_floats(&model->config.optimizer, model->float_count);
    uint32_t staged_count = state_count > model->float_count ? state_count : model->float_count;
    float *staged = rt_alloc(staged_count, sizeof *staged);
    if (!staged)
        return rt_fail(error, RT_NO_MEMORY, "no memory for %u floats of the model", staged_count);
    rt_status status = ew_model_buffer(model, model->float_count, &model->values, error);
    if (!status)
        status = ew_model_buffer(model, model->float_count + (size_t)1, &model->gradients, error);
    if (!status)
        status = ew_model_buffer(model, state_count, &model->state, error);
    if (!status) {
        init_values(model, staged);
        status = ew_model_dense_write(model, EW_VALUES, staged, error);
    }
    if (!status) {
        rt_optimizer_init_state(&model->config.optimizer, model->float_count, staged);
        status = ew_model_dense_write(model, EW_OPTIMIZER_STATE, staged, error);
    }
    rt_free(staged);
    return status;
}

static rt_status check_config(const ew_model_config *config, rt_error *error)
{
    const rt_model_config *model = &config->model;
    if ((size_t)model->kind >= RT_COUNT_OF(kinds) || !kinds[model->kind])
        return rt_fail(error, RT_UNSUPPORTED, "model.name: this build has no such model");
    if (config->class_count == 1 || config->class_count > RT_CLASSES_MAX ||
        (config->class_count && config->more_labels))
        return rt_fail(error, RT_CONFIG, "model: %u classes of %u labels, expected 2 to %d of one",
                       config->class_count, config->more_labels + 1, RT_CLASSES_MAX);
    if (config->more_labels >= RT_LABELS_MAX)
        return rt_fail(error, RT_CONFIG, "model: %u labels, expected at most %d",
                       config->more_labels + 1, RT_LABELS_MAX);
    if (model->mlp_layer_count < 1 || model->mlp_layer_count > RT_MLP_LAYERS_MAX)
        return rt_fail(error, RT_CONFIG, "model.mlp: has %u layers, expected 1 to %d",
                       model->mlp_layer_count, RT_MLP_LAYERS_MAX);
    for (uint32_t i = 0; i < model->mlp_layer_count; i++)
        if (model->mlp[i] == 0)
            return rt_fail(error, RT_CONFIG, "model.mlp: layer %u has no units", i);
    if (model->embedding_dim == 0 || config->field_count == 0)
        return rt_fail(error, RT_CONFIG, "model: %u fields of embeddings of dimension %u",
                       config->field_count, model->embedding_dim);
    return RT_OK;
}

// Where the losses of labels have weights they go into labels and weights, which need room. So do
// those of samples that are none.
static rt_status create_truths(ew_model *model, rt_error *error)
{
    const size_t outputs = (size_t)model->config.sample_count_max * model->truth_count;
    for (uint32_t l = 0; l < model->truth_count; l++) {
        float *weight = &model->config.label_weights[l];
        if (!(*weight > 0) || model->truth_count == 1)
            *weight = 1;
        model->is_scaled |= *weight != 1;
    }
    if (!model->is_scaled && !model->shape.is_used)
        return RT_OK;
    model->own_labels = rt_alloc(outputs, sizeof *model->own_labels);
    model->own_weights = rt_alloc(outputs, sizeof *model->own_weights);
    if (!model->own_labels || !model->own_weights)
        return rt_fail(error, RT_NO_MEMORY, "no memory for the model");
    return RT_OK;
}

void ew_model_labels(ew_model_config *config, const rt_stream_config *stream)
{
    const uint32_t count = rt_config_label_count(stream);
    config->more_labels = count - 1;
    config->class_count = rt_config_class_count(stream);
    for (uint32_t l = 0; l < count; l++)
        config->label_weights[l] = (float)rt_config_label_weight(stream, l);
}

void ew_model_fields(ew_model_config *config, const rt_schema *schema)
{
    config->field_count = schema->field_count;
    config->tables = schema->tables;
    config->sequence_field = rt_schema_field(schema, config->model.sequence);
    config->target_field = rt_schema_field(schema, config->model.target);
}

uint32_t ew_model_output_count(const ew_model *model)
{
    return model->label_count;
}

rt_status ew_model_create(const ew_model_config *config, const ew_device *device,
                          ew_model **model_p, rt_error *error)
{
    rt_status status = check_config(config, error);
    if (status)
        return status;
    ew_model *model = rt_alloc(1, sizeof *model);
    if (!model)
        return rt_fail(error, RT_NO_MEMORY, "no memory for the model");
    model->config = *config;
    model->device = device;
    model->kind = kinds[config->model.kind];
    model->truth_count = config->more_labels + 1;
    model->label_count = config->class_count ? config->class_count : model->truth_count;
    model->part = rt_alloc(1, model->kind->part_size);
    model->predictions =
        rt_alloc((size_t)config->sample_count_max * model->label_count, sizeof *model->predictions);
    model->check_tables = rt_alloc(config->row_count_max, sizeof *model->check_tables);
    if (!model->part || !model->predictions || !model->check_tables)
        status = rt_fail(error, RT_NO_MEMORY, "no memory for the model");
    if (!status)
        status = ew_split_create(model, error);
    if (!status)
        status = ew_shape_create(model, error);
    if (!status)
        status = create_truths(model, error);
    if (!status)
        status = create_buffers(model, error);
    if (!status)
        status = model->kind->create(model, model->part, error);
    if (!status)
        status = create_block(model, error);
    if (status) {
        ew_model_destroy(model);
        return status;
    }
    *model_p = model;
    return RT_OK;
}

void ew_model_destroy(ew_model *model)
{
    if (!model)
        return;
    for (uint32_t i = 0; i < model->buffer_count; i++)
        model->device->ops->free(model->device->state, model->buffers[i]);
    ew_split_destroy(model);
    rt_free(model->check_tables);
    ew_shape_destroy(model);
    rt_free(model->predictions);
    rt_free(model->own_labels);
    rt_free(model->own_weights);
    rt_free(model->part);
    rt_free(model);
}

static rt_status check_counts(const ew_model_config *config, const ew_micro_batch *batch,
                              rt_error *error)
{
    if (batch->sample_count > config->sample_count_max)
        return rt_fail(error, RT_WIRE, "micro-batch of %u samples, expected at most %u",
                       batch->sample_count, config->sample_count_max);
    if (batch->lookup_count > config->lookup_count_max)
        return rt_fail(error, RT_WIRE, "micro-batch of %u look-ups, expected at most %u",
                       batch->lookup_count, config->lookup_count_max);
    if (batch->row_count > config->row_count_max)
        return rt_fail(error, RT_WIRE, "micro-batch of %u rows, expected at most %u",
                       batch->row_count, config->row_count_max);
    if (batch->row_stride < config->model.embedding_dim)
        return rt_fail(error, RT_WIRE, "rows %u floats apart, expected at least %u",
                       batch->row_stride, config->model.embedding_dim);
    return RT_OK;
}

static rt_status check_bags(const ew_model_config *config, const ew_micro_batch *batch,
                            rt_error *error)
{
    uint64_t bag_count = (uint64_t)batch->sample_count * config->field_count;
    const uint32_t *offsets = batch->bag_offsets;
    if (!offsets) {
        if (batch->lookup_count != bag_count)
            return rt_fail(error, RT_WIRE, "micro-batch of %u look-ups, expected %" PRIu64,
                           batch->lookup_count, bag_count);
        return RT_OK;
    }
    for (uint64_t b = 0; b < bag_count; b++)
        if (offsets[b] > offsets[b + 1])
            return rt_fail(error, RT_WIRE, "bag %" PRIu64 " ends before it begins (%u, %u)", b,
                           offsets[b], offsets[b + 1]);
    if (offsets[0] != 0 || offsets[bag_count] != batch->lookup_count)
        return rt_fail(error, RT_WIRE, "bags hold look-ups %u to %u, expected 0 to %u", offsets[0],
                       offsets[bag_count], batch->lookup_count);
    return RT_OK;
}

// Indices within their arrays, and every row in one table only.
static rt_status check_rows(ew_model *model, const ew_micro_batch *batch, uint32_t slot_count,
                            rt_error *error)
{
    uint32_t *tables = model->check_tables, field_count = model->config.field_count;
    for (uint32_t r = 0; r < batch->row_count; r++) {
        tables[r] = field_count;
        if (batch->row_slots[r] >= slot_count)
            return rt_fail(error, RT_WIRE, "row %u is in slot %u, expected below %u", r,
                           batch->row_slots[r], slot_count);
    }
    for (uint32_t bag = 0, l = 0; l < batch->lookup_count; bag++) {
        uint32_t end = batch->bag_offsets ? batch->bag_offsets[bag + 1] : bag + 1;
        for (; l < end; l++) {
            uint32_t row = batch->lookup_rows[l];
            uint32_t table = rt_tables_of(&model->config.tables, bag % field_count);
            if (row >= batch->row_count)
                return rt_fail(error, RT_WIRE, "look-up %u is of row %u, expected below %u", l, row,
                               batch->row_count);
            if (tables[row] != table && tables[row] != field_count)
                return rt_fail(error, RT_WIRE, "row %u is in field %u and in field %u", row,
                               tables[row], table);
            tables[row] = table;
        }
    }
    return RT_OK;
}

static rt_status check_classes(const ew_model_config *config, const ew_micro_batch *batch,
                               rt_error *error)
{
    if (config->class_count && batch->weights)
        return rt_fail(error, RT_WIRE, "micro-batch of classes with weights");
    for (uint32_t i = 0; config->class_count && batch->labels && i < batch->sample_count; i++) {
        const float class = batch->labels[i];
        if (!(class >= 0 && class < (float)config->class_count) || class != floorf(class))
            return rt_fail(error, RT_WIRE, "sample %u has class %g, expected 0 to %u", i,
                           (double)class, config->class_count - 1);
    }
    return RT_OK;
}

rt_status ew_model_check(ew_model *model, const ew_micro_batch *batch, uint32_t slot_count,
                         rt_error *error)
{
    rt_status status = check_counts(&model->config, batch, error);
    if (!status)
        status = check_bags(&model->config, batch, error);
    if (!status)
        status = check_rows(model, batch, slot_count, error);
    if (!status)
        status = check_classes(&model->config, batch, error);
    return status;
}

// Of samples that are none both are 0.
static void make_truths(ew_model *model, const ew_micro_batch *batch)
{
    const size_t count = (size_t)batch->sample_count * model->truth_count;
    const size_t all = (size_t)model->sample_count * model->truth_count;
    for (size_t i = 0; i < count; i++) {
        const float scale = model->config.label_weights[i % model->truth_count];
        model->own_labels[i] = batch->labels[i] * scale;
        model->own_weights[i] = batch->weights ? batch->weights[i] * scale : scale;
    }
    for (size_t i = count; i < all; i++)
        model->own_labels[i] = model->own_weights[i] = 0;
}

static void stage_labels(ew_model *model, const ew_micro_batch *batch)
{
    const ew_device *device = model->device;
    const size_t bytes = (size_t)model->sample_count * model->truth_count * sizeof(float);
    const float *labels = batch->labels, *weights = batch->weights;
    model->labels = model->weights = NULL;
    if (labels && (model->is_scaled || model->sample_count > batch->sample_count)) {
        make_truths(model, batch);
        labels = model->own_labels;
        weights = model->own_weights;
    }
    if (labels)
        model->labels = ew_device_stage(device, model->labels_buffer, labels, bytes);
    if (weights)
        model->weights = ew_device_stage(device, model->weights_buffer, weights, bytes);
}

static void stage(ew_model *model, const ew_micro_batch *given)
{
    const ew_device *device = model->device;
    ew_lookups *lookups = &model->lookups;
    size_t samples = given->sample_count;
    ew_micro_batch own = *given;
    const ew_micro_batch *batch = &own;
    rt_assert(samples <= model->config.sample_count_max);
    rt_assert(batch->lookup_count <= model->config.lookup_count_max);
    rt_assert(batch->row_count <= model->config.row_count_max);
    if (model->split.is_used)
        ew_split_batch(model, &own);
    ew_shape_round(model, batch);
    const size_t bag_samples = model->split.fan_out ? model->split.node_count : batch->sample_count;
    model->sample_count = model->shape.sample_count;
    lookups->sample_count =
        model->split.fan_out ? model->split.node_count : model->shape.sample_count;
    lookups->lookup_count = model->shape.lookup_count;
    lookups->row_count = model->shape.row_count;
    lookups->row_stride = batch->row_stride;
    lookups->slab = batch->slab;
    lookups->lookup_rows = ew_device_stage(device, model->rows_buffer, batch->lookup_rows,
                                           batch->lookup_count * sizeof(uint32_t));
    lookups->row_slots = ew_device_stage(device, model->slots_buffer, batch->row_slots,
                                         batch->row_count * sizeof(uint32_t));
    lookups->bag_offsets = NULL;
    if (batch->bag_offsets)
        lookups->bag_offsets =
            ew_device_stage(device, model->bags_buffer, batch->bag_offsets,
                            (bag_samples * lookups->field_count + 1) * sizeof(uint32_t));
    stage_labels(model, batch);
    model->dense = ew_device_stage(device, model->dense_buffer, batch->dense,
                                   samples * model->config.dense_count * sizeof(float));
    ew_shape_fill(model, batch);
}

// Forward pass, loss and, where there are labels, its gradients.
static void forward(ew_model *model, float scale)
{
    const ew_device *device = model->device;
    device->layers->index(device->state, &model->lookups);
    model->kind->forward(model, model->part);
    float *gradients = model->labels ? model->logit_gradients : NULL;
    double *loss = model->labels ? model->loss_buffer : NULL;
    if (model->config.class_count)
        device->layers->classes(device->state, model->sample_count, model->label_count,
                                model->logits, model->labels, scale, model->predictions_buffer,
                                gradients, loss);
    else
        device->layers->loss(device->state, model->sample_count * model->label_count, model->logits,
                             model->labels, model->weights, scale, model->predictions_buffer,
                             gradients, loss);
}

// All that the operations of a step depend on; the rest is the same for all steps of a model.
typedef struct {
    ew_model *model;
    const float *labels, *weights, *dense;
    ew_lookups lookups;
    float scale;
} step_key;
_Static_assert(sizeof(step_key) <= EW_REPEAT_KEY_BYTES_MAX, "a key of ew_device_ops.repeat");

static void queue_step(void *context)
{
    const step_key *key = context;
    key->model->done_from = key->model->float_count; // a capture that failed may have been here
    forward(key->model, key->scale);
    key->model->kind->backward(key->model, key->model->part);
}

// Who wants to know of layers as they are done gets them queued one by one.
static void queue_or_repeat(ew_model *model, float scale)
{
    const ew_device *device = model->device;
    step_key key;
    memset(&key, 0, sizeof key); // padding too
    key.model = model;
    key.labels = model->labels;
    key.weights = model->weights;
    key.dense = model->dense;
    key.lookups = model->lookups;
    key.scale = scale;
    if (device->ops->repeat && !model->layer_done && !model->split.is_used)
        device->ops->repeat(device->state, &key, sizeof key, queue_step, &key);
    else
        queue_step(&key);
}

static rt_status fetch(ew_model *model, const ew_micro_batch *batch, ew_step_result *result,
                       rt_error *error)
{
    const ew_device *device = model->device;
    double loss_sum = 0;
    device->ops->copy(device->state, EW_COPY_OUT, model->predictions, model->predictions_buffer,
                      batch->sample_count * (size_t)model->label_count * sizeof(float));
    if (model->labels)
        device->ops->copy(device->state, EW_COPY_OUT, &loss_sum, model->loss_buffer,
                          sizeof loss_sum);
    rt_status status = device->ops->finish(device->state, error);
    *result = (ew_step_result){.predictions = model->predictions, .loss_sum = loss_sum};
    return status;
}

double ew_model_loss(const ew_model *model)
{
    double loss_sum = 0;
    if (model->labels)
        memcpy(&loss_sum, model->loss_buffer, sizeof loss_sum);
    return loss_sum;
}

uint32_t ew_model_shifts(const ew_model *model, float log_odds, const float *more_odds,
                         float by[RT_LABELS_MAX])
{
    memset(by, 0, RT_LABELS_MAX * sizeof *by);
    if (model->config.model.base_rate_auto && !model->config.class_count) { // a softmax has no odds
        by[0] = log_odds;
        for (uint32_t l = 1; l < model->label_count && more_odds; l++)
            by[l] = more_odds[l - 1];
    }
    return output_bias(model)->offset;
}

static bool shifts_bias(const ew_model *model, const ew_micro_batch *batch)
{
    float by[RT_LABELS_MAX];
    bool shifts = false;
    (void)ew_model_shifts(model, batch->log_odds, batch->more_odds, by);
    for (uint32_t l = 0; l < RT_LABELS_MAX; l++)
        shifts |= by[l] != 0;
    return shifts;
}

// The predictions of a batch that shifts the bias, and the shift.
static rt_status shift_bias(ew_model *model, const ew_micro_batch *batch, ew_step_result *result,
                            rt_error *error)
{
    const ew_device *device = model->device;
    const size_t bytes = model->label_count * sizeof(float);
    float by[RT_LABELS_MAX], values[RT_LABELS_MAX];
    float *bias = model->values + ew_model_shifts(model, batch->log_odds, batch->more_odds, by);
    forward(model, batch->scale);
    device->ops->copy(device->state, EW_COPY_OUT, values, bias, bytes);
    rt_status status = fetch(model, batch, result, error);
    if (status)
        return status;
    for (uint32_t l = 0; l < model->label_count; l++)
        values[l] += by[l];
    device->ops->copy(device->state, EW_COPY_IN, bias, values, bytes);
    return device->ops->finish(device->state, error);
}

rt_status ew_model_step(ew_model *model, const ew_micro_batch *batch, ew_layer_done layer_done,
                        void *context, ew_step_result *result, rt_error *error)
{
    rt_assert(batch->labels != NULL || batch->sample_count == 0);
    rt_assert(batch->weights != NULL || batch->sample_count == 0 || model->truth_count == 1);
    model->layer_done = layer_done;
    model->layer_context = context;
    stage(model, batch);
    const bool shifts = shifts_bias(model, batch);
    rt_status status = shifts ? shift_bias(model, batch, result, error) : RT_OK;
    if (status)
        return status;
    queue_or_repeat(model, batch->scale);
    const float *gradients = model->split.is_used ? ew_split_sum(model) : model->row_gradients;
    ew_model_done(model, 0);
    status = shifts ? model->device->ops->finish(model->device->state, error)
                    : fetch(model, batch, result, error);
    result->row_gradients = gradients;
    return status;
}

rt_status ew_model_predict(ew_model *model, const ew_micro_batch *batch, ew_step_result *result,
                           rt_error *error)
{
    stage(model, batch);
    forward(model, batch->scale);
    return fetch(model, batch, result, error);
}

void ew_model_dense_step(ew_model *model, uint64_t step)
{
    const ew_device *device = model->device;
    device->layers->step(device->state, &model->config.optimizer, model->float_count, step,
                         model->values, model->state, model->gradients);
}

float *ew_model_dense(ew_model *model, ew_model_block block, uint32_t *count_p)
{
    *count_p = model->float_count;
    switch (block) {
    case EW_VALUES:
        return model->values;
    case EW_GRADIENTS:
        return model->gradients;
    case EW_OPTIMIZER_STATE:
        *count_p = rt_optimizer_state_floats(&model->config.optimizer, model->float_count);
        return model->state;
    }
    rt_assert_failed("block", __FILE__, __LINE__);
}

rt_status ew_model_dense_read(ew_model *model, ew_model_block block, float *host, rt_error *error)
{
    const ew_device *device = model->device;
    uint32_t count;
    const float *from = ew_model_dense(model, block, &count);
    device->ops->copy(device->state, EW_COPY_OUT, host, from, count * sizeof *from);
    return device->ops->finish(device->state, error);
}

rt_status ew_model_dense_write(ew_model *model, ew_model_block block, const float *host,
                               rt_error *error)
{
    const ew_device *device = model->device;
    uint32_t count;
    float *to = ew_model_dense(model, block, &count);
    device->ops->copy(device->state, EW_COPY_IN, to, host, count * sizeof *to);
    return device->ops->finish(device->state, error);
}

bool ew_model_tensor(const ew_model *model, uint32_t index, const float *values, rt_tensor *tensor)
{
    if (index >= model->parameter_count)
        return false;
    const ew_parameter *parameter = &model->parameters[index];
    *tensor = (rt_tensor){.rank = parameter->is_vector ? 1 : 2,
                          .values = values ? values + parameter->offset : NULL};
    memcpy(tensor->name, parameter->name, sizeof tensor->name);
    tensor->shape[0] = parameter->is_vector ? parameter->column_count : parameter->row_count;
    tensor->shape[1] = parameter->is_vector ? 0 : parameter->column_count;
    return true;
}

rt_status ew_model_load(ew_model *model, const rt_tensors *file, rt_error *error)
{
    const ew_device *device = model->device;
    rt_tensor own;
    for (uint32_t i = 0; ew_model_tensor(model, i, NULL, &own); i++) {
        const rt_tensor *found = rt_tensors_find(file, own.name);
        if (!found)
            return rt_fail(error, RT_DATA, "the model file has no tensor \"%s\"", own.name);
        if (found->rank != own.rank || memcmp(found->shape, own.shape, sizeof own.shape) != 0)
            return rt_fail(error, RT_DATA,
                           "tensor \"%s\" is %" PRIu64 " x %" PRIu64
                           " in the model file, expected %" PRIu64 " x %" PRIu64,
                           own.name, found->shape[0], found->shape[1], own.shape[0], own.shape[1]);
    }
    for (uint32_t i = 0; ew_model_tensor(model, i, NULL, &own); i++) {
        const ew_parameter *parameter = &model->parameters[i];
        size_t count = (size_t)parameter->row_count * parameter->column_count;
        device->ops->copy(device->state, EW_COPY_IN, model->values + parameter->offset,
                          rt_tensors_find(file, own.name)->values, count * sizeof(float));
    }
    return device->ops->finish(device->state, error);
}
