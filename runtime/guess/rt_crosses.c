#include "runtime/guess/rt_crosses.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/guess/rt_crosses_parts.h"

#define SLOTS_MIN (UINT64_C(1) << 12)
#define BATCH 4096u
#define RATE 0.1f // of the logistic of all columns, as FTRL-Proximal has it
#define BINS 128u // of a number: half octaves
#define PROGRESS_NS UINT64_C(500000000)

// One value of one column.
typedef struct {
    uint64_t key;
    float weight, square; // of the logistic
    uint32_t id;          // within its field, from 0
    uint32_t count;       // 0: free
} value;

typedef struct {
    value *slots;
    uint64_t slot_count, used, slot_count_max;
} table;

typedef struct {
    float weight, square;
} term;

typedef struct {
    const rt_crosses_settings *settings;
    rt_crosses *crosses;
    cross_samples *samples;
    table table;
    int32_t places[RT_FIELDS_MAX];     // of a field among the paired ones; -1: not paired
    uint32_t id_counts[RT_FIELDS_MAX]; // distinct values of a field
    term bias, *bins;                  // dense_count x BINS x 2
    uint64_t begin_ns, shown_ns;
} reading;

static value *find(value *slots, uint64_t slot_count, uint64_t key)
{
    uint64_t slot = rt_mix(key) & (slot_count - 1);
    while (slots[slot].count != 0 && slots[slot].key != key)
        slot = (slot + 1) & (slot_count - 1);
    return &slots[slot];
}

// RT_AGAIN: not within the bound.
static rt_status reserve(table *t, uint64_t key_count)
{
    uint64_t slot_count = t->slot_count;
    while (t->used + key_count > slot_count / 4 * 3)
        slot_count *= 2;
    if (slot_count == t->slot_count)
        return RT_OK;
    if (slot_count > t->slot_count_max)
        return RT_AGAIN;
    value *slots = rt_alloc(slot_count, sizeof *slots);
    if (!slots)
        return RT_NO_MEMORY;
    for (uint64_t i = 0; i < t->slot_count; i++)
        if (t->slots[i].count)
            *find(slots, slot_count, t->slots[i].key) = t->slots[i];
    rt_free(t->slots);
    t->slots = slots;
    t->slot_count = slot_count;
    return RT_OK;
}

static term *bin_of(reading *r, uint32_t column, double x)
{
    uint32_t bin = 0;
    if (x != 0)
        bin = (uint32_t)fmin(fmax(2 * (log2(fabs(x)) + 32), 1), BINS - 1);
    return &r->bins[((size_t)column * 2 + (x < 0)) * BINS + bin];
}

static void step(float *weight, float *square, float slope)
{
    *square += slope * slope;
    *weight -= RATE * slope / (1 + sqrtf(*square));
}

// A sample: what all columns say of it before it is learnt, and its values.
static void learn(reading *r, const rt_batch *batch, uint32_t i, bool label)
{
    cross_samples *samples = r->samples;
    const uint64_t at = samples->count++;
    const double *read = batch->read + (size_t)i * batch->dense_count;
    float margin = r->bias.weight;
    for (uint32_t d = 0; d < batch->dense_count; d++)
        margin += bin_of(r, d, read[d])->weight;
    for (uint32_t k = batch->key_offsets[i]; k < batch->key_offsets[i + 1]; k++) {
        const uint64_t key = batch->keys[k];
        const uint32_t field = rt_key_field(key);
        value *one = find(r->table.slots, r->table.slot_count, key);
        if (one->count == 0) {
            *one = (value){.key = key, .id = r->id_counts[field]++};
            r->table.used++;
        }
        one->count++;
        margin += one->weight;
        if (r->places[field] >= 0)
            samples->ids[(size_t)r->places[field] * samples->capacity + at] = one->id;
    }
    samples->margins[at] = margin;
    samples->labels[at] = label;
    const float slope = 1 / (1 + expf(-margin)) - (float)label;
    step(&r->bias.weight, &r->bias.square, slope);
    for (uint32_t d = 0; d < batch->dense_count; d++) {
        term *one = bin_of(r, d, read[d]);
        step(&one->weight, &one->square, slope);
    }
    for (uint32_t k = batch->key_offsets[i]; k < batch->key_offsets[i + 1]; k++) {
        value *one = find(r->table.slots, r->table.slot_count, batch->keys[k]);
        step(&one->weight, &one->square, slope);
    }
}

