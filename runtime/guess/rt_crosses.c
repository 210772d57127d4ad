#include "runtime/guess/rt_crosses.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/guess/rt_crosses_parts.h"
#include "runtime/rt_chains.h"

#define BATCH 4096u
#define RATE 0.1f // of the logistic of all columns, as FTRL-Proximal has it
#define BINS 128u // of a number: half octaves
#define PROGRESS_NS UINT64_C(500000000)

// One value of one column, by its key.
typedef struct {
    float weight, square; // of the logistic
    uint32_t id;          // within its field, from 0
    uint32_t unused;
} value;

#define VALUE_BYTES (sizeof(value) + 16) // with its places in rt_chains

typedef struct {
    float weight, square;
} term;

typedef struct {
    const rt_crosses_settings *settings;
    rt_crosses *crosses;
    cross_samples *samples;
    rt_chains values;
    int32_t places[RT_FIELDS_MAX];     // of a field among the paired ones; -1: not paired
    uint32_t id_counts[RT_FIELDS_MAX]; // distinct values of a field
    term bias, *bins;                  // dense_count x BINS x 2
    uint64_t begin_ns, shown_ns;
} reading;

// Room for so many values more. RT_AGAIN: not within half of the memory, which they have while they
// grow.
static rt_status reserve(reading *r, uint32_t key_count)
{
    const uint64_t needed = (uint64_t)r->values.items.count + key_count;
    if (needed > r->values.items.capacity &&
        (needed + r->values.items.capacity) * 2 * VALUE_BYTES > r->settings->memory_max / 2)
        return RT_AGAIN;
    return rt_chains_reserve(&r->values, key_count);
}

static value *find(const reading *r, uint64_t key)
{
    const uint32_t number = rt_chains_first(&r->values, key);
    return number == RT_NO_ITEM ? NULL : rt_chains_item(&r->values, number);
}

static value *find_or_add(reading *r, uint64_t key)
{
    value *one = find(r, key);
    if (one)
        return one;
    one = rt_chains_item(&r->values, rt_chains_add(&r->values, key));
    one->id = r->id_counts[rt_key_field(key)]++;
    return one;
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
        const value *one = find_or_add(r, key);
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
        value *one = find(r, batch->keys[k]);
        step(&one->weight, &one->square, slope);
    }
}

static rt_status learn_batch(reading *r, const rt_batch *batch)
{
    for (uint32_t i = 0; i < batch->sample_count; i++) {
        const size_t label = (size_t)i * batch->label_count;
        if (batch->is_weighted && batch->weights[label] <= 0)
            continue; // it has no label
        const rt_status status = reserve(r, batch->key_offsets[i + 1] - batch->key_offsets[i]);
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
    const uint64_t half = r->settings->memory_max / 2; // the other half is that of values
    for (uint32_t field = 0; field < RT_FIELDS_MAX; field++)
        r->places[field] = -1;
    choose_columns(r, config);
    const uint64_t bytes = CROSS_BYTES + samples->column_count * sizeof *samples->ids;
    samples->capacity = rt_min_u64(r->settings->samples_max, half / bytes);
    samples->ids =
        rt_alloc(samples->capacity * rt_max_u64(1, samples->column_count), sizeof(uint32_t));
    samples->margins = rt_alloc(samples->capacity, sizeof *samples->margins);
    samples->labels = rt_alloc(samples->capacity, sizeof *samples->labels);
    r->bins = rt_alloc((size_t)(schema->dense_count + 1) * 2 * BINS, sizeof *r->bins);
    if (samples->ids && samples->margins && samples->labels && r->bins &&
        rt_chains_init(&r->values, sizeof(value)) == RT_OK)
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
        rt_chains_fini(&r->values);
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