static rt_status learn_batch(reading *r, const rt_batch *batch)
{
    for (uint32_t i = 0; i < batch->sample_count; i++) {
        const size_t label = (size_t)i * batch->label_count;
        if (batch->is_weighted && batch->weights[label] <= 0)
            continue; // it has no label
        const rt_status status =
            reserve(&r->table, batch->key_offsets[i + 1] - batch->key_offsets[i]);
        if (status)
            return status;
        learn(r, batch, i, batch->labels[label] > 0);
    }
    return RT_OK;
}

static void show_progress(reading *r, bool is_last)
{
    const uint64_t now = rt_now_ns();
    if (!r->settings->progress || (!is_last && now - r->shown_ns < PROGRESS_NS))
        return;
    r->shown_ns = now;
    fprintf(stderr, "\r%" PRIu64 " samples, %.0f samples/s%s", r->samples->count,
            (double)r->samples->count * 1e9 / (double)(now - r->begin_ns + 1),
            is_last ? "\n" : "   ");
}

static rt_status read_samples(reading *r, rt_stream *stream, rt_batch *batch, rt_error *error)
{
    cross_samples *samples = r->samples;
    while (samples->count < samples->capacity) {
        const uint64_t left = samples->capacity - samples->count;
        rt_status status = rt_stream_read(stream, batch, (uint32_t)rt_min_u64(left, BATCH), error);
        if (!status)
            status = learn_batch(r, batch);
        if (status == RT_NO_MEMORY)
            rt_fail(error, status, "out of memory: values of columns");
        if (status)
            return status;
        show_progress(r, false);
    }
    return RT_OK;
}

static rt_status read_stream(reading *r, const rt_config *config, rt_error *error)
{
    rt_stream *stream = NULL;
    rt_batch batch;
    rt_status status = rt_stream_open(&config->stream, config->seed, &stream, error);
    if (status)
        return status;
    rt_batch_init(&batch, rt_stream_schema(stream)->dense_count);
    r->begin_ns = rt_now_ns();
    status = read_samples(r, stream, &batch, error);
    show_progress(r, true);
    rt_batch_fini(&batch);
    rt_stream_close(stream);
    if (status == RT_OK)
        r->crosses->end = r->samples->capacity < r->settings->samples_max ? RT_CROSSES_MEMORY
                                                                          : RT_CROSSES_SAMPLES;
    else if (status == RT_END)
        r->crosses->end = RT_CROSSES_INPUT;
    else if (status == RT_AGAIN)
        r->crosses->end = RT_CROSSES_MEMORY;
    else
        return status;
    return RT_OK;
}

// ---- the columns -----------------------------------------------------------------------------

// Fields are the categorical columns and those of several values, in their order.
static void choose_columns(reading *r, const rt_config *config)
{
    uint32_t field = 0;
    for (uint32_t c = 0; c < config->stream.table.column_count; c++) {
        const rt_column *column = &config->stream.table.columns[c];
        if (column->kind != RT_COLUMN_CATEGORICAL && column->kind != RT_COLUMN_MULTI)
            continue;
        r->places[field] = -1;
        if (column->kind == RT_COLUMN_CATEGORICAL && column->from_count <= 1 && *column->name) {
            r->places[field] = (int32_t)r->samples->column_count;
            r->samples->columns[r->samples->column_count++].column = c;
        } else {
            r->crosses->left_out_other++;
        }
        field++;
    }
}

static void describe_columns(reading *r)
{
    for (uint32_t field = 0; field < RT_FIELDS_MAX; field++)
        if (r->places[field] >= 0)
            r->samples->columns[r->places[field]].values = r->id_counts[field];
}

static rt_status init(reading *r, const rt_config *config, const rt_schema *schema, rt_error *error)
{
    cross_samples *samples = r->samples;
    const uint64_t half = r->settings->memory_max / 2; // the other half is the table's
    for (uint32_t field = 0; field < RT_FIELDS_MAX; field++)
        r->places[field] = -1;
    choose_columns(r, config);
    const uint64_t bytes = CROSS_BYTES + samples->column_count * sizeof *samples->ids;
    samples->capacity = rt_min_u64(r->settings->samples_max, half / bytes);
    r->table = (table){.slot_count = SLOTS_MIN, .slot_count_max = SLOTS_MIN};
    while (r->table.slot_count_max <= half / (4 * sizeof *r->table.slots))
        r->table.slot_count_max *= 2;
    samples->ids =
        rt_alloc(samples->capacity * rt_max_u64(1, samples->column_count), sizeof(uint32_t));
    samples->margins = rt_alloc(samples->capacity, sizeof *samples->margins);
    samples->labels = rt_alloc(samples->capacity, sizeof *samples->labels);
    r->table.slots = rt_alloc(r->table.slot_count, sizeof *r->table.slots);
    r->bins = rt_alloc((size_t)(schema->dense_count + 1) * 2 * BINS, sizeof *r->bins);
    if (samples->ids && samples->margins && samples->labels && r->table.slots && r->bins)
        return RT_OK;
    return rt_fail(error, RT_NO_MEMORY, "out of memory: samples of %" PRIu32 " columns",
                   samples->column_count);
}

static rt_status check(const rt_config *config, const rt_schema *schema, rt_error *error)
{
    if (!rt_format_has(config->stream.format, RT_HAS_COLUMNS))
        return rt_fail(error, RT_CONFIG,
                       "stream.format: \"%s\" has no columns that could be crossed, expected "
                       "\"table\" or \"json\" with stream.table.columns, such as the file "
                       "configs/formats/criteo.json for Criteo's lines",
                       rt_config_choice_name("stream.format", (int)config->stream.format));
    if (schema->class_count > 0)
        return rt_fail(error, RT_CONFIG,
                       "stream.table.columns: the label is one of %" PRIu32
                       " classes, expected one that is 0 or 1",
                       schema->class_count);
    return RT_OK;
}

static rt_status check_samples(const cross_samples *samples, rt_error *error)
{
    uint64_t positive = 0;
    for (uint64_t i = 0; i < samples->count; i++)
        positive += samples->labels[i];
    if (samples->count < RT_CROSSES_SAMPLES_MIN)
        return rt_fail(error, RT_DATA,
                       "stream: %" PRIu64 " samples, expected at least %u: with fewer nothing can "
                       "be said about crosses",
                       samples->count, RT_CROSSES_SAMPLES_MIN);
    if (positive == 0 || positive == samples->count)
        return rt_fail(error, RT_DATA, "stream: all %" PRIu64 " labels are %d, expected 0 and 1",
                       samples->count, positive > 0);
    return RT_OK;
}

rt_status rt_crosses_find(const rt_config *config, const rt_crosses_settings *settings,
                          rt_crosses *crosses, rt_error *error)
{
    rt_schema schema;
    cross_samples samples = {0};
    reading *r = rt_alloc(1, sizeof *r);
    *crosses = (rt_crosses){0};
    rt_status status = r ? RT_OK : rt_fail(error, RT_NO_MEMORY, "out of memory");
    if (!status)
        status = rt_stream_read_schema(&config->stream, config->seed, &schema, error);
    if (!status)
        status = check(config, &schema, error);
    if (!status) {
        r->settings = settings;
        r->crosses = crosses;
        r->samples = &samples;
        status = init(r, config, &schema, error);
        if (!status)
            status = read_stream(r, config, error);
        describe_columns(r);
        rt_free(r->table.slots);
        rt_free(r->bins);
    }
    rt_free(r);
    crosses->samples = samples.count;
    if (!status)
        status = check_samples(&samples, error);
    if (!status)
        status = cross_choose(&samples, config, settings, crosses, error);
    rt_free(samples.ids);
    rt_free(samples.margins);
    rt_free(samples.labels);
    return status;
}
